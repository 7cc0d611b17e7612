/* A null i915 device: Mesa's intel_noop_drm_shim.c with this in place of Mesa's table of Intel
 * GPUs, which takes generated code. tools/dev/sid_tree.sh builds it from Mesa's sources, with empty
 * headers for those of Mesa's Intel code. From the environment:
 *     INTEL_STUB_GPU_DEVICE_ID   the PCI id, hexadecimal
 *     INTEL_NULL_GEOMETRY        generation, slices, subslices of a slice, EUs of a subslice, and 1
 *                                where the GPU has memory of its own: "20,5,4,8,1"
 * SPDX-License-Identifier: MIT */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SLICES 16
#define INTEL_PLATFORM_CHV (-1) /* a quirk of that one alone */

enum { INTEL_ENGINE_CLASS_RENDER, INTEL_ENGINE_CLASS_COPY };

/* The fields that the shim reads. */
struct intel_device_info {
    int ver, platform;
    uint32_t pci_device_id;
    int num_slices, num_subslices[MAX_SLICES], max_eus_per_subslice;
    bool has_local_mem;
    uint64_t timestamp_frequency;
};

struct drm_intel_stub_devinfo {
    uint64_t addr;
    uint32_t size;
};

static bool intel_get_device_info_from_pci_id(uint32_t id, struct intel_device_info *info)
{
    const char *geometry = getenv("INTEL_NULL_GEOMETRY");
    int subslices = 0, local = 0;
    if (!geometry ||
        sscanf(geometry, "%d,%d,%d,%d,%d", &info->ver, &info->num_slices, &subslices,
               &info->max_eus_per_subslice, &local) != 5 ||
        info->num_slices < 1 || info->num_slices > MAX_SLICES) {
        fprintf(stderr, "INTEL_NULL_GEOMETRY has to be five numbers\n");
        abort();
    }
    for (int i = 0; i < info->num_slices; i++)
        info->num_subslices[i] = subslices;
    info->pci_device_id = id;
    info->has_local_mem = local != 0;
    info->timestamp_frequency = 19200000; /* Hz */
    return true;
}

static bool intel_device_info_from_json(const char *path, struct intel_device_info *info)
{
    (void)path;
    (void)info;
    return false;
}

static int intel_device_name_to_pci_device_id(const char *name)
{
    (void)name;
    return 0;
}

/* What Mesa's util folder calls. */
bool debug_get_bool_option(const char *name, bool otherwise)
{
    const char *value = getenv(name);
    return value ? atoi(value) != 0 : otherwise;
}

char *os_read_file(const char *path, size_t *size)
{
    (void)path;
    (void)size;
    return NULL;
}

size_t u_printf_length(const char *format, va_list arguments)
{
    return (size_t)vsnprintf(NULL, 0, format, arguments);
}

#include "intel/tools/intel_noop_drm_shim.c"

/* Linked with --wrap=drm_shim_bo_init: ANV makes empty buffer objects, which cannot be mapped. */
int __real_drm_shim_bo_init(struct shim_bo *bo, size_t size);
int __wrap_drm_shim_bo_init(struct shim_bo *bo, size_t size)
{
    return __real_drm_shim_bo_init(bo, size ? size : 4096);
}
