/* Reads the digit classifier from its file: image -> patches -> attention layer -> ReLU -> linear.
 * Uses no device. */
#ifndef MNIST_MODEL_H
#define MNIST_MODEL_H

#include <vkattn/vkattn.h>

#define MODEL_MAX_CLASSES 10 /* labels are digits */

enum model_part {
    MODEL_QUERY = 0, /* [n_head * width][width], key and value the same */
    MODEL_KEY,
    MODEL_VALUE,
    MODEL_OUTPUT,     /* [width][n_head * width] */
    MODEL_CLASSIFIER, /* [n_class][n_patch * width] */
    MODEL_PART_COUNT
};

struct model {
    uint32_t rows, cols; /* pixels of an image */
    uint32_t side;       /* pixels of a patch's side */
    uint32_t n_patch;    /* patches of an image, row by row */
    uint32_t width;      /* pixels of a patch, side * side; each head is as wide */
    uint32_t n_head, n_class;
    /* Feature d of head h is row d * n_head + h of a projection; if false, row h * width + d. */
    bool interleaved;
    bool channels; /* the heads attend over the width channels, not over the n_patch patches */
    float *weight[MODEL_PART_COUNT], *bias[MODEL_PART_COUNT];
};

/* Reads a file for images of rows x cols pixels. VKA_IO, with one sentence in error
 * (VKA_IO_ERROR_SIZE characters), if a tensor is missing or does not have the shape and type that
 * follow from the metadata, or if config has an unknown key. */
enum vka_status model_read(const char *path, uint32_t rows, uint32_t cols, struct model **model,
                           char *error);
void model_free(struct model **model);

/* Rows and columns of a part's weight. */
void model_part_shape(const struct model *model, enum model_part part, uint32_t *out, uint32_t *in);

/* The number of units that a head attends over: patches or channels. */
uint32_t model_units(const struct model *model);

/* Converts pixels[rows][cols], 0 .. 255, to patches[n_patch][width], 0 .. 1. */
void model_patches(const struct model *model, const uint8_t *pixels, float *patches);

#endif
