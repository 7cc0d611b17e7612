/* vkattn run: a whole layer on one input. SPDX-License-Identifier: MIT */
#include "case/numbers.h"
#include "vkattn/attend.h"
#include "vkattn/commands.h"
#include "common/files.h"
#include "inputs.h"
#include "page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const layouts[] = {"bsd", "sbd", NULL};
static const char *const weights[] = {"q8_0", "q4_0", NULL};

/* Checks that no output is an input or another output. */
static bool check_files(const struct run_options *o)
{
    const struct tool_file outputs[] = {
        {"--output", o->output}, {"--scores", o->scores}, {"--html", o->html}};
    const struct tool_file inputs[] = {
        {"the layer file", o->layer},   {"--query", o->input[RUN_QUERY]},
        {"--key", o->input[RUN_KEY]},   {"--value", o->input[RUN_VALUE]},
        {"--mask", o->input[RUN_MASK]}, {"--kv-lengths", o->input[RUN_LENGTHS]},
        {"--tokens", o->tokens},        {"--tuning-profile", option_profile_file(&o->device)},
    };
    return tool_check_files(outputs, 3, inputs, 8);
}

static bool check_options(const struct run_options *o)
{
    if (!o->input[RUN_QUERY] || !o->output) {
        tool_error("--%s: expected, but not given", o->output ? "query" : "output");
        return false;
    }
    if (o->tokens && !o->html) {
        tool_error("--tokens: expected together with --html, whose page they label");
        return false;
    }
    return check_files(o);
}

static bool parse(int argc, char **argv, struct run_options *o)
{
    const struct option_spec specs[] = {
        {"query", OPTION_TEXT, &o->input[RUN_QUERY], 0, 0, NULL},
        {"key", OPTION_TEXT, &o->input[RUN_KEY], 0, 0, NULL},
        {"value", OPTION_TEXT, &o->input[RUN_VALUE], 0, 0, NULL},
        {"mask", OPTION_TEXT, &o->input[RUN_MASK], 0, 0, NULL},
        {"kv-lengths", OPTION_TEXT, &o->input[RUN_LENGTHS], 0, 0, NULL},
        {"heads", OPTION_U32, &o->heads, 1, INT32_MAX, NULL},
        {"kv-heads", OPTION_U32, &o->kv_heads, 1, INT32_MAX, NULL},
        {"causal", OPTION_FLAG, &o->causal, 0, 0, NULL},
        {"window", OPTION_PAIR, o->window, -1, INT32_MAX, NULL},
        {"layout", OPTION_CHOICE, &o->layout, 0, 0, layouts},
        {"dtype", OPTION_CHOICE, &o->dtype, 0, 0, option_dtypes},
        {"weights", OPTION_CHOICE, &o->weights, 0, 0, weights},
        {"path", OPTION_CHOICE, &o->path, 0, 0, option_paths},
        {"output", OPTION_TEXT, &o->output, 0, 0, NULL},
        {"scores", OPTION_TEXT, &o->scores, 0, 0, NULL},
        {"html", OPTION_TEXT, &o->html, 0, 0, NULL},
        {"tokens", OPTION_TEXT, &o->tokens, 0, 0, NULL},
        {"count-nonfinite", OPTION_FLAG, &o->count_nonfinite, 0, 0, NULL},
        DEVICE_OPTION_SPECS(&o->device),
        {0},
    };
    return options_parse_one(argc, argv, specs, "layer file", &o->layer) && check_options(o);
}

/* Writes a result as npy: float16 if the tensor was float16, else float32, as npy has no bfloat16
 * and float32 represents each of its values. */
static enum tool_exit write_result(const char *path, const double *values, size_t count,
                                   enum vka_dtype dtype, uint32_t rank, const uint64_t *shape)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    enum vka_dtype stored = dtype == VKA_F16 ? VKA_F16 : VKA_F32;
    struct vka_io_array array = {
        .dtype = stored == VKA_F16 ? VKA_IO_F16 : VKA_IO_F32,
        .rank = rank,
        .size = count * vka_dtype_size(stored),
    };
    void *data = malloc(array.size);
    if (!data) {
        tool_error("out of memory");
        return TOOL_MEMORY;
    }
    case_narrow(values, count, stored, data);
    memcpy(array.shape, shape, rank * sizeof *shape);
    array.data = data;
    enum vka_status status = vka_npy_write(path, &array, error);
    free(data);
    if (status != VKA_OK)
        tool_error("%s", *error ? error : vka_status_name(status));
    return tool_exit_of(status);
}

static enum tool_exit write_page(const struct run_options *o, const struct run_inputs *inputs,
                                 const struct attend *a, const struct tool_device *d)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    const struct vka_device_properties *properties = vka_device_properties(d->device);
    const struct run_page page = {
        .layer = o->layer,
        .query = o->input[RUN_QUERY],
        .device = properties->name,
        .driver = properties->driver,
        .problem = inputs->problem,
        .weights = a->values[ATTEND_SCORES],
        .tokens = inputs->tokens,
    };
    enum vka_status status = run_page_write(o->html, &page, error);
    if (status != VKA_OK)
        tool_error("%s", error);
    return tool_exit_of(status);
}

static enum tool_exit write_results(const struct run_options *o, const struct run_inputs *inputs,
                                    const struct attend *a, const struct tool_device *d)
{
    const struct case_file *c = a->problem;
    bool sequence_first = c->config.layout == CASE_SBD;
    const uint64_t output[] = {sequence_first ? c->n_q : c->batch,
                               sequence_first ? c->batch : c->n_q, c->output_dim};
    const uint64_t scores[] = {c->batch, c->n_head, c->n_q, c->n_kv};
    enum tool_exit code = write_result(o->output, a->values[ATTEND_OUTPUT], a->count[ATTEND_OUTPUT],
                                       a->result_dtype[ATTEND_OUTPUT], 3, output);
    if (code == TOOL_OK && o->scores)
        code = write_result(o->scores, a->values[ATTEND_SCORES], a->count[ATTEND_SCORES], VKA_F32,
                            4, scores);
    if (code == TOOL_OK && o->html)
        code = write_page(o, inputs, a, d);
    return code;
}

static enum tool_exit run(const struct run_options *o, const struct run_inputs *inputs)
{
    const struct case_file *problem = inputs->problem;
    struct tool_device d;
    struct attend a = {
        .problem = problem,
        .path = (enum vka_path)o->path,
        .convert = o->dtype >= 0,
        .dtype = o->dtype >= 0 ? (enum vka_dtype)o->dtype : VKA_F32,
        .quantise = o->weights < 0 ? VKA_F32
                    : o->weights   ? VKA_Q4_0
                                   : VKA_Q8_0,
        .result_dtype[ATTEND_SCORES] = VKA_F32,
        .count_nonfinite = o->count_nonfinite,
    };
    a.result_dtype[ATTEND_OUTPUT] = a.convert ? a.dtype : case_dtype(problem->query->dtype);
    enum tool_exit code = tool_device_open(&o->device, &d);
    if (code == TOOL_OK) {
        enum vka_status status = attend_run(&d, &a);
        code = status == VKA_OK ? write_results(o, inputs, &a, &d) : tool_device_fail(&d, status);
    }
    for (size_t i = 0; code == TOOL_OK && i < a.n_nonfinite; i++)
        fprintf(stderr, "%s: %" PRIu64 " NaN, %" PRIu64 " Inf\n", a.nonfinite[i].name,
                a.nonfinite[i].nan, a.nonfinite[i].inf);
    attend_free(&a);
    return tool_device_close(&d, code);
}

int cmd_run(int argc, char **argv)
{
    struct run_options options = {
        .window[0] = RUN_NO_WINDOW,
        .layout = -1,
        .dtype = -1,
        .weights = -1,
        .device = DEVICE_OPTIONS_DEFAULT,
    };
    struct run_inputs inputs = {0};

    tool_set_command("run");
    if (!parse(argc, argv, &options))
        return TOOL_USAGE;
    enum tool_exit code = run_inputs_open(&options, &inputs);
    if (code == TOOL_OK)
        code = run(&options, &inputs);
    run_inputs_free(&inputs);
    return code;
}
