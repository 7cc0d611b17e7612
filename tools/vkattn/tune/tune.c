/* vkattn tune: measures the candidates for usual problems and writes the tuning profile.
 * SPDX-License-Identifier: MIT */
#include "check.h"
#include "trial.h"

#include "common/cache_file.h"
#include "vkattn/commands.h"
#include "common/files.h"
#include "common/output.h"

#include "core/format.h"

#include <vkattn/vkattn_io.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Seconds for one wait, without --timeout: CPU drivers compile in the first run, some for more than
 * a minute. */
#define TIMEOUT_S 600
/* A candidate must be this much faster than the choice of the rules: less is noise. */
#define GAIN 0.95
/* A candidate that is this much slower than the best is not run again. */
#define HOPELESS 4.0
/* Variants of a kernel that are tried: 0 .. 3, or with --quick 0 and 1. */
#define TUNE_VARIANTS 4
#define QUICK_VARIANTS 2

#define LAYER(b, s, d, h)                                                                       \
    {                                                                                           \
        .op = BENCH_LAYER, .batch = b, .n_q = s, .n_kv = s, .model_dim = d, .n_head = h,        \
        .n_kv_head = h, .head_dim = (d) / (h), .value_dim = (d) / (h), .path = VKA_PATH_UNFUSED \
    }
#define ATTENTION(operation, q, kv, h, g, d)                                            \
    {                                                                                   \
        .op = operation, .batch = 1, .n_q = q, .n_kv = kv, .n_head = h, .n_kv_head = g, \
        .head_dim = d, .value_dim = d                                                   \
    }

/* The problems that are measured: one of every class that usual layers have, in sizes that a CPU
 * driver or a GPU computes quickly; with --quick some small ones. */
enum scale { CPU, GPU, QUICK };
static const struct work {
    struct bench_options options;
    enum scale scale;
} works[] = {
    {LAYER(1, 128, 256, 4), CPU},
    {LAYER(1, 128, 1024, 16), CPU},
    {ATTENTION(BENCH_ATTENTION, 256, 256, 2, 2, 64), CPU},
    {ATTENTION(BENCH_ATTENTION, 1024, 1024, 1, 1, 64), CPU},
    {ATTENTION(BENCH_ATTENTION, 256, 256, 2, 2, 128), CPU},
    {ATTENTION(BENCH_DECODE, 1, 512, 4, 4, 64), CPU},
    {ATTENTION(BENCH_DECODE, 1, 4096, 4, 4, 64), CPU},
    {ATTENTION(BENCH_DECODE, 1, 4096, 4, 1, 128), CPU},
    {LAYER(1, 512, 512, 8), GPU},
    {LAYER(1, 2048, 1024, 16), GPU},
    {LAYER(1, 2048, 4096, 32), GPU},
    {ATTENTION(BENCH_ATTENTION, 512, 512, 16, 16, 64), GPU},
    {ATTENTION(BENCH_ATTENTION, 2048, 2048, 16, 16, 64), GPU},
    {ATTENTION(BENCH_ATTENTION, 8192, 8192, 16, 16, 64), GPU},
    {ATTENTION(BENCH_ATTENTION, 512, 512, 16, 16, 128), GPU},
    {ATTENTION(BENCH_ATTENTION, 2048, 2048, 16, 16, 128), GPU},
    {ATTENTION(BENCH_ATTENTION, 8192, 8192, 16, 16, 128), GPU},
    {ATTENTION(BENCH_DECODE, 1, 4096, 32, 32, 64), GPU},
    {ATTENTION(BENCH_DECODE, 1, 4096, 32, 8, 128), GPU},
    {ATTENTION(BENCH_DECODE, 1, 32768, 32, 8, 128), GPU},
    {ATTENTION(BENCH_ATTENTION, 32, 32, 1, 1, 16), QUICK},
    {ATTENTION(BENCH_DECODE, 1, 64, 1, 1, 16), QUICK},
};
#define WORKS (sizeof works / sizeof works[0])

static size_t row_width(const struct bench_options *o)
{
    return o->op == BENCH_LAYER ? o->model_dim : o->value_dim;
}

/* Appends a line to the profile. */
FORMAT_PRINTF(2, 3)
static enum tool_exit tune_append(struct tuning *tuning, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    size_t length = tuning->text ? strlen(tuning->text) : 0;
    char *text = realloc(tuning->text, length + strlen(line) + 1);
    if (!text) {
        tool_error("out of memory");
        return TOOL_MEMORY;
    }
    strcpy(text + length, line);
    tuning->text = text;
    return TOOL_OK;
}

/* Demotes a kernel. */
static enum tool_exit demote(struct tuning *t, const char *kernel)
{
    progress_clear();
    printf("%-46s fails its check on this device and is not used\n", kernel);
    return tune_append(t, "demote %s\n", kernel);
}

static bool is_demoted(const struct tuning *t, const char *kernel)
{
    char line[TUNE_NAME + 16];
    snprintf(line, sizeof line, "\ndemote %s\n", kernel);
    return strstr(t->text, line) != NULL;
}

static size_t find_problem(const struct trial *trial, const char *problem)
{
    size_t at = 0;
    while (at < trial->n_problem && strcmp(trial->problem[at], problem))
        at++;
    return at;
}

/* The candidates of one problem while they are measured. */
struct contest {
    const struct bench_options *work;
    const struct trial *rules; /* the choice without a new line */
    size_t at;                 /* the index of the problem in rules */
    double best, own;          /* ms, of the best candidate and of the rules' choice; 0: none yet */
    char kernel[TUNE_NAME];    /* the best */
    unsigned variant;
};

static void judge(struct contest *c, const struct trial *trial, size_t at, unsigned variant)
{
    if (!strcmp(trial->kernel[at], c->rules->kernel[c->at]) &&
        !strcmp(trial->detail[at], c->rules->detail[c->at]) && (!c->own || trial->ms < c->own))
        c->own = trial->ms;
    if (!c->best || trial->ms < c->best) {
        c->best = trial->ms;
        c->variant = variant;
        memcpy(c->kernel, trial->kernel[at], TUNE_NAME);
    }
}

/* Measures one variant of a kernel, unless it is the same as the one before. *more: whether the
 * kernel was used at all. */
static enum tool_exit try_variant(struct tuning *t, struct contest *c, const char *kernel,
                                  unsigned variant, char before[TUNE_DETAIL], bool *more)
{
    char lines[192];
    struct trial trial = {.lines = lines};
    const char *problem = c->rules->problem[c->at];
    snprintf(lines, sizeof lines, "kernel %s %s %u\n", problem, kernel, variant);
    enum tool_exit code = trial_run(t, c->work, c->best ? HOPELESS * c->best : 1e300, &trial);
    size_t at = find_problem(&trial, problem);
    *more = code == TOOL_OK && trial.status == VKA_OK && at < trial.n_problem &&
            !strcmp(trial.kernel[at], kernel);
    if (*more && strcmp(trial.detail[at], before)) {
        memcpy(before, trial.detail[at], TUNE_DETAIL);
        if (trial_agrees(trial.data[3], c->rules->data[3], trial.count[3], row_width(c->work),
                         c->work->dtype)) {
            judge(c, &trial, at, variant);
        } else {
            progress_clear();
            printf("%-46s %s is left out: it disagrees with %s\n", problem, kernel,
                   c->rules->kernel[c->at]);
        }
    }
    trial_free(&trial);
    return code;
}

/* Measures all variants of a kernel that gives right results. */
static enum tool_exit try_kernel(struct tuning *t, struct contest *c, const char *kernel)
{
    char before[TUNE_DETAIL] = "";
    enum tool_exit code = TOOL_OK;
    bool more = !is_demoted(t, kernel), right = true;
    if (more)
        code = tune_check(t, kernel, c->work->dtype, &right);
    if (code == TOOL_OK && !right)
        return demote(t, kernel);
    for (unsigned v = 0; v < t->n_variant && more && code == TOOL_OK; v++)
        code = try_variant(t, c, kernel, v, before, &more);
    return code;
}

/* Measures the best candidate and the rules' choice again, one after the other, as other work of
 * the machine may have favoured one of them. */
static enum tool_exit confirm(struct tuning *t, struct contest *c)
{
    char lines[192];
    struct trial best = {.lines = lines}, own = {.lines = ""};
    snprintf(lines, sizeof lines, "kernel %s %s %u\n", c->rules->problem[c->at], c->kernel,
             c->variant);
    enum tool_exit code = trial_run(t, c->work, 1e300, &own);
    if (code == TOOL_OK)
        code = trial_run(t, c->work, 1e300, &best);
    if (code == TOOL_OK && own.status == VKA_OK && best.status == VKA_OK) {
        c->own = own.ms < c->own ? own.ms : c->own;
        c->best = best.ms;
    }
    trial_free(&best);
    trial_free(&own);
    return code;
}

static enum tool_exit decide(struct tuning *t, struct contest *c)
{
    const char *problem = c->rules->problem[c->at], *rules = c->rules->kernel[c->at];
    const size_t family = strcspn(problem, "/");
    enum tool_exit code = TOOL_OK;
    for (size_t k = 0; k < t->n_kernel && code == TOOL_OK; k++)
        if (!strncmp(t->kernel[k], problem, family) && t->kernel[k][family] == '_')
            code = try_kernel(t, c, t->kernel[k]);
    if (code == TOOL_OK && c->own && c->best < GAIN * c->own)
        code = confirm(t, c);
    if (code != TOOL_OK || !c->best)
        return code;
    bool better = !c->own || c->best < GAIN * c->own;
    progress_clear();
    printf("%-46s %-20s %9.3f ms", problem, better ? c->kernel : rules, better ? c->best : c->own);
    if (better && c->own)
        printf(", variant %u; by the rules %s, %.3f ms", c->variant, rules, c->own);
    putchar('\n');
    fflush(stdout);
    return better ? tune_append(t, "kernel %s %s %u\n", problem, c->kernel, c->variant) : TOOL_OK;
}

/* True the first time for each problem. */
static bool is_new(struct tuning *t, const char *problem)
{
    for (size_t i = 0; i < t->n_seen; i++)
        if (!strcmp(t->seen[i], problem))
            return false;
    if (t->n_seen == TUNE_SEEN)
        return false;
    snprintf(t->seen[t->n_seen++], TUNE_NAME, "%s", problem);
    return true;
}

/* Runs the present choice, after demoting the kernels in it that give wrong results. rules->status
 * is UNSUPPORTED if nothing is left. */
static enum tool_exit run_rules(struct tuning *t, const struct bench_options *work,
                                struct trial *rules)
{
    for (;;) {
        bool right = true;
        *rules = (struct trial){.lines = ""};
        enum tool_exit code = trial_run(t, work, 1e300, rules);
        for (size_t i = 0; i < rules->n_problem && code == TOOL_OK && right; i++) {
            code = tune_check(t, rules->kernel[i], work->dtype, &right);
            if (code == TOOL_OK && !right)
                code = demote(t, rules->kernel[i]);
        }
        if (code != TOOL_OK || right)
            return code;
        trial_free(rules);
    }
}

/* Decides each problem of one operation on one path. *ms becomes the time of the operation, 0 if
 * the device cannot run it. *problem, if problem is not NULL, becomes the name of its first
 * problem. */
static enum tool_exit tune_path(struct tuning *t, const struct bench_options *work, double *ms,
                                char *problem)
{
    struct trial rules = {.lines = ""}, decided = {.lines = ""};
    enum tool_exit code = run_rules(t, work, &rules);
    *ms = 0;
    if (problem)
        snprintf(problem, TUNE_NAME, "%s", rules.n_problem ? rules.problem[0] : "");
    for (size_t i = 0; i < rules.n_problem && code == TOOL_OK && rules.status == VKA_OK; i++) {
        struct contest contest = {.work = work, .rules = &rules, .at = i};
        if (is_new(t, rules.problem[i]))
            code = decide(t, &contest);
    }
    if (code == TOOL_OK && rules.status == VKA_OK)
        code = trial_run(t, work, 1e300, &decided);
    if (code == TOOL_OK && decided.status == VKA_OK)
        *ms = decided.ms;
    trial_free(&rules);
    trial_free(&decided);
    return code;
}

static enum tool_exit tune_work(struct tuning *t, const struct bench_options *work)
{
    struct bench_options o = *work;
    char problem[TUNE_NAME];
    double fused = 0, unfused = 0;
    o.path = VKA_PATH_UNFUSED;
    enum tool_exit code = tune_path(t, &o, &unfused, NULL);
    if (code != TOOL_OK || o.op == BENCH_LAYER)
        return code;
    o.path = VKA_PATH_FUSED;
    code = tune_path(t, &o, &fused, problem);
    if (code != TOOL_OK || !fused || !unfused)
        return code;
    printf("%-46s %-20s %9.3f ms, %s %.3f ms\n", problem, fused < unfused ? "fused" : "unfused",
           fused < unfused ? fused : unfused, fused < unfused ? "unfused" : "fused",
           fused < unfused ? unfused : fused);
    fflush(stdout);
    return tune_append(t, "path %s %s\n", problem, fused < unfused ? "fused" : "unfused");
}

/* Finds the kernels that the device can run, and begins the tuning profile. */
static enum tool_exit begin(struct tuning *t, const struct device_options *options)
{
    char head[256];
    struct tool_device d;
    struct vka_kernel_info kernel;
    struct device_options rules = *options;
    rules.tuning_profile = "none";
    enum tool_exit code = tool_device_open(&rules, &d);
    if (code == TOOL_OK) {
        t->properties = *vka_device_properties(d.device);
        snprintf(t->index, sizeof t->index, "%" PRIu32, t->properties.index);
        for (size_t i = 0; i < vka_kernel_count() && t->n_kernel < TUNE_KERNELS; i++)
            if (vka_device_kernel(d.device, i, &kernel) == VKA_OK && !kernel.missing)
                snprintf(t->kernel[t->n_kernel++], TUNE_NAME, "%s", kernel.name);
        vka_device_tuning_profile_head(d.device, head, sizeof head);
        code = tune_append(t, "%s", head);
    }
    t->device = *options;
    t->device.device = t->index;
    return tool_device_close(&d, code);
}

static enum tool_exit measure(struct tuning *t, int only, bool quick)
{
    enum tool_exit code = TOOL_OK;
    const bool cpu = t->properties.type == VKA_DEVICE_CPU;
    const enum scale scale = quick ? QUICK : cpu ? CPU : GPU;
    t->n_variant = quick ? QUICK_VARIANTS : TUNE_VARIANTS;
    for (int dtype = 0; option_dtypes[dtype] && code == TOOL_OK; dtype++) {
        if (only >= 0 ? dtype != only : (cpu || quick) && dtype != VKA_F32)
            continue;
        for (size_t i = 0; i < WORKS && code == TOOL_OK; i++) {
            struct bench_options o = works[i].options;
            o.dtype = dtype;
            progress_show(i, WORKS, vka_dtype_name((enum vka_dtype)dtype));
            if (works[i].scale == scale)
                code = tune_work(t, &o);
        }
    }
    progress_clear();
    return code;
}

/* Where the profile is kept, which is tried before anything is measured. */
static enum tool_exit find_place(struct tuning *t, const char *output)
{
    struct cache_paths paths;
    cache_paths_make(&t->properties, &paths);
    snprintf(t->path, sizeof t->path, "%s", output ? output : paths.tuning_profile);
    if (!*t->path) {
        tool_error("--output: expected a file, as there is no cache folder");
        return TOOL_USAGE;
    }
    const struct tool_file place = {output ? "--output" : "the cache folder", t->path};
    return tool_check_files(&place, 1, NULL, 0) ? TOOL_OK : TOOL_USAGE;
}

static enum tool_exit keep(const struct tuning *t)
{
    char error[VKA_IO_ERROR_SIZE];
    const char *path = t->path;
    if (vka_file_write(path, t->text, strlen(t->text), error)) {
        tool_error("%s", error);
        return TOOL_USAGE;
    }
    printf("kept in %s\n", path);
    return TOOL_OK;
}

int cmd_tune(int argc, char **argv)
{
    const char *output = NULL;
    int only = -1;
    bool quick = false;
    struct device_options common = DEVICE_OPTIONS_DEFAULT;
    const struct option_spec specs[] = {
        {"output", OPTION_TEXT, &output, 0, 0, NULL},
        {"dtype", OPTION_CHOICE, &only, 0, 0, option_dtypes},
        {"quick", OPTION_FLAG, &quick, 0, 0, NULL},
        DEVICE_OPTION_SPECS(&common),
        {0},
    };
    common.timeout_s = TIMEOUT_S;
    tool_set_command("tune");
    if (!options_parse_only(argc, argv, specs) ||
        !tool_check_files(&(struct tool_file){"--output", output}, 1,
                          &(struct tool_file){"--tuning-profile", option_profile_file(&common)}, 1))
        return TOOL_USAGE;
    struct tuning *t = calloc(1, sizeof *t);
    if (!t) {
        tool_error("out of memory");
        return TOOL_MEMORY;
    }
    enum tool_exit code = begin(t, &common);
    if (code == TOOL_OK)
        code = find_place(t, output);
    bool begun = code == TOOL_OK;
    if (begun)
        code = measure(t, only, quick);
    if (begun) { /* keeps what was decided before a failure */
        enum tool_exit kept = keep(t);
        code = code == TOOL_OK ? kept : code;
    }
    if (code == TOOL_DEVICE_LOST && begun) {
        fflush(stdout);
        _Exit(code); /* the driver may still be working and crash in its exit handlers */
    }
    free(t->text);
    free(t);
    return code;
}
