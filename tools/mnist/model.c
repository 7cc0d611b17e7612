#include "model.h"

#include <vkattn/vkattn_io.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_FORMAT "vkattn-mnist-1"
#define MODEL_MAX_HEADS 1024 /* with IDX_MAX_SIDE every product is below 2^32 */

static const char *const part_name[MODEL_PART_COUNT] = {
    [MODEL_QUERY] = "q_proj",          [MODEL_KEY] = "k_proj",
    [MODEL_VALUE] = "v_proj",          [MODEL_OUTPUT] = "o_proj",
    [MODEL_CLASSIFIER] = "classifier",
};

static enum vka_status refuse(const char *path, const char *why, char *error)
{
    snprintf(error, VKA_IO_ERROR_SIZE, "%s: %s", path, why);
    return VKA_IO;
}

/* Reads a metadata entry that is a whole number from 1 to max. */
static enum vka_status read_number(const struct vka_safetensors *file, const char *path,
                                   const char *key, uint32_t max, uint32_t *number, char *error)
{
    const char *text = vka_safetensors_metadata(file, key);
    char *end = NULL;
    unsigned long value = 0;

    if (text && *text >= '0' && *text <= '9')
        value = strtoul(text, &end, 10);
    if (!end || *end != '\0' || value < 1 || value > max) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: metadata '%s': expected a number from 1 to %u",
                 path, key, (unsigned)max);
        return VKA_IO;
    }
    *number = (uint32_t)value;
    return VKA_OK;
}

/* Reads one of two words; *second says which. */
static bool read_choice(const json_t *value, const char *first_word, const char *second_word,
                        bool *second)
{
    const char *word = json_string_value(value);

    if (!word || (strcmp(word, first_word) != 0 && strcmp(word, second_word) != 0))
        return false;
    *second = strcmp(word, second_word) == 0;
    return true;
}

/* Refuses unknown keys, as they could change what the model computes. */
static bool read_config_entry(struct model *model, const char *key, const json_t *value)
{
    bool ignored;

    if (strcmp(key, "num_heads") == 0) {
        const json_int_t n = json_integer_value(value);

        model->n_head = n >= 1 && n <= MODEL_MAX_HEADS ? (uint32_t)n : 0;
        return model->n_head != 0;
    }
    if (strcmp(key, "layout") == 0)
        return read_choice(value, "bsd", "bsd", &ignored);
    if (strcmp(key, "qkv_heads") == 0)
        return read_choice(value, "blocked", "interleaved", &model->interleaved);
    if (strcmp(key, "attend") == 0)
        return read_choice(value, "patches", "channels", &model->channels);
    return false;
}

static enum vka_status read_config(struct model *model, const struct vka_safetensors *file,
                                   const char *path, char *error)
{
    const char *text = vka_safetensors_metadata(file, "config");
    json_t *config = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    enum vka_status status = VKA_OK;
    const char *key;
    json_t *value;

    if (!json_is_object(config)) {
        json_decref(config);
        return refuse(path, "metadata 'config': expected a JSON object", error);
    }
    json_object_foreach(config, key, value)
    {
        if (status == VKA_OK && !read_config_entry(model, key, value)) {
            snprintf(error, VKA_IO_ERROR_SIZE,
                     "%s: metadata 'config': '%.40s' is unknown or has an unexpected value", path,
                     key);
            status = VKA_IO;
        }
    }
    json_decref(config);
    if (status == VKA_OK && model->n_head == 0)
        status = refuse(path, "metadata 'config': expected 'num_heads'", error);
    return status;
}

static enum vka_status read_metadata(struct model *model, const struct vka_safetensors *file,
                                     const char *path, char *error)
{
    const char *format = vka_safetensors_metadata(file, "format");
    const uint32_t shorter = model->rows < model->cols ? model->rows : model->cols;
    enum vka_status status;

    if (!format || strcmp(format, MODEL_FORMAT) != 0)
        return refuse(path, "metadata 'format': expected '" MODEL_FORMAT "'", error);
    status = read_number(file, path, "patch", shorter, &model->side, error);
    if (status == VKA_OK)
        status = read_number(file, path, "classes", MODEL_MAX_CLASSES, &model->n_class, error);
    if (status == VKA_OK)
        status = read_config(model, file, path, error);
    if (status != VKA_OK)
        return status;
    if (model->rows % model->side != 0 || model->cols % model->side != 0) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: patches of %u do not tile images of %u x %u", path,
                 (unsigned)model->side, (unsigned)model->rows, (unsigned)model->cols);
        return VKA_IO;
    }
    model->n_patch = model->rows / model->side * (model->cols / model->side);
    model->width = model->side * model->side;
    return VKA_OK;
}

/* Copies a tensor of [out][in] floats, or [out] if in is 0: the arrays of the file may be
 * unaligned. */
static enum vka_status read_tensor(const struct vka_safetensors *file, const char *path,
                                   const char *name, uint32_t out, uint32_t in, float **data,
                                   char *error)
{
    const struct vka_io_array *array = vka_safetensors_find(file, name);
    const uint32_t rank = in ? 2 : 1;

    if (!array || array->dtype != VKA_IO_F32 || array->rank != rank || array->shape[0] != out ||
        (in && array->shape[1] != in)) {
        snprintf(error, VKA_IO_ERROR_SIZE,
                 in ? "%s: '%s': expected F32 [%u, %u]" : "%s: '%s': expected F32 [%u]", path, name,
                 (unsigned)out, (unsigned)in);
        return VKA_IO;
    }
    *data = malloc(array->size);
    if (!*data) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: '%s': out of memory", path, name);
        return VKA_OUT_OF_HOST_MEMORY;
    }
    memcpy(*data, array->data, array->size);
    return VKA_OK;
}

static enum vka_status read_part(struct model *model, const struct vka_safetensors *file,
                                 const char *path, enum model_part part, char *error)
{
    char name[32];
    uint32_t out, in;
    enum vka_status status;

    model_part_shape(model, part, &out, &in);
    snprintf(name, sizeof name, "%s.weight", part_name[part]);
    status = read_tensor(file, path, name, out, in, &model->weight[part], error);
    if (status != VKA_OK)
        return status;
    snprintf(name, sizeof name, "%s.bias", part_name[part]);
    return read_tensor(file, path, name, out, 0, &model->bias[part], error);
}

enum vka_status model_read(const char *path, uint32_t rows, uint32_t cols, struct model **model,
                           char *error)
{
    struct vka_safetensors *file = NULL;
    struct model *made = NULL;
    enum vka_status status;

    *model = NULL;
    status = vka_safetensors_open(path, error, &file);
    if (status != VKA_OK)
        goto fail;
    made = calloc(1, sizeof *made);
    if (!made) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: out of memory", path);
        status = VKA_OUT_OF_HOST_MEMORY;
        goto fail;
    }
    made->rows = rows;
    made->cols = cols;
    status = read_metadata(made, file, path, error);
    for (int part = 0; part < MODEL_PART_COUNT && status == VKA_OK; part++)
        status = read_part(made, file, path, (enum model_part)part, error);
    if (status != VKA_OK)
        goto fail;
    vka_safetensors_close(&file);
    *model = made;
    return VKA_OK;

fail:
    vka_safetensors_close(&file);
    model_free(&made);
    return status;
}

void model_free(struct model **model)
{
    if (!model || !*model)
        return;
    for (int part = 0; part < MODEL_PART_COUNT; part++) {
        free((*model)->weight[part]);
        free((*model)->bias[part]);
    }
    free(*model);
    *model = NULL;
}

void model_part_shape(const struct model *model, enum model_part part, uint32_t *out, uint32_t *in)
{
    const uint32_t heads = model->n_head * model->width;

    switch (part) {
    case MODEL_OUTPUT:
        *out = model->width;
        *in = heads;
        break;
    case MODEL_CLASSIFIER:
        *out = model->n_class;
        *in = model->n_patch * model->width;
        break;
    case MODEL_QUERY:
    case MODEL_KEY:
    case MODEL_VALUE:
    case MODEL_PART_COUNT:
    default:
        *out = heads;
        *in = model->width;
        break;
    }
}

uint32_t model_units(const struct model *model)
{
    return model->channels ? model->width : model->n_patch;
}

void model_patches(const struct model *model, const uint8_t *pixels, float *patches)
{
    const uint32_t side = model->side, across = model->cols / side;

    for (uint32_t r = 0; r < model->rows; r++) {
        for (uint32_t c = 0; c < model->cols; c++) {
            const uint32_t patch = r / side * across + c / side;
            const uint32_t channel = r % side * side + c % side;

            patches[patch * model->width + channel] = (float)pixels[r * model->cols + c] / 255.0f;
        }
    }
}
