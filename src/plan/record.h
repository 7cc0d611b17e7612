/* Records passes to command buffers: pipelines, descriptors, barriers, dispatches, timestamps. */
#ifndef VKA_PLAN_RECORD_H
#define VKA_PLAN_RECORD_H

#include "plan/state.h"

/* Makes the pipelines of passes `first` and later; those that the driver refuses are in
 * plan->refused. */
enum vka_status plan_make_pipelines(struct vka_plan *plan, size_t first);

/* Makes pipelines and descriptors and records the command buffer. */
enum vka_status plan_record(struct vka_plan *plan);

/* Records a dispatch of a pass of a recorded plan, of these workgroups. */
void pass_record(const struct vka_device *device, VkCommandBuffer commands, const struct pass *pass,
                 const uint32_t groups[3]);

/* Records all passes of a finished plan and their barriers. */
void plan_record_into(struct vka_plan *plan, VkCommandBuffer commands);

/* Reads the timestamps of the finished run into gpu_ms: -1 where the driver does not have them yet. */
enum vka_status plan_read_timestamps(struct vka_plan *plan);

#endif
