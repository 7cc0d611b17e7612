#include "source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum vka_status source_refuse(const struct source *s, const char *name, const char *what)
{
    snprintf(s->why, VKA_IO_ERROR_SIZE, "%s: %s", name, what);
    return VKA_INVALID;
}

enum vka_status source_read_json(const struct source *s, const char *file, json_t **object)
{
    json_error_t error;
    *object = json_load_file(file, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(*object))
        return VKA_OK;
    snprintf(s->why, VKA_IO_ERROR_SIZE, "%.300s%s", *object ? file : "",
             *object ? ": is not an object" : error.text);
    return VKA_IO;
}

static enum vka_status open_folder(const char *path, struct source *s)
{
    char file[4096];
    if ((size_t)snprintf(file, sizeof file, "%s/config.json", path) >= 2048)
        return source_refuse(s, "--model", "the path is too long");
    enum vka_status status = source_read_json(s, file, &s->config);
    if (status == VKA_OK)
        status = pooling_read(s, path);
    if (status != VKA_OK)
        return status;
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    status = vka_safetensors_open(file, s->why, &s->safetensors);
    if (status != VKA_OK)
        return status;
    bool below = vka_safetensors_find(s->safetensors, "bert.embeddings.word_embeddings.weight");
    s->prefix = below ? "bert." : "";
    s->room = vka_safetensors_count(s->safetensors);
    return VKA_OK;
}

/* What the metadata has to say, so that the model is the one that is computed. */
static enum vka_status check_kind(const struct source *s)
{
    static const char *const wanted[][2] = {
        {"model_type", "bert"}, {"hidden_act", "gelu"}, {"position_embedding_type", "absolute"}};
    const char *text = "";
    size_t at = 0, size = 0;
    for (int i = 0; s->config && i < 3; i++) {
        const json_t *value = json_object_get(s->config, wanted[i][0]);
        const char *word = json_string_value(value);
        if ((value && !word) || (i == 0 && !value) || (word && strcmp(word, wanted[i][1]) != 0))
            return source_refuse(s, wanted[i][0], "a value that is not supported here");
    }
    static const char *const decoders[] = {"is_decoder", "add_cross_attention"};
    for (int i = 0; s->config && i < 2; i++) {
        const json_t *value = json_object_get(s->config, decoders[i]);
        if (value && !json_is_false(value) && !json_is_null(value))
            return source_refuse(s, decoders[i], "only encoders are supported");
    }
    if (s->config)
        return keys_check_config(s);
    int64_t causal = 0;
    const struct vka_gguf_value *told = vka_gguf_metadata(s->gguf, "bert.attention.causal");
    vka_gguf_string(vka_gguf_metadata(s->gguf, "general.architecture"), &at, &text, &size);
    if (told && !vka_gguf_integer(told, 0, &causal))
        return source_refuse(s, "bert.attention.causal", "is no bool");
    if (size != 4 || memcmp(text, "bert", 4) != 0)
        return source_refuse(s, "general.architecture", "is not \"bert\"");
    return causal ? source_refuse(s, "bert.attention.causal", "is not supported")
                  : keys_check_gguf(s);
}

enum vka_status source_open(struct vka_device *device, const char *path, char *why,
                            struct source *s)
{
    size_t length = strlen(path);
    bool gguf = length > 5 && strcmp(path + length - 5, ".gguf") == 0;
    *s = (struct source){.device = device, .why = why, .prefix = ""};
    enum vka_status status = gguf ? vka_gguf_open(path, why, &s->gguf) : open_folder(path, s);
    if (gguf && status == VKA_OK)
        s->room = vka_gguf_count(s->gguf);
    if (status == VKA_OK)
        status = check_kind(s);
    s->taken = status == VKA_OK ? calloc(s->room + 1, sizeof *s->taken) : NULL;
    return status == VKA_OK && !s->taken ? VKA_OUT_OF_HOST_MEMORY : status;
}

void source_close(struct source *s)
{
    vka_gguf_close(&s->gguf);
    vka_safetensors_close(&s->safetensors);
    json_decref(s->config);
    free(s->taken);
    *s = (struct source){0};
}

enum vka_status source_size(const struct source *s, const char *json, const char *gguf,
                            uint32_t fallback, uint32_t *size)
{
    char key[64];
    int64_t value = fallback;
    snprintf(key, sizeof key, "%s%s", s->config ? "" : "bert.", s->config ? json : gguf);
    if (s->config) {
        const json_t *found = json_object_get(s->config, json);
        if (found)
            value = json_is_integer(found) ? (int64_t)json_integer_value(found) : 0;
    } else {
        vka_gguf_integer(vka_gguf_metadata(s->gguf, key), 0, &value);
    }
    if (value < 1 || value > 1 << 24)
        return source_refuse(s, key, "is missing, or not from 1 to 2^24");
    *size = (uint32_t)value;
    return VKA_OK;
}

/* A tensor of either kind of file. */
struct found {
    enum vka_dtype dtype;
    uint32_t rank;
    const uint64_t *shape;
    const void *data;
    size_t size;
};

static bool find(const struct source *s, const char *name, struct found *f)
{
    if (s->gguf) {
        const struct vka_gguf_tensor *t = vka_gguf_find(s->gguf, name);
        if (t)
            *f = (struct found){t->dtype, t->rank, t->shape, t->data, t->size};
        return t;
    }
    const struct vka_io_array *a = vka_safetensors_find(s->safetensors, name);
    static const enum vka_dtype types[] = {
        [VKA_IO_F32] = VKA_F32, [VKA_IO_F16] = VKA_F16, [VKA_IO_BF16] = VKA_BF16};
    if (a)
        *f = (struct found){a->dtype <= VKA_IO_BF16 ? types[a->dtype] : VKA_DTYPE_COUNT, a->rank,
                            a->shape, a->data, a->size};
    return a;
}

enum vka_status source_load(struct source *s, const char *json, const char *gguf, uint32_t rows,
                            uint32_t width, struct vka_tensor **tensor)
{
    char name[SOURCE_NAME];
    struct found f;
    snprintf(name, sizeof name, "%s%s", s->prefix, s->gguf ? gguf : json);
    if (!find(s, name, &f))
        return source_refuse(s, name, "the file has no such tensor");
    if (f.dtype == VKA_DTYPE_COUNT)
        return source_refuse(s, name, "has a type that vkattn does not have");
    const uint32_t matrix[] = {rows, width};
    bool fits =
        f.rank == (rows ? 2u : 1u) && f.shape[f.rank - 1] == width && (!rows || f.shape[0] == rows);
    if (!fits)
        return source_refuse(s, name, "has another shape than the metadata says");
    memcpy(s->taken[s->n_taken++], name, sizeof name);
    enum vka_status status =
        vka_tensor_create(s->device, f.dtype, f.rank, rows ? matrix : matrix + 1, tensor);
    return status == VKA_OK ? vka_tensor_write(*tensor, f.data, f.size) : status;
}

static bool is_known(const struct source *s, const char *name)
{
    static const char *const inert[] = {"pooler.",
                                        "bert.pooler.",
                                        "cls.",
                                        "classifier.",
                                        "qa_outputs.",
                                        "dropout.",
                                        "position_ids",
                                        "embeddings.position_ids",
                                        "bert.embeddings.position_ids"};
    for (size_t i = 0; i < s->n_taken; i++)
        if (strcmp(s->taken[i], name) == 0)
            return true;
    for (size_t i = 0; !s->gguf && i < sizeof inert / sizeof *inert; i++)
        if (strncmp(name, inert[i], strlen(inert[i])) == 0)
            return true;
    return false;
}

enum vka_status source_finish(const struct source *s)
{
    for (size_t i = 0; i < s->room; i++) {
        const char *name =
            s->gguf ? vka_gguf_at(s->gguf, i)->name : vka_safetensors_at(s->safetensors, i)->name;
        if (!is_known(s, name))
            return source_refuse(s, name, "it is not known what this tensor would change");
    }
    return VKA_OK;
}
