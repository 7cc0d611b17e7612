/* Matrix products, of which other operations are made. */
#ifndef VKA_OP_MATMUL_MATMUL_H
#define VKA_OP_MATMUL_MATMUL_H

#include "op/matmul/product.h"

/* Adds the passes of a product, cut to fit the device and the budget. */
enum vka_status plan_matmul(struct vka_plan *plan, const struct matmul_op *op);

#endif
