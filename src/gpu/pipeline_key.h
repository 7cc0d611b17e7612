/* What tells one compute pipeline from another. */
#ifndef VKA_GPU_PIPELINE_KEY_H
#define VKA_GPU_PIPELINE_KEY_H

#include "gpu/kernels.h"

struct pipeline_key {
    enum kernel kernel;
    uint32_t n_spec;
    uint32_t spec[MAX_SPECS]; /* constants 0 .. n_spec - 1 */
};

bool pipeline_same_key(const struct pipeline_key *a, const struct pipeline_key *b);

#endif
