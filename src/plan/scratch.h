/* Storage of a plan for intermediate results, and attached objects. */
#ifndef VKA_PLAN_SCRATCH_H
#define VKA_PLAN_SCRATCH_H

#include "plan/state.h"

/* Makes room for one more element of an array that doubles. */
enum vka_status plan_grow(struct log *log, void **array, size_t count, size_t *room, size_t size);

/* Takes a dense tensor in the plan's storage until the operation ends. The tensor holds no
 * reference. */
enum vka_status plan_scratch(struct vka_plan *plan, enum vka_dtype dtype, const uint32_t size[4],
                             struct vka_tensor *tensor);

/* Gives scratch back before the operation ends: passes added later may write over it. */
void plan_scratch_free(struct vka_plan *plan, const struct vka_tensor *tensor);

/* plan_scratch_leave gives back the scratch taken since plan_scratch_enter. They nest. */
void plan_scratch_enter(struct vka_plan *plan);
void plan_scratch_leave(struct vka_plan *plan);

/* Makes a tensor i32 [1][1][1][count] with these contents, whose offset a binding can begin at. The
 * tensor holds no reference. */
enum vka_status plan_constant(struct vka_plan *plan, uint32_t count, const void *words,
                              struct vka_tensor *tensor);

/* The grid of a type that HAS_GRID, once for all passes. */
enum vka_status plan_grid(struct vka_plan *plan, enum vka_dtype dtype, struct vka_tensor *tensor);

/* Gives the constants memory and writes them; waits for that. Afterwards there is room for no others. */
enum vka_status plan_upload_constants(struct vka_plan *plan);
bool plan_has_uploaded(const struct vka_plan *plan);

/* Makes u32 [bytes / 4] in host-visible memory, kept as long as the plan. */
enum vka_status plan_host_words(struct vka_plan *plan, uint64_t bytes, struct storage **words);

/* Takes ownership of `attached`; releases it on failure. */
enum vka_status plan_attach(struct vka_plan *plan, struct attached *attached);

/* Whether submits write their ticket to device->running. */
bool plan_notes_tickets(const struct vka_plan *plan);

#endif
