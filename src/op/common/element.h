/* Element-wise functions, sums and products of checked tensors. */
#ifndef VKA_OP_COMMON_ELEMENT_H
#define VKA_OP_COMMON_ELEMENT_H

#include <vkattn/vkattn_model.h>

#include "op/common/axes.h"

/* The tensors have rank 4 and the output's sizes, with stride 0 where they repeat. b: storage NULL
 * where there is none. */
struct map {
    struct axes_job axes; /* filled in by plan_map */
    const char *name;
    struct vka_tensor x, b, y;
    enum vka_activation function;
    bool multiply;
    float alpha;
};
enum vka_status plan_map(struct vka_plan *plan, struct map *map);

/* Applies a function, with an alpha of 1, in place. */
enum vka_status plan_activate(struct vka_plan *plan, enum vka_activation function,
                              const struct vka_tensor *tensor);

#endif
