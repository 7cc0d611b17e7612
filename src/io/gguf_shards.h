/* Models in several GGUF files, NAME-00001-of-00003.gguf and so on. */
#ifndef VKA_IO_GGUF_SHARDS_H
#define VKA_IO_GGUF_SHARDS_H

#include "io/gguf.h"

/* Makes shards[0] all of a model in `count` shards, two at least, which it owns from then on; on failure
 * they are as they were. path: of any shard; digits of it are changed, so that sentences name one. */
enum vka_status vka_gguf_join(char *path, struct vka_gguf *const *shards, size_t count,
                              char *error);

#endif
