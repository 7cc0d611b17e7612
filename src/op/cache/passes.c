/* The passes of an operation with a cache: advance, quantise, gather; append.c has the others. */
#include "core/dtype.h"
#include "params/params.h"
#include "op/cache/passes.h"
#include "op/common/axes.h"
#include "op/common/copy.h"
#include "op/cache/cache.h"
#include "op/cache/layers.h"
#include "plan/cut.h"
#include "plan/settle.h"

#include <stdio.h>

#define LANES 64u   /* elements of a workgroup */
#define LEAST 1024u /* most elements that are not cut for the budget */

/* All words of a storage. */
static struct vka_tensor words_of(struct storage *storage)
{
    struct vka_tensor t = {.storage = storage, .dtype = VKA_I32};
    shape_dense(1, (const uint32_t[]){(uint32_t)(storage->bytes / 4)}, &t.shape);
    return t;
}

static bool has_blocks(const struct vka_cache *cache)
{
    bool found = false;
    for (uint32_t i = 0; i < cache->info.n_layer; i++)
        found |= cache_has_blocks(&cache->layers[i]);
    return found;
}

enum vka_status plan_cache_advance(struct vka_plan *plan, const struct cache_use *use,
                                   struct storage *full_words)
{
    const struct vka_cache *cache = use->cache;
    const struct vka_tensor *n_append = use->n_append;
    uint32_t n_new = use->n_new;
    enum vka_status status = VKA_OK;
    if (has_blocks(cache)) /* whose test is one of both */
        status = plan_settle_kernel(plan, KERNEL_cache_quantise);
    if (status == VKA_OK)
        status = plan_settle_kernel(plan, KERNEL_cache_advance);
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
        .append = !n_append                     ? APPEND_ALL
                  : n_append->shape.size[0] > 1 ? APPEND_EACH
                                                : APPEND_ONE,
        .from_row = n_append ? (uint32_t)n_append->shape.stride[0] : 0,
        .n_sequence = use->q_start ? cache->info.batch : 0,
    };
    pass.key = (struct pipeline_key){.kernel = KERNEL_cache_advance};
    plan_bind(plan, &pass, 0, &cache->state, true, &p.state_offset);
    plan_bind(plan, &pass, 1, cache->table_row ? &cache->table : &cache->state, false,
              &p.table_offset);
    plan_bind(plan, &pass, 2, &running, false, NULL);
    plan_bind(plan, &pass, 3, &full, true, NULL);
    plan_bind(plan, &pass, 4, n_append ? n_append : &cache->state, false, &p.from_offset);
    plan_bind(plan, &pass, 5, use->q_start ? use->q_start : &cache->state, false,
              &p.q_start_offset);
    pass_set_push(&pass, &p, sizeof p);
    double entries = cache->table_row ? n_new / cache->info.page_size + 3.0 : 1;
    pass.work = (struct work){WORK_MOVE * cache->info.batch, WORK_MOVE * 32, entries};
    pass.groups[0] = (cache->info.batch + 31) / 32;
    pass.groups[1] = pass.groups[2] = 1;
    snprintf(pass.detail, sizeof pass.detail, "%u sequences by %u%s", cache->info.batch, n_new,
             use->q_start ? " together" : "");
    return plan_add_pass(plan, &pass);
}

/* Rows that are gathered from pages, to a dense tensor [batch][n_head][rows][dim]. */
struct cache_gather {
    const struct vka_cache *cache;
    struct vka_tensor from, to;
};

/* Rows of all sequences that are quantised. */
struct cache_blocks {
    const struct vka_cache *cache;
    const struct vka_tensor *q_start; /* NULL: not packed */
    struct vka_tensor from;
    const struct cached_rows *cached;
};

#define SEARCH 33 /* loop iterations that find the sequence of a packed row */

static struct work work_of(const struct vka_tensor *plain)
{
    return (struct work){WORK_PLACE * (double)shape_count(&plain->shape), WORK_PLACE * LANES,
                         SEARCH};
}

struct vka_tensor cached_slice(const struct vka_cache *cache, bool packed,
                               const struct vka_tensor *rows, const struct slice *slice)
{
    struct vka_tensor cached = tensor_slice_along(rows, 1, slice->first[1], slice->size[1]);
    return cache->table_row || packed
               ? cached
               : tensor_slice_along(&cached, 0, slice->first[0], slice->size[0]);
}

/* Binds lengths and page table of the slice's sequences. */
static void bind_state(const struct vka_plan *plan, struct pass *pass,
                       const struct vka_cache *cache, const struct slice *slice,
                       struct cache_params *p)
{
    plan_bind(plan, pass, 2, &cache->state, false, &p->state_offset);
    plan_bind(plan, pass, 3, cache->table_row ? &cache->table : &cache->state, false,
              &p->table_offset);
    p->state_offset += slice->first[0];
    p->table_offset += slice->first[0] * p->table_row;
}

/* The parameters of a copy of a slice, except the strides on the other side. */
static struct cache_params params_of(const struct vka_cache *cache, const struct slice *slice,
                                     const struct shape *from)
{
    return (struct cache_params){
        .batch = cache->info.batch,
        .n_row = slice->size[2],
        .dim = slice->size[3],
        .capacity = cache->info.capacity,
        .from_batch = (uint32_t)from->stride[0],
        .from_head = (uint32_t)from->stride[1],
        .from_row = (uint32_t)from->stride[2],
        .from_col = (uint32_t)from->stride[3],
        .page_size = cache->info.page_size,
        .table_row = cache->table_row,
        .n_page = cache->info.n_page,
        .row_first = slice->first[2],
    };
}

/* A grid over `items` of each row of a slice of this size. */
static void set_grid(struct pass *pass, const uint32_t size[4], uint32_t items, enum vka_dtype from,
                     enum vka_dtype to)
{
    uint64_t count = (uint64_t)size[2] * items; /* the kernel counts them in 32 bits */
    pass->groups[0] = count > UINT32_MAX - LANES ? UINT32_MAX : divide_up((uint32_t)count, LANES);
    pass->groups[1] = size[1];
    pass->groups[2] = size[0];
    snprintf(pass->detail, sizeof pass->detail, "%ux%ux%ux%u, %s->%s", size[0], size[1], size[2],
             size[3], vka_dtype_name(from), vka_dtype_name(to));
}

static void make_gather(const struct vka_plan *plan, const void *job, const struct slice *slice,
                        struct pass *pass)
{
    const struct cache_gather *c = job;
    const struct vka_tensor from = cached_slice(c->cache, false, &c->from, slice);
    const struct vka_tensor to = tensor_slice(&c->to, slice);
    const uint64_t *t = to.shape.stride;
    struct cache_params p = params_of(c->cache, slice, &from.shape);
    p.to_batch = (uint32_t)t[0];
    p.to_head = (uint32_t)t[1];
    p.to_row = (uint32_t)t[2];
    p.to_col = (uint32_t)t[3];
    pass->name = "gather";
    pass->reason = "positions read on the device";
    pass->key = (struct pipeline_key){.kernel = KERNEL_cache_gather, .n_spec = CACHE_SPECS};
    pass->key.spec[CACHE_FROM_TYPE] = from.dtype;
    pass->key.spec[CACHE_TO_TYPE] = to.dtype;
    plan_bind(plan, pass, 0, &from, false, &p.from_offset);
    plan_bind(plan, pass, 1, &to, true, &p.to_offset);
    bind_state(plan, pass, c->cache, slice, &p);
    const bool pairs = axes_are_pairs(&to, p.to_offset);
    pass->key.spec[CACHE_PAIRS] = pairs;
    pass_set_push(pass, &p, sizeof p);
    pass->work = work_of(&to);
    set_grid(pass, slice->size, pairs ? slice->size[3] / 2 : slice->size[3], from.dtype, to.dtype);
}

/* The length along an axis at which a slice has LEAST elements or less, `inner` of them at each. */
static uint32_t least_length(uint64_t inner)
{
    return inner < LEAST ? LEAST / (uint32_t)inner : 1;
}

void cache_least_slice(const uint32_t size[4], uint32_t multiple[4])
{
    uint64_t head = (uint64_t)size[2] * size[3];
    multiple[0] = least_length(size[1] * head);
    multiple[1] = least_length(head);
    multiple[2] = least_length(size[3]);
    multiple[3] = CUT_NEVER;
}

/* Copies a slice of `plain` in each pass that `make` makes of the job. */
static enum vka_status add_passes(struct vka_plan *plan, enum kernel kernel, const void *job,
                                  const struct vka_tensor *plain, cut_make *make)
{
    struct cut cut = {
        .job = job,
        .least = {1, 1, 1, CUT_NEVER},
        .kernel = kernel,
        .whole = work_of(plain),
        .probe = plan_probe_moves,
        .make = make,
    };
    cache_least_slice(plain->shape.size, cut.multiple);
    ENSURE(plan_settle_kernel(plan, kernel));
    return plan_cut(plan, &cut, plain->shape.size);
}

/* Quantises rows into a cache of a block type. The whole of its storage is bound. */
static void make_quantise(const struct vka_plan *plan, const void *job, const struct slice *slice,
                          struct pass *pass)
{
    const struct cache_blocks *c = job;
    const struct vka_cache *cache = c->cache;
    const struct cached_rows *cached = c->cached;
    const uint32_t *size = slice->size, n_block = divide_up(size[3], CACHE_BLOCK);
    const struct vka_tensor from = tensor_slice(&c->from, slice), bytes = cache_bytes(cached);
    const uint64_t *t = cached->rows.shape.stride;
    const uint32_t values = cached->byte_values;
    const uint64_t sequence = cache->table_row ? 0 : slice->first[0] * t[0];
    struct cache_params p = params_of(cache, slice, &from.shape);
    p.to_offset = (uint32_t)((sequence + slice->first[1] * t[1]) * values);
    p.to_batch = (uint32_t)t[0] * values;
    p.to_head = (uint32_t)t[1] * values;
    p.to_row = (uint32_t)t[2] * values;
    p.scale_offset = dtype_is_head_scaled(cached->dtype) /* of these heads, 1 / scale */
                         ? cache_scales_from(cached, cached->rows.shape.size[1] + slice->first[1])
                         : (uint32_t)cached->scales;
    pass->name = "append";
    pass->reason = "blocks of 32 features";
    pass->key = (struct pipeline_key){.kernel = KERNEL_cache_quantise, .n_spec = CACHE_SPECS};
    pass->key.spec[CACHE_FROM_TYPE] = from.dtype;
    pass->key.spec[CACHE_TO_TYPE] = cached->dtype;
    /* On CPU drivers a barrier costs as much as the atomics of two scales. */
    pass->key.spec[CACHE_PAIRS] = plan->caps.properties.type != VKA_DEVICE_CPU;
    plan_bind(plan, pass, 0, &from, false, &p.from_offset);
    plan_bind(plan, pass, 1, &bytes, true, NULL);
    bind_state(plan, pass, cache, slice, &p);
    p.n_sequence = c->q_start ? cache->info.batch : 0;
    plan_bind(plan, pass, 4, c->q_start ? c->q_start : &cache->state, false, &p.q_start_offset);
    pass_set_push(pass, &p, sizeof p);
    pass->work = work_of(&from);
    set_grid(pass, size, n_block, from.dtype, cached->dtype);
}

enum vka_status plan_cache_quantise(struct vka_plan *plan, const struct cache_use *use,
                                    const struct vka_tensor *rows, const struct cached_rows *cached)
{
    const struct cache_blocks blocks = {use->cache, use->q_start, *rows, cached};
    return add_passes(plan, KERNEL_cache_quantise, &blocks, rows, make_quantise);
}

enum vka_status plan_cache_gather(struct vka_plan *plan, struct vka_cache *cache,
                                  const struct vka_tensor *cached, struct vka_tensor *dense)
{
    enum vka_status status = VKA_OK;
    const struct vka_cache_info *i = &cache->info;
    const uint32_t size[4] = {i->batch, cached->shape.size[1], i->capacity, cached->shape.size[3]};
    TRY(plan_scratch(plan, cached->dtype, size, dense));
    const struct cache_gather gather = {cache, *cached, *dense};
    TRY(add_passes(plan, KERNEL_cache_gather, &gather, dense, make_gather));
fail:
    return status;
}
