/* The host allocations of the driver, through VkAllocationCallbacks. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

static struct {
    bool own;
    size_t n_allocation, fail_allocation_at;
    bool failed_while_recording;
} memory;

/* Stands before each of the driver's blocks. */
struct block {
    size_t size, offset; /* bytes; of the block from where it was allocated */
};

static void *allocate(void *user, size_t size, size_t alignment, VkSystemAllocationScope scope)
{
    (void)user;
    (void)scope;
    size_t offset = alignment > sizeof(struct block) ? alignment : sizeof(struct block);
    void *made = NULL;
    if (memory.n_allocation++ == memory.fail_allocation_at) {
        memory.failed_while_recording = driver_busy() && strncmp(driver_busy(), "vkCmd", 5) == 0;
        return NULL;
    }
    if (posix_memalign(&made, offset, offset + size) != 0)
        return NULL;
    struct block *block = (struct block *)((char *)made + offset) - 1;
    *block = (struct block){size, offset};
    return block + 1;
}

static void release(void *user, void *old)
{
    (void)user;
    if (old)
        free((char *)old - ((struct block *)old - 1)->offset);
}

static void *reallocate(void *user, void *old, size_t size, size_t alignment,
                        VkSystemAllocationScope scope)
{
    void *moved = size > 0 ? allocate(user, size, alignment, scope) : NULL;
    if (!old || (!moved && size > 0))
        return moved;
    size_t before = ((struct block *)old - 1)->size;
    if (moved)
        memcpy(moved, old, before < size ? before : size);
    release(user, old);
    return moved;
}

const VkAllocationCallbacks *driver_callbacks(void)
{
    static const VkAllocationCallbacks own = {
        .pfnAllocation = allocate, .pfnReallocation = reallocate, .pfnFree = release};
    return memory.own ? &own : NULL;
}

void driver_keep_allocations(void)
{
    memset(&memory, 0, sizeof memory);
}

void driver_fail_allocation(size_t allocation)
{
    driver_keep_allocations();
    memory.own = true;
    memory.fail_allocation_at = allocation;
}

size_t driver_allocations(void)
{
    return memory.n_allocation;
}

bool driver_failed_while_recording(void)
{
    return memory.failed_while_recording;
}
