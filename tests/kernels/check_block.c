/* Products that only take quantised weights: types of weights, in turn (problems/turns.h) x types of
 * inputs x shapes. */
#include "check.h"
#include "kernel/matmul.h"
#include "kernel/matmul_dot.h"
#include "problems/quantised.h"
#include "problems/turns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const uint32_t shapes[][3] = {
    /* m, n, k */
    {1, 1, 256}, {1, 37, 512}, {3, 8, 768}, {9, 70, 1280}, {33, 19, 256}, {2, 11, 4096 + 512},
};

struct block_case {
    uint32_t m, n, k;
    enum vka_dtype input, weight, activations;
    struct operand x, scale, y;
    struct vka_tensor *w;
    double *want;
    double cancelled; /* squared, how much larger the terms of a result are, at least 1 */
};

static enum vka_status make_weight(struct check *c, struct block_case *t, double *values)
{
    uint32_t per_block, bytes;
    vka_dtype_block(t->weight, &per_block, &bytes);
    size_t n_block = (size_t)t->n * t->k / per_block;
    uint8_t *blocks = malloc(n_block * bytes);
    enum vka_status status = blocks ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; blocks && i < n_block; i++) {
        const uint8_t *block = blocks + i * bytes;
        const enum vka_dtype rounds = t->activations == VKA_I8 ? VKA_F32 : t->input;
        quantised_draw(&c->rng, t->weight, 1, blocks + i * bytes);
        for (uint32_t j = 0; j < per_block; j++)
            values[i * per_block + j] = operand_round(
                rounds, per_block == 1 ? (int8_t)*block : ref_block_value(t->weight, block, j));
    }
    if (status == VKA_OK)
        status = vka_tensor_create(c->device, t->weight, 2, (const uint32_t[]){t->n, t->k}, &t->w);
    if (status == VKA_OK)
        status = vka_tensor_write(t->w, blocks, n_block * bytes);
    free(blocks);
    return status;
}

static enum vka_status make_vector(struct check *c, struct operand *o)
{
    for (size_t i = 0; i < o->count; i++)
        o->values[i] = rng_uniform(&c->rng, 0.1, 1);
    return operand_write(o);
}

/* A tenth of the terms' sum is what few results that cancel out are judged by, as in compare_terms. */
static double cancelled(const struct block_case *t, const double *values)
{
    double terms = 0, results = 0;
    for (size_t i = 0; i < (size_t)t->m * t->n; i++) {
        double sum = 0, all = 0;
        for (size_t j = 0; j < t->k; j++) {
            const double term = t->x.values[i / t->n * t->k + j] * values[i % t->n * t->k + j];
            sum += term;
            all += fabs(term);
        }
        results += sum * sum;
        terms += all * all;
    }
    return isfinite(terms) && results > 0 ? fmax(1, 0.01 * terms / results) : 1;
}

static enum vka_status make(struct check *c, struct block_case *t)
{
    const struct layout rows = layout_random(&c->rng, 2), plain = layout_dense();
    const struct layout results = layout_random(&c->rng, 2);
    double *values = calloc((size_t)t->n * t->k, sizeof *values);
    t->want = calloc((size_t)t->m * t->n, sizeof *t->want);
    enum vka_status status = values && t->want ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK)
        status =
            operand_create(c->device, t->input, 2, (const uint32_t[]){t->m, t->k}, &rows, &t->x);
    if (status == VKA_OK)
        status = make_vector(c, &t->x);
    if (status == VKA_OK)
        status = make_weight(c, t, values);
    if (status == VKA_OK && t->weight == VKA_I8)
        status = operand_create(c->device, VKA_F32, 1, &t->n, &plain, &t->scale);
    if (status == VKA_OK && t->scale.view)
        status = make_vector(c, &t->scale);
    if (status == VKA_OK)
        status =
            operand_create(c->device, VKA_F32, 2, (const uint32_t[]){t->m, t->n}, &results, &t->y);
    for (uint32_t r = 0; status == VKA_OK && t->activations == VKA_I8 && r < t->m; r++)
        ref_activations(t->x.values + (size_t)r * t->k, t->k, t->x.values + (size_t)r * t->k);
    if (status == VKA_OK)
        ref_linear(t->x.values, values, NULL, t->m, t->k, t->n, false, t->want);
    t->cancelled = status == VKA_OK ? cancelled(t, values) : 1;
    for (size_t i = 0; t->scale.view && i < (size_t)t->m * t->n; i++)
        t->want[i] *= t->scale.values[i % t->n];
    free(values);
    return status;
}

static void destroy(struct block_case *t)
{
    operand_destroy(&t->x);
    operand_destroy(&t->scale);
    operand_destroy(&t->y);
    vka_tensor_destroy(&t->w);
    free(t->want);
}

static enum vka_status add(struct vka_plan *plan, const struct block_case *t)
{
    return vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = t->x.view, .weight = t->w,
                                              .weight_scale = t->scale.view, .output = t->y.view,
                                              .activations = t->activations));
}

static void run_case(struct check *c, struct block_case *t)
{
    char text[160];
    struct vka_plan *plan = NULL;
    snprintf(text, sizeof text, "%ux%ux%u, %s*%s", t->m, t->n, t->k,
             vka_dtype_name(t->activations == VKA_I8 ? VKA_I8 : t->input),
             vka_dtype_name(t->weight));
    enum vka_status status = make(c, t);
    if (status == VKA_OK)
        status = vka_plan_create(c->device, NULL, &plan);
    if (status == VKA_OK)
        status = add(plan, t);
    check_plan(c, plan, status, &t->y, t->want, t->cancelled * compare_limit(VKA_F32), text);
    vka_plan_destroy(&plan);
    destroy(t);
}

static enum vka_dtype activations_of(const struct check *c)
{
    return c->kernel == KERNEL_quantise || matmul_is_dot(c->kernel) ? VKA_I8 : VKA_F32;
}

/* Some whose products quantise activations: the kernel that does reads no weights. */
static bool is_of_activations(enum vka_dtype weight)
{
    return weight == VKA_I8 || weight == VKA_Q4_K;
}

/* Types that the kernel reads. */
static bool is_read(const struct check *c, enum vka_dtype weight)
{
    return c->kernel == KERNEL_quantise     ? is_of_activations(weight)
           : matmul_is_dot(c->kernel)       ? dtype_has_integers(weight)
           : matmul_reads_blocks(c->kernel) ? dtype_has_cpu_kernels(weight)
                                            : dtype_is_quantised(weight);
}

/* Whether it is a type's turn; those of other types are counted all the same. */
static bool has_turn(const struct check *c, enum vka_dtype weight)
{
    return !matmul_is_dot(c->kernel) || turn_takes(weight, dtype_has_integers);
}

void check_block(struct check *c)
{
    for (EACH_TYPE(weight, dtype_is_quantised))
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes && is_read(c, weight); i++)
            for (EACH_TYPE(input, dtype_is_float)) {
                if (!has_turn(c, weight)) {
                    c->n_case++;
                    continue;
                }
                if (!check_case(c))
                    continue;
                run_case(c, &(struct block_case){.m = shapes[i][0],
                                                 .n = shapes[i][1],
                                                 .k = shapes[i][2],
                                                 .input = input,
                                                 .activations = activations_of(c),
                                                 .weight = weight});
            }
}

void bench_block(struct check *c)
{
    static const uint32_t rows[] = {1, 4, 8, 32};
    for (EACH_TYPE(weight, dtype_is_quantised))
        for (size_t i = 0; i < sizeof rows / sizeof *rows && is_read(c, weight); i++) {
            struct block_case t = {.m = rows[i],
                                   .n = 1024,
                                   .k = 1024,
                                   .weight = weight,
                                   .activations = activations_of(c)};
            struct vka_plan *plan = NULL;
            char text[64];
            snprintf(text, sizeof text, "%ux1024x1024 %s", t.m, vka_dtype_name(t.weight));
            enum vka_status status = make(c, &t);
            if (status == VKA_OK)
                status =
                    vka_plan_create(c->device, VKA_INFO(vka_plan_info, .timestamps = true), &plan);
            if (status == VKA_OK)
                status = add(plan, &t);
            check_time(c, plan, status, 2.0 * t.m * t.n * t.k, "GFLOP/s", text);
            vka_plan_destroy(&plan);
            destroy(&t);
        }
}
