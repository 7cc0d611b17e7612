/* Trains the classifier: epochs over shuffled digits, a file after each, the accuracy at the end. */
#include "train.h"

#include "session.h"
#include "train_file.h"
#include "train_page.h"

#include "common/files.h"
#include "common/output.h"

#include "core/os.h"
#include "reference/reference.h"

#include <vkattn/vkattn_io.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 7 /* pixels of a patch's side */
#define HEADS 16
#define HIDDEN 784
#define CLASSES 10

static const char usage[] =
    "usage: vkattn-mnist train --images IMAGES --labels LABELS --output MODEL.safetensors\n"
    "                          --model documented|executed|mlp | --resume MODEL.safetensors\n"
    "                          [--epochs N] [--batch N] [--lr X] [--seed N] [--html OUT.html]\n"
    "                          [--test-images IMAGES --test-labels LABELS]\n"
    "                          [--device INDEX|NAME] [--validate] [--no-cache]\n"
    "                          [--timeout SECONDS]\n"
    "\n"
    "Trains a model for vkattn-mnist by Adam on the cross-entropy, and closes with the accuracy\n"
    "on the test digits, or on its own without them. The same bytes each time on one device and\n"
    "driver.\n"
    "  --model NAME   documented: 16 heads over the 16 patches; executed: over the 49 pixels of\n"
    "                 a patch; mlp: 784 hidden units, no attention\n"
    "  --resume FILE  goes on with a training; its model, batch, rate and seed are the file's\n"
    "  --epochs N     in all, also with --resume; 5. 0 writes the model as it begins\n"
    "  --batch N      images of a step; 64\n"
    "  --lr X         learning rate; 0.003\n"
    "  --seed N       of the first weights and the order of the digits; 1\n"
    "  --output FILE  written after each epoch; vkattn-mnist reads it, and --resume\n"
    "  --html FILE    a page with the loss of each step\n";

/* What is not given is -1 in kind and seed, 0 in batch and learning_rate, 5 in epochs. */
struct train_options {
    const char *images, *labels, *test_images, *test_labels, *resume, *output, *html;
    int kind;
    int64_t seed;
    uint32_t batch, epochs;
    double learning_rate;
    bool help;
    struct device_options device;
};

struct train {
    struct train_options options;
    struct idx_file images, labels, test_images, test_labels;
    struct model *model;
    struct train_progress progress;
    struct tool_device device;
    struct trainer *trainer;
    uint32_t *order; /* [count] */
    float *input;    /* [batch][rows * cols] */
    int32_t *target; /* [batch] */
    float *logits;   /* [batch][n_class] */
    double total_ms;
    uint32_t steps;           /* of this call */
    uint32_t correct, tested; /* at the end */
};

/* ---- Options --------------------------------------------------------------------------------- */

static bool check_files(const struct train_options *o)
{
    /* --output may name --resume: that is read first, and replaced by a whole file. */
    const struct tool_file outputs[] = {{"--html", o->html}, {"--output", o->output}};
    const struct tool_file inputs[] = {{"--images", o->images},
                                       {"--labels", o->labels},
                                       {"--test-images", o->test_images},
                                       {"--test-labels", o->test_labels},
                                       {"--tuning-profile", option_profile_file(&o->device)},
                                       {"--resume", o->resume}};
    return tool_check_files(outputs, 2, inputs, 5) && tool_check_files(outputs, 1, inputs + 5, 1);
}

static bool check_given(const struct train_options *o)
{
    const char *missing = !o->images                          ? "--images"
                          : !o->labels                        ? "--labels"
                          : !o->output                        ? "--output"
                          : o->kind < 0 && !o->resume         ? "--model"
                          : o->test_images && !o->test_labels ? "--test-labels"
                          : !o->test_images && o->test_labels ? "--test-images"
                                                              : NULL;
    const char *fixed = !o->resume             ? NULL
                        : o->kind >= 0         ? "--model"
                        : o->batch             ? "--batch"
                        : o->learning_rate > 0 ? "--lr"
                        : o->seed >= 0         ? "--seed"
                                               : NULL;

    if (missing)
        tool_error("%s: expected; --help shows the options", missing);
    else if (fixed)
        tool_error("%s: expected without --resume, whose file has it", fixed);
    return !missing && !fixed;
}

static bool read_options(int argc, char **argv, struct train_options *o)
{
    uint32_t seed = UINT32_MAX; /* not given */
    const struct option_spec specs[] = {
        {"images", OPTION_TEXT, &o->images, 0, 0, NULL},
        {"labels", OPTION_TEXT, &o->labels, 0, 0, NULL},
        {"test-images", OPTION_TEXT, &o->test_images, 0, 0, NULL},
        {"test-labels", OPTION_TEXT, &o->test_labels, 0, 0, NULL},
        {"model", OPTION_CHOICE, &o->kind, 0, 0, train_kinds},
        {"resume", OPTION_TEXT, &o->resume, 0, 0, NULL},
        {"epochs", OPTION_U32, &o->epochs, 0, TRAIN_MAX_EPOCHS, NULL},
        {"batch", OPTION_U32, &o->batch, 1, TRAIN_MAX_BATCH, NULL},
        {"lr", OPTION_POSITIVE, &o->learning_rate, 0, 0, NULL},
        {"seed", OPTION_U32, &seed, 0, UINT32_MAX - 1, NULL},
        {"output", OPTION_TEXT, &o->output, 0, 0, NULL},
        {"html", OPTION_TEXT, &o->html, 0, 0, NULL},
        {"help", OPTION_FLAG, &o->help, 0, 0, NULL},
        DEVICE_OPTION_SPECS(&o->device),
        {NULL, OPTION_FLAG, NULL, 0, 0, NULL},
    };

    *o = (struct train_options){.kind = -1, .epochs = 5, .device = DEVICE_OPTIONS_DEFAULT};
    if (!options_parse_only(argc, argv, specs))
        return false;
    o->seed = seed == UINT32_MAX ? -1 : (int64_t)seed;
    return o->help || (check_given(o) && check_files(o));
}

/* ---- Files ----------------------------------------------------------------------------------- */

static enum tool_exit fail_io(enum vka_status status, const char *error)
{
    tool_error("%s", error);
    return tool_exit_of(status);
}

static enum tool_exit make_model(struct train *t)
{
    const struct train_options *o = &t->options;
    struct model *m = t->model = calloc(1, sizeof *t->model);
    bool mlp = o->kind == TRAIN_MLP;

    if (!m)
        return TOOL_MEMORY;
    *m = (struct model){.rows = t->images.rows,
                        .cols = t->images.cols,
                        .n_class = CLASSES,
                        .n_head = mlp ? 0 : HEADS,
                        .n_hidden = mlp ? HIDDEN : 0,
                        .interleaved = !mlp,
                        .channels = o->kind == TRAIN_EXECUTED};
    if (!model_set_patches(m, mlp ? 1 : SIDE)) {
        tool_error("%s: patches of %u do not tile images of %u x %u", o->images, SIDE,
                   (unsigned)m->rows, (unsigned)m->cols);
        return TOOL_USAGE;
    }
    t->progress = (struct train_progress){
        .kind = o->kind,
        .batch = o->batch ? o->batch : 64,
        .seed = o->seed >= 0 ? (uint32_t)o->seed : 1,
        .learning_rate = o->learning_rate > 0 ? o->learning_rate : 0.003,
        .count = t->images.count,
    };
    if (!model_values_alloc(m, &m->values) || !model_values_alloc(m, &t->progress.state.first) ||
        !model_values_alloc(m, &t->progress.state.second))
        return TOOL_MEMORY;
    model_draw(m, t->progress.seed);
    return TOOL_OK;
}

static enum tool_exit resume(struct train *t)
{
    const struct train_options *o = &t->options;
    char error[VKA_IO_ERROR_SIZE] = "";
    enum vka_status status =
        train_read(o->resume, t->images.rows, t->images.cols, &t->model, &t->progress, error);

    if (status != VKA_OK)
        return fail_io(status, error);
    if (t->progress.count != t->images.count) {
        tool_error("%s: has %u images, expected the %u of the training in %s", o->images,
                   (unsigned)t->images.count, (unsigned)t->progress.count, o->resume);
        return TOOL_USAGE;
    }
    if (t->progress.epochs > o->epochs) {
        tool_error("--epochs: expected at least the %u that %s has done",
                   (unsigned)t->progress.epochs, o->resume);
        return TOOL_USAGE;
    }
    return TOOL_OK;
}

/* Reads all files before a device is opened: bad input is reported even if there is no device. */
static enum tool_exit read_files(struct train *t)
{
    const struct train_options *o = &t->options;
    char error[VKA_IO_ERROR_SIZE] = "";
    enum vka_status status = idx_read_images(o->images, &t->images, error);
    enum tool_exit code;

    if (status == VKA_OK)
        status = idx_read_labels(o->labels, &t->labels, error);
    if (status == VKA_OK && o->test_images)
        status = idx_read_images(o->test_images, &t->test_images, error);
    if (status == VKA_OK && o->test_images)
        status = idx_read_labels(o->test_labels, &t->test_labels, error);
    if (status != VKA_OK)
        return fail_io(status, error);
    if (!idx_check_pair(&t->images, &t->labels, CLASSES, o->labels) ||
        (o->test_images &&
         !idx_check_pair(&t->test_images, &t->test_labels, CLASSES, o->test_labels)))
        return TOOL_USAGE;
    if (o->test_images &&
        (t->test_images.rows != t->images.rows || t->test_images.cols != t->images.cols)) {
        tool_error("%s: has images of %u x %u, expected %u x %u as in %s", o->test_images,
                   (unsigned)t->test_images.rows, (unsigned)t->test_images.cols,
                   (unsigned)t->images.rows, (unsigned)t->images.cols, o->images);
        return TOOL_USAGE;
    }
    code = o->resume ? resume(t) : make_model(t);
    if (code == TOOL_MEMORY)
        tool_error("out of memory");
    if (code == TOOL_OK && train_steps_of_epoch(&t->progress) * o->epochs > INT32_MAX) {
        tool_error("--epochs: expected fewer than 2^31 steps in all, got %u epochs of %llu",
                   (unsigned)o->epochs, (unsigned long long)train_steps_of_epoch(&t->progress));
        code = TOOL_USAGE;
    }
    return code;
}

/* ---- Training -------------------------------------------------------------------------------- */

static bool allocate(struct train *t)
{
    const uint64_t steps = train_steps_of_epoch(&t->progress) * t->options.epochs;
    const size_t n_pixel = (size_t)t->images.rows * t->images.cols;
    float *losses = realloc(t->progress.losses, steps * sizeof *losses + 1);

    if (losses)
        t->progress.losses = losses;
    t->order = calloc(t->progress.count, sizeof *t->order);
    t->input = calloc(t->progress.batch * n_pixel, sizeof *t->input);
    t->target = calloc(t->progress.batch, sizeof *t->target);
    t->logits = calloc((size_t)t->progress.batch * CLASSES, sizeof *t->logits);
    return losses && t->order && t->input && t->target && t->logits;
}

/* The order of an epoch: Fisher and Yates's shuffle by word 0 of Philox4x32-10 of the counter
 * (i, epoch, 0, 1). */
static void shuffle(struct train *t)
{
    uint32_t *order = t->order;

    for (uint32_t i = 0; i < t->progress.count; i++)
        order[i] = i;
    for (uint32_t i = t->progress.count; i-- > 1;) {
        uint32_t word[4];
        ref_philox((const uint32_t[4]){i, t->progress.epochs, 0, 1},
                   (const uint32_t[2]){t->progress.seed}, word);
        const uint32_t other = (uint32_t)((uint64_t)word[0] * (i + 1) >> 32);
        const uint32_t kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

/* One step with the images order[first] and on; adds to the loss and the correct ones of the epoch. */
static enum tool_exit step(struct train *t, uint32_t first, double *loss, uint32_t *correct)
{
    struct train_progress *p = &t->progress;
    const uint32_t left = p->count - first, n = left < p->batch ? left : p->batch;
    const size_t n_pixel = (size_t)t->images.rows * t->images.cols;
    float mean;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t image = t->order[first + i];
        model_input(t->model, t->images.data + image * n_pixel, t->input + i * n_pixel);
        t->target[i] = t->labels.data[image];
    }
    double start = os_now_ms();
    enum vka_status status =
        trainer_step(t->trainer, t->input, t->target, n, t->device.timeout, &mean, t->logits);
    if (status != VKA_OK)
        return tool_device_fail(&t->device, status);
    t->total_ms += os_now_ms() - start;
    t->steps++;
    if (!isfinite(mean)) {
        progress_clear();
        tool_error("step %d: the loss is %g; a smaller --lr may help", (int)p->state.step + 1,
                   (double)mean);
        return TOOL_FAILED;
    }
    p->losses[p->state.step++] = mean;
    *loss += (double)mean * n;
    for (uint32_t i = 0; i < n; i++)
        *correct += session_best_class(t->logits + (size_t)i * CLASSES, CLASSES) == t->target[i];
    return TOOL_OK;
}

static enum tool_exit run_epoch(struct train *t)
{
    struct train_progress *p = &t->progress;
    const uint32_t number = p->epochs + 1;
    double loss = 0;
    uint32_t correct = 0;
    enum tool_exit code = TOOL_OK;

    shuffle(t);
    for (uint32_t first = 0; first < p->count && code == TOOL_OK; first += p->batch) {
        char text[96];
        snprintf(text, sizeof text, "digits, epoch %u of %u, loss %.4f, accuracy %.4f",
                 (unsigned)number, (unsigned)t->options.epochs, first ? loss / first : 0.0,
                 first ? (double)correct / first : 0.0);
        progress_show(first, p->count, text);
        code = step(t, first, &loss, &correct);
    }
    progress_clear();
    if (code != TOOL_OK)
        return code;
    p->epochs = number;
    printf("epoch %u/%u: loss %.4f, accuracy %.4f\n", (unsigned)number, (unsigned)t->options.epochs,
           loss / p->count, (double)correct / p->count);
    fflush(stdout);
    return TOOL_OK;
}

static enum tool_exit save(struct train *t)
{
    char error[VKA_IO_ERROR_SIZE] = "";
    enum vka_status status = trainer_read(t->trainer, &t->model->values, &t->progress.state);

    if (status != VKA_OK)
        return tool_device_fail(&t->device, status);
    status = train_write(t->options.output, t->model, &t->progress, error);
    return status == VKA_OK ? TOOL_OK : fail_io(status, error);
}

static enum tool_exit run_epochs(struct train *t)
{
    enum vka_status status =
        trainer_create(t->device.device, t->model, t->progress.batch, t->progress.learning_rate,
                       &t->progress.state, &t->trainer);
    enum tool_exit code =
        status == VKA_OK ? save(t) : tool_device_fail(&t->device, status); /* as it begins */

    while (code == TOOL_OK && t->progress.epochs < t->options.epochs) {
        code = run_epoch(t);
        if (code == TOOL_OK)
            code = save(t);
    }
    trainer_destroy(&t->trainer);
    return code;
}

/* ---- Results --------------------------------------------------------------------------------- */

/* Classifies the test digits, or those of the training. */
static enum tool_exit evaluate(struct train *t)
{
    const bool own = !t->options.test_images;
    struct session s = {.images = own ? t->images : t->test_images,
                        .labels = own ? t->labels : t->test_labels,
                        .model = t->model,
                        .device = &t->device};
    enum tool_exit code;

    s.count = s.images.count;
    code = session_classify(&s);
    t->correct = s.correct;
    t->tested = s.count;
    session_free(&s);
    return code;
}

static enum tool_exit write_page(const struct train *t)
{
    const struct vka_device_properties *device = vka_device_properties(t->device.device);
    char error[VKA_IO_ERROR_SIZE] = "";
    enum vka_status status = train_page_write(t->options.html,
                                              &(struct train_page){.model = t->model,
                                                                   .progress = &t->progress,
                                                                   .output = t->options.output,
                                                                   .device = device->name,
                                                                   .driver = device->driver,
                                                                   .correct = t->correct,
                                                                   .count = t->tested,
                                                                   .own = !t->options.test_images,
                                                                   .total_ms = t->total_ms,
                                                                   .steps = t->steps},
                                              error);
    return status == VKA_OK ? TOOL_OK : fail_io(status, error);
}

static enum tool_exit run(struct train *t)
{
    enum tool_exit code = read_files(t);

    if (code != TOOL_OK)
        return code;
    if (!allocate(t)) {
        tool_error("out of memory");
        return TOOL_MEMORY;
    }
    code = tool_device_open(&t->options.device, &t->device);
    if (code == TOOL_OK)
        code = run_epochs(t);
    if (code == TOOL_OK)
        code = evaluate(t);
    if (code == TOOL_OK && t->options.html)
        code = write_page(t);
    if (code != TOOL_OK)
        return code;
    printf("accuracy: %.4f (%u/%u)\n", (double)t->correct / t->tested, (unsigned)t->correct,
           (unsigned)t->tested);
    return TOOL_OK;
}

enum tool_exit train(int argc, char **argv)
{
    struct train t = {0};
    enum tool_exit code;

    tool_set_command("mnist train");
    if (!read_options(argc, argv, &t.options))
        return TOOL_USAGE;
    if (t.options.help) {
        fputs(usage, stdout);
        return TOOL_OK;
    }
    code = run(&t);
    trainer_destroy(&t.trainer);
    code = tool_device_close(&t.device, code);
    train_progress_free(&t.progress);
    model_free(&t.model);
    idx_free(&t.images);
    idx_free(&t.labels);
    idx_free(&t.test_images);
    idx_free(&t.test_labels);
    free(t.order);
    free(t.input);
    free(t.target);
    free(t.logits);
    return code;
}
