/* Layers whose weights lie in tensors: the bits of layers of host weights, what an optimiser writes is
 * seen by the next operation and the next run, and one recorded plan trains such a layer, each step
 * against the oracle in double. SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <gpu/device.h>
#include <reference/layer.h>
#include <reference/train.h>
#include <vkattn/vkattn_train.h>

#include "patience.h"
#include "layer_case.h"
#include "problems/limits.h"
#include "test_program.h"
#include "problems/rng.h"

#define ASSERT_OK(call) assert_int_equal(call, VKA_OK)

static struct vka_device *device;

/* ---- Bits ------------------------------------------------------------------------------------ */

#define SHAPE .batch = 2, .n_q = 5, .n_head = 4, .head_dim = 6, .query_dim = 24
#define WIDTHS SHAPE, .n_kv = 7, .key_dim = 20, .value_input_dim = 9, .output_dim = 11

static const struct layer_case cases[] = {
    {"plain", SHAPE, .biases = BIAS_ALL},
    {"some biases", SHAPE, .biases = BIAS_KEY | BIAS_OUTPUT},
    {"no bias", SHAPE},
    {"three widths", WIDTHS, .biases = BIAS_ALL},
    {"odd sizes", .batch = 3, .n_q = 7, .n_head = 3, .head_dim = 5, .value_dim = 3, .query_dim = 11,
     .output_dim = 9, .biases = BIAS_ALL},
    {"one of all", .batch = 1, .n_q = 1, .n_head = 1, .head_dim = 1, .query_dim = 1},
    {"cross attention", SHAPE, .n_kv = 9, .n_kv_head = 2, .biases = BIAS_QUERY | BIAS_VALUE},
    {"key is value", SHAPE, .n_kv = 9, .value_is_key = true, .biases = BIAS_ALL},
    {"no output weight", SHAPE, .biases = BIAS_VALUE, .no_output_weight = true},
    {"interleaved, sequence first", SHAPE, .n_kv_head = 2, .interleaved = true,
     .io = LAYER_SEQUENCE_FIRST, .biases = BIAS_ALL},
    {"f16", SHAPE, .dtype = VKA_F16, .biases = BIAS_ALL},
    {"bf16, odd widths", WIDTHS, .dtype = VKA_BF16, .biases = BIAS_ALL},
    {"several tiles", .batch = 1, .n_q = 70, .n_head = 6, .head_dim = 20, .query_dim = 130,
     .biases = BIAS_ALL},
    {"weights beyond the least binding", .batch = 1, .n_q = 9, .n_head = 4, .head_dim = 34,
     .query_dim = 140, .dtype = VKA_F32, .biases = BIAS_VALUE},
};

/* lowered: the plan of the weights in tensors is made with the least limits. */
static void check_bits(bool lowered)
{
    struct vka_device_properties usual = *vka_device_properties(device);
    for (size_t i = 0; i < COUNTOF(cases); i++)
        for (int transposed = 0; transposed < 2; transposed++) {
            struct layer_rig host, rig;
            struct layer_case c = cases[i];
            rig_create(&host, device, &c, i);
            c.in_tensors = true;
            c.transposed = transposed;
            rig_create(&rig, device, &c, i);
            const size_t bytes = rig_count(&rig) * sizeof(float);
            float *want = malloc(bytes), *got = malloc(bytes);
            assert_true(want && got);
            struct vka_plan *first = rig_plan(&host, NULL);
            if (lowered)
                usual = limits_lower(device, LEAST_RANGE, LEAST_ALLOCATION);
            struct vka_plan *second = rig_plan(&rig, NULL);
            limits_restore(device, &usual);
            assert_true(rig_run(&host, first) <= LAYER_NMSE);
            rig_read(&host, want);
            assert_true(rig_run(&rig, second) <= LAYER_NMSE);
            rig_read(&rig, got);
            if (memcmp(got, want, bytes) != 0)
                fail_msg("%s: other bits than those of host weights", c.name);
            vka_plan_destroy(&first);
            vka_plan_destroy(&second);
            rig_destroy(&host);
            rig_destroy(&rig);
            free(want);
            free(got);
        }
}

/* Some kernels of CPU drivers want tiles of columns, some transposed weights; those of GPUs want rows. */
static void same_bits(void **state)
{
    const struct kernel_set packed = KERNEL_SET(KERNEL_matmul_address, KERNEL_matmul_texel);
    const struct kernel_set lanes = KERNEL_SET(KERNEL_matmul_lane4, KERNEL_matmul_lane8);
    (void)state;
    check_bits(false);
    check_bits(true);
    set_join(&device->caps.without, packed);
    check_bits(false);
    check_bits(true);
    set_join(&device->caps.without, lanes);
    check_bits(true);
    device->caps.without = set_minus(device->caps.without, set_union(packed, lanes));
}

/* ---- Training -------------------------------------------------------------------------------- */

enum {
    BATCH = 3,
    ROWS = 6,
    WIDTH = 16,
    HEADS = 4,
    KEY_HEADS = 2,
    DIM = 4,
    KEYS = KEY_HEADS * DIM,
    STEPS = 10,
    COUNT = BATCH * ROWS * WIDTH
};
enum { WQ, BQ, WK, BK, WV, BV, WO, BO, PARAMETERS };
static const uint32_t sizes[PARAMETERS][2] = {{WIDTH, WIDTH}, {WIDTH, 1},    {KEYS, WIDTH},
                                              {KEYS, 1},      {KEYS, WIDTH}, {KEYS, 1},
                                              {WIDTH, WIDTH}, {WIDTH, 1}};
#define RATE 0.01

struct data {
    float x[STEPS][COUNT], target[COUNT], start[PARAMETERS][WIDTH * WIDTH];
};

struct model {
    struct vka_parameter p[PARAMETERS];
    struct vka_tensor *x, *target, *y, *after, *loss, *step;
    struct vka_layer *layer;
    struct vka_plan *plan;
};

struct trained {
    float loss[STEPS], after[COUNT], end[PARAMETERS][WIDTH * WIDTH];
};

static size_t count_of(int i)
{
    return (size_t)sizes[i][0] * sizes[i][1];
}

static void make_data(struct data *d)
{
    struct rng rng = {20};
    for (int s = 0; s < STEPS; s++)
        for (int i = 0; i < COUNT; i++)
            d->x[s][i] = (float)rng_uniform(&rng, -1, 1);
    for (int i = 0; i < COUNT; i++)
        d->target[i] = (float)rng_uniform(&rng, -1, 1);
    for (int i = 0; i < PARAMETERS; i++)
        for (size_t j = 0; j < count_of(i); j++)
            d->start[i][j] = (float)rng_uniform(&rng, -0.3, 0.3);
}

static struct vka_tensor *make(enum vka_dtype dtype, uint32_t rank, const uint32_t *shape)
{
    struct vka_tensor *tensor = NULL;
    ASSERT_OK(vka_tensor_create(device, dtype, rank, shape, &tensor));
    return tensor;
}

static void make_layer(struct model *m)
{
    const struct vka_parameter *p = m->p;
    ASSERT_OK(vka_layer_create(device,
                               VKA_INFO(vka_layer_info, .n_head = HEADS, .n_kv_head = KEY_HEADS,
                                        .head_dim = DIM, .query_dim = WIDTH, .output_dim = WIDTH,
                                        .query_tensors = {p[WQ].parameter, p[BQ].parameter},
                                        .key_tensors = {p[WK].parameter, p[BK].parameter},
                                        .value_tensors = {p[WV].parameter, p[BV].parameter},
                                        .output_tensors = {p[WO].parameter, p[BO].parameter}),
                               &m->layer));
}

/* Forward, loss, backward, Adam, and the forward again with the new weights. */
static void add_step(struct model *m)
{
    const struct vka_parameter *p = m->p;
    struct vka_layer_op op = {.struct_size = sizeof op,
                              .layer = m->layer,
                              .query = m->x,
                              .output = m->y,
                              .attention = {.causal = true, .rope = {.dim = DIM}}};
    ASSERT_OK(vka_plan_add_layer(m->plan, &op));
    ASSERT_OK(vka_plan_add_square_error(m->plan, VKA_INFO(vka_square_error_op, .input = m->y,
                                                          .target = m->target, .loss = m->loss,
                                                          .gradient = m->y)));
    ASSERT_OK(vka_plan_add_layer_backward(
        m->plan, VKA_INFO(vka_layer_backward_op, .forward = &op, .output_gradient = m->y,
                          .query_weights = {{p[WQ].gradient, false}, {p[BQ].gradient, false}},
                          .key_weights = {{p[WK].gradient, false}, {p[BK].gradient, false}},
                          .value_weights = {{p[WV].gradient, false}, {p[BV].gradient, false}},
                          .output_weights = {{p[WO].gradient, false}, {p[BO].gradient, false}})));
    ASSERT_OK(vka_plan_add_optimiser(m->plan, VKA_INFO(vka_optimiser_op, .kind = VKA_ADAM,
                                                       .parameters = p, .n_parameter = PARAMETERS,
                                                       .learning_rate = RATE, .step = m->step)));
    op.output = m->after;
    ASSERT_OK(vka_plan_add_layer(m->plan, &op));
}

static void make_model(struct model *m, const struct data *d, uint64_t budget)
{
    static const float zeros[WIDTH * WIDTH];
    const uint32_t shape[3] = {BATCH, ROWS, WIDTH}, one = 1;
    struct vka_tensor **io[] = {&m->x, &m->target, &m->y, &m->after};
    *m = (struct model){.loss = make(VKA_F32, 1, &one), .step = make(VKA_I32, 1, &one)};
    for (size_t i = 0; i < COUNTOF(io); i++)
        *io[i] = make(VKA_F32, 3, shape);
    ASSERT_OK(vka_tensor_write(m->target, d->target, sizeof d->target));
    ASSERT_OK(vka_tensor_write(m->step, zeros, sizeof(int32_t)));
    for (int i = 0; i < PARAMETERS; i++) {
        struct vka_tensor **all[] = {&m->p[i].parameter, &m->p[i].gradient, &m->p[i].first_moment,
                                     &m->p[i].second_moment};
        for (size_t j = 0; j < COUNTOF(all); j++) {
            *all[j] = make(VKA_F32, sizes[i][1] > 1 ? 2 : 1, sizes[i]);
            ASSERT_OK(
                vka_tensor_write(*all[j], j ? zeros : d->start[i], count_of(i) * sizeof(float)));
        }
    }
    make_layer(m);
    ASSERT_OK(vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = budget), &m->plan));
    add_step(m);
    ASSERT_OK(vka_plan_finish(m->plan));
}

static void free_model(struct model *m)
{
    vka_plan_destroy(&m->plan);
    vka_layer_destroy(&m->layer);
    for (int i = 0; i < PARAMETERS; i++) {
        vka_tensor_destroy(&m->p[i].parameter);
        vka_tensor_destroy(&m->p[i].gradient);
        vka_tensor_destroy(&m->p[i].first_moment);
        vka_tensor_destroy(&m->p[i].second_moment);
    }
    vka_tensor_destroy(&m->x);
    vka_tensor_destroy(&m->target);
    vka_tensor_destroy(&m->y);
    vka_tensor_destroy(&m->after);
    vka_tensor_destroy(&m->loss);
    vka_tensor_destroy(&m->step);
}

static void train(const struct data *d, uint64_t budget, struct trained *r)
{
    struct model m;
    make_model(&m, d, budget);
    for (int s = 0; s < STEPS; s++) {
        ASSERT_OK(vka_tensor_write(m.x, d->x[s], sizeof d->x[s]));
        ASSERT_OK(vka_plan_run(m.plan, PATIENCE));
        ASSERT_OK(vka_tensor_read(m.loss, &r->loss[s], sizeof r->loss[s]));
    }
    ASSERT_OK(vka_tensor_read(m.after, r->after, sizeof r->after));
    for (int i = 0; i < PARAMETERS; i++)
        ASSERT_OK(vka_tensor_read(m.p[i].parameter, r->end[i], count_of(i) * sizeof(float)));
    free_model(&m);
}

/* The output of a layer of host weights that are those at the end. */
static void run_host(const struct data *d, const struct trained *r, float y[COUNT])
{
    const uint32_t shape[3] = {BATCH, ROWS, WIDTH};
    struct vka_tensor *x = make(VKA_F32, 3, shape), *out = make(VKA_F32, 3, shape);
    struct vka_layer *layer = NULL;
    struct vka_plan *plan = NULL;
    ASSERT_OK(vka_layer_create(
        device,
        VKA_INFO(vka_layer_info, .n_head = HEADS, .n_kv_head = KEY_HEADS, .head_dim = DIM,
                 .query_dim = WIDTH, .output_dim = WIDTH, .query = {r->end[WQ], r->end[BQ]},
                 .key = {r->end[WK], r->end[BK]}, .value = {r->end[WV], r->end[BV]},
                 .output = {r->end[WO], r->end[BO]}),
        &layer));
    ASSERT_OK(vka_tensor_write(x, d->x[STEPS - 1], sizeof d->x[0]));
    ASSERT_OK(vka_plan_create(device, NULL, &plan));
    ASSERT_OK(
        vka_plan_add_layer(plan, VKA_INFO(vka_layer_op, .layer = layer, .query = x, .output = out,
                                          .attention.causal = true, .attention.rope.dim = DIM)));
    ASSERT_OK(vka_plan_finish(plan));
    ASSERT_OK(vka_plan_run(plan, PATIENCE));
    ASSERT_OK(vka_tensor_read(out, y, COUNT * sizeof *y));
    vka_plan_destroy(&plan);
    vka_layer_destroy(&layer);
    vka_tensor_destroy(&x);
    vka_tensor_destroy(&out);
}

struct oracle {
    double x[COUNT], y[COUNT], target[COUNT];
    double w[PARAMETERS][WIDTH * WIDTH], g[PARAMETERS][WIDTH * WIDTH];
    double m[PARAMETERS][WIDTH * WIDTH], v[PARAMETERS][WIDTH * WIDTH];
};

static double oracle_step(struct oracle *o, const float *x, int step)
{
    const struct vka_optimiser_op op = {.kind = VKA_ADAM, .learning_rate = RATE};
    struct ref_layer l = {.a = {.batch = BATCH,
                                .n_head = HEADS,
                                .n_kv_head = KEY_HEADS,
                                .n_q = ROWS,
                                .n_kv = ROWS,
                                .head_dim = DIM,
                                .value_dim = DIM,
                                .causal = true,
                                .rope = {.dim = DIM}},
                          .out = WIDTH};
    struct ref_layer_gradients g = {.x = {NULL}};
    for (int i = 0; i < COUNT; i++)
        o->x[i] = (double)x[i];
    for (int i = 0; i < 4; i++) {
        if (i < 3) {
            l.x[i] = o->x;
            l.in[i] = WIDTH;
        }
        l.w[i] = o->w[2 * i];
        l.b[i] = o->w[2 * i + 1];
        g.w[i] = o->g[2 * i];
        g.b[i] = o->g[2 * i + 1];
    }
    ASSERT_OK(ref_layer(&l, o->y));
    const double loss = ref_square_error(o->y, o->target, COUNT, 1, o->y);
    ASSERT_OK(ref_layer_backward(&l, o->y, &g));
    for (int i = 0; i < PARAMETERS; i++)
        ref_optimiser(&op, count_of(i), step, o->w[i], o->g[i], o->m[i], o->v[i]);
    return loss;
}

static void trains(void **state)
{
    static struct data d;
    static struct oracle o;
    static struct trained runs[3];
    static const uint64_t budgets[3] = {VKA_NO_BUDGET, VKA_NO_BUDGET, 1};
    static float host[COUNT];
    (void)state;
    make_data(&d);
    for (int i = 0; i < 3; i++)
        train(&d, budgets[i], &runs[i]);
    for (int i = 0; i < PARAMETERS; i++)
        for (size_t j = 0; j < count_of(i); j++)
            o.w[i][j] = (double)d.start[i][j];
    for (int i = 0; i < COUNT; i++)
        o.target[i] = (double)d.target[i];
    double worst = 0, first = 0, last = 0;
    for (int s = 0; s < STEPS; s++) {
        const double want = oracle_step(&o, d.x[s], s + 1);
        worst = fmax(worst, fabs((double)runs[0].loss[s] - want));
        first = s ? first : want;
        last = want;
    }
    print_message("loss %.4f to %.4f, largest error %.2e\n", first, last, worst);
    assert_true(worst < 1e-5);
    assert_true(last < first);
    for (int i = 1; i < 3; i++)
        assert_memory_equal(&runs[i], &runs[0], sizeof runs[0]);
    run_host(&d, &runs[0], host);
    assert_memory_equal(host, runs[0].after, sizeof host);
}

/* Bytes that a plan of a layer's gradients owns. */
static uint64_t workspace(struct vka_layer *layer, enum vka_path path, uint32_t rows)
{
    const uint32_t shape[3] = {1, rows, WIDTH}, square[2] = {WIDTH, WIDTH};
    struct vka_tensor *x = make(VKA_F32, 3, shape), *y = make(VKA_F32, 3, shape);
    struct vka_tensor *dx = make(VKA_F32, 3, shape), *dw = make(VKA_F32, 2, square);
    struct vka_plan *plan = NULL;
    const struct vka_layer_op op = {
        .struct_size = sizeof op, .layer = layer, .query = x, .output = y};
    ASSERT_OK(vka_plan_create(
        device, VKA_INFO(vka_plan_info, .path = path, .submit_budget = VKA_NO_BUDGET), &plan));
    ASSERT_OK(vka_plan_add_layer_backward(
        plan, VKA_INFO(vka_layer_backward_op, .forward = &op, .output_gradient = y,
                       .query_gradient.tensor = dx, .output_weights.weight.tensor = dw)));
    ASSERT_OK(vka_plan_finish(plan));
    const uint64_t bytes = vka_plan_workspace(plan);
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&x);
    vka_tensor_destroy(&y);
    vka_tensor_destroy(&dx);
    vka_tensor_destroy(&dw);
    return bytes;
}

/* Three inputs and the context have a width of 16 each, twice; products pack operands, and attention takes
 * scratch of its own. */
static void memory_is_linear(void **state)
{
    static struct data d;
    struct model m;
    (void)state;
    make_data(&d);
    make_model(&m, &d, VKA_NO_BUDGET);
    for (int path = VKA_PATH_UNFUSED; path <= VKA_PATH_FUSED; path++) {
        uint64_t last = 0;
        for (uint32_t rows = 1024; rows <= 16384; rows *= 4) {
            const uint64_t bytes = workspace(m.layer, (enum vka_path)path, rows);
            print_message("%s, %u rows: %llu bytes\n", path == VKA_PATH_FUSED ? "fused" : "unfused",
                          rows, (unsigned long long)bytes);
            assert_true(last == 0 || bytes <= 4 * last + 65536);
            if (path == VKA_PATH_FUSED)
                assert_true(bytes <= 16ull * WIDTH * sizeof(float) * rows + 65536);
            last = bytes;
        }
    }
    free_model(&m);
}

/* Not a number in one element of the output's gradient: in one of the bias's, and in all rows of the
 * input that its row sees. */
static void counts(void **state)
{
    static struct data d;
    static float dy[COUNT];
    struct model m;
    struct vka_plan *plan = NULL;
    struct vka_nonfinite_info input, bias;
    (void)state;
    make_data(&d);
    make_model(&m, &d, VKA_NO_BUDGET);
    dy[1 * WIDTH + 3] = NAN; /* of the second row of the first batch element, which sees two */
    ASSERT_OK(vka_tensor_write(m.x, d.x[0], sizeof d.x[0]));
    ASSERT_OK(vka_tensor_write(m.y, dy, sizeof dy));
    const struct vka_layer_op op = {.struct_size = sizeof op,
                                    .layer = m.layer,
                                    .query = m.x,
                                    .output = m.y,
                                    .attention.causal = true};
    ASSERT_OK(vka_plan_create(device, VKA_INFO(vka_plan_info, .count_nonfinite = true), &plan));
    ASSERT_OK(vka_plan_add_layer_backward(
        plan, VKA_INFO(vka_layer_backward_op, .forward = &op, .output_gradient = m.y,
                       .query_gradient.tensor = m.after,
                       .output_weights.bias.tensor = m.p[BO].gradient)));
    ASSERT_OK(vka_plan_finish(plan));
    ASSERT_OK(vka_plan_run(plan, PATIENCE));
    assert_int_equal(vka_plan_nonfinite_count(plan), 2);
    ASSERT_OK(vka_plan_nonfinite(plan, 0, &input));
    ASSERT_OK(vka_plan_nonfinite(plan, 1, &bias));
    assert_string_equal(input.name, "query_gradient");
    assert_string_equal(bias.name, "output_weights.bias");
    assert_int_equal(input.nan, 2 * WIDTH);
    assert_int_equal(bias.nan, 1);
    vka_plan_destroy(&plan);
    free_model(&m);
}

static int open_device(void **state)
{
    (void)state;
    return vka_device_create(NULL, &device);
}

static int close_device(void **state)
{
    (void)state;
    vka_device_destroy(&device);
    return 0;
}

TEST_PROGRAM(layer_tensors)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits), cmocka_unit_test(trains),
                                       cmocka_unit_test(memory_is_linear),
                                       cmocka_unit_test(counts)};
    if (!have_device("layers in tensors"))
        return 77;
    return cmocka_run_group_tests(tests, open_device, close_device);
}
