/* What is asked of a finished plan without running it. */
#ifndef TESTS_STUB_JUDGE_H
#define TESTS_STUB_JUDGE_H

#include <vkattn/vkattn.h>

#include <stdbool.h>
#include <stddef.h>

/* False, with a reason in why[size], where
 * - a pass binds bytes outside the storage of a tensor (the driver sees those of the buffer alone,
 *   which tensors share), between alignments or beyond the device's limits, or has workgroups
 *   beyond them;
 * - a byte of a dense output, or one of the elements of another that are looked at, is in reach of
 *   no pass that writes. */
bool judge_plan(struct vka_plan *plan, struct vka_tensor *const *outputs, size_t n, char *why,
                size_t size);

/* Notes the barriers and dispatches that the device's plans record from here on; forgets those
 * before. One device at a time, and one plan after the other. */
void judge_watch(struct vka_device *device);

/* False, with a reason, where the plan that was recorded last has two passes, one of which writes
 * what the other binds, and no barrier between them. */
bool judge_barriers(const struct vka_plan *plan, char *why, size_t size);

/* False, with a reason, where a byte of a dense input, or one of the elements of another that are
 * looked at, is in reach of no pass. */
bool judge_input(const struct vka_plan *plan, const struct vka_tensor *input, char *why,
                 size_t size);

/* False, with a reason, where a plan that is cut does less work than the same that is not: a row
 * or a step of k that is left out. exact: what hides keys is no matter of whole tiles, by which
 * work is estimated; else half of the work is enough. Or where either does less than `least`
 * operations, which the problem is known to take. */
bool judge_cut(struct vka_plan *whole, struct vka_plan *cut, bool exact, double least, char *why,
               size_t size);

#endif
