/* Hadamard rotation of rows, for caches of few bits. */
#ifndef VKA_OP_HADAMARD_H
#define VKA_OP_HADAMARD_H

#include "plan/plan.h"

/* Writes from[batch][n_head][n_row][dim], rotated in blocks of `block` features, a power of two that
 * divides dim, to a tensor of the same size. */
enum vka_status plan_hadamard(struct vka_plan *plan, const char *name, uint32_t block,
                              const struct vka_tensor *from, const struct vka_tensor *to);

#endif
