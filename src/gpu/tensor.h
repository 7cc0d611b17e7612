/* struct vka_tensor: a shape over storage that views and plans share. */
#ifndef VKA_GPU_TENSOR_H
#define VKA_GPU_TENSOR_H

#include "core/arith.h"
#include "core/shape.h"
#include "gpu/storage.h"

struct vka_tensor {
    struct storage *storage;
    enum vka_dtype dtype;
    struct shape shape;
};

/* A dense tensor without storage, after checking the arguments; out is checked too. */
enum vka_status tensor_create_empty(struct vka_device *device, const char *caller,
                                    enum vka_dtype dtype, uint32_t rank, const uint32_t *shape,
                                    struct vka_tensor **out);

/* Elements first .. first + count - 1 of an axis, as a tensor that holds no reference. */
struct vka_tensor tensor_slice_along(const struct vka_tensor *tensor, uint32_t axis, uint32_t first,
                                     uint32_t count);

/* The last two axes exchanged, of a tensor of rank 2 or more, holding no reference. */
struct vka_tensor tensor_transposed(const struct vka_tensor *tensor);

/* A view of the tensor with rank 4, by leading axes of 1. */
struct vka_tensor tensor_rank4(const struct vka_tensor *tensor);

/* [batch][n][width] as [batch][1][n][width]. */
struct vka_tensor tensor_one_head(const struct vka_tensor *tensor);

/* The shape in blocks, which are single elements but in block types, and the bytes of a block. */
struct shape tensor_blocks(const struct vka_tensor *tensor, uint32_t *bytes);

/* The byte range of a tensor in its buffer, comparable between all tensors of the buffer. */
struct extent {
    VkBuffer buffer;
    uint64_t first, end;
};
struct extent tensor_extent(const struct vka_tensor *tensor);

#endif
