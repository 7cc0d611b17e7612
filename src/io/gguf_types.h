/* The types of tensors and of metadata in GGUF files. */
#ifndef VKA_IO_GGUF_TYPES_H
#define VKA_IO_GGUF_TYPES_H

#include <vkattn/vkattn_io.h>

/* A type of tensors. */
struct vka_gguf_layout {
    const char *name;      /* NULL: no type has this number */
    uint32_t values, size; /* of a block: values, and bytes; 0: its size is in dispute */
};

/* The type of vkattn with the same name; VKA_DTYPE_COUNT: none. */
enum vka_dtype vka_gguf_layout_dtype(const struct vka_gguf_layout *layout);

/* The type with this number in files; NULL if there is none. */
const struct vka_gguf_layout *vka_gguf_layout(uint64_t number);

/* Writes the names of the types that products take weights of, as in "f32, f16, q8_0". */
void vka_gguf_print_weight_types(char *text, size_t size);

/* The number of the type that a tensor to be written has; UINT32_MAX if there is none. */
uint32_t vka_gguf_layout_number(const struct vka_gguf_tensor *tensor);

/* Bytes of an item of metadata; 0 for strings, arrays and unknown types. */
size_t vka_gguf_type_size(enum vka_gguf_type type);

/* The name of a type of metadata, as in "u32". */
const char *vka_gguf_type_name(enum vka_gguf_type type);

#endif
