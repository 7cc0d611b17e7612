/* How long the submits of runs are that are cut for a time budget, and were predicted to be. Other
 * programs stretch what is measured, so a time that is too long is measured again, TRIES times.
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

#include "patience.h"
#include "budget_case.h"
#include "plan/plan.h"
#include "test_program.h"

#define RUNS 3
#define TRIES 20
#define MANY 131072 /* keys */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs the plan RUNS times after a first that may compile. The least milliseconds of each submit,
 * ascending: other programs stretch some runs. The caller frees them. */
static double *submit_times(struct vka_plan *plan)
{
    double *least = malloc(plan->n_submit * sizeof *least);
    assert_non_null(least);
    for (size_t i = 0; i < plan->n_submit; i++)
        least[i] = INFINITY;
    budget_check(plan->device, vka_plan_run(plan, PATIENCE));
    for (int run = 0; run < RUNS; run++) {
        budget_check(plan->device, vka_plan_run(plan, PATIENCE));
        for (size_t i = 0; i < plan->n_submit; i++) {
            double ms = 0;
            for (size_t j = plan->first[i]; j < plan->first[i + 1]; j++)
                ms += plan->gpu_ms[j];
            least[i] = fmin(least[i], ms);
        }
    }
    qsort(least, plan->n_submit, sizeof *least, compare_doubles);
    return least;
}

/* What the longest submit was predicted to take. */
static double predicted_ms(const struct vka_plan *plan)
{
    double longest = 0;
    for (size_t i = 0; i < plan->n_submit; i++) {
        double sum = 0;
        for (size_t j = plan->first[i]; j < plan->first[i + 1]; j++)
            sum += plan_time(plan, plan->passes[j].key.kernel, &plan->passes[j].work) * 1e-6;
        longest = fmax(longest, sum);
    }
    return longest;
}

/* Measures and prints how long the submits of a plan take. True where they are within twice the
 * budget; where other programs stretch all runs, where each is a fair fraction of the whole run in one
 * submit. */
static bool is_within(struct vka_plan *plan, struct vka_plan *whole, const char *name,
                      double budget_ms)
{
    double *ms = submit_times(plan), *one = submit_times(whole);
    size_t n = plan->n_submit;
    print_message("%s, budget %g ms: %zu submits, median %.3f ms, longest %.3f ms, predicted %.3f "
                  "ms; in one submit %.3f ms\n",
                  name, budget_ms, n, ms[n / 2], ms[n - 1], predicted_ms(plan), one[0]);
    bool within = ms[n / 2] <= fmax(2 * budget_ms, 4 * one[0] / (double)n);
    free(ms);
    free(one);
    return within;
}

/* No prediction is over the budget, and what runs take is near it. */
static void check_times(struct vka_plan *plan, struct vka_plan *whole, const char *name,
                        double budget_ms)
{
    bool within = false;
    assert_int_equal(whole->n_submit, 1);
    assert_true(predicted_ms(plan) <= budget_ms);
    for (int i = 0; i < TRIES && !within; i++)
        within = is_within(plan, whole, name, budget_ms);
    assert_true(within);
}

static void times_within_the_budget(void **state)
{
    struct vka_device *device = *state;
    static const uint64_t ms[] = {5, 20, 200};
    const struct budget_case p = {
        .batch = 1, .n_head = 4, .n_kv_head = 4, .n_q = 512, .n_kv = 512, .dim = 64};
    if (!device->caps.properties.timestamps)
        skip();
    struct budget_operands t = budget_operands_make(device, &p);
    size_t before = SIZE_MAX;
    struct vka_plan *whole = budget_plan(device, &p, &t, NULL, VKA_NO_BUDGET);
    for (size_t i = 0; i < sizeof ms / sizeof ms[0]; i++) {
        struct vka_plan *plan = budget_plan(device, &p, &t, NULL, ms[i] * 1000000);
        check_times(plan, whole, "4 heads of 512 x 512", (double)ms[i]);
        assert_true(plan->n_submit <= before);
        before = plan->n_submit;
        vka_plan_destroy(&plan);
    }
    vka_plan_destroy(&whole);
    budget_operands_free(&t);
}

/* Attention over MANY keys within the default budget, and the same bits as in one submit. */
static void check_many(struct vka_device *device, const char *name, const struct budget_case *p,
                       const struct budget_operands *t)
{
    const uint64_t budget[] = {0, VKA_NO_BUDGET};
    struct vka_plan *plan[2];
    float *output[2];
    for (int i = 0; i < 2; i++) {
        plan[i] = budget_plan(device, p, t, NULL, budget[i]);
        budget_check(device, vka_plan_run(plan[i], PATIENCE));
        output[i] = budget_contents(device, t->o);
    }
    if (device->caps.properties.timestamps)
        check_times(plan[0], plan[1], name, 200);
    vka_plan_destroy(&plan[0]);
    vka_plan_destroy(&plan[1]);
    assert_memory_equal(output[0], output[1], vka_tensor_size(t->o));
    free(output[0]);
    free(output[1]);
}

/* What hangs a GPU elsewhere: very many keys, for one row and for a block of causal ones. */
static void many_keys(void **state)
{
    struct vka_device *device = *state;
    const int32_t position = MANY - 16;
    struct vka_tensor *offset = budget_integers(device, 1, &position);
    struct budget_case p = {
        .batch = 1, .n_head = 4, .n_kv_head = 1, .n_q = 1, .n_kv = MANY, .dim = 64};
    struct budget_operands row = budget_operands_make(device, &p);
    check_many(device, "1 row, 131072 keys", &p, &row);
    budget_operands_free(&row);
    p.n_q = 16;
    p.options.causal = true;
    p.options.query_offset = offset;
    struct budget_operands rows = budget_operands_make(device, &p);
    check_many(device, "16 causal rows, 131072 keys", &p, &rows);
    budget_operands_free(&rows);
    vka_tensor_destroy(&offset);
}

TEST_PROGRAM(submit_times)
{
    struct vka_device *device = NULL;
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no submit was timed\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(times_within_the_budget, device),
        cmocka_unit_test_prestate(many_keys, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
