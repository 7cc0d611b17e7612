/* What operations on strided tensors of rank 4 share: axes merged, broadcast and cut. */
#ifndef VKA_OP_AXES_H
#define VKA_OP_AXES_H

#include <vkattn/vkattn_model.h>

#include "params/params.h"
#include "params/model.h"
#include "plan/cut.h"

/* Merges the axes first .. end - 1 of shapes of rank 4 and equal sizes into the last ones of them,
 * where the strides of all allow it. The axes that remain before those have size 1. */
void axes_merge(struct shape *const *shapes, size_t n, uint32_t first, uint32_t end);

/* Gives a tensor of rank 4 the larger sizes where its axes are 1. False where it has others. */
bool axes_broadcast(struct vka_tensor *tensor, const uint32_t size[4]);

/* Whether both name the same elements at the same indices. */
bool axes_same(const struct vka_tensor *a, const struct vka_tensor *b);

/* check_no_overlap, but for tensors that `written` may lie in place of: those are replaced by NULL
 * where it does. */
enum vka_status axes_check_in_place(struct vka_device *device, const char *caller, const char *name,
                                    const struct vka_tensor *written,
                                    const struct vka_tensor **others, size_t n, size_t n_in_place);

/* Checks that a tensor, which may be NULL, is of a float type and has the sizes of another. */
enum vka_status axes_check_like(struct vka_device *device, const char *caller, const char *name,
                                const struct vka_tensor *tensor, const struct vka_tensor *like);

/* At rank 4 with a last axis of 1, whose stride is 0; of a tensor of rank 1 to 3. */
struct vka_tensor axes_append_one(const struct vka_tensor *tensor);

/* Lanes of a workgroup that takes a row of n elements, a power of two: by device and length alone, as
 * the order of sums depends on them. */
uint32_t axes_choose_lanes(const struct caps *caps, uint64_t n);

/* First member of the job of a cut: the tensors that are as large as the slice. */
#define AXES_TENSORS 4
struct axes_job {
    const struct vka_tensor *tensors[AXES_TENSORS]; /* of rank 4; NULL: none */
};

/* Judges a slice, whose elements a pass counts in 32 bits: the budget halves the first axis that is
 * long enough, the range of a binding the axis along which the tensors that exceed it reach
 * furthest, the grid the longest one. */
int axes_judge(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice);

/* Sets the grid of a kernel that counts items, see ITEM_LANES. */
void axes_set_grid(struct pass *pass, double items);

/* Strides, without the offset, which plan_bind gives. */
struct strided_params axes_strides(const struct shape *shape);

/* Whether pairs of neighbours of a tensor of a 16-bit type, whose last axis is even, are whole
 * words: offset is that in the binding. */
bool axes_are_pairs(const struct vka_tensor *tensor, uint32_t offset);

/* A workgroup a row. */
void axes_set_row_grid(struct pass *pass, uint64_t rows);

#endif
