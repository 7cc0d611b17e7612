/* Draws problems of packed sequences with a cache. */
#include "ragged_problem.h"

#include <gpu/device.h>

#include <stdio.h>

static enum vka_dtype draw_cached(struct rng *rng)
{
    static const enum vka_dtype types[] = {VKA_F32,  VKA_F32,  VKA_F32,  VKA_F16,
                                           VKA_BF16, VKA_Q8_0, VKA_Q8_0, VKA_Q4_0};
    return types[rng_range(rng, 0, sizeof types / sizeof *types - 1)];
}

static void draw_sizes(struct ragged_problem *p, struct rng *rng)
{
    static const uint32_t dims[][2] = {{16, 16}, {32, 32}, {8, 8}, {64, 32}, {6, 10}};
    static const uint32_t pages[] = {0, 0, 16, 32};
    const uint32_t *dim = dims[rng_range(rng, 0, 4)];
    p->n_sequence = rng_chance(rng, 10) ? rng_range(rng, 6, 40) : rng_range(rng, 1, 5);
    p->n_kv_head = rng_range(rng, 1, 3);
    p->group = rng_chance(rng, 50) ? 1 : rng_range(rng, 2, 4);
    p->head_dim = dim[0];
    p->value_dim = dim[1];
    p->n_layer = rng_chance(rng, 25) ? 2 : 1;
    p->capacity = rng_chance(rng, 15) ? rng_range(rng, 200, 700) : rng_range(rng, 1, 90);
    p->page_size = pages[rng_range(rng, 0, 3)];
    p->n_row = rng_chance(rng, 20) ? p->n_sequence : rng_range(rng, 1, 40);
    if (rng_chance(rng, 60))
        p->whole_n_q = rng_chance(rng, 50) ? 1 : rng_range(rng, 2, 80);
}

static void draw_types(struct ragged_problem *p, struct rng *rng)
{
    static const enum vka_dtype io[] = {VKA_F32, VKA_F32, VKA_F16, VKA_BF16};
    p->io = io[rng_range(rng, 0, 3)];
    p->key = draw_cached(rng);
    p->value = rng_chance(rng, 50) ? p->key : draw_cached(rng);
    if (rng_chance(rng, 30)) /* as kernels with matrices take */
        p->key = p->value = p->io;
    p->no_hadamard = p->head_dim % 16 || p->value_dim % 16 || rng_chance(rng, 20);
    p->scattered = rng_chance(rng, 40);
}

static void draw_mask(struct ragged_problem *p, struct rng *rng)
{
    const uint32_t full[4] = {1, p->n_kv_head * p->group, p->n_row, p->capacity};
    p->mask = rng_chance(rng, 50) ? VKA_BOOL : p->io;
    p->mask_rank = rng_range(rng, 1, 4);
    for (uint32_t i = 0; i < p->mask_rank; i++)
        p->mask_shape[i] = rng_chance(rng, 30) ? 1 : full[4 - p->mask_rank + i];
    p->mask_shape[p->mask_rank - 1] = p->capacity;
    if (p->capacity > 2 && rng_chance(rng, 25))
        p->mask_shape[p->mask_rank - 1] = rng_range(rng, 2, p->capacity - 1);
}

static void draw_options(struct ragged_problem *p, struct rng *rng)
{
    p->causal = rng_chance(rng, 80);
    p->window = rng_chance(rng, 25);
    if (p->window) {
        p->window_left = rng_chance(rng, 20) ? -1 : (int32_t)rng_range(rng, 0, 40);
        p->window_right = rng_chance(rng, 50) ? -1 : (int32_t)rng_range(rng, 0, 10);
    }
    if (rng_chance(rng, 35))
        draw_mask(p, rng);
    p->n_append = rng_chance(rng, 30);
    p->log_sum = rng_chance(rng, 40);
    p->softcap = rng_chance(rng, 20) ? (float)rng_uniform(rng, 0.5, 30) : 0;
    p->sink = rng_chance(rng, 20);
    p->alibi = rng_chance(rng, 20);
    if (rng_chance(rng, 15)) {
        p->dropout = (float)rng_uniform(rng, 0.1, 0.7);
        p->dropout_seed = rng_next(rng);
    }
    p->masked_row = (enum vka_masked_row)rng_range(rng, 0, VKA_MASKED_ROW_COUNT - 1);
    if (rng_chance(rng, 50)) {
        p->rope.dim = 2 * rng_range(rng, 1, p->head_dim / 2);
        p->rope.interleaved = rng_chance(rng, 50);
    }
    p->q_norm = rng_chance(rng, 15);
    p->k_norm = rng_chance(rng, 15);
    p->submit_budget = rng_chance(rng, 20) ? rng_chance(rng, 50) ? 1 : 100000 : 0;
}

/* Kernels that are not there: of CPU drivers those by address, all others of CPU drivers, then those
 * of GPUs. The last two need matrices, see ragged_fit. */
#define KINDS 7
static uint64_t kernels_without(uint32_t kind)
{
    const uint64_t address = 1ull << KERNEL_attention_address | 1ull << KERNEL_attention_feature;
    const uint64_t rows = address | 1ull << KERNEL_attention_row | 1ull << KERNEL_attention_texel;
    const uint64_t most = rows | 1ull << KERNEL_attention_tile | 1ull << KERNEL_attention_decode;
    const uint64_t kinds[KINDS] = {0,
                                   address,
                                   address | 1ull << KERNEL_attention_texel,
                                   rows,
                                   rows | 1ull << KERNEL_attention_decode,
                                   most,
                                   most | 1ull << KERNEL_attention_coop_f16 |
                                       1ull << KERNEL_attention_coop_bf16};
    return kinds[kind];
}

/* Gives the problem one of few sets of what kernels are compiled for. */
static void share(struct ragged_problem *p, uint64_t set)
{
    static const enum vka_dtype types[][2] = {
        {VKA_F32, VKA_F32}, {VKA_F16, VKA_F16}, {VKA_F32, VKA_Q8_0}, {VKA_F32, VKA_Q4_0}};
    uint32_t kind = (uint32_t)(set % KINDS), type = (uint32_t)(set / KINDS % 8);
    type = type < 3 ? 0 : type < 5 ? 1 : type < 7 ? 2 : 3;
    const bool rows = kind == 1 || kind == 2; /* which compile for seconds, unrolled */
    type = rows && type > 1 ? type - 2 : type;
    p->disabled_kernels = kernels_without(kind);
    p->head_dim = p->value_dim = rows ? 8 : 32;
    p->rope.dim = p->rope.dim ? p->head_dim : 0;
    p->io = types[type][0];
    p->key = p->value = types[type][1];
    p->mask = p->mask_rank && p->mask != VKA_BOOL ? p->io : p->mask;
    p->no_hadamard = p->head_dim % 16 != 0;
    p->group = 2;
    if (p->mask_rank > 2 && p->mask_shape[p->mask_rank - 3] != 1)
        p->mask_shape[p->mask_rank - 3] = 2 * p->n_kv_head;
    p->whole_n_q = set % 3 ? (kind % 2 ? 40 : 1) : (kind % 2 ? 1 : 40);
    p->log_sum = p->softcap != 0 || p->mask_rank;
    p->submit_budget = set % 11 ? 0 : p->submit_budget;
}

void ragged_draw(struct ragged_problem *p, uint64_t seed, bool few)
{
    struct rng rng = {seed ^ 0x7a66ed};
    *p = (struct ragged_problem){.seed = seed};
    draw_sizes(p, &rng);
    draw_types(p, &rng);
    draw_options(p, &rng);
    p->disabled_kernels = kernels_without(rng_range(&rng, 0, KINDS - 1));
    if (rng_chance(&rng, 25))
        p->disabled_kernels |= 1ull << KERNEL_attention_merge;
    if (few)
        share(p, seed);
}

void ragged_fit(struct vka_device *device, struct ragged_problem *p)
{
    const uint64_t tile = 1ull << KERNEL_attention_tile;
    const enum kernel coop =
        p->io == VKA_F16 ? KERNEL_attention_coop_f16 : KERNEL_attention_coop_bf16;
    const enum kernel coop2 =
        p->io == VKA_F16 ? KERNEL_attention_coop2_f16 : KERNEL_attention_coop2_bf16;
    bool halves = p->io != VKA_F32 && p->key == p->io && p->value == p->io && !p->rope.dim &&
                  !p->q_norm && !p->k_norm; /* which make float32 queries */
    bool has = (!kernel_missing(coop, &device->caps) && !(p->disabled_kernels >> coop & 1)) ||
               !kernel_missing(coop2, &device->caps);
    if (!halves || !has)
        p->disabled_kernels &= ~tile;
}

#define SAY(condition, ...)                      \
    if ((condition) && length < RAGGED_TEXT - 1) \
    length += (size_t)snprintf(text + length, RAGGED_TEXT - length, __VA_ARGS__)

const char *ragged_text(const struct ragged_problem *p, char text[RAGGED_TEXT])
{
    size_t length = 0;
    text[0] = '\0';
    SAY(true, "seed %llu: %u sequences, heads %u/%u, dims %u,%u, capacity %u, %u rows, %u layers",
        (unsigned long long)p->seed, p->n_sequence, p->n_kv_head * p->group, p->n_kv_head,
        p->head_dim, p->value_dim, p->capacity, p->n_row, p->n_layer);
    SAY(true, ", %s, cache %s %s", vka_dtype_name(p->io), vka_dtype_name(p->key),
        vka_dtype_name(p->value));
    SAY(p->no_hadamard, " no hadamard");
    SAY(p->page_size, " pages of %u", p->page_size);
    SAY(p->whole_n_q, " whole_n_q %u", p->whole_n_q);
    SAY(p->scattered, " strided");
    SAY(p->causal, " causal");
    SAY(p->window, " window %d,%d", p->window_left, p->window_right);
    SAY(p->mask_rank, " mask %s rank %u", vka_dtype_name(p->mask), p->mask_rank);
    SAY(p->n_append, " n_append");
    SAY(p->log_sum, " log_sum_exp");
    SAY(p->softcap != 0, " softcap %g", (double)p->softcap);
    SAY(p->sink, " sink");
    SAY(p->alibi, " alibi");
    SAY(p->dropout != 0, " dropout %g", (double)p->dropout);
    SAY(p->masked_row == VKA_MASKED_NAN, " masked rows NaN");
    SAY(p->masked_row == VKA_MASKED_UNIFORM, " masked rows uniform");
    SAY(p->rope.dim, " rope %u%s", p->rope.dim, p->rope.interleaved ? " interleaved" : "");
    SAY(p->q_norm, " q_norm");
    SAY(p->k_norm, " k_norm");
    SAY(p->submit_budget, " budget %llu", (unsigned long long)p->submit_budget);
    for (int k = 0; k < KERNEL_COUNT; k++)
        SAY(p->disabled_kernels >> k & 1, " not %s", kernel_table[k].name);
    return text;
}
