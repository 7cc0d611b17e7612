/* What the rules of all kernel families share. A rule chooses a kernel and its tiles: a pure
 * function of caps and the problem, tested without a GPU. */
#ifndef VKA_KERNEL_TUNE_H
#define VKA_KERNEL_TUNE_H

#include "gpu/caps.h"
#include "gpu/tuning_profile.h"

/* Most terms of a chain of float32 sums. Longer sums are cut into chains of TUNE_CHAIN terms
 * (splits of keys, or of k), added pairwise, so that errors do not grow with length. Where they
 * are cut depends on k or the number of keys alone. */
#define TUNE_CHAIN 16384u

#define VENDOR_MESA 0x10005u
#define VENDOR_AMD 0x1002u
#define VENDOR_NVIDIA 0x10deu
#define VENDOR_INTEL 0x8086u
#define VENDOR_BROADCOM 0x14e4u
#define VENDOR_QUALCOMM 0x5143u
#define VENDOR_ARM 0x13b5u

struct pipeline_key;

/* Whether an invocation has 64 registers of 32 bits and no more, as on Mali. */
static inline bool tune_has_few_registers(const struct vka_device_properties *has)
{
    return has->vendor_id == VENDOR_ARM;
}

#endif
