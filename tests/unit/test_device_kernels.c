/* Which kernels a device has, by what it is. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "fake_device.h"
#include "gpu/kernels.h"
#include "test_program.h"

static struct caps read_caps(void)
{
    uint32_t family;
    return fake_caps(&family);
}

static int set_up(void **state)
{
    (void)state;
    fake = fake_modern;
    return 0;
}

static void check_kernel(enum kernel kernel, const struct caps *caps, const char *missing)
{
    const char *got = kernel_missing(kernel, caps);
    if (missing)
        assert_string_equal(got, missing);
    else
        assert_null(got);
}

static void kernels(void **state)
{
    (void)state;
    struct caps caps = read_caps();
    check_kernel(KERNEL_matmul_coop_f16, &caps, NULL);
    check_kernel(KERNEL_matmul_coop_bf16, &caps, NULL);
    check_kernel(KERNEL_attention_coop2_f16, &caps, NULL);
    check_kernel(KERNEL_attention_coop2_bf16, &caps, NULL);
    check_kernel(KERNEL_matmul_tile, &caps, NULL);
    check_kernel(KERNEL_matmul_address, &caps, "needs buffer addresses on a CPU driver");
    check_kernel(KERNEL_matmul_texel, &caps, "needs texel buffers of a CPU driver");
    caps.shuffle = false;
    check_kernel(KERNEL_attention_coop_f16, &caps, "needs subgroup shuffles in compute shaders");
    caps.reduced_nv.flexible = false; /* of one size then */
    check_kernel(KERNEL_attention_coop2_f16, &caps, NULL);
    check_kernel(KERNEL_attention_coop2_bf16, &caps,
                 "needs cooperative matrices of bfloat16 with reductions"); /* n is not k */
    caps.reduced_nv.usable = false;
    check_kernel(KERNEL_attention_coop2_f16, &caps,
                 "needs cooperative matrices of float16 with reductions");
    check_kernel(KERNEL_attention_coop2_bf16, &caps,
                 "needs cooperative matrices of bfloat16 with reductions");
    caps.properties.max_workgroup = 128;
    check_kernel(KERNEL_matmul_coop_f16, &caps, "needs workgroups of 8 subgroups");
    caps.matrix_f16.m = caps.matrix_bf16.m = 0;
    check_kernel(KERNEL_matmul_coop_f16, &caps, "needs cooperative matrices of float16");
    check_kernel(KERNEL_matmul_coop_bf16, &caps, "needs cooperative matrices of bfloat16");
    caps.subgroup_size_control = false;
    check_kernel(KERNEL_matmul_lane8, &caps, "needs control of the subgroup size");
    caps.properties.subgroup_size = 4;
    check_kernel(KERNEL_matmul_lane8, &caps, "needs subgroups of 8");
    caps.properties.subgroup_ballot = caps.properties.subgroup_arithmetic = false;
    check_kernel(KERNEL_matmul_lane4, &caps, "needs subgroup broadcasts in compute shaders");
    check_kernel(KERNEL_softmax_subgroup, &caps, "needs subgroup reductions in compute shaders");
    caps.max_bindings = 4;
    check_kernel(KERNEL_softmax_shared, &caps, "needs more storage buffers");
    caps.kernels[KERNEL_copy] = KERNEL_DEMOTED;
    caps.without = KERNEL_SET(KERNEL_copy);
    check_kernel(KERNEL_copy, &caps, "is switched off");
    caps.without = NO_KERNELS;
    check_kernel(KERNEL_copy, &caps, "failed its check on this device");
}

/* A CPU driver's own kernels have what they need. */
static void kernels_of_cpu_drivers(void **state)
{
    (void)state;
    fake.properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_CPU;
    struct caps caps = read_caps();
    check_kernel(KERNEL_matmul_block, &caps, NULL);
    check_kernel(KERNEL_matmul_texel, &caps, NULL);
    check_kernel(KERNEL_attention_texel, &caps, NULL);
    fake.subgroup.subgroupSize = fake.size.minSubgroupSize = fake.size.maxSubgroupSize = 8;
    caps = read_caps();
    const enum kernel scalars[] = {KERNEL_matmul_bytes, KERNEL_matmul_address,
                                   KERNEL_attention_address};
    for (int i = 0; i < 3; i++)
        check_kernel(scalars[i], &caps, "needs a compiler that keeps uniform values scalar");
    fake.properties.vendorID = 0x10005;
    fake.properties.driverVersion = 26 << 22;
    caps = read_caps();
    for (int i = 0; i < 3; i++)
        check_kernel(scalars[i], &caps, NULL);
    fake.int8 = 0;
    caps = read_caps();
    check_kernel(KERNEL_matmul_bytes, &caps, "needs 8-bit integers in shaders and buffers");
    fake.int64 = 0;
    caps = read_caps();
    check_kernel(KERNEL_matmul_address, &caps, "needs 64-bit integers in shaders");
}

/* VK_EXT_cooperative_matrix_maintenance1: the smallest size with float32 sums, for Vulkan 1.1 too. Without
 * one of its features, or without a size that is of use, it is not used, and attention_coop is. */
static void maintained_matrices(void **state)
{
    (void)state;
    struct caps caps = read_caps();
    assert_false(caps.reduced_ext.usable || caps.reduced_ext.flexible);
    assert_non_null(kernel_missing(KERNEL_attention_coop2_ext_f16, &caps));
    fake.maintained = true;
    caps = read_caps();
    assert_true(caps.reduced_ext.usable && caps.reduced_ext.flexible && caps.reduced_nv.usable);
    assert_memory_equal(&caps.reduced_ext.f16, (&(struct matrix_size){16, 16, 16}), 12);
    assert_memory_equal(&caps.reduced_ext.bf16, (&(struct matrix_size){16, 16, 32}), 12);
    assert_int_equal(caps.matrix_row_lanes, 0);
    fake.properties.vendorID = 0x10de;
    assert_int_equal(read_caps().matrix_row_lanes, 4);
    VkBool32 *const features[] = {&fake.ext_reductions, &fake.ext_conversions, &fake.ext_elements,
                                  &fake.memory_model};
    for (size_t i = 0; i < COUNTOF(features); i++) {
        fake = fake_modern;
        fake.maintained = true;
        *features[i] = 0;
        caps = read_caps();
        assert_false(caps.reduced_ext.usable || caps.reduced_ext.flexible);
        assert_non_null(kernel_missing(KERNEL_attention_coop2_ext_f16, &caps));
        assert_true(features[i] == &fake.memory_model ||
                    !kernel_missing(KERNEL_attention_coop_f16, &caps));
    }
    fake = fake_modern;
    fake.maintained = true;
    fake.ext_sizes = 0; /* of the sizes that other kernels have: n is k for float16 alone */
    caps = read_caps();
    assert_true(caps.reduced_ext.usable && !caps.reduced_ext.flexible);
    assert_null(kernel_missing(KERNEL_attention_coop2_ext_f16, &caps));
    assert_string_equal(kernel_missing(KERNEL_attention_coop2_ext_bf16, &caps),
                        "needs matrices of bfloat16 with VK_EXT_cooperative_matrix_maintenance1");
    fake.ext_sizes = 1;
    fake.n_size = 0;
    assert_int_equal(read_caps().reduced_ext.f16.m, 0);
    fake.n_size = 4;
    fake.matrices_result = VK_ERROR_OUT_OF_HOST_MEMORY;
    assert_int_equal(read_caps().reduced_ext.f16.m, 0);
    fake.matrices_result = VK_SUCCESS;
    fake.instance_version = VK_API_VERSION_1_1;
    fake.extensions[2] = "VK_KHR_vulkan_memory_model";
    fake.extensions[3] = "VK_KHR_shader_float16_int8";
    caps = read_caps();
    assert_true(caps.reduced_ext.usable && !caps.reduced_nv.usable);
}

TEST_PROGRAM(device_kernels)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(kernels, set_up),
        cmocka_unit_test_setup(kernels_of_cpu_drivers, set_up),
        cmocka_unit_test_setup(maintained_matrices, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
