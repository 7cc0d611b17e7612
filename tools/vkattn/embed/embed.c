/* vkattn embed: vectors of texts by a BERT, from a folder of safetensors or a GGUF file. One
 * recorded plan takes up to 16 texts a run. SPDX-License-Identifier: MIT */
#include "program.h"

#include "common/device.h"
#include "common/files.h"
#include "common/output.h"
#include "vkattn/commands.h"
#include "vkattn/text/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 16 /* texts of a run */

struct input {
    uint32_t first, n; /* of the ids */
};

struct options {
    const char *model, *ids, *output;
    char **words; /* [n_word] texts, in place of ids */
    int n_word;
    int pooling; /* 0: as the file says */
    bool plain;
    struct device_options device;
    int32_t *all;         /* ids of all texts */
    struct input *inputs; /* [n_text] */
    uint32_t n_text, n_id, longest;
};

static const char *const poolings[] = {"file", "mean", "first", NULL};

static bool wrong_ids(const struct options *o)
{
    tool_error("--ids: expected numbers with commas between, texts with / between, got '%s'",
               o->ids);
    return false;
}

static bool parse_ids(struct options *o)
{
    const char *at = o->ids;
    o->all = malloc((strlen(at) + 1) * sizeof *o->all);
    o->inputs = calloc(strlen(at) + 1, sizeof *o->inputs);
    if (!o->all || !o->inputs) {
        tool_error("out of memory");
        return false;
    }
    for (;;) {
        char *end;
        struct input *text = &o->inputs[o->n_text];
        unsigned long id = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || id > INT32_MAX || !strchr(",/", *end))
            return wrong_ids(o);
        o->all[o->n_id++] = (int32_t)id;
        text->n++;
        if (text->n > o->longest)
            o->longest = text->n;
        if (*end != ',')
            o->inputs[++o->n_text].first = o->n_id;
        if (*end == '\0')
            return true;
        at = end + 1;
    }
}

static bool read_options(int argc, char **argv, struct options *o)
{
    const struct option_spec specs[] = {
        {"ids", OPTION_TEXT, &o->ids, 0, 0, NULL},
        {"pooling", OPTION_CHOICE, &o->pooling, 0, 0, poolings},
        {"plain", OPTION_FLAG, &o->plain, 0, 0, NULL},
        {"output", OPTION_TEXT, &o->output, 0, 0, NULL},
        DEVICE_OPTION_SPECS(&o->device),
        {0},
    };
    int first;
    if (!options_parse(argc, argv, specs, &first))
        return false;
    if (o->ids ? argc - first != 1 : argc - first < 2) {
        tool_error("expected a folder or GGUF file %s, got %d argument%s",
                   o->ids ? "alone, as --ids are given" : "and texts, or --ids", argc - first,
                   argc - first == 1 ? "" : "s");
        return false;
    }
    o->model = argv[first];
    o->words = argv + first + 1;
    o->n_word = argc - first - 1;
    const struct tool_file output = {"--output", o->output}, input = {"the model", o->model};
    return (!o->ids || parse_ids(o)) && tool_check_files(&output, 1, &input, 1);
}

/* Adds the ids of a text. */
static enum vka_status add_text(struct options *o, const struct text *text, const char *utf8,
                                char *why)
{
    int32_t *ids;
    uint32_t n;
    enum vka_status status = text_encode(text, utf8, &ids, &n, why);
    int32_t *all = n ? realloc(o->all, ((size_t)o->n_id + n) * sizeof *all) : o->all;
    if (status == VKA_OK && !n) {
        snprintf(why, VKA_IO_ERROR_SIZE, "expected texts of one or more tokens");
        status = VKA_INVALID;
    } else if (status == VKA_OK && !all) {
        status = VKA_OUT_OF_HOST_MEMORY;
    }
    o->all = all ? all : o->all;
    if (status == VKA_OK) {
        memcpy(o->all + o->n_id, ids, n * sizeof *ids);
        o->inputs[o->n_text++] = (struct input){o->n_id, n};
        o->n_id += n;
        o->longest = n > o->longest ? n : o->longest;
    }
    free(ids);
    return status;
}

/* The ids of the texts that are given, by the tokenizer of the model. */
static enum vka_status read_texts(struct options *o, char *why)
{
    struct vka_gguf *file = NULL;
    struct text *text = NULL;
    size_t length = strlen(o->model);
    bool gguf = length > 5 && strcmp(o->model + length - 5, ".gguf") == 0;
    o->inputs = calloc((size_t)o->n_word, sizeof *o->inputs);
    enum vka_status status = !o->inputs ? VKA_OUT_OF_HOST_MEMORY
                             : gguf     ? vka_gguf_open(o->model, why, &file)
                                        : text_open_folder(o->model, &text, why);
    if (status == VKA_OK && gguf)
        status = text_open(file, o->model, &text, why);
    for (int i = 0; status == VKA_OK && i < o->n_word; i++)
        status = add_text(o, text, o->words[i], why);
    text_close(&text);
    vka_gguf_close(&file);
    return status;
}

/* Texts first .. first + n - 1: writes their ids, runs, and reads their vectors. */
static enum vka_status run_texts(const struct embed *e, const struct options *o, uint32_t first,
                                 uint32_t n, uint64_t timeout, int32_t *ids, float *vectors)
{
    uint32_t batch = e->info.batch, rows = e->info.rows;
    int32_t lengths[BATCH] = {0};
    memset(ids, 0xff, (size_t)batch * rows * sizeof *ids); /* -1 */
    for (uint32_t b = 0; b < n; b++) {
        const struct input *text = &o->inputs[first + b];
        lengths[b] = (int32_t)text->n;
        memcpy(ids + (size_t)b * rows, o->all + text->first, text->n * sizeof *ids);
    }
    enum vka_status status = vka_tensor_write(e->ids, ids, (size_t)batch * rows * sizeof *ids);
    if (status == VKA_OK)
        status = vka_tensor_write(e->lengths, lengths, batch * sizeof *lengths);
    if (status == VKA_OK)
        status = vka_plan_run(e->graph.plan, timeout);
    return status == VKA_OK ? vka_tensor_read(e->output, vectors, vka_tensor_size(e->output))
                            : status;
}

static enum vka_status print_or_write(const struct options *o, const float *vectors, uint32_t width,
                                      char *why)
{
    const struct vka_io_array array = {.dtype = VKA_IO_F32,
                                       .rank = 2,
                                       .shape = {o->n_text, width},
                                       .data = vectors,
                                       .size = (size_t)o->n_text * width * sizeof *vectors};
    if (o->output)
        return vka_npy_write(o->output, &array, why);
    for (size_t i = 0; i < (size_t)o->n_text * width; i++)
        printf("%.9g%c", (double)vectors[i], (i + 1) % width ? ' ' : '\n');
    return VKA_OK;
}

static enum vka_status embed_all(const struct tool_device *d, const struct bert *m,
                                 const struct options *o, struct embed *e, char *why)
{
    uint32_t batch = o->n_text < BATCH ? o->n_text : BATCH;
    const struct embed_info info = {.batch = batch,
                                    .rows = o->longest,
                                    .first_row = o->pooling ? o->pooling == 2 : m->first_row,
                                    .plain = o->plain,
                                    .budget = d->budget};
    /* The last run may read a whole batch of vectors. */
    float *vectors = calloc(((size_t)o->n_text + BATCH) * m->width, sizeof *vectors);
    int32_t *ids = calloc((size_t)batch * o->longest, sizeof *ids);
    enum vka_status status =
        vectors && ids ? embed_create(d->device, m, &info, e) : VKA_OUT_OF_HOST_MEMORY;
    for (uint32_t at = 0; status == VKA_OK && at < o->n_text; at += batch) {
        uint32_t n = o->n_text - at < batch ? o->n_text - at : batch;
        status = run_texts(e, o, at, n, d->timeout, ids, vectors + (size_t)at * m->width);
    }
    if (status == VKA_OK)
        status = print_or_write(o, vectors, m->width, why);
    free(vectors);
    free(ids);
    return status;
}

static enum vka_status check_ids(const struct options *o, const struct bert *m, char *why)
{
    for (uint32_t i = 0; i < o->n_id; i++)
        if ((uint32_t)o->all[i] >= m->n_token) {
            snprintf(why, VKA_IO_ERROR_SIZE, "id %d is not below %u, the tokens of the model",
                     (int)o->all[i], m->n_token);
            return VKA_INVALID;
        }
    if (o->longest <= m->n_position)
        return VKA_OK;
    snprintf(why, VKA_IO_ERROR_SIZE, "a text of %u tokens; the model has %u positions", o->longest,
             m->n_position);
    return VKA_INVALID;
}

static enum tool_exit run(struct options *o)
{
    struct tool_device d = {0};
    struct bert bert = {0};
    struct embed embed = {0};
    char why[VKA_IO_ERROR_SIZE] = "";
    enum tool_exit code = tool_device_open(&o->device, &d);
    if (code != TOOL_OK)
        return tool_device_close(&d, code);
    enum vka_status status = o->ids ? VKA_OK : read_texts(o, why);
    if (status == VKA_OK)
        status = bert_load(d.device, o->model, &bert, why);
    if (status == VKA_OK)
        status = check_ids(o, &bert, why);
    if (status == VKA_OK)
        status = embed_all(&d, &bert, o, &embed, why);
    code = tool_device_result(&d, status, why);
    embed_free(&embed);
    bert_free(&bert);
    return tool_device_close(&d, code);
}

int cmd_embed(int argc, char **argv)
{
    struct options o = {.device = DEVICE_OPTIONS_DEFAULT};
    tool_set_command("embed");
    enum tool_exit code = read_options(argc, argv, &o) ? run(&o) : TOOL_USAGE;
    free(o.all);
    free(o.inputs);
    return code;
}
