/* Passes that other operations are made of: matrix products and strided copies. */
#ifndef VKA_OP_MATMUL_MATMUL_H
#define VKA_OP_MATMUL_MATMUL_H

#include "plan/plan.h"

/* c = alpha * f(a) b^T + bias, for each batch and head. All of rank 4. */
struct matmul_op {
    const char *name;
    struct vka_tensor a; /* [batch][n_head][m][k] */
    struct vka_tensor b; /* [batch][n_head / group][n][k]; batch or head may have stride 0 */
    uint32_t panel; /* not 0: b is packed, [batch][n_head / group][panels][k * panel], float32 */
    struct vka_tensor c;           /* [batch][n_head][m][n] */
    const struct vka_tensor *bias; /* [n]; NULL: none */
    /* [batch][n_head][m][n] float32, the sums that the product goes on with: it is the last part of
     * one that is cut along k. Columns contiguous; storage NULL: none. */
    struct vka_tensor sums;
    uint32_t group;
    float alpha;
    bool relu;   /* f(x) = max(x, 0) */
    bool hidden; /* a comes from the softmax and may hold HIDDEN_BITS */
};

/* Appends the passes, cut where the device's limits ask for it. */
enum vka_status plan_matmul(struct vka_plan *plan, const struct matmul_op *op);

/* to = from, element by element, of rank 4 and equal shape, converting the type. */
enum vka_status plan_copy(struct vka_plan *plan, const char *name, const struct vka_tensor *from,
                          const struct vka_tensor *to);

/* The same from [batch][head][n][k] into packed panels, as matmul_op has them in b. */
enum vka_status plan_copy_to_panels(struct vka_plan *plan, const char *name,
                                    const struct vka_tensor *from, const struct vka_tensor *to,
                                    uint32_t panel);

/* Measures the kernels that only move data, by a copy: a calibrate_add. */
enum vka_status plan_probe_moves(struct vka_plan *plan, const void *problem, uint32_t n);

#endif
