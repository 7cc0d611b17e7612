/* The table of element types. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <cmocka.h>

#include "core/convert.h"
#include "core/dtype.h"
#include "core/status.h"
#include "params/types.h"
#include "test_program.h"
#include <reference/reference.h>

/* Some rows of the table; of all, that the name is the enumerator's. */
static void table(void **state)
{
    (void)state;
    static const struct {
        enum vka_dtype dtype;
        const char *name;
        size_t size;
        bool is_float, is_quantised, is_block, is_scaled;
        uint32_t word_values;
    } some[] = {
        {VKA_F32, "f32", 4, true, false, false, false, 1},
        {VKA_BF16, "bf16", 2, true, false, false, false, 2},
        {VKA_I32, "i32", 4, false, false, false, false, 0},
        {VKA_BOOL, "bool", 1, false, false, false, false, 0},
        {VKA_I8, "i8", 1, false, true, false, false, 0},
        {VKA_Q8_0, "q8_0", 0, false, true, true, true, 4},
        {VKA_Q4_0, "q4_0", 0, false, true, true, true, 8},
        {VKA_Q6_K, "q6_K", 0, false, true, true, false, 0},
        {VKA_I4_G128, "i4_g128", 0, false, true, true, false, 0},
        {VKA_F8_E4M3, "f8_e4m3", 1, false, false, false, true, 4},
        {VKA_F8_E4M3_G64, "f8_e4m3_g64", 0, false, true, true, false, 0},
    };
    for (size_t i = 0; i < COUNTOF(some); i++) {
        assert_string_equal(vka_dtype_name(some[i].dtype), some[i].name);
        assert_int_equal(vka_dtype_size(some[i].dtype), some[i].size);
        assert_int_equal(dtype_is_float(some[i].dtype), some[i].is_float);
        assert_int_equal(dtype_is_quantised(some[i].dtype), some[i].is_quantised);
        assert_int_equal(dtype_has_integers(some[i].dtype),
                         some[i].is_quantised && some[i].dtype != VKA_F8_E4M3_G64);
        assert_int_equal(dtype_is_block(some[i].dtype), some[i].is_block);
        assert_int_equal(dtype_is_scaled(some[i].dtype), some[i].is_scaled);
        assert_int_equal(dtype_word_values(some[i].dtype), some[i].word_values);
    }
#define SAME_NAME(a, id, NAME, ...)                                     \
    assert_int_equal(strcasecmp(vka_dtype_name(VKA_##NAME), #NAME), 0); \
    assert_true(dtype_is_valid(VKA_##NAME));
    TYPES(SAME_NAME, SAME_NAME, )
    assert_int_equal(VKA_F32, 0); /* the default of every info struct */
    char cached[256] = "";
    for (int dtype = 0; dtype < VKA_DTYPE_COUNT; dtype++)
        if (dtype_word_values((enum vka_dtype)dtype))
            snprintf(cached + strlen(cached), sizeof cached - strlen(cached), "%s%s",
                     cached[0] ? ", " : "", vka_dtype_name((enum vka_dtype)dtype));
    assert_string_equal(dtype_cached_names(), cached);
    assert_true(dtype_has_hadamard(VKA_Q4_0) && !dtype_has_hadamard(VKA_Q8_0));
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
