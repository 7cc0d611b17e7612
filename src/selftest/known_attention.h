/* The part of known_problem.c that is about attention, and what both share. */
#ifndef VKA_SELFTEST_KNOWN_ATTENTION_H
#define VKA_SELFTEST_KNOWN_ATTENTION_H

#include "selftest/known_problem.h"

#define KNOWN_TENSORS 5

/* A problem being solved: its plan and what that uses. */
struct solution {
    struct vka_device *device;
    struct vka_plan *plan;
    uint32_t head_dim;
    struct vka_tensor *tensors[KNOWN_TENSORS];
    size_t n_tensor; /* made so far, one more than that while one is made */
    struct vka_cache *cache;
    double *want; /* as many as the result has elements */
    double tolerance;
    bool *right; /* as of known_problem_solve */
};

/* Element `index` of the operand with a seed. */
float known_value(uint32_t seed, uint32_t index);

/* A dense tensor of these; seed 0: NaN. */
enum vka_status known_tensor(struct solution *s, enum vka_dtype dtype, uint32_t rank,
                             const uint32_t *shape, uint32_t seed, struct vka_tensor **tensor);

/* Makes s->want for a tensor. */
enum vka_status known_want(struct solution *s, const struct vka_tensor *tensor);

/* Runs the plan so many times and compares the tensor, which may be NULL; nothing where the kernels
 * are only chosen. */
enum vka_status known_run(struct solution *s, struct vka_tensor *tensor, uint32_t times);

/* Those about attention, and the softmax alone. */
enum vka_status known_attention_solve(struct solution *s, enum known_problem problem);
enum vka_status known_softmax_solve(struct solution *s);

#endif
