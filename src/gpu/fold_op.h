/* Operations on specialization constants: what OpSpecConstantOp may name, by SPIR-V's numbers. */
#ifndef VKA_GPU_FOLD_OP_H
#define VKA_GPU_FOLD_OP_H

#include <stdbool.h>
#include <stdint.h>

enum fold_class {
    FOLD_UNKNOWN, /* is not evaluated */
    FOLD_CONVERT, /* an integer to another width */
    FOLD_INTEGER, /* integers of the result's width */
    FOLD_SHIFT,   /* the amount may have a width of its own */
    FOLD_COMPARE, /* integers of one width; gives a boolean */
    FOLD_LOGICAL, /* booleans */
    FOLD_SELECT,
    FOLD_SHUFFLE,
    FOLD_EXTRACT,
    FOLD_INSERT,
};

struct fold_op {
    uint32_t opcode;
    enum fold_class kind;
    uint32_t n_operand; /* the least, for those that take literals too */
    const char *why;    /* it is refused: the end of a sentence that begins with "the kernel" */
};

/* NULL: the operation cannot stand in OpSpecConstantOp. */
const struct fold_op *fold_op_find(uint32_t opcode);

struct fold_scalar {
    uint64_t bits;  /* zero above the width */
    uint32_t width; /* 1 (a boolean), 8, 16, 32 or 64 */
};

/* Evaluates an operation from FOLD_CONVERT to FOLD_LOGICAL for a result of `width` bits. What
 * SPIR-V leaves undefined (division by zero, a shift by the width or more) is 0, as in a branch
 * that is never taken. False: the widths are not what the operation takes. */
bool fold_op_evaluate(const struct fold_op *op, const struct fold_scalar *x, uint32_t width,
                      uint64_t *result);

#endif
