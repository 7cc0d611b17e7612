/* Times plans for vkattn bench. SPDX-License-Identifier: MIT */
#include "timing.h"

#include "common/output.h"

#include "core/os.h"

#include <stdlib.h>

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts values, count at least 1. */
static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_doubles);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* The sum of the passes of the last run; negative if one was not measured. */
static double passes_ms(struct vka_plan *plan)
{
    double sum = 0;
    for (size_t i = 0; i < vka_plan_pass_count(plan); i++) {
        struct vka_pass_info pass;
        if (vka_plan_pass(plan, i, &pass) != VKA_OK || pass.gpu_ms < 0)
            return -1;
        sum += pass.gpu_ms;
    }
    return sum;
}

/* Records the problem and runs it once. */
static enum vka_status record(struct tool_device *d, const struct bench_problem *problem,
                              bool timestamps, struct vka_plan **plan)
{
    const enum vka_path path = (enum vka_path)problem->options->path;
    enum vka_status status = vka_plan_create(
        d->device,
        VKA_INFO(vka_plan_info, .path = path, .timestamps = timestamps, .submit_budget = d->budget),
        plan);
    if (status == VKA_OK)
        status = bench_problem_add(problem, *plan);
    if (status == VKA_OK)
        status = vka_plan_finish(*plan);
    if (status == VKA_OK)
        status = bench_problem_rewind(problem);
    if (status == VKA_OK)
        status = vka_plan_run(*plan, d->timeout);
    return status;
}

/* A GPU that has waited for its compiler runs at a fraction of its clock for a while: an H200 took 18 ms
 * for a product of 4 ms. */
#define WARM_MS 400

static enum vka_status warm_up(struct tool_device *d, const struct bench_problem *problem,
                               struct vka_plan *plan)
{
    enum vka_status status = VKA_OK;
    if (vka_device_properties(d->device)->type == VKA_DEVICE_CPU)
        return VKA_OK;
    for (double begin = os_now_ms(); status == VKA_OK && os_now_ms() - begin < WARM_MS;) {
        status = bench_problem_rewind(problem);
        if (status == VKA_OK)
            status = vka_plan_run(plan, d->timeout);
    }
    return status;
}

/* Times runs of a plan that has run before; sets all of times but times->first. */
static enum vka_status time_runs(struct tool_device *d, const struct bench_problem *problem,
                                 struct vka_plan *plan, struct bench_times *times)
{
    uint32_t asked = problem->options->repeat, most = asked ? asked : BENCH_RUNS, n = 0;
    double *host = malloc(most * sizeof *host), *gpu = malloc(most * sizeof *gpu);
    enum vka_status status = host && gpu ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK)
        status = warm_up(d, problem, plan);
    const double begin = os_now_ms();
    double end = begin;
    while (status == VKA_OK && n < most && (asked || end - begin <= BENCH_SECONDS * 1e3)) {
        progress_show(n, most, "runs");
        status = bench_problem_rewind(problem);
        if (status != VKA_OK)
            break;
        double start = os_now_ms();
        status = vka_plan_run(plan, d->timeout);
        end = os_now_ms();
        host[n] = end - start;
        gpu[n] = passes_ms(plan);
        n++;
    }
    progress_clear();
    if (status == VKA_OK) {
        times->repeat = n;
        times->median = median(host, n);
        times->min = host[0];
        times->gpu = median(gpu, n);
        if (gpu[0] < 0)
            times->gpu = -1;
    }
    free(gpu);
    free(host);
    return status;
}

/* With a timestamp a CPU driver waits for the work that it has begun, which takes about 0.05 ms a
 * pass on Mesa, as long as a small kernel. If that may matter, the runs are timed again without
 * timestamps. */
#define TIMESTAMP_MS 0.1
#define TIMESTAMP_SHARE 0.01

static enum vka_status time_without_timestamps(struct tool_device *d,
                                               const struct bench_problem *problem,
                                               struct bench_times *times)
{
    struct vka_plan *plan = NULL;
    double gpu = times->gpu;
    enum vka_status status = record(d, problem, false, &plan);
    if (status == VKA_OK)
        status = time_runs(d, problem, plan, times);
    times->gpu = gpu;
    vka_plan_destroy(&plan);
    return status;
}

enum tool_exit bench_time(struct tool_device *d, const struct bench_problem *problem,
                          struct vka_plan **plan, struct bench_times *times)
{
    const double start = os_now_ms();
    enum vka_status status = record(d, problem, true, plan);
    times->first = problem->made + os_now_ms() - start;
    if (status == VKA_OK)
        status = time_runs(d, problem, *plan, times);
    double cost = TIMESTAMP_MS * (double)vka_plan_pass_count(*plan);
    if (status == VKA_OK && times->gpu >= 0 && cost > TIMESTAMP_SHARE * times->median)
        status = time_without_timestamps(d, problem, times);
    return status == VKA_OK ? TOOL_OK : tool_device_fail(d, status);
}
