/* A driver that gets kernels wrong: stands between a device and its Vulkan functions. For one
 * device at a time. */
#ifndef TESTS_MISCOMPILE_H
#define TESTS_MISCOMPILE_H

#include "gpu/device.h"

enum mistake {
    MISTAKE_SUMS = 0, /* code with other operations on floats than are written */
    MISTAKE_NO_WORK,  /* dispatches do nothing */
    MISTAKE_FIRST,    /* of a dispatch, the first workgroup alone works */
    MISTAKE_LOSS,     /* the submit after a dispatch was recorded loses the device */
    MISTAKE_COUNT
};

/* From here on the device makes a mistake in these kernels. Pipelines that are there
 * already keep their code. Again after vka_device_recover. */
void miscompile(struct vka_device *device, enum mistake mistake, struct kernel_set kernels);

/* Dispatches recorded since: all, and whether there were some of a kernel, and of several
 * workgroups. */
size_t miscompile_dispatches(void);
bool miscompile_used(enum kernel kernel);
bool miscompile_used_many(enum kernel kernel);

/* Forgets the device's modules and pipelines, which are gone: the driver may give their handles to
 * others. */
void miscompile_forget(void);

#endif
