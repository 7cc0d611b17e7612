#include "model_file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_FORMAT "vkattn-mnist-1"
#define MODEL_MAX_HEADS 1024 /* with IDX_MAX_SIDE every product is below 2^32 */
#define MODEL_MAX_HIDDEN 65536

static const char *const slot_name[MODEL_SLOT_COUNT] = {
    [MODEL_QUERY] = "q_proj",  [MODEL_KEY] = "k_proj",    [MODEL_VALUE] = "v_proj",
    [MODEL_OUTPUT] = "o_proj", [MODEL_HIDDEN] = "hidden", [MODEL_CLASSIFIER] = "classifier",
};

/* ---- Reading --------------------------------------------------------------------------------- */

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

static bool read_size(const json_t *value, json_int_t most, uint32_t *size)
{
    const json_int_t n = json_integer_value(value);

    *size = n >= 1 && n <= most ? (uint32_t)n : 0;
    return *size != 0;
}

/* Refuses unknown keys, as they could change what the model computes. */
static bool read_config_entry(struct model *model, const char *key, const json_t *value)
{
    bool ignored;

    if (strcmp(key, "num_heads") == 0)
        return read_size(value, MODEL_MAX_HEADS, &model->n_head);
    if (strcmp(key, "hidden") == 0)
        return read_size(value, MODEL_MAX_HIDDEN, &model->n_hidden);
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
    if (status == VKA_OK && !model->n_head == !model->n_hidden)
        status = refuse(path, "metadata 'config': expected 'num_heads', or 'hidden' alone", error);
    return status;
}

static enum vka_status read_metadata(struct model *model, const struct vka_safetensors *file,
                                     const char *path, char *error)
{
    const char *format = vka_safetensors_metadata(file, "format");
    const uint32_t shorter = model->rows < model->cols ? model->rows : model->cols;
    uint32_t side = 1;
    enum vka_status status;

    if (!format || strcmp(format, MODEL_FORMAT) != 0)
        return refuse(path, "metadata 'format': expected '" MODEL_FORMAT "'", error);
    status = read_number(file, path, "classes", MODEL_MAX_CLASSES, &model->n_class, error);
    if (status == VKA_OK)
        status = read_config(model, file, path, error);
    if (status == VKA_OK && !model->n_hidden)
        status = read_number(file, path, "patch", shorter, &side, error);
    if (status == VKA_OK && !model_set_patches(model, side)) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: patches of %u do not tile images of %u x %u", path,
                 (unsigned)side, (unsigned)model->rows, (unsigned)model->cols);
        status = VKA_IO;
    }
    return status;
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

enum vka_status model_read_values(const struct model *model, const struct vka_safetensors *file,
                                  const char *path, const char *prefix, struct model_values *values,
                                  char *error)
{
    enum vka_status status = VKA_OK;

    for (int i = 0; i < MODEL_SLOT_COUNT && status == VKA_OK; i++) {
        char name[MODEL_NAME];
        uint32_t out, in;

        if (!model_has_slot(model, (enum model_slot)i))
            continue;
        model_slot_shape(model, (enum model_slot)i, &out, &in);
        snprintf(name, sizeof name, "%s%s.weight", prefix, slot_name[i]);
        status = read_tensor(file, path, name, out, in, &values->weight[i], error);
        if (status != VKA_OK)
            break;
        snprintf(name, sizeof name, "%s%s.bias", prefix, slot_name[i]);
        status = read_tensor(file, path, name, out, 0, &values->bias[i], error);
    }
    return status;
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
    if (status == VKA_OK)
        status = model_read_values(made, file, path, "", &made->values, error);
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

/* ---- Writing --------------------------------------------------------------------------------- */

size_t model_arrays(const struct model *model, const struct model_values *values,
                    const char *prefix, struct model_array *arrays)
{
    size_t n = 0;

    for (int i = 0; i < MODEL_SLOT_COUNT; i++) {
        uint32_t out, in;

        if (!model_has_slot(model, (enum model_slot)i))
            continue;
        model_slot_shape(model, (enum model_slot)i, &out, &in);
        snprintf(arrays[n].name, MODEL_NAME, "%s%s.weight", prefix, slot_name[i]);
        arrays[n++].array = (struct vka_io_array){.dtype = VKA_IO_F32,
                                                  .rank = 2,
                                                  .shape = {out, in},
                                                  .data = values->weight[i],
                                                  .size = sizeof(float) * out * in};
        snprintf(arrays[n].name, MODEL_NAME, "%s%s.bias", prefix, slot_name[i]);
        arrays[n++].array = (struct vka_io_array){.dtype = VKA_IO_F32,
                                                  .rank = 1,
                                                  .shape = {out},
                                                  .data = values->bias[i],
                                                  .size = sizeof(float) * out};
    }
    return n;
}

enum vka_status model_write(const char *path, const struct model *model,
                            const struct model_array *arrays, size_t n_array, const char *training,
                            char *error)
{
    struct vka_io_array list[MODEL_MAX_ARRAYS];
    char config[128], patch[16], classes[16];

    for (size_t i = 0; i < n_array; i++) {
        list[i] = arrays[i].array;
        list[i].name = arrays[i].name;
    }
    if (model->n_hidden)
        snprintf(config, sizeof config, "{\"hidden\": %u}", (unsigned)model->n_hidden);
    else
        snprintf(config, sizeof config,
                 "{\"num_heads\": %u, \"layout\": \"bsd\", \"qkv_heads\": \"%s\"%s}",
                 (unsigned)model->n_head, model->interleaved ? "interleaved" : "blocked",
                 model->channels ? ", \"attend\": \"channels\"" : "");
    snprintf(patch, sizeof patch, "%u", (unsigned)model->side);
    snprintf(classes, sizeof classes, "%u", (unsigned)model->n_class);
    return vka_safetensors_write(path, list, n_array,
                                 (const struct vka_io_metadata[]){{"format", MODEL_FORMAT},
                                                                  {"config", config},
                                                                  {"classes", classes},
                                                                  {"training", training},
                                                                  {"patch", patch}},
                                 model->n_hidden ? 4 : 5, error);
}
