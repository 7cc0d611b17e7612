/* The digit classifier: image -> patches -> attention layer -> ReLU -> linear; or an MLP: image ->
 * linear -> ReLU -> linear. Uses no device. */
#ifndef MNIST_MODEL_H
#define MNIST_MODEL_H

#include <vkattn/vkattn.h>

#define MODEL_MAX_CLASSES 10 /* labels are digits */

enum model_slot {
    MODEL_QUERY = 0, /* [n_head * width][width], key and value the same */
    MODEL_KEY,
    MODEL_VALUE,
    MODEL_OUTPUT,     /* [width][n_head * width] */
    MODEL_HIDDEN,     /* [n_hidden][rows * cols], of an MLP, which has no others of those above */
    MODEL_CLASSIFIER, /* [n_class][n_patch * width], or [n_class][n_hidden] */
    MODEL_SLOT_COUNT
};

/* Numbers of all parameters; NULL of slots that the model does not have. */
struct model_values {
    float *weight[MODEL_SLOT_COUNT], *bias[MODEL_SLOT_COUNT];
};

struct model {
    uint32_t rows, cols; /* pixels of an image */
    uint32_t side;       /* pixels of a patch's side; 1 of an MLP */
    uint32_t n_patch;    /* patches of an image, row by row */
    uint32_t width;      /* pixels of a patch, side * side; each head is as wide */
    uint32_t n_head, n_class;
    uint32_t n_hidden; /* units of an MLP; 0: a model with attention */
    /* Feature d of head h is row d * n_head + h of a projection; if false, row h * width + d. */
    bool interleaved;
    bool channels; /* the heads attend over the width channels, not over the n_patch patches */
    struct model_values values;
};

void model_free(struct model **model);

/* Arrays of zeros in the shapes of the parameters; false if memory ran out. */
bool model_values_alloc(const struct model *model, struct model_values *values);
void model_values_free(struct model_values *values);

/* Draws the parameters as PyTorch's Linear does: uniform from -1 / sqrt(in) to 1 / sqrt(in). */
void model_draw(struct model *model, uint32_t seed);

/* Sets side, n_patch and width; false if patches of that side do not tile the images. */
bool model_set_patches(struct model *model, uint32_t side);

bool model_has_slot(const struct model *model, enum model_slot slot);

/* Rows and columns of a slot's weight. */
void model_slot_shape(const struct model *model, enum model_slot slot, uint32_t *out, uint32_t *in);

/* The number of positions that a head attends over: patches or channels. */
uint32_t model_positions(const struct model *model);

/* Converts pixels[rows][cols], 0 .. 255, to what the model reads, 0 .. 1: [n_patch][width], or of an
 * MLP [rows][cols]. */
void model_input(const struct model *model, const uint8_t *pixels, float *input);

#endif
