/* What drivers do that no limit or feature of Vulkan tells: one entry each, with driver, versions and
 * symptom. */
#ifndef VKA_GPU_QUIRKS_H
#define VKA_GPU_QUIRKS_H

#include "core/caps.h"

/* Iterations, of all loops of an invocation together, that the self-test of loops runs at most. */
#define LOOPS_CHECKED (1u << 18)

/* What is left where that self-test fails. */
#define LOOPS_LEAST 4096u

/* How far an invocation may go: the iterations, of all its loops together, after which a driver is
 * known, or not known not, to end loops in silence, so that results are wrong; else UINT32_MAX. */
uint32_t quirk_max_loops(const struct vka_device_properties *properties);

/* Bytes to bind of a texel buffer of which `size` are read, at most 256 more. */
uint64_t quirk_texel_size(const struct vka_device_properties *properties, uint64_t size);

#endif
