/* Others take the place of kernels that a driver gets wrong. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "kernel/matmul.h"
#include "test_program.h"
#include "self_test_case.h"

static bool is_like(enum kernel kernel, const char *family)
{
    return strncmp(kernel_table[kernel].name, family, strlen(family)) == 0;
}

/* A layer on a path: its error. */
static double run_layer(struct vka_device *device, enum vka_path path)
{
    static const struct layer_case small = {"small",           .batch = 1,    .n_q = 37,
                                            .n_head = 2,       .head_dim = 8, .query_dim = 16,
                                            .biases = BIAS_ALL};
    struct layer_rig rig;
    rig_create(&rig, device, &small, 5);
    struct vka_plan *plan = rig_plan(&rig, VKA_INFO(vka_plan_info, .path = path));
    double error = rig_run(&rig, plan);
    vka_plan_destroy(&plan);
    rig_destroy(&rig);
    return error;
}

/* Takes one kernel of the family after the other away, as the rules come to it, until none is left;
 * up to there the layer is right. */
static void take_away(enum vka_path path, const char *family)
{
    struct vka_device *device = open_device(NULL, 0, false, NULL);
    struct kernel_set broken = NO_KERNELS, kernels;
    size_t n = 0;
    enum vka_status status;
    while ((status = try_layer(device, path, &kernels)) == VKA_OK) {
        assert_false(set_meets(kernels, broken));
        assert_true(run_layer(device, path) <= LAYER_NMSE);
        size_t before = n;
        for (int k = 0; k < KERNEL_COUNT; k++)
            if (set_has(kernels, k) && is_like((enum kernel)k, family)) {
                set_add(&broken, k);
                n++;
            }
        assert_true(n > before);
        vka_device_destroy(&device);
        device = open_device(NULL, 0, false, NULL);
        miscompile(device, MISTAKE_NO_WORK, broken);
    }
    assert_int_equal(status, VKA_UNSUPPORTED);
    assert_non_null(strstr(vka_device_error(device), "failed its self-test"));
    print_message("%s: %zu kernels, then: %s\n", family, n, vka_device_error(device));
    assert_true(n >= 1);
    vka_device_destroy(&device);
}

/* Weights are packed for the kernel of their day: others take their rows again. */
static void packed_for_another(void **state)
{
    (void)state;
    struct vka_device *device = open_device(NULL, 0, false, NULL);
    const struct kernel_set gone = KERNEL_SET(KERNEL_matmul_address, KERNEL_matmul_texel);
    struct kernel_set kernels;
    enum vka_status status = try_layer_without(device, VKA_PATH_UNFUSED, gone, &kernels);
    assert_int_equal(status, VKA_OK);
    assert_false(set_meets(kernels, gone));
    vka_device_destroy(&device);
}

static void others_take_over(void **state)
{
    (void)state;
    struct vka_device *device = open_device(NULL, 0, false, NULL);
    bool narrow = device->caps.properties.subgroup_size < 8;
    vka_device_destroy(&device);
    take_away(VKA_PATH_UNFUSED, "softmax_");
    take_away(VKA_PATH_FUSED, "attention_");
    if (!narrow) /* else it is the turn of the kernel that is not tried */
        take_away(VKA_PATH_UNFUSED, "matmul_");
}

static void none_is_left(void **state)
{
    (void)state;
    struct vka_device *device = open_device(NULL, 0, false, NULL);
    struct kernel_set kernels;
    if (device->caps.properties.subgroup_size >= 8) {
        miscompile(device, MISTAKE_NO_WORK, set_all_but(NO_KERNELS));
        assert_int_equal(vka_device_self_test(device), VKA_OK);
        assert_int_equal(try_layer(device, VKA_PATH_AUTO, &kernels), VKA_UNSUPPORTED);
        assert_non_null(strstr(vka_device_error(device), "failed its self-test"));
    }
    vka_device_destroy(&device);
}

/* The state of attention by blocks has room for the kernel that will be taken, not for one that
 * fails. */
static void state_is_of_the_right_kernel(void **state)
{
    (void)state;
    const uint32_t q_shape[] = {1, 2, 200, 16}, kv_shape[] = {1, 2, 128, 16};
    struct kernel_set broken = NO_KERNELS;
    for (size_t n = 0; n < KERNEL_COUNT; n++) {
        struct vka_device *device = open_device(NULL, 0, false, NULL);
        struct vka_tensor *q = NULL, *k = NULL, *sums = NULL, *out = NULL;
        struct vka_plan *plan = NULL;
        uint64_t count = 0;
        miscompile(device, MISTAKE_NO_WORK, broken);
        assert_int_equal(vka_tensor_create(device, VKA_F32, 4, q_shape, &q), VKA_OK);
        assert_int_equal(vka_tensor_create(device, VKA_F32, 4, kv_shape, &k), VKA_OK);
        assert_int_equal(vka_tensor_create(device, VKA_F32, 4, q_shape, &out), VKA_OK);
        assert_int_equal(vka_plan_create(device,
                                         VKA_INFO(vka_plan_info, .path = VKA_PATH_FUSED,
                                                  .whole_n_q = 1u << 20), /* else GPUs split keys */
                                         &plan),
                         VKA_OK);
        struct vka_attention_op op = {
            .struct_size = sizeof op, .q = q, .k = k, .v = k, .output = out, .n_key = 256};
        assert_int_equal(vka_plan_attention_state(plan, &op, &count), VKA_OK);
        if (count) {
            assert_int_equal(
                vka_tensor_create(device, VKA_F32, 1, (const uint32_t[]){(uint32_t)count}, &sums),
                VKA_OK);
            op.state = sums;
            assert_int_equal(vka_plan_add_attention(plan, &op), VKA_OK);
            enum kernel taken = plan->passes[0].key.kernel;
            print_message("%s: %llu floats\n", kernel_table[taken].name, (unsigned long long)count);
            assert_false(set_has(broken, taken));
            set_add(&broken, taken);
        }
        vka_plan_destroy(&plan);
        vka_tensor_destroy(&sums);
        vka_tensor_destroy(&out);
        vka_tensor_destroy(&k);
        vka_tensor_destroy(&q);
        vka_device_destroy(&device);
        if (!count)
            break;
    }
    assert_false(set_is_empty(broken));
}

TEST_PROGRAM(self_test_rules)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_take_over),
        cmocka_unit_test(packed_for_another),
        cmocka_unit_test(none_is_left),
        cmocka_unit_test(state_is_of_the_right_kernel),
    };
    if (!have_device("other kernels than those that fail"))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
