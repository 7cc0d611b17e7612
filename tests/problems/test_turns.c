/* Types by turns: one of each family at a landing, each type at some landing, all where no number is
 * given. Needs no Vulkan device. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "test_program.h"
#include "turns.h"

#define MOST 8u /* no family has more types */

static void set_turn(uint32_t turn)
{
    char text[16];
    snprintf(text, sizeof text, "%u", turn);
    assert_int_equal(setenv("VKATTN_TEST_TURN", text, 1), 0);
}

/* The types of the family of `type` that are taken in a turn. */
static uint32_t taken_of_family(enum vka_dtype type, bool (*is)(enum vka_dtype dtype))
{
    uint32_t n = 0;
    for (EACH_TURN(other, is))
        n += turn_decoder(other) == turn_decoder(type);
    return n;
}

static void one_of_each_family(void **state)
{
    bool (*const kinds[])(enum vka_dtype) = {dtype_is_quantised, dtype_is_block, dtype_has_integers,
                                             dtype_has_cpu_kernels};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (EACH_TYPE(type, kinds[i])) {
            uint32_t turns = 0;
            for (uint32_t turn = 0; turn < MOST; turn++) {
                set_turn(turn);
                assert_int_equal(taken_of_family(type, kinds[i]), 1);
                turns += turn_takes(type, kinds[i]);
            }
            assert_true(turns >= 1);
        }
}

/* Some of their families have no type that CPU kernels read. */
static void none_of_another_kind(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < MOST; turn++) {
        set_turn(turn);
        for (EACH_TYPE(type, dtype_is_block))
            if (!dtype_has_cpu_kernels(type))
                assert_false(turn_takes(type, dtype_has_cpu_kernels));
    }
}

/* A landing takes fewer than half of the types, and no family is all of them. */
static void fewer(void **state)
{
    uint32_t all = 0, taken = 0;
    (void)state;
    set_turn(3);
    for (EACH_TYPE(type, dtype_is_block))
        all++;
    for (EACH_TURN(type, dtype_is_block))
        taken++;
    print_message("%u of %u types of blocks\n", taken, all);
    assert_true(taken >= 8 && 2 * taken < all);
    assert_int_equal(turn_of(3), 0);
    assert_int_equal(turn_of(2), 1);
}

static void without_a_number(void **state)
{
    (void)state;
    assert_int_equal(setenv("VKATTN_TEST_TURN", "", 1), 0);
    for (EACH_TYPE(type, dtype_is_quantised))
        assert_true(turn_takes(type, dtype_is_quantised));
    assert_int_equal(turn_of(5), 5);
}

TEST_PROGRAM(turns)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_of_each_family),
                                       cmocka_unit_test(none_of_another_kind),
                                       cmocka_unit_test(fewer), cmocka_unit_test(without_a_number)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
