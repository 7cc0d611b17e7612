/* The passes of an operation with a cache: advance, append, gather. */
#include "params.h"
#include "op/cache/cache.h"
#include "op/matmul/matmul.h"
#include "plan/settle.h"

#include <stdio.h>
#include <string.h>

#define LANES 64u   /* elements of a workgroup */
#define LEAST 1024u /* elements that are not cut for the budget */

static void set_push(struct pass *pass, const struct cache_params *p)
{
    pass->push_size = sizeof *p;
    memcpy(pass->push, p, sizeof *p);
}

/* All words of a storage. */
static struct vka_tensor words_of(struct storage *storage)
{
    struct vka_tensor t = {.storage = storage, .dtype = VKA_I32};
    shape_dense(1, (const uint32_t[]){(uint32_t)(storage->bytes / 4)}, &t.shape);
    return t;
}

enum vka_status plan_cache_advance(struct vka_plan *plan, struct vka_cache *cache, uint32_t n_new,
                                   struct storage *full_words)
{
    enum vka_status status = plan_settle_kernel(plan, KERNEL_cache_advance);
    if (status != VKA_OK)
        return status;
    const struct vka_tensor running = words_of(plan->device->running);
    const struct vka_tensor full = words_of(full_words);
    struct pass pass = {.name = "advance", .reason = "lengths grow on the device"};
    struct cache_params p = {
        .batch = cache->info.batch,
        .n_row = n_new,
        .capacity = cache->info.capacity,
        .page_size = cache->info.page_size,
        .table_row = cache->table_row,
        .n_page = cache->info.n_page,
    };
    pass.key = (struct pipeline_key){.kernel = KERNEL_cache_advance};
    plan_bind(plan, &pass, 0, &cache->state, true, &p.state_offset);
    plan_bind(plan, &pass, 1, cache->table_row ? &cache->table : &cache->state, false,
              &p.table_offset);
    plan_bind(plan, &pass, 2, &running, false, NULL);
    plan_bind(plan, &pass, 3, &full, true, NULL);
    set_push(&pass, &p);
    double entries = cache->table_row ? n_new / cache->info.page_size + 3.0 : 1;
    pass.work = (struct work){WORK_MOVE * cache->info.batch, WORK_MOVE * 32, entries};
    pass.groups[0] = (cache->info.batch + 31) / 32;
    pass.groups[1] = pass.groups[2] = 1;
    snprintf(pass.detail, sizeof pass.detail, "%u sequences by %u", cache->info.batch, n_new);
    return plan_add_pass(plan, &pass);
}

/* Rows of all sequences that go to a cache, or come from a paged one: `kernel` says which. What is
 * not the cache is dense or strided [batch][n_head][rows][dim]. */
struct cache_copy {
    enum kernel kernel;
    const char *name;
    struct vka_tensor from, to;
    uint32_t batch, row; /* where this part begins */
};

static struct vka_tensor *plain_side(struct cache_copy *c)
{
    return c->kernel == KERNEL_cache_gather ? &c->to : &c->from;
}

static struct work work_of(const struct vka_tensor *plain)
{
    return (struct work){WORK_PLACE * (double)shape_count(&plain->shape), WORK_PLACE * LANES, 1};
}

static enum vka_status add_copy(struct vka_plan *plan, struct vka_cache *cache,
                                struct cache_copy *c)
{
    struct pass pass = {.name = c->name, .reason = "positions read on the device"};
    const uint32_t *size = plain_side(c)->shape.size;
    const uint64_t *f = c->from.shape.stride, *t = c->to.shape.stride;
    struct cache_params p = {
        .batch = cache->info.batch,
        .n_row = size[2],
        .dim = size[3],
        .capacity = cache->info.capacity,
        .from_batch = (uint32_t)f[0],
        .from_head = (uint32_t)f[1],
        .from_row = (uint32_t)f[2],
        .from_col = (uint32_t)f[3],
        .to_batch = (uint32_t)t[0],
        .to_head = (uint32_t)t[1],
        .to_row = (uint32_t)t[2],
        .to_col = (uint32_t)t[3],
        .page_size = cache->info.page_size,
        .table_row = cache->table_row,
        .n_page = cache->info.n_page,
        .row_first = c->row,
    };
    pass.key = (struct pipeline_key){.kernel = c->kernel, .n_spec = CACHE_SPECS};
    pass.key.spec[CACHE_FROM_TYPE] = c->from.dtype;
    pass.key.spec[CACHE_TO_TYPE] = c->to.dtype;
    plan_bind(plan, &pass, 0, &c->from, false, &p.from_offset);
    plan_bind(plan, &pass, 1, &c->to, true, &p.to_offset);
    plan_bind(plan, &pass, 2, &cache->state, false, &p.state_offset);
    plan_bind(plan, &pass, 3, cache->table_row ? &cache->table : &cache->state, false,
              &p.table_offset);
    p.state_offset += c->batch;
    p.table_offset += c->batch * p.table_row;
    set_push(&pass, &p);
    pass.work = work_of(plain_side(c));
    pass.groups[0] = (uint32_t)(((uint64_t)p.n_row * p.dim + LANES - 1) / LANES);
    pass.groups[1] = size[1];
    pass.groups[2] = size[0];
    snprintf(pass.detail, sizeof pass.detail, "%ux%ux%ux%u, %s->%s", size[0], size[1], size[2],
             size[3], vka_dtype_name(c->from.dtype), vka_dtype_name(c->to.dtype));
    return plan_add_pass(plan, &pass);
}

/* Half of a copy along batch, heads or rows: pages of a paged cache are not the sequences', and
 * rows lie in a cache where the device says. */
static struct cache_copy copy_half(const struct vka_cache *cache, const struct cache_copy *c,
                                   uint32_t axis, uint32_t first, uint32_t count)
{
    struct cache_copy part = *c;
    struct vka_tensor *plain = plain_side(&part);
    struct vka_tensor *cached = plain == &part.to ? &part.from : &part.to;
    *plain = tensor_part(plain, axis, first, count);
    if (axis == 1 || (axis == 0 && !cache->table_row))
        *cached = tensor_part(cached, axis, first, count);
    part.batch += axis == 0 ? first : 0;
    part.row += axis == 2 ? first : 0;
    return part;
}

/* Whether bindings and grid of a copy fit the device, and its work the budget. */
static bool fits(const struct vka_plan *plan, struct cache_copy *c)
{
    const struct caps *caps = &plan->caps;
    const struct vka_tensor *plain = plain_side(c);
    const uint32_t *size = plain->shape.size;
    struct work work = work_of(plain);
    uint64_t limit = caps->properties.max_buffer_range;
    return plan_range(plan, &c->from) <= limit && plan_range(plan, &c->to) <= limit &&
           size[0] <= caps->max_groups[2] && size[1] <= caps->max_groups[1] &&
           ((uint64_t)size[2] * size[3] + LANES - 1) / LANES <= caps->max_groups[0] &&
           (uint64_t)size[2] * size[3] <= UINT32_MAX - LANES && /* the kernel counts them */
           (shape_count(&plain->shape) <= LEAST || plan_fits(plan, c->kernel, &work));
}

/* Halved until each part fits, or nothing is left to halve: then plan_add_pass says why. */
static enum vka_status add_parts(struct vka_plan *plan, struct vka_cache *cache,
                                 struct cache_copy *c)
{
    const uint32_t *size = plain_side(c)->shape.size;
    uint32_t axis = size[0] > 1 ? 0 : size[1] > 1 ? 1 : 2, half = size[axis] / 2;
    if (half == 0 || fits(plan, c))
        return add_copy(plan, cache, c);
    struct cache_copy part = copy_half(cache, c, axis, 0, half);
    enum vka_status status = add_parts(plan, cache, &part);
    if (status != VKA_OK)
        return status;
    part = copy_half(cache, c, axis, half, size[axis] - half);
    return add_parts(plan, cache, &part);
}

static enum vka_status add_copies(struct vka_plan *plan, struct vka_cache *cache,
                                  struct cache_copy *c)
{
    enum vka_status status = VKA_OK;
    struct work work = work_of(plain_side(c));
    TRY(plan_settle_kernel(plan, c->kernel));
    TRY(plan_calibrate_moves(plan, &work));
    TRY(add_parts(plan, cache, c));
fail:
    return status;
}

enum vka_status plan_cache_append(struct vka_plan *plan, struct vka_cache *cache,
                                  const struct vka_tensor *rows, const struct vka_tensor *cached)
{
    struct cache_copy copy = {KERNEL_cache_append, "append", *rows, *cached, 0, 0};
    return add_copies(plan, cache, &copy);
}

enum vka_status plan_cache_gather(struct vka_plan *plan, struct vka_cache *cache,
                                  const struct vka_tensor *cached, struct vka_tensor *dense)
{
    enum vka_status status = VKA_OK;
    const struct vka_cache_info *i = &cache->info;
    const uint32_t size[4] = {i->batch, i->n_kv_head, i->capacity, cached->shape.size[3]};
    TRY(plan_scratch(plan, cached->dtype, size, dense));
    struct cache_copy copy = {KERNEL_cache_gather, "gather", *cached, *dense, 0, 0};
    TRY(add_copies(plan, cache, &copy));
fail:
    return status;
}
