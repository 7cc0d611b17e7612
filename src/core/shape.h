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

/* A dense row-major shape. False where rank is not 1 to 4, an axis is 0, or the element count
 * passes 2^48. */
bool shape_dense(uint32_t rank, const uint32_t *size, struct shape *shape);

uint64_t shape_count(const struct shape *shape);

/* Elements from the first to one past the last that the strides reach. UINT64_MAX on overflow. */
uint64_t shape_extent(const struct shape *shape);

/* Whether the elements lie one after the other in row-major order. */
bool shape_is_dense(const struct shape *shape);

/* The same elements in row-major order under another size. False where strides do not allow it. */
bool shape_reshape(const struct shape *from, uint32_t rank, const uint32_t *size,
                   struct shape *shape);

/* Rank 4 with leading axes of 1 (stride 0). */
struct shape shape_rank4(const struct shape *shape);

/* "[2, 3, 4]" into text; returns text. */
#define SHAPE_TEXT 64
const char *shape_text(const struct shape *shape, char text[SHAPE_TEXT]);

#endif
