/* The one cutter: halves an operation until each slice fits the device and the budget of a submit.
 * An operation says how a slice of it is judged and added. */
#ifndef VKA_PLAN_CUT_H
#define VKA_PLAN_CUT_H

#include "plan/calibrate.h"

#define CUT_AXES 4
#define CUT_NEVER UINT32_MAX /* as a least length: the axis is not cut */
#define CUT_FITS (-1)        /* instead of an axis */

/* Elements first .. first + size - 1 of each axis of a problem. */
struct slice {
    uint32_t first[CUT_AXES], size[CUT_AXES];
};

/* Fills in the pass over a slice, which is all zero. */
typedef void cut_make(const struct vka_plan *plan, const void *job, const struct slice *slice,
                      struct pass *pass);

struct cut {
    const void *job; /* given to the functions */
    /* Lengths of each axis. Slices begin at multiples of `multiple`, to which the budget cuts; the
     * limits of the device cut down to `least`. */
    uint32_t multiple[CUT_AXES], least[CUT_AXES];
    /* Measures the kernel's rate where the whole would not fit by a cautious one. NULL: no rate is
     * asked for. */
    calibrate_add *probe;
    enum kernel kernel;
    struct work whole;
    cut_make *make;
    /* Returns the axis to halve, or CUT_FITS: the slice is added, and plan_add_pass reports a limit
     * that it exceeds. NULL: halves the first axis that is long enough until the pass fits. */
    int (*judge)(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice);
    /* Adds a slice that is more than its pass; NULL: adds the pass. */
    enum vka_status (*add)(struct vka_plan *plan, const void *job, const struct slice *slice);
};

/* Measures the rate, then adds all slices of a problem of this size, in order. */
enum vka_status plan_cut(struct vka_plan *plan, const struct cut *cut,
                         const uint32_t size[CUT_AXES]);

/* The first axis of a slice that is longer than `shortest`; CUT_FITS where none is. */
int cut_first_axis(const struct slice *slice, const uint32_t shortest[CUT_AXES]);

/* A view of a slice of a tensor of rank 4; holds no reference. */
struct vka_tensor tensor_slice(const struct vka_tensor *tensor, const struct slice *slice);

#endif
