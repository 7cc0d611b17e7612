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

enum vka_status known_model_solve(struct solution *s, enum known_problem problem)
{
    s->tolerance = TOLERANCE;
    return problem == KNOWN_NORM ? solve_norm(s) : solve_map(s);
}
