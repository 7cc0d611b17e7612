/* A range of device memory that views and plans share. */
#ifndef VKA_GPU_STORAGE_H
#define VKA_GPU_STORAGE_H

#include "gpu/state.h"

enum vka_status storage_create(struct vka_device *device, enum memory_kind kind, uint64_t bytes,
                               struct storage **storage);
/* A storage without a range. A range that is set later is freed with the storage. */
enum vka_status storage_create_empty(struct vka_device *device, struct storage **storage);
struct storage *storage_ref(struct storage *storage);
void storage_unref(struct storage **storage); /* accepts NULL */

/* Keeps a copy of these contents, of all bytes, which vka_device_recover restores. NULL: they
 * cannot be restored, and after a loss everything that reads them is refused. */
enum vka_status storage_keep(struct storage *storage, const void *contents);

/* Writes what was kept; waits for the queue where the host cannot see the memory. Nothing on the
 * device may use it meanwhile. */
enum vka_status storage_restore(struct storage *storage);

#endif
