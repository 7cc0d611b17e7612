/* How close a result has to be, and how the GPU tests run a plan to find out. */
#ifndef TESTS_COMPARE_H
#define TESTS_COMPARE_H

#include "operand.h"

#define WHY 512         /* bytes of a sentence on what went wrong */
#define COMPARE_MOST 16 /* outputs of a plan */

/* The worst NMSE seen per element type, and where. */
struct worst {
    double nmse[3];
    char where[3][160];
};

/* The NMSE allowed in a result of the type, given exact sums over the rounded inputs. */
double compare_limit(enum vka_dtype dtype);

/* The NMSE allowed in products over k terms by the kernels of the plan, finished or not. Where a GPU's
 * matrix units add, float32 may be off by more: each step of 16 terms may truncate, which loses up to
 * 2^-23 of the sum so far, in the mean half of the result. So k / 16 steps lose up to k / 16 * 2^-24 of
 * it, k at most a chain. */
double compare_product_limit(const struct vka_plan *plan, enum vka_dtype dtype, uint32_t k);

/* The worst NMSE over rows, where rows of few finite elements are taken several at a time: one
 * number that happens to cancel out has no relative error to speak of. A row that should be 0 must
 * be 0, and non-finite values must match; the result is infinite where not. *row is where it is
 * worst. */
double compare_rows(const double *got, const double *want, size_t rows, size_t width, size_t *row);

#define SECOND_SOIL 0x76 /* 1.2e33 in float32, 2.7e4 in float16, 1.2e33 in bfloat16 */

/* Runs the plan twice on fresh noise in the outputs and reads them. False, and the reason in why,
 * where a call fails, a canary is touched or the two runs differ in a bit. Each byte of the plan's
 * scratch memory but for its constants is 0xff before the first run, which is NaN in all types, and
 * SECOND_SOIL before the second. */
bool compare_runs(struct vka_device *device, struct vka_plan *plan, struct operand *const *outputs,
                  size_t n, struct rng *rng, char why[WHY]);

/* Compares one run of each of two plans in this way. */
bool compare_plans(struct vka_device *device, struct vka_plan *plan, struct vka_plan *other,
                   struct operand *const *outputs, size_t n, struct rng *rng, char why[WHY]);

/* Compares o->values with want[count], rows being o's last axis. False with a reason where the NMSE
 * is above limit. name and where go into the reason and into *worst, which may be NULL. */
bool compare_values(const struct operand *o, const double *want, double limit, const char *name,
                    const char *where, struct worst *worst, char why[WHY]);

/* The worst NMSE over rows of o's last axis, against the row's own norm or, where most of its terms
 * cancel out, that of a row of the tensor on average or a tenth of `terms`, the size of an element's
 * terms. A tensor that should be 0 has to be 0. Non-finite values must match; the result is infinite
 * where not. *row is where it is worst. */
double compare_terms(const struct operand *o, const double *want, double terms, size_t *row);

/* Compares o->values, log-sum-exps of scores near 0, with want[count]: the error of each may be as
 * large as that of a few float32 operations, and what is not finite must match. scores: the type to
 * which what enters the scores may be rounded. */
bool compare_log_sums(const struct operand *o, const double *want, enum vka_dtype scores,
                      char why[WHY]);

#endif
