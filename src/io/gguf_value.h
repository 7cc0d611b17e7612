/* Reads names, numbers and metadata from front to back. */
#ifndef VKA_IO_GGUF_VALUE_H
#define VKA_IO_GGUF_VALUE_H

#include "io/gguf.h"

/* A name in a sentence. In the file it has no 0 at its end, but its length before it. */
#define VKA_GGUF_NAME "'%.*s'"
#define VKA_GGUF_SHOWN(name) \
    (vka_gguf_name_size(name) < 100 ? (int)vka_gguf_name_size(name) : 100), (name)
size_t vka_gguf_name_size(const char *name);

/* Reads an unsigned number of `size` bytes; false if the file ends before it does. */
bool vka_gguf_take(struct vka_gguf_reader *r, size_t size, uint64_t *number);

/* Reads a name or key, of 1 to `most` bytes; it stays in the file. what and index are for
 * sentences: "tensor" 3. */
enum vka_status vka_gguf_take_name(struct vka_gguf_reader *r, const char *what, uint64_t index,
                                   uint32_t most, const char **name);

/* Reads metadata: key, type and value. */
enum vka_status vka_gguf_read_value(struct vka_gguf_reader *r, uint64_t index,
                                    struct vka_gguf_value *value);

#endif
