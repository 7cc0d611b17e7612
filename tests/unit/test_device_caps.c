/* What is read of a device, and what a logical one is then asked for.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "fake_device.h"
#include "gpu/device_logical.h"
#include "gpu/memory_block.h"
#include "gpu/kernels.h"
#include "test_program.h"

static uint32_t read_family; /* the queue family of the last caps read */

static struct caps read_caps(void)
{
    return fake_caps(&read_family);
}

static int set_up(void **state)
{
    (void)state;
    fake = fake_modern;
    return 0;
}

/* ---- What is read ---------------------------------------------------------------------------- */

static void everything(void **state)
{
    (void)state;
    struct caps caps = read_caps();
    const struct vka_device_properties *p = &caps.properties;
    assert_string_equal(p->name, "fake");
    assert_string_equal(p->driver, "radv 1.2");
    assert_int_equal(p->index, 5);
    assert_int_equal(p->type, VKA_DEVICE_DISCRETE);
    assert_int_equal(p->vendor_id, 0x1002);
    assert_int_equal(p->memory, 8ull << 30);
    assert_int_equal(p->subgroup_size, 32);
    assert_int_equal(p->max_allocation, 1u << 31);
    assert_true(p->subgroup_arithmetic && p->subgroup_ballot && p->timeline && p->float16 &&
                p->storage16 && p->bfloat16 && p->mapped_memory && p->timestamps);
    assert_true(caps.host_import && caps.subgroup_size_control && caps.subgroup_size_varies);
    assert_int_equal(caps.host_alignment, 4096);
    assert_int_equal(caps.max_groups[2], 65533);
    assert_int_equal(read_family, 2); /* it computes and does not draw */
    assert_int_equal(caps.timestamp_mask, (1ull << 36) - 1);
    /* Nothing of what CPU drivers' kernels use is enabled. */
    assert_false(caps.int64 || caps.int8 || caps.device_address);
    assert_int_equal(caps.buffer_alignment, 16);
}

/* A workgroup is bounded by its invocations, by each axis that kernels use, and, where subgroups may
 * be demanded, by the number of the smallest. */
static void workgroups(void **state)
{
    (void)state;
    assert_int_equal(read_caps().properties.max_workgroup, 1024);
    fake.properties.limits.maxComputeWorkGroupSize[1] = 256;
    assert_int_equal(read_caps().properties.max_workgroup, 256);
    fake.properties.limits.maxComputeWorkGroupSize[0] = 128;
    assert_int_equal(read_caps().properties.max_workgroup, 128);
    fake = fake_modern;
    fake.size.maxComputeWorkgroupSubgroups = 16;
    assert_int_equal(read_caps().properties.max_workgroup, 512);
    fake.size.maxComputeWorkgroupSubgroups = 0; /* not told */
    assert_int_equal(read_caps().properties.max_workgroup, 1024);
    fake.size.maxComputeWorkgroupSubgroups = 16;
    fake.size_control = 0;
    assert_int_equal(read_caps().properties.max_workgroup, 1024);
}

static void types(void **state)
{
    (void)state;
    static const enum vka_device_type types[] = {
        [VK_PHYSICAL_DEVICE_TYPE_OTHER] = VKA_DEVICE_OTHER,
        [VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU] = VKA_DEVICE_INTEGRATED,
        [VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU] = VKA_DEVICE_DISCRETE,
        [VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU] = VKA_DEVICE_VIRTUAL,
        [VK_PHYSICAL_DEVICE_TYPE_CPU] = VKA_DEVICE_CPU,
    };
    for (size_t i = 0; i < COUNTOF(types); i++) {
        fake.properties.deviceType = (VkPhysicalDeviceType)i;
        struct caps caps = read_caps();
        assert_int_equal(caps.properties.type, types[i]);
        assert_int_equal(caps.int64, types[i] == VKA_DEVICE_CPU);
        assert_int_equal(caps.int8, types[i] == VKA_DEVICE_CPU);
        assert_int_equal(caps.device_address, types[i] == VKA_DEVICE_CPU);
        assert_int_equal(caps.buffer_alignment, types[i] == VKA_DEVICE_CPU ? 64 : 16);
    }
}

/* Below 1.1 nothing but a name is read; below 1.2 and 1.3 what an extension brings. */
static void versions(void **state)
{
    (void)state;
    fake.properties.apiVersion = VK_API_VERSION_1_0;
    struct caps caps = read_caps();
    assert_string_equal(caps.properties.driver, "unknown");
    assert_int_equal(caps.properties.max_workgroup, 0);

    fake.properties.apiVersion = VK_API_VERSION_1_3;
    fake.instance_version = VK_API_VERSION_1_1;
    memset(fake.extensions, 0, sizeof fake.extensions);
    caps = read_caps();
    assert_string_equal(caps.properties.driver, "unknown");
    assert_int_equal(caps.properties.max_workgroup, 1024);
    assert_true(caps.properties.storage16);
    assert_false(caps.properties.timeline || caps.properties.float16 || caps.host_import ||
                 caps.subgroup_size_control || caps.matrices || caps.properties.bfloat16);
    fake.extensions[0] = "VK_KHR_timeline_semaphore";
    fake.extensions[1] = "VK_KHR_shader_float16_int8";
    fake.extensions[2] = "VK_EXT_subgroup_size_control";
    fake.extensions[3] = "VK_KHR_driver_properties";
    fake.extensions[4] = "VK_KHR_cooperative_matrix";
    fake.extensions[5] = "VK_KHR_vulkan_memory_model";
    fake.properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_CPU;
    assert_false(read_caps().int8);
    fake.extensions[6] = "VK_KHR_8bit_storage";
    caps = read_caps();
    assert_true(caps.int8);
    assert_string_equal(caps.properties.driver, "radv 1.2");
    assert_true(caps.properties.timeline && caps.properties.float16 && caps.subgroup_size_control &&
                caps.matrices);
    fake.extensions[5] = NULL;
    assert_false(read_caps().matrices);
    fake.extensions_result = VK_ERROR_OUT_OF_HOST_MEMORY;
    assert_false(read_caps().properties.timeline);
}

static void subgroups(void **state)
{
    (void)state;
    fake.subgroup.supportedStages = VK_SHADER_STAGE_VERTEX_BIT;
    struct caps caps = read_caps();
    assert_false(caps.properties.subgroup_arithmetic || caps.properties.subgroup_ballot);
    fake.subgroup.supportedStages = VK_SHADER_STAGE_COMPUTE_BIT;
    fake.subgroup.supportedOperations = VK_SUBGROUP_FEATURE_BALLOT_BIT;
    caps = read_caps();
    assert_true(!caps.properties.subgroup_arithmetic && caps.properties.subgroup_ballot);
    assert_false(caps.shuffle);
    fake.subgroup.supportedOperations = VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    assert_true(read_caps().shuffle);

    fake.size.requiredSubgroupSizeStages = 0; /* the size varies, and none can be demanded */
    assert_false(read_caps().subgroup_size_control);
    fake.size.minSubgroupSize = 64; /* the size it names is none of those that it has */
    assert_false(read_caps().subgroup_size_control);
    fake.size.minSubgroupSize = fake.size.maxSubgroupSize = 32;
    caps = read_caps();
    assert_true(caps.subgroup_size_control && !caps.subgroup_size_varies);
    fake.size_control = 0;
    assert_false(read_caps().subgroup_size_control);
}

static void queues_and_memory(void **state)
{
    (void)state;
    fake.families[2].queueCount = 0;
    read_caps();
    assert_int_equal(read_family, 0); /* it draws, but computes */
    fake.families[2] = fake.families[0];
    read_caps();
    assert_int_equal(read_family, 0); /* the first of equals */
    fake.properties.limits.timestampPeriod = 0;
    assert_false(read_caps().properties.timestamps);
    fake.families[0].timestampValidBits = 0;
    assert_false(read_caps().properties.timestamps);
    fake.families[0].queueFlags = fake.families[2].queueFlags = VK_QUEUE_GRAPHICS_BIT;
    read_caps();
    assert_int_equal(read_family, UINT32_MAX);

    /* A window of 256 MiB on the memory is not what counts as mapped. */
    fake.memory.memoryHeaps[1] = (VkMemoryHeap){256u << 20, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
    fake.memory.memoryTypes[0] = (VkMemoryType){VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0};
    fake.memory.memoryTypes[1] = (VkMemoryType){MEMORY_MAPPED_FLAGS, 1};
    struct caps caps = read_caps();
    assert_false(caps.properties.mapped_memory);
    assert_int_equal(caps.properties.memory, (8ull << 30) + (256u << 20));
    fake.external = 0;
    assert_false(read_caps().host_import);
}

/* A tensor is one buffer in one allocation, so the smaller of both limits counts. */
static void buffers(void **state)
{
    (void)state;
    assert_int_equal(read_caps().properties.max_allocation, 1u << 31);
    fake.max_buffer = 1u << 30;
    assert_int_equal(read_caps().properties.max_allocation, 1u << 30);
    fake.max_buffer = 1ull << 40;
    assert_int_equal(read_caps().properties.max_allocation, 1u << 31);
    fake.max_buffer = 1u << 30;
    fake.properties.apiVersion = VK_API_VERSION_1_2; /* nobody may ask */
    assert_int_equal(read_caps().properties.max_allocation, 1u << 31);
    fake.extensions[3] = "VK_KHR_maintenance4";
    assert_int_equal(read_caps().properties.max_allocation, 1u << 30);
}

static void matrices(void **state)
{
    (void)state;
    struct caps caps = read_caps();
    const struct vka_device_properties *p = &caps.properties;
    assert_true(caps.matrices && caps.bfloat16_matrices);
    /* The smallest subgroup; fewer registers on Intel's, fewer still in subgroups of 8. */
    assert_int_equal(caps.least_subgroup, 32);
    assert_int_equal(caps.matrix_registers, MATRIX_REGISTERS);
    fake.properties.vendorID = 0x8086;
    fake.size.minSubgroupSize = 16;
    caps = read_caps();
    assert_int_equal(caps.least_subgroup, 16);
    assert_int_equal(caps.matrix_registers, 96);
    fake.size.minSubgroupSize = 8;
    assert_int_equal(read_caps().matrix_registers, 80);
    fake = fake_modern;
    caps = read_caps();
    /* The largest with float32 sums, a subgroup's. */
    assert_memory_equal(&caps.matrix_f16, (&(struct matrix_size){16, 16, 16}), 12);
    assert_memory_equal(&caps.matrix_bf16, (&(struct matrix_size){16, 16, 32}), 12);
    assert_int_equal(p->cooperative_matrix_count, 7);
    assert_string_equal(p->cooperative_matrix[0].types, "f16*f16+f32");
    assert_string_equal(p->cooperative_matrix[4].types, "bf16*bf16+f32");
    assert_string_equal(p->cooperative_matrix[5].types, "s8*u8+f16");
    assert_string_equal(p->cooperative_matrix[6].types, "?*?+f16");
}

/* A long list, whose useful sizes come last, and one that is longer than what is read. */
static void many_matrices(void **state)
{
    (void)state;
    fake.n_before = 100;
    assert_int_equal(read_caps().matrix_f16.k, 16);
    fake.n_before = 1000;
    assert_int_equal(read_caps().matrix_f16.m, 0);
}

/* Sizes that the kernels cannot take. */
static void matrices_of_no_use(void **state)
{
    (void)state;
    static const VkCooperativeMatrixPropertiesKHR none[] = {
        {.MSize = 16, .NSize = 16, .KSize = 4, .CType = 1, .ResultType = 1, .scope = 3},
        {.MSize = 16, .NSize = 16, .KSize = 64, .CType = 1, .ResultType = 1, .scope = 3},
        {.MSize = 16, .NSize = 16, .KSize = 24, .CType = 1, .ResultType = 1, .scope = 3},
        {.MSize = 16, .NSize = 15, .KSize = 16, .CType = 1, .ResultType = 1, .scope = 3},
        {.MSize = 128, .NSize = 16, .KSize = 16, .CType = 1, .ResultType = 1, .scope = 3},
        {.MSize = 16, .NSize = 128, .KSize = 16, .CType = 1, .ResultType = 1, .scope = 3},
        {.MSize = 16, .NSize = 16, .KSize = 16, .CType = 1, .ResultType = 0, .scope = 3},
        {.MSize = 16,
         .NSize = 16,
         .KSize = 16,
         .BType = 1,
         .CType = 1,
         .ResultType = 1,
         .scope = 3},
    };
    memcpy(fake.matrices, none, sizeof none);
    struct caps caps = read_caps();
    assert_int_equal(caps.properties.cooperative_matrix_count, COUNTOF(none));
    assert_int_equal(caps.matrix_f16.m, 0);
    fake = fake_modern;
    fake.matrices[0].saturatingAccumulation = 1;
    fake.n_matrix = 1;
    assert_int_equal(read_caps().matrix_f16.m, 0);
    fake = fake_modern;
    fake.matrices_result = VK_ERROR_OUT_OF_HOST_MEMORY;
    assert_int_equal(read_caps().properties.cooperative_matrix_count, 0);
    fake = fake_modern;
    fake.matrix_stages = VK_SHADER_STAGE_FRAGMENT_BIT;
    caps = read_caps();
    assert_true(!caps.matrices && caps.properties.cooperative_matrix_count == 0);
    fake = fake_modern;
    fake.float16 = 0;
    assert_false(read_caps().matrices);
    fake = fake_modern;
    fake.memory_model = 0;
    assert_false(read_caps().matrices);
    fake = fake_modern;
    fake.device_scope = 0;
    assert_false(read_caps().matrices);
    fake = fake_modern;
    fake.bfloat16_matrix = 0;
    caps = read_caps();
    assert_true(caps.matrices && !caps.bfloat16_matrices);
    fake.matrix = 0;
    caps = read_caps();
    assert_int_equal(caps.properties.cooperative_matrix_count, 0);
}

/* VK_NV_cooperative_matrix2: the smallest size of a subgroup with float32 sums; all its features, and
 * those of Vulkan 1.3 that its modules need. */
static void flexible_matrices(void **state)
{
    (void)state;
    struct caps caps = read_caps();
    assert_true(caps.reduced_nv.flexible);
    assert_memory_equal(&caps.reduced_nv.f16, (&(struct matrix_size){16, 8, 16}), 12);
    assert_memory_equal(&caps.reduced_nv.bf16, (&(struct matrix_size){16, 16, 16}), 12);
    fake.flexibles[1].saturatingAccumulation = 1;
    assert_int_equal(read_caps().reduced_nv.f16.n, 16);
    fake.matrices_result = VK_ERROR_OUT_OF_HOST_MEMORY;
    assert_int_equal(read_caps().reduced_nv.f16.m, 0);
    VkBool32 *const features[] = {&fake.maintenance4, &fake.reductions, &fake.conversions,
                                  &fake.elements, &fake.memory_model};
    for (size_t i = 0; i < COUNTOF(features); i++) {
        fake = fake_modern;
        *features[i] = 0;
        assert_false(read_caps().reduced_nv.usable || read_caps().reduced_nv.flexible);
    }
    fake = fake_modern;
    fake.flexible = 0;
    caps = read_caps();
    assert_true(caps.reduced_nv.usable && !caps.reduced_nv.flexible);
    fake = fake_modern;
    fake.extensions[3] = NULL;
    assert_false(read_caps().reduced_nv.usable);
    fake = fake_modern;
    fake.instance_version = VK_API_VERSION_1_2;
    assert_false(read_caps().reduced_nv.usable);
}

/* ---- What is asked for ----------------------------------------------------------------------- */

static bool asks_for(const struct device_request *request, const char *extension)
{
    bool found = false;
    for (uint32_t i = 0; i < request->n_extension; i++)
        found |= strcmp(request->extensions[i], extension) == 0;
    return found;
}

static uint32_t chained(const struct device_request *request)
{
    uint32_t n = 0;
    for (const VkBaseInStructure *s = request->features.pNext; s; s = s->pNext)
        n++;
    return n;
}

static void request_for(uint32_t version, struct device_request *request)
{
    struct vka_device device = {.instance.api_version = version, .caps = read_caps()};
    device_request_fill(&device, request);
}

static void requests(void **state)
{
    (void)state;
    struct device_request r;
    request_for(VK_API_VERSION_1_3, &r);
    assert_int_equal(chained(&r), 9); /* all but addresses and 8-bit storage */
    assert_int_equal(r.float16.shaderInt8, VK_FALSE);
    assert_true(r.dot.shaderIntegerDotProduct);
    assert_true(asks_for(&r, "VK_KHR_cooperative_matrix") &&
                asks_for(&r, "VK_KHR_shader_bfloat16") &&
                asks_for(&r, "VK_EXT_external_memory_host"));
    assert_true(asks_for(&r, "VK_NV_cooperative_matrix2") && r.maintenance4.maintenance4 &&
                r.matrix2.cooperativeMatrixFlexibleDimensions &&
                r.matrix2.cooperativeMatrixReductions && r.matrix2.cooperativeMatrixConversions &&
                r.matrix2.cooperativeMatrixPerElementOperations);
    assert_int_equal(r.n_extension, 4);
    assert_true(r.bfloat16.shaderBFloat16CooperativeMatrix && r.matrix.cooperativeMatrix &&
                r.memory_model.vulkanMemoryModel && r.memory_model.vulkanMemoryModelDeviceScope &&
                r.float16.shaderFloat16);

    fake.maintained = true;
    request_for(VK_API_VERSION_1_3, &r);
    assert_int_equal(chained(&r), 10);
    assert_ptr_equal(r.matrix2.pNext, &r.matrix_maintenance);
    assert_true(asks_for(&r, "VK_EXT_cooperative_matrix_maintenance1") &&
                r.matrix_maintenance.cooperativeMatrixProperties2 &&
                r.matrix_maintenance.cooperativeMatrixReductions &&
                r.matrix_maintenance.cooperativeMatrixConversions &&
                r.matrix_maintenance.cooperativeMatrixPerElementOperations &&
                !r.matrix_maintenance.cooperativeMatrixGetCoordinate);
    fake.ext_sizes = 0;
    fake.extensions[3] = NULL; /* NVIDIA's */
    request_for(VK_API_VERSION_1_3, &r);
    assert_ptr_equal(r.bfloat16.pNext, &r.matrix_maintenance);
    assert_false(r.matrix_maintenance.cooperativeMatrixProperties2);
    fake = fake_modern;

    /* What a later Vulkan took up is asked for by its extension. */
    fake.properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_CPU;
    request_for(VK_API_VERSION_1_1, &r);
    assert_int_equal(chained(&r), 11);
    assert_int_equal(r.n_extension, 11);
    assert_true(
        asks_for(&r, "VK_KHR_timeline_semaphore") && asks_for(&r, "VK_KHR_buffer_device_address") &&
        asks_for(&r, "VK_EXT_subgroup_size_control") &&
        asks_for(&r, "VK_KHR_vulkan_memory_model") && asks_for(&r, "VK_KHR_shader_float16_int8") &&
        asks_for(&r, "VK_KHR_shader_integer_dot_product") && asks_for(&r, "VK_KHR_8bit_storage"));
    assert_true(r.float16.shaderInt8 && r.storage8.storageBuffer8BitAccess);

    fake.float16 = 0; /* 8-bit integers are of use without it, and not without their storage */
    request_for(VK_API_VERSION_1_1, &r);
    assert_true(r.float16.shaderInt8 && !r.float16.shaderFloat16);
    fake.storage8 = 0;
    request_for(VK_API_VERSION_1_1, &r);
    assert_false(asks_for(&r, "VK_KHR_shader_float16_int8") || asks_for(&r, "VK_KHR_8bit_storage"));
    fake.float16 = 1;
    fake.bfloat16 = fake.timeline = fake.size_control = fake.address = fake.dot = 0;
    fake.external = 0;
    request_for(VK_API_VERSION_1_3, &r);
    assert_int_equal(chained(&r), 5);
    assert_int_equal(r.n_extension, 2);
    fake.matrix = 0; /* float16 arithmetic is of use without them */
    request_for(VK_API_VERSION_1_3, &r);
    assert_int_equal(chained(&r), 1);
    assert_ptr_equal(r.features.pNext, &r.float16);
    assert_true(r.float16.shaderFloat16);
    fake.float16 = 0;
    request_for(VK_API_VERSION_1_3, &r);
    assert_null(r.features.pNext);
    assert_int_equal(r.n_extension, 0);
}

/* A device of Vulkan over another interface is asked for its extension, and no other device is. */
static void portability(void **state)
{
    (void)state;
    struct vka_device device = {.instance.api_version = VK_API_VERSION_1_3};
    struct device_request r;
    for (int offered = 0; offered < 2; offered++) {
        unsigned n = 0;
        fake.extensions[4] = offered ? "VK_KHR_portability_subset" : NULL;
        device.caps = read_caps();
        assert_int_equal(device.caps.portability, offered);
        device_request_fill(&device, &r);
        for (uint32_t i = 0; i < r.n_extension; i++)
            n += strcmp(r.extensions[i], "VK_KHR_portability_subset") == 0;
        assert_int_equal(n, offered);
    }
}

/* Dot products of float16 with float32 sums: read and asked for where a device lists their extension and
 * has that feature of it, and of no use without float16. */
static void mixed_dot(void **state)
{
    static const char name[] = "VK_VALVE_shader_mixed_float_dot_product";
    (void)state;
    struct vka_device device = {.instance.api_version = VK_API_VERSION_1_3};
    struct device_request r;
    for (int offered = 0; offered < 2; offered++)
        for (int has = 0; has < 2; has++) {
            fake.extensions[4] = offered ? name : NULL;
            fake.mixed_dot = (VkBool32)has;
            device.caps = read_caps();
            assert_int_equal(device.caps.mixed_dot, offered && has);
            assert_int_equal(!kernel_missing(KERNEL_matmul_tile_mixed, &device.caps),
                             offered && has);
            device_request_fill(&device, &r);
            assert_int_equal(asks_for(&r, name), offered && has);
            assert_int_equal(chained(&r), 9 + (offered && has));
        }
    assert_true(r.mixed_dot.shaderMixedFloatDotProductFloat16AccFloat32);
    fake.float16 = 0;
    device.caps = read_caps();
    assert_non_null(kernel_missing(KERNEL_matmul_tile_mixed, &device.caps));
    assert_non_null(kernel_missing(KERNEL_matmul_few_mixed, &device.caps));
}

TEST_PROGRAM(device_caps)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(everything, set_up),
        cmocka_unit_test_setup(workgroups, set_up),
        cmocka_unit_test_setup(types, set_up),
        cmocka_unit_test_setup(versions, set_up),
        cmocka_unit_test_setup(subgroups, set_up),
        cmocka_unit_test_setup(queues_and_memory, set_up),
        cmocka_unit_test_setup(buffers, set_up),
        cmocka_unit_test_setup(matrices, set_up),
        cmocka_unit_test_setup(many_matrices, set_up),
        cmocka_unit_test_setup(matrices_of_no_use, set_up),
        cmocka_unit_test_setup(flexible_matrices, set_up),
        cmocka_unit_test_setup(requests, set_up),
        cmocka_unit_test_setup(portability, set_up),
        cmocka_unit_test_setup(mixed_dot, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
