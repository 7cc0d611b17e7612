#include "plan/plan.h"
#include "plan/record.h"
#include "plan/warm.h"

#include <vkattn/vkattn_model.h>
#include <vkattn/vkattn_train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_WORKSPACE (64ull << 20)
#define DEFAULT_BUDGET 200000000ull /* nanoseconds */
#define DEFAULT_COMPILE_TIMEOUT (20 * VKA_TIMEOUT_DEFAULT)

static void release_recording(struct vka_plan *plan)
{
    struct vka_device *device = plan->device;
    const bool forked = device_is_forked(device);
    plan->timed_ticket = 0;
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
    plan->is_recorded = false;
    plan->warm_ticket = 0;
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

/* Records a plan again after its device was lost. A plan that reads stale storage stays unrecorded,
 * and refuses to run. */
static enum vka_status restore_plan(struct recorded *self)
{
    struct vka_plan *plan = plan_of(self);
    plan->lost_ticket = plan->last_ticket;
    plan->waited = false;
    for (size_t i = 0; i < plan->n_pass; i++)
        for (uint32_t j = 0; j < kernel_table[plan->passes[i].key.kernel].buffers; j++)
            plan->stale |= plan->passes[i].bindings[j].storage->stale;
    return plan->finished && !plan->stale ? plan_record(plan) : VKA_OK;
}

static enum vka_status compile_plan(struct recorded *self)
{
    struct vka_plan *plan = plan_of(self);
    return plan->finished && plan->is_recorded ? plan_warm(plan, "vka_device_recover") : VKA_OK;
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
    if (!info)
        info = &defaults;
    ENSURE_ARG(out, "%s: plan is NULL", __func__);
    ENSURE_ARG(info->struct_size == sizeof *info, "%s: struct_size is %zu, not %zu", __func__,
               info->struct_size, sizeof *info);
    ENSURE_ARG((unsigned)info->path < VKA_PATH_COUNT, "%s: path %d is unknown", __func__,
               (int)info->path);
    ENSURE_ARG(!info->whole_n_head == !info->whole_n_kv_head &&
                   (!info->whole_n_head || info->whole_n_head % info->whole_n_kv_head == 0),
               "%s: whole_n_head is %u, no multiple of whole_n_kv_head %u", __func__,
               info->whole_n_head, info->whole_n_kv_head);
    struct vka_plan *plan = calloc(1, sizeof *plan);
    ENSURE_ALLOC(plan);
    plan->device = device;
    plan->caps = device->caps;
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
    plan->compile_timeout = info->compile_timeout ? info->compile_timeout : DEFAULT_COMPILE_TIMEOUT;
    plan->recorded = (struct recorded){device->recorded, release_plan, restore_plan, compile_plan};
    device->recorded = &plan->recorded;
    *out = plan;
    return VKA_OK;
}

static void release_bindings(struct pass *pass)
{
    for (uint32_t i = 0; i < kernel_table[pass->key.kernel].buffers; i++)
        storage_unref(&pass->bindings[i].storage);
}

static void release_attached(struct vka_plan *plan, size_t first)
{
    while (plan->n_attached > first) {
        struct attached *last = plan->attached[--plan->n_attached];
        last->release(last);
    }
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
    storage_unref(&plan->constants.storage);
    release_attached(plan, 0);
    free(plan->constants.bytes);
    free(plan->attached);
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
    /* Where finishing or recovering timed out, an upload or compiling may still be in flight. */
    plan->retired.ticket =
        plan->finished && !plan->warm_ticket ? plan->last_ticket : plan->device->queue.submitted;
    plan->retired.release = plan_free;
    queue_retire(plan->device, &plan->retired);
}

void plan_read_caps(struct vka_plan *plan)
{
    plan->caps = plan->device->caps;
    set_join(&plan->caps.without, plan->without);
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (set_has(plan->refused, k))
            plan->caps.refused[k] = plan->device->refusals.why[k];
}

enum vka_status plan_begin(struct vka_plan *plan, const char *caller, struct plan_mark *mark)
{
    if (!plan)
        return VKA_INVALID;
    plan->refused = NO_KERNELS;
    plan_read_caps(plan);
    *mark = (struct plan_mark){.n_pass = plan->n_pass,
                               .n_scratch = plan->n_scratch,
                               .n_attached = plan->n_attached,
                               .constants = plan->constants.used,
                               .predicted = plan->predicted,
                               .serial = plan->device->refusals.serial,
                               .open = true};
    if (plan->finished || plan->is_recorded || plan_has_uploaded(plan))
        return log_error(&plan->device->log, VKA_INVALID, "%s: the plan is %s", caller,
                         plan->finished ? "finished"
                                        : "being finished: call vka_plan_finish again");
    return device_check(plan->device);
}

static void take_back(struct vka_plan *plan, const struct plan_mark *mark)
{
    while (plan->n_pass > mark->n_pass)
        release_bindings(&plan->passes[--plan->n_pass]);
    while (plan->n_scratch > mark->n_scratch)
        storage_unref(&plan->scratches[--plan->n_scratch].storage);
    release_attached(plan, mark->n_attached);
    plan->constants.used = mark->constants;
    plan->predicted = mark->predicted;
}

/* No other kernel takes the place of those that were refused: with more memory, they may. Adds the
 * last refusal to a sentence that tells only of the kernel that was asked last. */
static enum vka_status end_refused(struct vka_plan *plan, const struct plan_mark *mark)
{
    struct log *log = &plan->device->log;
    const struct refusal *last = plan->device->refusals.last;
    char sentence[sizeof log->error];
    ENSURE(refusals_forget(plan->device, mark->serial, false));
    if (!last || last->serial <= mark->serial)
        return VKA_UNSUPPORTED;
    const char *why = plan->device->refusals.why[last->key.kernel];
    if (strstr(log->error, why))
        return VKA_UNSUPPORTED;
    memcpy(sentence, log->error, sizeof sentence);
    return log_error(log, VKA_UNSUPPORTED, "%s; the kernel %s %s", sentence,
                     kernel_table[last->key.kernel].name, why);
}

enum vka_status plan_end(struct vka_plan *plan, struct plan_mark *mark, enum vka_status status)
{
    if (status == VKA_OK && !plan->device->pipelines.late)
        status = plan_make_pipelines(plan, mark->n_pass);
    const bool again = !set_is_equal(plan->refused, mark->refused) && !plan->device->lost &&
                       (status == VKA_OK || status == VKA_UNSUPPORTED);
    if (again)
        status = VKA_UNSUPPORTED;
    if (status != VKA_OK)
        take_back(plan, mark);
    for (size_t i = 0; i < plan->n_scratch; i++)
        plan->scratches[i].used = 0;
    plan->scratch_level = 1;
    mark->open = again;
    mark->refused = plan->refused;
    if (!again && status == VKA_UNSUPPORTED)
        status = end_refused(plan, mark);
    if (!again)
        plan->refused = NO_KERNELS;
    plan_read_caps(plan);
    return mark->status = status;
}

/* plan_check_op reads a size there. */
#define VKA_OPERATION(noun, type) \
    _Static_assert(offsetof(struct type, struct_size) == 0, "the first member of " #type);
#include <vkattn/vkattn_operations.h>

enum vka_status plan_check_op(const struct vka_plan *plan, const char *caller, const void *op,
                              size_t size)
{
    struct log *log = &plan->device->log;
    size_t given;
    ENSURE_ARG(op, "%s: op is NULL", caller);
    memcpy(&given, op, sizeof given);
    ENSURE_ARG(given == size, "%s: struct_size is %zu, not %zu: VKA_INFO(struct, ...) fills it in",
               caller, given, size);
    return VKA_OK;
}

enum vka_status plan_add(struct vka_plan *plan, const char *caller, const void *op, size_t size,
                         plan_adder *add)
{
    struct plan_mark mark;
    ENSURE(plan_begin(plan, caller, &mark));
    while (mark.open) {
        enum vka_status status = plan_check_op(plan, caller, op, size);
        plan_end(plan, &mark, status == VKA_OK ? add(plan, op) : status);
    }
    return mark.status;
}

enum vka_status plan_check_alive(const struct vka_plan *plan)
{
    enum vka_status status = device_check(plan->device);
    return status == VKA_OK && plan->stale ? plan_weights_lost(&plan->device->log) : status;
}

enum vka_status vka_plan_finish(struct vka_plan *plan)
{
    if (!plan)
        return VKA_INVALID;
    struct log *log = &plan->device->log;
    ENSURE_ARG(!plan->finished, "%s: the plan is finished already", __func__);
    ENSURE_ARG(plan->n_pass > 0, "%s: the plan has no operations", __func__);
    ENSURE(plan_check_alive(plan));
    if (!plan->is_recorded) {
        ENSURE(plan_upload_constants(plan));
        enum vka_status status = plan_record(plan);
        if (status != VKA_OK) {
            release_recording(plan);
            return status;
        }
    }
    ENSURE(plan_warm(plan, __func__));
    plan->finished = true;
    return VKA_OK;
}

enum vka_status plan_submit(struct vka_plan *plan, const char *caller,
                            const struct vka_submit_info *info, uint64_t *ticket)
{
    struct log *log = &plan->device->log;
    ENSURE_ARG(plan->finished, "%s: the plan is not finished: call vka_plan_finish", caller);
    ENSURE(plan_check_alive(plan));
    for (size_t i = 0; i < plan->n_attached; i++)
        if (plan->attached[i]->begin_run)
            plan->attached[i]->begin_run(plan->attached[i]);
    ENSURE(queue_submit(plan->device, plan->commands, plan->n_submit, plan_notes_tickets(plan),
                        info, &plan->last_ticket));
    if (!plan->first_ticket)
        plan->first_ticket = plan->last_ticket;
    plan->waited = false;
    if (ticket)
        *ticket = plan->last_ticket;
    return VKA_OK;
}

enum vka_status vka_plan_submit(struct vka_plan *plan, uint64_t *ticket)
{
    return plan ? plan_submit(plan, __func__, NULL, ticket) : VKA_INVALID;
}

/* Ends a run for all that is attached, whatever one of them reports; the first report is told. */
static enum vka_status end_run(struct vka_plan *plan, uint64_t ticket)
{
    struct log *log = &plan->device->log;
    const bool last = ticket == plan->last_ticket;
    enum vka_status first = VKA_OK;
    char sentence[sizeof log->error];
    for (size_t i = 0; i < plan->n_attached; i++) {
        const enum vka_status status = plan->attached[i]->end_run(plan->attached[i], ticket, last);
        if (status == VKA_OK || first != VKA_OK)
            continue;
        first = status;
        memcpy(sentence, log->error, sizeof sentence);
    }
    plan->waited |= last;
    if (first != VKA_OK)
        memcpy(log->error, sentence, sizeof sentence);
    return first;
}

enum vka_status vka_plan_wait(struct vka_plan *plan, uint64_t ticket, uint64_t timeout)
{
    if (!plan)
        return VKA_INVALID;
    struct log *log = &plan->device->log;
    ENSURE_ARG(ticket >= 1 && ticket >= plan->first_ticket && ticket <= plan->last_ticket,
               "%s: ticket %llu is not one of this plan", __func__, (unsigned long long)ticket);
    if (ticket <= plan->lost_ticket)
        return log_error(log, VKA_DEVICE_LOST, "the run was lost with the device");
    enum vka_status status = queue_try(plan->device, ticket, timeout);
    if (status == VKA_TIMEOUT && timeout > 0)
        return log_error(log, VKA_TIMEOUT,
                         "%s: the run is not done after %.3g s, the timeout given: wait again",
                         __func__, (double)timeout * 1e-9);
    ENSURE(status);
    if (plan->timestamps && ticket == plan->last_ticket && ticket != plan->timed_ticket) {
        ENSURE(plan_read_timestamps(plan));
        plan->timed_ticket = ticket;
    }
    return end_run(plan, ticket);
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
    ENSURE_ARG(info, "%s: info is NULL", __func__);
    ENSURE_ARG(index < vka_plan_pass_count(plan), "%s: index %zu is past the last pass", __func__,
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
    return VKA_OK;
}

uint64_t vka_plan_workspace(const struct vka_plan *plan)
{
    uint64_t bytes = plan ? plan->constants.used : 0;
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
