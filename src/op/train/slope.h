/* Slopes of element-wise functions, times a gradient. */
#ifndef VKA_OP_TRAIN_SLOPE_H
#define VKA_OP_TRAIN_SLOPE_H

#include <vkattn/vkattn_train.h>

#include "op/common/axes.h"
#include "params/train.h"

/* y = a slope, see map_backward_params. All of rank 4 and of y's sizes, with stride 0 where they
 * repeat; b: storage NULL where there is none. y may lie in place of dy. */
struct slope {
    struct axes_job axes; /* filled in by plan_slope */
    const char *name;
    struct vka_tensor dy, x, b, y;
    enum vka_activation function;
    uint32_t kind; /* SLOPE_ */
    float alpha;   /* of SiLU */
    float scale;   /* of a difference */
    bool add;
};
enum vka_status plan_slope(struct vka_plan *plan, const struct slope *op);

#endif
