/* vkattn run: a whole layer on one input. SPDX-License-Identifier: MIT */
#include "attend.h"
#include "commands.h"
#include "run_inputs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const layouts[] = {"bsd", "sbd", NULL};

/* Whether a file could be made there, as far as can be told without making it. */
static bool check_writable(const char *option, const char *path)
{
    struct stat info;
    if (!stat(path, &info) && !S_ISREG(info.st_mode)) {
        tool_error("--%s: expected a path to a file, but %s is something else", option, path);
        return false;
    }
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    bool ok = folder && !access(folder, W_OK);
    if (!ok)
        tool_error("--%s: cannot write into the folder of %s: %s", option, path, strerror(errno));
    free(folder);
    return ok;
}

static bool check_options(const struct run_options *o)
{
    if (!o->input[RUN_QUERY] || !o->output) {
        tool_error("--%s: expected, but not given", o->output ? "query" : "output");
        return false;
    }
    if (o->scores && !strcmp(o->scores, o->output)) {
        tool_error("--scores: expected another path than --output, got '%s' twice", o->scores);
        return false;
    }
    return check_writable("output", o->output) &&
           (!o->scores || check_writable("scores", o->scores));
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
        {"path", OPTION_CHOICE, &o->path, 0, 0, option_paths},
        {"output", OPTION_TEXT, &o->output, 0, 0, NULL},
        {"scores", OPTION_TEXT, &o->scores, 0, 0, NULL},
        DEVICE_OPTION_SPECS(&o->device),
        {0},
    };
    int first;
    if (!options_parse(argc, argv, specs, &first))
        return false;
    if (argc - first != 1) {
        tool_error("expected one layer file, got %d", argc - first);
        return false;
    }
    o->layer = argv[first];
    return check_options(o);
}

/* Writes a result as npy: float16 where the tensor was that, else float32, as npy has no bfloat16
 * and float32 holds every one of them. */
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

static enum tool_exit write_results(const struct run_options *o, const struct attend *a)
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
    return code;
}

static enum tool_exit run(const struct run_options *o, const struct case_file *problem)
{
    struct tool_device d;
    struct attend a = {
        .problem = problem,
        .path = (enum vka_path)o->path,
        .convert = o->dtype >= 0,
        .dtype = o->dtype >= 0 ? (enum vka_dtype)o->dtype : VKA_F32,
        .result_dtype[ATTEND_SCORES] = VKA_F32,
    };
    a.result_dtype[ATTEND_OUTPUT] = a.convert ? a.dtype : case_dtype(problem->query->dtype);
    enum tool_exit code = tool_device_open(&o->device, &d);
    if (code == TOOL_OK) {
        enum vka_status status = attend_run(&d, &a);
        code = status == VKA_OK ? write_results(o, &a) : tool_device_fail(&d, status);
    }
    attend_free(&a);
    return tool_device_close(&d, code);
}

int cmd_run(int argc, char **argv)
{
    struct run_options options = {
        .window[0] = RUN_NO_WINDOW,
        .layout = -1,
        .dtype = -1,
        .device = DEVICE_OPTIONS_DEFAULT,
    };
    struct run_inputs inputs = {0};

    tool_set_command("run");
    if (!parse(argc, argv, &options))
        return TOOL_USAGE;
    enum tool_exit code = run_inputs_open(&options, &inputs);
    if (code == TOOL_OK)
        code = run(&options, inputs.problem);
    run_inputs_free(&inputs);
    return code;
}
