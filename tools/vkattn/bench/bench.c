/* vkattn bench: times one recorded operation. SPDX-License-Identifier: MIT */
#include "report.h"
#include "sweep.h"

#include "common/nearest.h"
#include "vkattn/commands.h"
#include "vkattn/manual/help.h"
#include "vkattn/manual/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Larger sizes are typing errors; whether a size fits the device is up to the library. */
#define BATCH_MAX 1048576
#define SEQ_MAX 16777216
#define HEADS_MAX 65536
#define DIM_MAX 65536
#define EDGE_MAX 16777216

#define VARIANT_MOST 7
#define PROFILE_SIZE 512

#define SIZE(name, field, max)                    \
    {                                             \
        name, OPTION_U32, &o->field, 1, max, NULL \
    }

/* The options that every operation has, at the end of its list. */
#define BENCH_SPECS(o)                                                                    \
    {"dtype", OPTION_CHOICE, &(o)->dtype, 0, 0, option_dtypes},                           \
        {"path", OPTION_CHOICE, &(o)->path, 0, 0, option_paths},                          \
        {"repeat", OPTION_U32, &(o)->repeat, 1, 1000000, NULL},                           \
        {"json", OPTION_FLAG, &(o)->json, 0, 0, NULL},                                    \
        {"passes", OPTION_FLAG, &(o)->passes, 0, 0, NULL},                                \
        {"explain", OPTION_FLAG, &(o)->explain, 0, 0, NULL},                              \
        {"kernel", OPTION_TEXT, &(o)->kernel, 0, 0, NULL},                                \
        {"warm", OPTION_FLAG, &(o)->warm, 0, 0, NULL}, DEVICE_OPTION_SPECS(&(o)->device), \
    {                                                                                     \
        0                                                                                 \
    }

static bool need(const char *option, uint32_t value)
{
    if (!value)
        tool_error("--%s: expected, but not given", option);
    return value != 0;
}

/* Fills in options that were not given and checks how they fit each other. */
static bool complete_heads(struct bench_options *o)
{
    if (!o->n_kv_head)
        o->n_kv_head = o->n_head;
    if (o->n_head % o->n_kv_head) {
        tool_error("--kv-heads: expected a divisor of --heads %" PRIu32 ", got %" PRIu32, o->n_head,
                   o->n_kv_head);
        return false;
    }
    o->cross = o->n_kv != 0;
    if (!o->n_kv)
        o->n_kv = o->n_q;
    return true;
}

static bool parse_layer(int argc, char **argv, struct bench_options *o)
{
    const struct option_spec specs[] = {
        SIZE("batch", batch, BATCH_MAX),
        SIZE("seq", n_q, SEQ_MAX),
        SIZE("kv-seq", n_kv, SEQ_MAX),
        SIZE("model-dim", model_dim, DIM_MAX),
        SIZE("heads", n_head, HEADS_MAX),
        SIZE("kv-heads", n_kv_head, HEADS_MAX),
        {"causal", OPTION_FLAG, &o->causal, 0, 0, NULL},
        BENCH_SPECS(o),
    };
    if (!options_parse_only(argc, argv, specs) || !need("batch", o->batch) ||
        !need("seq", o->n_q) || !need("model-dim", o->model_dim) || !need("heads", o->n_head) ||
        !complete_heads(o))
        return false;
    if (o->model_dim % o->n_head) {
        tool_error("--heads: expected a divisor of --model-dim %" PRIu32 ", got %" PRIu32,
                   o->model_dim, o->n_head);
        return false;
    }
    o->head_dim = o->value_dim = o->model_dim / o->n_head;
    return true;
}

static bool parse_attention(int argc, char **argv, struct bench_options *o)
{
    const struct option_spec specs[] = {
        SIZE("batch", batch, BATCH_MAX),
        SIZE("heads", n_head, HEADS_MAX),
        SIZE("kv-heads", n_kv_head, HEADS_MAX),
        SIZE("seq", n_q, SEQ_MAX),
        SIZE("kv-seq", n_kv, SEQ_MAX),
        SIZE("head-dim", head_dim, DIM_MAX),
        SIZE("value-dim", value_dim, DIM_MAX),
        {"causal", OPTION_FLAG, &o->causal, 0, 0, NULL},
        BENCH_SPECS(o),
    };
    if (!options_parse_only(argc, argv, specs) || !need("batch", o->batch) ||
        !need("heads", o->n_head) || !need("seq", o->n_q) || !need("head-dim", o->head_dim) ||
        !complete_heads(o))
        return false;
    if (!o->value_dim)
        o->value_dim = o->head_dim;
    return true;
}

/* The type of a cache with this name, or "fp8". */
static bool find_kv(const char *name, size_t length, enum vka_dtype *dtype)
{
    static const enum vka_dtype types[] = {VKA_F32,  VKA_F16,  VKA_BF16,
                                           VKA_Q8_0, VKA_Q4_0, VKA_F8_E4M3};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const char *known = vka_dtype_name(types[i]);
        *dtype = types[i];
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return true;
    }
    *dtype = VKA_F8_E4M3;
    return length == 3 && memcmp(name, "fp8", 3) == 0;
}

/* "K" or "K,V": the types of keys and values. */
static bool parse_kv(struct bench_options *o)
{
    if (!o->kv)
        return true;
    const char *comma = strchr(o->kv, ',');
    size_t length = comma ? (size_t)(comma - o->kv) : strlen(o->kv);
    const char *value = comma ? comma + 1 : o->kv;
    if (find_kv(o->kv, length, &o->key_dtype) &&
        find_kv(value, comma ? strlen(value) : length, &o->value_dtype))
        return true;
    tool_error("--kv: expected K or K,V of f32, f16, bf16, q8_0, q4_0, fp8, got '%s'", o->kv);
    return false;
}

static bool parse_decode(int argc, char **argv, struct bench_options *o)
{
    const struct option_spec specs[] = {
        SIZE("batch", batch, BATCH_MAX),
        SIZE("heads", n_head, HEADS_MAX),
        SIZE("kv-heads", n_kv_head, HEADS_MAX),
        SIZE("kv-seq", n_kv, SEQ_MAX),
        SIZE("head-dim", head_dim, DIM_MAX),
        {"kv", OPTION_TEXT, &o->kv, 0, 0, NULL},
        BENCH_SPECS(o),
    };
    o->n_q = 1;
    if (!options_parse_only(argc, argv, specs) || !need("batch", o->batch) ||
        !need("heads", o->n_head) || !need("kv-seq", o->n_kv) || !need("head-dim", o->head_dim) ||
        !complete_heads(o))
        return false;
    o->value_dim = o->head_dim;
    return parse_kv(o);
}

static bool parse_matmul(int argc, char **argv, struct bench_options *o)
{
    const struct option_spec specs[] = {
        SIZE("m", m, EDGE_MAX),
        SIZE("n", n, EDGE_MAX),
        SIZE("k", k, EDGE_MAX),
        BENCH_SPECS(o),
    };
    return options_parse_only(argc, argv, specs) && need("m", o->m) && need("n", o->n) &&
           need("k", o->k);
}

static bool parse_linear(int argc, char **argv, struct bench_options *o)
{
    static const char *const activations[] = {"input", "i8", NULL};
    const struct option_spec specs[] = {
        SIZE("rows", m, EDGE_MAX),
        SIZE("n", n, EDGE_MAX),
        SIZE("k", k, EDGE_MAX),
        {"weights", OPTION_CHOICE, &o->weights, 0, 0, option_weights},
        {"activations", OPTION_CHOICE, &o->activations, 0, 0, activations},
        BENCH_SPECS(o),
    };
    if (!options_parse_only(argc, argv, specs) || !need("rows", o->m) || !need("n", o->n) ||
        !need("k", o->k))
        return false;
    o->weights = option_weight_dtypes[o->weights];
    return true;
}

/* "matmul" or "attention": the family of a kernel that the device lists; NULL: of neither. */
static const char *family_of(struct vka_device *device, const char *name, size_t length)
{
    static const char *const families[] = {"matmul", "attention"};
    struct vka_kernel_info kernel;
    for (size_t i = 0; i < vka_kernel_count(); i++)
        for (size_t f = 0; f < sizeof families / sizeof *families; f++)
            if (vka_device_kernel(device, i, &kernel) == VKA_OK && strlen(kernel.name) == length &&
                !memcmp(kernel.name, name, length) &&
                !strncmp(name, families[f], strlen(families[f])))
                return families[f];
    return NULL;
}

/* Makes a tuning profile that forces the kernel of --kernel in each problem of its family. */
static enum tool_exit force_kernel(struct bench_options *o, char *text, size_t size)
{
    const char *comma = strchr(o->kernel, ',');
    const int length = (int)strcspn(o->kernel, ",");
    char *end = "";
    static char index[16]; /* the device is named once */
    const unsigned long variant = comma ? strtoul(comma + 1, &end, 10) : 0;
    struct tool_device d;
    struct device_options rules = o->device;
    rules.tuning_profile = "none";
    enum tool_exit code = tool_device_open(&rules, &d);
    if (code != TOOL_OK)
        return tool_device_close(&d, code);
    const char *family = family_of(d.device, o->kernel, (size_t)length);
    if (!family || *end || (comma && end == comma + 1) || variant > VARIANT_MOST) {
        tool_error("--kernel: expected a kernel of products or attention that 'vkattn devices' "
                   "lists, with ',1' to ',%d' behind it for a variant, got '%s'",
                   VARIANT_MOST, o->kernel);
        return tool_device_close(&d, TOOL_USAGE);
    }
    const size_t head = vka_device_tuning_profile_head(d.device, text, size);
    snprintf(text + head, size - head, "kernel %s/* %.*s %lu\n", family, length, o->kernel,
             variant);
    o->device.profile_text = text;
    snprintf(index, sizeof index, "%" PRIu32, vka_device_properties(d.device)->index);
    o->device.device = index;
    return tool_device_close(&d, TOOL_OK);
}

/* Whether a pass of the plan runs the forced kernel; prints that none does. */
static enum tool_exit check_kernel(const struct bench_options *o, struct vka_plan *plan)
{
    struct vka_pass_info pass;
    const size_t length = o->kernel ? strcspn(o->kernel, ",") : 0;
    for (size_t i = 0; o->kernel && i < vka_plan_pass_count(plan); i++)
        if (vka_plan_pass(plan, i, &pass) == VKA_OK && pass.problem &&
            strlen(pass.kernel) == length && !memcmp(pass.kernel, o->kernel, length))
            return TOOL_OK;
    if (!o->kernel)
        return TOOL_OK;
    tool_error("--kernel: %.*s does not run on this device for this problem", (int)length,
               o->kernel);
    return TOOL_USAGE;
}

static enum tool_exit bench(struct bench_options *options)
{
    struct tool_device d;
    struct bench_problem problem = {0};
    struct vka_plan *plan = NULL;
    struct bench_times times = {0};
    char profile[PROFILE_SIZE];
    enum tool_exit code = TOOL_OK;
    if (options->kernel)
        code = force_kernel(options, profile, sizeof profile);
    if (code != TOOL_OK)
        return code;
    code = tool_device_open(&options->device, &d);
    if (code == TOOL_OK)
        code = bench_problem_create(&d, options, &problem);
    if (code == TOOL_OK)
        code = bench_time(&d, &problem, &plan, &times);
    if (code == TOOL_OK)
        code = check_kernel(options, plan);
    if (code == TOOL_OK)
        code = bench_report(&d, &problem, plan, &times);
    vka_plan_destroy(&plan);
    bench_problem_destroy(&problem);
    return tool_device_close(&d, code);
}

/* Says what bench times; as help where that is asked for. */
static int refuse(const char *word)
{
    static const char *const names[] = {"layer",  "attention", "matmul",
                                        "decode", "linear",    "sweep"};
    struct nearest nearest = {.word = word};
    if (!strcmp(word, "--help")) {
        printf("usage: vkattn bench OPERATION [OPTION]...\n\n");
        for (const struct manual_command *c = manual_commands; c->name; c++)
            if (!strncmp(c->name, "bench ", 6))
                printf("  %-12s %s\n", c->name + 6, c->summary);
        printf("\n'vkattn bench OPERATION --help' lists the options of an operation.\n");
        return TOOL_OK;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        nearest_offer(&nearest, names[i]);
    tool_error("expected layer, attention, matmul, decode, linear or sweep, got '%s'%s%s%s", word,
               nearest.best ? ": did you mean '" : "", nearest.best ? nearest.best : "",
               nearest.best ? "'?" : "");
    return TOOL_USAGE;
}

int cmd_bench(int argc, char **argv)
{
    static const struct {
        const char *name, *title;
        enum bench_op op;
        bool (*parse)(int argc, char **argv, struct bench_options *o);
    } ops[] = {
        {"layer", "bench layer", BENCH_LAYER, parse_layer},
        {"attention", "bench attention", BENCH_ATTENTION, parse_attention},
        {"matmul", "bench matmul", BENCH_MATMUL, parse_matmul},
        {"decode", "bench decode", BENCH_DECODE, parse_decode},
        {"linear", "bench linear", BENCH_LINEAR, parse_linear},
    };
    struct bench_options options = {.device = DEVICE_OPTIONS_DEFAULT};

    tool_set_command("bench");
    if (argc > 1)
        global_options_behind(argc, argv);
    if (argc > 1 && (!strcmp(argv[1], "sweep") || !strcmp(argv[1], "--sweep"))) {
        tool_set_command("bench sweep");
        return sweep_command(argc - 1, argv + 1);
    }
    for (size_t i = 0; argc > 1 && i < sizeof ops / sizeof ops[0]; i++) {
        if (strcmp(argv[1], ops[i].name))
            continue;
        tool_set_command(ops[i].title);
        options.op = ops[i].op;
        if (!ops[i].parse(argc - 1, argv + 1, &options))
            return TOOL_USAGE;
        /* first_ms includes all costs of a first start: nothing may be compiled already. */
        options.device.no_cache |= !options.warm;
        return bench(&options);
    }
    return refuse(argc > 1 ? argv[1] : "");
}
