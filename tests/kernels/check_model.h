/* What the checks of the operations of vkattn_model.h share. */
#ifndef TESTS_CHECK_MODEL_H
#define TESTS_CHECK_MODEL_H

#include <vkattn/vkattn_model.h>

#include "check.h"

/* Adds the operation of a case to a plan. */
typedef enum vka_status add_model_op(struct vka_plan *plan, const void *op);

/* Makes an operand with a random layout. */
enum vka_status model_operand(struct check *c, enum vka_dtype dtype, uint32_t rank,
                              const uint32_t *size, struct operand *o);

/* Makes n operands of one shape for a benchmark: dense, of float16. */
enum vka_status model_halves(struct check *c, uint32_t rank, const uint32_t *size, size_t n,
                             struct operand *const o[]);

/* Fills an input with values between low and high, as its type holds them, and uploads it. Does
 * nothing where there is none. */
enum vka_status model_fill(struct check *c, struct operand *o, double low, double high);

/* Multiplies a float32 input by a power of two, drawn from `n`, or in half of the cases by none: rows
 * whose squares float32 does not hold. */
enum vka_status model_stretch(struct check *c, struct operand *o, const int *powers, size_t n);

/* Runs the operation, compares its output with want[count], and runs it again in a plan that the
 * budget cuts: the bits have to be the same. *passes: of the plan that is not cut, if it is not
 * NULL. status is what making the operands gave. */
void model_check(struct check *c, enum vka_status status, add_model_op *add, const void *op,
                 struct operand *output, const double *want, const char *text);

/* Runs a plan that writes `result` in place of an input, compares it with want[count] and destroys the
 * plan. status is what making it gave. */
void model_run_in_place(struct check *c, struct vka_plan *plan, enum vka_status status,
                        struct operand *result, const double *want, const char *text);

/* Times it, with `bytes` read and written. */
void model_time(struct check *c, enum vka_status status, add_model_op *add, const void *op,
                double bytes, const char *text);

#endif
