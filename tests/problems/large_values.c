/* What the inputs of large attention problems hold: known functions of a key's index. */
#include "large_known.h"

#include <math.h>

#define STEPS 32          /* of the ramp in 16-bit types, so that sums with a term stay exact */
#define FEATURE_FACTORS 4 /* and half as many terms */

double large_ramp(const struct large_known *k, int64_t j)
{
    if (k->a->v == VKA_F32)
        return k->n > 1 ? (double)j / (k->n - 1) : 0;
    return (double)(j * STEPS / k->n) / STEPS;
}

double large_factor(uint32_t feature)
{
    static const double factors[FEATURE_FACTORS] = {1, -1, 0.5, -0.5};
    return factors[feature % FEATURE_FACTORS];
}

double large_term(uint32_t feature, uint32_t kv_head)
{
    return 2 + (feature / FEATURE_FACTORS + kv_head) % 2;
}

double large_level(const struct large_known *k, int64_t j, uint32_t class)
{
    double sign = class ? -1 : 1;
    switch (k->a->pattern) {
    case LARGE_RISE:
        return sign * ((double)(32 * j / k->n) - 16) / 16;
    case LARGE_STEP:
        return j < k->n / 3 ? sign : -sign;
    case LARGE_HASH:
    case LARGE_PATTERN_COUNT:
        break;
    }
    return ((double)(large_mix((uint32_t)j, class) % 33) - 16) / 16;
}

double large_query_size(const struct large_attention *a)
{
    return a->scale != 0 ? 1 : exp2(-floor(log2(sqrt((double)a->head_dim))));
}

double large_mask(const struct large_known *k, int64_t j, uint32_t class)
{
    static const double biases[] = {0, -1, 1.5, -0.5};
    const struct large_attention *a = k->a;
    if (!a->mask_rank)
        return 0;
    if (k->mask_n == 1)
        j = 0;
    else if (j >= k->mask_n)
        return -INFINITY;
    uint32_t random = large_mix((uint32_t)j, class);
    bool hidden = a->mask_ranges ? (j / 1000 + class) % 3 == 1 : random % 4 == 0;
    return hidden ? -INFINITY : a->mask == VKA_BOOL ? 0 : biases[random >> 8 & 3];
}

float large_slope(const struct large_known *k, uint32_t head)
{
    return (float)(k->slope / (1 + head % k->n_slope_class));
}

float large_sink(const struct large_known *k, uint32_t head)
{
    return (float)(log((double)k->n) - 1 + head % 3);
}

uint32_t large_mask_class(const struct large_attention *a, const uint32_t at[3])
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i + 1 < a->mask_rank; i++) {
        uint32_t axis = 4 - a->mask_rank + i;
        sum += a->mask_shape[i] > 1 ? at[axis] % 3 : 0;
    }
    return sum % 3;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

bool large_fill_q(const struct large_attention *a, struct large_tensor *t)
{
    if (!large_host(t))
        return false;
    const uint32_t D = a->head_dim, classes = a->alibi || a->mask_rank ? 1 : 2;
    const double size = a->kind == LARGE_LEVELS ? large_query_size(a) : 0;
    const uint32_t bits[2] = {large_encode(a->q, size), large_encode(a->q, -size)};
    const uint32_t hot = large_encode(a->q, LARGE_HOT_FACTOR);
    for (uint64_t row = 0; row < t->count / D; row++) {
        uint32_t query = (uint32_t)(row % a->n_q), flip = query % classes;
        for (uint32_t d = 0; d < D; d++)
            large_store(t, row * D + d, bits[flip ^ (d % 3 == 1)]);
        if (a->kind == LARGE_HOT)
            large_store(t, row * D + query % LARGE_HOT_KEYS % D, hot);
    }
    return true;
}

/* The index of the key that row `row` of a tensor of n keys a head holds. */
static int64_t key_of(const struct large_known *k, uint64_t row, uint32_t first, uint32_t n)
{
    uint32_t more = k->first ? k->first[row / n / k->a->n_kv_head] : 0;
    return (int64_t)first + more + (int64_t)(row % n);
}

/* Noise that no score may show, as q is 0; where one key is hot, 0 besides. */
static void fill_key(const struct large_known *k, struct large_tensor *t, uint64_t at, int64_t j,
                     uint32_t kv_head)
{
    const struct large_attention *a = k->a;
    const uint32_t D = a->head_dim;
    double x = a->kind == LARGE_LEVELS ? large_level(k, j, kv_head % k->n_key_class)
               : a->kind == LARGE_MEAN ? large_level(k, j, 0)
                                       : 0;
    const uint32_t bits[2] = {large_encode(t->dtype, x), large_encode(t->dtype, -x)};
    for (uint32_t d = 0; d < D; d++)
        large_store(t, at + d, bits[d % 3 == 1]);
    if (a->kind != LARGE_HOT)
        return;
    for (uint32_t d = 0; d < LARGE_HOT_KEYS && d < D; d++)
        if (a->hot[kv_head % 2][d] == j)
            large_store(t, at + d, large_encode(t->dtype, LARGE_HOT_FACTOR));
}

bool large_fill_k(const struct large_known *k, struct large_tensor *t, uint32_t first, uint32_t n)
{
    if (!large_host(t))
        return false;
    const uint32_t D = k->a->head_dim;
    for (uint64_t row = 0; row < t->count / D; row++)
        fill_key(k, t, row * D, key_of(k, row, first, n), (uint32_t)(row / n));
    return true;
}

bool large_fill_v(const struct large_known *k, struct large_tensor *t, uint32_t first, uint32_t n)
{
    if (!large_host(t))
        return false;
    const uint32_t D = k->a->value_dim, period = 2 * FEATURE_FACTORS;
    for (uint64_t row = 0; row < t->count / D; row++) {
        uint32_t bits[2 * FEATURE_FACTORS], kv_head = (uint32_t)(row / n);
        double ramp = large_ramp(k, key_of(k, row, first, n));
        for (uint32_t c = 0; c < period; c++)
            bits[c] = large_encode(t->dtype, large_factor(c) * ramp + large_term(c, kv_head));
        for (uint32_t c = 0; c < D; c++)
            large_store(t, row * D + c, bits[c % period]);
    }
    return true;
}

bool large_fill_mask(const struct large_known *k, struct large_tensor *t)
{
    const struct large_attention *a = k->a;
    uint32_t size[3] = {1, 1, 1};
    if (!large_host(t))
        return false;
    for (uint32_t i = 0; i + 1 < a->mask_rank; i++)
        size[4 - a->mask_rank + i] = a->mask_shape[i];
    for (uint64_t row = 0; row < t->count / k->mask_n; row++) {
        const uint32_t at[3] = {(uint32_t)(row / size[2] / size[1]),
                                (uint32_t)(row / size[2] % size[1]), (uint32_t)(row % size[2])};
        uint32_t class = large_mask_class(a, at);
        for (uint32_t j = 0; j < k->mask_n; j++) {
            double x = large_mask(k, j, class);
            x = a->mask == VKA_BOOL ? x == 0 : x;
            large_store(t, row * k->mask_n + j, large_encode(a->mask, x));
        }
    }
    return true;
}
