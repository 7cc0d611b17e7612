/* What breaks attention elsewhere: huge and equal logits, windows at the end of the numbers, and
 * NaN or Inf behind a mask. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <vkattn/vkattn.h>

#include "patience.h"
#include "problems/limits.h"
#include "reference/reference.h"
#include "test_program.h"
#include "problems/rng.h"

enum { HEADS = 2, N_Q = 6, N_KV = 20, DIM = 8, Q = HEADS * N_Q * DIM, KV = HEADS * N_KV * DIM };

#define SCALE 0.5f /* a power of two, so that huge logits are exact */

static struct vka_device *device;

static void check(enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

/* One recorded attention over q [1][HEADS][N_Q][DIM] and N_KV keys, with every kind of mask. */
struct rig {
    struct vka_tensor *q, *k, *v, *o, *mask, *length, *sink;
    struct vka_plan *plan;
};

enum hiding { NOTHING, MASKED, FAR_WINDOW, FARTHEST_WINDOW, SINK };

static struct rig open_rig(enum vka_path path, enum hiding hiding)
{
    struct rig r = {0};
    const uint32_t q[] = {1, HEADS, N_Q, DIM}, kv[] = {1, HEADS, N_KV, DIM};
    check(vka_tensor_create(device, VKA_F32, 4, q, &r.q));
    check(vka_tensor_create(device, VKA_F32, 4, kv, &r.k));
    check(vka_tensor_create(device, VKA_F32, 4, kv, &r.v));
    check(vka_tensor_create(device, VKA_F32, 4, q, &r.o));
    check(vka_tensor_create(device, VKA_BOOL, 3, (const uint32_t[]){HEADS, N_Q, N_KV}, &r.mask));
    check(vka_tensor_create(device, VKA_I32, 1, (const uint32_t[]){1}, &r.length));
    check(vka_tensor_create(device, VKA_F32, 1, (const uint32_t[]){HEADS}, &r.sink));
    check(vka_plan_create(device, VKA_INFO(vka_plan_info, .path = path), &r.plan));
    struct vka_attention_op op = {
        .struct_size = sizeof op, .q = r.q, .k = r.k, .v = r.v, .output = r.o};
    op.options.scale = SCALE;
    if (hiding == MASKED) {
        op.options.mask = r.mask;
        op.options.kv_length = r.length;
    } else if (hiding == SINK) {
        op.options.sink = r.sink;
    } else if (hiding != NOTHING) {
        op.options.query_offset = r.length;
        op.options.window = true;
        op.options.window_left = hiding == FAR_WINDOW ? 1 << 30 : INT32_MAX;
        op.options.window_right = op.options.window_left;
    }
    check(vka_plan_add_attention(r.plan, &op));
    check(vka_plan_finish(r.plan));
    return r;
}

static void close_rig(struct rig *r)
{
    struct vka_tensor *all[] = {r->q, r->k, r->v, r->o, r->mask, r->length, r->sink};
    vka_plan_destroy(&r->plan);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vka_tensor_destroy(&all[i]);
}

static void run(struct rig *r, const float *q, const float *k, const float *v, float *o)
{
    check(vka_tensor_write(r->q, q, Q * sizeof *q));
    check(vka_tensor_write(r->k, k, KV * sizeof *k));
    check(vka_tensor_write(r->v, v, KV * sizeof *v));
    check(vka_plan_run(r->plan, PATIENCE)); /* the first run compiles */
    check(vka_tensor_read(r->o, o, Q * sizeof *o));
}

static void noise(struct rng *rng, float *x, size_t n, double scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)rng_uniform(rng, -scale, scale);
}

/* The worst row's NMSE against the oracle. */
static double error_of(const float *q, const float *k, const float *v, const float *o,
                       bool from_diagonal)
{
    static double dq[Q], dk[KV], dv[KV], got[Q], want[Q];
    for (size_t i = 0; i < Q; i++)
        dq[i] = (double)q[i], got[i] = (double)o[i];
    for (size_t i = 0; i < KV; i++)
        dk[i] = (double)k[i], dv[i] = (double)v[i];
    const struct ref_attention a = {.batch = 1,
                                    .n_head = HEADS,
                                    .n_kv_head = HEADS,
                                    .n_q = N_Q,
                                    .n_kv = N_KV,
                                    .head_dim = DIM,
                                    .value_dim = DIM,
                                    .q = dq,
                                    .k = dk,
                                    .v = dv,
                                    .scale = SCALE,
                                    .window = from_diagonal,
                                    .window_right = -1,
                                    .context = want};
    assert_int_equal(ref_attention(&a), VKA_OK);
    return ref_row_nmse(got, want, HEADS * N_Q, DIM, NULL);
}

static void test_logits(void **state)
{
    (void)state;
    static float q[Q], k[KV], v[KV], o[Q];
    for (enum vka_path path = VKA_PATH_UNFUSED; path <= VKA_PATH_FUSED; path++) {
        struct rig r = open_rig(path, NOTHING);
        struct rng rng = {7};
        noise(&rng, v, KV, 1);
        /* Equal logits of 0, then of about 1e4: the mean of v, not NaN. */
        for (int huge = 0; huge < 2; huge++) {
            for (size_t i = 0; i < Q; i++)
                q[i] = huge ? 64 : 0;
            for (size_t i = 0; i < KV; i++)
                k[i] = huge ? 64 : 1;
            run(&r, q, k, v, o);
            assert_true(error_of(q, k, v, o, false) <= 1e-11);
        }
        /* Logits of +-1e4 all over, of integers, so that float32 holds them exactly: the rounding
         * of a logit of 1e4 would be an error of its own. */
        for (int round = 0; round < 50; round++) {
            for (size_t i = 0; i < Q; i++)
                q[i] = (float)((int)rng_range(&rng, 0, 128) - 64);
            for (size_t i = 0; i < KV; i++)
                k[i] = (float)((int)rng_range(&rng, 0, 128) - 64);
            run(&r, q, k, v, o);
            assert_true(error_of(q, k, v, o, false) <= 1e-11);
        }
        close_rig(&r);
    }
}

/* NaN or Inf in one key or value, hidden from some rows by the mask or from all by the length: rows
 * that do not see it keep their bits, and a row that sees NaN in a value shows it. */
static void place(struct rig *r, struct rng *rng, uint32_t *hidden_rows)
{
    static float q[Q], k[KV], v[KV], clean[Q], got[Q];
    static uint8_t mask[HEADS * N_Q * N_KV];
    static const float poisons[] = {NAN, INFINITY, -INFINITY};
    noise(rng, q, Q, 2);
    noise(rng, k, KV, 2);
    noise(rng, v, KV, 2);
    for (size_t i = 0; i < sizeof mask; i++)
        mask[i] = rng_chance(rng, 60);
    int32_t length = (int32_t)rng_range(rng, 0, N_KV);
    check(vka_tensor_write(r->mask, mask, sizeof mask));
    check(vka_tensor_write(r->length, &length, sizeof length));
    run(r, q, k, v, clean);

    uint32_t head = rng_range(rng, 0, HEADS - 1), key = rng_range(rng, 0, N_KV - 1);
    size_t at = ((size_t)head * N_KV + key) * DIM + rng_range(rng, 0, DIM - 1);
    bool in_value = rng_chance(rng, 50);
    float poison = poisons[rng_range(rng, 0, 2)];
    (in_value ? v : k)[at] = poison;
    run(r, q, k, v, got);
    for (uint32_t row = 0; row < HEADS * N_Q; row++) {
        bool sees = row / N_Q == head && (int32_t)key < length && mask[row * N_KV + key];
        const float *c = clean + row * DIM, *g = got + row * DIM;
        *hidden_rows += !sees;
        if (!sees && memcmp(c, g, DIM * sizeof *c) != 0)
            fail_msg("%f in %s of head %u, key %u leaked to row %u", (double)poison,
                     in_value ? "the value" : "the key", head, key, row);
        if (sees && in_value && isnan(poison))
            assert_true(isnan(g[at % DIM]));
    }
}

static void test_placements(void **state)
{
    (void)state;
    for (enum vka_path path = VKA_PATH_UNFUSED; path <= VKA_PATH_FUSED; path++) {
        struct rig r = open_rig(path, MASKED);
        struct rng rng = {11};
        uint32_t hidden_rows = 0;
        for (int i = 0; i < 2000; i++)
            place(&r, &rng, &hidden_rows);
        print_message("path %d: 2000 placements, %u rows that must not notice, 0 leaks\n",
                      (int)path, hidden_rows);
        close_rig(&r);
    }
}

/* Positions and windows as far out as they go, where nothing overflows: offsets are clamped to
 * +-2^30. By a window of 2^30 query i, at 2^30 + i, sees the keys from i on; by a larger one
 * all. */
static void test_far_windows(void **state)
{
    (void)state;
    static const struct {
        enum hiding hiding;
        int32_t offset;
        bool from_row; /* sees keys from i on, not all */
    } cases[] = {{FAR_WINDOW, INT32_MAX, true},
                 {FARTHEST_WINDOW, INT32_MAX, false},
                 {FARTHEST_WINDOW, INT32_MIN, false}};
    static float q[Q], k[KV], v[KV], o[Q];
    struct rng rng = {13};
    noise(&rng, q, Q, 2);
    noise(&rng, k, KV, 2);
    noise(&rng, v, KV, 2);
    for (int i = 0; i < 6; i++) {
        struct rig r = open_rig(i % 2 ? VKA_PATH_FUSED : VKA_PATH_UNFUSED, cases[i / 2].hiding);
        check(vka_tensor_write(r.length, &cases[i / 2].offset, sizeof(int32_t)));
        run(&r, q, k, v, o);
        assert_true(error_of(q, k, v, o, cases[i / 2].from_row) <= 1e-11);
        close_rig(&r);
    }
}

/* A sink of +inf takes all, one of -inf nothing, and one far above leaves what float32 holds. */
static void test_sinks(void **state)
{
    (void)state;
    static const float sinks[][HEADS] = {{INFINITY, INFINITY}, {-INFINITY, -INFINITY}, {60, 200}};
    static float q[Q], k[KV], v[KV], o[Q], fused[Q];
    struct rng rng = {14};
    noise(&rng, k, KV, 1);
    noise(&rng, v, KV, 1);
    for (int i = 0; i < 6; i++) {
        struct rig r = open_rig(i % 2 ? VKA_PATH_UNFUSED : VKA_PATH_FUSED, SINK);
        check(vka_tensor_write(r.sink, sinks[i / 2], sizeof sinks[0]));
        run(&r, q, k, v, i % 2 ? o : fused);
        if (i == 2 || i == 3) /* q is 0: the mean */
            assert_true(error_of(q, k, v, i % 2 ? o : fused, false) <= 1e-11);
        for (int e = 0; e < Q && i % 2; e++) {
            assert_true(isfinite(o[e]) && isfinite(fused[e]));
            assert_true(fabsf(o[e] - fused[e]) <= 1e-5f * fabsf(o[e]));
            assert_true((i != 1 && !(i == 5 && e >= Q / HEADS)) || o[e] == 0);
        }
        close_rig(&r);
    }
}

/* The mean of values near the greatest float32 is one, though their sum is none. */
static void test_greatest(void **state)
{
    (void)state;
    static float q[Q], k[KV], v[KV], o[Q];
    for (int e = 0; e < KV; e++)
        v[e] = e % 2 ? 0.9f * FLT_MAX : -0.9f * FLT_MAX;
    for (int i = 0; i < 2; i++) {
        struct rig r = open_rig(i ? VKA_PATH_FUSED : VKA_PATH_UNFUSED, NOTHING);
        run(&r, q, k, v, o);
        for (int e = 0; e < Q; e++)
            assert_true(fabsf(o[e] / v[e % 2]) > 0.99999f && fabsf(o[e]) <= FLT_MAX);
        close_rig(&r);
    }
}

TEST_PROGRAM(extremes)
{
    const struct vka_device_info info = limits_info(*VKA_INFO(vka_device_info, .device = NULL));
    if (vka_device_create(&info, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no extreme values were tested\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),     cmocka_unit_test(test_far_windows),
        cmocka_unit_test(test_sinks),      cmocka_unit_test(test_greatest),
        cmocka_unit_test(test_placements),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
