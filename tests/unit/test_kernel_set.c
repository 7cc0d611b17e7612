/* Sets of more kernels than a word has bits, at the ends of each word. SPDX-License-Identifier: MIT */
#define KERNEL_SET_MEMBERS 200
#include "core/status.h"
#include "gpu/kernel_set.h"
#include "test_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static const uint32_t edges[] = {0, 1, 62, 63, 64, 65, 127, 128, 191, 192, 198, 199};

static size_t count(struct kernel_set set)
{
    size_t n = 0;
    for (uint32_t k = 0; k < KERNEL_SET_MEMBERS; k++)
        n += set_has(set, k);
    return n;
}

static void one_member(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTOF(edges); i++) {
        struct kernel_set set = NO_KERNELS;
        assert_true(set_is_empty(set));
        set_add(&set, edges[i]);
        set_add(&set, edges[i]);
        assert_true(set_has(set, edges[i]) && count(set) == 1);
        assert_false(set_is_empty(set));
        assert_true(set_is_equal(set, KERNEL_SET(edges[i])));
        assert_true(count(set_all_but(set)) == KERNEL_SET_MEMBERS - 1);
        assert_false(set_has(set_all_but(set), edges[i]));
        assert_true(set_is_equal(set_all_but(set_all_but(set)), set));
        assert_true(set_is_empty(set_minus(set, set)));
    }
}

/* Multiples of two and of three: which share those of six, in every word. */
static void two_sets(void **state)
{
    (void)state;
    struct kernel_set twos = NO_KERNELS, threes = NO_KERNELS;
    for (uint32_t k = 0; k < KERNEL_SET_MEMBERS; k++) {
        if (k % 2 == 0)
            set_add(&twos, k);
        if (k % 3 == 0)
            set_add(&threes, k);
    }
    const struct kernel_set either = set_union(twos, threes), first = set_minus(twos, threes);
    struct kernel_set joined = first;
    set_join(&joined, threes);
    for (uint32_t k = 0; k < KERNEL_SET_MEMBERS; k++) {
        assert_true(set_has(either, k) == (k % 2 == 0 || k % 3 == 0));
        assert_true(set_has(first, k) == (k % 2 == 0 && k % 3 != 0));
    }
    assert_true(set_is_equal(joined, either));
    assert_true(set_meets(twos, threes) && !set_meets(first, threes));
    assert_true(set_meets(KERNEL_SET(5, 199), KERNEL_SET(7, 199)));
    assert_false(set_meets(KERNEL_SET(5, 71), KERNEL_SET(7, 135))); /* the same bits elsewhere */
    assert_false(set_is_equal(KERNEL_SET(5), KERNEL_SET(5, 199)));
}

TEST_PROGRAM(kernel_set)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_member), cmocka_unit_test(two_sets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
