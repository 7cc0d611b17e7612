/* Numbers are multiples of 1/8 up to 1, exact in every element type; so products of matrices are
 * exact in float32 too, whatever the order of their sums. Columns and keys are odd, for tiles that
 * are not full. */
#include "plan/known_problem.h"
#include "core/dtype.h"
#include "gpu/quirks.h"
#include "params.h"
#include "plan/known_attention.h"
#include "plan/matmul.h"
#include "plan/nonfinite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT (4 * VKA_TIMEOUT_DEFAULT) /* CPU drivers compile within the first run */

/* B is packed from so many rows on. */
#define ROWS 32u
#define DEPTH 512u

#define LONG_DEPTH 33000u /* three pieces; sums of eighths stay exact */
#define FEW_ROWS 3u
#define COLUMNS 37u
#define SIDE 83u /* of the other axis of a copy */

float known_value(uint32_t seed, uint32_t index)
{
    uint32_t mixed = (index + seed * 40503u) * 2654435761u;
    return (float)(int)(mixed >> 28) / 8 - 1;
}

/* A float that float16 holds exactly, in that type. */
static uint16_t to_f16(float x)
{
    int exponent;
    float mantissa = frexpf(fabsf(x), &exponent); /* 0.5 .. 1 */
    uint32_t sign = x < 0 ? 0x8000 : 0;
    if (x == 0)
        return 0;
    return (uint16_t)(sign | (uint32_t)(exponent + 14) << 10 | (uint32_t)(mantissa * 2048 - 1024));
}

static void put(void *data, size_t index, enum vka_dtype dtype, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (dtype == VKA_F32)
        ((float *)data)[index] = x;
    else
        ((uint16_t *)data)[index] = dtype == VKA_F16 ? to_f16(x) : (uint16_t)(bits >> 16);
}

enum vka_status known_tensor(struct solution *s, enum vka_dtype dtype, uint32_t rank,
                             const uint32_t *shape, uint32_t seed, struct vka_tensor **tensor)
{
    struct log *log = &s->device->log;
    enum vka_status status = VKA_OK;
    void *data = NULL;
    TRY(vka_tensor_create(s->device, dtype, rank, shape, &s->tensors[s->n_tensor]));
    *tensor = s->tensors[s->n_tensor++];
    size_t size = vka_tensor_size(*tensor), n = (size_t)vka_tensor_count(*tensor);
    data = malloc(size);
    CHECK_ALLOC(data);
    memset(data, 0xff, size); /* NaN */
    for (size_t i = 0; seed && i < n; i++)
        put(data, i, dtype, known_value(seed, (uint32_t)i));
    TRY(vka_tensor_write(*tensor, data, size));
fail:
    free(data);
    return status;
}

/* Whether all elements are as wanted; NaN is not. */
static enum vka_status compare(struct solution *s, struct vka_tensor *tensor)
{
    struct log *log = &s->device->log;
    enum vka_status status = VKA_OK;
    size_t size = vka_tensor_size(tensor), n = (size_t)vka_tensor_count(tensor);
    void *got = malloc(size);
    CHECK_ALLOC(got);
    TRY(vka_tensor_read(tensor, got, size));
    *s->right = true;
    for (size_t i = 0; i < n; i++)
        *s->right &= fabs(dtype_to_float(got, i, tensor->dtype) - s->want[i]) <= s->tolerance;
fail:
    free(got);
    return status;
}

enum vka_status known_want(struct solution *s, const struct vka_tensor *tensor)
{
    struct log *log = &s->device->log;
    enum vka_status status = VKA_OK;
    s->want = calloc((size_t)vka_tensor_count(tensor), sizeof *s->want);
    CHECK_ALLOC(s->want);
fail:
    return status;
}

enum vka_status known_run(struct solution *s, struct vka_tensor *tensor, uint32_t times)
{
    enum vka_status status = VKA_OK;
    if (!s->right)
        return VKA_OK;
    TRY(vka_plan_finish(s->plan));
    for (uint32_t i = 0; i < times; i++)
        TRY(vka_plan_run(s->plan, TIMEOUT));
    if (tensor)
        TRY(compare(s, tensor));
fail:
    return status;
}

static enum vka_status solve_matmul(struct solution *s, enum vka_dtype dtype, uint32_t rows,
                                    uint32_t depth)
{
    enum vka_status status = VKA_OK;
    struct vka_tensor *a, *b, *bias, *c;
    TRY(known_tensor(s, dtype, 2, (const uint32_t[]){rows, depth}, 1, &a));
    TRY(known_tensor(s, dtype, 2, (const uint32_t[]){COLUMNS, depth}, 2, &b));
    TRY(known_tensor(s, VKA_F32, 1, (const uint32_t[]){COLUMNS}, 3, &bias));
    TRY(known_tensor(s, VKA_F32, 2, (const uint32_t[]){rows, COLUMNS}, 0, &c));
    TRY(vka_plan_add_linear(
        s->plan, VKA_INFO(vka_linear_op, .input = a, .weight = b, .bias = bias, .output = c)));
    TRY(known_want(s, c));
    for (uint32_t i = 0; i < rows * COLUMNS; i++) {
        uint32_t row = i / COLUMNS, column = i % COLUMNS;
        s->want[i] = known_value(3, column);
        for (uint32_t k = 0; k < depth; k++)
            s->want[i] += known_value(1, row * depth + k) * known_value(2, column * depth + k);
    }
    TRY(known_run(s, c, 1));
fail:
    return status;
}

static enum vka_status solve_loops(struct solution *s)
{
    enum vka_status status = VKA_OK;
    const uint32_t one = 1;
    uint32_t number = 1, want = 1;
    double most = budget_max_loops(&s->device->caps);
    struct loop_probe_params p = {most < LOOPS_CHECKED ? (uint32_t)most - 1 : LOOPS_CHECKED};
    struct pass pass = {.name = "loops", .reason = "how far the driver goes", .groups = {1, 1, 1}};
    struct plan_mark mark;
    struct vka_tensor *t;
    TRY(known_tensor(s, VKA_I32, 1, &one, 0, &t));
    TRY(vka_tensor_write(t, &number, sizeof number));
    pass.key = (struct pipeline_key){.kernel = KERNEL_loop_probe};
    plan_bind(s->plan, &pass, 0, t, true, NULL);
    pass.push_size = sizeof p;
    memcpy(pass.push, &p, sizeof p);
    TRY(plan_begin(s->plan, __func__, &mark));
    TRY(plan_end(s->plan, mark, plan_add_pass(s->plan, &pass)));
    TRY(known_run(s, NULL, 1));
    if (!s->right)
        return VKA_OK;
    TRY(vka_tensor_read(t, &number, sizeof number));
    for (uint32_t i = 0; i < p.n; i++)
        want = want * LOOP_PROBE_FACTOR + 1;
    *s->right = number == want;
fail:
    return status;
}

/* Rows and columns of a matrix, turned round. */
static enum vka_status solve_copy(struct solution *s)
{
    enum vka_status status = VKA_OK;
    struct plan_mark mark;
    struct vka_tensor *from, *to, turned;
    TRY(known_tensor(s, VKA_F32, 4, (const uint32_t[]){2, 1, COLUMNS, SIDE}, 1, &from));
    TRY(known_tensor(s, VKA_F32, 4, (const uint32_t[]){2, 1, SIDE, COLUMNS}, 0, &to));
    turned = *to;
    turned.shape = from->shape;
    turned.shape.stride[2] = 1;
    turned.shape.stride[3] = COLUMNS;
    TRY(plan_begin(s->plan, __func__, &mark));
    TRY(plan_end(s->plan, mark, plan_copy(s->plan, "copy", from, &turned)));
    TRY(known_want(s, to));
    for (uint32_t i = 0; i < 2 * SIDE * COLUMNS; i++) {
        uint32_t batch = i / (SIDE * COLUMNS), row = i / COLUMNS % SIDE, column = i % COLUMNS;
        s->want[i] = known_value(1, (batch * COLUMNS + column) * SIDE + row);
    }
    TRY(known_run(s, to, 1));
fail:
    return status;
}

static enum vka_status solve_nonfinite(struct solution *s)
{
    enum vka_status status = VKA_OK;
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
    TRY(known_tensor(s, VKA_F32, 2, (const uint32_t[]){2 * SIDE, COLUMNS}, 0, &t));
    TRY(vka_tensor_write(t, data, sizeof data));
    TRY(plan_begin(s->plan, __func__, &mark));
    TRY(plan_end(s->plan, mark, plan_count_nonfinite(s->plan, "known", t)));
    const struct count *count = &s->plan->counts[0];
    memset(memory_mapped(&count->words->range), 0xff, count->n * 2 * sizeof(uint32_t));
    TRY(known_run(s, NULL, 1));
    if (s->right) {
        TRY(vka_plan_nonfinite(s->plan, 0, &found));
        *s->right = found.nan == nan && found.inf == inf;
    }
fail:
    return status;
}

static enum vka_status solve(struct solution *s, enum known_problem problem)
{
    switch (problem) {
    case KNOWN_LOOPS:
        return solve_loops(s);
    case KNOWN_COPY:
        return solve_copy(s);
    case KNOWN_NONFINITE:
        return solve_nonfinite(s);
    case KNOWN_MATMUL:
        return solve_matmul(s, VKA_F32, ROWS, DEPTH);
    case KNOWN_MATMUL_FEW:
        return solve_matmul(s, VKA_F32, FEW_ROWS, DEPTH);
    case KNOWN_MATMUL_F16:
        return solve_matmul(s, VKA_F16, ROWS, DEPTH);
    case KNOWN_MATMUL_BF16:
        return solve_matmul(s, VKA_BF16, ROWS, DEPTH);
    case KNOWN_MATMUL_LONG:
        return solve_matmul(s, VKA_F32, FEW_ROWS, LONG_DEPTH);
    case KNOWN_SOFTMAX:
        return known_softmax_solve(s);
    case KNOWN_FUSED:
    case KNOWN_FUSED_F16:
    case KNOWN_FUSED_BF16:
    case KNOWN_FUSED_FEW:
    case KNOWN_MASK:
    case KNOWN_ROPE:
    case KNOWN_CACHE:
    case KNOWN_PAGES:
    case KNOWN_PROBLEM_COUNT:
        break;
    }
    return known_attention_solve(s, problem);
}

/* The path of attention that the problem is about. */
static enum vka_path path_of(enum known_problem problem)
{
    if (problem == KNOWN_PAGES)
        return VKA_PATH_UNFUSED;
    if (problem >= KNOWN_FUSED && problem <= KNOWN_MASK)
        return VKA_PATH_FUSED;
    return VKA_PATH_AUTO;
}

enum vka_status known_problem_solve(struct vka_device *device, enum known_problem problem,
                                    uint32_t head_dim, bool *right)
{
    enum vka_status status = VKA_OK;
    struct solution s = {.device = device, .head_dim = head_dim, .right = right};
    TRY(vka_plan_create(device,
                        VKA_INFO(vka_plan_info, .path = path_of(problem),
                                 .submit_budget = VKA_NO_BUDGET,
                                 .count_nonfinite = problem == KNOWN_NONFINITE),
                        &s.plan));
    TRY(solve(&s, problem));
fail:
    vka_plan_destroy(&s.plan);
    vka_cache_destroy(&s.cache);
    while (s.n_tensor > 0)
        vka_tensor_destroy(&s.tensors[--s.n_tensor]);
    free(s.want);
    return status;
}
