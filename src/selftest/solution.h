/* A known problem being solved: its tensors, their values and its run. */
#ifndef VKA_SELFTEST_SOLUTION_H
#define VKA_SELFTEST_SOLUTION_H

#include "plan/plan.h"

#define KNOWN_TENSORS 8

/* A problem being solved: its plan, and the plan's tensors and cache. */
struct solution {
    struct vka_device *device;
    struct vka_plan *plan;
    enum known_problem problem;
    uint32_t head_dim;
    struct vka_tensor *tensors[KNOWN_TENSORS];
    size_t n_tensor; /* made so far; one more while one is being made */
    struct vka_cache *cache;
    double *want;     /* [elements of the result] */
    double tolerance; /* of the problem, see kernels.def */
    bool *right;      /* see known_problem_solve */
};

/* Element `index` of the operand with this seed. */
float known_value(uint32_t seed, uint32_t index);

/* Makes a dense tensor of known values; seed 0: NaN. */
enum vka_status known_tensor(struct solution *s, enum vka_dtype dtype, uint32_t rank,
                             const uint32_t *shape, uint32_t seed, struct vka_tensor **tensor);

/* Writes a tensor of float16 made from this seed once more, with every second element from `first` on
 * times KNOWN_SMALL: subnormal. */
#define KNOWN_SMALL 0x1p-17
enum vka_status known_shrink(struct solution *s, struct vka_tensor *tensor, uint32_t seed,
                             uint32_t first);

/* Allocates s->want for a tensor, filled with 0. */
enum vka_status known_want(struct solution *s, const struct vka_tensor *tensor);

/* Runs the plan `times` times and compares the tensor, which may be NULL. Does nothing if kernels
 * are only chosen. */
enum vka_status known_run(struct solution *s, struct vka_tensor *tensor, uint32_t times);

/* What the rows of kernels.def name: each solves a problem, or several that it tells apart by
 * s->problem. */
#define KNOWN(id, path, tolerance, solve) enum vka_status solve(struct solution *s);
#include "kernels.def"

#endif
