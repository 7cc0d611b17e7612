/* The names of a GGUF file that was read. */
#ifndef VKA_IO_GGUF_READ_H
#define VKA_IO_GGUF_READ_H

#include "io/gguf.h"

/* Copies the names, each with a 0 at its end, sorts them, and checks that none occurs twice. */
enum vka_status vka_gguf_sort_names(struct vka_gguf_reader *r, struct vka_gguf *file);

#endif
