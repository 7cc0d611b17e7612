/* The model, Adam's moments and the losses in one safetensors. */
#include "train_file.h"

#include "model_file.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const train_kinds[] = {"documented", "executed", "mlp", NULL};

#define FIRST "first_moment."
#define SECOND "second_moment."
#define LOSSES "losses"

uint64_t train_steps_of_epoch(const struct train_progress *p)
{
    return (p->count - 1) / p->batch + 1;
}

/* ---- Writing --------------------------------------------------------------------------------- */

enum vka_status train_write(const char *path, const struct model *model,
                            const struct train_progress *p, char *error)
{
    struct model_array arrays[MODEL_MAX_ARRAYS];
    char training[256];
    size_t n = model_arrays(model, &model->values, "", arrays);

    n += model_arrays(model, &p->state.first, FIRST, arrays + n);
    n += model_arrays(model, &p->state.second, SECOND, arrays + n);
    snprintf(arrays[n].name, MODEL_NAME, "%s", LOSSES);
    arrays[n++].array = (struct vka_io_array){.dtype = VKA_IO_F32,
                                              .rank = 1,
                                              .shape = {(uint64_t)p->state.step},
                                              .data = p->losses,
                                              .size = (size_t)p->state.step * sizeof(float)};
    snprintf(training, sizeof training,
             "{\"model\": \"%s\", \"batch\": %u, \"learning_rate\": %.17g, \"seed\": %u, "
             "\"count\": %u, \"epochs\": %u, \"step\": %d}",
             train_kinds[p->kind], (unsigned)p->batch, p->learning_rate, (unsigned)p->seed,
             (unsigned)p->count, (unsigned)p->epochs, (int)p->state.step);
    return model_write(path, model, arrays, n, training, error);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static enum vka_status refuse(const char *path, const char *why, char *error)
{
    snprintf(error, VKA_IO_ERROR_SIZE, "%s: %s", path, why);
    return VKA_IO;
}

/* A whole number from least to most. */
static bool read_whole(const json_t *object, const char *key, uint32_t least, uint32_t most,
                       uint32_t *number)
{
    const json_t *value = json_object_get(object, key);
    const json_int_t n = json_integer_value(value);

    if (!json_is_integer(value) || n < least || n > most)
        return false;
    *number = (uint32_t)n;
    return true;
}

static bool read_training(const json_t *object, struct train_progress *p)
{
    const char *kind = json_string_value(json_object_get(object, "model"));
    uint32_t step;

    for (p->kind = 0; kind && train_kinds[p->kind] && strcmp(kind, train_kinds[p->kind]);)
        p->kind++;
    p->learning_rate = json_number_value(json_object_get(object, "learning_rate"));
    if (!kind || !train_kinds[p->kind] || json_object_size(object) != 7 ||
        !(p->learning_rate > 0 && isfinite(p->learning_rate)) ||
        !read_whole(object, "batch", 1, TRAIN_MAX_BATCH, &p->batch) ||
        !read_whole(object, "seed", 0, UINT32_MAX, &p->seed) ||
        !read_whole(object, "count", 1, UINT32_MAX, &p->count) ||
        !read_whole(object, "epochs", 0, TRAIN_MAX_EPOCHS, &p->epochs) ||
        !read_whole(object, "step", 0, INT32_MAX, &step))
        return false;
    p->state.step = (int32_t)step;
    return step == p->epochs * train_steps_of_epoch(p);
}

/* Finite, as a training that went wrong cannot go on. */
static enum vka_status read_losses(const struct vka_safetensors *file, const char *path,
                                   struct train_progress *p, char *error)
{
    const struct vka_io_array *array = vka_safetensors_find(file, LOSSES);

    if (!array || array->dtype != VKA_IO_F32 || array->rank != 1 ||
        array->shape[0] != (uint64_t)p->state.step) {
        snprintf(error, VKA_IO_ERROR_SIZE, "%s: '%s': expected F32 [%d]", path, LOSSES,
                 (int)p->state.step);
        return VKA_IO;
    }
    p->losses = malloc(array->size + 1);
    if (!p->losses) {
        refuse(path, "out of memory", error);
        return VKA_OUT_OF_HOST_MEMORY;
    }
    memcpy(p->losses, array->data, array->size);
    for (int32_t i = 0; i < p->state.step; i++)
        if (!isfinite(p->losses[i]))
            return refuse(path, "'" LOSSES "': expected finite numbers", error);
    return VKA_OK;
}

/* Whether the model is what --model KIND makes. */
static bool fits_kind(const struct model *m, int kind)
{
    return kind == TRAIN_MLP ? m->n_hidden != 0
                             : !m->n_hidden && m->channels == (kind == TRAIN_EXECUTED);
}

static enum vka_status read_progress(const struct vka_safetensors *file, const char *path,
                                     const struct model *model, struct train_progress *p,
                                     char *error)
{
    const char *text = vka_safetensors_metadata(file, "training");
    json_t *object = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const bool whole = read_training(object, p) && fits_kind(model, p->kind);
    enum vka_status status = VKA_OK;

    json_decref(object);
    if (!whole)
        return refuse(path, "metadata 'training': expected what 'vkattn-mnist train' writes",
                      error);
    status = model_read_values(model, file, path, FIRST, &p->state.first, error);
    if (status == VKA_OK)
        status = model_read_values(model, file, path, SECOND, &p->state.second, error);
    return status == VKA_OK ? read_losses(file, path, p, error) : status;
}

enum vka_status train_read(const char *path, uint32_t rows, uint32_t cols, struct model **model,
                           struct train_progress *progress, char *error)
{
    struct vka_safetensors *file = NULL;
    enum vka_status status = model_read(path, rows, cols, model, error);

    if (status == VKA_OK)
        status = vka_safetensors_open(path, error, &file);
    if (status == VKA_OK)
        status = read_progress(file, path, *model, progress, error);
    vka_safetensors_close(&file);
    if (status != VKA_OK) {
        model_free(model);
        train_progress_free(progress);
    }
    return status;
}

void train_progress_free(struct train_progress *p)
{
    model_values_free(&p->state.first);
    model_values_free(&p->state.second);
    free(p->losses);
    p->losses = NULL;
}
