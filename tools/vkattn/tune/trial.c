/* vkattn tune: one plan on a device of its own. SPDX-License-Identifier: MIT */
#include "trial.h"

#include "case/numbers.h"

#include "core/os.h"

#include <reference/reference.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 7      /* the most runs after the first */
#define SECONDS 0.3 /* for these together, unless one takes longer */

/* The two first lines, those of the trial, then what is decided: the first line that matches
 * counts. */
static char *text_of(const struct tuning *tuning, const struct trial *trial)
{
    const char *text = tuning->text, *body = strchr(text, '\n');
    char *whole = malloc(strlen(text) + strlen(trial->lines) + 1);
    if (!whole)
        return NULL;
    size_t head = (size_t)(strchr(body + 1, '\n') + 1 - text);
    memcpy(whole, text, head);
    strcpy(whole + head, trial->lines);
    strcat(whole + head, text + head);
    return whole;
}

static enum vka_status time_plan(struct tool_device *d, const struct bench_problem *problem,
                                 struct vka_plan *plan, double worst, struct trial *trial)
{
    enum vka_status status = vka_plan_run(plan, d->timeout); /* compiles */
    double begin = os_now_ms(), end = begin;
    for (int i = 0; status == VKA_OK && i < RUNS && end - begin < SECONDS * 1e3; i++) {
        status = bench_problem_rewind(problem);
        double start = os_now_ms();
        if (status == VKA_OK)
            status = vka_plan_run(plan, d->timeout);
        end = os_now_ms();
        trial->ms = i == 0 || end - start < trial->ms ? end - start : trial->ms;
        if (end - start > worst)
            break;
    }
    return status;
}

static void list_problems(struct vka_plan *plan, struct trial *trial)
{
    struct vka_pass_info pass;
    for (size_t i = 0; i < vka_plan_pass_count(plan); i++) {
        size_t at = 0;
        if (vka_plan_pass(plan, i, &pass) != VKA_OK || !pass.problem)
            continue;
        while (at < trial->n_problem && strcmp(trial->problem[at], pass.problem))
            at++;
        if (at < trial->n_problem || at == TUNE_PROBLEMS)
            continue;
        snprintf(trial->problem[at], TUNE_NAME, "%s", pass.problem);
        snprintf(trial->kernel[at], TUNE_NAME, "%s", pass.kernel);
        snprintf(trial->detail[at], sizeof trial->detail[at], "%s", pass.detail);
        trial->n_problem++;
    }
}

static enum vka_status read_back(const struct vka_tensor *tensor, int dtype, double **numbers,
                                 size_t *count)
{
    static const enum vka_io_dtype stored[] = {VKA_IO_F32, VKA_IO_F16, VKA_IO_BF16};
    size_t n = (size_t)vka_tensor_count(tensor), bytes = n * vka_dtype_size((enum vka_dtype)dtype);
    void *data = malloc(bytes);
    double *x = malloc(n * sizeof *x);
    enum vka_status status = data && x ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK)
        status = vka_tensor_read((struct vka_tensor *)(uintptr_t)tensor, data, bytes);
    if (status == VKA_OK) {
        case_widen(stored[dtype], data, n, x);
        *numbers = x;
        *count = n;
        x = NULL;
    }
    free(x);
    free(data);
    return status;
}

static enum vka_status run_plan(struct tool_device *d, const struct bench_problem *problem,
                                double worst, struct vka_plan **plan, struct trial *trial)
{
    const struct bench_options *o = problem->options;
    enum vka_status status = vka_plan_create(
        d->device,
        VKA_INFO(vka_plan_info, .path = (enum vka_path)o->path, .submit_budget = d->budget), plan);
    if (status == VKA_OK)
        status = bench_problem_add(problem, *plan);
    if (status == VKA_OK)
        status = vka_plan_finish(*plan);
    if (status == VKA_OK) {
        list_problems(*plan, trial);
        status = time_plan(d, problem, *plan, worst, trial);
    }
    for (int i = 0; status == VKA_OK && trial->inputs && i < 3; i++)
        if (problem->input[i])
            status = read_back(problem->input[i], o->dtype, &trial->data[i], &trial->count[i]);
    if (status == VKA_OK)
        status = read_back(problem->output, o->dtype, &trial->data[3], &trial->count[3]);
    return status;
}

enum tool_exit trial_run(struct tuning *tuning, const struct bench_options *work, double worst,
                         struct trial *trial)
{
    struct bench_problem problem = {0};
    struct vka_plan *plan = NULL;
    struct tool_device d = {0};
    struct device_options options = tuning->device;
    char *text = text_of(tuning, trial);
    enum tool_exit code = TOOL_MEMORY;
    options.no_cache = true;
    options.no_self_test = true; /* kernels are checked more thoroughly here */
    options.profile_text = text;
    if (!text)
        tool_error("out of memory");
    else
        code = tool_device_open(&options, &d);
    if (code == TOOL_OK)
        code = bench_problem_create(&d, work, &problem);
    if (code == TOOL_OK) {
        trial->status = run_plan(&d, &problem, worst, &plan, trial);
        bool memory = trial->status == VKA_OUT_OF_HOST_MEMORY;
        if (trial->status == VKA_TIMEOUT || memory)
            code = tool_device_fail(&d, trial->status);
    }
    if (d.busy)
        return TOOL_DEVICE_LOST; /* what the driver still uses is left until the process ends */
    vka_plan_destroy(&plan);
    bench_problem_destroy(&problem);
    free(text);
    return tool_device_close(&d, code);
}

void trial_free(struct trial *trial)
{
    for (int i = 0; i < 4; i++)
        free(trial->data[i]);
    *trial = (struct trial){.lines = ""};
}

bool trial_agrees(const double *got, const double *want, size_t count, size_t width, int dtype)
{
    /* The normalised squared error that the worst row may have: a few roundings of the storage
     * type; in float32 the error of the sums. */
    static const double limits[] = {[VKA_F32] = 1e-9, [VKA_F16] = 1e-5, [VKA_BF16] = 5e-4};
    return ref_row_nmse(got, want, count / width, width, NULL) <= limits[dtype];
}
