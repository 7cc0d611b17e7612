/* Constants of a plan: parameters of passes, and tables. All lie in one storage, which gets its
 * memory and its contents when the plan is finished, so that adding an operation waits for nothing. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

static enum vka_status make_room(struct vka_plan *plan, uint64_t bytes)
{
    struct constants *c = &plan->constants;
    if (!c->storage)
        ENSURE(storage_create_empty(plan->device, &c->storage));
    while (c->used + bytes > c->room) {
        void *array = c->bytes;
        ENSURE(plan_grow(&plan->device->log, &array, c->room, &c->room, 1));
        c->bytes = array;
    }
    return VKA_OK;
}

enum vka_status plan_constant(struct vka_plan *plan, uint32_t count, const void *words,
                              struct vka_tensor *tensor)
{
    struct constants *c = &plan->constants;
    uint64_t alignment = plan_binding_alignment(plan), bytes = count * UINT64_C(4);
    uint64_t padded = (bytes + alignment - 1) / alignment * alignment;
    ENSURE(make_room(plan, padded));
    *tensor = (struct vka_tensor){.storage = c->storage, .dtype = VKA_I32};
    shape_dense(4, (const uint32_t[]){1, 1, 1, count}, &tensor->shape);
    tensor->shape.offset = c->used / 4;
    memcpy(c->bytes + c->used, words, bytes);
    memset(c->bytes + c->used + bytes, 0, padded - bytes);
    c->used += padded;
    return VKA_OK;
}

enum vka_status plan_upload_constants(struct vka_plan *plan)
{
    struct constants *c = &plan->constants;
    if (!c->bytes || !c->used)
        return VKA_OK;
    c->storage->bytes = c->used;
    if (!c->storage->range.block)
        ENSURE(memory_allocate(plan->device, MEMORY_DEVICE, c->used, &c->storage->range));
    if (!c->storage->listed)
        ENSURE(storage_keep(c->storage, c->bytes));
    ENSURE(storage_restore(c->storage));
    free(c->bytes);
    c->bytes = NULL;
    return VKA_OK;
}
