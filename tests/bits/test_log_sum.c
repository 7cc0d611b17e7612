/* log_sum_exp of attention: scores at the ends of the range in every kernel, ragged batches, key
 * key chunks and caches; slices of the keys merged by it. Everything else of it is
 * drawn by problem.h, for check_kernels and the test random.
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <vkattn/vkattn_model.h>

#include <gpu/device.h>
#include <reference/reference.h>

#include "log_sum.h"
#include "log_sum_range.h"
#include "problems/cache_soil.h"
#include "test_program.h"

/* ---- Ragged batches, key chunks, caches ------------------------------------------------------ */

enum { N_Q = 70, N_KV = 300, G = 2 }; /* two query heads of each of two key heads */

struct rows {
    struct operand q, k, v, output, log_sum;
};

static void make_rows(struct vka_device *device, struct rows *r, uint32_t n_q, uint32_t n_kv)
{
    struct operand *in[] = {&r->q, &r->k, &r->v};
    struct rng rng = {5};
    log_sum_operand(device, &r->q, VKA_F32, 4, (const uint32_t[]){1, 2 * G, n_q, 32});
    log_sum_operand(device, &r->k, VKA_F32, 4, (const uint32_t[]){1, G, n_kv, 32});
    log_sum_operand(device, &r->v, VKA_F32, 4, (const uint32_t[]){1, G, n_kv, 32});
    log_sum_operand(device, &r->output, VKA_F32, 4, (const uint32_t[]){1, 2 * G, n_q, 32});
    log_sum_operand(device, &r->log_sum, VKA_F32, 3, (const uint32_t[]){1, 2 * G, n_q});
    for (int i = 0; i < 3; i++) {
        for (size_t j = 0; j < in[i]->count; j++) /* whole blocks of Q8_0: nothing is rounded */
            in[i]->values[j] = (j % 32 ? (int)rng_range(&rng, 0, 254) - 127 : 127) / 64.0;
        log_sum_check(device, operand_write(in[i]));
    }
    log_sum_check(device, operand_write_noise(&r->log_sum, &rng));
}

static void free_rows(struct rows *r)
{
    struct operand *all[] = {&r->q, &r->k, &r->v, &r->output, &r->log_sum};
    for (int i = 0; i < 5; i++)
        operand_destroy(all[i]);
}

/* Copies the rows' log-sum-exps to want, and overwrites them on the device. */
static void take(struct vka_device *device, struct rows *r, double *want)
{
    log_sum_check(device, operand_read(&r->log_sum));
    memcpy(want, r->log_sum.values, r->log_sum.count * sizeof *want);
    log_sum_check(device, operand_write_noise(&r->log_sum, &(struct rng){9}));
}

/* Rows first .. first + n - 1 against keys key .. key + n_kv - 1, alone. */
static void attend_alone(struct vka_device *device, struct rows *r, uint32_t first, uint32_t n,
                         uint32_t key, uint32_t n_kv)
{
    struct vka_tensor *const whole[] = {r->q.view, r->k.view, r->v.view, r->output.view,
                                        r->log_sum.view};
    struct vka_tensor *t[5];
    struct vka_plan *plan = log_sum_plan(device, VKA_PATH_AUTO);
    for (int i = 0; i < 5; i++) {
        bool keys = i == 1 || i == 2;
        log_sum_check(device,
                      vka_tensor_slice(whole[i], 2, keys ? key : first, keys ? n_kv : n, &t[i]));
    }
    log_sum_check(device, vka_plan_add_attention(
                              plan, VKA_INFO(vka_attention_op, .q = t[0], .k = t[1], .v = t[2],
                                             .output = t[3], .options.log_sum_exp = t[4])));
    log_sum_run(device, &plan);
    for (int i = 0; i < 5; i++)
        vka_tensor_destroy(&t[i]);
}

static void expect(const struct operand *log_sum, const double *want, double error)
{
    for (size_t i = 0; i < log_sum->count; i++)
        if (!(fabs(log_sum->values[i] - want[i]) <= error * (1 + fabs(want[i]))))
            fail_msg("row %zu: %.9g, not %.9g", i, log_sum->values[i], want[i]);
}

/* Rows of no sequence keep what they had; the sequence between has queries, but no key. */
static void ragged(void **state)
{
    struct vka_device *device = *state;
    static const int32_t q_starts[] = {2, 3, 9, 9, 60}, kv_starts[] = {5, 40, 40, 40, 290};
    const uint32_t n = 5;
    struct rows r;
    struct vka_tensor *q_start = NULL, *kv_start = NULL;
    double want[2 * G * N_Q];
    make_rows(device, &r, N_Q, N_KV);
    log_sum_check(device, operand_read(&r.log_sum));
    attend_alone(device, &r, 2, 1, 5, 35);
    attend_alone(device, &r, 9, 51, 40, 250);
    take(device, &r, want);
    log_sum_check(device, operand_read(&r.log_sum));
    for (size_t i = 0; i < r.log_sum.count; i++) {
        bool between = i % N_Q >= 3 && i % N_Q < 9, none = i % N_Q < 2 || i % N_Q >= 60;
        want[i] = between ? -INFINITY : none ? r.log_sum.values[i] : want[i];
    }
    log_sum_check(device, vka_tensor_create(device, VKA_I32, 1, &n, &q_start));
    log_sum_check(device, vka_tensor_create(device, VKA_I32, 1, &n, &kv_start));
    log_sum_check(device, vka_tensor_write(q_start, q_starts, sizeof q_starts));
    log_sum_check(device, vka_tensor_write(kv_start, kv_starts, sizeof kv_starts));
    for (uint32_t whole = 1; whole <= N_Q; whole += N_Q - 1) { /* kernels for few and many rows */
        struct vka_plan *plan = NULL;
        log_sum_check(device, vka_plan_create(device,
                                              VKA_INFO(vka_plan_info, .path = VKA_PATH_FUSED,
                                                       .whole_n_q = whole),
                                              &plan));
        log_sum_check(device, vka_plan_add_attention(
                                  plan, VKA_INFO(vka_attention_op, .q = r.q.view, .k = r.k.view,
                                                 .v = r.v.view, .output = r.output.view,
                                                 .q_start = q_start, .kv_start = kv_start,
                                                 .options.log_sum_exp = r.log_sum.view)));
        log_sum_run(device, &plan);
        log_sum_check(device, operand_read(&r.log_sum));
        for (size_t i = 0; i < r.log_sum.count; i++) {
            double got = r.log_sum.values[i];
            if (got != want[i] && !(fabs(got - want[i]) <= LOG_SUM_ERROR * (1 + fabs(want[i]))))
                fail_msg("row %zu: %.9g, not %.9g", i, got, want[i]);
        }
        log_sum_check(device, operand_write_noise(&r.log_sum, &(struct rng){9}));
    }
    vka_tensor_destroy(&q_start);
    vka_tensor_destroy(&kv_start);
    free_rows(&r);
}

static struct vka_plan *fused_plan(struct vka_device *device, uint32_t whole_n_q)
{
    struct vka_plan *plan = NULL;
    log_sum_check(device, vka_plan_create(device,
                                          VKA_INFO(vka_plan_info, .path = VKA_PATH_FUSED,
                                                   .whole_n_q = whole_n_q),
                                          &plan));
    return plan;
}

/* False where the device splits the keys of these rows, and so takes no key chunks of them. */
static bool run_key_chunks(struct vka_device *device, uint32_t whole_n_q)
{
    struct rows r;
    struct vka_tensor *carried = NULL;
    struct vka_plan *plan = fused_plan(device, whole_n_q);
    double want[2 * G * N_Q];
    uint64_t count = 0;
    make_rows(device, &r, N_Q, N_KV);
    struct vka_attention_op op = {.struct_size = sizeof op,
                                  .q = r.q.view,
                                  .k = r.k.view,
                                  .v = r.v.view,
                                  .output = r.output.view,
                                  .options.log_sum_exp = r.log_sum.view};
    log_sum_check(device, vka_plan_add_attention(plan, &op));
    log_sum_run(device, &plan);
    take(device, &r, want);
    for (uint32_t first = 0; first < N_KV; first += 128) {
        uint32_t n = N_KV - first < 128 ? N_KV - first : 128, n_state;
        plan = fused_plan(device, whole_n_q);
        op.key_first = first;
        op.n_key = N_KV;
        log_sum_check(device, vka_tensor_slice(r.k.view, 2, first, n, &op.k));
        log_sum_check(device, vka_tensor_slice(r.v.view, 2, first, n, &op.v));
        log_sum_check(device, vka_plan_attention_state(plan, &op, &count));
        n_state = count ? (uint32_t)count : 1;
        if (!carried)
            log_sum_check(device, vka_tensor_create(device, VKA_F32, 1, &n_state, &carried));
        op.state = carried;
        if (count) {
            log_sum_check(device, vka_plan_add_attention(plan, &op));
            log_sum_run(device, &plan);
        } else {
            assert_int_equal(vka_plan_add_attention(plan, &op), VKA_UNSUPPORTED);
            vka_plan_destroy(&plan);
        }
        vka_tensor_destroy(&op.k);
        vka_tensor_destroy(&op.v);
        if (!count)
            break;
        log_sum_check(device, operand_read(&r.log_sum));
        assert_true(first + n == N_KV || r.log_sum.values[0] != want[0]);
    }
    if (count)
        expect(&r.log_sum, want, 0);
    vka_tensor_destroy(&carried);
    free_rows(&r);
    return count > 0;
}

/* Only the last key chunk writes, the bits of all keys at once. GPUs split the keys of as few rows as are
 * here, but not of a slice of many. */
static void key_chunks(void **state)
{
    struct vka_device *device = *state;
    const bool cpu = vka_device_properties(device)->type == VKA_DEVICE_CPU;
    assert_true(run_key_chunks(device, 0) || !cpu);
    assert_true(run_key_chunks(device, 1u << 20));
}

static void caches(void **state)
{
    struct vka_device *device = *state;
    static const enum vka_dtype types[] = {VKA_F32, VKA_Q8_0};
    struct rows r;
    double want[2 * G * N_Q];
    for (uint32_t n_q = 1; n_q <= N_Q; n_q += N_Q - 1)
        for (int i = 0; i < 4; i++) {
            struct vka_cache *cache = NULL;
            struct vka_plan *plan = log_sum_plan(device, VKA_PATH_AUTO);
            make_rows(device, &r, n_q, N_KV);
            attend_alone(device, &r, 0, n_q, 0, N_KV);
            take(device, &r, want);
            log_sum_check(device,
                          vka_cache_create(
                              device,
                              VKA_INFO(vka_cache_info, .batch = 1, .n_kv_head = G, .head_dim = 32,
                                       .capacity = 320, .key_dtype = types[i / 2],
                                       .value_dtype = types[i / 2], .page_size = i % 2 ? 16 : 0),
                              &cache));
            cache_soil_new(cache);
            log_sum_check(device,
                          vka_plan_add_attention(
                              plan, VKA_INFO(vka_attention_op, .q = r.q.view, .k = r.k.view,
                                             .v = r.v.view, .output = r.output.view, .cache = cache,
                                             .options.log_sum_exp = r.log_sum.view)));
            log_sum_run(device, &plan);
            log_sum_check(device, operand_read(&r.log_sum));
            expect(&r.log_sum, want, LOG_SUM_ERROR);
            vka_cache_destroy(&cache);
            free_rows(&r);
        }
}

/* ---- Merging --------------------------------------------------------------------------------- */

/* Attention over keys cut in n_slice slices, merged, against attention over all keys. */
static void merge_slices(struct vka_device *device, enum vka_path path, uint32_t n_slice)
{
    enum { MOST = 5 };
    struct vka_tensor *context[MOST], *log_sum[MOST], *k[MOST], *v[MOST];
    struct rows r;
    struct rng rng = {n_slice};
    double *want = calloc(2 * G * N_Q * 32, sizeof *want), want_log_sum[2 * G * N_Q];
    struct vka_plan *plan = log_sum_plan(device, path);
    assert_non_null(want);
    make_rows(device, &r, N_Q, N_KV);
    struct ref_attention a = {.batch = 1, .n_head = 2 * G, .n_kv_head = G, .n_q = N_Q};
    a.n_kv = N_KV, a.head_dim = a.value_dim = 32, a.scale = (double)0.004f, a.causal = true;
    const int64_t offset = 40; /* some queries see no key of the last slices */
    a.query_offset = &offset, a.query_offset_count = 1;
    a.q = r.q.values, a.k = r.k.values, a.v = r.v.values;
    a.context = want, a.log_sum_exp = want_log_sum;
    assert_int_equal(ref_attention(&a), VKA_OK);
    struct operand offsets[MOST];
    for (uint32_t i = 0, first = 0; i < n_slice; i++) {
        uint32_t left = N_KV - first, n = left;
        if (i + 1 < n_slice)
            n = rng_range(&rng, 1, left - (n_slice - 1 - i) < 90 ? left - (n_slice - 1 - i) : 90);
        log_sum_operand(device, &offsets[i], VKA_I32, 1, (const uint32_t[]){1});
        offsets[i].values[0] = (double)offset - first;
        log_sum_check(device, operand_write(&offsets[i]));
        log_sum_check(device,
                      vka_tensor_create(device, VKA_F32, 4, (const uint32_t[]){1, 2 * G, N_Q, 32},
                                        &context[i]));
        log_sum_check(device, vka_tensor_create(device, VKA_F32, 3,
                                                (const uint32_t[]){1, 2 * G, N_Q}, &log_sum[i]));
        log_sum_check(device, vka_tensor_slice(r.k.view, 2, first, n, &k[i]));
        log_sum_check(device, vka_tensor_slice(r.v.view, 2, first, n, &v[i]));
        log_sum_check(device, vka_plan_add_attention(
                                  plan, VKA_INFO(vka_attention_op, .q = r.q.view, .k = k[i],
                                                 .v = v[i], .output = context[i],
                                                 .options = {.causal = true,
                                                             .scale = (float)a.scale,
                                                             .query_offset = offsets[i].view,
                                                             .masked_row = VKA_MASKED_NAN,
                                                             .log_sum_exp = log_sum[i]})));
        first += n;
    }
    log_sum_check(device, vka_plan_add_merge(
                              plan, VKA_INFO(vka_merge_op, .n_slice = n_slice, .slices = context,
                                             .log_sum_exps = log_sum, .output = r.output.view,
                                             .log_sum_exp = r.log_sum.view)));
    log_sum_run(device, &plan);
    log_sum_check(device, operand_read(&r.output));
    log_sum_check(device, operand_read(&r.log_sum));
    double nmse = ref_row_nmse(r.output.values, want, 2 * G * N_Q, 32, NULL);
    if (!(nmse <= 1e-11))
        fail_msg("%u slices: NMSE %g", n_slice, nmse);
    expect(&r.log_sum, want_log_sum, LOG_SUM_ERROR);
    for (uint32_t i = 0; i < n_slice; i++) {
        vka_tensor_destroy(&context[i]);
        vka_tensor_destroy(&log_sum[i]);
        vka_tensor_destroy(&k[i]);
        vka_tensor_destroy(&v[i]);
        operand_destroy(&offsets[i]);
    }
    free_rows(&r);
    free(want);
}

static void merged_keys(void **state)
{
    for (uint32_t n_slice = 1; n_slice <= 5; n_slice++)
        for (int path = VKA_PATH_UNFUSED; path <= VKA_PATH_FUSED; path++)
            merge_slices(*state, (enum vka_path)path, n_slice);
}

TEST_PROGRAM(log_sum)
{
    struct vka_device *device = NULL;
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no log-sum-exp was tested\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(log_sum_range, device), cmocka_unit_test_prestate(ragged, device),
        cmocka_unit_test_prestate(key_chunks, device), cmocka_unit_test_prestate(caches, device),
        cmocka_unit_test_prestate(merged_keys, device)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
