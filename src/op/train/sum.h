/* Sums of terms over axes, of which gradients are made. */
#ifndef VKA_OP_TRAIN_SUM_H
#define VKA_OP_TRAIN_SUM_H

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

/* Adds the passes of a sum, pairwise over splits of AXES_SPLIT elements, in an order that follows
 * from shapes and strides alone. */
enum vka_status plan_sum_axes(struct vka_plan *plan, const struct sum_axes *op);

#endif
