/* One GGUF file, and the names of what was read. */
#ifndef VKA_IO_GGUF_READ_H
#define VKA_IO_GGUF_READ_H

#include "io/gguf.h"

/* Copies the names, each with a 0 at its end, sorts them, and checks that none occurs twice. */
enum vka_status vka_gguf_sort_names(struct vka_gguf_reader *r, struct vka_gguf *file);

/* Pointers to tensors[count] sorted by name, of malloc; NULL: no memory. */
const struct vka_gguf_tensor **vka_gguf_by_name(const struct vka_gguf_tensor *tensors,
                                                size_t count);

/* Opens one file, be it a shard of a model or all of it. */
enum vka_status vka_gguf_open_one(const char *path, char *error, struct vka_gguf **file);

#endif
