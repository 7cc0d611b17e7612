/* Passes and checks that the operations of vkattn_train.h share. */
#ifndef VKA_OP_TRAIN_GRADIENT_H
#define VKA_OP_TRAIN_GRADIENT_H

#include <vkattn/vkattn_train.h>

#include "op/common/axes.h"
#include "params/train.h"

/* y = scale * sum of a term over the axes whose bits are in `reduced`, + y. */
struct sum_axes {
    const char *name;
    struct vka_tensor a;            /* of rank 4 */
    struct vka_tensor b;            /* of the same sizes; storage NULL: the term needs none */
    struct vka_tensor y;            /* of rank 4; sizes of the axes that are kept are those of a */
    const struct vka_tensor *stats; /* float32 [reduced][NORM_STATS], dense; of TERM_NORMALISED */
    unsigned reduced;               /* bit i: axis i */
    uint32_t term;                  /* TERM_ */
    float scale;
    bool add;
};

/* Adds the passes of a sum, pairwise over pieces of AXES_PIECE elements, in an order that follows
 * from shapes and strides alone. */
enum vka_status plan_sum_axes(struct vka_plan *plan, const struct sum_axes *op);

/* y = a slope, see map_backward_params. All of rank 4 and of y's sizes, with stride 0 where they
 * repeat; b: storage NULL where there is none. y may lie in place of dy. */
struct slope {
    struct axes_job axes; /* filled in by plan_slope */
    const char *name;
    struct vka_tensor dy, x, b, y;
    enum vka_activation function;
    uint32_t kind; /* SLOPE_ */
    float alpha;
    bool add;
};
enum vka_status plan_slope(struct vka_plan *plan, const struct slope *op);

/* vka_plan_add_norm_backward and vka_plan_add_linear_backward within an operation: they check and count
 * nothing. */
enum vka_status plan_norm_backward(struct vka_plan *plan, const struct vka_norm_backward_op *op);
enum vka_status plan_linear_backward(struct vka_plan *plan,
                                     const struct vka_linear_backward_op *op);

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

/* The axes in which a tensor of rank 4 repeats to have these sizes, a bit each. */
unsigned train_repeats(const struct vka_tensor *tensor, const uint32_t size[4]);

/* Checks a gradient, which need not be wanted, against the shape that it has. */
enum vka_status train_check_gradient(struct vka_device *device, const char *caller,
                                     const char *name, const struct vka_gradient *gradient,
                                     const struct shape *like);

/* Checks a contiguous tensor of a type's CHECK_ flag with one element. */
enum vka_status train_check_number(struct vka_device *device, const char *caller, const char *name,
                                   const struct vka_tensor *tensor, unsigned flags);

/* Checks that gradients share no element with inputs or each other; skips NULL. */
struct named_tensor {
    const char *name;
    const struct vka_tensor *tensor;
};
enum vka_status train_check_apart(struct vka_device *device, const char *caller,
                                  const struct named_tensor *written, size_t n_written,
                                  const struct vka_tensor *const *inputs, size_t n_input);

#endif
