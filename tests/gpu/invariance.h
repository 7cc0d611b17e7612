/* test_invariance: what must not change a bit of a result. */
#ifndef TESTS_INVARIANCE_H
#define TESTS_INVARIANCE_H

#include "problem_data.h"

struct invariance {
    struct vka_device *device;
    struct vka_device *small; /* the same one with lowered limits, staging and fences */
    struct vka_device *busy;  /* the device that a failing call was made on */
    uint64_t hash;            /* of all outputs of the configuration */
    uint64_t n_refused;       /* problems that pass a lowered limit */
    char why[WHY];            /* of a failure */
};

/* A random attention problem: again, with its batch elements alone and elsewhere among others, in
 * slices of another size, and on the small device. False where a bit differs or a call fails. */
bool invariant_attention(struct invariance *t, uint64_t seed, enum vka_path path);

/* A random prompt into a cache: at once, and in chunks. */
bool invariant_chunks(struct invariance *t, uint64_t seed, enum vka_path path);

#endif
