#include "gpu/quirks.h"

#define VENDOR_MESA 0x10005u /* VK_VENDOR_ID_MESA */
#define VENDOR_AMD 0x1002u
#define VENDOR_GOOGLE 0x1ae0u
#define DEVICE_SWIFTSHADER 0xc0deu

static bool is_mesa_cpu(const struct vka_device_properties *p, uint32_t before_major)
{
    return p->type == VKA_DEVICE_CPU && p->vendor_id == VENDOR_MESA &&
           p->driver_version >> 22 < before_major;
}

/* Mesa's CPU driver, seen in 22.3, not in 25.0 and 26.2; versions between were not tried. A counter
 * of 65,535 iterations, shared by all loops of a shader and the lanes of a subgroup, ends every
 * loop when it is used up. The same limit is assumed for other CPU drivers, of which only
 * SwiftShader was tried. */
#define LOOPS_CAUTIOUS 65535u

uint32_t quirk_max_loops(const struct vka_device_properties *p)
{
    bool swiftshader = p->vendor_id == VENDOR_GOOGLE && p->device_id == DEVICE_SWIFTSHADER;
    bool mesa = p->vendor_id == VENDOR_MESA && !is_mesa_cpu(p, 25);
    if (p->type != VKA_DEVICE_CPU || swiftshader || mesa)
        return UINT32_MAX;
    return LOOPS_CAUTIOUS;
}

/* Mesa's CPU driver, seen in 22.3: reads bits 8 to 15 of the size of a texel buffer as its number
 * of mip levels, and compiles the kernel again if they are 0. */
uint64_t quirk_texel_size(const struct vka_device_properties *p, uint64_t size)
{
    return is_mesa_cpu(p, 25) && (size >> 8 & 0xff) == 0 ? size + 256 : size;
}

/* Mesa's CPU driver, 26 and later: matrix products are more than twice as fast as with texels there,
 * and 40 times slower on 22.3. */
bool quirk_has_scalars(const struct vka_device_properties *p)
{
    return p->type == VKA_DEVICE_CPU && p->vendor_id == VENDOR_MESA && !is_mesa_cpu(p, 26);
}

/* Mesa's driver of AMD's GPUs, seen in 22.3, not in 26.2: on RDNA3 it spills beyond 132 of 256
 * registers. AMD's own drivers have versions of 2. */
bool quirk_has_half_registers(const struct vka_device_properties *p)
{
    return p->vendor_id == VENDOR_AMD && p->driver_version >> 22 == 22;
}
