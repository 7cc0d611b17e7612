/* Known problems of the operations around attention. */
#include <vkattn/vkattn_model.h>

#include "selftest/known_problem.h"

#include <math.h>

#define ROWS 37u
#define WIDTH 203u
#define TOLERANCE 1e-4

/* Layer norm of the sum of two tensors, which is written in place of one. */
static enum vka_status solve_norm(struct solution *s)
{
    const uint32_t shape[2] = {ROWS, WIDTH}, width = WIDTH;
    struct vka_tensor *x, *residual, *weight, *bias, *y;
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 1, &x));
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 2, &residual));
    ENSURE(known_tensor(s, VKA_F32, 1, &width, 3, &weight));
    ENSURE(known_tensor(s, VKA_F32, 1, &width, 4, &bias));
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 0, &y));
    ENSURE(vka_plan_add_norm(s->plan, VKA_INFO(vka_norm_op, .kind = VKA_LAYER_NORM, .input = x,
                                               .residual = residual, .sum = residual,
                                               .weight = weight, .bias = bias, .output = y)));
    ENSURE(known_want(s, y));
    for (uint32_t row = 0; row < ROWS; row++) {
        double v[WIDTH], mean = 0, squares = 0;
        for (uint32_t i = 0; i < WIDTH; i++) {
            v[i] = (double)known_value(1, row * WIDTH + i) + known_value(2, row * WIDTH + i);
            mean += v[i] / WIDTH;
        }
        for (uint32_t i = 0; i < WIDTH; i++)
            squares += (v[i] - mean) * (v[i] - mean) / WIDTH;
        for (uint32_t i = 0; i < WIDTH; i++)
            s->want[row * WIDTH + i] =
                (v[i] - mean) / sqrt(squares + 1e-5) * known_value(3, i) + known_value(4, i);
    }
    return known_run(s, y, 1);
}

/* SwiGLU, with a multiplier for all rows. */
static enum vka_status solve_map(struct solution *s)
{
    const uint32_t shape[2] = {ROWS, WIDTH}, width = WIDTH;
    struct vka_tensor *x, *multiplier, *y;
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 1, &x));
    ENSURE(known_tensor(s, VKA_F32, 1, &width, 2, &multiplier));
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 0, &y));
    ENSURE(
        vka_plan_add_activation(s->plan, VKA_INFO(vka_activation_op, .kind = VKA_SILU, .input = x,
                                                  .multiplier = multiplier, .output = y)));
    ENSURE(known_want(s, y));
    for (uint32_t i = 0; i < ROWS * WIDTH; i++) {
        double v = known_value(1, i);
        s->want[i] = v / (1 + exp(-v)) * known_value(2, i % WIDTH);
    }
    return known_run(s, y, 1);
}

/* Makes an I32 tensor [n]. */
static enum vka_status make_ids(struct solution *s, const int32_t *ids, uint32_t n,
                                struct vka_tensor **tensor)
{
    ENSURE(known_tensor(s, VKA_I32, 1, &n, 0, tensor));
    return vka_tensor_write(*tensor, ids, n * sizeof *ids);
}

/* Rows of a table in another order, and none. */
static enum vka_status solve_gather(struct solution *s)
{
    const uint32_t shape[2] = {ROWS, WIDTH};
    int32_t ids[ROWS];
    struct vka_tensor *table, *numbers, *y;
    for (uint32_t i = 0; i < ROWS; i++)
        ids[i] = (int32_t)(5 * i % (ROWS + 1)) - 1;
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 1, &table));
    ENSURE(make_ids(s, ids, ROWS, &numbers));
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 0, &y));
    ENSURE(vka_plan_add_gather(
        s->plan, VKA_INFO(vka_gather_op, .table = table, .ids = numbers, .scale = 3, .output = y)));
    ENSURE(known_want(s, y));
    for (uint32_t i = 0; i < ROWS * WIDTH; i++) {
        int32_t id = ids[i / WIDTH];
        s->want[i] = id < 0 ? 0 : 3.0 * known_value(1, (uint32_t)id * WIDTH + i % WIDTH);
    }
    return known_run(s, y, 1);
}

/* Rows at their own numbers, in place. */
static enum vka_status solve_rotary(struct solution *s)
{
    enum { HEADS = 3, DIM = 40, FEATURES = 43 };
    const uint32_t shape[4] = {1, HEADS, ROWS, FEATURES};
    struct vka_tensor *x;
    ENSURE(known_tensor(s, VKA_F32, 4, shape, 1, &x));
    ENSURE(vka_plan_add_rotary(
        s->plan, VKA_INFO(vka_rotary_op, .input = x, .dim = DIM, .base = 100, .output = x)));
    ENSURE(known_want(s, x));
    for (uint32_t i = 0; i < HEADS * ROWS * FEATURES; i++) {
        uint32_t at = i % FEATURES, row = i / FEATURES % ROWS, pair = at % (DIM / 2);
        double angle = row * pow(100, -2.0 * pair / DIM), own = known_value(1, i);
        s->want[i] = own;
        if (at < DIM / 2)
            s->want[i] = own * cos(angle) - known_value(1, i + DIM / 2) * sin(angle);
        else if (at < DIM)
            s->want[i] = known_value(1, i - DIM / 2) * sin(angle) + own * cos(angle);
    }
    return known_run(s, x, 1);
}

/* Columns that wrap. */
static enum vka_status solve_scatter(struct solution *s)
{
    enum { NEW = 31 };
    const uint32_t shape[2] = {ROWS, WIDTH}, new_shape[2] = {ROWS, NEW};
    int32_t places[ROWS];
    struct vka_tensor *update, *positions, *y;
    for (uint32_t i = 0; i < ROWS; i++)
        places[i] = (int32_t)(7 * i);
    ENSURE(known_tensor(s, VKA_F32, 2, new_shape, 1, &update));
    ENSURE(make_ids(s, places, ROWS, &positions));
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 2, &y));
    ENSURE(vka_plan_add_scatter(s->plan,
                                VKA_INFO(vka_scatter_op, .update = update, .positions = positions,
                                         .axis = 1, .circular = true, .output = y)));
    ENSURE(known_want(s, y));
    for (uint32_t i = 0; i < ROWS * WIDTH; i++) {
        uint32_t row = i / WIDTH, behind = (i % WIDTH + 2 * WIDTH - 7 * row) % WIDTH;
        s->want[i] = behind < NEW ? known_value(1, row * NEW + behind) : known_value(2, i);
    }
    return known_run(s, y, 1);
}

enum vka_status known_model_solve(struct solution *s, enum known_problem problem)
{
    s->tolerance = TOLERANCE;
    if (problem == KNOWN_NORM)
        return solve_norm(s);
    if (problem == KNOWN_MAP)
        return solve_map(s);
    if (problem == KNOWN_GATHER)
        return solve_gather(s);
    return problem == KNOWN_ROTARY ? solve_rotary(s) : solve_scatter(s);
}
