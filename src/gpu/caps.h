/* What a device can do: plain data, so that the choice of kernels is tested without one. */
#ifndef VKA_GPU_CAPS_H
#define VKA_GPU_CAPS_H

#include "gpu/kernel_set.h"

struct tuning_profile;

/* The size of a cooperative matrix product of subgroup scope: m x k times k x n. */
struct matrix_size {
    uint32_t m, n, k; /* 0: none */
};

/* What an extension has of that which kernels need to reduce matrices. */
struct reduced_matrices {
    bool usable;   /* reductions, conversions between uses, functions of elements */
    bool flexible; /* matrices of any multiple of these sizes, of A and B in float16 or bfloat16 */
    struct matrix_size f16, bf16;
};

/* Registers of a lane that matrices may take on most GPUs: others are for addresses and loads. */
#define MATRIX_REGISTERS 160u

/* Storage buffers that a kernel binds, of those that every device takes: the softmax has 8. */
#define LEAST_BINDINGS 8u

struct caps {
    struct vka_device_properties properties;
    uint32_t max_groups[3];    /* workgroups of a dispatch, per axis */
    uint32_t buffer_alignment; /* of the offset of a binding, in bytes; a power of two */
    uint32_t max_bindings;     /* storage buffers a kernel */
    uint64_t host_alignment;   /* of the address and size of imported host memory, in bytes */
    bool host_import;          /* VK_EXT_external_memory_host */
    bool portability;          /* VK_KHR_portability_subset: Vulkan over another interface */
    double timestamp_ns;       /* of one tick */
    uint64_t timestamp_mask;   /* valid bits */
    uint32_t max_texels;       /* of a texel buffer */
    uint32_t processors;       /* compute units or the like; 0: unknown */
    uint32_t max_loops;        /* of an invocation, see gpu/quirks.h; 0: LOOPS_CHECKED */
    enum kernel_state kernels[KERNEL_COUNT];
    struct kernel_set without; /* not chosen, whatever their state */
    const char
        *refused[KERNEL_COUNT]; /* why the driver's compiler does not take it; NULL: it does */
    bool trusted;               /* use kernels even if they failed their self-test */
    /* See gpu/tuning_profile.h; NULL: none. */
    const struct tuning_profile *profile;

    bool int64;                 /* 64-bit integers in shaders */
    bool int8;                  /* 8-bit integers in shaders and in buffers */
    bool dot;                   /* VK_KHR_shader_integer_dot_product */
    bool mixed_dot;             /* VK_VALVE_shader_mixed_float_dot_product of float16 and float32 */
    bool shuffle;               /* subgroup shuffles in compute shaders */
    bool device_address;        /* buffers by address; only on CPU drivers, which gain by it */
    bool subgroup_size_control; /* pipelines can demand subgroups of properties.subgroup_size */
    bool subgroup_size_varies;  /* they must, as the device has other subgroup sizes too */
    uint32_t least_subgroup;    /* the smallest that can be demanded */
    uint32_t matrix_registers;  /* of a lane of that, 32 bits each, for matrices */
    bool matrices;              /* cooperative matrices can be used */
    bool bfloat16_matrices;     /* of bfloat16 too */
    struct matrix_size matrix_f16, matrix_bf16; /* A and B of that type, C in float32 */
    uint32_t matrix_row_lanes; /* that share a row of a small matrix of sums; 0: one a column */
    struct reduced_matrices reduced_nv;  /* by VK_NV_cooperative_matrix2 */
    struct reduced_matrices reduced_ext; /* by VK_EXT_cooperative_matrix_maintenance1 */
};

/* The size of matrices for a kernel that reduces them, whose needs are those of its row, and whether it
 * may take multiples of it; m is 0 where there is none. Where the size is fixed, n is k: scores of one
 * product are weights of the next. */
struct matrix_size caps_reduced_size(const struct caps *caps, unsigned needs, bool *flexible);

/* NULL if the device can run the kernel; else why not, as the end of a sentence that begins with
 * "the kernel". */
const char *kernel_missing(enum kernel kernel, const struct caps *caps);

#endif
