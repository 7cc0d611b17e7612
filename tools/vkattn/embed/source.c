#include "source.h"
#include "common/json_file.h"

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
    enum vka_status status = json_file_read(file, object, s->why);
    if (status != VKA_OK || json_is_object(*object))
        return status;
    snprintf(s->why, VKA_IO_ERROR_SIZE, "%.400s: is not an object", file);
    return VKA_INVALID;
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
    snprintf(key, sizeof key, "%s%s%s", s->config ? "" : s->kind, s->config ? "" : ".",
             s->config ? json : gguf);
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

enum vka_status source_real(const struct source *s, const char *gguf, bool needed, double *x)
{
    char key[64];
    snprintf(key, sizeof key, "%s.%s", s->kind, gguf);
    const struct vka_gguf_value *found = vka_gguf_metadata(s->gguf, key);
    if (!found)
        return needed ? source_refuse(s, key, "is missing") : VKA_OK;
    return vka_gguf_real(found, 0, x) ? VKA_OK : source_refuse(s, key, "is not a float");
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
    if (a)
        *f = (struct found){a->dtype == VKA_IO_F32    ? VKA_F32
                            : a->dtype == VKA_IO_F16  ? VKA_F16
                            : a->dtype == VKA_IO_BF16 ? VKA_BF16
                                                      : VKA_DTYPE_COUNT,
                            a->rank, a->shape, a->data, a->size};
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
