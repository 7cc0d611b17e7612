/* The blob that an application keeps from one run to the next: the driver's pipeline cache, then
 * which kernels passed and failed the self-test. */
#ifndef VKA_GPU_BLOB_H
#define VKA_GPU_BLOB_H

#include "gpu/state.h"

/* Bytes after the driver's bytes: two sets of kernels, and three words. */
#define BLOB_TAIL (3 * sizeof(uint64_t) + 2 * sizeof(struct kernel_set))

/* Takes over the self-test results of a blob of this device, driver and build. Returns the bytes of
 * the driver's bytes; 0 if that is of another device or driver, or any byte of the blob is
 * damaged. */
size_t blob_read(struct vka_device *device, const void *blob, size_t size);

/* Writes BLOB_TAIL bytes after the driver's bytes, which has this size. */
void blob_write_tail(const struct vka_device *device, void *blob, size_t size);

#endif
