#include "tune_devices.h"

#include <stdio.h>
#include <string.h>

const struct caps mobile = {
    .properties =
        {
            .name = "mobile, no subgroup operations",
            .type = VKA_DEVICE_INTEGRATED,
            .subgroup_size = 1,
            .max_workgroup = 128,
            .max_shared_memory = 16384,
            .max_buffer_range = 1u << 27,
            .max_allocation = 1u << 30,
        },
    .max_groups = {65535, 65535, 65535},
    .buffer_alignment = 256,
    .max_bindings = 8,
};

const struct caps discrete = {
    .properties =
        {
            .name = "discrete GPU",
            .type = VKA_DEVICE_DISCRETE,
            .subgroup_size = 32,
            .max_workgroup = 1024,
            .max_shared_memory = 49152,
            .max_buffer_range = UINT32_MAX,
            .max_allocation = 1ull << 32,
            .storage16 = true,
            .float16 = true,
            .subgroup_arithmetic = true,
            .subgroup_ballot = true,
        },
    .max_groups = {INT32_MAX, 65535, 65535},
    .buffer_alignment = 16,
    .max_bindings = 1u << 20,
    .subgroup_size_control = true,
};

struct caps like(const struct caps *model, const char *name)
{
    struct caps caps = *model;
    snprintf(caps.properties.name, sizeof caps.properties.name, "%s", name);
    return caps;
}

struct caps cpu(uint32_t subgroup_size)
{
    struct caps caps = like(&discrete, "CPU driver");
    caps.properties.type = VKA_DEVICE_CPU;
    caps.properties.subgroup_size = subgroup_size;
    caps.properties.max_shared_memory = 32768;
    return caps;
}

struct caps mesa(uint32_t major)
{
    struct caps caps = cpu(8);
    caps.properties.vendor_id = 0x10005;
    caps.properties.driver_version = major << 22;
    caps.device_address = caps.int64 = caps.int8 = caps.shuffle = true;
    return caps;
}

struct caps with_matrices(const struct caps *model)
{
    struct caps caps = like(model, "GPU with matrix units");
    caps.matrices = caps.bfloat16_matrices = true;
    caps.matrix_f16 = caps.matrix_bf16 = (struct matrix_size){16, 16, 16};
    caps.least_subgroup = caps.properties.subgroup_size;
    caps.matrix_registers = MATRIX_REGISTERS;
    caps.shuffle = true;
    return caps;
}

struct caps with_flexible_matrices(const struct caps *model)
{
    struct caps caps = with_matrices(model);
    const struct matrix_size size = {16, 8, 16};
    caps.reduced_nv = (struct reduced_matrices){true, true, size, size};
    return caps;
}

struct caps with_maintained_matrices(const struct caps *model)
{
    struct caps caps = with_flexible_matrices(model);
    caps.reduced_ext = caps.reduced_nv;
    caps.reduced_nv = (struct reduced_matrices){.usable = false};
    return caps;
}

void tune_devices(struct caps devices[TUNE_DEVICES])
{
    const struct caps all[TUNE_DEVICES] = {
        mobile,
        discrete,
        cpu(4),
        cpu(8),
        cpu(16),
        cpu(2),
        mobile,
        discrete,
        like(&discrete, "integrated, subgroups of 16"),
        mesa(22),
        mesa(26),
        with_matrices(&discrete),
        with_flexible_matrices(&discrete),
        like(&discrete, "few registers"),
        with_maintained_matrices(&discrete),
    };
    memcpy(devices, all, sizeof all);
    devices[6].properties.subgroup_size = 64; /* mobile with subgroups */
    devices[6].properties.subgroup_arithmetic = devices[6].properties.subgroup_ballot = true;
    devices[6].subgroup_size_control = true;
    devices[7].subgroup_size_control = false;
    devices[8].properties.type = VKA_DEVICE_INTEGRATED;
    devices[8].properties.subgroup_size = 16;
    devices[13].properties.vendor_id = 0x13b5;
    devices[13].properties.type = VKA_DEVICE_INTEGRATED;
    devices[13].properties.subgroup_size = 16;
    devices[13].properties.max_shared_memory = 32768;
}

static uint64_t random_state = 88172645463325252u;

uint32_t below(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32) % n;
}

uint32_t any_size(uint32_t bits)
{
    return 1 + below(1u << (1 + below(bits)));
}

bool is_power_of_two(uint32_t n)
{
    return n && !(n & (n - 1));
}

struct caps vary(const struct caps *device)
{
    const struct kernel_set optional = KERNEL_SET(
        KERNEL_matmul_address, KERNEL_matmul_texel, KERNEL_matmul_lane4, KERNEL_matmul_few,
        KERNEL_matmul_lane8, KERNEL_matmul_coop_f16, KERNEL_attention_coop_f16,
        KERNEL_attention_coop2_f16, KERNEL_attention_coop2_ext_f16, KERNEL_softmax_subgroup,
        KERNEL_attention_row, KERNEL_attention_tile, KERNEL_attention_map, KERNEL_attention_merge,
        KERNEL_matmul_few_mixed, KERNEL_attention_tile_mixed);
    struct caps caps = *device;
    if (below(2)) /* lowered by the application, or simply another device */
        caps.properties.max_shared_memory -= below(caps.properties.max_shared_memory / 2);
    caps.int64 = below(2);
    caps.int8 = below(2);
    caps.mixed_dot = below(2);
    caps.without = NO_KERNELS;
    if (below(2))
        for (int k = 0; k < KERNEL_COUNT; k++)
            if (set_has(optional, k) && below(2))
                set_add(&caps.without, k);
    return caps;
}

struct matmul_choice tune_choose(const struct caps *caps, const struct matmul_problem *problem)
{
    struct matmul_choice choice;
    memset(&choice, 0xa5, sizeof choice); /* nothing may be left as it was */
    tune_matmul(caps, problem, &choice);
    return choice;
}

void tune_vary(void (*check)(const struct caps *caps))
{
    struct caps devices[TUNE_DEVICES];
    tune_devices(devices);
    for (size_t d = 0; d < TUNE_DEVICES; d++)
        for (int i = 0; i < 5000; i++) {
            const struct caps caps = vary(&devices[d]);
            check(&caps);
        }
}
