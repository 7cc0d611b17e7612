/* Quantises the activations of a product. */
#ifndef VKA_OP_MATMUL_QUANTISE_H
#define VKA_OP_MATMUL_QUANTISE_H

#include "op/matmul/product.h"

/* Quantises a of the op, after relu, into scratch that replaces it. */
enum vka_status matmul_quantise_a(struct vka_plan *plan, struct matmul_op *op);

#endif
