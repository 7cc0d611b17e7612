/* The linear operation on checked tensors. */
#ifndef VKA_OP_LINEAR_H
#define VKA_OP_LINEAR_H

#include "plan/plan.h"

/* output[...][out] = f(input[...][in]) weight[out][in]^T + bias; leading axes are equal. */
struct linear {
    const char *name;
    const struct vka_tensor *input, *weight;
    uint32_t b_tile;                       /* of the weight, see matmul_op */
    const struct vka_tensor *scale, *bias; /* NULL: none */
    bool relu, accumulate, integers;       /* see matmul_op */
    const struct vka_tensor *output;
};
enum vka_status plan_linear(struct vka_plan *plan, const struct linear *linear);

#endif
