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
    long only;           /* the one case to run; -1: all */
    long period;         /* one case in so many is run; 0: all */
    uint32_t each, turn; /* problems of a case of operations with a state; which of them it is */
    struct rng rng;
    long n_case, n_run, n_failed; /* cases counted, run, failed */
    bool of_mean;                 /* a row is judged by the mean of all, as some nearly vanish */
    struct worst worst;
    bool halved; /* of a sample a half is run, 0 or 1 */
    uint32_t half;
};

/* Begins a case: gives c->rng a seed of its own. False where the case is not to be run. */
bool check_case(struct check *c);

/* Gives c->rng a seed of the turn: what was drawn before is alike in all problems of a case. */
void check_turn(struct check *c);

/* Counts and prints a failure, with all that repeats it. */
void check_fail(struct check *c, const char *text, const char *why);

/* A case whose plan does not use the kernel: a failure, but for a kernel that takes only some. */
void check_not_used(struct check *c, const char *text);

/* Finishes the plan, sees that it uses the kernel, runs it and compares output with want[count].
 * Reports by itself; status is what making the plan gave. */
void check_plan(struct check *c, struct vka_plan *plan, enum vka_status status,
                struct operand *output, const double *want, double limit, const char *text);

/* Runs a plan of the same operation, made in another way, which `change` names: it has to give the bits
 * that check_plan left in output. Not finished; status is what making it gave. */
void check_bits(struct check *c, struct vka_plan *plan, enum vka_status status,
                struct operand *output, const char *change, const char *text);

/* Runs a plan of the same operation, made with lower limits: it has to be cut, and to give the bits
 * that check_plan left in output. Not finished; status is what making it gave. */
void check_cut(struct check *c, struct vka_plan *plan, enum vka_status status, size_t uncut_passes,
               struct operand *output, const char *text);

/* Prints the median of the kernel's own passes over some runs, and work / time. The plan has
 * timestamps and is not finished; status is what making it gave. */
void check_time(struct check *c, struct vka_plan *plan, enum vka_status status, double work,
                const char *rate, const char *text);

/* The kernels with matrix units: both inputs are of one 16-bit type. */
bool is_attention_coop(enum kernel kernel);

/* Checks and times the kernels of a family. */
#define CHECKED(prefix, noun)           \
    void check_##noun(struct check *c); \
    void bench_##noun(struct check *c);
#define ELSEWHERE(prefix, test)
#include "all_families.def"
#undef CHECKED
#undef ELSEWHERE

#endif
