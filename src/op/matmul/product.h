/* A matrix product, or a slice of one, and the ways of adding and cutting it: types alone. */
#ifndef VKA_OP_MATMUL_PRODUCT_H
#define VKA_OP_MATMUL_PRODUCT_H

#include "kernel/choose.h"
#include "plan/cut.h"
#include "plan/plan.h"

/* Where an op stands in a product that is cut along k. A group is MATMUL_GROUP k of the product. */
struct matmul_span {
    struct vka_tensor sums; /* over the k before, see matmul_params; storage NULL: none */
    bool keeps;             /* c is the sums for the next span */
    bool open;              /* which continues the last group */
};

/* c = alpha * f(a) b^T + bias, for each batch and head. All of rank 4. */
struct matmul_op {
    const char *name;
    struct vka_tensor a; /* [batch][n_head][m][k] */
    struct vka_tensor b; /* [batch][n_head / group][n][k]; batch or head may have stride 0; may be
                            quantised, with contiguous rows */
    const struct vka_tensor *scale; /* float32 [n], multiplies columns: of int8 B; NULL: none */
    uint32_t b_tile; /* not 0: b is packed, float32 [batch][n_head / group][tiles][k * b_tile] */
    struct vka_tensor c;           /* [batch][n_head][m][n] */
    const struct vka_tensor *bias; /* [n]; NULL: none */
    struct matmul_span span;
    enum vka_dtype packed_a; /* type of a before it was packed, to which quantised b is rounded */
    uint32_t group;
    float alpha;
    bool relu;       /* f(x) = max(x, 0) */
    bool accumulate; /* c += ... */
    bool hidden;     /* a comes from the softmax and may hold HIDDEN_BITS */
    bool integers;   /* a is quantised first; b is quantised */
    bool cached;     /* n or k is the capacity of a cache, see struct matmul_problem */
};

/* Adds a product, or a slice of one. */
typedef enum vka_status matmul_add(struct vka_plan *plan, const struct matmul_op *op,
                                   const struct matmul_choice *choice);

#define AXIS_K CUT_AXES /* beside the axes of c, 0 to 3 */

/* The axis along which a product is halved, of c or AXIS_K; CUT_FITS: it is added as it is. */
typedef int matmul_judge(const struct vka_plan *plan, const struct matmul_op *op,
                         const struct matmul_choice *choice);

/* A way of cutting products, and what is done with a slice. */
struct matmul_way {
    matmul_judge *judge;
    matmul_add *add;
    calibrate_add *probe; /* of a struct matmul_job; NULL: no rate is asked for */
};

struct matmul_job {
    const struct matmul_op *op;
    const struct matmul_choice *choice;
    const struct matmul_way *way;
};

#endif
