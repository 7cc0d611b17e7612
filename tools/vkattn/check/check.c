/* vkattn check: runs case files and compares. SPDX-License-Identifier: MIT */
#include "case/case.h"
#include "case/numbers.h"
#include "vkattn/attend.h"
#include "paths.h"
#include "vkattn/commands.h"
#include "common/output.h"
#include "op.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum outcome { PASSED = 0, FAILED, SKIPPED, MALFORMED, OUTCOME_COUNT };

struct check {
    int path; /* enum vka_path */
    bool json;
    struct device_options options;
    struct tool_device device; /* opened for the first well-formed case */
    bool opened;
    size_t outcomes[OUTCOME_COUNT];
};

/* The outcome of one case; numbers are over all its results. */
struct verdict {
    enum outcome outcome;
    double max_abs, max_rel, row_nmse;
    const char *why;    /* why it was skipped, or failed without a comparison */
    const char *result; /* of the first result that failed */
    const struct vka_io_array *want;
    struct case_result worst; /* its worst element */
};

static const struct vka_io_array *expected(const struct case_file *c, enum attend_result result)
{
    switch (result) {
    case ATTEND_OUTPUT:
        return c->expect_output;
    case ATTEND_SCORES:
        return c->expect_scores;
    case ATTEND_PRESENT_KEY:
        return c->expect_present_key;
    case ATTEND_PRESENT_VALUE:
        return c->expect_present_value;
    case ATTEND_RESULT_COUNT:
        break;
    }
    return NULL;
}

static double largest(double a, double b)
{
    return a > b ? a : b;
}

/* Compares one result with the expected array, if there is one. */
static enum vka_status compare(const char *result, const double *got, size_t count,
                               const struct vka_io_array *want, double rtol, double atol,
                               struct verdict *v)
{
    struct case_result r;
    if (!want)
        return VKA_OK;
    double *values = case_doubles(want);
    if (!values)
        return VKA_OUT_OF_HOST_MEMORY;
    case_compare(got, values, count, (size_t)want->shape[want->rank - 1], rtol, atol, &r);
    free(values);
    v->max_abs = largest(v->max_abs, r.max_abs);
    v->max_rel = largest(v->max_rel, r.max_rel);
    v->row_nmse = largest(v->row_nmse, r.row_nmse);
    if (!r.pass && v->outcome == PASSED) {
        v->outcome = FAILED;
        v->result = result;
        v->want = want;
        v->worst = r;
    }
    return VKA_OK;
}

/* Runs a case of kind op. Weights have to be equal, by the host bit for bit. */
static enum vka_status judge_op(struct check *check, const struct case_file *c, struct verdict *v)
{
    const struct case_op *op = &c->op;
    struct op_results r = {0};
    const bool linear = op->operation == CASE_LINEAR;
    size_t n_weight = linear ? case_count(op->expect_weight) : 0, n_output = case_count(op->expect);
    enum vka_status status = op_run(&check->device, c, &r);
    if (status == VKA_OK)
        status = compare("weight", r.weight, n_weight, op->expect_weight, 0, 0, v);
    if (status == VKA_OK && linear &&
        memcmp(r.decoded, op->expect_weight->data, op->expect_weight->size)) {
        v->outcome = FAILED;
        v->why = "vka_dtype_decode gives other bits than expect.weight";
    }
    if (status == VKA_OK)
        status = compare("output", r.output, n_output, op->expect, c->rtol, c->atol, v);
    if (status == VKA_OK && r.state)
        status = compare("state", r.state, case_count(op->expect_state), op->expect_state, c->rtol,
                         c->atol, v);
    op_results_free(&r);
    return status;
}

static enum vka_status judge_attention(struct check *check, const struct case_file *c,
                                       struct verdict *v)
{
    struct attend a = {.problem = c, .path = (enum vka_path)check->path};
    a.present = c->expect_present_key || c->expect_present_value;
    for (int i = 0; i < ATTEND_RESULT_COUNT; i++) {
        const struct vka_io_array *want = expected(c, (enum attend_result)i);
        a.result_dtype[i] = case_dtype(want ? want->dtype : c->query->dtype);
    }
    enum vka_status status = attend_run(&check->device, &a);
    for (int i = 0; status == VKA_OK && i < ATTEND_RESULT_COUNT; i++)
        status = compare(attend_result_name((enum attend_result)i), a.values[i], a.count[i],
                         expected(c, (enum attend_result)i), c->rtol, c->atol, v);
    attend_free(&a);
    return status;
}

/* Why no device can run the case with vkattn; NULL: some can. */
static const char *beyond_us(const struct case_file *c)
{
    if (c->kind == CASE_LAYER && (c->past_key || c->expect_present_key || c->expect_present_value))
        return "past keys of a layer";
    return NULL;
}

/* Runs and compares an open case. Returns failures that end the whole command; others are recorded
 * in *v. */
static enum vka_status judge(struct check *check, const struct case_file *c, struct verdict *v)
{
    v->why = beyond_us(c);
    if (v->why) {
        v->outcome = SKIPPED;
        return VKA_OK;
    }
    *check->device.sentence = '\0';
    enum vka_status status =
        c->kind == CASE_OP ? judge_op(check, c, v) : judge_attention(check, c, v);
    if (status == VKA_UNSUPPORTED || status == VKA_INVALID || status == VKA_INTERNAL) {
        /* The case is well formed: a refusal that is not a limit is a defect of the library. */
        v->outcome = status == VKA_UNSUPPORTED ? SKIPPED : FAILED;
        v->why = *check->device.sentence ? check->device.sentence : vka_status_name(status);
        return VKA_OK;
    }
    return status;
}

/* Prints the coordinates of an element of a dense array. */
static void coordinates(const struct vka_io_array *array, size_t element, uint64_t *at)
{
    for (uint32_t i = array->rank; i-- > 0;) {
        at[i] = element % array->shape[i];
        element /= array->shape[i];
    }
}

static void print_verdict(const char *name, const struct verdict *v)
{
    static const char *const words[] = {"PASS", "FAIL", "SKIP"};
    uint64_t at[VKA_IO_MAX_RANK];
    printf("%s ", words[v->outcome]);
    for (; *name; name++) /* it comes from a file and must not break the line */
        putchar((unsigned char)*name < 0x20 || *name == 0x7f ? '?' : *name);
    fputs("  ", stdout);
    if (v->why) {
        printf("%s\n", v->why);
        return;
    }
    printf("max_abs=%.3g max_rel=%.3g row_nmse=%.3g", v->max_abs, v->max_rel, v->row_nmse);
    if (v->outcome == FAILED) {
        coordinates(v->want, v->worst.worst, at);
        printf("  %s[", v->result);
        for (uint32_t i = 0; i < v->want->rank; i++)
            printf("%s%" PRIu64, i ? "," : "", at[i]);
        printf("] got=%.9g want=%.9g", v->worst.got, v->worst.want);
    }
    putchar('\n');
}

static bool print_verdict_json(const char *name, const char *path, const struct verdict *v)
{
    static const char *const words[] = {"pass", "fail", "skip"};
    uint64_t at[VKA_IO_MAX_RANK];
    json_t *o = json_object();
    json_object_set_new(o, "case", json_text(name));
    json_object_set_new(o, "file", json_text(path));
    json_object_set_new(o, "result", json_text(words[v->outcome]));
    if (v->why) {
        json_object_set_new(o, "why", json_text(v->why));
        return json_print_line(o);
    }
    json_object_set_new(o, "max_abs", json_number(v->max_abs));
    json_object_set_new(o, "max_rel", json_number(v->max_rel));
    json_object_set_new(o, "row_nmse", json_number(v->row_nmse));
    if (v->outcome == FAILED) {
        json_t *index = json_array();
        coordinates(v->want, v->worst.worst, at);
        for (uint32_t i = 0; i < v->want->rank; i++)
            json_array_append_new(index, json_integer((json_int_t)at[i]));
        json_object_set_new(o, "output", json_text(v->result));
        json_object_set_new(o, "index", index);
        json_object_set_new(o, "got", json_number(v->worst.got));
        json_object_set_new(o, "want", json_number(v->worst.want));
    }
    return json_print_line(o);
}

/* Anything but TOOL_OK ends the command; a malformed case is only counted. */
static enum tool_exit check_file(struct check *check, const char *path)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    struct case_file *c = NULL;
    struct verdict v = {0};
    enum vka_status status = case_open(path, error, &c);
    if (status != VKA_OK) {
        progress_clear();
        tool_error("%s", *error ? error : vka_status_name(status));
        check->outcomes[MALFORMED]++;
        return status == VKA_OUT_OF_HOST_MEMORY ? TOOL_MEMORY : TOOL_OK;
    }
    if (!check->opened) {
        enum tool_exit code = tool_device_open(&check->options, &check->device);
        check->opened = true;
        if (code != TOOL_OK) {
            case_close(&c);
            return code;
        }
    }
    status = judge(check, c, &v);
    progress_clear();
    enum tool_exit code = TOOL_OK;
    if (status != VKA_OK) {
        code = tool_device_fail(&check->device, status);
    } else {
        const char *name = c->name && *c->name ? c->name : path;
        check->outcomes[v.outcome]++;
        if (!check->json)
            print_verdict(name, &v);
        else if (!print_verdict_json(name, path, &v))
            code = TOOL_MEMORY;
    }
    case_close(&c);
    return code;
}

static enum tool_exit summarize(const struct check *check)
{
    const size_t *n = check->outcomes;
    if (check->json) {
        json_t *o = json_pack("{sI sI sI sI}", "passed", (json_int_t)n[PASSED], "failed",
                              (json_int_t)n[FAILED], "skipped", (json_int_t)n[SKIPPED], "malformed",
                              (json_int_t)n[MALFORMED]);
        if (!json_print_line(o))
            return TOOL_MEMORY;
    } else {
        printf("%zu passed, %zu failed, %zu skipped\n", n[PASSED], n[FAILED], n[SKIPPED]);
    }
    if (n[MALFORMED])
        return TOOL_USAGE;
    return n[FAILED] ? TOOL_FAILED : TOOL_OK;
}

int cmd_check(int argc, char **argv)
{
    struct check check = {.options = DEVICE_OPTIONS_DEFAULT};
    const struct option_spec specs[] = {
        {"path", OPTION_CHOICE, &check.path, 0, 0, option_paths},
        {"json", OPTION_FLAG, &check.json, 0, 0, NULL},
        DEVICE_OPTION_SPECS(&check.options),
        {0},
    };
    struct path_list list = {0};
    enum tool_exit code = TOOL_OK;
    int first;

    tool_set_command("check");
    if (!options_parse(argc, argv, specs, &first))
        return TOOL_USAGE;
    if (first == argc) {
        tool_error("expected case files or folders of them");
        return TOOL_USAGE;
    }
    for (int i = first; code == TOOL_OK && i < argc; i++)
        code = path_list_add(&list, argv[i]);
    path_list_sort(&list);
    for (size_t i = 0; code == TOOL_OK && i < list.count; i++) {
        progress_show(i, list.count, list.path[i]);
        code = check_file(&check, list.path[i]);
    }
    progress_clear();
    if (code == TOOL_OK)
        code = summarize(&check);
    path_list_free(&list);
    return tool_device_close(&check.device, code);
}
