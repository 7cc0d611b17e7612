/* Attention over key chunks, see vka_attention_op.state. */
#ifndef VKA_OP_ATTENTION_CHUNK_H
#define VKA_OP_ATTENTION_CHUNK_H

#include "op/attention/attention.h"

/* Adds the passes for a key chunk. UNSUPPORTED where attention over all keys would not be one chain
 * of fused passes. */
enum vka_status attention_add_chunk(struct vka_plan *plan, const struct attention *a);

#endif
