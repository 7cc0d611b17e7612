/* Draws problems of packed sequences with a cache. */
#include "problem.h"
#include "types.h"

#include <gpu/device.h>

static enum vka_dtype draw_cached(struct rng *rng)
{
    static const enum vka_dtype types[] = {VKA_F32,  VKA_F32,  VKA_F32,  VKA_F16,
                                           VKA_BF16, VKA_Q8_0, VKA_Q8_0, VKA_Q4_0};
    return types[rng_range(rng, 0, sizeof types / sizeof *types - 1)];
}

static void draw_sizes(struct problem *p, struct rng *rng)
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
    p->batch = 1;
    p->n_q = p->n_new = rng_chance(rng, 20) ? p->n_sequence : rng_range(rng, 1, 40);
    if (rng_chance(rng, 60))
        p->whole_n_q = rng_chance(rng, 50) ? 1 : rng_range(rng, 2, 80);
}

static void draw_types(struct problem *p, struct rng *rng)
{
    p->q = p->k = p->v = p->output = type_draw_float(rng);
    p->cached_k = draw_cached(rng);
    p->cached_v = rng_chance(rng, 50) ? p->cached_k : draw_cached(rng);
    if (rng_chance(rng, 30)) /* as kernels with matrices take */
        p->cached_k = p->cached_v = p->q;
    p->no_hadamard = p->head_dim % 16 || p->value_dim % 16 || rng_chance(rng, 20);
    p->scattered = rng_chance(rng, 40);
    p->n_append = rng_chance(rng, 30);
    p->log_sum = rng_chance(rng, 42);
    p->submit_budget = rng_chance(rng, 20) ? rng_chance(rng, 50) ? 1 : 100000 : 0;
}

/* Kernels that are not there: of CPU drivers those by address, all others of CPU drivers, then those
 * of GPUs. The last two need matrices, see ragged_fit. */
#define KINDS 7
static struct kernel_set kernels_without(uint32_t kind)
{
    const struct kernel_set address =
        KERNEL_SET(KERNEL_attention_address, KERNEL_attention_feature);
    const struct kernel_set texel = KERNEL_SET(KERNEL_attention_texel);
    const struct kernel_set rows =
        set_union(address, KERNEL_SET(KERNEL_attention_row, KERNEL_attention_texel));
    const struct kernel_set decode = KERNEL_SET(KERNEL_attention_decode);
    const struct kernel_set most =
        set_union(rows, KERNEL_SET(KERNEL_attention_tile, KERNEL_attention_tile_mixed,
                                   KERNEL_attention_decode));
    const struct kernel_set coop =
        KERNEL_SET(KERNEL_attention_coop_f16, KERNEL_attention_coop_bf16);
    const struct kernel_set kinds[KINDS] = {NO_KERNELS,
                                            address,
                                            set_union(address, texel),
                                            rows,
                                            set_union(rows, decode),
                                            most,
                                            set_union(most, coop)};
    return kinds[kind];
}

void ragged_share(struct problem *p, uint64_t set)
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
    p->q = p->k = p->v = p->output = types[type][0];
    p->cached_k = p->cached_v = types[type][1];
    p->mask = p->mask_rank && p->mask != VKA_BOOL ? p->q : p->mask;
    p->no_hadamard = p->head_dim % 16 != 0;
    p->group = 2;
    if (p->mask_rank > 2 && p->mask_shape[p->mask_rank - 3] != 1)
        p->mask_shape[p->mask_rank - 3] = 2 * p->n_kv_head;
    p->whole_n_q = set % 3 ? (kind % 2 ? 40 : 1) : (kind % 2 ? 1 : 40);
    p->log_sum = p->softcap != 0 || p->mask_rank;
    p->submit_budget = set % 11 ? 0 : p->submit_budget;
}

void ragged_draw(struct problem *p, uint64_t seed)
{
    struct rng rng = {seed ^ 0x7a66ed}, kernels = {~seed}; /* which no new option changes */
    *p = (struct problem){.seed = seed, .way = WAY_PACKED};
    draw_sizes(p, &rng);
    draw_types(p, &rng);
    problem_draw_options(p, &rng);
    p->disabled_kernels = kernels_without(rng_range(&kernels, 0, KINDS - 1));
    if (rng_chance(&kernels, 25))
        set_add(&p->disabled_kernels, KERNEL_attention_merge);
}

void ragged_fit(struct vka_device *device, struct problem *p)
{
    const struct kernel_set tile = KERNEL_SET(KERNEL_attention_tile, KERNEL_attention_tile_mixed);
    const enum kernel coop =
        p->q == VKA_F16 ? KERNEL_attention_coop_f16 : KERNEL_attention_coop_bf16;
    const enum kernel coop2 =
        p->q == VKA_F16 ? KERNEL_attention_coop2_f16 : KERNEL_attention_coop2_bf16;
    const enum kernel ext =
        p->q == VKA_F16 ? KERNEL_attention_coop2_ext_f16 : KERNEL_attention_coop2_ext_bf16;
    bool halves = p->q != VKA_F32 && p->cached_k == p->q && p->cached_v == p->q && !p->rope.dim &&
                  !p->q_norm && !p->k_norm; /* which make float32 queries */
    bool has = (!kernel_missing(coop, &device->caps) && !set_has(p->disabled_kernels, coop)) ||
               !kernel_missing(coop2, &device->caps) || !kernel_missing(ext, &device->caps);
    if (!halves || !has)
        p->disabled_kernels = set_minus(p->disabled_kernels, tile);
}
