/* The softmax and the fused kernels, through whole attention: what hides keys x what a row without
 * keys gives x returned scores x key counts around the sizes of subgroups and steps. */
#include "check.h"

#include "kernel/attention_family.h"

#include <stdio.h>
#include <string.h>

enum mask_kind {
    MASK_KIND_NONE,
    MASK_KIND_CAUSAL,
    MASK_KIND_WINDOW,
    MASK_KIND_LENGTHS,
    MASK_KIND_BOOL,
    MASK_KIND_FLOAT,
    MASK_KIND_ALL,
    MASK_KIND_COUNT
};

static const uint32_t key_counts[] = {1, 7, 8, 31, 33, 64, 257, 1000};

bool is_attention_coop(enum kernel kernel)
{
    return kernel == KERNEL_attention_coop_f16 || kernel == KERNEL_attention_coop_bf16 ||
           attention_reduces_matrices(kernel);
}

static bool is_attention_tile(enum kernel kernel)
{
    return kernel == KERNEL_attention_tile || kernel == KERNEL_attention_tile_mixed;
}

static bool takes_bf16(enum kernel kernel)
{
    return kernel == KERNEL_attention_coop_bf16 || kernel == KERNEL_attention_coop2_bf16 ||
           kernel == KERNEL_attention_coop2_ext_bf16;
}

static bool is_fused(const struct check *c)
{
    return strncmp(kernel_table[c->kernel].name, "attention_", 10) == 0;
}

/* Whether the case is about the kernel: what goes with attention_tile has its occasions, and
 * nothing to do with returned scores. */
static bool concerns(const struct check *c, int mask, int scores, uint32_t n_kv)
{
    if (c->kernel == KERNEL_attention_map)
        return mask >= MASK_KIND_BOOL && scores == VKA_SCORES_NONE;
    return c->kernel != KERNEL_attention_merge || (n_kv > 128 && scores == VKA_SCORES_NONE);
}

/* Rows for several tiles, or few: attention_tile takes them differently. */
static uint32_t draw_rows(struct check *c, uint32_t set)
{
    bool many = c->kernel == KERNEL_attention_map ||
                (is_attention_tile(c->kernel) && set % 3 == 0) ||
                (is_attention_coop(c->kernel) && rng_chance(&c->rng, 50));
    return many ? 70 : c->kernel == KERNEL_attention_feature && set % 2 ? 1 : 5;
}

static void set_mask(struct problem *p, enum mask_kind kind, struct rng *rng)
{
    bool all = kind == MASK_KIND_ALL;
    p->causal = kind == MASK_KIND_CAUSAL || all;
    p->window = kind == MASK_KIND_WINDOW || all;
    p->window_left = p->window ? (int32_t)rng_range(rng, 0, p->n_new / 2 + 1) : 0;
    p->window_right = p->window ? (int32_t)rng_range(rng, 0, 5) - 1 : 0;
    p->lengths = kind == MASK_KIND_LENGTHS || all ? PER_BATCH_EACH : PER_BATCH_NONE;
    if (kind < MASK_KIND_BOOL)
        return;
    p->mask = kind == MASK_KIND_BOOL ? VKA_BOOL : (enum vka_dtype)rng_range(rng, 0, 2);
    p->mask_rank = rng_chance(rng, 50) ? 4 : 2;
    const uint32_t full[4] = {p->batch, p->n_kv_head * p->group, p->n_q, p->n_new};
    for (uint32_t i = 0; i < p->mask_rank; i++)
        p->mask_shape[i] = full[4 - p->mask_rank + i];
}

/* Rows of whole vectors of 32 bytes, of each type, and of two types. */
static void take_vectors(struct problem *p, uint32_t set)
{
    static const enum vka_dtype types[] = {VKA_F32, VKA_F16, VKA_BF16};
    p->q = p->k = p->v = p->output = types[set % 3];
    if (set == 3)
        p->k = VKA_BF16;
    p->head_dim = p->value_dim = 16;
    p->scattered = false;
}

/* What a map of hidden keys does not depend on is that of the others: the cases of attention_map then
 * share the pipelines of the kernel beside it, whose own cases have both. */
static void take_maps(struct problem *p)
{
    const bool scattered = p->scattered;
    problem_share(p, 0);
    p->scattered = scattered;
    p->softcap = p->dropout = 0;
    p->sink = p->alibi = p->log_sum = p->has_present = false;
}

/* A small problem whose rows are what the kernel is about. Few specializations: a fused kernel has
 * one for each pair of dimensions, types and kinds of loads. */
static struct problem draw_problem(struct check *c, enum mask_kind mask, enum vka_masked_row row,
                                   enum vka_scores scores, uint32_t n_kv)
{
    static const enum vka_dtype types[] = {VKA_F32, VKA_F16, VKA_BF16};
    struct rng *rng = &c->rng;
    /* attention_address takes only those that lie dense, which are the even ones. */
    const bool dense = c->kernel == KERNEL_attention_address;
    const uint32_t set = rng_range(rng, 0, PROBLEM_SHARED - 1) & (dense ? ~1u : ~0u);
    const bool coop = is_attention_coop(c->kernel);
    const bool wide = coop && n_kv <= 100 && rng_chance(rng, 4); /* heads that models have */
    const uint32_t widest =
        attention_reduces_matrices(c->kernel) ? 160 : 256; /* of heads that it takes */
    enum vka_dtype type = takes_bf16(c->kernel) ? VKA_BF16 : coop ? VKA_F16 : VKA_F32;
    struct problem p = {
        .seed = rng_next(rng),
        .batch = 2,
        .n_kv_head = n_kv > 100 ? 1 : 2,
        .group = 2,
        .n_q = draw_rows(c, set),
        .n_new = n_kv,
        .head_dim = wide                          ? 64u << rng_range(rng, 0, 2)
                    : coop && rng_chance(rng, 30) ? 40
                                                  : 8,
        .value_dim = wide                                 ? 64u << rng_range(rng, 0, 1)
                     : coop && rng_chance(rng, 10)        ? 40
                     : is_fused(c) && rng_chance(rng, 30) ? 6
                                                          : 8,
        .q = type,
        .k = type,
        .v = type,
        .output = is_fused(c) ? type : types[rng_range(rng, 0, 2)],
        .scores = types[rng_range(rng, 0, 2)],
        .scores_kind = scores,
        .masked_row = row,
        .scattered = rng_chance(rng, 50),
        .offsets = rng_chance(rng, 40) ? (enum per_batch)rng_range(rng, 1, 2) : PER_BATCH_NONE,
        .log_sum = rng_chance(rng, 40),
        .softcap = rng_chance(rng, 30) ? (float)rng_uniform(rng, 0.5, 20) : 0,
        .sink = rng_chance(rng, 30),
        .alibi = rng_chance(rng, 30),
        .dropout = rng_chance(rng, 20) ? (float)rng_uniform(rng, 0.1, 0.9) : 0,
        .dropout_seed = rng_next(rng),
        .poison_hidden = rng_chance(rng, 50),
        .workspace_limit = rng_chance(rng, 30) ? 4 * (n_kv + 3) * rng_range(rng, 1, 9) : 0,
        .path = is_fused(c) ? VKA_PATH_FUSED : VKA_PATH_UNFUSED,
    };
    if (p.head_dim > widest)
        p.head_dim = widest;
    p.exact = !is_fused(c) && rng_chance(rng, 25);
    set_mask(&p, mask, rng);
    if (c->kernel == KERNEL_attention_feature)
        take_vectors(&p, set);
    else if (is_fused(c) && !coop)
        problem_share(&p, set);
    if (c->kernel == KERNEL_attention_tile_mixed)
        p.q = p.k = p.past = VKA_F16;
    if (is_fused(c) && rng_chance(rng, 15)) { /* a copy, which the kernel does not read */
        p.has_present = true;
        p.present = types[rng_range(rng, 0, 2)];
    }
    if (c->kernel == KERNEL_attention_map)
        take_maps(&p);
    const bool cuts = coop || (c->kernel == KERNEL_attention_feature && set == 0);
    if (cuts && rng_chance(rng, 10)) { /* keys as spans, or as splits */
        p.budgets = true;
        p.disabled_kernels = rng_chance(rng, 70) ? KERNEL_SET(KERNEL_attention_merge) : NO_KERNELS;
    }
    return p;
}

/* attention_coop: registers that make it spread a context over one, two or four subgroups, and keep
 * q in registers or not; wide heads need many, but of matrices of few rows. attention_coop2: registers
 * that it needs at least, or more for more rows and keys. */
static uint32_t draw_registers(const struct check *c, struct rng *rng, const struct problem *p)
{
    static const uint32_t few[] = {96, 80, 48};
    bool wide = p->head_dim > 40 || p->value_dim > 40;
    const struct caps *caps = &c->device->caps;
    const uint32_t m = takes_bf16(c->kernel) ? caps->matrix_bf16.m : caps->matrix_f16.m;
    if (wide && !attention_reduces_matrices(c->kernel) && m <= 8 && rng_chance(rng, 60))
        return few[rng_range(rng, 0, 1)];
    if (attention_reduces_matrices(c->kernel))
        return wide ? 2 * MATRIX_REGISTERS : rng_chance(rng, 10) ? 2 * 96 : 96;
    return wide                  ? MATRIX_REGISTERS << rng_range(rng, 0, 1)
           : rng_chance(rng, 25) ? MATRIX_REGISTERS
                                 : few[rng_range(rng, 0, COUNTOF(few) - 1)];
}

static void run_case(struct check *c, const struct problem *p)
{
    struct problem_result result;
    char text[CASE_TEXT];
    if (is_attention_coop(c->kernel))
        c->device->caps.matrix_registers = draw_registers(c, &c->rng, p);
    if (!problem_check(c->device, p, &c->worst, &result))
        check_fail(c, problem_text(p, text), result.why);
    else if (!set_has(result.kernels, c->kernel))
        check_not_used(c, problem_text(p, text));
}

void check_attention(struct check *c)
{
    for (int mask = 0; mask < MASK_KIND_COUNT; mask++)
        for (int row = 0; row < VKA_MASKED_ROW_COUNT; row++)
            for (int scores = 0; scores < VKA_SCORES_COUNT; scores++)
                for (size_t n = 0; n < sizeof key_counts / sizeof key_counts[0]; n++) {
                    if (!concerns(c, mask, scores, key_counts[n]) || !check_case(c))
                        continue;
                    struct problem p =
                        draw_problem(c, (enum mask_kind)mask, (enum vka_masked_row)row,
                                     (enum vka_scores)scores, key_counts[n]);
                    run_case(c, &p);
                }
}

void bench_attention(struct check *c)
{
    static const uint32_t sizes[][2] = {{128, 128}, {512, 512}, {1, 1024}}; /* n_q, n_kv */
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const uint32_t n_head = 8, dim = 64;
        struct vka_tensor *t[4] = {NULL}; /* q, k, v, output */
        struct vka_plan *plan = NULL;
        enum vka_status status = VKA_OK;
        char text[64];
        for (int j = 0; j < 4 && status == VKA_OK; j++)
            status = vka_tensor_create(
                c->device, VKA_F32, 4,
                (const uint32_t[]){1, n_head, sizes[i][j == 1 || j == 2], dim}, &t[j]);
        snprintf(text, sizeof text, "%u heads, %ux%u, dim %u f32", n_head, sizes[i][0], sizes[i][1],
                 dim);
        if (status == VKA_OK)
            status =
                vka_plan_create(c->device,
                                VKA_INFO(vka_plan_info, .timestamps = true,
                                         .path = is_fused(c) ? VKA_PATH_FUSED : VKA_PATH_UNFUSED),
                                &plan);
        if (status == VKA_OK)
            status = vka_plan_add_attention(
                plan, VKA_INFO(vka_attention_op, .q = t[0], .k = t[1], .v = t[2], .output = t[3]));
        double scores = (double)n_head * sizes[i][0] * sizes[i][1];
        if (is_fused(c))
            check_time(c, plan, status, 4 * scores * dim, "GFLOP/s", text);
        else
            check_time(c, plan, status, scores, "Gscore/s", text);
        vka_plan_destroy(&plan);
        for (int j = 0; j < 4; j++)
            vka_tensor_destroy(&t[j]);
    }
}
