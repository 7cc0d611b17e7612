/* What is read of a decoder's file: keys and tensors, each remembered once something asked for it, as a
 * file whose others would change the result is refused. SPDX-License-Identifier: MIT */
#ifndef GENERATE_LOADER_H
#define GENERATE_LOADER_H

#include "weights.h"

#define TRY(call)                  \
    do {                           \
        enum vka_status s_ = call; \
        if (s_ != VKA_OK)          \
            return s_;             \
    } while (0)

struct loader {
    struct vka_device *device;
    const struct vka_gguf *file;
    const struct family *family;
    uint64_t most;      /* bytes that a tensor may have */
    bool *used_tensors; /* those of the file, by index, that something has asked for */
    bool *used_keys;    /* the same of keys */
    char *why;          /* VKA_IO_ERROR_SIZE */
};

/* INVALID, with the sentence "name: what". */
enum vka_status loader_refuse(const struct loader *l, const char *what, const char *name);

/* The value of a key behind the architecture's name, which is put in full[96]; NULL: there is none. */
const struct vka_gguf_value *loader_key(const struct loader *l, const char *key, char full[96]);

/* Finds a tensor of the file. rows 0: a vector of `width`. */
enum vka_status loader_find(const struct loader *l, const char *name, uint64_t rows, uint64_t width,
                            const struct vka_gguf_tensor **found);

/* Reads sizes and numbers of the family into *m. */
enum vka_status loader_read_sizes(const struct loader *l, struct decoder *m);

/* Reads factors, of which *residual is that of what a block adds, 0: 1. */
enum vka_status loader_read_factors(const struct loader *l, struct decoder *m, float *residual);

/* Refuses keys, and tensors that have data, which nothing has asked for. */
enum vka_status loader_check_keys(const struct loader *l);
enum vka_status loader_check_tensors(const struct loader *l);

#endif
