/* Packs weights that lie in tensors when a plan runs. */
#ifndef VKA_OP_LAYER_PACK_H
#define VKA_OP_LAYER_PACK_H

#include "op/layer/weights.h"

/* *packed: what the tensors of the maps hold when the plan runs, in a layout that weights_lay_out
 * made, in scratch until the operation ends. It holds no reference. */
enum vka_status weights_pack(struct vka_plan *plan, enum vka_dtype dtype,
                             const struct weights *layout, const struct linear_map *maps,
                             uint32_t in, struct weights *packed);

/* *weight: rows [out][in] of a map of weights that are not of a block type, in scratch where no
 * strides describe them. */
enum vka_status weights_rows(struct vka_plan *plan, const struct weights *weights, uint32_t map,
                             uint32_t in, struct vka_tensor *weight);

#endif
