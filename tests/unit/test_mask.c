/* How masks broadcast, against numpy's rule written out for every element.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "core/mask.h"
#include "core/status.h"
#include "test_program.h"

static const uint32_t full[4] = {2, 3, 4, 5}; /* [batch][n_head][n_q][n_kv] */

/* The axis of full[] that a mask of this rank and size breaks, from the left; 4: none. */
static uint32_t broken_axis(uint32_t rank, const uint32_t *size)
{
    uint32_t lead = 4 - rank;
    for (uint32_t i = 0; i < rank; i++) {
        uint32_t axis = lead + i, n = size[i];
        bool fits = axis == 3 ? n <= full[3] : n == 1 || n == full[axis];
        if (!fits)
            return axis;
    }
    return 4;
}

/* Where the mask's element for (b, h, i, j) lies: missing and single axes are not stepped. */
static uint64_t address_of(const struct shape *mask, const uint32_t index[4])
{
    uint64_t address = 0;
    for (uint32_t i = 0; i < mask->rank; i++)
        if (mask->size[i] != 1)
            address += mask->stride[i] * index[4 - mask->rank + i];
    return address;
}

static void check(const struct shape *mask, unsigned *good, unsigned *bad)
{
    static const char *const words[] = {"batch axis", "head axis", "query axis", "last axis"};
    uint64_t stride[4];
    uint32_t n_kv = 0, axis = broken_axis(mask->rank, mask->size);
    const char *wrong = mask_broadcast(mask, full, stride, &n_kv);
    if (axis < 4) {
        assert_non_null(wrong);
        assert_non_null(strstr(wrong, words[axis]));
        ++*bad;
        return;
    }
    assert_null(wrong);
    ++*good;
    uint32_t last = mask->size[mask->rank - 1];
    assert_int_equal(n_kv, last == 1 ? full[3] : last);
    for (uint32_t e = 0; e < full[0] * full[1] * full[2] * n_kv; e++) {
        const uint32_t index[4] = {e / n_kv / full[2] / full[1], e / n_kv / full[2] % full[1],
                                   e / n_kv % full[2], e % n_kv};
        uint64_t got = 0;
        for (uint32_t i = 0; i < 4; i++)
            got += stride[i] * index[i];
        assert_int_equal(got, address_of(mask, index));
    }
}

/* Every rank, and every axis from 1 to one more than full, dense and with odd strides. */
static void all_shapes(void **state)
{
    (void)state;
    unsigned good = 0, bad = 0;
    for (uint32_t rank = 1; rank <= 4; rank++) {
        uint32_t size[4] = {1, 1, 1, 1};
        for (;;) {
            struct shape mask;
            assert_true(shape_dense(rank, size, &mask));
            check(&mask, &good, &bad);
            for (uint32_t i = 0; i < rank; i++)
                mask.stride[i] = mask.stride[i] * 3 + 7 * i;
            mask.stride[0] = 0; /* a view that repeats */
            check(&mask, &good, &bad);
            uint32_t i = rank;
            while (i > 0 && size[i - 1] == full[4 - rank + i - 1] + 1)
                size[--i] = 1;
            if (i == 0)
                break;
            size[i - 1]++;
        }
    }
    printf("masks: %u broadcast, %u do not\n", good, bad);
    /* Dense and strided: 5 of rank 1, 2 x 5, 2 x 2 x 5 and 2 x 2 x 2 x 5. */
    assert_int_equal(good, 2 * (5 + 10 + 20 + 40));
    assert_int_equal(bad, 2 * (6 + 5 * 6 + 4 * 5 * 6 + 3 * 4 * 5 * 6) - good);
}

static void single_key(void **state)
{
    (void)state;
    /* With one key, a last axis of 1 is both the whole axis and a broadcast. */
    const uint32_t one[4] = {2, 3, 4, 1};
    struct shape mask = {.rank = 2, .size = {4, 1}, .stride = {6, 2}};
    uint64_t stride[4];
    uint32_t n_kv = 0;
    assert_null(mask_broadcast(&mask, one, stride, &n_kv));
    assert_int_equal(n_kv, 1);
    assert_int_equal(stride[2], 6);
    assert_int_equal(stride[0] + stride[1], 0);
}

TEST_PROGRAM(mask)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_shapes),
        cmocka_unit_test(single_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
