/* Gradients of attention slice by slice, with buffers of scores. */
#ifndef VKA_OP_TRAIN_ATTENTION_SLICES_H
#define VKA_OP_TRAIN_ATTENTION_SLICES_H

#include "op/train/attention_sums.h"

/* Adds all products, slice by slice in an order that follows from shapes alone. */
enum vka_status attention_add_backward(struct vka_plan *plan, const struct attention_backward *b);

/* Queries of a slice of a problem with n_kv keys. */
uint32_t attention_slice_queries(uint32_t n_q, uint32_t n_kv);

#endif
