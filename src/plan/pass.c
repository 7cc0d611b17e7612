#include "plan/pass.h"
#include "core/dtype.h"
#include "gpu/memory_block.h"
#include "gpu/quirks.h"
#include "plan/scratch.h"

#include <string.h>

enum vka_status plan_weights_lost(struct log *log)
{
    return log_error(log, VKA_DEVICE_LOST,
                     "the plan reads weights that were lost with the device: its layer was made "
                     "without keep_weights");
}

/* The bytes of a tensor, from an aligned offset up to whole 16 bytes. */
static struct binding range_of(const struct vka_plan *plan, const struct vka_tensor *tensor)
{
    uint64_t alignment = plan_binding_alignment(plan);
    uint32_t size;
    const struct shape shape = tensor_blocks(tensor, &size);
    uint64_t first = shape.offset * size, end = first + shape_extent(&shape) * size;
    struct binding b = {.storage = tensor->storage, .offset = first / alignment * alignment};
    end = (end + LEAST_ALIGNMENT - 1) / LEAST_ALIGNMENT * LEAST_ALIGNMENT;
    b.size = end - b.offset; /* stays in the storage, whose range is a multiple of 256 bytes */
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
           plan_range(plan, tensor) / 16 <= plan->caps.max_texels;
}

void plan_bind(const struct vka_plan *plan, struct pass *pass, uint32_t slot,
               const struct vka_tensor *tensor, bool write, uint32_t *offset)
{
    struct binding *b = &pass->bindings[slot];
    *b = range_of(plan, tensor);
    b->write = write;
    uint64_t first = dtype_bytes(tensor->dtype, tensor->shape.offset) - b->offset;
    if (offset)
        *offset = (uint32_t)(dtype_is_block(tensor->dtype) ? first
                                                           : first / vka_dtype_size(tensor->dtype));
}

void pass_set_push(struct pass *pass, const void *params, size_t size)
{
    pass->push_size = (uint32_t)size;
    memcpy(pass->push, params, size);
}

double plan_time(const struct vka_plan *plan, enum kernel kernel, const struct work *work)
{
    return budget_time(&plan->caps, &plan->device->rates, kernel, work);
}

bool plan_fits(const struct vka_plan *plan, enum kernel kernel, const struct work *work)
{
    return budget_fits(&plan->caps, &plan->device->rates, kernel, work, plan->budget);
}

bool plan_pass_has_room(const struct vka_plan *plan, const struct pass *pass)
{
    const struct caps *caps = &plan->caps;
    bool room = true;
    for (int i = 0; i < 3; i++)
        room &= pass->groups[i] <= caps->max_groups[i];
    for (uint32_t i = 0; i < kernel_table[pass->key.kernel].buffers; i++)
        room &= pass->bindings[i].size <= caps->properties.max_buffer_range;
    return room;
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
    struct log *log = &plan->device->log;
    const struct caps *caps = &plan->caps;
    const struct kernel_info *kernel = &kernel_table[pass->key.kernel];
    ENSURE(plan_check_room(plan, 1));
    const char *missing = kernel_missing(pass->key.kernel, caps);
    if (missing)
        return log_error(log, VKA_UNSUPPORTED, "%s: the kernel %s %s", pass->name, kernel->name,
                         missing);
    if (refusal_find(plan->device, &pass->key)) { /* known before: plan_end has others chosen */
        set_add(&plan->refused, pass->key.kernel);
        plan->device->refusals.of[pass->key.kernel]++;
        return VKA_UNSUPPORTED;
    }
    for (int i = 0; i < 3; i++)
        if (pass->groups[i] > caps->max_groups[i])
            return log_error(log, VKA_UNSUPPORTED,
                             "%s needs %u workgroups on axis %d, the device allows %u", pass->name,
                             pass->groups[i], i, caps->max_groups[i]);
    if (pass->work.loops > budget_max_loops(caps))
        return log_error(log, VKA_UNSUPPORTED,
                         "%s needs %.0f loop iterations of an invocation, the driver runs %.0f",
                         pass->name, pass->work.loops, budget_max_loops(caps));
    for (uint32_t i = 0; i < kernel->buffers; i++)
        if (pass->bindings[i].size > caps->properties.max_buffer_range)
            return log_error(log, VKA_UNSUPPORTED,
                             "%s needs %llu bytes of one buffer, the device allows %llu",
                             pass->name, (unsigned long long)pass->bindings[i].size,
                             (unsigned long long)caps->properties.max_buffer_range);
    for (uint32_t i = 0; i < kernel->buffers; i++)
        if (pass->bindings[i].storage->stale)
            return plan_weights_lost(log);
    void *array = plan->passes;
    ENSURE(plan_grow(log, &array, plan->n_pass, &plan->pass_room, sizeof *plan->passes));
    plan->passes = array;
    plan->passes[plan->n_pass] = *pass;
    widen_texels(caps, &plan->passes[plan->n_pass++]);
    plan->predicted += plan_time(plan, pass->key.kernel, &pass->work);
    for (uint32_t i = 0; i < kernel->buffers; i++)
        storage_ref(pass->bindings[i].storage);
    return VKA_OK;
}
