/* Reads all of a GGUF file before its data. */
#ifndef VKA_IO_GGUF_HEADER_H
#define VKA_IO_GGUF_HEADER_H

#include "io/gguf.h"

/* Reads all before the data. Names of the file stay in the file; tensors have offsets in the file,
 * and no data. What file holds is freed by vka_gguf_close, after a failure too. */
enum vka_status vka_gguf_read_header(struct vka_gguf_reader *r, struct vka_gguf *file);

#endif
