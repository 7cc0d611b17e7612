/* Shapes and strides: plain arithmetic, no device. */
#ifndef VKA_CORE_SHAPE_H
#define VKA_CORE_SHAPE_H

#include <vkattn/vkattn.h>

/* Up to four axes over elements; offset and strides count elements. */
struct shape {
    uint32_t rank;
    uint32_t size[VKA_MAX_RANK];
    uint64_t stride[VKA_MAX_RANK];
    uint64_t offset; /* of the first element in the storage */
};

/* A dense row-major shape. False if rank is not 1 to 4, an axis is 0, or there are more than 2^48
 * elements. */
bool shape_dense(uint32_t rank, const uint32_t *size, struct shape *shape);

uint64_t shape_count(const struct shape *shape);

/* The number of elements from the first to the last that the strides reach; UINT64_MAX on
 * overflow. */
uint64_t shape_extent(const struct shape *shape);

/* Whether the elements lie one after the other in row-major order. */
bool shape_is_dense(const struct shape *shape);

/* Gives elements in row-major order another size. False if no strides describe that. */
bool shape_reshape(const struct shape *from, uint32_t rank, const uint32_t *size,
                   struct shape *shape);

/* The shape with rank 4: leading axes of size 1 and stride 0 are added. */
struct shape shape_rank4(const struct shape *shape);

/* Describes memory in blocks of `values` along the last axis, the last of which may be incomplete;
 * strides and offset count blocks. */
struct shape shape_blocks(const struct shape *shape, uint32_t values);

/* Writes "[2, 3, 4]" to text and returns text. */
#define SHAPE_TEXT 64
const char *shape_text(const struct shape *shape, char text[SHAPE_TEXT]);

#endif
