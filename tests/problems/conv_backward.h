/* Random problems of the gradients of a causal convolution, with their oracle. */
#ifndef TESTS_CONV_BACKWARD_H
#define TESTS_CONV_BACKWARD_H

#include <vkattn/vkattn_train.h>

#include "operand.h"

/* What pipelines are compiled for: options and types. */
struct conv_kind {
    uint32_t width;
    enum vka_activation activation;
    bool bias, past, present, lengths;
    enum vka_dtype x, weight, past_type, dy, present_type, gradient;
};

struct conv_sizes {
    uint32_t batch, n, channels, dilation;
};

enum { CONV_DX, CONV_DW, CONV_DB, CONV_DPAST, CONV_GRADIENTS };

struct conv_problem {
    struct vka_causal_conv_backward_op
        op; /* with all gradients that there are; points to forward */
    struct vka_causal_conv_op forward;
    struct operand x, weight, bias, past, lengths, y, dy, present;
    struct operand made[CONV_GRADIENTS]; /* view NULL: there is none */
    double *want[CONV_GRADIENTS];
    char text[200];
};

struct conv_kind conv_kind_draw(struct rng *rng);
struct conv_sizes conv_sizes_draw(struct rng *rng);

/* Makes the operands, in random layouts, and the gradients that are wanted. Rows from a length on are
 * NaN. A half-made problem is to be destroyed too. */
enum vka_status conv_problem_create(struct vka_device *device, struct rng *rng,
                                    const struct conv_kind *kind, const struct conv_sizes *sizes,
                                    struct conv_problem *p);
void conv_problem_destroy(struct conv_problem *p);

#endif
