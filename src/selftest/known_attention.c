#include "core/convert.h"
#include "op/attention/unfused.h"
#include "selftest/solution.h"

#include <math.h>
#include <stdlib.h>

#define GROUP 2u /* heads of a key head */
#define CAPACITY 32u
#define FEATURE_DIM 32u

struct known_attention {
    uint32_t batch, n_kv_head, n_q, n_kv;
    uint32_t dim; /* of queries, keys and values */
    enum vka_dtype dtype;
    bool causal, mask, rope;
    uint32_t page_size; /* of a cache */
    bool small;         /* every second element of q, and the others of keys, are subnormal */
    bool quantised;     /* keys and values of the cache are q8_0 */
    bool cache;         /* the plan runs twice, and the cache then holds the same keys twice */
};

/* The sizes of a problem; 0: not used. Each axis of the grid has several workgroups, so that a
 * kernel is not right if only the first one is. */
static struct known_attention known(enum known_problem problem, uint32_t dim)
{
    struct known_attention a = {.batch = 2, .n_kv_head = 2, .n_q = 67, .n_kv = 37};
    a.quantised = problem == KNOWN_CACHE_QUANTISED;
    a.cache = problem == KNOWN_CACHE || problem == KNOWN_PAGES || a.quantised;
    if (a.cache)
        a.n_q = a.n_kv = 3;
    a.small = problem == KNOWN_FUSED_MIXED;
    if (problem == KNOWN_FUSED_F16 || a.small)
        a.dtype = VKA_F16;
    if (problem == KNOWN_FUSED_BF16)
        a.dtype = VKA_BF16;
    if (problem == KNOWN_FUSED_FEW)
        a = (struct known_attention){.batch = 1, .n_kv_head = 2, .n_q = 1, .n_kv = 301};
    if (problem == KNOWN_MASK) /* more rows than a tile of any kernel */
        a = (struct known_attention){
            .batch = 1, .n_kv_head = 1, .n_q = 133, .n_kv = 101, .mask = true};
    a.causal = a.cache || (problem >= KNOWN_FUSED && problem <= KNOWN_FUSED_BF16);
    a.dim = dim;
    a.rope = problem == KNOWN_ROPE || problem == KNOWN_CACHE;
    a.page_size = problem == KNOWN_PAGES ? 16 : 0;
    return a;
}

/* Shows some keys of a tile, all, or none. Query 0 sees key 1. */
static bool mask_shows(uint32_t query, uint32_t key)
{
    return (query / 32 + key / 32) % 2 == 0 && (key >= 64 || (query + key) % 3 != 0);
}

static bool sees(const struct known_attention *a, uint32_t query, uint32_t key)
{
    if (a->causal)
        return key <= query + (a->cache ? a->n_kv : 0); /* in the second run */
    return !a->mask || mask_shows(query, key);
}

/* q . k after rotation, which depends only on the distance of their positions; q and k: first
 * elements. */
static double score(const struct known_attention *a, uint32_t q, uint32_t k, double distance)
{
    double sum = 0;
    for (uint32_t i = 0; i < a->dim / 2; i++) {
        double angle = a->rope ? distance * pow(10000, -2.0 * i / a->dim) : 0;
        double q0 = known_value(1, q + i), q1 = known_value(1, q + i + a->dim / 2);
        double k0 = known_value(2, k + i), k1 = known_value(2, k + i + a->dim / 2);
        sum += q0 * (k0 * cos(angle) - k1 * sin(angle)) + q1 * (k0 * sin(angle) + k1 * cos(angle));
    }
    return sum / sqrt(a->dim);
}

/* want: [batch][n_kv_head * GROUP][n_q][dim], filled with 0. */
static void attend(const struct known_attention *a, double *want)
{
    uint32_t n_key = a->cache ? 2 * a->n_kv : a->n_kv;
    for (uint32_t row = 0; row < a->batch * a->n_kv_head * GROUP * a->n_q; row++) {
        double row_sum = 0, *context = want + row * a->dim;
        uint32_t query = row % a->n_q, kv = row / a->n_q / GROUP * a->n_kv * a->dim;
        for (uint32_t key = 0; key < n_key; key++) {
            if (!sees(a, query, key))
                continue;
            uint32_t at = kv + key % a->n_kv * a->dim;
            double position = query + (a->cache ? a->n_kv : 0.0); /* in the second run */
            double weight = exp(score(a, row * a->dim, at, key - position));
            row_sum += weight;
            for (uint32_t d = 0; d < a->dim; d++)
                context[d] += weight * known_value(3, at + d);
        }
        for (uint32_t d = 0; d < a->dim; d++)
            context[d] /= row_sum;
    }
}

static enum vka_status make_mask(struct solution *s, const struct known_attention *a,
                                 struct vka_tensor **mask)
{
    struct log *log = &s->device->log;
    enum vka_status status = VKA_OK;
    size_t size = (size_t)a->n_q * a->n_kv;
    unsigned char *shown = NULL;
    if (!a->mask)
        return VKA_OK;
    TRY(vka_tensor_create(s->device, VKA_BOOL, 2, (const uint32_t[]){a->n_q, a->n_kv},
                          &s->tensors[s->n_tensor]));
    *mask = s->tensors[s->n_tensor++];
    shown = malloc(size);
    CHECK_ALLOC(shown);
    for (uint32_t i = 0; i < size; i++)
        shown[i] = mask_shows(i / a->n_kv, i % a->n_kv);
    TRY(vka_tensor_write(*mask, shown, size));
fail:
    free(shown);
    return status;
}

static enum vka_status make_cache(struct solution *s, const struct known_attention *a)
{
    if (!a->cache)
        return VKA_OK;
    return vka_cache_create(
        s->device,
        VKA_INFO(vka_cache_info, .batch = a->batch, .n_kv_head = a->n_kv_head, .head_dim = a->dim,
                 .capacity = CAPACITY, .key_dtype = a->quantised ? VKA_Q8_0 : VKA_F32,
                 .value_dtype = a->quantised ? VKA_Q8_0 : VKA_F32, .page_size = a->page_size),
        &s->cache);
}

/* Features of a head. A quantised cache has as many as attention_feature takes, where it is there,
 * as real heads have: else another kernel would be compiled and tested for the problem alone. */
static uint32_t dim_of(const struct solution *s)
{
    const struct caps *caps = &s->plan->caps;
    bool features = s->problem == KNOWN_CACHE_QUANTISED &&
                    caps->properties.type == VKA_DEVICE_CPU &&
                    !kernel_missing(KERNEL_attention_feature, caps);
    return features ? FEATURE_DIM : s->head_dim;
}

enum vka_status known_attention(struct solution *s)
{
    const struct known_attention a = known(s->problem, dim_of(s));
    const uint32_t q_shape[] = {a.batch, a.n_kv_head * GROUP, a.n_q, a.dim};
    const uint32_t kv_shape[] = {a.batch, a.n_kv_head, a.n_kv, a.dim};
    struct vka_tensor *q, *k, *v, *output, *mask = NULL;
    ENSURE(known_tensor(s, a.dtype, 4, q_shape, 1, &q));
    ENSURE(known_tensor(s, a.dtype, 4, kv_shape, 2, &k));
    ENSURE(known_tensor(s, a.dtype, 4, kv_shape, 3, &v));
    ENSURE(known_tensor(s, a.dtype, 4, q_shape, 0, &output));
    if (a.small) {
        ENSURE(known_shrink(s, q, 1, 0));
        ENSURE(known_shrink(s, k, 2, 1));
    }
    ENSURE(make_mask(s, &a, &mask));
    ENSURE(make_cache(s, &a));
    ENSURE(vka_plan_add_attention(
        s->plan, VKA_INFO(vka_attention_op, .q = q, .k = k, .v = v, .output = output,
                          .cache = s->cache, .options.mask = mask, .options.causal = a.causal,
                          .options.scale = a.small ? (float)(1 / KNOWN_SMALL / sqrt(a.dim)) : 0,
                          .options.rope.dim = a.rope ? a.dim : 0)));
    ENSURE(known_want(s, output));
    attend(&a, s->want);
    return known_run(s, output, a.cache ? 2 : 1);
}

/* Softmax of scores [BATCH][HEADS][ROWS][PITCH] in place; the padding of rows must stay as it
 * is. */
enum vka_status known_softmax(struct solution *s)
{
    enum { BATCH = 2, HEADS = 2, ROWS = 39, KEYS = 37, PITCH = 40 };
    const struct vka_attention_options options = {.causal = true};
    const struct attention a = {.batch = BATCH, .n_head = HEADS, .n_kv = KEYS, .options = &options};
    const struct head_slice all = {.n_batch = BATCH, .n_head = HEADS, .n_query = ROWS};
    struct plan_mark mark;
    struct vka_tensor *scores, keys;
    ENSURE(known_tensor(s, VKA_F32, 4, (const uint32_t[]){BATCH, HEADS, ROWS, PITCH}, 1, &scores));
    keys = tensor_slice_along(scores, 3, 0, KEYS);
    ENSURE(plan_begin(s->plan, __func__, &mark));
    while (mark.open)
        plan_end(s->plan, &mark, attention_add_softmax(s->plan, &a, &all, &keys));
    ENSURE(mark.status);
    ENSURE(known_want(s, scores));
    for (uint32_t i = 0; i < BATCH * HEADS * ROWS * PITCH; i++) {
        uint32_t query = i / PITCH % ROWS, shown = query < KEYS ? query + 1 : KEYS;
        double row_sum = 0;
        for (uint32_t key = 0; key < shown; key++)
            row_sum += exp(known_value(1, i / PITCH * PITCH + key));
        s->want[i] = i % PITCH < shown ? exp(known_value(1, i)) / row_sum : 0;
        if (i % PITCH >= KEYS)
            s->want[i] = known_value(1, i);
    }
    return known_run(s, scores, 1);
}
