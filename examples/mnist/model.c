#include "model.h"

#include "reference/reference.h"

#include <math.h>
#include <stdlib.h>

/* ---- Values ---------------------------------------------------------------------------------- */

bool model_values_alloc(const struct model *model, struct model_values *values)
{
    bool whole = true;

    for (int i = 0; i < MODEL_SLOT_COUNT; i++) {
        uint32_t out, in;

        if (!model_has_slot(model, (enum model_slot)i))
            continue;
        model_slot_shape(model, (enum model_slot)i, &out, &in);
        values->weight[i] = calloc((size_t)out * in, sizeof(float));
        values->bias[i] = calloc(out, sizeof(float));
        whole = whole && values->weight[i] && values->bias[i];
    }
    return whole;
}

void model_values_free(struct model_values *values)
{
    for (int i = 0; i < MODEL_SLOT_COUNT; i++) {
        free(values->weight[i]);
        free(values->bias[i]);
        values->weight[i] = values->bias[i] = NULL;
    }
}

/* Uniform numbers from -bound to bound, of word 0 of Philox4x32-10 of the counter (i, stream, 0, 0). */
static void draw(float *x, size_t n, double bound, uint32_t stream, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t word[4];
        ref_philox((const uint32_t[4]){(uint32_t)i, stream}, (const uint32_t[2]){seed}, word);
        x[i] = (float)(bound * (2 * ((word[0] >> 8) * 0x1p-24) - 1));
    }
}

void model_draw(struct model *model, uint32_t seed)
{
    for (int i = 0; i < MODEL_SLOT_COUNT; i++) {
        uint32_t out, in;

        if (!model_has_slot(model, (enum model_slot)i))
            continue;
        model_slot_shape(model, (enum model_slot)i, &out, &in);
        const double bound = 1 / sqrt(in);
        draw(model->values.weight[i], (size_t)out * in, bound, 2 * (uint32_t)i, seed);
        draw(model->values.bias[i], out, bound, 2 * (uint32_t)i + 1, seed);
    }
}

/* ---- The model ------------------------------------------------------------------------------- */

bool model_set_patches(struct model *model, uint32_t side)
{
    model->side = side;
    model->n_patch = model->rows / side * (model->cols / side);
    model->width = side * side;
    return model->rows % side == 0 && model->cols % side == 0;
}

bool model_has_slot(const struct model *model, enum model_slot slot)
{
    return slot == MODEL_CLASSIFIER || (slot == MODEL_HIDDEN) == (model->n_hidden != 0);
}

void model_free(struct model **model)
{
    if (!model || !*model)
        return;
    model_values_free(&(*model)->values);
    free(*model);
    *model = NULL;
}

void model_slot_shape(const struct model *model, enum model_slot slot, uint32_t *out, uint32_t *in)
{
    const uint32_t heads = model->n_head * model->width;

    switch (slot) {
    case MODEL_OUTPUT:
        *out = model->width;
        *in = heads;
        break;
    case MODEL_HIDDEN:
        *out = model->n_hidden;
        *in = model->rows * model->cols;
        break;
    case MODEL_CLASSIFIER:
        *out = model->n_class;
        *in = model->n_hidden ? model->n_hidden : model->n_patch * model->width;
        break;
    case MODEL_QUERY:
    case MODEL_KEY:
    case MODEL_VALUE:
    case MODEL_SLOT_COUNT:
    default:
        *out = heads;
        *in = model->width;
        break;
    }
}

uint32_t model_positions(const struct model *model)
{
    return model->channels ? model->width : model->n_patch;
}

void model_input(const struct model *model, const uint8_t *pixels, float *input)
{
    const uint32_t side = model->side, across = model->cols / side;

    for (uint32_t r = 0; r < model->rows; r++) {
        for (uint32_t c = 0; c < model->cols; c++) {
            const uint32_t patch = r / side * across + c / side;
            const uint32_t channel = r % side * side + c % side;

            input[patch * model->width + channel] = (float)pixels[r * model->cols + c] / 255.0f;
        }
    }
}
