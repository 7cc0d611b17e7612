/* Draws problems whose sizes are log-uniform, one or two of them large at a time. */
#include "large_draw.h"
#include "types.h"

#include <gpu/kernels.h>

#include <math.h>

#define MOST_K (1u << 22)

static void draw_kernels(struct large_problem *p, struct rng *rng, int kernels)
{
    const struct kernel_set cpu =
        KERNEL_SET(KERNEL_matmul_lane4, KERNEL_matmul_lane8, KERNEL_matmul_address,
                   KERNEL_matmul_texel, KERNEL_softmax_subgroup, KERNEL_attention_row,
                   KERNEL_attention_texel, KERNEL_attention_address, KERNEL_attention_feature);
    const struct kernel_set coop = KERNEL_SET(
        KERNEL_matmul_coop_f16, KERNEL_matmul_coop_bf16, KERNEL_attention_coop_f16,
        KERNEL_attention_coop_bf16, KERNEL_attention_coop2_f16, KERNEL_attention_coop2_bf16,
        KERNEL_attention_coop2_ext_f16, KERNEL_attention_coop2_ext_bf16);
    const struct kernel_set sets[LARGE_KERNELS_COUNT] = {
        [LARGE_KERNELS_USUAL] = NO_KERNELS,
        [LARGE_KERNELS_GPU] = cpu,
        [LARGE_KERNELS_TILE] = set_union(cpu, coop),
        [LARGE_KERNELS_PLAIN] = set_union(
            coop, KERNEL_SET(KERNEL_matmul_address, KERNEL_matmul_texel, KERNEL_attention_texel,
                             KERNEL_attention_address, KERNEL_attention_feature,
                             KERNEL_attention_tile, KERNEL_attention_tile_mixed)),
    };
    uint32_t any = rng_range(rng, 0, 2 * LARGE_KERNELS_COUNT - 1); /* usual as often as not */
    p->a.disabled_kernels = sets[kernels >= 0                ? kernels
                                 : any < LARGE_KERNELS_COUNT ? (int)any
                                                             : LARGE_KERNELS_USUAL];
}

static void draw_plan(struct large_problem *p, struct rng *rng, const struct large_bounds *bounds)
{
    static const uint64_t budgets[] = {0, 0, 5000000, VKA_NO_BUDGET};
    do
        p->op = (enum large_op)(rng_range(rng, 0, 9) < 4 ? LARGE_ATTENTION
                                                         : rng_range(rng, 0, LARGE_OP_COUNT - 1));
    while (!(bounds->ops >> p->op & 1));
    p->a.path = (enum vka_path)rng_range(rng, 0, VKA_PATH_COUNT - 1);
    if (bounds->path >= 0)
        p->a.path = (enum vka_path)bounds->path;
    p->a.submit_budget = budgets[rng_range(rng, 0, 3)];
    p->a.workspace_limit = rng_chance(rng, 25) ? 4096u << rng_range(rng, 0, 12) : 0;
    draw_kernels(p, rng, bounds->kernels);
}

static void draw_product_sizes(struct large_linear *l, struct rng *rng,
                               const struct large_bounds *bounds)
{
    uint32_t *axes[] = {&l->k, &l->k, &l->m[0], &l->m[1], &l->m[2], &l->n};
    const uint32_t most[] = {MOST_K, MOST_K, MOST_ROWS, MOST_HEADS, MOST_HEADS, MOST_ROWS};
    l->rank = rng_range(rng, 2, 4);
    l->m[1] = l->m[2] = 1;
    for (size_t i = 1; i < COUNT(axes); i++)
        *axes[i] = rng_range(rng, 1, i == 1 ? 64 : 3);
    for (uint32_t n = rng_range(rng, 1, 2); n > 0; n--) {
        uint32_t axis = rng_range(rng, 0, COUNT(axes) - 1);
        *axes[axis] = problem_draw_size(rng, most[axis]);
    }
    for (uint32_t i = l->rank - 1; i < 3; i++)
        l->m[i] = 1;
    for (;;) {
        double m = (double)l->m[0] * l->m[1] * l->m[2], k = l->k, n = l->n;
        double elements = m * k + n * k + m * n;
        if (m * n * k + 4 * elements <= bounds->work && 4 * elements <= bounds->bytes && m < 4e9)
            break;
        uint32_t *axis = axes[rng_range(rng, 0, COUNT(axes) - 1)];
        *axis = *axis > 1 ? *axis - (*axis + 3) / 4 : 1;
    }
}

static void draw_linear(struct large_linear *l, struct rng *rng, const struct large_bounds *bounds)
{
    draw_product_sizes(l, rng, bounds);
    l->kind = (enum large_product)rng_range(rng, 0, LARGE_PRODUCT_COUNT - 1);
    l->pattern = (enum large_pattern)rng_range(rng, 0, LARGE_PATTERN_COUNT - 1);
    l->input = type_draw_float(rng);
    l->weight = rng_chance(rng, 70) ? l->input : type_draw_float(rng);
    l->output = rng_chance(rng, 70) ? VKA_F32 : type_draw_float(rng);
    l->has_bias = rng_chance(rng, 50);
    l->bias = type_draw_float(rng);
    l->relu = rng_chance(rng, 20);
    l->nonfinite = rng_chance(rng, 20);
    l->planted = l->nonfinite && l->kind == LARGE_EXACT && !l->relu && rng_chance(rng, 70);
}

void large_draw(struct large_problem *p, uint64_t seed, const struct large_bounds *bounds)
{
    struct rng rng = {seed};
    *p = (struct large_problem){.a.seed = seed};
    draw_plan(p, &rng, bounds);
    if (p->op == LARGE_LINEAR)
        draw_linear(&p->l, &rng, bounds);
    else
        large_draw_attention(p, &rng, bounds);
    if (p->op == LARGE_RAGGED)
        p->a.path = p->a.path == VKA_PATH_UNFUSED ? VKA_PATH_FUSED : p->a.path; /* fused alone */
}
