#include "limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static bool read_limits(uint64_t limits[3])
{
    char end;
    const char *text = getenv("VKATTN_TEST_LIMITS");
    if (!text)
        return false;
    if (sscanf(text, "%" SCNu64 ",%" SCNu64 ",%" SCNu64 "%c", &limits[0], &limits[1], &limits[2],
               &end) != 3) {
        fprintf(stderr, "VKATTN_TEST_LIMITS is '%s', not RANGE,ALLOCATION,SHARED\n", text);
        exit(2);
    }
    return true;
}

bool limits_given(void)
{
    uint64_t limits[3];
    return read_limits(limits);
}

struct vka_device_info limits_info(struct vka_device_info info)
{
    uint64_t limits[3];
    if (!read_limits(limits))
        return info;
    info.max_buffer_range = limits[0];
    info.max_allocation = limits[1];
    info.max_shared_memory = (uint32_t)limits[2];
    info.no_mapped_memory = true;
    return info;
}

struct vka_device_properties limits_lower(struct vka_device *device, uint64_t range,
                                          uint64_t allocation)
{
    struct vka_device_properties *p = &device->caps.properties, usual = *p;
    p->max_buffer_range = range;
    p->max_allocation = allocation;
    return usual;
}

void limits_restore(struct vka_device *device, const struct vka_device_properties *usual)
{
    device->caps.properties = *usual;
}

void limits_to_matrices(struct vka_device *device)
{
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (kernel_table[k].family == FAMILY_PRODUCT &&
            !(kernel_table[k].needs & (NEED_MATRIX_F16 | NEED_MATRIX_BF16)))
            set_add(&device->caps.without, k);
}
