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
    /* What outlives the loss of the device, see storage_keep. */
    struct storage *next_kept;
    void *kept;  /* [bytes in whole words] */
    bool listed; /* among device->kept */
    bool stale;  /* contents lost for good */
};

enum vka_status storage_create(struct vka_device *device, enum memory_kind kind, uint64_t bytes,
                               struct storage **storage);
/* One with no range yet: it is freed with the storage once it is there. */
enum vka_status storage_create_empty(struct vka_device *device, struct storage **storage);
struct storage *storage_ref(struct storage *storage);
void storage_unref(struct storage **storage); /* accepts NULL */

/* These contents, of all bytes, come back with storage_restore; NULL: they cannot, and what would
 * read them then is refused. */
enum vka_status storage_keep(struct storage *storage, const void *contents);
enum vka_status storage_restore(struct vka_device *device);

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
