#include "plan/scratch.h"
#include "core/block_grid.h"
#include "core/dtype.h"
#include "params/types.h"

#include <stdlib.h>
#include <string.h>

enum vka_status plan_grow(struct log *log, void **array, size_t count, size_t *room, size_t size)
{
    if (count == *room) {
        size_t more = *room ? 2 * *room : 16;
        void *moved = realloc(*array, more * size);
        ENSURE_ALLOC(moved);
        *array = moved;
        *room = more;
    }
    return VKA_OK;
}

static enum vka_status add_scratch(struct vka_plan *plan, enum memory_kind kind, uint64_t bytes,
                                   bool constant, struct storage **storage)
{
    struct log *log = &plan->device->log;
    void *array = plan->scratches;
    ENSURE(plan_grow(log, &array, plan->n_scratch, &plan->scratch_room, sizeof *plan->scratches));
    plan->scratches = array;
    ENSURE(storage_create(plan->device, kind, bytes, storage));
    plan->scratches[plan->n_scratch++] = (struct scratch){*storage, plan->scratch_level, constant};
    return VKA_OK;
}

enum vka_status plan_scratch(struct vka_plan *plan, enum vka_dtype dtype, const uint32_t size[4],
                             struct vka_tensor *tensor)
{
    struct log *log = &plan->device->log;
    *tensor = (struct vka_tensor){.dtype = dtype};
    if (!shape_dense(4, size, &tensor->shape))
        return log_error(log, VKA_UNSUPPORTED, "an intermediate result exceeds 2^48 elements");
    uint64_t bytes = dtype_bytes(dtype, shape_count(&tensor->shape));
    struct scratch *best = NULL;
    for (size_t i = 0; i < plan->n_scratch; i++) {
        struct scratch *s = &plan->scratches[i];
        if (!s->used && !s->constant && s->storage->bytes >= bytes &&
            (!best || s->storage->bytes < best->storage->bytes))
            best = s;
    }
    if (best) {
        best->used = plan->scratch_level;
        tensor->storage = best->storage;
    } else {
        ENSURE(add_scratch(plan, MEMORY_DEVICE, bytes, false, &tensor->storage));
    }
    return VKA_OK;
}

void plan_scratch_free(struct vka_plan *plan, const struct vka_tensor *tensor)
{
    for (size_t i = 0; i < plan->n_scratch; i++)
        if (plan->scratches[i].storage == tensor->storage)
            plan->scratches[i].used = 0;
}

void plan_scratch_enter(struct vka_plan *plan)
{
    plan->scratch_level++;
}

void plan_scratch_leave(struct vka_plan *plan)
{
    for (size_t i = 0; i < plan->n_scratch; i++)
        if (plan->scratches[i].used == plan->scratch_level)
            plan->scratches[i].used = 0;
    plan->scratch_level--;
}

enum vka_status plan_host_words(struct vka_plan *plan, uint64_t bytes, struct storage **words)
{
    return add_scratch(plan, MEMORY_STAGING, bytes, true, words);
}

enum vka_status plan_attach(struct vka_plan *plan, struct attached *attached)
{
    struct log *log = &plan->device->log;
    void *array = plan->attached;
    enum vka_status status =
        plan_grow(log, &array, plan->n_attached, &plan->attached_room, sizeof *plan->attached);
    if (status != VKA_OK) {
        attached->release(attached);
        return status;
    }
    plan->attached = array;
    plan->attached[plan->n_attached++] = attached;
    return VKA_OK;
}

bool plan_notes_tickets(const struct vka_plan *plan)
{
    for (size_t i = 0; i < plan->n_attached; i++)
        if (plan->attached[i]->notes_tickets)
            return true;
    return false;
}

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

/* Words of an operation that was taken back may stand where the grid was: they are compared. */
enum vka_status plan_grid(struct vka_plan *plan, enum vka_dtype dtype, struct vka_tensor *tensor)
{
    struct constants *c = &plan->constants;
    const uint32_t *grid = block_grid(dtype), count = 4 * GRID_VECTORS(dtype);
    const uint64_t at = c->grids[dtype], bytes = count * UINT64_C(4);
    if (at + bytes > c->used || memcmp(c->bytes + at, grid, bytes) != 0) {
        c->grids[dtype] = c->used;
        return plan_constant(plan, count, grid, tensor);
    }
    *tensor = (struct vka_tensor){.storage = c->storage, .dtype = VKA_I32};
    shape_dense(4, (const uint32_t[]){1, 1, 1, count}, &tensor->shape);
    tensor->shape.offset = at / 4;
    return VKA_OK;
}

bool plan_has_uploaded(const struct vka_plan *plan)
{
    return plan->constants.used && !plan->constants.bytes;
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
