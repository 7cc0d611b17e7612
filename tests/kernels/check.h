/* check_kernels: what main and the families of kernels share. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <gpu/device.h>
#include <plan/plan.h>

#include "problems/problem.h"
#include "problems/types.h"

#define CASE_TEXT PROBLEM_TEXT

/* One row of kernels.def under test. */
struct check {
    struct vka_device *device;
    enum kernel kernel;
    uint64_t seed;
    long only;   /* the one case to run; -1: all */
    long period; /* one case in so many is run; 0: all */
    struct rng rng;
    long n_case, n_run, n_failed; /* cases counted, run, failed */
    bool of_mean;                 /* a row is judged by the mean of all, as some nearly vanish */
    struct worst worst;
};

/* Begins a case: gives c->rng a seed of its own. False where the case is not to be run. */
bool check_case(struct check *c);

/* Counts and prints a failure, with all that repeats it. */
void check_fail(struct check *c, const char *text, const char *why);

/* A case whose plan does not use the kernel: a failure, but for a kernel that takes only some. */
void check_not_used(struct check *c, const char *text);

/* Finishes the plan, sees that it uses the kernel, runs it and compares output with want[count].
 * Reports by itself; status is what making the plan gave. */
void check_plan(struct check *c, struct vka_plan *plan, enum vka_status status,
                struct operand *output, const double *want, double limit, const char *text);

/* Runs a plan of the same operation, made with lower limits: it has to be cut, and to give the bits
 * that check_plan left in output. Not finished; status is what making it gave. */
void check_cut(struct check *c, struct vka_plan *plan, enum vka_status status, size_t uncut_passes,
               struct operand *output, const char *text);

/* Prints the median of the kernel's own passes over some runs, and work / time. The plan has
 * timestamps and is not finished; status is what making it gave. */
void check_time(struct check *c, struct vka_plan *plan, enum vka_status status, double work,
                const char *unit, const char *text);

/* The kernels with matrix units: both inputs are of one 16-bit type. */
bool is_attention_coop(enum kernel kernel);

/* A family of kernels is the rows whose names begin alike. */
void check_matmul(struct check *c);
void bench_matmul(struct check *c);
void check_block(struct check *c);
void bench_block(struct check *c);
void check_attention(struct check *c);
void bench_attention(struct check *c);
void check_backward(struct check *c);
void check_backward_fused(struct check *c);
void bench_backward(struct check *c);
void bench_backward_fused(struct check *c);
void check_copy(struct check *c);
void bench_copy(struct check *c);
void check_rope(struct check *c);
void bench_rope(struct check *c);
void check_append(struct check *c);
void bench_append(struct check *c);
void check_map(struct check *c);
void bench_map(struct check *c);
void check_gather(struct check *c);
void bench_gather(struct check *c);
void check_rotary(struct check *c);
void bench_rotary(struct check *c);
void check_scatter(struct check *c);
void bench_scatter(struct check *c);
void check_argmax(struct check *c);
void bench_argmax(struct check *c);
void check_pool(struct check *c);
void bench_pool(struct check *c);
void check_conv(struct check *c);
void bench_conv(struct check *c);
void check_linear(struct check *c);
void bench_linear(struct check *c);
void check_merge(struct check *c);
void bench_merge(struct check *c);
void check_draws(struct check *c);
void bench_sample(struct check *c);
void check_norm(struct check *c);
void check_slopes(struct check *c);
void bench_slopes(struct check *c);
void check_sums(struct check *c);
void bench_sums(struct check *c);
void check_entropy(struct check *c);
void bench_entropy(struct check *c);
void check_optimiser(struct check *c);
void bench_optimiser(struct check *c);
void check_norm_slopes(struct check *c);
void bench_norm_slopes(struct check *c);
void check_gather_sums(struct check *c);
void bench_gather_sums(struct check *c);
void bench_norm(struct check *c);

#endif
