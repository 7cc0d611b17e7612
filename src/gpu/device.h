/* A device: made, lost, recovered and destroyed. */
#ifndef VKA_GPU_DEVICE_H
#define VKA_GPU_DEVICE_H

#include "gpu/command.h"
#include "gpu/memory.h"
#include "gpu/pipeline.h"
#include "gpu/refusal.h"
#include "gpu/state.h"

/* UNSUPPORTED, with the name of a device that binds fewer storage buffers than LEAST_BINDINGS. */
enum vka_status device_few_bindings(struct log *log, const struct caps *caps);

/* Checks an info struct, for created and adopted devices alike, and applies its limits. */
enum vka_status device_check_info(struct log *log, const char *caller,
                                  const struct vka_device_info *info);
void device_lower_limits(struct vka_device *device, const struct vka_device_info *info);

/* Loads the functions for labels, if info asks for them. */
void device_load_labels(struct vka_device *device);

/* Does what vka_device_create does, with the function for self-tests. */
enum vka_status device_create(const struct vka_device_info *info, test_kernel_function *test,
                              struct vka_device **out);
/* Completes a device that has a logical device and its queue. */
enum vka_status device_start(struct vka_device *device, const struct vka_device_info *info);

#endif
