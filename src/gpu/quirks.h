/* Defects of drivers that no limit or feature of Vulkan tells: one entry each, with the driver, its
 * versions and the symptom. */
#ifndef VKA_GPU_QUIRKS_H
#define VKA_GPU_QUIRKS_H

#include <vkattn/vkattn.h>

/* The most loop iterations of an invocation, in all its loops together, that the self-test of loops
 * runs. */
#define LOOPS_CHECKED (1u << 18)

/* The limit that is assumed if that self-test fails. */
#define LOOPS_LEAST 4096u

/* The most loop iterations that an invocation may make, in all its loops together. Some drivers end
 * loops silently after that, so that results are wrong; for drivers that are known not to, it is
 * UINT32_MAX. */
uint32_t quirk_max_loops(const struct vka_device_properties *properties);

/* The bytes to bind of a texel buffer of which `size` bytes are read: up to 256 more. */
uint64_t quirk_texel_size(const struct vka_device_properties *properties, uint64_t size);

/* Whether the compiler of a CPU driver keeps uniform values scalar, so that reads by address pay. */
bool quirk_has_scalars(const struct vka_device_properties *properties);

/* Whether a kernel that keeps more than 128 registers of an invocation spills. */
bool quirk_has_half_registers(const struct vka_device_properties *properties);

#endif
