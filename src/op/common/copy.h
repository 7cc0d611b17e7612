/* Copies between strided tensors, of which other operations are made. */
#ifndef VKA_OP_COMMON_COPY_H
#define VKA_OP_COMMON_COPY_H

#include "plan/plan.h"

/* Copies between tensors of rank 4 and equal shape, converting the type. */
enum vka_status plan_copy(struct vka_plan *plan, const char *name, const struct vka_tensor *from,
                          const struct vka_tensor *to);

/* Copies [batch][head][n][k] to packed tiles, see matmul_op.b_tile. */
enum vka_status plan_copy_to_tiles(struct vka_plan *plan, const char *name,
                                   const struct vka_tensor *from, const struct vka_tensor *to,
                                   uint32_t tile);

/* Measures the kernels that only move data, by a copy: a calibrate_add. */
enum vka_status plan_probe_moves(struct vka_plan *plan, const void *problem, uint32_t n);

#endif
