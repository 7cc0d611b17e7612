/* vkattn-mnist: classifies handwritten digits with one attention layer, on vkattn's public API.
 * SPDX-License-Identifier: MIT */
#include "page.h"
#include "session.h"

#include "../files.h"
#include "../output.h"

#include "core/os.h"

#include <vkattn/vkattn_io.h>

#include <stdio.h>
#include <stdlib.h>

/* Images of a run of the plan: enough to fill a GPU, few enough to show progress on a CPU. */
#define BATCH 100

static const char usage[] =
    "usage: vkattn-mnist --model MODEL.safetensors --images IMAGES --labels LABELS\n"
    "                    [--count N] [--html OUT.html] [--logits OUT.npy] [--json]\n"
    "                    [--device INDEX|NAME] [--validate] [--no-cache] [--timeout SECONDS]\n"
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
                                       {"--verdict", option_verdict_file(&o->device)}};
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

/* Checks that labels are classes of the model, as they index its tables. */
static bool check_labels(const struct session *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->labels.data[i] >= s->model->n_class) {
            tool_error("%s: label %u is %u, expected a class below %u", s->options.labels,
                       (unsigned)i, (unsigned)s->labels.data[i], (unsigned)s->model->n_class);
            return false;
        }
    }
    return true;
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
    if (s->images.count != s->labels.count) {
        tool_error("%s: has %u labels, expected %u as there are images", o->labels,
                   (unsigned)s->labels.count, (unsigned)s->images.count);
        return TOOL_USAGE;
    }
    if (o->count > s->images.count) {
        tool_error("--count: expected at most %u, the images of %s", (unsigned)s->images.count,
                   o->images);
        return TOOL_USAGE;
    }
    s->count = o->count ? o->count : s->images.count;
    s->batch = s->count < BATCH ? s->count : BATCH;
    return check_labels(s) ? TOOL_OK : TOOL_USAGE;
}

static bool allocate(struct session *s)
{
    const struct model *m = s->model;
    const size_t n_weight = (size_t)m->n_head * model_units(m) * model_units(m);

    s->patches = calloc((size_t)s->batch * m->n_patch * m->width, sizeof *s->patches);
    s->logits = calloc((size_t)s->count * m->n_class, sizeof *s->logits);
    s->read = calloc(s->count, sizeof *s->read);
    if (s->options.html)
        s->attention = calloc(PAGE_CHOSEN * n_weight, sizeof *s->attention);
    if (s->patches && s->logits && s->read && (s->attention || !s->options.html))
        return true;
    tool_error("out of memory");
    return false;
}

void session_load_patches(struct session *s, uint32_t at, uint32_t image)
{
    const size_t n_pixel = (size_t)s->images.rows * s->images.cols;

    model_patches(s->model, s->images.data + image * n_pixel, s->patches + at * n_pixel);
}

static uint8_t best_class(const float *logits, uint32_t n_class)
{
    uint32_t best = 0;

    for (uint32_t k = 1; k < n_class; k++) {
        if (logits[k] > logits[best])
            best = k;
    }
    return (uint8_t)best;
}

/* Classifies all images, one batch in each run of the plan; the last batch may be smaller. */
static enum vka_status classify(struct session *s)
{
    const uint32_t n_class = s->model->n_class;

    for (uint32_t first = 0; first < s->count; first += s->batch) {
        const uint32_t n = s->count - first < s->batch ? s->count - first : s->batch;
        float *logits = s->logits + (size_t)first * n_class;
        double start = os_now_ms();
        enum vka_status status;

        progress_show(first, s->count, "digits");
        for (uint32_t i = 0; i < n; i++)
            session_load_patches(s, i, first + i);
        status = classifier_run(s->classifier, s->patches, n, s->device.timeout, logits, NULL);
        if (status != VKA_OK)
            return status;
        s->total_ms += os_now_ms() - start;
        if (first == 0)
            s->first_ms = s->total_ms;
        for (uint32_t i = 0; i < n; i++) {
            s->read[first + i] = best_class(logits + (size_t)i * n_class, n_class);
            s->correct += s->read[first + i] == s->labels.data[first + i];
        }
    }
    return VKA_OK;
}

/* Prints the accuracy as the last line: to stdout, or to stderr if stdout is JSON. */
static enum tool_exit report(const struct session *s)
{
    if (s->options.json && !session_print_json(s))
        return TOOL_MEMORY;
    fprintf(s->options.json ? stderr : stdout, "accuracy: %.4f (%u/%u)\n",
            (double)s->correct / s->count, (unsigned)s->correct, (unsigned)s->count);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        tool_error("stdout: cannot be written");
        return TOOL_USAGE;
    }
    return TOOL_OK;
}

static enum tool_exit run(struct session *s)
{
    enum tool_exit code = read_files(s);
    enum vka_status status;

    if (code != TOOL_OK)
        return code;
    if (!allocate(s))
        return TOOL_MEMORY;
    code = tool_device_open(&s->options.device, &s->device);
    if (code != TOOL_OK)
        return code;
    status = classifier_create(s->device.device, s->model, s->batch, s->options.html != NULL,
                               &s->classifier);
    if (status == VKA_OK)
        status = classify(s);
    progress_clear();
    if (status != VKA_OK)
        return tool_device_fail(&s->device, status);
    if (s->options.logits)
        code = session_write_logits(s);
    if (code == TOOL_OK && s->options.html)
        code = session_write_page(s);
    return code == TOOL_OK ? report(s) : code;
}

int main(int argc, char **argv)
{
    struct session s = {0};
    enum tool_exit code;

    os_program_begin(&argc, &argv);
    tool_set_command("mnist");
    if (!read_options(argc, argv, &s.options))
        return TOOL_USAGE;
    if (s.options.help) {
        fputs(usage, stdout);
        return TOOL_OK;
    }
    code = run(&s);
    classifier_destroy(&s.classifier);
    code = tool_device_close(&s.device, code);
    model_free(&s.model);
    idx_free(&s.images);
    idx_free(&s.labels);
    free(s.patches);
    free(s.logits);
    free(s.attention);
    free(s.read);
    return code;
}
