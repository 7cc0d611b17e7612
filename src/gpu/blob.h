/* What an application keeps from one device to the next: the driver's pipeline cache, and behind it
 * which kernels the self-test found right and wrong. */
#ifndef VKA_GPU_BLOB_H
#define VKA_GPU_BLOB_H

#include <stddef.h>

struct vka_device;

#define BLOB_TAIL 40 /* bytes behind the driver's */

/* Takes over the results of a blob that is of this device, driver and build; gives the bytes of the
 * driver's part: 0 where that is of another one, or any byte of the blob is not what was
 * written. */
size_t blob_read(struct vka_device *device, const void *blob, size_t size);

/* Writes BLOB_TAIL bytes behind the driver's part of this size. */
void blob_write_tail(const struct vka_device *device, void *blob, size_t size);

#endif
