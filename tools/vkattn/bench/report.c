/* Prints the results of vkattn bench, as text and JSON. SPDX-License-Identifier: MIT */
#include "report.h"

#include "common/output.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const op_names[] = {"layer", "attention", "matmul", "decode", "linear"};

/* The kernels of the passes, each once, in the order of their first use. */
static json_t *kernel_names(struct vka_plan *plan)
{
    json_t *names = json_array();
    for (size_t i = 0; i < vka_plan_pass_count(plan); i++) {
        struct vka_pass_info pass;
        size_t at = 0;
        if (vka_plan_pass(plan, i, &pass) != VKA_OK)
            continue;
        while (at < json_array_size(names) &&
               strcmp(json_string_value(json_array_get(names, at)), pass.kernel))
            at++;
        if (at == json_array_size(names))
            json_array_append_new(names, json_text(pass.kernel));
    }
    return names;
}

static json_t *passes_json(struct vka_plan *plan)
{
    json_t *passes = json_array();
    for (size_t i = 0; i < vka_plan_pass_count(plan); i++) {
        struct vka_pass_info pass;
        if (vka_plan_pass(plan, i, &pass) != VKA_OK)
            continue;
        json_t *o = json_object();
        json_object_set_new(o, "name", json_text(pass.name));
        json_object_set_new(o, "kernel", json_text(pass.kernel));
        json_object_set_new(o, "detail", json_text(pass.detail));
        json_object_set_new(o, "gpu_ms", pass.gpu_ms < 0 ? json_null() : json_real(pass.gpu_ms));
        json_array_append_new(passes, o);
    }
    return passes;
}

/* The text of vka_plan_describe; NULL if memory ran out. The caller frees it. */
static char *plan_text(const struct vka_plan *plan)
{
    size_t length = vka_plan_describe(plan, NULL, 0);
    char *text = malloc(length + 1);
    if (text)
        vka_plan_describe(plan, text, length + 1);
    return text;
}

/* A size that the operation does not have is null. */
static void set_size(json_t *o, const char *key, uint32_t size)
{
    json_object_set_new(o, key, size ? json_integer(size) : json_null());
}

static json_t *report_json(struct tool_device *d, const struct bench_problem *problem,
                           struct vka_plan *plan, const struct bench_times *t)
{
    const bool product =
        problem->options->op == BENCH_MATMUL || problem->options->op == BENCH_LINEAR;
    const struct bench_options *b = problem->options;
    const struct vka_device_properties *device = vka_device_properties(d->device);
    json_t *o = json_object();
    json_object_set_new(o, "op", json_text(op_names[b->op]));
    json_object_set_new(o, "device", json_text(device->name));
    json_object_set_new(o, "driver", json_text(device->driver));
    json_object_set_new(o, "kernels", kernel_names(plan));
    json_object_set_new(o, "dtype", json_text(vka_dtype_name((enum vka_dtype)b->dtype)));
    set_size(o, "batch", b->batch);
    set_size(o, "n_q", b->n_q);
    set_size(o, "n_kv", b->n_kv);
    set_size(o, "n_head", b->n_head);
    set_size(o, "n_kv_head", b->n_kv_head);
    set_size(o, "head_dim", b->head_dim);
    set_size(o, "model_dim", b->model_dim);
    json_object_set_new(o, "causal", product ? json_null() : json_boolean(b->causal));
    if (b->op == BENCH_LINEAR) {
        json_object_set_new(o, "weights", json_text(vka_dtype_name((enum vka_dtype)b->weights)));
        json_object_set_new(o, "activations", json_text(b->activations ? "i8" : "input"));
    }
    if (b->op == BENCH_DECODE) {
        json_object_set_new(o, "key_dtype", json_text(vka_dtype_name(bench_key_dtype(b))));
        json_object_set_new(o, "value_dtype", json_text(vka_dtype_name(bench_value_dtype(b))));
    }
    if (product) {
        set_size(o, "m", b->m);
        set_size(o, "n", b->n);
        set_size(o, "k", b->k);
    }
    json_object_set_new(o, "repeat", json_integer(t->repeat));
    json_object_set_new(o, "first_ms", json_real(t->first));
    json_object_set_new(o, "median_ms", json_real(t->median));
    json_object_set_new(o, "min_ms", json_real(t->min));
    json_object_set_new(o, "gpu_ms", t->gpu < 0 ? json_null() : json_real(t->gpu));
    json_object_set_new(o, "gflops", json_number(problem->flops / t->median * 1e-6));
    json_object_set_new(o, "gbps", json_number(problem->bytes / t->median * 1e-6));
    json_object_set_new(o, "workspace_bytes", json_integer((json_int_t)vka_plan_workspace(plan)));
    if (b->passes)
        json_object_set_new(o, "passes", passes_json(plan));
    return o;
}

static void print_title(const struct bench_options *b)
{
    const char *dtype = vka_dtype_name((enum vka_dtype)b->dtype);
    if (b->op == BENCH_MATMUL || b->op == BENCH_LINEAR) {
        printf("%s %s", op_names[b->op], dtype);
        if (b->op == BENCH_LINEAR)
            printf(", weights %s%s", vka_dtype_name((enum vka_dtype)b->weights),
                   b->activations ? ", activations i8" : "");
        printf(", m %" PRIu32 ", n %" PRIu32 ", k %" PRIu32 "\n", b->m, b->n, b->k);
        return;
    }
    if (b->op == BENCH_DECODE && b->kv)
        printf("cache %s, ", b->kv);
    printf("%s %s, batch %" PRIu32 ", %" PRIu32 " heads of %" PRIu32 " (%" PRIu32
           " for keys), values of %" PRIu32 ", %" PRIu32 " queries, %" PRIu32 " keys%s\n",
           op_names[b->op], dtype, b->batch, b->n_head, b->head_dim, b->n_kv_head, b->value_dim,
           b->n_q, b->n_kv, b->causal ? ", causal" : "");
}

static void print_passes(struct vka_plan *plan)
{
    for (size_t i = 0; i < vka_plan_pass_count(plan); i++) {
        struct vka_pass_info pass;
        if (vka_plan_pass(plan, i, &pass) != VKA_OK)
            continue;
        printf("  pass       %-12s %-24s ", pass.name, pass.kernel);
        if (pass.gpu_ms < 0)
            printf("%10s    ", "-");
        else
            printf("%10.4f ms ", pass.gpu_ms);
        printf("%s\n", pass.detail);
    }
}

static void print_report(struct tool_device *d, const struct bench_problem *problem,
                         struct vka_plan *plan, const struct bench_times *t)
{
    const struct vka_device_properties *device = vka_device_properties(d->device);
    json_t *kernels = kernel_names(plan);
    print_title(problem->options);
    printf("  device     %s (%s)\n  kernels    ", device->name, device->driver);
    for (size_t i = 0; i < json_array_size(kernels); i++)
        printf("%s%s", i ? ", " : "", json_string_value(json_array_get(kernels, i)));
    json_decref(kernels);
    printf("\n  first      %.3f ms to the first result, with self-tests and compiling\n", t->first);
    printf("  median     %.3f ms of %" PRIu32 " runs, least %.3f ms\n", t->median, t->repeat,
           t->min);
    if (t->gpu >= 0)
        printf("  gpu        %.3f ms\n", t->gpu);
    printf("  rate       %.2f GFLOP/s, %.2f GB/s\n", problem->flops / t->median * 1e-6,
           problem->bytes / t->median * 1e-6);
    printf("  workspace  %.2f MiB\n", (double)vka_plan_workspace(plan) / 1048576);
    if (problem->options->passes)
        print_passes(plan);
}

enum tool_exit bench_report(struct tool_device *d, const struct bench_problem *problem,
                            struct vka_plan *plan, const struct bench_times *times)
{
    char *text = NULL;
    if (problem->options->explain) {
        text = plan_text(plan);
        if (!text) {
            tool_error("out of memory");
            return TOOL_MEMORY;
        }
    }
    bool ok = true;
    if (problem->options->json) {
        json_t *o = report_json(d, problem, plan, times);
        if (text)
            json_object_set_new(o, "explain", json_text(text));
        ok = json_print_line(o);
    } else {
        print_report(d, problem, plan, times);
        if (text)
            printf("%s%s", text, *text && text[strlen(text) - 1] == '\n' ? "" : "\n");
    }
    free(text);
    return ok ? TOOL_OK : TOOL_MEMORY;
}
