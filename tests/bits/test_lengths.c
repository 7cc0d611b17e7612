/* Long sums of known result. Mesa 22's CPU driver ends the loops of an invocation after 65,535
 * iterations in silence, and a float32 sum loses digits with its length: each of these was wrong.
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include <vkattn/vkattn.h>

#include "patience.h"
#include "test_program.h"

#define NMSE 1e-11

static void check(struct vka_device *device, enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

static struct vka_tensor *tensor(struct vka_device *device, uint32_t rank, const uint32_t *size)
{
    struct vka_tensor *t = NULL;
    check(device, vka_tensor_create(device, VKA_F32, rank, size, &t));
    return t;
}

static void run(struct vka_device *device, struct vka_plan *plan)
{
    check(device, vka_plan_finish(plan));
    check(device, vka_plan_run(plan, PATIENCE));
}

/* Squared error over squared size; NaN where an element is. */
static double nmse(const float *got, const double *want, size_t n)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    return error / size;
}

/* One query of zeros: the context is the mean of the values, v[j][d] = (j + d) / n_kv. masked: the
 * row is fully masked, and UNIFORM gives the same mean. */
static const struct mean {
    enum vka_path path;
    uint32_t n_kv, head_dim, value_dim;
    bool masked, scores;
} means[] = {
    {VKA_PATH_FUSED, 2048, 256, 256, false, false}, {VKA_PATH_FUSED, 2700, 132, 132, false, false},
    {VKA_PATH_FUSED, 2200, 128, 256, false, false}, {VKA_PATH_FUSED, 700, 576, 576, false, false},
    {VKA_PATH_FUSED, 5000, 64, 64, true, false},    {VKA_PATH_FUSED, 400000, 8, 8, false, false},
    {VKA_PATH_UNFUSED, 200000, 8, 4, false, false}, {VKA_PATH_UNFUSED, 200000, 8, 4, true, true},
};

static void check_mean(struct vka_device *device, const struct mean *m)
{
    const uint32_t q_size[4] = {1, 1, 1, m->head_dim}, k_size[4] = {1, 1, m->n_kv, m->head_dim};
    const uint32_t v_size[4] = {1, 1, m->n_kv, m->value_dim}, o_size[4] = {1, 1, 1, m->value_dim};
    const uint32_t s_size[4] = {1, 1, 1, m->n_kv}, one = 1;
    struct vka_tensor *q = tensor(device, 4, q_size), *k = tensor(device, 4, k_size);
    struct vka_tensor *v = tensor(device, 4, v_size), *o = tensor(device, 4, o_size);
    struct vka_tensor *mask = NULL, *scores = m->scores ? tensor(device, 4, s_size) : NULL;
    struct vka_plan *plan = NULL;
    size_t most = (size_t)m->n_kv * (m->head_dim > m->value_dim ? m->head_dim : m->value_dim);
    float *data = calloc(most, sizeof *data);
    double *want = calloc(m->n_kv + m->value_dim, sizeof *want), sum = 0;
    const uint8_t none = 0;
    assert_true(data && want);
    check(device, vka_tensor_write(q, data, vka_tensor_size(q)));
    check(device, vka_tensor_write(k, data, vka_tensor_size(k)));
    for (uint32_t j = 0; j < m->n_kv; j++)
        for (uint32_t d = 0; d < m->value_dim; d++) {
            float x = (float)(j + d) / (float)m->n_kv;
            data[(size_t)j * m->value_dim + d] = x;
            want[d] += (double)x / m->n_kv;
        }
    check(device, vka_tensor_write(v, data, vka_tensor_size(v)));
    check(device, vka_tensor_create(device, VKA_BOOL, 1, &one, &mask));
    check(device, vka_tensor_write(mask, &none, sizeof none));
    check(device, vka_plan_create(device, VKA_INFO(vka_plan_info, .path = m->path), &plan));
    check(
        device,
        vka_plan_add_attention(
            plan, VKA_INFO(vka_attention_op, .q = q, .k = k, .v = v, .output = o,
                           .options.mask = m->masked ? mask : NULL,
                           .options.masked_row = VKA_MASKED_UNIFORM, .options.scores = scores,
                           .options.scores_kind = scores ? VKA_SCORES_SOFTMAX : VKA_SCORES_NONE)));
    run(device, plan);
    check(device, vka_tensor_read(o, data, vka_tensor_size(o)));
    double error = nmse(data, want, m->value_dim);
    print_message("%s, %u keys of %u/%u%s: %.1e\n", m->path == VKA_PATH_FUSED ? "fused" : "unfused",
                  m->n_kv, m->head_dim, m->value_dim, m->masked ? ", fully masked" : "", error);
    assert_true(error <= NMSE);
    if (scores) {
        check(device, vka_tensor_read(scores, data, vka_tensor_size(scores)));
        for (uint32_t j = 0; j < m->n_kv; j++)
            sum += data[j];
        assert_true(fabs(sum - 1) < 1e-6);
    }
    vka_plan_destroy(&plan);
    struct vka_tensor *all[] = {q, k, v, o, mask, scores};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        vka_tensor_destroy(&all[i]);
    free(data);
    free(want);
}

static void mean_of_values(void **state)
{
    for (size_t i = 0; i < sizeof means / sizeof means[0]; i++)
        check_mean(*state, &means[i]);
}

/* input [m][k] of a ramp times weights of 1 and, in row 1, of 1 and -1 in turn. */
static void check_ramp(struct vka_device *device, uint32_t m, uint32_t k)
{
    const uint32_t a_size[2] = {m, k}, b_size[2] = {2, k}, c_size[2] = {m, 2};
    struct vka_tensor *a = tensor(device, 2, a_size), *b = tensor(device, 2, b_size);
    struct vka_tensor *c = tensor(device, 2, c_size);
    struct vka_plan *plan = NULL;
    size_t rows = m > 2 ? m : 2;
    float *data = calloc(rows * k, sizeof *data), got[64];
    double want[64] = {0};
    assert_true(data && 2 * m <= 64);
    for (size_t i = 0; i < (size_t)m * k; i++) {
        data[i] = (float)(i % k + 1) / (float)k;
        want[2 * (i / k)] += data[i];
        want[2 * (i / k) + 1] += i % k % 2 ? -data[i] : data[i];
    }
    check(device, vka_tensor_write(a, data, vka_tensor_size(a)));
    for (size_t i = 0; i < 2 * (size_t)k; i++)
        data[i] = i > k && (i - k) % 2 ? -1 : 1;
    check(device, vka_tensor_write(b, data, vka_tensor_size(b)));
    check(device, vka_plan_create(device, VKA_INFO(vka_plan_info, .path = VKA_PATH_AUTO), &plan));
    check(device,
          vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = a, .weight = b, .output = c)));
    run(device, plan);
    check(device, vka_tensor_read(c, got, 2 * m * sizeof *got));
    for (uint32_t i = 0; i < m; i++) {
        double error = nmse(got + 2 * i, want + 2 * i, 2);
        if (i == 0)
            print_message("product of %u x %u: %.1e\n", m, k, error);
        assert_true(error <= NMSE);
    }
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&a);
    vka_tensor_destroy(&b);
    vka_tensor_destroy(&c);
    free(data);
}

static void ramp(void **state)
{
    check_ramp(*state, 1, 300000);
    check_ramp(*state, 3, 1u << 22);
    check_ramp(*state, 32, 270001); /* B is packed */
}

/* Queries over keys of a pattern, by the fused path: the bits are the same however the keys
 * come. */
enum { N_Q = 3, N_KV = 40000, DIM = 8 };

struct operands {
    struct vka_tensor *q, *k, *v, *o;
};

static struct operands make_operands(struct vka_device *device)
{
    const uint32_t q[4] = {1, 1, N_Q, DIM}, kv[4] = {1, 1, N_KV, DIM};
    struct operands t = {tensor(device, 4, q), tensor(device, 4, kv), tensor(device, 4, kv),
                         tensor(device, 4, q)};
    struct vka_tensor *all[3] = {t.q, t.k, t.v};
    float *data = malloc((size_t)N_KV * DIM * sizeof *data);
    assert_non_null(data);
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t e = 0; e < N_KV * DIM; e++)
            data[e] = (float)((e * 2654435761u + i * 40503u) >> 16 & 0xff) / 128 - 1;
        check(device, vka_tensor_write(all[i], data, vka_tensor_size(all[i])));
    }
    free(data);
    return t;
}

static void free_operands(struct operands *t)
{
    vka_tensor_destroy(&t->q);
    vka_tensor_destroy(&t->k);
    vka_tensor_destroy(&t->v);
    vka_tensor_destroy(&t->o);
}

static struct vka_tensor *rows_of(struct vka_device *device, struct vka_tensor *t, uint32_t first,
                                  uint32_t count)
{
    struct vka_tensor *slice = NULL;
    check(device, vka_tensor_slice(t, 2, first, count, &slice));
    return slice;
}

static struct vka_plan *new_plan(struct vka_device *device)
{
    struct vka_plan *plan = NULL;
    check(device, vka_plan_create(device, VKA_INFO(vka_plan_info, .path = VKA_PATH_FUSED), &plan));
    return plan;
}

/* Queries and keys of a sequence of the operands, alone. */
static void attend(struct vka_device *device, const struct operands *t, uint32_t q_first,
                   uint32_t n_q, uint32_t kv_first, uint32_t n_kv, float *got)
{
    struct vka_tensor *q = rows_of(device, t->q, q_first, n_q);
    struct vka_tensor *o = rows_of(device, t->o, q_first, n_q);
    struct vka_tensor *k = rows_of(device, t->k, kv_first, n_kv);
    struct vka_tensor *v = rows_of(device, t->v, kv_first, n_kv);
    struct vka_plan *plan = new_plan(device);
    check(device, vka_plan_add_attention(
                      plan, VKA_INFO(vka_attention_op, .q = q, .k = k, .v = v, .output = o)));
    run(device, plan);
    check(device, vka_tensor_read(o, got, n_q * DIM * sizeof *got));
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&q);
    vka_tensor_destroy(&o);
    vka_tensor_destroy(&k);
    vka_tensor_destroy(&v);
}

static void blocks_of_keys(void **state)
{
    struct vka_device *device = *state;
    struct operands t = make_operands(device);
    struct vka_tensor *carried = NULL;
    struct vka_plan *plan = new_plan(device);
    float whole[N_Q * DIM], got[N_Q * DIM];
    attend(device, &t, 0, N_Q, 0, N_KV, whole);
    for (uint32_t first = 0, n = 10112; first < N_KV; first += n) { /* 79 times 128 */
        uint32_t count = N_KV - first < n ? N_KV - first : n;
        struct vka_tensor *k = rows_of(device, t.k, first, count);
        struct vka_tensor *v = rows_of(device, t.v, first, count);
        struct vka_attention_op op = {.struct_size = sizeof op, .q = t.q, .k = k, .v = v};
        uint64_t n_state = 0;
        op.output = t.o;
        op.key_first = first;
        op.n_key = N_KV;
        check(device, vka_plan_attention_state(plan, &op, &n_state));
        if (n_state == 0) { /* the keys of few rows are split */
            print_message("SKIPPED: no key chunks for so few rows on this device\n");
            vka_tensor_destroy(&k);
            vka_tensor_destroy(&v);
            break;
        }
        if (!carried)
            carried = tensor(device, 1, (const uint32_t[]){(uint32_t)n_state});
        op.state = carried;
        check(device, vka_plan_add_attention(plan, &op));
        vka_tensor_destroy(&k);
        vka_tensor_destroy(&v);
    }
    if (carried) {
        run(device, plan);
        check(device, vka_tensor_read(t.o, got, sizeof got));
        assert_memory_equal(got, whole, sizeof got);
    }
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&carried);
    free_operands(&t);
}

static void ragged(void **state)
{
    struct vka_device *device = *state;
    static const int32_t q_starts[] = {-2, 1, 1, N_Q + 2}; /* clamped, as those of the keys are */
    static const int32_t kv_starts[] = {INT32_MIN, 30000, 30100, INT32_MAX};
    const uint32_t n = 4;
    struct operands t = make_operands(device);
    struct vka_tensor *q_start = NULL, *kv_start = NULL;
    struct vka_plan *plan = new_plan(device);
    float alone[N_Q * DIM], got[N_Q * DIM] = {0};
    check(device, vka_tensor_create(device, VKA_I32, 1, &n, &q_start));
    check(device, vka_tensor_create(device, VKA_I32, 1, &n, &kv_start));
    check(device, vka_tensor_write(q_start, q_starts, sizeof q_starts));
    check(device, vka_tensor_write(kv_start, kv_starts, sizeof kv_starts));
    attend(device, &t, 0, 1, 0, 30000, alone);
    attend(device, &t, 1, 2, 30100, N_KV - 30100, alone + DIM);
    check(device, vka_tensor_write(t.o, got, sizeof got)); /* where attend() left rows */
    check(device, vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = t.q, .k = t.k,
                                                        .v = t.v, .output = t.o, .q_start = q_start,
                                                        .kv_start = kv_start)));
    run(device, plan);
    check(device, vka_tensor_read(t.o, got, sizeof got));
    for (int i = 0; i < N_Q * DIM; i++) /* kernels for few rows may cut the keys elsewhere */
        assert_true(fabsf(got[i] - alone[i]) <= 1e-6f);
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&q_start);
    vka_tensor_destroy(&kv_start);
    free_operands(&t);
}

TEST_PROGRAM(lengths)
{
    struct vka_device *device = NULL;
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no lengths were tested\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(mean_of_values, device),
                                       cmocka_unit_test_prestate(ramp, device),
                                       cmocka_unit_test_prestate(blocks_of_keys, device),
                                       cmocka_unit_test_prestate(ragged, device)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
