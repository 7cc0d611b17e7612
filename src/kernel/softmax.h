/* The kernels of the softmax over the rows of a slice of scores. */
#ifndef VKA_KERNEL_SOFTMAX_H
#define VKA_KERNEL_SOFTMAX_H

#include "kernel/tune.h"

struct softmax_choice {
    enum kernel kernel;
    uint32_t lanes; /* invocations of a row, a power of two */
    bool exchange; /* of returned scores of 16 bits between neighbours, which store them as words */
    const char *reason;
};

void tune_softmax(const struct caps *caps, uint32_t n_kv, struct softmax_choice *choice);

#endif
