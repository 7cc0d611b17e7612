#include "gpu/quirks.h"
#include "params/params.h"
#include "selftest/known_problem.h"
#include "op/cache/hadamard.h"
#include "op/common/copy.h"
#include "op/common/nonfinite.h"
#include "selftest/solution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Enough rows for B to be packed. */
#define ROWS 32u
#define DEPTH 512u

#define LONG_DEPTH 33000u /* three splits; sums of eighths stay exact */
#define FEW_ROWS 3u
#define COLUMNS 37u
#define SIDE 83u /* length of the other axis of a copy */

enum vka_status known_product(struct solution *s)
{
    const bool mixed = s->problem == KNOWN_MATMUL_MIXED;
    const enum vka_dtype dtype = s->problem == KNOWN_MATMUL_F16    ? VKA_F16
                                 : mixed                           ? VKA_F16
                                 : s->problem == KNOWN_MATMUL_BF16 ? VKA_BF16
                                                                   : VKA_F32;
    const uint32_t depth = s->problem == KNOWN_MATMUL_LONG ? LONG_DEPTH : DEPTH;
    const bool few = s->problem == KNOWN_MATMUL_FEW || s->problem == KNOWN_MATMUL_LONG;
    const uint32_t rows = few ? FEW_ROWS : ROWS;
    struct vka_tensor *a, *b, *bias, *c;
    ENSURE(known_tensor(s, dtype, 2, (const uint32_t[]){rows, depth}, 1, &a));
    ENSURE(known_tensor(s, dtype, 2, (const uint32_t[]){COLUMNS, depth}, 2, &b));
    if (mixed) {
        ENSURE(known_shrink(s, a, 1, 0));
        ENSURE(known_shrink(s, b, 2, 1));
    }
    ENSURE(known_tensor(s, VKA_F32, 1, (const uint32_t[]){COLUMNS}, 3, &bias));
    ENSURE(known_tensor(s, VKA_F32, 2, (const uint32_t[]){rows, COLUMNS}, 0, &c));
    ENSURE(vka_plan_add_linear(
        s->plan, VKA_INFO(vka_linear_op, .input = a, .weight = b, .bias = bias, .output = c)));
    ENSURE(known_want(s, c));
    for (uint32_t i = 0; i < rows * COLUMNS; i++) {
        uint32_t row = i / COLUMNS, column = i % COLUMNS;
        for (uint32_t k = 0; k < depth; k++)
            s->want[i] += known_value(1, row * depth + k) * known_value(2, column * depth + k);
        s->want[i] = s->want[i] * (mixed ? KNOWN_SMALL : 1) + known_value(3, column);
    }
    return known_run(s, c, 1);
}

/* Eighths; 127 eighths in each 16, so that an eighth is the scale of quantised activations. */
static float input_value(uint32_t i)
{
    return i % 16 == 5 ? 127.0f / 8 : known_value(1, i);
}

/* Weights of type q8_0 whose scale is an eighth: exact. */
enum vka_status known_quantised(struct solution *s)
{
    const enum vka_dtype activations = s->problem == KNOWN_MATMUL_INTEGERS ? VKA_I8 : VKA_F32;
    enum vka_status status = VKA_OK;
    enum { BLOCKS = DEPTH / 32, BYTES = 34 };
    struct vka_tensor *a, *b = NULL, *c;
    uint8_t blocks[COLUMNS * BLOCKS * BYTES];
    float input[FEW_ROWS * DEPTH];
    for (uint32_t i = 0; i < FEW_ROWS * DEPTH; i++)
        input[i] = input_value(i);
    for (uint32_t i = 0; i < COLUMNS * DEPTH; i++) {
        uint8_t *block = blocks + i / 32 * BYTES;
        block[0] = 0;
        block[1] = 0x30;
        block[2 + i % 32] = (uint8_t)(int8_t)(8 * known_value(2, i));
    }
    TRY(known_tensor(s, VKA_F32, 2, (const uint32_t[]){FEW_ROWS, DEPTH}, 0, &a));
    TRY(vka_tensor_write(a, input, sizeof input));
    TRY(vka_tensor_create(s->device, VKA_Q8_0, 2, (const uint32_t[]){COLUMNS, DEPTH}, &b));
    s->tensors[s->n_tensor++] = b;
    TRY(vka_tensor_write(b, blocks, sizeof blocks));
    TRY(known_tensor(s, VKA_F32, 2, (const uint32_t[]){FEW_ROWS, COLUMNS}, 0, &c));
    TRY(vka_plan_add_linear(s->plan, VKA_INFO(vka_linear_op, .input = a, .weight = b, .output = c,
                                              .activations = activations)));
    TRY(known_want(s, c));
    for (uint32_t i = 0; i < FEW_ROWS * COLUMNS; i++) {
        uint32_t row = i / COLUMNS, column = i % COLUMNS;
        s->want[i] = 0;
        for (uint32_t k = 0; k < DEPTH; k++)
            s->want[i] += input_value(row * DEPTH + k) * known_value(2, column * DEPTH + k);
    }
    TRY(known_run(s, c, 1));
fail:
    return status;
}

enum vka_status known_loops(struct solution *s)
{
    const uint32_t one = 1;
    uint32_t number = 1, want = 1;
    double most = budget_max_loops(&s->device->caps);
    struct loop_probe_params p = {most < LOOPS_CHECKED ? (uint32_t)most - 1 : LOOPS_CHECKED};
    struct pass pass = {
        .name = "loops", .reason = "most loop iterations of the driver", .groups = {1, 1, 1}};
    struct plan_mark mark;
    struct vka_tensor *t;
    ENSURE(known_tensor(s, VKA_I32, 1, &one, 0, &t));
    ENSURE(vka_tensor_write(t, &number, sizeof number));
    pass.key = (struct pipeline_key){.kernel = KERNEL_loop_probe};
    plan_bind(s->plan, &pass, 0, t, true, NULL);
    pass_set_push(&pass, &p, sizeof p);
    ENSURE(plan_begin(s->plan, __func__, &mark));
    while (mark.open)
        plan_end(s->plan, &mark, plan_add_pass(s->plan, &pass));
    ENSURE(mark.status);
    ENSURE(known_run(s, NULL, 1));
    if (!s->right)
        return VKA_OK;
    ENSURE(vka_tensor_read(t, &number, sizeof number));
    for (uint32_t i = 0; i < p.n; i++)
        want = want * LOOP_PROBE_FACTOR + 1;
    *s->right = number == want;
    return VKA_OK;
}

/* Transposes matrices. */
enum vka_status known_copy(struct solution *s)
{
    struct plan_mark mark;
    struct vka_tensor *from, *to, turned;
    ENSURE(known_tensor(s, VKA_F32, 4, (const uint32_t[]){2, 1, COLUMNS, SIDE}, 1, &from));
    ENSURE(known_tensor(s, VKA_F32, 4, (const uint32_t[]){2, 1, SIDE, COLUMNS}, 0, &to));
    turned = *to;
    turned.shape = from->shape;
    turned.shape.stride[2] = 1;
    turned.shape.stride[3] = COLUMNS;
    ENSURE(plan_begin(s->plan, __func__, &mark));
    while (mark.open)
        plan_end(s->plan, &mark, plan_copy(s->plan, "copy", from, &turned));
    ENSURE(mark.status);
    ENSURE(known_want(s, to));
    for (uint32_t i = 0; i < 2 * SIDE * COLUMNS; i++) {
        uint32_t batch = i / (SIDE * COLUMNS), row = i / COLUMNS % SIDE, column = i % COLUMNS;
        s->want[i] = known_value(1, (batch * COLUMNS + column) * SIDE + row);
    }
    return known_run(s, to, 1);
}

enum vka_status known_hadamard(struct solution *s)
{
    enum { BLOCK = 4, DIM = 3 * BLOCK };
    static const double matrix[BLOCK][BLOCK] = {{0.5, 0.5, 0.5, 0.5},
                                                {0.5, -0.5, 0.5, -0.5},
                                                {0.5, 0.5, -0.5, -0.5},
                                                {0.5, -0.5, -0.5, 0.5}};
    const uint32_t size[] = {2, 3, SIDE, DIM};
    struct plan_mark mark;
    struct vka_tensor *from, *to;
    ENSURE(known_tensor(s, VKA_F32, 4, size, 1, &from));
    ENSURE(known_tensor(s, VKA_F32, 4, size, 0, &to));
    ENSURE(plan_begin(s->plan, __func__, &mark));
    while (mark.open)
        plan_end(s->plan, &mark, plan_hadamard(s->plan, "hadamard", BLOCK, NULL, from, to));
    ENSURE(mark.status);
    ENSURE(known_want(s, to));
    for (uint32_t i = 0; i < 6 * SIDE * DIM; i++)
        for (uint32_t j = 0; j < BLOCK; j++)
            s->want[i] += matrix[i % BLOCK][j] * known_value(1, i / BLOCK * BLOCK + j);
    return known_run(s, to, 1);
}

enum vka_status known_nonfinite(struct solution *s)
{
    struct plan_mark mark;
    struct vka_tensor *t;
    struct vka_nonfinite_info found;
    float data[2 * SIDE * COLUMNS]; /* for two workgroups */
    for (uint32_t i = 0; i < COUNTOF(data); i++)
        data[i] = i % 5 == 0 ? NAN : i % 7 == 0 ? INFINITY : i % 11 == 0 ? -INFINITY : 1;
    uint64_t nan = 0, inf = 0;
    for (uint32_t i = 0; i < COUNTOF(data); i++) {
        nan += isnan(data[i]) != 0;
        inf += isinf(data[i]) != 0;
    }
    ENSURE(known_tensor(s, VKA_F32, 2, (const uint32_t[]){2 * SIDE, COLUMNS}, 0, &t));
    ENSURE(vka_tensor_write(t, data, sizeof data));
    ENSURE(plan_begin(s->plan, __func__, &mark));
    while (mark.open)
        plan_end(s->plan, &mark, plan_count_nonfinite(s->plan, "known", t));
    ENSURE(mark.status);
    const struct storage *words = plan_count_words(s->plan, 0);
    memset(memory_mapped(&words->range), 0xff, words->bytes);
    ENSURE(known_run(s, NULL, 1));
    if (s->right) {
        ENSURE(vka_plan_nonfinite(s->plan, 0, &found));
        *s->right = found.nan == nan && found.inf == inf;
    }
    return VKA_OK;
}

/* The rows of kernels.def. */
static const struct known_row {
    enum vka_path path; /* of attention */
    double tolerance;
    enum vka_status (*solve)(struct solution *s);
} rows[] = {
#define KNOWN(id, path, tolerance, solve) [KNOWN_##id] = {VKA_PATH_##path, tolerance, solve},
#include "kernels.def"
};

enum vka_status known_problem_solve(struct vka_device *device, enum known_problem problem,
                                    struct kernel_set without, uint32_t head_dim, bool *right)
{
    enum vka_status status = VKA_OK;
    struct solution s = {.device = device,
                         .problem = problem,
                         .head_dim = head_dim,
                         .tolerance = rows[problem].tolerance,
                         .right = right};
    TRY(vka_plan_create(device,
                        VKA_INFO(vka_plan_info, .path = rows[problem].path,
                                 .submit_budget = VKA_NO_BUDGET,
                                 .count_nonfinite = problem == KNOWN_NONFINITE),
                        &s.plan));
    s.plan->without = without;
    TRY(rows[problem].solve(&s));
fail:
    vka_plan_destroy(&s.plan);
    vka_cache_destroy(&s.cache);
    while (s.n_tensor > 0)
        vka_tensor_destroy(&s.tensors[--s.n_tensor]);
    free(s.want);
    return status;
}
