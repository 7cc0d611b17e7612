/* A driver that gets kernels wrong: stands between a device and its Vulkan functions. For one device
 * at a time. */
#ifndef TESTS_MISCOMPILE_H
#define TESTS_MISCOMPILE_H

#include "gpu/device.h"

enum mistake {
    MISTAKE_SUMS = 0, /* code with other operations on floats than are written */
    MISTAKE_NO_WORK,  /* dispatches do nothing */
    MISTAKE_COUNT
};

/* From here on the device makes a mistake in these kernels, a bit each. Pipelines that are there
 * already keep their code. Again after vka_device_recover. */
void miscompile(struct vka_device *device, enum mistake mistake, uint64_t kernels);

/* Dispatches recorded since: all, and whether there were some of a kernel. */
size_t miscompile_dispatches(void);
bool miscompile_used(enum kernel kernel);

#endif
