/* What the GGUF reader and writer share. */
#ifndef VKA_IO_GGUF_H
#define VKA_IO_GGUF_H

#include "io/io.h"

#define VKA_GGUF_MAGIC "GGUF"
#define VKA_GGUF_VERSION 3
#define VKA_GGUF_HEADER_SIZE 24 /* magic, version, number of tensors, number of keys */
#define VKA_GGUF_NAME_MAX 64    /* bytes of a tensor's name, as the format says */
#define VKA_GGUF_KEY_MAX 65535  /* bytes */
#define VKA_GGUF_ALIGNMENT 32   /* without the key: */
#define VKA_GGUF_ALIGNMENT_KEY "general.alignment"

/* ---- Types ----------------------------------------------------------------------------------- */

/* A type of tensors. */
struct vka_gguf_layout {
    const char *name;      /* NULL: no type has this number */
    uint32_t values, size; /* of a block: values, and bytes; 0: its size is in dispute */
    enum vka_dtype dtype;  /* VKA_DTYPE_COUNT: not a type of vkattn */
};

/* The type with this number in files; NULL if there is none. */
const struct vka_gguf_layout *vka_gguf_layout(uint64_t number);

/* The number of the type that a tensor to be written has; UINT32_MAX if there is none. */
uint32_t vka_gguf_layout_number(const struct vka_gguf_tensor *tensor);

/* Bytes of an item of metadata; 0 for strings, arrays and unknown types. */
size_t vka_gguf_type_size(enum vka_gguf_type type);

/* The name of a type of metadata, as in "u32". */
const char *vka_gguf_type_name(enum vka_gguf_type type);

/* ---- Reading --------------------------------------------------------------------------------- */

struct vka_gguf {
    struct vka_io_map map;                  /* empty if the caller owns the bytes */
    struct vka_gguf_tensor *tensors;        /* [count], in the order of the file */
    struct vka_gguf_value *values;          /* [value_count], in the order of the file */
    const struct vka_gguf_tensor **by_name; /* [count], by strcmp */
    const struct vka_gguf_value **by_key;   /* [value_count], by strcmp */
    size_t count, value_count;
    char *names; /* of tensors and values, each with a 0 at its end */
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

/* Reads all before the data. Names of the file stay in the file; tensors have offsets in the file,
 * and no data. What file holds is freed by vka_gguf_close, after a failure too. */
enum vka_status vka_gguf_read_header(struct vka_gguf_reader *r, struct vka_gguf *file);

/* Copies the names, each with a 0 at its end, sorts them, and checks that none occurs twice. */
enum vka_status vka_gguf_sort_names(struct vka_gguf_reader *r, struct vka_gguf *file);

#endif
