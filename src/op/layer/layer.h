/* struct vka_layer, and its weights as an operation takes them. */
#ifndef VKA_OP_LAYER_H
#define VKA_OP_LAYER_H

#include "op/layer/weights.h"

enum projection { QUERY = 0, KEY, VALUE, OUTPUT, PROJECTION_COUNT };

struct vka_layer {
    struct vka_device *device;
    struct vka_layer_info info; /* sizes, defaults filled in; no host pointers or tensors */
    bool joined; /* sets[0] holds query, key and value, whose inputs have one width */
    struct weights sets[PROJECTION_COUNT]; /* of weights in tensors the layout alone */
    /* Weights in tensors, holding references: storage NULL where absent, or on the host. */
    struct vka_tensor weights[PROJECTION_COUNT], biases[PROJECTION_COUNT];
    bool has_output, has_bias[PROJECTION_COUNT];
};

/* Weights as the products of an operation take them; joined as the layer's are. */
struct layer_sets {
    const struct vka_layer *layer;
    struct weights sets[PROJECTION_COUNT];
};

/* Rows and columns of a projection's weight. */
uint32_t layer_out(const struct vka_layer_info *info, enum projection which);
uint32_t layer_in(const struct vka_layer_info *info, enum projection which);

/* *sets: the layer's; weights in tensors are packed into scratch of the operation. */
enum vka_status layer_take_sets(struct vka_plan *plan, const struct vka_layer *layer,
                                struct layer_sets *sets);

/* *weight: [out][in] of a projection, in scratch where the device has it in another layout. */
enum vka_status layer_weight(struct vka_plan *plan, const struct layer_sets *sets,
                             enum projection which, struct vka_tensor *weight);

/* Finds the weights of a projection, and its map among them. */
static inline const struct weights *layer_find(const struct layer_sets *sets, enum projection which,
                                               uint32_t *map)
{
    bool joined = sets->layer->joined && which != OUTPUT;
    *map = joined ? (uint32_t)which : 0;
    return &sets->sets[joined ? QUERY : which];
}

#endif
