/* The linear operation on checked tensors. */
#ifndef VKA_OP_LINEAR_H
#define VKA_OP_LINEAR_H

#include "op/matmul/matmul.h"

/* output[...][out] = f(input[...][in]) weight[out][in]^T + bias; leading axes are equal. panel
 * and scale: of the weight, see matmul_op. */
enum vka_status plan_linear(struct vka_plan *plan, const char *name, const struct vka_tensor *input,
                            const struct vka_tensor *weight, uint32_t panel,
                            const struct vka_tensor *scale, const struct vka_tensor *bias,
                            bool relu, const struct vka_tensor *output);

#endif
