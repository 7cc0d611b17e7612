/* Device memory: ranges cut from large blocks, each block one VkBuffer over one allocation. */
#ifndef VKA_GPU_MEMORY_H
#define VKA_GPU_MEMORY_H

#include "gpu/state.h"

/* Bytes of the largest range that there can be. */
uint64_t memory_largest(const struct vka_device *device);

/* A range of size bytes (at least 1), aligned to that. */
enum vka_status memory_allocate(struct vka_device *device, enum memory_kind kind, uint64_t size,
                                struct memory_range *range);
void memory_free(struct vka_device *device, struct memory_range *range);

/* The address of the range on the host; NULL if the host cannot see it. */
void *memory_mapped(const struct memory_range *range);

#endif
