/* The host allocations of the driver, through VkAllocationCallbacks. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    bool own;
    size_t n_allocation, fail_allocation_at;
    char failed_in[64]; /* the call of Vulkan in which one failed */
} memory;

/* Stands before each of the driver's blocks. */
struct block {
    size_t size; /* bytes */
    void *whole; /* what was allocated */
};

static void *allocate(void *user, size_t size, size_t alignment, VkSystemAllocationScope scope)
{
    (void)user;
    (void)scope;
    if (alignment < _Alignof(struct block))
        alignment = _Alignof(struct block);
    if (memory.n_allocation++ == memory.fail_allocation_at) {
        const char *call = driver_busy();
        snprintf(memory.failed_in, sizeof memory.failed_in, "%s", call ? call : "");
        return NULL;
    }
    char *whole = malloc(sizeof(struct block) + alignment + size);
    if (!whole)
        return NULL;
    char *made = whole + sizeof(struct block);
    made += (alignment - (uintptr_t)made % alignment) % alignment;
    ((struct block *)made)[-1] = (struct block){size, whole};
    return made;
}

static void release(void *user, void *old)
{
    (void)user;
    if (old)
        free(((struct block *)old)[-1].whole);
}

static void *reallocate(void *user, void *old, size_t size, size_t alignment,
                        VkSystemAllocationScope scope)
{
    void *moved = size > 0 ? allocate(user, size, alignment, scope) : NULL;
    if (!old || (!moved && size > 0))
        return moved;
    size_t before = ((struct block *)old)[-1].size;
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

const char *driver_failed_in(void)
{
    return memory.failed_in;
}
