/* vkattn bench sweep: the runs and the table. SPDX-License-Identifier: MIT */
#include "sweep.h"

#include "sweep_files.h"

#include "common/files.h"
#include "common/output.h"

#include <vkattn/vkattn_io.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_MAX 16777216
#define DEFAULT_FROM 512
#define DEFAULT_TO 16384

struct files {
    const char *csv, *svg; /* NULL: none */
};

static bool parse(int argc, char **argv, struct bench_options *o, int64_t lengths[2],
                  struct files *files)
{
    const struct option_spec specs[] = {
        {"batch", OPTION_U32, &o->batch, 1, 1048576, NULL},
        {"heads", OPTION_U32, &o->n_head, 1, 65536, NULL},
        {"kv-heads", OPTION_U32, &o->n_kv_head, 1, 65536, NULL},
        {"head-dim", OPTION_U32, &o->head_dim, 1, 65536, NULL},
        {"lengths", OPTION_PAIR, lengths, 2, LENGTH_MAX, NULL},
        {"causal", OPTION_FLAG, &o->causal, 0, 0, NULL},
        {"dtype", OPTION_CHOICE, &o->dtype, 0, 0, option_dtypes},
        {"repeat", OPTION_U32, &o->repeat, 1, 1000000, NULL},
        {"csv", OPTION_TEXT, &files->csv, 0, 0, NULL},
        {"svg", OPTION_TEXT, &files->svg, 0, 0, NULL},
        DEVICE_OPTION_SPECS(&o->device),
        {0},
    };
    if (!options_parse_only(argc, argv, specs))
        return false;
    if (!o->n_kv_head)
        o->n_kv_head = o->n_head;
    if (o->n_head % o->n_kv_head) {
        tool_error("--kv-heads: expected a divisor of --heads %" PRIu32 ", got %" PRIu32, o->n_head,
                   o->n_kv_head);
        return false;
    }
    if (lengths[0] > lengths[1] || lengths[1] / lengths[0] >= 1 << (SWEEP_POINTS - 1)) {
        tool_error("--lengths: expected FROM,TO with FROM at most TO and TO / FROM below %d",
                   1 << (SWEEP_POINTS - 1));
        return false;
    }
    o->value_dim = o->head_dim;
    const struct tool_file outputs[] = {{"--csv", files->csv}, {"--svg", files->svg}};
    return tool_check_files(
        outputs, 2, &(struct tool_file){"--tuning-profile", option_profile_file(&o->device)}, 1);
}

static enum tool_exit measure(struct tool_device *d, const struct bench_options *o,
                              struct sweep_point *point)
{
    struct bench_problem problem = {0};
    struct vka_plan *plan = NULL;
    enum tool_exit code = bench_problem_create(d, o, &problem);
    if (code == TOOL_OK)
        code = bench_time(d, &problem, &plan, &point->times);
    if (code == TOOL_OK) {
        point->gflops = problem.flops / point->times.median * 1e-6;
        point->gbps = problem.bytes / point->times.median * 1e-6;
        point->workspace = vka_plan_workspace(plan);
    }
    vka_plan_destroy(&plan);
    bench_problem_destroy(&problem);
    return code;
}

static void print_point(const struct sweep_series *s, const struct sweep_point *p)
{
    printf("%-8s %8" PRIu32 " %12.3f %12.3f %10.2f %10.2f %10.2f\n", s->name, p->length,
           p->times.median, p->times.min, p->gflops, p->gbps, (double)p->workspace / 1048576);
    fflush(stdout);
}

/* A run that takes longer ends a series, as the next may take four times as long. */
static bool next_is_too_long(const struct tool_device *d, const struct sweep_series *s)
{
    return s->n && 4 * s->points[s->n - 1].times.median * 1e6 > (double)d->timeout;
}

/* Fills in exponent and steepest. */
static void sweep_fit(struct sweep_series *s)
{
    double n = (double)s->n, sx = 0, sy = 0, sxx = 0, sxy = 0;
    s->exponent = s->steepest = 0;
    for (size_t i = 0; i < s->n; i++) {
        double x = log((double)s->points[i].length), y = log(s->points[i].times.median);
        sx += x;
        sy += y;
        sxx += x * x;
        sxy += x * y;
        if (i) {
            const struct sweep_point *a = &s->points[i - 1], *b = &s->points[i];
            double step =
                log(b->times.median / a->times.median) / log((double)b->length / (double)a->length);
            s->steepest = i == 1 || step > s->steepest ? step : s->steepest;
        }
    }
    if (s->n > 1)
        s->exponent = (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

/* Ends early if memory runs out or a run exceeds the timeout. */
static enum tool_exit run_series(struct tool_device *d, const struct sweep *sweep,
                                 struct sweep_series *s)
{
    for (uint64_t length = sweep->from; length <= sweep->to; length *= 2) {
        struct bench_options o = *sweep->options;
        struct sweep_point *point = &s->points[s->n];
        if (next_is_too_long(d, s)) {
            fprintf(stderr, "%s: ends before %" PRIu64 ", which may pass --timeout\n", s->name,
                    length);
            break;
        }
        o.op = s->op;
        o.path = s->path;
        o.causal = o.causal && s->op == BENCH_ATTENTION;
        o.n_q = s->op == BENCH_DECODE ? 1 : (uint32_t)length;
        o.n_kv = (uint32_t)length;
        point->length = (uint32_t)length;
        enum tool_exit code = measure(d, &o, point);
        if (code == TOOL_MEMORY && s->n)
            break; /* it was too large for the device, which has been reported */
        if (code != TOOL_OK)
            return code;
        print_point(s, point);
        s->n++;
    }
    sweep_fit(s);
    return TOOL_OK;
}

static enum tool_exit write_text(const char *path, char *text)
{
    char error[VKA_IO_ERROR_SIZE];
    enum tool_exit code = TOOL_OK;
    if (!text) {
        tool_error("out of memory");
        code = TOOL_MEMORY;
    } else if (vka_file_write(path, text, strlen(text), error)) {
        tool_error("%s", error);
        code = TOOL_USAGE;
    }
    free(text);
    return code;
}

static enum tool_exit run(struct tool_device *d, struct sweep *sweep, const struct files *files)
{
    enum tool_exit code = TOOL_OK;
    sweep->device = vka_device_properties(d->device);
    printf("%-8s %8s %12s %12s %10s %10s %10s\n", "series", "length", "median_ms", "min_ms",
           "GFLOP/s", "GB/s", "MiB");
    for (size_t i = 0; i < SWEEP_SERIES && code == TOOL_OK; i++)
        code = run_series(d, sweep, &sweep->series[i]);
    for (size_t i = 0; i < SWEEP_SERIES && code == TOOL_OK; i++) {
        const struct sweep_series *s = &sweep->series[i];
        if (s->n > 1)
            printf("%-8s time grows as length^%.2f from %" PRIu32 " to %" PRIu32
                   ", at most as length^%.2f\n",
                   s->name, s->exponent, s->points[0].length, s->points[s->n - 1].length,
                   s->steepest);
    }
    if (code == TOOL_OK && files->csv)
        code = write_text(files->csv, sweep_csv(sweep));
    if (code == TOOL_OK && files->svg)
        code = write_text(files->svg, sweep_svg(sweep));
    return code;
}

int sweep_command(int argc, char **argv)
{
    struct bench_options options = {
        .batch = 1, .n_head = 1, .head_dim = 64, .device = DEVICE_OPTIONS_DEFAULT};
    struct files files = {0};
    int64_t lengths[2] = {DEFAULT_FROM, DEFAULT_TO};
    struct tool_device d;
    if (!parse(argc, argv, &options, lengths, &files))
        return TOOL_USAGE;
    struct sweep sweep = {
        .options = &options,
        .from = (uint32_t)lengths[0],
        .to = (uint32_t)lengths[1],
        .series =
            {
                {.name = "fused", .op = BENCH_ATTENTION, .path = VKA_PATH_FUSED},
                {.name = "unfused", .op = BENCH_ATTENTION, .path = VKA_PATH_UNFUSED},
                {.name = "decode", .op = BENCH_DECODE, .path = VKA_PATH_AUTO},
            },
    };
    enum tool_exit code = tool_device_open(&options.device, &d);
    if (code == TOOL_OK)
        code = run(&d, &sweep, &files);
    return tool_device_close(&d, code);
}
