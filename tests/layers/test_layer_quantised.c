/* Layers with quantised weights: against layers whose weights are the same values in float32. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <vkattn/vkattn.h>

#include "patience.h"
#include "reference/reference.h"
#include "test_program.h"
#include "problems/rng.h"

enum { BATCH = 2, N_Q = 9, HEADS = 4, KV_HEADS = 2, DIM = 64, WIDTH = 256, ROWS = 256 };

static struct vka_device *device;

static void check(enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

/* [ROWS][WIDTH] for the four projections. */
struct weights {
    float *x;     /* as drawn, then as the blocks hold them */
    void *blocks; /* NULL: floats */
    size_t n;
};

static struct weights draw(enum vka_dtype dtype, uint64_t seed)
{
    struct rng rng = {seed};
    uint32_t values, bytes;
    check(vka_dtype_block(dtype, &values, &bytes));
    struct weights w = {.n = (size_t)ROWS * WIDTH};
    w.x = malloc(w.n * sizeof *w.x);
    w.blocks = malloc(w.n / values * bytes);
    assert_true(w.x && w.blocks);
    for (size_t i = 0; i < w.n; i++)
        w.x[i] = (float)rng_uniform(&rng, -0.2, 0.2);
    check(vka_dtype_encode(dtype, w.x, w.n / values, w.blocks));
    return w;
}

/* x [BATCH][N_Q][WIDTH], bias [ROWS]. */
static void draw_inputs(uint64_t seed, float *x, float *bias)
{
    struct rng rng = {seed};
    for (size_t i = 0; i < BATCH * N_Q * WIDTH; i++)
        x[i] = (float)rng_uniform(&rng, -1, 1);
    for (size_t i = 0; i < ROWS; i++)
        bias[i] = (float)rng_uniform(&rng, -1, 1);
}

static void *run(const struct vka_layer_info *info, enum vka_dtype io, enum vka_dtype activations,
                 const float *x)
{
    struct vka_layer *layer = NULL;
    struct vka_tensor *in = NULL, *out = NULL;
    struct vka_plan *plan = NULL;
    check(vka_layer_create(device, info, &layer));
    check(vka_tensor_create(device, io, 3, (const uint32_t[]){BATCH, N_Q, WIDTH}, &in));
    check(vka_tensor_create(device, VKA_F32, 3, (const uint32_t[]){BATCH, N_Q, ROWS}, &out));
    check(vka_plan_create(device, NULL, &plan));
    check(
        vka_plan_add_layer(plan, VKA_INFO(vka_layer_op, .layer = layer, .query = in, .output = out,
                                          .activations = activations, .attention.causal = true)));
    check(vka_plan_finish(plan));
    check(vka_tensor_write(in, x, vka_tensor_size(in)));
    check(vka_plan_run(plan, PATIENCE));
    void *y = malloc(vka_tensor_size(out));
    assert_non_null(y);
    check(vka_tensor_read(out, y, vka_tensor_size(out)));
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&in);
    vka_tensor_destroy(&out);
    vka_layer_destroy(&layer);
    return y;
}

static double difference(const float *got, const float *want)
{
    enum { N = BATCH * N_Q * ROWS };
    static double a[N], b[N];
    for (int i = 0; i < N; i++) {
        a[i] = (double)got[i];
        b[i] = (double)want[i];
    }
    return ref_row_nmse(a, b, BATCH * N_Q, ROWS, NULL);
}

static struct vka_layer_info info_of(enum vka_dtype dtype, const void *weight, const float *bias)
{
    const struct vka_linear_weights with = {weight, bias}, without = {weight, NULL};
    return (struct vka_layer_info){.struct_size = sizeof(struct vka_layer_info),
                                   .n_head = HEADS,
                                   .n_kv_head = KV_HEADS,
                                   .head_dim = DIM,
                                   .query_dim = WIDTH,
                                   .output_dim = ROWS,
                                   .dtype = dtype,
                                   .query = with,
                                   .key = without,
                                   .value = with,
                                   .output = with};
}

static void test_types(void **state)
{
    (void)state;
    static const enum vka_dtype types[] = {VKA_Q8_0, VKA_Q4_0, VKA_Q4_K};
    float x[BATCH * N_Q * WIDTH], bias[ROWS];
    draw_inputs(7, x, bias);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct weights w = draw(types[t], t + 1);
        uint32_t values, bytes;
        check(vka_dtype_block(types[t], &values, &bytes));
        struct vka_layer_info blocks = info_of(types[t], w.blocks, bias);
        struct vka_layer_info quantise = info_of(VKA_F32, w.x, bias);
        void *got = run(&blocks, VKA_F32, VKA_F32, x);
        quantise.quantise = types[t]; /* the host encodes the same blocks */
        void *same = run(&quantise, VKA_F32, VKA_F32, x);
        assert_memory_equal(same, got, sizeof(float) * BATCH * N_Q * ROWS);
        free(same);
        check(vka_dtype_decode(types[t], w.blocks, w.n / values, w.x));
        struct vka_layer_info floats = info_of(VKA_F32, w.x, bias);
        void *want = run(&floats, VKA_F32, VKA_F32, x);
        double nmse = difference(got, want);
        print_message("%s: row NMSE %.2g\n", vka_dtype_name(types[t]), nmse);
        assert_true(nmse <= 1e-10);
        free(got);
        free(want);
        free(w.x);
        free(w.blocks);
    }
}

/* The tensors of a layer that is added operation by operation. */
struct steps {
    struct vka_tensor *in, *out, *bias;
    struct vka_tensor *flat[4];   /* [BATCH][N_Q][...]: q, k, v and the concatenated heads */
    struct vka_tensor *split[4];  /* these as [BATCH][N_Q][n_head][DIM] */
    struct vka_tensor *heads[4];  /* these as [BATCH][n_head][N_Q][DIM] */
    struct vka_tensor *weight[2]; /* of q and the output; of k and v, which are fewer rows */
};

static void open_steps(enum vka_dtype dtype, const struct weights *w, const float *bias,
                       struct steps *p)
{
    static const uint32_t n_head[4] = {HEADS, KV_HEADS, KV_HEADS, HEADS};
    static const uint32_t n_row[2] = {ROWS, KV_HEADS * DIM}, permuted[4] = {0, 2, 1, 3};
    check(vka_tensor_create(device, VKA_F32, 3, (const uint32_t[]){BATCH, N_Q, WIDTH}, &p->in));
    check(vka_tensor_create(device, VKA_F32, 3, (const uint32_t[]){BATCH, N_Q, ROWS}, &p->out));
    check(vka_tensor_create(device, VKA_F32, 1, (const uint32_t[]){ROWS}, &p->bias));
    check(vka_tensor_write(p->bias, bias, vka_tensor_size(p->bias)));
    for (int i = 0; i < 4; i++) {
        const uint32_t flat[] = {BATCH, N_Q, n_head[i] * DIM};
        const uint32_t split[] = {BATCH, N_Q, n_head[i], DIM};
        check(vka_tensor_create(device, VKA_F32, 3, flat, &p->flat[i]));
        check(vka_tensor_reshape(p->flat[i], 4, split, &p->split[i]));
        check(vka_tensor_permute(p->split[i], permuted, &p->heads[i]));
    }
    for (int i = 0; i < 2; i++) {
        const uint32_t size[] = {n_row[i], WIDTH};
        check(vka_tensor_create(device, dtype, 2, size, &p->weight[i]));
        check(vka_tensor_write(p->weight[i], w->blocks, vka_tensor_size(p->weight[i])));
    }
}

static void close_steps(struct steps *p)
{
    vka_tensor_destroy(&p->in);
    vka_tensor_destroy(&p->out);
    vka_tensor_destroy(&p->bias);
    for (int i = 0; i < 4; i++) {
        vka_tensor_destroy(&p->heads[i]);
        vka_tensor_destroy(&p->split[i]);
        vka_tensor_destroy(&p->flat[i]);
    }
    vka_tensor_destroy(&p->weight[0]);
    vka_tensor_destroy(&p->weight[1]);
}

/* The layer of info_of by linear and attention operations with quantised activations. */
static void *run_steps(enum vka_dtype dtype, const struct weights *w, const float *bias,
                       const float *x)
{
    struct steps p = {0};
    struct vka_plan *plan = NULL;
    open_steps(dtype, w, bias, &p);
    check(vka_plan_create(device, NULL, &plan));
    for (int i = 0; i < 3; i++) {
        struct vka_tensor *slice = NULL; /* values have as many biases as rows */
        check(vka_tensor_slice(p.bias, 0, 0, i == 0 ? ROWS : KV_HEADS * DIM, &slice));
        check(vka_plan_add_linear(plan,
                                  VKA_INFO(vka_linear_op, .input = p.in, .weight = p.weight[i > 0],
                                           .bias = i == 1 ? NULL : slice, .output = p.flat[i],
                                           .activations = VKA_I8)));
        vka_tensor_destroy(&slice);
    }
    check(vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = p.heads[0], .k = p.heads[1],
                                                .v = p.heads[2], .output = p.heads[3],
                                                .options.causal = true)));
    check(vka_plan_add_linear(plan,
                              VKA_INFO(vka_linear_op, .input = p.flat[3], .weight = p.weight[0],
                                       .bias = p.bias, .output = p.out, .activations = VKA_I8)));
    check(vka_plan_finish(plan));
    check(vka_tensor_write(p.in, x, vka_tensor_size(p.in)));
    check(vka_plan_run(plan, PATIENCE));
    void *y = malloc(vka_tensor_size(p.out));
    assert_non_null(y);
    check(vka_tensor_read(p.out, y, vka_tensor_size(p.out)));
    vka_plan_destroy(&plan);
    close_steps(&p);
    return y;
}

/* Quantised activations: the bits of the operations that make up the layer, not those of float
 * activations, but near them: the errors of two products add up. */
static void test_activations(void **state)
{
    (void)state;
    static const enum vka_dtype types[] = {VKA_Q8_0, VKA_Q4_0, VKA_Q4_K};
    float x[BATCH * N_Q * WIDTH], bias[ROWS];
    draw_inputs(8, x, bias);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct weights w = draw(types[t], t + 11);
        struct vka_layer_info info = info_of(types[t], w.blocks, bias);
        void *got = run(&info, VKA_F32, VKA_I8, x), *want = run_steps(types[t], &w, bias, x);
        void *floats = run(&info, VKA_F32, VKA_F32, x);
        assert_memory_equal(got, want, sizeof(float) * BATCH * N_Q * ROWS);
        const double nmse = difference(got, floats);
        print_message("%s, quantised activations: row NMSE %.2g\n", vka_dtype_name(types[t]), nmse);
        assert_true(nmse > 1e-7 && nmse < 5e-4);
        free(got);
        free(want);
        free(floats);
        free(w.x);
        free(w.blocks);
    }
    struct weights w = draw(VKA_Q8_0, 1);
    struct vka_layer_info plain = info_of(VKA_F32, w.x, bias);
    struct vka_layer *layer = NULL;
    struct steps p = {0};
    struct vka_plan *plan = NULL;
    open_steps(VKA_Q8_0, &w, bias, &p);
    check(vka_layer_create(device, &plain, &layer));
    check(vka_plan_create(device, NULL, &plan));
    assert_int_equal(vka_plan_add_layer(plan, VKA_INFO(vka_layer_op, .layer = layer, .query = p.in,
                                                       .output = p.out, .activations = VKA_I8)),
                     VKA_INVALID);
    assert_non_null(strstr(vka_device_error(device), "activations is i8, but weight is f32"));
    vka_plan_destroy(&plan);
    vka_layer_destroy(&layer);
    close_steps(&p);
    free(w.x);
    free(w.blocks);
}

static void refuse(const struct vka_layer_info *info, const char *words)
{
    struct vka_layer *layer = NULL;
    assert_int_equal(vka_layer_create(device, info, &layer), VKA_INVALID);
    assert_null(layer);
    if (!strstr(vka_device_error(device), words))
        fail_msg("'%s' is not in '%s'", words, vka_device_error(device));
}

static void test_refused(void **state)
{
    (void)state;
    struct weights w = draw(VKA_Q8_0, 1);
    struct vka_layer_info info = info_of(VKA_Q8_0, w.blocks, NULL);
    info.query_dim = 240;
    refuse(&info, "query_dim is 240, not whole blocks of 32");
    info = info_of(VKA_Q8_0, w.blocks, NULL);
    info.quantise = VKA_Q4_0;
    refuse(&info, "quantise is given, but the weights are q8_0");
    info = info_of(VKA_F32, w.x, NULL);
    info.quantise = VKA_MXFP4;
    refuse(&info, "quantise is mxfp4");
    info.quantise = VKA_Q8_0;
    w.x[WIDTH + 5] = (float)(0.0 / (w.x[0] - w.x[0]));
    refuse(&info, "row 1 of a weight has NaN");
    ((uint8_t *)w.blocks)[1] = 0x7c; /* an infinite scale */
    info = info_of(VKA_Q8_0, w.blocks, NULL);
    refuse(&info, "scale");
    free(w.x);
    free(w.blocks);
}

TEST_PROGRAM(layer_quantised)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types),
                                       cmocka_unit_test(test_activations),
                                       cmocka_unit_test(test_refused)};
    if (vka_device_create(NULL, &device) != VKA_OK)
        return 77;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
