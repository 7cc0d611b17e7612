/* Appends new keys and values to a cache, with rotation on the way. */
#include "params/params.h"
#include "op/cache/append.h"
#include "op/common/axes.h"
#include "op/common/copy.h"
#include "op/rotary/heads.h"
#include "op/cache/passes.h"
#include "op/rotary/frequencies.h"
#include "plan/settle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOT_QUERIES 0 /* and behind it keys and values; see append_params */
#define SLOT_TO_QUERIES 3
#define SLOT_STATE 6
#define SLOT_PARAMETERS 7
/* CPU drivers take what each kind of row reads and writes in turn, and mask what is not the
 * workgroup's: few rows cost less than a dispatch. */
#define FEW_ROWS_CPU 16u
#define FEW_ROWS 1024u
#define MANY_ROWS 32u
#define ROWS_EACH 8u
#define SEARCH 33 /* loop iterations that find the sequence of a packed row */

struct append {
    const struct cache_use *use;
    const struct vka_rope *rope;               /* NULL: nothing rotates */
    const struct vka_tensor *k, *v, *q, *to_q; /* NULL: not by this pass; q beside rope alone */
    uint32_t group;                            /* heads of q for each of k */
};

static const struct cached_layer *layer_of(const struct cache_use *use)
{
    return &use->cache->layers[use->layer];
}

static const struct vka_cache_layer_info *info_of(const struct append *a)
{
    return &layer_of(a->use)->info;
}

/* The slice of rows [batch][heads][rows][features], with `group` heads for each key head. */
static struct vka_tensor rows_slice(const struct vka_tensor *rows, const struct slice *slice,
                                    uint32_t group)
{
    const struct slice heads = {
        {slice->first[0], slice->first[1] * group, slice->first[2], 0},
        {slice->size[0], slice->size[1] * group, slice->size[2], rows->shape.size[3]}};
    return tensor_slice(rows, &heads);
}

static void bind_rows(const struct vka_plan *plan, struct pass *pass, uint32_t slot,
                      const struct vka_tensor *from, const struct vka_tensor *to,
                      struct append_rows *r)
{
    const uint64_t *f = from->shape.stride, *t = to->shape.stride;
    *r = (struct append_rows){
        .from_batch = (uint32_t)f[0],
        .from_head = (uint32_t)f[1],
        .from_row = (uint32_t)f[2],
        .from_col = (uint32_t)f[3],
        .to_batch = (uint32_t)t[0],
        .to_head = (uint32_t)t[1],
        .to_row = (uint32_t)t[2],
    };
    plan_bind(plan, pass, SLOT_QUERIES + slot, from, false, &r->from_offset);
    plan_bind(plan, pass, SLOT_TO_QUERIES + slot, to, true, &r->to_offset);
}

/* Queries, keys or values of a pass, and where they go; of no type where it has none. */
struct moved {
    struct vka_tensor from, to;
};

static void find_moved(const struct append *a, const struct slice *slice, struct moved m[3])
{
    const struct vka_cache *cache = a->use->cache;
    const struct cached_layer *layer = layer_of(a->use);
    const bool packed = a->use->q_start;
    memset(m, 0, 3 * sizeof *m);
    if (a->q)
        m[APPEND_QUERY] =
            (struct moved){rows_slice(a->q, slice, a->group), rows_slice(a->to_q, slice, a->group)};
    if (a->k)
        m[APPEND_KEY] = (struct moved){rows_slice(a->k, slice, 1),
                                       cached_slice(cache, packed, &layer->k.rows, slice)};
    if (a->v)
        m[APPEND_VALUE] = (struct moved){rows_slice(a->v, slice, 1),
                                         cached_slice(cache, packed, &layer->v.rows, slice)};
}

/* Binds queries, keys and values, each with its heads in the grid, and the state. What a pass has
 * not is bound to what it has: a validation layer takes every binding of the kernel as used. */
static void bind_all(const struct vka_plan *plan, const struct append *a, const struct slice *slice,
                     struct pass *pass, struct append_params *p)
{
    static const uint32_t slots[] = {[APPEND_KEY] = 1, [APPEND_VALUE] = 2, [APPEND_QUERY] = 0};
    const struct vka_cache *cache = a->use->cache;
    const bool has[] = {[APPEND_KEY] = a->k, [APPEND_VALUE] = a->v, [APPEND_QUERY] = a->q};
    uint32_t *spec = pass->key.spec;
    struct moved m[3];
    find_moved(a, slice, m);
    for (uint32_t kind = 0; kind < 3; kind++) {
        const struct moved *bound = &m[has[kind] ? kind : a->k ? APPEND_KEY : APPEND_VALUE];
        struct append_rows rows;
        bind_rows(plan, pass, slots[kind], &bound->from, &bound->to, &rows);
        if (has[kind])
            p->rows[kind] = rows;
    }
    if (a->q) {
        spec[APPEND_QUERY_TYPE] = m[APPEND_QUERY].from.dtype;
        spec[APPEND_TO_QUERY_TYPE] = m[APPEND_QUERY].to.dtype;
    }
    if (a->k) {
        spec[APPEND_KEY_TYPE] = m[APPEND_KEY].from.dtype;
        spec[APPEND_TO_KEY_TYPE] = m[APPEND_KEY].to.dtype;
    }
    if (a->v) {
        spec[APPEND_VALUE_TYPE] = m[APPEND_VALUE].from.dtype;
        spec[APPEND_TO_VALUE_TYPE] = m[APPEND_VALUE].to.dtype;
    }
    const uint32_t n_state = cache->state.shape.size[3];
    plan_bind(plan, pass, SLOT_STATE, cache->table_row ? &cache->words : &cache->state, false,
              &p->state_offset);
    p->table_offset = p->state_offset + n_state + slice->first[0] * cache->table_row;
    p->state_offset += slice->first[0];
}

/* Whether rows that are stored are float32, or 16-bit elements of whole words. */
static bool stores_words(const struct vka_tensor *to)
{
    return to->dtype == VKA_F32 || axes_are_pairs(to, (uint32_t)to->shape.offset);
}

/* Whether APPEND_PAIRS is set: not where no row needs it. */
static bool has_pairs(const struct append *a)
{
    const struct cached_layer *layer = layer_of(a->use);
    const struct vka_tensor *to[] = {a->k ? &layer->k.rows : NULL, a->v ? &layer->v.rows : NULL,
                                     a->q ? a->to_q : NULL};
    bool words = !a->rope || a->rope->dim % 4 == 0, halves = false;
    for (size_t i = 0; i < COUNTOF(to); i++) {
        if (!to[i])
            continue;
        words &= to[i]->shape.size[3] % 4 == 0 && stores_words(to[i]);
        halves |= to[i]->dtype != VKA_F32;
    }
    return words && halves;
}

/* Items of a row of keys and of queries, or of values: two features each, or with APPEND_PAIRS four. */
static uint32_t items_of(bool pairs, uint32_t n_feature, uint32_t dim)
{
    if (pairs)
        return n_feature / 4;
    return dim / 2 + (n_feature - dim) / 2 + (n_feature - dim) % 2;
}

/* The most items of a row, and lanes that do not idle for want of them. */
static uint32_t widest_of(const struct append *a)
{
    const struct vka_cache_layer_info *i = info_of(a);
    const bool pairs = has_pairs(a);
    const uint32_t key = a->k ? items_of(pairs, i->head_dim, a->rope ? a->rope->dim : 0) : 0;
    const uint32_t value = a->v ? items_of(pairs, i->value_dim, 0) : 0;
    return key > value ? key : value;
}

static uint32_t lanes_of(const struct append *a)
{
    return widest_of(a) > 32 ? 64 : 32;
}

/* Whether one pass takes rows of all kinds. */
static bool joins_kinds(const struct vka_plan *plan, const uint32_t size[4])
{
    const bool cpu = plan->caps.properties.type == VKA_DEVICE_CPU;
    return (uint64_t)size[0] * size[2] <= (cpu ? FEW_ROWS_CPU : FEW_ROWS);
}

/* Rows of an invocation: what it does before its first row takes as long as several rows. */
static uint32_t rows_each(uint32_t n_row)
{
    return n_row < MANY_ROWS ? 1 : ROWS_EACH;
}

/* Work of some rows of a key head. */
static double row_work(const struct append *a)
{
    const struct vka_cache_layer_info *i = info_of(a);
    double place = (a->k ? i->head_dim : 0.0) + (a->v ? i->value_dim : 0.0);
    double rotation = a->q ? (a->group + 1.0) * i->head_dim : 0.0;
    return WORK_PLACE * place + WORK_SCORE * rotation;
}

static struct work work_of(const struct append *a, const uint32_t size[4])
{
    const double rows = (double)size[0] * size[1] * size[2], each = rows_each(size[2]);
    return (struct work){rows * row_work(a),
                         (has_pairs(a) ? 4 : 2) * lanes_of(a) * each *
                             (a->q ? WORK_PLACE + WORK_SCORE : WORK_PLACE),
                         each * (1 + SEARCH)};
}

/* Fills in a pass, but for the binding of its parameters. */
static void fill_pass(const struct vka_plan *plan, const struct append *a,
                      const struct slice *slice, struct pass *pass, struct append_params *p)
{
    const struct vka_cache *cache = a->use->cache;
    const struct vka_cache_info *i = &cache->info;
    const struct vka_cache_layer_info *layer = info_of(a);
    const uint32_t *size = slice->size, dim = a->rope ? a->rope->dim : 0;
    const uint32_t each = rows_each(size[2]), lanes = lanes_of(a);
    const uint64_t items = (uint64_t)divide_up(size[2], each) * widest_of(a);
    *p = (struct append_params){
        .n_row = size[2],
        .each = each,
        .n_key = a->k ? size[1] : 0,
        .n_value = a->v ? size[1] : 0,
        .head_dim = layer->head_dim,
        .value_dim = layer->value_dim,
        .dim = dim,
        .interleaved = a->rope && a->rope->interleaved,
        .batch = i->batch,
        .capacity = i->capacity,
        .page_size = i->page_size,
        .table_row = cache->table_row,
        .n_page = i->n_page,
        .row_first = slice->first[2],
        .n_sequence = a->use->q_start ? i->batch : 0,
    };
    pass->name = a->rope ? "rotate and append" : "append";
    pass->reason = "positions read on the device";
    pass->key = (struct pipeline_key){.kernel = KERNEL_cache_append, .n_spec = APPEND_SPECS};
    pass->key.spec[APPEND_LANES] = lanes;
    pass->key.spec[APPEND_PAIRS] = has_pairs(a);
    pass->key.spec[APPEND_KIND] = a->k && a->v ? APPEND_KINDS : a->k ? APPEND_KEY : APPEND_VALUE;
    bind_all(plan, a, slice, pass, p);
    /* the kernel counts items in 32 bits */
    pass->groups[0] = items > UINT32_MAX - lanes ? UINT32_MAX : divide_up((uint32_t)items, lanes);
    pass->groups[1] = p->n_key + p->n_value + (a->q ? size[1] * a->group : 0);
    pass->groups[2] = size[0];
    pass->work = work_of(a, size);
    snprintf(pass->detail, sizeof pass->detail, "%ux%ux%u, %u/%u, %s*%s%s%s", size[0], size[1],
             size[2], layer->head_dim, layer->value_dim, vka_dtype_name(layer_of(a->use)->k.dtype),
             vka_dtype_name(layer_of(a->use)->v.dtype), a->k ? "" : ", values",
             a->v ? "" : ", keys");
}

static void make_pass(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass)
{
    struct append_params p;
    fill_pass(plan, job, slice, pass, &p);
}

static enum vka_status add_pass(struct vka_plan *plan, const void *job, const struct slice *slice)
{
    enum vka_status status = VKA_OK;
    struct log *log = &plan->device->log;
    const struct append *a = job;
    const struct vka_rope none = {0}, *rope = a->rope ? a->rope : &none;
    const uint32_t count = sizeof(struct append_params) / 4 + ROTARY_WORDS(rope->dim);
    struct vka_tensor parameters;
    struct append_params p;
    struct pass pass = {0};
    uint32_t *words = calloc(count, sizeof *words);
    CHECK_ALLOC(words);
    fill_pass(plan, a, slice, &pass, &p);
    memcpy(words, &p, sizeof p);
    rotary_fill_words(rope, words + sizeof p / 4);
    TRY(plan_constant(plan, count, words, &parameters));
    plan_bind(plan, &pass, SLOT_PARAMETERS, &parameters, false, NULL);
    TRY(plan_add_pass(plan, &pass));
fail:
    free(words);
    return status;
}

bool cache_append_rotates(const struct vka_plan *plan, const struct cache_use *use,
                          const struct new_rows *rows)
{
    const uint32_t *q = rows->q.shape.size, *k = rows->k.shape.size;
    struct vka_tensor to_q = {.dtype = rows->q_type};
    if (cache_has_blocks(layer_of(use)) || q[2] != k[2] || !joins_kinds(plan, k) ||
        !shape_dense(4, q, &to_q.shape))
        return false;
    const struct append a = {use, rows->rope, &rows->k, &rows->v, &rows->q, &to_q, q[1] / k[1]};
    struct pass pass = {0};
    make_pass(plan, &a, &(const struct slice){{0}, {1, 1, 1, 1}}, &pass);
    return plan_pass_has_room(plan, &pass);
}

static enum vka_status add_passes(struct vka_plan *plan, const struct append *a,
                                  const uint32_t rows[4])
{
    const struct vka_cache_layer_info *i = info_of(a);
    const uint32_t width = (a->k ? i->head_dim : 0) + (a->v ? i->value_dim : 0);
    const uint32_t size[4] = {rows[0], rows[1], rows[2], width};
    struct cut cut = {
        .job = a,
        .least = {1, 1, 1, CUT_NEVER},
        .kernel = KERNEL_cache_append,
        .whole = work_of(a, size),
        .probe = plan_probe_moves,
        .make = make_pass,
        .add = add_pass,
    };
    cache_least_slice(size, cut.multiple);
    ENSURE(plan_settle_kernel(plan, KERNEL_cache_append));
    return plan_cut(plan, &cut, size);
}

/* Keys and values as they are. */
static enum vka_status append(struct vka_plan *plan, const struct cache_use *use,
                              const struct new_rows *rows)
{
    const struct cached_layer *layer = layer_of(use);
    const uint32_t *size = rows->k.shape.size;
    const struct append both = {.use = use, .k = &rows->k, .v = &rows->v};
    const struct append keys = {.use = use, .k = &rows->k}, values = {.use = use, .v = &rows->v};
    if (!cache_has_blocks(layer) && joins_kinds(plan, size))
        return add_passes(plan, &both, size);
    ENSURE(layer->k.scales ? plan_cache_quantise(plan, use, &rows->k, &layer->k)
                           : add_passes(plan, &keys, size));
    return layer->v.scales ? plan_cache_quantise(plan, use, &rows->v, &layer->v)
                           : add_passes(plan, &values, size);
}

enum vka_status plan_cache_append(struct vka_plan *plan, const struct cache_use *use,
                                  struct new_rows *rows)
{
    const uint32_t *k = rows->k.shape.size;
    struct vka_tensor to_q;
    if (!rows->q.storage)
        return append(plan, use, rows);
    ENSURE(rotary_check(plan, "rotate and append", rows->rope, ROTARY_MOST_OFFSET, k[2], k[3]));
    ENSURE(plan_scratch(plan, rows->q_type, rows->q.shape.size, &to_q));
    const struct append all = {
        use, rows->rope, &rows->k, &rows->v, &rows->q, &to_q, rows->q.shape.size[1] / k[1]};
    ENSURE(add_passes(plan, &all, k));
    rows->q = to_q;
    return VKA_OK;
}
