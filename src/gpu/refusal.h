/* What the driver's compiler refused: pipelines, and kernels whose self-test needs them. Kept
 * when a device is recovered: it is the same driver. */
#ifndef VKA_GPU_REFUSAL_H
#define VKA_GPU_REFUSAL_H

#include "gpu/state.h"

/* Whether a result of the driver's compiler is a refusal, which another kernel may make good: all
 * errors but the loss of the device. */
bool refusal_is(VkResult result);

/* Notes that the call gave this result for the key, and tells the log. */
enum vka_status refusal_add(struct vka_device *device, const struct pipeline_key *key,
                            VkResult result, const char *call);

/* Notes a refusal for another reason than the driver's: `reason` is the end of a sentence that begins
 * with "the kernel", and lives as long as the program. */
enum vka_status refusal_add_why(struct vka_device *device, const struct pipeline_key *key,
                                VkResult result, const char *reason);

/* Takes a kernel out of use whose pipelines of the self-test were refused. */
enum vka_status refusal_add_kernel(struct vka_device *device, enum kernel kernel);

bool refusal_find(const struct vka_device *device, const struct pipeline_key *key);

/* Forgets refusals later than `serial`, if not all then those for want of memory: there may be
 * more of it later. Returns the status of the first of these, which it logs; VKA_OK: there was
 * none. */
enum vka_status refusals_forget(struct vka_device *device, uint64_t serial, bool all);

void refusals_finish(struct refusals *refusals);

#endif
