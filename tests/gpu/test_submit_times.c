/* How long the submits of runs are that are cut for a time budget, and were predicted to be.
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

#include "budget_case.h"
#include "plan/plan.h"

#define RUNS 3
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
    budget_check(plan->device, vka_plan_run(plan, BUDGET_PATIENCE));
    for (int run = 0; run < RUNS; run++) {
        budget_check(plan->device, vka_plan_run(plan, BUDGET_PATIENCE));
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

/* Milliseconds of a run in one submit. */
static double whole_time(struct vka_device *device, const struct budget_case *p,
                         const struct budget_operands *t)
{
    struct vka_plan *plan = budget_plan(device, p, t, NULL, VKA_NO_BUDGET);
    assert_int_equal(plan->n_submit, 1);
    double *ms = submit_times(plan), whole = ms[0];
    free(ms);
    vka_plan_destroy(&plan);
    return whole;
}

/* Prints how long the submits of a plan take, and were predicted to. No prediction is over the
 * budget. Where other programs stretch all runs, each submit is still a fair part of `whole`, the
 * milliseconds of one. */
static void check_times(struct vka_plan *plan, const char *name, double budget_ms, double whole)
{
    double *ms = submit_times(plan), predicted = predicted_ms(plan);
    size_t n = plan->n_submit;
    print_message("%s, budget %g ms: %zu submits, median %.3f ms, longest %.3f ms, predicted %.3f "
                  "ms; in one submit %.3f ms\n",
                  name, budget_ms, n, ms[n / 2], ms[n - 1], predicted, whole);
    assert_true(predicted <= budget_ms);
    assert_true(ms[n / 2] <= fmax(2 * budget_ms, 4 * whole / (double)n));
    free(ms);
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
    double whole = whole_time(device, &p, &t);
    for (size_t i = 0; i < sizeof ms / sizeof ms[0]; i++) {
        struct vka_plan *plan = budget_plan(device, &p, &t, NULL, ms[i] * 1000000);
        check_times(plan, "4 heads of 512 x 512", (double)ms[i], whole);
        assert_true(plan->n_submit <= before);
        before = plan->n_submit;
        vka_plan_destroy(&plan);
    }
    budget_operands_free(&t);
}

/* Attention over MANY keys within the default budget, and the same bits as in one submit. */
static void check_many(struct vka_device *device, const char *name, const struct budget_case *p,
                       const struct budget_operands *t)
{
    const uint64_t budget[] = {0, VKA_NO_BUDGET};
    float *output[2];
    for (int i = 0; i < 2; i++) {
        struct vka_plan *plan = budget_plan(device, p, t, NULL, budget[i]);
        budget_check(device, vka_plan_run(plan, BUDGET_PATIENCE));
        output[i] = budget_contents(device, t->o);
        if (i == 0 && device->caps.properties.timestamps)
            check_times(plan, name, 200, whole_time(device, p, t));
        vka_plan_destroy(&plan);
    }
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

int main(void)
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
