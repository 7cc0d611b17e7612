/* The type of an operation's own intermediate values, by devices and operands.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "core/inner.h"
#include "test_program.h"

static struct vka_device_properties device_of(enum vka_device_type type, const char *types)
{
    struct vka_device_properties device = {.type = type, .cooperative_matrix_count = 2};
    strcpy(device.cooperative_matrix[0].types, "s8*s8+s32");
    strcpy(device.cooperative_matrix[1].types, types);
    return device;
}

static void by_device(void **state)
{
    const struct vka_device_properties f16 = device_of(VKA_DEVICE_DISCRETE, "f16*f16+f32"),
                                       bf16 = device_of(VKA_DEVICE_INTEGRATED, "bf16*bf16+f32"),
                                       narrow = device_of(VKA_DEVICE_DISCRETE,
                                                          "f16*f16+f16"), /* sums of 16 bits */
        cpu = device_of(VKA_DEVICE_CPU, "f16*f16+f32"), none = {.type = VKA_DEVICE_DISCRETE};
    (void)state;
    assert_true(inner_has_matrices(&f16, VKA_F16));
    assert_false(inner_has_matrices(&f16, VKA_BF16));
    assert_false(inner_has_matrices(&bf16, VKA_F16));
    assert_true(inner_has_matrices(&bf16, VKA_BF16));
    assert_false(inner_has_matrices(&f16, VKA_F32));
    assert_false(inner_has_matrices(&f16, VKA_Q8_0));
    assert_false(inner_has_matrices(&narrow, VKA_F16));
    assert_false(inner_has_matrices(&cpu, VKA_F16));
    assert_false(inner_has_matrices(&none, VKA_F16));
}

/* One operand of another type keeps float32. */
static void by_operands(void **state)
{
    const struct vka_device_properties device = device_of(VKA_DEVICE_DISCRETE, "f16*f16+f32");
    static const enum vka_dtype others[] = {VKA_F32, VKA_BF16, VKA_I8, VKA_Q4_0};
    enum vka_dtype types[5] = {VKA_F16, VKA_F16, VKA_F16, VKA_F16, VKA_F16};
    (void)state;
    assert_int_equal(inner_dtype(&device, types, 5), VKA_F16);
    assert_int_equal(inner_dtype(&device, types, 1), VKA_F16);
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 4; j++) {
            types[i] = others[j];
            assert_int_equal(inner_dtype(&device, types, 5), VKA_F32);
            types[i] = VKA_F16;
        }
    for (size_t i = 0; i < 5; i++)
        types[i] = VKA_F32;
    assert_int_equal(inner_dtype(&device, types, 5), VKA_F32);
}

TEST_PROGRAM(inner)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_device),
        cmocka_unit_test(by_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
