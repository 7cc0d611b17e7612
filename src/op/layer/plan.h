/* The steps of the operation of a layer that its gradients take too. */
#ifndef VKA_OP_LAYER_PLAN_H
#define VKA_OP_LAYER_PLAN_H

#include "op/attention/attention.h"
#include "op/layer/layer.h"

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
