/* struct vka_layer, and the steps of its operation that its gradients take too. */
#ifndef VKA_OP_LAYER_H
#define VKA_OP_LAYER_H

#include "op/attention/attention.h"
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

/* Finds the weights of a projection, and its part of them. */
static inline const struct weights *layer_find(const struct layer_sets *sets, enum projection which,
                                               uint32_t *part)
{
    bool joined = sets->layer->joined && which != OUTPUT;
    *part = joined ? (uint32_t)which : 0;
    return &sets->sets[joined ? QUERY : which];
}

/* Inputs of an operation: query, key, value. Equal pointers for one tensor. */
struct layer_inputs {
    const struct vka_tensor *x[3];
};
struct layer_inputs layer_inputs_of(const struct vka_layer_op *op);

/* Checks the operation, fills in *use and sets the sizes of *a. */
enum vka_status layer_op_check(struct vka_plan *plan, const char *caller,
                               const struct vka_layer_op *op, struct cache_use *use,
                               struct attention *a);

/* Checks an input or what has the shape of the output, [batch][n][width] in the layout, against
 * *batch and *n; sets those that are 0. */
enum vka_status layer_check_io(struct vka_plan *plan, const char *caller, const char *name,
                               const struct vka_tensor *tensor, enum vka_layout layout,
                               unsigned flags, uint32_t width, uint32_t *batch, uint32_t *n);

/* View [batch][n_head][n][dim] of [n0][n1][n_head][dim], or, interleaved, [n0][n1][dim][n_head]. */
struct vka_tensor layer_heads(const struct vka_tensor *flat, enum vka_layout layout,
                              uint32_t n_head, uint32_t dim, bool interleaved);

/* Adds all three projections into scratch of a float type, in as few products as inputs and weights
 * allow; heads[] are views of them. */
enum vka_status layer_project(struct vka_plan *plan, const struct layer_sets *sets,
                              const struct vka_layer_op *op, const struct layer_inputs *in,
                              enum vka_dtype dtype, struct vka_tensor heads[3]);

#endif
