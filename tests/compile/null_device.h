/* A device for compiling alone: pipelines can be made and plans built on it, nothing can run. */
#ifndef TESTS_NULL_DEVICE_H
#define TESTS_NULL_DEVICE_H

#include <gpu/device.h>

/* The device that the loader finds; tensors and scratch lie in host memory. NO_DEVICE where there is
 * none. With `statistics` it has VK_KHR_pipeline_executable_properties, or is UNSUPPORTED. */
enum vka_status null_device_open(bool statistics, struct vka_device **device);
void null_device_close(struct vka_device **device);

#endif
