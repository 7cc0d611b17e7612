/* Passes over a few numbers: losses, norms, rates. */
#ifndef VKA_OP_TRAIN_SCALARS_H
#define VKA_OP_TRAIN_SCALARS_H

#include "op/common/axes.h"
#include "params/train.h"

/* A pass of the kernel `scalars`. Tensors are float32, but for the step, and may be NULL where the
 * kind does not read them; `factor`: the rate is multiplied by x[0]. */
struct scalars {
    const char *name;
    uint32_t kind; /* SCALARS_ */
    bool factor;
    const struct vka_tensor *x, *y, *z;
    struct scalars_params params; /* without offsets */
};
enum vka_status plan_scalars(struct vka_plan *plan, const struct scalars *op);

/* Float32 [1][1][1][n] until the operation ends. */
enum vka_status plan_scalar_scratch(struct vka_plan *plan, uint32_t n, struct vka_tensor *tensor);

#endif
