#include "gpu/memory.h"
#include "gpu/memory_block.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT MEMORY_ALIGNMENT
#define BLOCK_SIZE (64ull << 20)
#define BLOCKS_OF_A_SIZE \
    512 /* then twice that size: drivers need not take more than 4,096 allocations */
#define STAGING_LEAST (1ull << 20) /* for small copies and the receipts */

/* Takes the smallest hole that fits. */
static bool block_take(struct memory_block *block, uint64_t size, struct memory_range *range)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < block->n_hole; i++)
        if (block->holes[i].size >= size &&
            (best == SIZE_MAX || block->holes[i].size < block->holes[best].size))
            best = i;
    if (best == SIZE_MAX)
        return false;
    struct memory_hole *hole = &block->holes[best];
    *range = (struct memory_range){block, hole->offset, size};
    hole->offset += size;
    hole->size -= size;
    if (hole->size == 0) {
        memmove(hole, hole + 1, (block->n_hole - best - 1) * sizeof *hole);
        block->n_hole--;
    }
    block->n_taken++;
    return true;
}

/* Makes room for one more hole. Freeing a range makes at most one hole and must not fail, so the
 * room is made before a range is taken. */
static enum vka_status reserve_holes(struct log *log, struct memory_block *block)
{
    if (block->n_hole + block->n_taken + 1 > block->hole_room) {
        struct memory_hole *holes =
            realloc(block->holes, 2 * block->hole_room * sizeof *block->holes);
        ENSURE_ALLOC(holes);
        block->holes = holes;
        block->hole_room *= 2;
    }
    return VKA_OK;
}

/* Reduces *block_size to what may still be allocated; fails if that is less than size. */
static enum vka_status fit_budget(struct vka_device *device, enum memory_kind kind, uint64_t size,
                                  uint64_t *block_size)
{
    uint64_t left = memory_left(device, kind);
    if (left < *block_size) {
        memory_trim(device);
        left = memory_left(device, kind) / ALIGNMENT * ALIGNMENT;
    }
    if (size > left)
        return log_error(&device->log, VKA_OUT_OF_DEVICE_MEMORY,
                         "%llu bytes are needed, but max_memory or the driver's budget leaves %llu",
                         (unsigned long long)size, (unsigned long long)left);
    *block_size = *block_size < left ? *block_size : left;
    return VKA_OK;
}

/* Bytes of a block that is not made for one range alone. */
static uint64_t usual_size(const struct memory *memory, enum memory_kind kind, uint64_t limit)
{
    uint64_t size = kind == MEMORY_STAGING ? STAGING_LEAST : BLOCK_SIZE;
    size_t n = 0;
    for (const struct memory_block *b = memory->blocks; b; b = b->next)
        n += b->kind == kind;
    for (; n >= BLOCKS_OF_A_SIZE && size < limit; n -= BLOCKS_OF_A_SIZE)
        size *= 2;
    return size < limit ? size : limit / ALIGNMENT * ALIGNMENT;
}

/* Adds a block. Where the device has no memory for it, empty blocks are given back, and one of no
 * more than `size` is asked for: a driver need not tell its budget, and the memory is that of other
 * programs too. */
static enum vka_status add_block(struct vka_device *device, enum memory_kind kind, uint64_t size,
                                 uint64_t block_size, struct memory_block **block)
{
    ENSURE(memory_block_create(device, kind, block_size, true, block));
    if (*block)
        return VKA_OK;
    memory_trim(device);
    return memory_block_create(device, kind, size, false, block);
}

uint64_t memory_largest(const struct vka_device *device)
{
    return device->caps.properties.max_allocation / ALIGNMENT * ALIGNMENT;
}

enum vka_status memory_allocate(struct vka_device *device, enum memory_kind kind, uint64_t size,
                                struct memory_range *range)
{
    struct log *log = &device->log;
    uint64_t limit = device->caps.properties.max_allocation;
    *range = (struct memory_range){0};
    ENSURE(device_check(device));
    if (size > memory_largest(device))
        return log_error(log, VKA_UNSUPPORTED,
                         "%llu bytes exceed the device's largest allocation of %llu",
                         (unsigned long long)size, (unsigned long long)limit);
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    for (struct memory_block *block = device->memory.blocks; block; block = block->next) {
        if (block->kind != kind)
            continue;
        ENSURE(reserve_holes(log, block));
        if (block_take(block, size, range))
            return VKA_OK;
    }
    uint64_t block_size = usual_size(&device->memory, kind, limit);
    if (size > block_size / 4)
        block_size = size; /* a block of its own */
    ENSURE(fit_budget(device, kind, size, &block_size));
    struct memory_block *block = NULL;
    ENSURE(add_block(device, kind, size, block_size, &block));
    block_take(block, size, range);
    return VKA_OK;
}

static void block_unlink(struct vka_device *device, struct memory_block *block)
{
    struct memory_block **link = &device->memory.blocks;
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
}

void memory_free(struct vka_device *device, struct memory_range *range)
{
    struct memory_block *block = range->block;
    if (!block)
        return;
    if (block->kind == MEMORY_FOREIGN) {
        *range = (struct memory_range){0};
        block_unlink(device, block);
        memory_block_destroy(device, block);
        return;
    }
    size_t i = 0; /* the first hole after the range */
    while (i < block->n_hole && block->holes[i].offset < range->offset)
        i++;
    struct memory_hole *holes = block->holes;
    bool left = i > 0 && holes[i - 1].offset + holes[i - 1].size == range->offset;
    bool right = i < block->n_hole && range->offset + range->size == holes[i].offset;
    if (left && right) {
        holes[i - 1].size += range->size + holes[i].size;
        memmove(&holes[i], &holes[i + 1], (block->n_hole - i - 1) * sizeof *holes);
        block->n_hole--;
    } else if (left) {
        holes[i - 1].size += range->size;
    } else if (right) {
        holes[i].offset = range->offset;
        holes[i].size += range->size;
    } else {
        memmove(&holes[i + 1], &holes[i], (block->n_hole - i) * sizeof *holes);
        holes[i] = (struct memory_hole){range->offset, range->size};
        block->n_hole++;
    }
    *range = (struct memory_range){0};
    /* Keeps an empty small block for the next tensor; frees a large one or one for staging. */
    if (--block->n_taken == 0 && (block->kind == MEMORY_STAGING || block->size > BLOCK_SIZE)) {
        block_unlink(device, block);
        memory_block_destroy(device, block);
    }
}

void *memory_mapped(const struct memory_range *range)
{
    return range->block->mapped ? (char *)range->block->mapped + range->offset : NULL;
}
