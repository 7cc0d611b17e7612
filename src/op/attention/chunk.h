/* Attention over keys that come chunk by chunk, see vka_attention_op.state. */
#ifndef VKA_OP_ATTENTION_CHUNK_H
#define VKA_OP_ATTENTION_CHUNK_H

#include "op/attention/attention.h"

/* Adds the passes for a chunk. UNSUPPORTED where there is no such pass for all keys. */
enum vka_status attention_add_chunk(struct vka_plan *plan, const struct attention *a);

#endif
