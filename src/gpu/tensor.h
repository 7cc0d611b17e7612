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
/* One with no range yet: it is freed with the storage once it is there. */
enum vka_status storage_create_empty(struct vka_device *device, struct storage **storage);
struct storage *storage_ref(struct storage *storage);
void storage_unref(struct storage **storage); /* accepts NULL */

struct vka_tensor {
    struct storage *storage;
    enum vka_dtype dtype;
    struct shape shape;
};

/* A dense tensor without storage, after checking the arguments; out is checked too. */
enum vka_status tensor_create_empty(struct vka_device *device, const char *caller,
                                    enum vka_dtype dtype, uint32_t rank, const uint32_t *shape,
                                    struct vka_tensor **out);

/* Where an element range lies in its buffer, in bytes: the same for all tensors over one buffer. */
struct extent {
    VkBuffer buffer;
    uint64_t first, end;
};
struct extent tensor_extent(const struct vka_tensor *tensor);

#endif
