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

#define TIMEOUT (20 * VKA_TIMEOUT_DEFAULT) /* CPU drivers compile */
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
    check(device, vka_plan_run(plan, TIMEOUT));
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

/* One query of zeros: the context is the mean of the values, v[j][d] = (j + d) / n_kv. dead: no key
 * is seen, and the answer is to be that mean all the same. */
static const struct mean {
    enum vka_path path;
    uint32_t n_kv, head_dim, value_dim;
    bool dead, scores;
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
    struct vka_tensor *length = NULL, *scores = m->scores ? tensor(device, 4, s_size) : NULL;
    struct vka_plan *plan = NULL;
    size_t most = (size_t)m->n_kv * (m->head_dim > m->value_dim ? m->head_dim : m->value_dim);
    float *data = calloc(most, sizeof *data);
    double *want = calloc(m->n_kv + m->value_dim, sizeof *want), sum = 0;
    int32_t none = 0;
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
    check(device, vka_tensor_create(device, VKA_I32, 1, &one, &length));
    check(device, vka_tensor_write(length, &none, sizeof none));
    check(device, vka_plan_create(device, VKA_INFO(vka_plan_info, .path = m->path), &plan));
    check(
        device,
        vka_plan_add_attention(
            plan, VKA_INFO(vka_attention_op, .q = q, .k = k, .v = v, .output = o,
                           .options.kv_length = m->dead ? length : NULL,
                           .options.masked_row = VKA_MASKED_UNIFORM, .options.scores = scores,
                           .options.scores_kind = scores ? VKA_SCORES_SOFTMAX : VKA_SCORES_NONE)));
    run(device, plan);
    check(device, vka_tensor_read(o, data, vka_tensor_size(o)));
    double error = nmse(data, want, m->value_dim);
    print_message("%s, %u keys of %u/%u%s: %.1e\n", m->path == VKA_PATH_FUSED ? "fused" : "unfused",
                  m->n_kv, m->head_dim, m->value_dim, m->dead ? ", none seen" : "", error);
    assert_true(error <= NMSE);
    if (scores) {
        check(device, vka_tensor_read(scores, data, vka_tensor_size(scores)));
        for (uint32_t j = 0; j < m->n_kv; j++)
            sum += data[j];
        assert_true(fabs(sum - 1) < 1e-6);
    }
    vka_plan_destroy(&plan);
    struct vka_tensor *all[] = {q, k, v, o, length, scores};
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

int main(void)
{
    struct vka_device *device = NULL;
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no lengths were tested\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(mean_of_values, device),
                                       cmocka_unit_test_prestate(ramp, device)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
