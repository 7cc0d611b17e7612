/* The kernels: one entry for each row of shaders/kernels.def. */
#ifndef VKA_GPU_KERNELS_H
#define VKA_GPU_KERNELS_H

#include <vkattn/vkattn.h>

enum kernel {
#define KERNEL(id, file, defines, buffers, needs, family, known) KERNEL_##id,
#include "kernels.def"
    KERNEL_COUNT
};

/* State of a kernel on a device. */
enum kernel_state {
    KERNEL_UNTESTED = 0, /* it will be tested before its first use */
    KERNEL_TESTING,      /* the plan that runs now tests it */
    KERNEL_RIGHT,        /* passed its self-test */
    KERNEL_WRONG,        /* failed it */
    KERNEL_DEMOTED,      /* failed the check of `vkattn tune`, which is more thorough */
};

/* What a kernel needs of a device beyond Vulkan 1.1. */
enum kernel_need {
    NEED_NOTHING = 0,
    NEED_BALLOT = 1,        /* subgroup broadcasts, and full subgroups of the known size */
    NEED_ARITHMETIC = 2,    /* subgroup reductions, and full subgroups of the known size */
    NEED_SUBGROUP_8 = 4,    /* at least 8 invocations a subgroup */
    NEED_INT64 = 8,         /* 64-bit integers in shaders */
    NEED_ADDRESS = 16,      /* reads buffers by address, see struct pass */
    NEED_TEXELS = 32,       /* buffers 0 and 1 are texel buffers of 4 float32; CPU drivers only */
    NEED_KV_TEXELS = 64,    /* buffers 1 and 2 are texel buffers; CPU drivers only */
    NEED_MATRIX_F16 = 128,  /* caps.matrix_f16, in workgroups of COOP_SUBGROUPS */
    NEED_MATRIX_BF16 = 256, /* caps.matrix_bf16, in the same workgroups */
    NEED_REDUCTIONS = 512, /* subgroup reductions, in subgroups of any size that the driver likes */
    NEED_SHUFFLE = 1024,   /* subgroup shuffles */
    NEED_EIGHT = 2048,     /* subgroups of 8 */
    NEED_LEAST_SUBGROUP = 4096, /* full subgroups of caps.least_subgroup */
    NEED_MATRIX2_F16 = 8192,    /* by reduced_nv: caps_reduced_size of float16; SPIR-V 1.6 */
    NEED_MATRIX2_BF16 = 16384,  /* of bfloat16 */
    NEED_FLOAT16 = 32768,       /* float16 arithmetic in shaders */
    NEED_DOT = 65536,           /* dot products of four int8 in an instruction */
    NEED_INT8 = 131072,         /* 8-bit integers in shaders and in buffers */
    NEED_MIXED_DOT = 1048576,   /* products of two float16 added to a float32 in an instruction */
    NEED_SCALARS = 262144,      /* quirk_has_scalars; without, products are 40 times slower */
    /* By reduced_ext: caps_reduced_size of float16 and of bfloat16. */
    NEED_MATRIX_EXT_F16 = 524288,
    NEED_MATRIX_EXT_BF16 = 2097152,
};

/* Kernels that need full subgroups of a known size: but for the last, properties.subgroup_size. */
#define NEED_FULL_SUBGROUPS \
    (NEED_BALLOT | NEED_ARITHMETIC | NEED_MATRIX_F16 | NEED_MATRIX_BF16 | NEED_LEAST_SUBGROUP)

#define MAX_BUFFERS 14
#define MAX_TEXEL_BUFFERS 3 /* only the first buffers may be texel buffers */
#define MAX_SPECS 23

/* Kernels that do the same work, of which the rules choose one. Moves mostly read and write. */
enum kernel_family {
    FAMILY_MOVE = 0,
    FAMILY_PRODUCT,
    FAMILY_SOFTMAX,
    FAMILY_ATTENTION,
    FAMILY_BACKWARD
};

/* The problems that the self-test lets kernels solve. */
enum known_problem {
#define KNOWN(id, path, tolerance, solve) KNOWN_##id,
#include "kernels.def"
    KNOWN_PROBLEM_COUNT
};

struct kernel_info {
    const char *name;
    uint32_t buffers;
    unsigned needs;
    enum kernel_family family;
    enum known_problem known;
};
extern const struct kernel_info kernel_table[KERNEL_COUNT];

/* The speed of a kernel, in operations per nanosecond; plan/budget.h says what counts as one. */
struct rate {
    double device; /* of the whole device, with enough workgroups; 0: not measured */
    double group;  /* of a single workgroup */
};

/* The rates measured on a device, one for each class of kernels. */
struct rates {
    struct rate of[KERNEL_COUNT];
};

#endif
