/* The table of element types. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "core/convert.h"
#include "core/dtype.h"
#include "core/status.h"
#include "test_program.h"
#include <reference/reference.h>

static void table(void **state)
{
    (void)state;
    static const struct {
        enum vka_dtype dtype;
        const char *name;
        size_t size;
        bool is_float;
    } rows[] = {
        {VKA_F32, "f32", 4, true},          {VKA_F16, "f16", 2, true},
        {VKA_BF16, "bf16", 2, true},        {VKA_I32, "i32", 4, false},
        {VKA_BOOL, "bool", 1, false},       {VKA_I8, "i8", 1, false},
        {VKA_Q8_0, "q8_0", 0, false},       {VKA_Q4_0, "q4_0", 0, false},
        {VKA_Q4_1, "q4_1", 0, false},       {VKA_Q5_0, "q5_0", 0, false},
        {VKA_Q4_K, "q4_K", 0, false},       {VKA_Q6_K, "q6_K", 0, false},
        {VKA_MXFP4, "mxfp4", 0, false},     {VKA_I4_G128, "i4_g128", 0, false},
        {VKA_F8_E4M3, "f8_e4m3", 1, false},
    };
    assert_int_equal(COUNTOF(rows), VKA_DTYPE_COUNT);
    for (size_t i = 0; i < COUNTOF(rows); i++) {
        assert_string_equal(vka_dtype_name(rows[i].dtype), rows[i].name);
        assert_int_equal(vka_dtype_size(rows[i].dtype), rows[i].size);
        assert_int_equal(dtype_is_float(rows[i].dtype), rows[i].is_float);
        assert_true(dtype_is_valid(rows[i].dtype));
    }
    assert_int_equal(VKA_F32, 0); /* the default of every info struct */
}

static void unknown(void **state)
{
    (void)state;
    const int values[] = {VKA_DTYPE_COUNT, VKA_DTYPE_COUNT + 1, 255, -1, INT32_MAX};
    for (size_t i = 0; i < COUNTOF(values); i++) {
        enum vka_dtype dtype = (enum vka_dtype)values[i];
        assert_false(dtype_is_valid(dtype));
        assert_false(dtype_is_float(dtype));
        assert_int_equal(vka_dtype_size(dtype), 0);
        assert_string_equal(vka_dtype_name(dtype), "unknown");
        uint32_t n = 1, bytes = 1;
        assert_int_equal(vka_dtype_block(dtype, &n, &bytes), VKA_INVALID);
        assert_true(n == 0 && bytes == 0);
    }
}

/* All float16, from float32 and back, and all midpoints between neighbours. */
static void to_f16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint16_t bits = (uint16_t)h;
        float x = dtype_to_float(&bits, 0, VKA_F16);
        if (x != x) {
            assert_int_equal(dtype_to_f16(x) & 0x7e00, 0x7e00);
            continue;
        }
        assert_int_equal(dtype_to_f16(x), h);
        for (int e = -30; e < 40 && (h & 0x7fff) < 0x7c00; e++) {
            float y = x * (1 + (float)e / 65536.0f);
            assert_int_equal(dtype_to_f16(y), ref_to_f16((double)y));
        }
    }
}

TEST_PROGRAM(dtype)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),
        cmocka_unit_test(unknown),
        cmocka_unit_test(to_f16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
