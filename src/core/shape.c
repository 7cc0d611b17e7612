#include "core/shape.h"
#include "core/arith.h"

#include <stdio.h>
#include <string.h>

#define MAX_COUNT (1ull << 48)

bool shape_dense(uint32_t rank, const uint32_t *size, struct shape *shape)
{
    if (rank < 1 || rank > VKA_MAX_RANK)
        return false;
    memset(shape, 0, sizeof *shape);
    shape->rank = rank;
    uint64_t count = 1;
    for (uint32_t i = rank; i-- > 0;) {
        if (size[i] == 0 || size[i] > MAX_COUNT / count)
            return false;
        shape->size[i] = size[i];
        shape->stride[i] = count;
        count *= size[i];
    }
    return true;
}

uint64_t shape_count(const struct shape *shape)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < shape->rank; i++)
        count *= shape->size[i];
    return count;
}

uint64_t shape_extent(const struct shape *shape)
{
    uint64_t extent = 1;
    for (uint32_t i = 0; i < shape->rank; i++) {
        uint64_t steps = shape->size[i] - 1u;
        if (steps && shape->stride[i] > (UINT64_MAX - extent) / steps)
            return UINT64_MAX;
        extent += steps * shape->stride[i];
    }
    return extent;
}

struct shape shape_blocks(const struct shape *shape, uint32_t values)
{
    struct shape blocks = *shape;
    if (values == 1)
        return blocks;
    const uint32_t last = shape->rank - 1;
    blocks.size[last] = divide_up(blocks.size[last], values);
    blocks.stride[last] = 1;
    for (uint32_t i = 0; i < last; i++)
        blocks.stride[i] /= values;
    blocks.offset /= values;
    return blocks;
}

bool shape_is_dense(const struct shape *shape)
{
    uint64_t count = 1;
    for (uint32_t i = shape->rank; i-- > 0;) {
        if (shape->size[i] != 1 && shape->stride[i] != count)
            return false;
        count *= shape->size[i];
    }
    return true;
}

/* Walks both shapes from the right: neighbouring old axes that can be merged
 * are divided into new ones. */
bool shape_reshape(const struct shape *from, uint32_t rank, const uint32_t *size,
                   struct shape *shape)
{
    struct shape dense;
    if (!shape_dense(rank, size, &dense) || shape_count(&dense) != shape_count(from))
        return false;
    dense.offset = from->offset;
    uint32_t i = from->rank, j = rank;
    while (j > 0) {
        while (i > 0 && from->size[i - 1] == 1)
            i--;
        if (i == 0) { /* only axes of 1 are left */
            for (; j > 0; j--)
                dense.stride[j - 1] = 1;
            break;
        }
        uint64_t stride = from->stride[i - 1], merged = from->size[--i]; /* of old axes */
        while (i > 0 && (from->size[i - 1] == 1 || from->stride[i - 1] == stride * merged)) {
            merged *= from->size[--i];
        }
        uint64_t done = 1;
        while (j > 0 && done * size[j - 1] <= merged) {
            dense.stride[j - 1] = stride * done;
            done *= size[--j];
        }
        if (done != merged)
            return false;
    }
    *shape = dense;
    return true;
}

struct shape shape_rank4(const struct shape *shape)
{
    struct shape full = {.rank = VKA_MAX_RANK, .size = {1, 1, 1, 1}, .offset = shape->offset};
    for (uint32_t i = VKA_MAX_RANK - shape->rank, j = 0; i < VKA_MAX_RANK; i++, j++) {
        full.size[i] = shape->size[j];
        full.stride[i] = shape->stride[j];
    }
    return full;
}

const char *shape_text(const struct shape *shape, char text[SHAPE_TEXT])
{
    int length = 0;
    for (uint32_t i = 0; i < shape->rank; i++)
        length += snprintf(text + length, SHAPE_TEXT - (size_t)length, "%s%u", i ? ", " : "[",
                           shape->size[i]);
    snprintf(text + length, SHAPE_TEXT - (size_t)length, "]");
    return text;
}
