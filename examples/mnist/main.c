/* vkattn-mnist: reads handwritten digits with one attention layer, and learns to, on vkattn's public API.
 * SPDX-License-Identifier: MIT */
#include "model_file.h"
#include "page.h"
#include "session.h"
#include "train.h"

#include "common/files.h"
#include "common/output.h"

#include "core/os.h"

#include <vkattn/vkattn_io.h>

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: vkattn-mnist --model MODEL.safetensors --images IMAGES --labels LABELS\n"
    "                    [--count N] [--html OUT.html] [--logits OUT.npy] [--json]\n"
    "                    [--device INDEX|NAME] [--validate] [--no-cache] [--timeout SECONDS]\n"
    "       vkattn-mnist train OPTION...\n"
    "\n"
    "Classifies the digits of MNIST's two IDX files and closes with the accuracy.\n"
    "  --count N     only the first N images\n"
    "  --html FILE   a page with the digits, the errors and each head's attention\n"
    "  --logits FILE the outputs before the softmax, float32 [count, classes]\n"
    "  --json        one JSON object on stdout; the accuracy line goes to stderr\n";

static bool check_files(const struct options *o)
{
    const struct tool_file outputs[] = {{"--html", o->html}, {"--logits", o->logits}};
    const struct tool_file inputs[] = {{"--model", o->model},
                                       {"--images", o->images},
                                       {"--labels", o->labels},
                                       {"--tuning-profile", option_profile_file(&o->device)}};
    return tool_check_files(outputs, 2, inputs, 4);
}

static bool read_options(int argc, char **argv, struct options *o)
{
    const struct option_spec specs[] = {
        {"model", OPTION_TEXT, &o->model, 0, 0, NULL},
        {"images", OPTION_TEXT, &o->images, 0, 0, NULL},
        {"labels", OPTION_TEXT, &o->labels, 0, 0, NULL},
        {"count", OPTION_U32, &o->count, 1, UINT32_MAX, NULL},
        {"html", OPTION_TEXT, &o->html, 0, 0, NULL},
        {"logits", OPTION_TEXT, &o->logits, 0, 0, NULL},
        {"json", OPTION_FLAG, &o->json, 0, 0, NULL},
        {"help", OPTION_FLAG, &o->help, 0, 0, NULL},
        DEVICE_OPTION_SPECS(&o->device),
        {NULL, OPTION_FLAG, NULL, 0, 0, NULL},
    };
    const char *missing;

    o->device = DEVICE_OPTIONS_DEFAULT;
    if (!options_parse_only(argc, argv, specs))
        return false;
    missing = !o->model ? "--model" : !o->images ? "--images" : !o->labels ? "--labels" : NULL;
    if (missing && !o->help)
        tool_error("%s: expected; --help shows the options", missing);
    return o->help || (!missing && check_files(o));
}

/* Reads all files before a device is opened: bad input is reported even if there is no device. */
static enum tool_exit read_files(struct session *s)
{
    const struct options *o = &s->options;
    char error[VKA_IO_ERROR_SIZE] = "";
    enum vka_status status = idx_read_images(o->images, &s->images, error);

    if (status == VKA_OK)
        status = idx_read_labels(o->labels, &s->labels, error);
    if (status == VKA_OK)
        status = model_read(o->model, s->images.rows, s->images.cols, &s->model, error);
    if (status != VKA_OK) {
        tool_error("%s", error);
        return tool_exit_of(status);
    }
    if (!idx_check_pair(&s->images, &s->labels, s->model->n_class, o->labels))
        return TOOL_USAGE;
    if (o->count > s->images.count) {
        tool_error("--count: expected at most %u, the images of %s", (unsigned)s->images.count,
                   o->images);
        return TOOL_USAGE;
    }
    s->count = o->count ? o->count : s->images.count;
    return TOOL_OK;
}

/* Prints the accuracy as the last line: to stdout, or to stderr if stdout is JSON. */
static enum tool_exit report(const struct session *s)
{
    if (s->options.json && !session_print_json(s))
        return TOOL_MEMORY;
    fprintf(s->options.json ? stderr : stdout, "accuracy: %.4f (%u/%u)\n",
            (double)s->correct / s->count, (unsigned)s->correct, (unsigned)s->count);
    return TOOL_OK;
}

static enum tool_exit run(struct session *s)
{
    enum tool_exit code = read_files(s);

    if (code == TOOL_OK)
        code = tool_device_open(&s->options.device, s->device);
    if (code == TOOL_OK)
        code = session_classify(s);
    if (code == TOOL_OK && s->options.logits)
        code = session_write_logits(s);
    if (code == TOOL_OK && s->options.html)
        code = session_write_page(s);
    return code == TOOL_OK ? report(s) : code;
}

static enum tool_exit classify(int argc, char **argv)
{
    struct tool_device device = {0};
    struct session s = {.device = &device};
    enum tool_exit code;

    tool_set_command("mnist");
    if (!read_options(argc, argv, &s.options))
        return TOOL_USAGE;
    if (s.options.help) {
        fputs(usage, stdout);
        return TOOL_OK;
    }
    code = run(&s);
    session_free(&s);
    code = tool_device_close(&device, code);
    model_free(&s.model);
    idx_free(&s.images);
    idx_free(&s.labels);
    return code;
}

int main(int argc, char **argv)
{
    os_program_begin(&argc, &argv);
    if (argc > 1 && strcmp(argv[1], "train") == 0)
        return tool_end(train(argc - 1, argv + 1));
    return tool_end(classify(argc, argv));
}
