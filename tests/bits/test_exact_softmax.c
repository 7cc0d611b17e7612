/* exact_softmax: weights beside long double, in units of their last place, by both kernels; what is not
 * finite, as without it; and what is refused. SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "patience.h"
#include "gpu/device.h"
#include "kernel/softmax.h"
#include "kernel/tune.h"
#include "test_program.h"
#include "problems/rng.h"

#define HEADS 4
#define QUERIES 3
#define MOST_KEYS 20000
#define EXACT_ULPS 0.501
#define PLAIN_ULPS 0.6 /* which the plain softmax exceeds */

/* Head h has these scores, as q is 1; each query sees all keys but its last `hidden`. */
struct problem {
    uint32_t n_kv, hidden;
    bool sink;
};

static const struct problem problems[] = {
    {1, 0, false}, {7, 1, true}, {300, 90, false}, {MOST_KEYS, 3000, true}};

static struct vka_device *device;
static float keys[HEADS * MOST_KEYS], ones[HEADS * MOST_KEYS], sinks[HEADS] = {0, 9, -3, 0};
static float exact[HEADS * QUERIES * MOST_KEYS], plain[HEADS * QUERIES * MOST_KEYS];

static void check(enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s", vka_status_name(status), vka_device_error(device));
}

static struct vka_tensor *make(uint32_t a, uint32_t b, uint32_t c, uint32_t d, const void *data)
{
    struct vka_tensor *t = NULL;
    check(vka_tensor_create(device, VKA_F32, 4, (const uint32_t[]){a, b, c, d}, &t));
    if (data)
        check(vka_tensor_write(t, data, vka_tensor_size(t)));
    return t;
}

static uint32_t visible(const struct problem *p, uint32_t query)
{
    return p->n_kv - p->hidden * query / QUERIES;
}

/* The weights [head][query][n_kv]. */
static void weigh(const struct problem *p, bool exactly, float *weights)
{
    static float mask[QUERIES * MOST_KEYS];
    struct vka_tensor *sink = NULL;
    struct vka_plan *plan = NULL;
    for (uint32_t i = 0; i < QUERIES * p->n_kv; i++)
        mask[i] = i % p->n_kv < visible(p, i / p->n_kv) ? 0 : -INFINITY;
    struct vka_tensor *q = make(1, HEADS, QUERIES, 1, ones), *k = make(1, HEADS, p->n_kv, 1, keys);
    struct vka_tensor *v = make(1, HEADS, p->n_kv, 1, ones);
    struct vka_tensor *y = make(1, HEADS, QUERIES, 1, NULL);
    struct vka_tensor *scores = make(1, HEADS, QUERIES, p->n_kv, NULL);
    struct vka_tensor *hides = make(1, 1, QUERIES, p->n_kv, mask);
    check(vka_tensor_create(device, VKA_F32, 1, (const uint32_t[]){HEADS}, &sink));
    check(vka_tensor_write(sink, sinks, sizeof sinks));
    check(vka_plan_create(device, VKA_INFO(vka_plan_info, .path = VKA_PATH_UNFUSED), &plan));
    check(
        vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = q, .k = k, .v = v, .output = y,
                                              .options = {.scale = 1,
                                                          .mask = hides,
                                                          .sink = p->sink ? sink : NULL,
                                                          .exact_softmax = exactly,
                                                          .scores_kind = VKA_SCORES_SOFTMAX,
                                                          .scores = scores})));
    check(vka_plan_finish(plan));
    check(vka_plan_run(plan, PATIENCE));
    check(vka_tensor_read(scores, weights, vka_tensor_size(scores)));
    vka_plan_destroy(&plan);
    struct vka_tensor **all[] = {&q, &k, &v, &y, &scores, &hides, &sink};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vka_tensor_destroy(all[i]);
}

/* The furthest weight of a row, in units of the last place of float32. */
static double error_of(const struct problem *p, uint32_t head, uint32_t query, const float *weights)
{
    const float *s = keys + (size_t)head * p->n_kv;
    uint32_t n = visible(p, query);
    long double most = p->sink ? (long double)sinks[head] : -INFINITY, sum = 0;
    double worst = 0;
    for (uint32_t i = 0; i < n; i++)
        most = fmaxl(most, (long double)s[i]);
    for (uint32_t i = 0; i < n; i++)
        sum += expl((long double)s[i] - most);
    if (p->sink)
        sum += expl((long double)sinks[head] - most);
    for (uint32_t i = 0; i < p->n_kv; i++) {
        long double want = i < n ? expl((long double)s[i] - most) / sum : 0;
        long double off = fabsl((long double)weights[i] - want);
        if (want > 0x1p-100L) /* below, e^-87 is taken for 0 */
            worst = fmax(worst, (double)(off / exp2l((long double)(ilogbl(want) - 23))));
        else
            assert_true(off <= 0x1p-100L);
    }
    return worst;
}

static double worst_of(const struct problem *p, const float *weights)
{
    double worst = 0;
    for (uint32_t row = 0; row < HEADS * QUERIES; row++)
        worst =
            fmax(worst, error_of(p, row / QUERIES, row % QUERIES, weights + (size_t)row * p->n_kv));
    return worst;
}

/* Scores around 0, far apart, beside each other, and of one value. */
static void draw(uint32_t n_kv, struct rng *rng)
{
    for (uint32_t i = 0; i < HEADS * n_kv; i++) {
        static const double spread[HEADS] = {2, 60, 1e-3, 0};
        ones[i] = 1;
        keys[i] = (float)(rng_uniform(rng, -1, 1) * spread[i / n_kv] + 0.3);
    }
}

static void weights_are_rounded_once(void)
{
    struct rng rng = {3};
    double worst_plain = 0;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const struct problem *p = &problems[i];
        draw(p->n_kv, &rng);
        weigh(p, true, exact);
        weigh(p, false, plain);
        double ulps = worst_of(p, exact);
        worst_plain = fmax(worst_plain, worst_of(p, plain));
        print_message("%u keys: %.4f ulps, %.2f without\n", p->n_kv, ulps, worst_of(p, plain));
        assert_true(ulps <= EXACT_ULPS);
    }
    assert_true(worst_plain > PLAIN_ULPS);
}

/* One NaN, one +inf, all -inf: in heads 0 to 2. */
static void not_finite(void)
{
    const struct problem p = {9, 0, true};
    struct rng rng = {4};
    draw(p.n_kv, &rng);
    keys[2] = NAN;
    keys[p.n_kv + 3] = INFINITY;
    for (uint32_t i = 0; i < p.n_kv; i++)
        keys[2 * p.n_kv + i] = -INFINITY;
    for (int i = 0; i < 2; i++) {
        sinks[3] = i ? INFINITY : -INFINITY;
        weigh(&p, true, exact);
        weigh(&p, false, plain);
        for (uint32_t w = 0; w < HEADS * QUERIES * p.n_kv; w++)
            if (!isnan(exact[w]) != !isnan(plain[w]) || fabsf(exact[w] - plain[w]) > 1e-6f)
                fail_msg("weight %u is %g, not %g", w, (double)exact[w], (double)plain[w]);
    }
    sinks[3] = 0;
}

static void by_a_subgroup(void **state)
{
    (void)state;
    weights_are_rounded_once();
    not_finite();
}

static void by_shared_memory(void **state)
{
    (void)state;
    device->caps.without = KERNEL_SET(KERNEL_softmax_subgroup);
    weights_are_rounded_once();
    not_finite();
    device->caps.without = NO_KERNELS;
}

static enum vka_status add(enum vka_path path, struct vka_tensor *starts, uint32_t n_kv)
{
    struct vka_plan *plan = NULL;
    struct vka_tensor *q = make(1, 1, 2, 4, NULL), *k = make(1, 1, n_kv, 4, NULL);
    struct vka_tensor *y = make(1, 1, 2, 4, NULL);
    check(vka_plan_create(device, VKA_INFO(vka_plan_info, .path = path), &plan));
    enum vka_status status = vka_plan_add_attention(
        plan, VKA_INFO(vka_attention_op, .q = q, .k = k, .v = k, .output = y, .q_start = starts,
                       .kv_start = starts, .options.exact_softmax = true));
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&q);
    vka_tensor_destroy(&k);
    vka_tensor_destroy(&y);
    return status;
}

static void refused(enum vka_status status, const char *word)
{
    assert_int_equal(status, VKA_UNSUPPORTED);
    if (!strstr(vka_device_error(device), word))
        fail_msg("no \"%s\" in: %s", word, vka_device_error(device));
}

static void refusals(void **state)
{
    struct vka_tensor *starts = NULL;
    struct softmax_choice choice;
    (void)state;
    check(add(VKA_PATH_AUTO, NULL, 5));
    refused(add(VKA_PATH_FUSED, NULL, 5), "with the fused path");
    check(vka_tensor_create(device, VKA_I32, 1, (const uint32_t[]){3}, &starts));
    refused(add(VKA_PATH_AUTO, starts, 5), "with a ragged batch");
    vka_tensor_destroy(&starts);
    tune_softmax(&device->caps, 1, &choice);
    uint32_t most = choice.lanes * TUNE_CHAIN;
    check(add(VKA_PATH_AUTO, NULL, most));
    refused(add(VKA_PATH_AUTO, NULL, most + 1), "at most");
}

TEST_PROGRAM(exact_softmax)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_a_subgroup),
                                       cmocka_unit_test(by_shared_memory),
                                       cmocka_unit_test(refusals)};
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no softmax was compared\n");
        return 77;
    }
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return result;
}
