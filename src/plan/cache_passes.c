/* The passes of an operation with a cache: advance, append, gather. */
#include "params.h"
#include "plan/cache.h"

#include <stdio.h>
#include <string.h>

static void set_push(struct pass *pass, const struct cache_params *p)
{
    pass->push_size = sizeof *p;
    memcpy(pass->push, p, sizeof *p);
}

enum vka_status plan_cache_advance(struct vka_plan *plan, struct vka_cache *cache, uint32_t n_new)
{
    struct pass pass = {.name = "advance", .reason = "lengths grow on the device"};
    struct cache_params p = {
        .batch = cache->info.batch,
        .n_row = n_new,
        .capacity = cache->info.capacity,
        .page = cache->info.block_size,
        .table_row = cache->n_page,
        .n_page = cache->info.n_block,
    };
    pass.key = (struct pipeline_key){.kernel = KERNEL_cache_advance};
    plan_bind(plan, &pass, 0, &cache->state, true, &p.state_offset);
    plan_bind(plan, &pass, 1, cache->n_page ? &cache->table : &cache->state, false,
              &p.table_offset);
    set_push(&pass, &p);
    pass.groups[0] = (cache->info.batch + 31) / 32;
    pass.groups[1] = pass.groups[2] = 1;
    snprintf(pass.detail, sizeof pass.detail, "%u sequences by %u", cache->info.batch, n_new);
    return plan_add_pass(plan, &pass);
}

/* One invocation an element of `shape`, [batch][n_head][rows][dim]. */
static enum vka_status add_copy(struct vka_plan *plan, struct vka_cache *cache, enum kernel kernel,
                                const char *name, const struct shape *shape,
                                const struct vka_tensor *from, const struct vka_tensor *to)
{
    struct pass pass = {.name = name, .reason = "positions read on the device"};
    const uint64_t *f = from->shape.stride, *t = to->shape.stride;
    struct cache_params p = {
        .batch = shape->size[0],
        .n_row = shape->size[2],
        .dim = shape->size[3],
        .capacity = cache->info.capacity,
        .from_batch = (uint32_t)f[0],
        .from_head = (uint32_t)f[1],
        .from_row = (uint32_t)f[2],
        .from_col = (uint32_t)f[3],
        .to_batch = (uint32_t)t[0],
        .to_head = (uint32_t)t[1],
        .to_row = (uint32_t)t[2],
        .to_col = (uint32_t)t[3],
        .page = cache->info.block_size,
        .table_row = cache->n_page,
        .n_page = cache->info.n_block,
    };
    pass.key = (struct pipeline_key){.kernel = kernel, .n_spec = CACHE_SPECS};
    pass.key.spec[CACHE_FROM_TYPE] = from->dtype;
    pass.key.spec[CACHE_TO_TYPE] = to->dtype;
    plan_bind(plan, &pass, 0, from, false, &p.from_offset);
    plan_bind(plan, &pass, 1, to, true, &p.to_offset);
    plan_bind(plan, &pass, 2, &cache->state, false, &p.state_offset);
    plan_bind(plan, &pass, 3, cache->n_page ? &cache->table : &cache->state, false,
              &p.table_offset);
    set_push(&pass, &p);
    pass.groups[0] = (uint32_t)(((uint64_t)p.n_row * p.dim + 63) / 64);
    pass.groups[1] = shape->size[1];
    pass.groups[2] = shape->size[0];
    snprintf(pass.detail, sizeof pass.detail, "%ux%ux%ux%u, %s->%s", shape->size[0], shape->size[1],
             shape->size[2], shape->size[3], vka_dtype_name(from->dtype),
             vka_dtype_name(to->dtype));
    return plan_add_pass(plan, &pass);
}

enum vka_status plan_cache_append(struct vka_plan *plan, struct vka_cache *cache,
                                  const struct vka_tensor *rows, const struct vka_tensor *cached)
{
    return add_copy(plan, cache, KERNEL_cache_append, "append", &rows->shape, rows, cached);
}

enum vka_status plan_cache_gather(struct vka_plan *plan, struct vka_cache *cache,
                                  const struct vka_tensor *cached, struct vka_tensor *dense)
{
    enum vka_status status = VKA_OK;
    const struct vka_cache_info *i = &cache->info;
    const uint32_t size[4] = {i->batch, i->n_kv_head, i->capacity, cached->shape.size[3]};
    TRY(plan_scratch(plan, cached->dtype, size, dense));
    TRY(add_copy(plan, cache, KERNEL_cache_gather, "gather", &dense->shape, cached, dense));
fail:
    return status;
}
