/* The rows of shaders/kernels.def on the C side. */
#ifndef VKA_GPU_KERNELS_H
#define VKA_GPU_KERNELS_H

#include "core/caps.h"

enum kernel {
#define KERNEL(id, file, defines, buffers, needs) KERNEL_##id,
#include "kernels.def"
#undef KERNEL
    KERNEL_COUNT
};

/* What a kernel needs of a device beyond Vulkan 1.1. */
enum kernel_need {
    NEED_NOTHING = 0,
    NEED_BALLOT = 1,        /* subgroup broadcasts, and full subgroups of the known size */
    NEED_ARITHMETIC = 2,    /* subgroup reductions, likewise */
    NEED_SUBGROUP_8 = 4,    /* at least 8 invocations a subgroup */
    NEED_INT64 = 8,         /* 64-bit integers in shaders */
    NEED_ADDRESS = 16,      /* reads buffers by address: see struct pass */
    NEED_TEXELS = 32,       /* buffers 0 and 1 are texel buffers of 4 float32, of a CPU driver */
    NEED_KV_TEXELS = 64,    /* likewise buffers 1 and 2 */
    NEED_MATRIX_F16 = 128,  /* caps.matrix_f16, in workgroups of COOP_SUBGROUPS */
    NEED_MATRIX_BF16 = 256, /* caps.matrix_bf16, likewise */
};

/* Those that take full subgroups of the known size for granted. */
#define NEED_FULL_SUBGROUPS (NEED_BALLOT | NEED_ARITHMETIC | NEED_MATRIX_F16 | NEED_MATRIX_BF16)

_Static_assert(KERNEL_COUNT <= 64, "caps.disabled_kernels has a bit for each");

#define MAX_BUFFERS 14
#define MAX_TEXEL_BUFFERS 3 /* the first ones alone may be */
#define MAX_SPECS 17

struct kernel_info {
    const char *name;
    uint32_t buffers;
    unsigned needs;
};
extern const struct kernel_info kernel_table[KERNEL_COUNT];

/* How fast a kernel is, in operations a nanosecond (plan/budget.h says what counts as one). */
struct rate {
    double device; /* with all the workgroups it has room for; 0: not measured */
    double group;  /* of one workgroup alone */
};

/* Rates measured on a device, one a class of kernels. */
struct rates {
    struct rate of[KERNEL_COUNT];
};

/* Whether the library has it. */
bool kernel_is_built(enum kernel kernel);

/* Those that it lacks, a bit each: what caps of a device that is there have. */
uint64_t kernels_not_built(void);

/* NULL where the device can run it; else why not, what follows "the kernel" in a sentence. */
const char *kernel_missing(enum kernel kernel, const struct caps *caps);

#endif
