/* The clock of vkattn bench. SPDX-License-Identifier: MIT */
#include "bench.h"

#include "output.h"

#include <stdlib.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

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

/* The sum of the last run's passes; negative where one was not measured. */
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

static enum vka_status first_run(struct tool_device *d, const struct bench_problem *problem,
                                 struct vka_plan **plan)
{
    enum vka_status status = vka_plan_create(
        d->device,
        VKA_INFO(vka_plan_info, .path = (enum vka_path)problem->options->path, .timestamps = true),
        plan);
    if (status == VKA_OK)
        status = bench_problem_add(problem, *plan);
    if (status == VKA_OK)
        status = vka_plan_finish(*plan);
    if (status == VKA_OK)
        status = vka_plan_run(*plan, d->timeout);
    return status;
}

enum tool_exit bench_time(struct tool_device *d, const struct bench_problem *problem,
                          struct vka_plan **plan, struct bench_times *times)
{
    uint32_t asked = problem->options->repeat, most = asked ? asked : BENCH_RUNS, n = 0;
    double *host = malloc(most * sizeof *host), *gpu = malloc(most * sizeof *gpu);
    enum vka_status status = VKA_OUT_OF_HOST_MEMORY;
    double start = now_ms(), begin;
    bool measured = true;

    if (host && gpu)
        status = first_run(d, problem, plan);
    times->first = now_ms() - start;
    begin = now_ms();
    while (status == VKA_OK && n < most) {
        progress_show(n, most, "runs");
        status = bench_problem_rewind(problem);
        if (status != VKA_OK)
            break;
        start = now_ms();
        status = vka_plan_run(*plan, d->timeout);
        double end = now_ms();
        host[n] = end - start;
        gpu[n] = passes_ms(*plan);
        measured = measured && gpu[n] >= 0;
        n++;
        if (!asked && end - begin > BENCH_SECONDS * 1e3)
            break;
    }
    progress_clear();
    if (status == VKA_OK) {
        times->repeat = n;
        times->median = median(host, n);
        times->min = host[0];
        times->gpu = measured ? median(gpu, n) : -1;
    }
    free(gpu);
    free(host);
    return status == VKA_OK ? TOOL_OK : tool_device_fail(d, status);
}
