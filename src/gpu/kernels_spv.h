/* The SPIR-V of every kernel, embedded by cmake/embed.cmake. */
#ifndef VKA_GPU_KERNELS_SPV_H
#define VKA_GPU_KERNELS_SPV_H

#include "gpu/kernels.h"

#include <stddef.h>
#include <stdint.h>

struct kernel_spv {
    const uint32_t *words;
    size_t size; /* bytes */
};

#define KERNEL(id, file, defines, buffers, needs, family, known) \
    extern const struct kernel_spv kernel_spv_##id;
#include "kernels.def"

extern const struct kernel_spv *const kernel_spv_table[KERNEL_COUNT];

/* SHA-256 of all of them, in hexadecimal. */
extern const char kernels_hash[];

#endif
