/* Passes: bindings, predicted time, and adding one to a plan. */
#ifndef VKA_PLAN_PASS_H
#define VKA_PLAN_PASS_H

#include "plan/state.h"

/* Bytes of a binding of the whole tensor. */
uint64_t plan_range(const struct vka_plan *plan, const struct vka_tensor *tensor);

/* Whether kernels for CPU drivers can read the tensor by address or as texels: false for an
 * application's buffer that lacks the usage. */
bool plan_is_ours(const struct vka_plan *plan, const struct vka_tensor *tensor);

/* Binds a tensor to a slot. Sets *offset, which may be NULL, to its first element within the
 * binding. A slot that the kernel does not read takes any tensor. */
void plan_bind(const struct vka_plan *plan, struct pass *pass, uint32_t slot,
               const struct vka_tensor *tensor, bool write, uint32_t *offset);

/* Sets the push constants, `size` bytes. */
void pass_set_push(struct pass *pass, const void *params, size_t size);

/* UNSUPPORTED where the plan has no room for n more passes. */
enum vka_status plan_check_room(const struct vka_plan *plan, size_t n);

/* Whether grid and bindings fit the device. */
bool plan_pass_has_room(const struct vka_plan *plan, const struct pass *pass);

/* Appends a copy of the pass, after checking grid and ranges against the device. */
enum vka_status plan_add_pass(struct vka_plan *plan, const struct pass *pass);

/* Nanoseconds that a dispatch is predicted to take. */
double plan_time(const struct vka_plan *plan, enum kernel kernel, const struct work *work);

/* Whether a dispatch fits the budget, and its loops the limit of the driver. */
bool plan_fits(const struct vka_plan *plan, enum kernel kernel, const struct work *work);

/* Logs and returns DEVICE_LOST: the plan reads weights that were lost. */
enum vka_status plan_weights_lost(struct log *log);

#endif
