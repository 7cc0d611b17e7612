/* Self-tests: a kernel solves a small known problem before its first use on a device. A kernel that
 * fails is not used, and the rules choose another. */
#ifndef VKA_SELFTEST_KNOWN_PROBLEM_H
#define VKA_SELFTEST_KNOWN_PROBLEM_H

#include "plan/plan.h"

/* Tests a kernel that is untested. head_dim 0: any. */
test_kernel_function self_test_kernel;

/* Known problems of attention, and the helpers that all known problems share. */

#define KNOWN_TENSORS 5

/* A problem being solved: its plan, and the plan's tensors and cache. */
struct solution {
    struct vka_device *device;
    struct vka_plan *plan;
    uint32_t head_dim;
    struct vka_tensor *tensors[KNOWN_TENSORS];
    size_t n_tensor; /* made so far; one more while one is being made */
    struct vka_cache *cache;
    double *want; /* [elements of the result] */
    double tolerance;
    bool *right; /* see known_problem_solve */
};

/* Element `index` of the operand with this seed. */
float known_value(uint32_t seed, uint32_t index);

/* Makes a dense tensor of known values; seed 0: NaN. */
enum vka_status known_tensor(struct solution *s, enum vka_dtype dtype, uint32_t rank,
                             const uint32_t *shape, uint32_t seed, struct vka_tensor **tensor);

/* Allocates s->want for a tensor, filled with 0. */
enum vka_status known_want(struct solution *s, const struct vka_tensor *tensor);

/* Runs the plan `times` times and compares the tensor, which may be NULL. Does nothing if kernels
 * are only chosen. */
enum vka_status known_run(struct solution *s, struct vka_tensor *tensor, uint32_t times);

/* Solves a problem of attention; solves the problem of softmax alone. */
enum vka_status known_attention_solve(struct solution *s, enum known_problem problem);
enum vka_status known_softmax_solve(struct solution *s);

/* Solves a problem of the operations around attention, from KNOWN_NORM on; of training, from
 * KNOWN_SUM_AXES on. */
enum vka_status known_model_solve(struct solution *s, enum known_problem problem);
enum vka_status known_train_solve(struct solution *s, enum known_problem problem);

/* Small problems with known results, one for each way in which plans use kernels. */

/* Default head_dim. With 64, CPU drivers compile for seconds to a minute. */
#define KNOWN_HEAD_DIM 8u

/* Solves a problem with the kernels that the rules choose, except those whose bit is set in
 * `without`; *right: the result is right. right NULL: only chooses the kernels. Statuses of
 * vka_plan_add_... and vka_plan_run. */
enum vka_status known_problem_solve(struct vka_device *device, enum known_problem problem,
                                    uint64_t without, uint32_t head_dim, bool *right);

#endif
