/* The matrix products: element types, bias, relu and hidden weights x shapes x layouts. */
#include "check.h"

#include <params/params.h>
#include <kernel/tune.h>
#include <op/matmul/matmul.h>
#include <op/common/copy.h>
#include <op/matmul/product.h>
#include <gpu/tuning_profile.h>
#include <reference/reference.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define NO_BIAS VKA_DTYPE_COUNT

/* Every combination is a pipeline to compile, so these are the ones that layers and attention use,
 * and a mix of each with each. */
static const struct mix {
    enum vka_dtype a, b, c, bias;
    bool relu, hidden;
} mixes[] = {
    {VKA_F32, VKA_F32, VKA_F32, NO_BIAS, false, false},
    {VKA_F32, VKA_F32, VKA_F32, VKA_F32, true, false},
    {VKA_F32, VKA_F32, VKA_F32, NO_BIAS, false, true},
    {VKA_F16, VKA_F16, VKA_F16, VKA_F16, false, false},
    {VKA_BF16, VKA_BF16, VKA_BF16, VKA_BF16, true, false},
    {VKA_F16, VKA_F16, VKA_F32, NO_BIAS, false, false},
    {VKA_F32, VKA_BF16, VKA_F16, NO_BIAS, false, true},
    {VKA_F32, VKA_F16, VKA_BF16, VKA_F16, true, true},
    {VKA_F16, VKA_F16, VKA_F32, VKA_F32, true, false},
};

#define F32_MIXES 3 /* the first ones */

static const uint32_t shapes[][3] = {
    /* m, n, k */
    {1, 1, 1},
    {1, 37, 5},
    {19, 1, 6},
    {7, 13, 5},
    {8, 32, 4},
    {33, 65, 17},
    {64, 64, 64},
    {130, 70, 257},
    {2, 18, 4096 + 261}, /* two groups of k */
    /* Those that follow fill the large tiles of matrix units, */
    {264, 264, 72},
    {520, 520, 40},
    {256, 128, 192},
    {512, 256, 96},
    /* and of matmul_tile, with one group of k and two. */
    {200, 136, 136},
    {136, 200, 4096 + 264},
};
#define FULL_SHAPES 5    /* the first that fills a tile with rows */
#define PLAIN_SHAPES 9   /* of the others */
#define VECTOR_SHAPES 11 /* those that follow are of whole vectors */
#define TILE_SHAPES 13

/* Batch, heads, heads of A for one of B. */
static const uint32_t heads[][3] = {{1, 1, 1}, {2, 6, 3}, {3, 2, 1}, {1, 4, 2}};

/* A gap that makes the axis as long as whole 16 bytes of float32. */
#define ALIGN UINT32_MAX

/* Tensors are [batch][head][row][column]. */
static const struct named_layout {
    const char *name;
    struct layout layout;
} layouts[] = {
    {"dense", {{0, 1, 2, 3}, {0}, 1, 0}},
    {"rows aligned", {{0, 1, 2, 3}, {0, 0, 1, ALIGN}, 1, 8}},
    {"rows unaligned", {{0, 1, 2, 3}, {0, 0, 0, 2}, 1, 3}},
    {"columns aligned", {{0, 1, 3, 2}, {0, 0, ALIGN, 0}, 1, 4}},
    {"heads inside rows", {{0, 2, 1, 3}, {0, 1, 0, 0}, 1, 16}},
    {"heads innermost", {{2, 0, 3, 1}, {0, 0, 0, 0}, 1, 5}},
    {"every second", {{0, 1, 2, 3}, {1, 0, 0, 0}, 2, 1}},
};
#define LAYOUTS (sizeof layouts / sizeof layouts[0])

struct matmul_case {
    uint32_t batch, n_head, group, m, n, k;
    struct mix mix;
    const struct named_layout *a_layout, *b_layout, *c_layout;
    bool shared_b;    /* one B for all batch elements: stride 0 */
    bool accumulate;  /* to C, which is filled from `start` */
    bool large;       /* for large tiles */
    uint32_t variant; /* of the kernel's tiles; 0: the rules' */
    float alpha;
    struct operand a, b, bias, c, start;
    double *want; /* [batch][n_head][m][n] */
};

static void print_case(const struct matmul_case *t, char text[CASE_TEXT])
{
    snprintf(
        text, CASE_TEXT,
        "%ux%ux%u, batch %u, heads %u by %u, %s*%s->%s, bias %s%s%s%s%s, alpha %g, a %s, b %s, "
        "c %s, variant %u",
        t->m, t->n, t->k, t->batch, t->n_head, t->group, vka_dtype_name(t->mix.a),
        vka_dtype_name(t->mix.b), vka_dtype_name(t->mix.c),
        t->mix.bias == NO_BIAS ? "none" : vka_dtype_name(t->mix.bias), t->mix.relu ? ", relu" : "",
        t->mix.hidden ? ", hidden" : "", t->shared_b ? ", one b" : "",
        t->accumulate ? ", added" : "", (double)t->alpha, t->a_layout->name, t->b_layout->name,
        t->c_layout->name, t->variant);
}

/* With ALIGN replaced by what aligns an axis of `size`. */
static struct layout layout_of(const struct named_layout *named, uint32_t n_row, uint32_t n_column)
{
    struct layout layout = named->layout;
    if (layout.gap[2] == ALIGN)
        layout.gap[2] = 8 - n_row % 4;
    if (layout.gap[3] == ALIGN)
        layout.gap[3] = 8 - n_column % 4;
    return layout;
}

static enum vka_status create(struct vka_device *device, struct matmul_case *t)
{
    struct layout a = layout_of(t->a_layout, t->m, t->k), b = layout_of(t->b_layout, t->n, t->k);
    struct layout c = layout_of(t->c_layout, t->m, t->n);
    uint32_t kv_head = t->n_head / t->group, b_batch = t->shared_b ? 1 : t->batch;
    const struct layout plain = {.order = {0}, .step = 1, .offset = 3};
    enum vka_status status = operand_create(
        device, t->mix.a, 4, (const uint32_t[]){t->batch, t->n_head, t->m, t->k}, &a, &t->a);
    if (status == VKA_OK)
        status = operand_create(device, t->mix.b, 4,
                                (const uint32_t[]){b_batch, kv_head, t->n, t->k}, &b, &t->b);
    if (status == VKA_OK && t->mix.bias != NO_BIAS)
        status = operand_create(device, t->mix.bias, 1, &t->n, &plain, &t->bias);
    if (status == VKA_OK)
        status = operand_create(device, t->mix.c, 4,
                                (const uint32_t[]){t->batch, t->n_head, t->m, t->n}, &c, &t->c);
    if (status == VKA_OK && t->accumulate)
        status = operand_create(device, t->mix.c, 4,
                                (const uint32_t[]){t->batch, t->n_head, t->m, t->n}, &c, &t->start);
    t->want = calloc((size_t)t->batch * t->n_head * t->m * t->n, sizeof *t->want);
    return status == VKA_OK && !t->want ? VKA_OUT_OF_HOST_MEMORY : status;
}

static void destroy(struct matmul_case *t)
{
    operand_destroy(&t->a);
    operand_destroy(&t->b);
    operand_destroy(&t->bias);
    operand_destroy(&t->c);
    operand_destroy(&t->start);
    free(t->want);
}

/* Some columns of A are hidden in every row, and B is NaN or Inf there; more of A is hidden here
 * and there. HIDDEN_BITS is -0. */
static void hide(struct matmul_case *t, bool *poisoned, struct rng *rng)
{
    for (uint32_t k = 0; k < t->k; k++)
        poisoned[k] = rng_chance(rng, 20);
    for (size_t i = 0; i < t->a.count; i++)
        if (poisoned[i % t->k] || rng_chance(rng, 10))
            t->a.values[i] = -0.0;
    for (size_t i = 0; i < t->b.count; i++)
        if (poisoned[i % t->k])
            t->b.values[i] = rng_chance(rng, 50) ? (double)NAN : (double)INFINITY;
}

static void oracle(struct matmul_case *t)
{
    size_t a_size = (size_t)t->m * t->k, b_size = (size_t)t->n * t->k, c_size = (size_t)t->m * t->n;
    size_t b_head = t->n_head / t->group;
    for (size_t z = 0; z < (size_t)t->batch * t->n_head; z++) {
        size_t batch = t->shared_b ? 0 : z / t->n_head, head = z % t->n_head / t->group;
        double *want = t->want + z * c_size;
        ref_linear(t->a.values + z * a_size, t->b.values + (batch * b_head + head) * b_size, NULL,
                   t->m, t->k, t->n, t->mix.relu, want);
        for (size_t i = 0; i < c_size; i++)
            want[i] = (double)t->alpha * want[i] +
                      (t->mix.bias == NO_BIAS ? 0 : t->bias.values[i % t->n]) +
                      (t->accumulate ? t->start.values[z * c_size + i] : 0);
    }
}

static enum vka_status fill(struct matmul_case *t, struct rng *rng)
{
    struct operand *inputs[] = {&t->a, &t->b, &t->bias, &t->start};
    bool *poisoned = calloc(t->k, sizeof *poisoned);
    enum vka_status status = poisoned ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < inputs[i]->count; j++) /* around a mean: few sums cancel out */
            inputs[i]->values[j] = rng_uniform(rng, i == 0 ? -1 : -0.5, 1.5);
    if (status == VKA_OK && t->mix.hidden)
        hide(t, poisoned, rng);
    for (size_t i = 0; i < 4 && status == VKA_OK; i++)
        if (inputs[i]->view)
            status = operand_write(inputs[i]);
    if (status == VKA_OK) { /* what is hidden counts as 0 */
        for (size_t i = 0; i < t->b.count; i++)
            t->b.values[i] = poisoned[i % t->k] ? 0 : t->b.values[i];
        oracle(t);
    }
    free(poisoned);
    return status;
}

static enum vka_status add(struct vka_plan *plan, const struct matmul_case *t)
{
    struct plan_mark mark;
    struct matmul_op op = {
        .name = "product",
        .a = *t->a.view,
        .b = *t->b.view,
        .c = *t->c.view,
        .bias = t->bias.view,
        .group = t->group,
        .alpha = t->alpha,
        .relu = t->mix.relu,
        .hidden = t->mix.hidden,
        .accumulate = t->accumulate,
    };
    if (t->shared_b) {
        op.b.shape.size[0] = t->batch;
        op.b.shape.stride[0] = 0;
    }
    enum vka_status status = plan_begin(plan, __func__, &mark);
    if (status != VKA_OK)
        return status;
    if (t->accumulate)
        status = plan_copy(plan, "copy", t->start.view, t->c.view);
    return plan_end(plan, &mark, status == VKA_OK ? plan_matmul(plan, &op) : status);
}

static bool is_tile(enum kernel kernel)
{
    return kernel == KERNEL_matmul_tile || kernel == KERNEL_matmul_tile_mixed;
}

/* Plans the case. For large tiles the rules take the device for one that few workgroups keep busy,
 * and matmul_tile's for a GPU with many registers. */
static enum vka_status plan_case(const struct check *c, const struct matmul_case *t,
                                 struct vka_plan **plan)
{
    struct caps *caps = &c->device->caps;
    const struct vka_device_properties usual = caps->properties;
    const uint32_t processors = caps->processors;
    if (t->large)
        caps->processors = 1;
    static struct tuning_profile_entry entry; /* plans keep the profile */
    static const struct tuning_profile varied = {1, &entry};
    const struct tuning_profile *profile = caps->profile;
    entry = (struct tuning_profile_entry){
        .problem = "matmul/*", .kernel = c->kernel, .variant = t->variant};
    if (t->variant)
        caps->profile = &varied;
    if (t->large && is_tile(c->kernel)) {
        caps->properties.type = VKA_DEVICE_DISCRETE;
        caps->properties.vendor_id = VENDOR_NVIDIA;
    }
    enum vka_status status = vka_plan_create(c->device, NULL, plan);
    if (status == VKA_OK)
        status = add(*plan, t);
    caps->properties.type = usual.type;
    caps->properties.vendor_id = usual.vendor_id;
    caps->processors = processors;
    caps->profile = profile;
    return status;
}

/* Bytes that a block of k of packed B takes: a longer k has to be cut, within a group too. */
#define LOW_RANGE (MATMUL_BLOCK * TEXEL_COLUMNS * 4u)

/* Once more with bindings and allocations too small for any operand. */
static void run_cut(struct check *c, struct matmul_case *t, size_t uncut_passes, const char *text)
{
    struct vka_device_properties *limits = &c->device->caps.properties, usual = *limits;
    struct vka_plan *plan = NULL;
    limits->max_buffer_range = limits->max_allocation = t->large ? 8 * LOW_RANGE : LOW_RANGE;
    enum vka_status status = plan_case(c, t, &plan);
    *limits = usual;
    check_cut(c, plan, status, uncut_passes, &t->c, text);
    vka_plan_destroy(&plan);
}

/* Once more with the tile of the rules: each element has the same bits. */
static void run_usual(struct check *c, struct matmul_case *t, const char *text)
{
    struct vka_plan *plan = NULL;
    const uint32_t variant = t->variant;
    t->variant = 0;
    enum vka_status status = plan_case(c, t, &plan);
    t->variant = variant;
    check_bits(c, plan, status, &t->c, "by another tile", text);
    vka_plan_destroy(&plan);
}

static void run_case(struct check *c, struct matmul_case *t, bool cut_too)
{
    char text[CASE_TEXT];
    struct vka_plan *plan = NULL;
    print_case(t, text);
    enum vka_status status = create(c->device, t);
    if (status == VKA_OK)
        status = fill(t, &c->rng);
    if (status == VKA_OK)
        status = plan_case(c, t, &plan);
    long failed = c->n_failed;
    check_plan(c, plan, status, &t->c, t->want, compare_product_limit(plan, t->mix.c, t->k), text);
    if (c->n_failed == failed && cut_too)
        run_cut(c, t, plan->n_pass, text);
    if (c->n_failed == failed && t->variant && t->large)
        run_usual(c, t, text);
    vka_plan_destroy(&plan);
    destroy(t);
}

static bool is_coop(enum kernel kernel)
{
    return kernel == KERNEL_matmul_coop_f16 || kernel == KERNEL_matmul_coop_bf16;
}

/* The rules' tile for one of four cases of a shape; the largest, that of most matrices a subgroup by
 * halves, and any for the others. */
static uint32_t draw_variant(struct check *c, size_t turn)
{
    static const uint32_t usual[] = {0, 1, 4};
    if (!is_coop(c->kernel))
        return 0;
    return turn % 4 < 3 ? usual[turn % 4] : (uint32_t)rng_range(&c->rng, 1, PROFILE_VARIANTS - 1);
}

static struct matmul_case draw_case(struct check *c, size_t mix, size_t shape, int again)
{
    size_t kind = rng_range(&c->rng, 0, 3);
    bool large = shapes[shape][0] > 64; /* the oracle's time */
    const uint32_t *h = heads[large ? 0 : kind];
    /* Scores, as the softmax leaves them, are aligned; what mixes differ in is B. */
    bool scores = mixes[mix].a == VKA_F32 && mixes[mix].b != VKA_F32;
    bool tiles = shape >= VECTOR_SHAPES;
    return (struct matmul_case){
        .batch = h[0],
        .n_head = h[1],
        .group = h[2],
        .m = shapes[shape][0],
        .n = shapes[shape][1],
        .k = shapes[shape][2],
        .mix = mixes[mix],
        .a_layout = &layouts[scores  ? 1
                             : tiles ? 0
                                     : rng_next(&c->rng) % LAYOUTS],
        .b_layout = &layouts[tiles ? 0 : rng_next(&c->rng) % LAYOUTS],
        .c_layout = &layouts[rng_next(&c->rng) % LAYOUTS],
        .shared_b = rng_chance(&c->rng, 20),
        .accumulate = rng_chance(&c->rng, 20),
        .alpha = rng_chance(&c->rng, 50) ? 1.0f : (float)rng_uniform(&c->rng, 0.1, 2),
        .large = shape >= PLAIN_SHAPES,
        .variant = draw_variant(c, mix + (size_t)again),
    };
}

/* The kernels with matrix units or dot products take both inputs of one 16-bit type, and nothing
 * hidden. */
static bool takes(enum kernel kernel, const struct mix *mix)
{
    if (kernel == KERNEL_matmul_coop_f16 || kernel == KERNEL_matmul_tile_mixed ||
        kernel == KERNEL_matmul_few_mixed)
        return mix->a == VKA_F16 && mix->b == VKA_F16 && !mix->hidden;
    if (kernel == KERNEL_matmul_coop_bf16)
        return mix->a == VKA_BF16 && mix->b == VKA_BF16 && !mix->hidden;
    return true;
}

static bool takes_shape(enum kernel kernel, size_t shape)
{
    return shape < PLAIN_SHAPES || (shape < TILE_SHAPES ? is_coop(kernel) : is_tile(kernel));
}

void check_matmul(struct check *c)
{
    for (size_t mix = 0; mix < sizeof mixes / sizeof mixes[0]; mix++)
        for (size_t shape = 0; shape < sizeof shapes / sizeof shapes[0]; shape++)
            for (int again = 0; again < (mix < F32_MIXES ? 3 : 4); again++) { /* other layouts */
                if (!takes(c->kernel, &mixes[mix]) || !takes_shape(c->kernel, shape))
                    continue;
                /* The rows of a tile are compiled in: full ones for the mixes of types. */
                if (mix >= F32_MIXES && shape < FULL_SHAPES)
                    continue;
                if (!check_case(c))
                    continue;
                struct matmul_case t = draw_case(c, mix, shape, again);
                run_case(c, &t, again == 0 && t.k > 256);
            }
}

void bench_matmul(struct check *c)
{
    static const uint32_t sizes[][3] = {
        {64, 64, 64}, {256, 256, 256}, {512, 512, 512}, {1, 1024, 1024}, {128, 128, 64}};
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof sizes[0]; i++) {
        const uint32_t *size = sizes[i / 2];
        struct vka_plan *plan = NULL;
        struct matmul_case t = {
            .batch = 1,
            .n_head = 1,
            .group = 1,
            .m = size[0],
            .n = size[1],
            .k = size[2],
            .mix = mixes[i % 2 ? 5 : 0], /* f32, or f16 in and f32 out */
            .a_layout = layouts,
            .b_layout = layouts,
            .c_layout = layouts,
            .alpha = 1,
        };
        char text[64];
        snprintf(text, sizeof text, "%ux%ux%u %s", t.m, t.n, t.k, vka_dtype_name(t.mix.a));
        enum vka_status status = create(c->device, &t);
        if (status == VKA_OK)
            status = fill(&t, &c->rng);
        if (status == VKA_OK)
            status = vka_plan_create(c->device, VKA_INFO(vka_plan_info, .timestamps = true), &plan);
        if (status == VKA_OK)
            status = add(plan, &t);
        check_time(c, plan, status, 2.0 * t.m * t.n * t.k, "GFLOP/s", text);
        vka_plan_destroy(&plan);
        destroy(&t);
    }
}
