/* A GGUF file, as the reader and the writer share it: its limits, what is held of it, and where a
 * reader stands. */
#ifndef VKA_IO_GGUF_H
#define VKA_IO_GGUF_H

#include "io/file.h"

#define VKA_GGUF_MAGIC "GGUF"
#define VKA_GGUF_VERSION 3
#define VKA_GGUF_HEADER_SIZE 24 /* magic, version, number of tensors, number of keys */
#define VKA_GGUF_NAME_MAX 64    /* bytes of a tensor's name, as the format says */
#define VKA_GGUF_KEY_MAX 65535  /* bytes */
#define VKA_GGUF_ALIGNMENT 32   /* without the key: */
#define VKA_GGUF_ALIGNMENT_KEY "general.alignment"

struct vka_gguf {
    struct vka_io_map map;                  /* empty if the caller owns the bytes */
    struct vka_gguf_tensor *tensors;        /* [count], in the order of the file */
    struct vka_gguf_value *values;          /* [value_count], in the order of the file */
    const struct vka_gguf_tensor **by_name; /* [count], by strcmp */
    const struct vka_gguf_value **by_key;   /* [value_count], by strcmp */
    size_t count, value_count;
    char *names; /* of tensors and values, each with a 0 at its end */
    struct vka_gguf *
        *rest; /* [rest_count]: the other files of a model in several; see gguf_shards.h */
    size_t rest_count;
};

/* A file that is read from front to back, and where the sentence of a failure goes. */
struct vka_gguf_reader {
    const char *path;
    char *error;
    const unsigned char *begin, *at, *end; /* the header at least */
    uint64_t file_size;                    /* bytes, the data too */
    uint32_t alignment;
};

#define VKA_GGUF_REFUSE(reader, ...) \
    vka_io_fail((reader)->error, VKA_IO, (reader)->path, __VA_ARGS__)

#endif
