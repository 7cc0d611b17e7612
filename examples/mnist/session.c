/* A classification by vkattn-mnist, and its results: logits, page, JSON. */
#include "session.h"

#include "page.h"

#include "common/output.h"

#include "core/os.h"

#include <vkattn/vkattn_io.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Images of a run of the plan: enough to fill a GPU, few enough to show progress on a CPU. */
#define BATCH 100

/* ---- Classification -------------------------------------------------------------------------- */

static bool keeps_attention(const struct session *s)
{
    return s->options.html && !s->model->n_hidden;
}

static bool allocate(struct session *s)
{
    const struct model *m = s->model;
    const size_t n_weight = (size_t)m->n_head * model_positions(m) * model_positions(m);

    s->batch = s->count < BATCH ? s->count : BATCH;
    s->input = calloc((size_t)s->batch * m->rows * m->cols, sizeof *s->input);
    s->logits = calloc((size_t)s->count * m->n_class, sizeof *s->logits);
    s->read = calloc(s->count, sizeof *s->read);
    if (keeps_attention(s))
        s->attention = calloc(PAGE_CHOSEN * n_weight, sizeof *s->attention);
    return s->input && s->logits && s->read && (s->attention || !keeps_attention(s));
}

static void load_input(struct session *s, uint32_t at, uint32_t image)
{
    const size_t n_pixel = (size_t)s->images.rows * s->images.cols;

    model_input(s->model, s->images.data + image * n_pixel, s->input + at * n_pixel);
}

uint8_t session_best_class(const float *logits, uint32_t n_class)
{
    uint32_t best = 0;

    for (uint32_t k = 1; k < n_class; k++) {
        if (logits[k] > logits[best])
            best = k;
    }
    return (uint8_t)best;
}

/* Classifies all images, one batch in each run of the plan; the last batch may be smaller. */
static enum vka_status run_batches(struct session *s)
{
    const uint32_t n_class = s->model->n_class;

    for (uint32_t first = 0; first < s->count; first += s->batch) {
        const uint32_t n = s->count - first < s->batch ? s->count - first : s->batch;
        float *logits = s->logits + (size_t)first * n_class;
        double start = os_now_ms();
        enum vka_status status;

        progress_show(first, s->count, "digits");
        for (uint32_t i = 0; i < n; i++)
            load_input(s, i, first + i);
        status = classifier_run(s->classifier, s->input, n, s->device->timeout, logits, NULL);
        if (status != VKA_OK)
            return status;
        s->total_ms += os_now_ms() - start;
        if (first == 0)
            s->first_ms = s->total_ms;
        for (uint32_t i = 0; i < n; i++) {
            s->read[first + i] = session_best_class(logits + (size_t)i * n_class, n_class);
            s->correct += s->read[first + i] == s->labels.data[first + i];
        }
    }
    return VKA_OK;
}

enum tool_exit session_classify(struct session *s)
{
    enum vka_status status;

    if (!allocate(s)) {
        tool_error("out of memory");
        return TOOL_MEMORY;
    }
    status = classifier_create(s->device->device, s->model, s->batch, keeps_attention(s),
                               &s->classifier);
    if (status == VKA_OK)
        status = run_batches(s);
    progress_clear();
    return status == VKA_OK ? TOOL_OK : tool_device_fail(s->device, status);
}

void session_free(struct session *s)
{
    classifier_destroy(&s->classifier);
    free(s->input);
    free(s->logits);
    free(s->attention);
    free(s->read);
}

/* ---- Logits ---------------------------------------------------------------------------------- */

enum tool_exit session_write_logits(const struct session *s)
{
    const struct vka_io_array array = {
        .dtype = VKA_IO_F32,
        .rank = 2,
        .shape = {s->count, s->model->n_class},
        .data = s->logits,
        .size = (size_t)s->count * s->model->n_class * sizeof *s->logits,
    };
    char error[VKA_IO_ERROR_SIZE] = "";
    const enum vka_status status = vka_npy_write(s->options.logits, &array, error);

    if (status != VKA_OK)
        tool_error("%s", error);
    return tool_exit_of(status);
}

/* ---- Page ------------------------------------------------------------------------------------ */

struct choice {
    uint32_t n, image[PAGE_CHOSEN];
};

static bool is_taken(const struct session *s, const struct choice *c, uint32_t image, bool by_label)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->image[i] == image ||
            (by_label && s->labels.data[c->image[i]] == s->labels.data[image]))
            return true;
    }
    return false;
}

/* Adds images that were read correctly, or wrongly, until there are `most`. */
static void pick(const struct session *s, struct choice *c, bool right, bool new_label,
                 uint32_t most)
{
    for (uint32_t i = 0; i < s->count && c->n < most; i++) {
        if ((s->read[i] == s->labels.data[i]) == right && !is_taken(s, c, i, new_label))
            c->image[c->n++] = i;
    }
}

/* Chooses half of the images from those read correctly and half from those read wrongly, if there
 * are enough; different digits first. */
static void choose(const struct session *s, struct choice *c)
{
    const uint32_t most = s->batch < PAGE_CHOSEN ? s->batch : PAGE_CHOSEN;

    c->n = 0;
    if (!keeps_attention(s))
        return;
    pick(s, c, true, true, (most + 1) / 2);
    pick(s, c, false, true, most);
    pick(s, c, false, false, most);
    pick(s, c, true, false, most);
}

static void softmax(const float *logits, uint32_t n, float *share)
{
    double most = -INFINITY, sum = 0;

    for (uint32_t i = 0; i < n; i++)
        most = fmax(most, (double)logits[i]);
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - most);
    for (uint32_t i = 0; i < n; i++)
        share[i] = (float)(exp((double)logits[i] - most) / sum);
}

/* Runs the plan again on the chosen images only, for their attention. */
static enum vka_status attend(struct session *s, const struct choice *c)
{
    float logits[PAGE_CHOSEN * MODEL_MAX_CLASSES];

    for (uint32_t i = 0; i < c->n; i++)
        load_input(s, i, c->image[i]);
    return classifier_run(s->classifier, s->input, c->n, s->device->timeout, logits, s->attention);
}

enum tool_exit session_write_page(struct session *s)
{
    const struct vka_device_properties *device = vka_device_properties(s->device->device);
    const uint32_t n_class = s->model->n_class;
    float *probability = calloc((size_t)s->count * n_class, sizeof *probability);
    char error[VKA_IO_ERROR_SIZE] = "";
    struct choice c;
    enum vka_status status;

    if (!probability) {
        tool_error("out of memory");
        return TOOL_MEMORY;
    }
    for (uint32_t i = 0; i < s->count; i++)
        softmax(s->logits + (size_t)i * n_class, n_class, probability + (size_t)i * n_class);
    choose(s, &c);
    status = c.n ? attend(s, &c) : VKA_OK;
    if (status != VKA_OK) {
        free(probability);
        return tool_device_fail(s->device, status);
    }
    status = page_write(s->options.html,
                        &(struct page){
                            .model = s->model,
                            .images = &s->images,
                            .labels = &s->labels,
                            .count = s->count,
                            .correct = s->correct,
                            .read = s->read,
                            .probability = probability,
                            .n_chosen = c.n,
                            .chosen = c.image,
                            .attention = s->attention,
                            .model_path = s->options.model,
                            .device = device->name,
                            .driver = device->driver,
                            .batch = s->batch,
                            .n_pass = classifier_passes(s->classifier),
                            .total_ms = s->total_ms,
                        },
                        error);
    free(probability);
    if (status != VKA_OK)
        tool_error("%s", error);
    return tool_exit_of(status);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

bool session_print_json(const struct session *s)
{
    const struct vka_device_properties *device = vka_device_properties(s->device->device);
    const char *attend_over = s->model->n_hidden   ? "nothing"
                              : s->model->channels ? "channels"
                                                   : "patches";

    /* o takes ownership of what json_text and json_number made. */
    return json_print_line(json_pack(
        "{s:o, s:o, s:o, s:s, s:I, s:I, s:o, s:I, s:I, s:o, s:o}", "device",
        json_text(device->name), "driver", json_text(device->driver), "model",
        json_text(s->options.model), "attend", attend_over, "count", (json_int_t)s->count,
        "correct", (json_int_t)s->correct, "accuracy", json_number((double)s->correct / s->count),
        "batch", (json_int_t)s->batch, "passes", (json_int_t)classifier_passes(s->classifier),
        "first_ms", json_number(s->first_ms), "total_ms", json_number(s->total_ms)));
}
