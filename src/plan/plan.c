#include "plan/plan.h"
#include "gpu/quirks.h"
#include "plan/cache.h"
#include "plan/nonfinite.h"
#include "plan/self_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_WORKSPACE (64ull << 20)
#define DEFAULT_BUDGET 200000000ull /* nanoseconds */
#define LEAST_ALIGNMENT 16u         /* of a binding: vec4 loads */

static void release_recording(struct vka_plan *plan)
{
    struct vka_device *device = plan->device;
    const bool forked = device_is_forked(device);
    for (size_t i = 0; i < plan->n_pass; i++)
        for (size_t j = 0; j < MAX_TEXEL_BUFFERS; j++) {
            VkBufferView *view = &plan->passes[i].views[j];
            if (*view && !forked)
                device->vk.vkDestroyBufferView(device->handle, *view, NULL);
            *view = VK_NULL_HANDLE;
        }
    if (plan->queries && !forked)
        device->vk.vkDestroyQueryPool(device->handle, plan->queries, NULL);
    if (plan->descriptors && !forked)
        device->vk.vkDestroyDescriptorPool(device->handle, plan->descriptors, NULL);
    if (plan->pool && !forked)
        device->vk.vkDestroyCommandPool(device->handle, plan->pool, NULL);
    free(plan->gpu_ms);
    free(plan->commands);
    free(plan->first);
    plan->commands = NULL;
    plan->first = NULL;
    plan->n_submit = 0;
    plan->queries = VK_NULL_HANDLE;
    plan->descriptors = VK_NULL_HANDLE;
    plan->pool = VK_NULL_HANDLE;
    plan->gpu_ms = NULL;
}

static struct vka_plan *plan_of(struct recorded *self)
{
    return (struct vka_plan *)((char *)self - offsetof(struct vka_plan, recorded));
}

static void release_plan(struct recorded *self)
{
    release_recording(plan_of(self));
}

/* Records a plan of a device that was lost once more. One that reads what did not come back stays
 * without a recording and is refused. */
static enum vka_status restore_plan(struct recorded *self)
{
    struct vka_plan *plan = plan_of(self);
    plan->lost_ticket = plan->last_ticket;
    plan->timed_ticket = 0;
    plan->counted = false;
    for (size_t i = 0; i < plan->n_pass; i++)
        for (uint32_t j = 0; j < kernel_table[plan->passes[i].key.kernel].buffers; j++)
            plan->stale |= plan->passes[i].bindings[j].storage->stale;
    return plan->finished && !plan->stale ? plan_record(plan) : VKA_OK;
}

enum vka_status vka_plan_create(struct vka_device *device, const struct vka_plan_info *info,
                                struct vka_plan **out)
{
    static const struct vka_plan_info defaults = {.struct_size = sizeof defaults};
    if (out)
        *out = NULL;
    if (!device)
        return VKA_INVALID;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    if (!info)
        info = &defaults;
    CHECK_ARG(out, "%s: plan is NULL", __func__);
    CHECK_ARG(info->struct_size == sizeof *info, "%s: struct_size is %zu, not %zu", __func__,
              info->struct_size, sizeof *info);
    CHECK_ARG((unsigned)info->path < VKA_PATH_COUNT, "%s: path %d is unknown", __func__,
              (int)info->path);
    CHECK_ARG(!info->whole_n_head == !info->whole_n_kv_head &&
                  (!info->whole_n_head || info->whole_n_head % info->whole_n_kv_head == 0),
              "%s: whole_n_head is %u, no multiple of whole_n_kv_head %u", __func__,
              info->whole_n_head, info->whole_n_kv_head);
    struct vka_plan *plan = calloc(1, sizeof *plan);
    CHECK_ALLOC(plan);
    plan->device = device;
    plan->scratch_level = 1;
    plan->path = info->path;
    plan->workspace_limit = info->workspace_limit ? info->workspace_limit : DEFAULT_WORKSPACE;
    plan->whole_n_head = info->whole_n_head;
    plan->whole_n_kv_head = info->whole_n_kv_head;
    plan->whole_n_q = info->whole_n_q;
    plan->count_nonfinite = info->count_nonfinite;
    plan->budget = info->submit_budget == VKA_NO_BUDGET ? INFINITY
                   : info->submit_budget                ? (double)info->submit_budget
                                                        : (double)DEFAULT_BUDGET;
    plan->timestamps = info->timestamps && device->caps.properties.timestamps;
    plan->recorded = (struct recorded){device->recorded, release_plan, restore_plan};
    device->recorded = &plan->recorded;
    *out = plan;
fail:
    return status;
}

static void release_bindings(struct pass *pass)
{
    for (uint32_t i = 0; i < kernel_table[pass->key.kernel].buffers; i++)
        storage_unref(&pass->bindings[i].storage);
}

static void plan_free(struct vka_device *device, struct retired *self)
{
    struct vka_plan *plan = (struct vka_plan *)self;
    struct recorded **link = &device->recorded;
    while (*link != &plan->recorded)
        link = &(*link)->next;
    *link = plan->recorded.next;
    release_recording(plan);
    for (size_t i = 0; i < plan->n_pass; i++)
        release_bindings(&plan->passes[i]);
    for (size_t i = 0; i < plan->n_scratch; i++)
        storage_unref(&plan->scratches[i].storage);
    for (size_t i = 0; i < plan->n_cache; i++)
        cache_unref(plan->caches[i].cache);
    free(plan->caches);
    free(plan->counts);
    free(plan->passes);
    free(plan->scratches);
    free(plan);
}

void vka_plan_destroy(struct vka_plan **slot)
{
    if (!slot || !*slot)
        return;
    struct vka_plan *plan = *slot;
    *slot = NULL;
    plan->retired.ticket = plan->last_ticket;
    plan->retired.release = plan_free;
    queue_retire(plan->device, &plan->retired);
}

enum vka_status plan_begin(struct vka_plan *plan, const char *caller, struct plan_mark *mark)
{
    if (!plan)
        return VKA_INVALID;
    *mark = (struct plan_mark){plan->n_pass,  plan->n_count,   plan->n_scratch,
                               plan->n_cache, plan->predicted, plan->device->caps.wrong_kernels};
    if (plan->finished)
        return log_error(&plan->device->log, VKA_INVALID, "%s: the plan is finished", caller);
    return device_check(plan->device);
}

enum vka_status plan_end(struct vka_plan *plan, struct plan_mark mark, enum vka_status status)
{
    if (status != VKA_OK) {
        while (plan->n_pass > mark.n_pass)
            release_bindings(&plan->passes[--plan->n_pass]);
        while (plan->n_scratch > mark.n_scratch)
            storage_unref(&plan->scratches[--plan->n_scratch].storage);
        while (plan->n_cache > mark.n_cache)
            cache_unref(plan->caches[--plan->n_cache].cache);
        plan->n_count = mark.n_count;
        plan->predicted = mark.predicted;
    }
    for (size_t i = 0; i < plan->n_scratch; i++)
        plan->scratches[i].used = 0;
    plan->scratch_level = 1;
    return status;
}

static uint64_t binding_alignment(const struct vka_plan *plan)
{
    uint32_t alignment = plan->device->caps.buffer_alignment;
    return alignment > LEAST_ALIGNMENT ? alignment : LEAST_ALIGNMENT;
}

/* From the aligned byte at or before the first element to 16 bytes around the last. */
static struct binding range_of(const struct vka_plan *plan, const struct vka_tensor *tensor)
{
    uint64_t size = vka_dtype_size(tensor->dtype), alignment = binding_alignment(plan);
    uint64_t first = tensor->shape.offset * size;
    uint64_t end = first + shape_extent(&tensor->shape) * size;
    struct binding b = {.storage = tensor->storage, .offset = first / alignment * alignment};
    end = (end + LEAST_ALIGNMENT - 1) / LEAST_ALIGNMENT * LEAST_ALIGNMENT;
    b.size = end - b.offset; /* within the storage: its range is whole 256 bytes */
    return b;
}

uint64_t plan_range(const struct vka_plan *plan, const struct vka_tensor *tensor)
{
    return range_of(plan, tensor).size;
}

bool plan_is_ours(const struct vka_plan *plan, const struct vka_tensor *tensor)
{
    VkBufferUsageFlags need = memory_usage(plan->device);
    return (tensor->storage->range.block->usage & need) == need &&
           plan_range(plan, tensor) / 16 <= plan->device->caps.max_texels;
}

void plan_bind(const struct vka_plan *plan, struct pass *pass, uint32_t slot,
               const struct vka_tensor *tensor, bool write, uint32_t *offset)
{
    struct binding *b = &pass->bindings[slot];
    *b = range_of(plan, tensor);
    b->write = write;
    if (offset)
        *offset = (uint32_t)(tensor->shape.offset - b->offset / vka_dtype_size(tensor->dtype));
}

static enum vka_status weights_lost(struct log *log)
{
    return log_error(log, VKA_DEVICE_LOST,
                     "the plan reads weights that were lost with the device: its layer was made "
                     "without keep_weights");
}

enum vka_status plan_check_alive(const struct vka_plan *plan)
{
    enum vka_status status = device_check(plan->device);
    return status == VKA_OK && plan->stale ? weights_lost(&plan->device->log) : status;
}

double plan_time(const struct vka_plan *plan, enum kernel kernel, const struct work *work)
{
    return budget_time(&plan->device->caps, &plan->device->rates, kernel, work);
}

bool plan_fits(const struct vka_plan *plan, enum kernel kernel, const struct work *work)
{
    return budget_fits(&plan->device->caps, &plan->device->rates, kernel, work, plan->budget);
}

static void widen_texels(const struct caps *caps, struct pass *pass)
{
    for (uint32_t i = 0; i < kernel_table[pass->key.kernel].buffers; i++) {
        struct binding *b = &pass->bindings[i];
        const struct memory_range *range = &b->storage->range;
        uint64_t size = quirk_texel_size(&caps->properties, b->size);
        if (kernel_descriptor(pass->key.kernel, i) == VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER &&
            size <= caps->properties.max_buffer_range && size / 16 <= caps->max_texels &&
            range->offset + b->offset + size <= range->block->size)
            b->size = size;
    }
}

enum vka_status plan_check_room(const struct vka_plan *plan, size_t n)
{
    if (n > MOST_PASSES - plan->n_pass)
        return log_error(&plan->device->log, VKA_UNSUPPORTED, "the plan needs more than %u passes",
                         MOST_PASSES);
    return VKA_OK;
}

enum vka_status plan_add_pass(struct vka_plan *plan, const struct pass *pass)
{
    enum vka_status status = VKA_OK;
    struct log *log = &plan->device->log;
    const struct caps *caps = &plan->device->caps;
    const struct kernel_info *kernel = &kernel_table[pass->key.kernel];
    const uint64_t wrong = caps->wrong_kernels;
    TRY(self_test_pass(plan->device, &pass->key));
    if (caps->wrong_kernels != wrong)
        return VKA_UNSUPPORTED; /* without a word: the operation is tried again with others */
    TRY(plan_check_room(plan, 1));
    const char *missing = kernel_missing(pass->key.kernel, caps);
    if (missing)
        return log_error(log, VKA_UNSUPPORTED, "%s: the kernel %s %s", pass->name, kernel->name,
                         missing);
    for (int i = 0; i < 3; i++)
        if (pass->groups[i] > caps->max_groups[i])
            return log_error(log, VKA_UNSUPPORTED,
                             "%s needs %u workgroups on axis %d, the device allows %u", pass->name,
                             pass->groups[i], i, caps->max_groups[i]);
    if (pass->work.loops > budget_max_loops(caps))
        return log_error(log, VKA_UNSUPPORTED,
                         "%s needs %.0f loop iterations of an invocation, the driver makes %.0f",
                         pass->name, pass->work.loops, budget_max_loops(caps));
    for (uint32_t i = 0; i < kernel->buffers; i++)
        if (pass->bindings[i].size > caps->properties.max_buffer_range)
            return log_error(log, VKA_UNSUPPORTED,
                             "%s needs %llu bytes of one buffer, the device allows %llu",
                             pass->name, (unsigned long long)pass->bindings[i].size,
                             (unsigned long long)caps->properties.max_buffer_range);
    for (uint32_t i = 0; i < kernel->buffers; i++)
        if (pass->bindings[i].storage->stale)
            return weights_lost(log);
    void *array = plan->passes;
    TRY(plan_grow(log, &array, plan->n_pass, &plan->pass_room, sizeof *plan->passes));
    plan->passes = array;
    plan->passes[plan->n_pass] = *pass;
    widen_texels(caps, &plan->passes[plan->n_pass++]);
    plan->predicted += plan_time(plan, pass->key.kernel, &pass->work);
    for (uint32_t i = 0; i < kernel->buffers; i++)
        storage_ref(pass->bindings[i].storage);
fail:
    return status;
}

enum vka_status vka_plan_finish(struct vka_plan *plan)
{
    if (!plan)
        return VKA_INVALID;
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    CHECK_ARG(!plan->finished, "%s: the plan is finished already", __func__);
    CHECK_ARG(plan->n_pass > 0, "%s: the plan is empty", __func__);
    TRY(plan_check_alive(plan));
    status = plan_record(plan);
    if (status == VKA_OK)
        plan->finished = true;
    else
        release_recording(plan);
fail:
    return status;
}

enum vka_status plan_submit(struct vka_plan *plan, const char *caller,
                            const struct vka_submit_info *info, uint64_t *ticket)
{
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    CHECK_ARG(plan->finished, "%s: the plan is not finished", caller);
    TRY(plan_check_alive(plan));
    for (size_t i = 0; i < plan->n_cache; i++)
        cache_begin_run(&plan->caches[i]);
    TRY(queue_submit(plan->device, plan->commands, plan->n_submit, plan->n_cache > 0, info,
                     &plan->last_ticket));
    if (ticket)
        *ticket = plan->last_ticket;
fail:
    return status;
}

enum vka_status vka_plan_submit(struct vka_plan *plan, uint64_t *ticket)
{
    return plan ? plan_submit(plan, __func__, NULL, ticket) : VKA_INVALID;
}

enum vka_status vka_plan_wait(struct vka_plan *plan, uint64_t ticket, uint64_t timeout)
{
    if (!plan)
        return VKA_INVALID;
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    CHECK_ARG(ticket >= 1 && ticket <= plan->last_ticket, "%s: ticket %llu is not one of this plan",
              __func__, (unsigned long long)ticket);
    if (ticket <= plan->lost_ticket)
        return log_error(log, VKA_DEVICE_LOST, "the run was lost with the device");
    TRY(queue_wait(plan->device, ticket, timeout));
    if (plan->timestamps && ticket == plan->last_ticket && ticket != plan->timed_ticket) {
        TRY(plan_read_timestamps(plan));
        plan->timed_ticket = ticket;
    }
    if (ticket == plan->last_ticket) {
        plan_sum_nonfinite(plan);
        plan->counted = true;
    }
    for (size_t i = 0; i < plan->n_cache; i++)
        TRY(cache_check_room(&plan->caches[i], ticket));
fail:
    return status;
}

enum vka_status vka_plan_run(struct vka_plan *plan, uint64_t timeout)
{
    uint64_t ticket = 0;
    enum vka_status status = vka_plan_submit(plan, &ticket);
    return status == VKA_OK ? vka_plan_wait(plan, ticket, timeout) : status;
}

size_t vka_plan_pass_count(const struct vka_plan *plan)
{
    return plan && plan->finished ? plan->n_pass : 0;
}

enum vka_status vka_plan_pass(struct vka_plan *plan, size_t index, struct vka_pass_info *info)
{
    if (!plan)
        return VKA_INVALID;
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    CHECK_ARG(info, "%s: info is NULL", __func__);
    CHECK_ARG(index < vka_plan_pass_count(plan), "%s: index %zu is past the last pass", __func__,
              index);
    const struct pass *pass = &plan->passes[index];
    *info = (struct vka_pass_info){
        .name = pass->name,
        .kernel = kernel_table[pass->key.kernel].name,
        .detail = pass->detail,
        .reason = pass->reason,
        .problem = *pass->problem ? pass->problem : NULL,
        .gpu_ms = plan->timed_ticket ? plan->gpu_ms[index] : -1,
    };
fail:
    return status;
}

uint64_t vka_plan_workspace(const struct vka_plan *plan)
{
    uint64_t bytes = 0;
    for (size_t i = 0; plan && i < plan->n_scratch; i++)
        bytes += plan->scratches[i].storage->range.size;
    return bytes;
}

size_t vka_plan_describe(const struct vka_plan *plan, char *text, size_t size)
{
    size_t length = 0;
    if (text && size)
        text[0] = '\0';
    for (size_t i = 0; plan && i < plan->n_pass; i++) {
        const struct pass *p = &plan->passes[i];
        size_t room = text && length < size ? size - length : 0;
        int n = snprintf(room ? text + length : NULL, room, "%-12s %-16s %s; %s\n", p->name,
                         kernel_table[p->key.kernel].name, p->detail, p->reason);
        length += n > 0 ? (size_t)n : 0;
    }
    return length;
}
