/* The table of element types. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "core/dtype.h"
#include "core/status.h"

static void table(void **state)
{
    (void)state;
    static const struct {
        enum vka_dtype dtype;
        const char *name;
        size_t size;
        bool is_float;
    } rows[] = {
        {VKA_F32, "f32", 4, true},  {VKA_F16, "f16", 2, true},    {VKA_BF16, "bf16", 2, true},
        {VKA_I32, "i32", 4, false}, {VKA_BOOL, "bool", 1, false},
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
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),
        cmocka_unit_test(unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
