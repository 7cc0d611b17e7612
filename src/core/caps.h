/* What a device can do: plain data, so that tune.c can be tested without one. */
#ifndef VKA_CORE_CAPS_H
#define VKA_CORE_CAPS_H

#include <vkattn/vkattn.h>

struct verdict;

/* Matrices that the subgroups of a device multiply: m x k by k x n. */
struct matrix_size {
    uint32_t m, n, k; /* 0: none */
};

struct caps {
    struct vka_device_properties properties;
    uint32_t max_groups[3];    /* workgroups of a dispatch, per axis */
    uint32_t buffer_alignment; /* of a binding's offset, bytes, a power of two */
    uint32_t max_bindings;     /* storage buffers a kernel */
    uint64_t host_alignment;   /* of host memory that is imported and of its size, bytes */
    bool host_import;          /* VK_EXT_external_memory_host */
    double timestamp_ns;       /* of one tick */
    uint64_t timestamp_mask;   /* valid bits */
    uint64_t disabled_kernels; /* bit k: kernel k is not to be used; see kernels.h */
    uint64_t unbuilt_kernels;  /* likewise: the shader compiler could not make kernel k */
    uint32_t max_texels;       /* of a texel buffer */
    uint32_t max_loops;        /* of an invocation: see gpu/quirks.h; 0: as many as are checked */
    uint64_t failed_kernels;   /* likewise: kernel k failed its check on this device */
    uint64_t wrong_kernels;    /* likewise: it failed its self-test */
    const struct verdict *verdict; /* measured choices, see gpu/verdict.h; NULL: none */
    bool int64;                    /* 64-bit integers in shaders */
    bool device_address;           /* buffers by their address: a CPU driver's, which gains by it */
    bool subgroup_size_control; /* a pipeline can have full subgroups of properties.subgroup_size */
    bool subgroup_size_varies;  /* and has to demand that size, as the device has others too */
    bool matrices;              /* cooperative matrices can be used */
    bool bfloat16_matrices;     /* and of bfloat16 too */
    struct matrix_size matrix_f16, matrix_bf16; /* of that type, with float32 sums */
};

#endif
