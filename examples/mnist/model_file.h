/* The file of a digit classifier: its parameters in a safetensors. Uses no device. */
#ifndef MNIST_MODEL_FILE_H
#define MNIST_MODEL_FILE_H

#include "model.h"

#include <vkattn/vkattn_io.h>

/* Reads a file for images of rows x cols pixels. VKA_IO, with one sentence in error
 * (VKA_IO_ERROR_SIZE characters), if a tensor is missing or does not have the shape and type that
 * follow from the metadata, or if config has an unknown key. */
enum vka_status model_read(const char *path, uint32_t rows, uint32_t cols, struct model **model,
                           char *error);

/* Reads float32 arrays of the names "<prefix>q_proj.weight" and so on, with the shapes of the model's
 * parameters, into new ones. Statuses of model_read. */
enum vka_status model_read_values(const struct model *model, const struct vka_safetensors *file,
                                  const char *path, const char *prefix, struct model_values *values,
                                  char *error);

#define MODEL_NAME 48                                   /* characters of the longest name */
#define MODEL_MAX_ARRAYS (3 * 2 * MODEL_SLOT_COUNT + 1) /* of a file */

struct model_array {
    char name[MODEL_NAME];
    struct vka_io_array array; /* its name is not set */
};

/* Fills arrays[2 * MODEL_SLOT_COUNT] as model_read_values reads them; returns how many. They point to
 * the values. */
size_t model_arrays(const struct model *model, const struct model_values *values,
                    const char *prefix, struct model_array *arrays);

/* Writes a file that model_read reads, with the arrays and, as metadata, what a training has to keep.
 * VKA_IO, with a sentence in error. */
enum vka_status model_write(const char *path, const struct model *model,
                            const struct model_array *arrays, size_t n_array, const char *training,
                            char *error);

#endif
