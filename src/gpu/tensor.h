/* struct vka_tensor: a shape over storage that views and plans share. */
#ifndef VKA_GPU_TENSOR_H
#define VKA_GPU_TENSOR_H

#include "core/shape.h"
#include "gpu/memory.h"

/* A range of device memory, freed when its last reference goes. */
struct storage {
    struct vka_device *device;
    struct memory_range range;
    uint64_t bytes; /* asked for; range may be larger */
    size_t references;
};

enum vka_status storage_create(struct vka_device *device, enum memory_kind kind, uint64_t bytes,
                               struct storage **storage);
struct storage *storage_ref(struct storage *storage);
void storage_unref(struct storage **storage); /* accepts NULL */

struct vka_tensor {
    struct storage *storage;
    enum vka_dtype dtype;
    struct shape shape;
};

#endif
