/* Hadamard matrices on rows, for caches of few bits. */
#ifndef VKA_OP_HADAMARD_H
#define VKA_OP_HADAMARD_H

#include "plan/plan.h"

/* Writes from[batch][n_head][n_row][dim] to a tensor of the same size, and multiplies each block of
 * `block` features, a power of two that divides dim, by a Hadamard matrix; block 1 copies. q_start:
 * I32 [n + 1], the rows of batch 1 are packed sequences, and those outside all of them are not
 * written; NULL: not packed. */
enum vka_status plan_hadamard(struct vka_plan *plan, const char *name, uint32_t block,
                              const struct vka_tensor *q_start, const struct vka_tensor *from,
                              const struct vka_tensor *to);

#endif
