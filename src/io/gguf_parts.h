/* Models in several GGUF files, NAME-00001-of-00003.gguf and so on. */
#ifndef VKA_IO_GGUF_PARTS_H
#define VKA_IO_GGUF_PARTS_H

#include "io/gguf.h"

/* Makes parts[0] all of a model in `count` parts, two at least, which it owns from then on; on failure
 * they are as they were. path: of any part; digits of it are changed, so that sentences name one. */
enum vka_status vka_gguf_join(char *path, struct vka_gguf *const *parts, size_t count, char *error);

#endif
