/* Known problems of the operations around attention. */
#include <vkattn/vkattn_model.h>

#include "selftest/solution.h"

#include <math.h>
#include <string.h>

#define ROWS 37u
#define WIDTH 203u

/* Layer norm of the sum of two tensors, which is written in place of one. */
enum vka_status known_norm(struct solution *s)
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
enum vka_status known_map(struct solution *s)
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
enum vka_status known_gather(struct solution *s)
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
enum vka_status known_rotary(struct solution *s)
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
enum vka_status known_scatter(struct solution *s)
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

/* Compares I32 [n] after a run. */
static enum vka_status compare_ids(struct solution *s, struct vka_tensor *tensor,
                                   const int32_t *want, uint32_t n)
{
    int32_t got[ROWS];
    ENSURE(known_run(s, NULL, 1));
    if (!s->right)
        return VKA_OK;
    ENSURE(vka_tensor_read(tensor, got, n * sizeof *got));
    *s->right = memcmp(got, want, n * sizeof *got) == 0;
    return VKA_OK;
}

enum vka_status known_argmax(struct solution *s)
{
    const uint32_t shape[2] = {ROWS, WIDTH}, rows = ROWS;
    int32_t want[ROWS] = {0};
    struct vka_tensor *x, *y;
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 1, &x));
    ENSURE(known_tensor(s, VKA_I32, 1, &rows, 0, &y));
    ENSURE(vka_plan_add_argmax(s->plan, VKA_INFO(vka_argmax_op, .input = x, .output = y)));
    for (uint32_t i = 0; i < ROWS * WIDTH; i++) {
        uint32_t row = i / WIDTH;
        if (known_value(1, i) > known_value(1, row * WIDTH + (uint32_t)want[row]))
            want[row] = (int32_t)(i % WIDTH);
    }
    return compare_ids(s, y, want, ROWS);
}

/* Eight logits of 0 and many of -1, of which top_k leaves the eight: equal weights, whose sums are
 * exact. The draws are those of Philox4x32-10 of the seed 1, as published code computes it. */
enum vka_status known_sample(struct solution *s)
{
    enum { DRAWN = 5, EQUAL = 8 };
    static const uint32_t words[DRAWN] = {0xe3e80670, 0x833ff8dc, 0xe635dbec, 0xe9f4fad0,
                                          0xc6a1ad85};
    const uint32_t shape[2] = {DRAWN, WIDTH}, rows = DRAWN;
    float logits[DRAWN * WIDTH];
    int32_t want[DRAWN];
    struct vka_tensor *x, *y;
    for (uint32_t i = 0; i < DRAWN * WIDTH; i++)
        logits[i] = i % WIDTH % 25 == 3 && i % WIDTH < 25 * EQUAL ? 0 : -1;
    for (uint32_t i = 0; i < DRAWN; i++)
        want[i] = (int32_t)(words[i] >> 29) * 25 + 3;
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 0, &x));
    ENSURE(vka_tensor_write(x, logits, sizeof logits));
    ENSURE(known_tensor(s, VKA_I32, 1, &rows, 0, &y));
    ENSURE(vka_plan_add_sample(s->plan,
                               VKA_INFO(vka_sample_op, .logits = x, .temperature = 0.5f,
                                        .top_k = EQUAL, .top_p = 0.99f, .seed = 1, .output = y)));
    return compare_ids(s, y, want, DRAWN);
}

enum vka_status known_pool(struct solution *s)
{
    enum { BATCH = 7, LENGTH = 11 };
    const uint32_t shape[3] = {BATCH, ROWS, WIDTH}, batch = BATCH;
    int32_t lengths[BATCH];
    struct vka_tensor *x, *y, *limit;
    for (uint32_t i = 0; i < BATCH; i++)
        lengths[i] = LENGTH;
    ENSURE(known_tensor(s, VKA_F32, 3, shape, 1, &x));
    ENSURE(make_ids(s, lengths, batch, &limit));
    ENSURE(known_tensor(s, VKA_F32, 2, (const uint32_t[]){BATCH, WIDTH}, 0, &y));
    ENSURE(vka_plan_add_pool(s->plan,
                             VKA_INFO(vka_pool_op, .input = x, .lengths = limit, .output = y)));
    ENSURE(known_want(s, y));
    for (uint32_t i = 0; i < BATCH * LENGTH * WIDTH; i++) {
        uint32_t b = i / (LENGTH * WIDTH), at = i % (LENGTH * WIDTH);
        s->want[b * WIDTH + i % WIDTH] += (double)known_value(1, b * ROWS * WIDTH + at) / LENGTH;
    }
    return known_run(s, y, 1);
}

/* Two slices of equal weight, but for rows that one of them has alone. */
enum vka_status known_merge(struct solution *s)
{
    const uint32_t shape[2] = {ROWS, WIDTH}, rows = ROWS;
    struct vka_tensor *x[2], *l[2], *y;
    float log_sums[2][ROWS];
    for (int i = 0; i < 2; i++) {
        for (uint32_t row = 0; row < ROWS; row++)
            log_sums[i][row] = row % 3 == (uint32_t)i ? -INFINITY : 2.5f;
        ENSURE(known_tensor(s, VKA_F32, 2, shape, 1 + (uint32_t)i, &x[i]));
        ENSURE(known_tensor(s, VKA_F32, 1, &rows, 0, &l[i]));
        ENSURE(vka_tensor_write(l[i], log_sums[i], sizeof log_sums[i]));
    }
    ENSURE(known_tensor(s, VKA_F32, 2, shape, 0, &y));
    ENSURE(vka_plan_add_merge(s->plan, VKA_INFO(vka_merge_op, .n_slice = 2, .slices = x,
                                                .log_sum_exps = l, .output = y)));
    ENSURE(known_want(s, y));
    for (uint32_t i = 0; i < ROWS * WIDTH; i++) {
        double a = (double)known_value(1, i), b = (double)known_value(2, i);
        s->want[i] = i / WIDTH % 3 == 0 ? b : i / WIDTH % 3 == 1 ? a : (a + b) / 2;
    }
    return known_run(s, y, 1);
}
