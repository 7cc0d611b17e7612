/* A plan, and the mark of an operation that is being added to it. What operations need. */
#ifndef VKA_PLAN_PLAN_H
#define VKA_PLAN_PLAN_H

#include "plan/pass.h"
#include "plan/scratch.h"

/* Reads the device's caps again: kernels may have been tested since. */
void plan_read_caps(struct vka_plan *plan);

/* Checks that an op of an operation is given and says a size that is this version's. */
enum vka_status plan_check_op(const struct vka_plan *plan, const char *caller, const void *op,
                              size_t size);

/* Adds an operation whose op has that size, after plan_check_op: all of it, or nothing. */
typedef enum vka_status plan_adder(struct vka_plan *plan, const void *op);
enum vka_status plan_add(struct vka_plan *plan, const char *caller, const void *op, size_t size,
                         plan_adder *add);

/* plan_begin and plan_end enclose an operation, where plan_add does not; plan_end makes its pipelines, and removes all that a
 * failed one added. Where the driver refuses a pipeline it removes all too, takes the kernel away and
 * leaves the mark open: the operation is added again, and chooses another kernel, at most once a
 * kernel.
 *     ENSURE(plan_begin(plan, __func__, &mark));
 *     while (mark.open)
 *         plan_end(plan, &mark, add(plan, op));
 *     return mark.status; */
struct plan_mark {
    size_t n_pass, n_scratch, n_attached;
    uint64_t constants;
    double predicted;
    struct kernel_set refused; /* kernels taken away before */
    uint64_t serial;           /* of the device's last refusal then */
    bool open;
    enum vka_status status;
};
enum vka_status plan_begin(struct vka_plan *plan, const char *caller, struct plan_mark *mark);

/* UNSUPPORTED where the mark stays open. */
enum vka_status plan_end(struct vka_plan *plan, struct plan_mark *mark, enum vka_status status);

/* DEVICE_LOST if the device is lost, or weights that the plan reads. */
enum vka_status plan_check_alive(const struct vka_plan *plan);

/* vka_plan_submit; info, checked by the caller, may be NULL. */
enum vka_status plan_submit(struct vka_plan *plan, const char *caller,
                            const struct vka_submit_info *info, uint64_t *ticket);

#endif
