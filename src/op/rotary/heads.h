/* RMS norm and rotary embedding of q or k. */
#ifndef VKA_OP_ROTARY_HEADS_H
#define VKA_OP_ROTARY_HEADS_H

#include "plan/plan.h"

/* Replaces *tensor, [batch][n_head][n][head_dim], by scratch of a float type with each row normalised (norm
 * not NULL) and then rotated (rope->dim not 0). Row i of batch b is at position offsets[b] + i, or
 * first + i if offsets is NULL. q_start: I32 [n + 1], the rows of batch 1 are packed sequences, s at
 * offsets[s], which is not NULL; NULL: not packed. INVALID for a base below 1 and for
 * positions beyond int32. */
enum vka_status plan_rotary(struct vka_plan *plan, const char *name, const struct vka_rope *rope,
                            const struct vka_tensor *norm, float epsilon,
                            const struct vka_tensor *offsets, const struct vka_tensor *q_start,
                            uint32_t first, enum vka_dtype dtype, struct vka_tensor *tensor);

/* INVALID for a base below 1, and where `rows` rows from position `first` on pass int32. `name` names
 * the pass. UNSUPPORTED where a float32 row of head_dim features exceeds a binding. */
enum vka_status rotary_check(struct vka_plan *plan, const char *name, const struct vka_rope *rope,
                             uint64_t first, uint32_t rows, uint32_t head_dim);

/* No position that the kernels read from a tensor is farther from 0. */
#define ROTARY_MOST_OFFSET (1u << 30)

#endif
