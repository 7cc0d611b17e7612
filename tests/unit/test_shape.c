/* Shapes: bounds and overflow; reshape of strided shapes and shared memory against every index.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "core/overlap.h"
#include "core/shape.h"
#include "core/status.h"
#include "test_program.h"

#define SIZES(...)     \
    (const uint32_t[]) \
    {                  \
        __VA_ARGS__    \
    }

static void dense(void **state)
{
    (void)state;
    struct shape s = {.offset = 99, .stride = {7, 7, 7, 7}};
    assert_true(shape_dense(3, SIZES(2, 3, 5), &s));
    assert_int_equal(s.rank, 3);
    assert_int_equal(s.offset, 0);
    assert_memory_equal(s.size, SIZES(2, 3, 5), 3 * sizeof *s.size);
    assert_int_equal(s.stride[0], 15);
    assert_int_equal(s.stride[1], 5);
    assert_int_equal(s.stride[2], 1);
    assert_int_equal(shape_count(&s), 30);
    assert_int_equal(shape_extent(&s), 30);
    assert_true(shape_is_dense(&s));
}

static void dense_refuses(void **state)
{
    (void)state;
    struct shape s;
    assert_false(shape_dense(0, SIZES(1), &s));
    assert_false(shape_dense(5, SIZES(1, 1, 1, 1, 1), &s));
    assert_false(shape_dense(UINT32_MAX, SIZES(1), &s));
    for (uint32_t axis = 0; axis < 4; axis++) {
        uint32_t size[] = {2, 3, 4, 5};
        size[axis] = 0;
        assert_false(shape_dense(4, size, &s));
    }
    /* 2^48 elements are the most, wherever the last one too many stands. */
    assert_true(shape_dense(3, SIZES(1u << 16, 1u << 16, 1u << 16), &s));
    assert_int_equal(shape_count(&s), 1ull << 48);
    assert_true(shape_dense(2, SIZES(1u << 31, 1u << 17), &s));
    assert_false(shape_dense(2, SIZES((1u << 31) + 1, 1u << 17), &s));
    assert_false(shape_dense(3, SIZES(1u << 16, (1u << 16) + 1, 1u << 16), &s));
    assert_false(shape_dense(4, SIZES(2, 1u << 16, 1u << 16, 1u << 16), &s));
    assert_false(shape_dense(4, SIZES(1u << 16, 1u << 16, 1u << 16, 2), &s));
    assert_false(shape_dense(2, SIZES(UINT32_MAX, UINT32_MAX), &s)); /* wraps to 1 in 64 bits */
    assert_false(shape_dense(4, SIZES(UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX), &s));
}

static void extent(void **state)
{
    (void)state;
    struct shape s = {.rank = 2, .size = {3, 4}, .stride = {10, 2}};
    assert_int_equal(shape_extent(&s), 2 * 10 + 3 * 2 + 1);
    s.stride[0] = 0;
    assert_int_equal(shape_extent(&s), 3 * 2 + 1);
    s = (struct shape){.rank = 2, .size = {1, 4}, .stride = {UINT64_MAX, 1}};
    assert_int_equal(shape_extent(&s), 4); /* an axis of 1 never steps */
}

static void extent_overflow(void **state)
{
    (void)state;
    struct shape s = {.rank = 1, .size = {2}, .stride = {UINT64_MAX - 1}};
    assert_true(shape_extent(&s) == UINT64_MAX); /* the largest that fits: the same number */
    s.stride[0] = UINT64_MAX;
    assert_true(shape_extent(&s) == UINT64_MAX);
    s = (struct shape){.rank = 1, .size = {3}, .stride = {1ull << 63}};
    assert_true(shape_extent(&s) == UINT64_MAX); /* 2^64 wraps to 1 */
    s = (struct shape){.rank = 2, .size = {2, 2}, .stride = {1ull << 63, 1ull << 63}};
    assert_true(shape_extent(&s) == UINT64_MAX);
    s = (struct shape){.rank = 2, .size = {UINT32_MAX, 2}, .stride = {1ull << 32, 1ull << 34}};
    assert_true(shape_extent(&s) == UINT64_MAX);
    s = (struct shape){.rank = 2, .size = {2, 2}, .stride = {1ull << 62, 1ull << 63}};
    assert_true(shape_extent(&s) == (1ull << 62) + (1ull << 63) + 1);
}

static void is_dense(void **state)
{
    (void)state;
    const struct {
        struct shape shape;
        bool dense;
    } rows[] = {
        {{.rank = 2, .size = {2, 3}, .stride = {3, 1}}, true},
        {{.rank = 2, .size = {2, 3}, .stride = {3, 1}, .offset = 8}, true},
        {{.rank = 2, .size = {2, 3}, .stride = {1, 2}}, false},
        {{.rank = 2, .size = {2, 3}, .stride = {4, 1}}, false},
        {{.rank = 2, .size = {1, 3}, .stride = {77, 1}}, true},
        {{.rank = 3, .size = {2, 1, 3}, .stride = {3, 0, 1}}, true},
        {{.rank = 2, .size = {2, 3}, .stride = {0, 1}}, false},
        {{.rank = 1, .size = {4}, .stride = {2}}, false},
        {{.rank = 1, .size = {1}, .stride = {2}}, true},
    };
    for (size_t i = 0; i < COUNTOF(rows); i++)
        assert_int_equal(shape_is_dense(&rows[i].shape), rows[i].dense);
}

/* ---- Reshape against every index ------------------------------------------------------------- */

#define MOST_ELEMENTS 64

static uint32_t random_state = 20240917;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 16) % n;
}

/* Where each element of a shape lies, in row-major order. */
static size_t addresses_of(const struct shape *s, uint64_t address[MOST_ELEMENTS])
{
    size_t n = (size_t)shape_count(s);
    assert_in_range(n, 1, MOST_ELEMENTS);
    for (size_t e = 0; e < n; e++) {
        size_t rest = e;
        address[e] = s->offset;
        for (uint32_t i = s->rank; i-- > 0; rest /= s->size[i])
            address[e] += rest % s->size[i] * s->stride[i];
    }
    return n;
}

/* A permuted, sliced, padded or broadcast shape of small axes, many of them 1. */
static struct shape random_shape(void)
{
    static const uint32_t sizes[] = {1, 1, 2, 2, 3, 4, 6};
    struct shape s = {.rank = 1 + below(4), .offset = below(10)};
    uint64_t step = 1 + below(2);
    uint32_t order[4] = {0, 1, 2, 3}, count = 1;
    for (uint32_t i = 0; i < s.rank; i++) {
        s.size[i] = sizes[below(COUNTOF(sizes))];
        count *= s.size[i];
        if (below(3) == 0) { /* mostly row-major, so that many reshapes are possible */
            uint32_t j = below(s.rank), swap = order[i];
            order[i] = order[j];
            order[j] = swap;
        }
    }
    if (count > MOST_ELEMENTS)
        return random_shape();
    for (uint32_t i = s.rank, pick; i-- > 0;) {
        pick = order[i] < s.rank ? order[i] : i;
        s.stride[pick] = step;
        step *= s.size[pick];
        if (below(6) == 0)
            step += 1 + below(5); /* padding */
        if (below(12) == 0)
            s.stride[pick] = 0; /* broadcast */
        if (s.size[pick] == 1)
            s.stride[pick] = below(100); /* means nothing */
    }
    return s;
}

/* Whether any strides give these elements under the new sizes: each axis must step evenly. */
static bool can_reshape(const uint64_t *address, uint32_t rank, const uint32_t *size)
{
    struct shape want;
    uint64_t got[MOST_ELEMENTS];
    assert_true(shape_dense(rank, size, &want));
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t next = want.size[i] == 1 ? 0 : want.stride[i];
        want.stride[i] = address[next] - address[0];
    }
    want.offset = address[0];
    size_t n = addresses_of(&want, got);
    return memcmp(got, address, n * sizeof *got) == 0;
}

struct tally {
    unsigned possible, impossible;
};

static void check_reshape(const struct shape *from, uint32_t rank, const uint32_t *size,
                          struct tally *tally)
{
    uint64_t address[MOST_ELEMENTS], got[MOST_ELEMENTS];
    struct shape to;
    size_t n = addresses_of(from, address);
    bool possible = can_reshape(address, rank, size);
    char text[SHAPE_TEXT];
    if (shape_reshape(from, rank, size, &to) != possible)
        fail_msg("%s with strides %u %u %u %u: reshape to rank %u is%s possible",
                 shape_text(from, text), (unsigned)from->stride[0], (unsigned)from->stride[1],
                 (unsigned)from->stride[2], (unsigned)from->stride[3], rank,
                 possible ? "" : " not");
    tally->possible += possible;
    tally->impossible += !possible;
    if (!possible)
        return;
    assert_int_equal(to.rank, rank);
    assert_memory_equal(to.size, size, rank * sizeof *size);
    assert_int_equal(addresses_of(&to, got), n);
    assert_memory_equal(got, address, n * sizeof *got);
}

/* Every shape of up to four axes with the same count, axes of 1 included. */
static void all_targets(const struct shape *from, uint32_t rank, uint32_t *size, uint32_t left,
                        struct tally *tally)
{
    if (rank > 0 && left == 1)
        check_reshape(from, rank, size, tally);
    if (rank == VKA_MAX_RANK)
        return;
    for (uint32_t n = 1; n <= left; n++)
        if (left % n == 0) {
            size[rank] = n;
            all_targets(from, rank + 1, size, left / n, tally);
        }
}

static void reshape(void **state)
{
    (void)state;
    struct tally tally = {0};
    for (int i = 0; i < 3000; i++) {
        uint32_t size[VKA_MAX_RANK];
        struct shape from = random_shape();
        all_targets(&from, 0, size, (uint32_t)shape_count(&from), &tally);
    }
    printf("reshapes: %u possible, %u impossible\n", tally.possible, tally.impossible);
    assert_in_range(tally.possible, 10000, UINT32_MAX);
    assert_in_range(tally.impossible, 10000, UINT32_MAX);
}

static void reshape_refuses(void **state)
{
    (void)state;
    struct shape from, to;
    assert_true(shape_dense(2, SIZES(4, 6), &from));
    assert_false(shape_reshape(&from, 1, SIZES(23), &to));
    assert_false(shape_reshape(&from, 1, SIZES(25), &to));
    assert_false(shape_reshape(&from, 3, SIZES(2, 2, 5), &to));
    assert_false(shape_reshape(&from, 2, SIZES(0, 24), &to));
    assert_false(shape_reshape(&from, 0, SIZES(24), &to));
    assert_false(shape_reshape(&from, 5, SIZES(24, 1, 1, 1, 1), &to));
    /* The product wraps to 24 modulo 2^32. */
    assert_false(shape_reshape(&from, 2, SIZES(1u << 31, (1u << 31) + 12), &to));
}

/* ---- Shared memory against every byte -------------------------------------------------------- */

#define MEMORY 4096 /* bytes that the small views below may reach */

/* Sets a bit in every byte of a view; whether one of them had the bit `other` before. */
static bool mark(unsigned char *memory, const struct placed_shape *view, unsigned char bit,
                 unsigned char other)
{
    uint64_t address[MOST_ELEMENTS];
    const size_t n = addresses_of(view->shape, address);
    bool met = false;
    for (size_t e = 0; e < n; e++) {
        const uint64_t at = view->first + (address[e] - view->shape->offset) * view->size;
        assert_in_range(at + view->size, 1, MEMORY);
        for (uint64_t byte = at; byte < at + view->size; byte++) {
            met = met || memory[byte] & other;
            memory[byte] |= bit;
        }
    }
    return met;
}

static const char *describe(const struct placed_shape *view, char text[160])
{
    int used = snprintf(text, 160, "%u bytes at %u", (unsigned)view->size, (unsigned)view->first);
    for (uint32_t i = 0; i < view->shape->rank; i++)
        used += snprintf(text + used, 160 - (size_t)used, ", %u x %u", view->shape->size[i],
                         (unsigned)view->shape->stride[i]);
    return text;
}

/* Any sizes and strides, each with its own. */
static struct shape any_shape(void)
{
    struct shape s = {.rank = 1 + below(4)};
    uint32_t count = 1;
    for (uint32_t i = 0; i < s.rank; i++) {
        s.size[i] = 1 + below(5);
        s.stride[i] = below(3) ? below(24) : below(8) * 8;
        count *= s.size[i];
    }
    return count > MOST_ELEMENTS ? any_shape() : s;
}

/* Some columns of some rows of [4][16][16], its axes in any order: what slices leave. */
static struct shape slice_shape(void)
{
    static const uint32_t size[] = {4, 16, 16}, stride[] = {256, 16, 1};
    struct shape s = {.rank = 3};
    uint32_t count = 1, turn = below(3);
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t axis = (i + turn) % 3, step = 1 + below(3);
        s.size[i] = 1 + below(size[axis] / 4);
        s.stride[i] = stride[axis] * step;
        s.offset += (uint64_t)below(size[axis] - (s.size[i] - 1) * step) * stride[axis];
        count *= s.size[i];
    }
    return count > MOST_ELEMENTS ? slice_shape() : s;
}

static void overlap(void **state)
{
    (void)state;
    unsigned shared = 0, apart = 0, between = 0;
    for (int i = 0; i < 60000; i++) {
        const bool slices = i % 2;
        struct shape a = slices ? slice_shape() : any_shape();
        struct shape b = slices ? slice_shape() : any_shape();
        const uint64_t sizes[] = {4, 4, 2, 1};
        struct placed_shape x = {&a, 0, sizes[below(slices ? 1 : 4)]};
        struct placed_shape y = {&b, 0, sizes[below(slices ? 1 : 4)]};
        x.first = slices ? a.offset * x.size : below(300);
        y.first = slices ? b.offset * y.size : below(300);
        unsigned char memory[MEMORY] = {0};
        mark(memory, &x, 1, 0);
        const bool want = mark(memory, &y, 2, 1);
        if (shape_overlaps(&x, &y) != want || shape_overlaps(&y, &x) != want) {
            char text[2][160];
            fail_msg("%s and %s share %s byte", describe(&x, text[0]), describe(&y, text[1]),
                     want ? "a" : "no");
        }
        shared += want;
        apart += !want;
        between += !want && x.first < y.first + shape_extent(&b) * y.size &&
                   y.first < x.first + shape_extent(&a) * x.size;
    }
    printf("pairs: %u share memory, %u do not, of which %u lie between each other\n", shared, apart,
           between);
    assert_in_range(shared, 10000, UINT32_MAX);
    assert_in_range(between, 5000, UINT32_MAX);
}

static void distinct(void **state)
{
    (void)state;
    unsigned tally[2] = {0};
    for (int i = 0; i < 30000; i++) {
        struct shape s = any_shape();
        const struct placed_shape view = {&s, 0, 1};
        unsigned char memory[MEMORY] = {0};
        char text[160];
        const bool want = !mark(memory, &view, 1, 1);
        if (shape_is_distinct(&s) != want)
            fail_msg("%s: elements are%s distinct", describe(&view, text), want ? "" : " not");
        tally[want]++;
    }
    printf("shapes: %u with distinct elements, %u without\n", tally[1], tally[0]);
    assert_in_range(tally[0], 3000, UINT32_MAX);
    assert_in_range(tally[1], 3000, UINT32_MAX);
}

/* Views too large to go through, whose answer follows from how they were made. */
static void overlap_large(void **state)
{
    (void)state;
    const uint32_t rows = 1u << 20, heads = 16;
    /* Columns of 64 side by side in rows of 128; every other element; halves of float16. */
    struct shape half = {.rank = 2, .size = {rows, 64}, .stride = {128, 1}};
    struct shape odd = {.rank = 1, .size = {UINT32_MAX}, .stride = {2}};
    assert_false(
        shape_overlaps(&(struct placed_shape){&half, 0, 4}, &(struct placed_shape){&half, 256, 4}));
    assert_true(
        shape_overlaps(&(struct placed_shape){&half, 0, 4}, &(struct placed_shape){&half, 255, 4}));
    assert_false(shape_overlaps(&(struct placed_shape){&odd, 4, 4},
                                &(struct placed_shape){&odd, 1 << 20, 4}));
    assert_true(shape_overlaps(&(struct placed_shape){&odd, 4, 4},
                               &(struct placed_shape){&odd, (1 << 20) + 2, 4}));
    assert_false(shape_overlaps(&(struct placed_shape){&odd, 4, 2},
                                &(struct placed_shape){&odd, (1 << 20) + 2, 2}));
    /* q, k and v of one projection: [batch][n][3][n_head][head_dim], by heads. */
    struct shape q = {
        .rank = 4, .size = {8, heads, 4096, 64}, .stride = {4096ull * 3072, 64, 3072, 1}};
    for (uint64_t other = 1; other < 3; other++)
        assert_false(shape_overlaps(&(struct placed_shape){&q, 0, 2},
                                    &(struct placed_shape){&q, other * 2048, 2}));
    assert_true(
        shape_overlaps(&(struct placed_shape){&q, 0, 2}, &(struct placed_shape){&q, 2046, 2}));
    /* Rows of 100 every 300 and of 40 every 420: they fall into each other's gaps modulo 60. */
    struct shape wide = {.rank = 2, .size = {rows, 20}, .stride = {300, 1}};
    struct shape narrow = {.rank = 2, .size = {rows, 40}, .stride = {420, 1}};
    assert_false(shape_overlaps(&(struct placed_shape){&wide, 0, 4},
                                &(struct placed_shape){&narrow, 80, 4}));
    assert_true(shape_overlaps(&(struct placed_shape){&wide, 0, 4},
                               &(struct placed_shape){&narrow, 84, 4}));
    struct shape huge = {.rank = 2, .size = {2, 2}, .stride = {1ull << 63, 1ull << 63}};
    assert_true(shape_overlaps(&(struct placed_shape){&huge, 0, 4},
                               &(struct placed_shape){&half, 0, 4})); /* no such buffer */
    assert_false(shape_is_distinct(&huge));
    assert_true(shape_is_distinct(&q));
}

/* Strides that have nothing in common, made so that one element is shared: whatever the search
 * costs, it must not say that none is. */
static void overlap_planted(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct shape s[2] = {{.rank = 4}, {.rank = 4}};
        uint64_t at[2] = {0, 0};
        for (int which = 0; which < 2; which++)
            for (uint32_t axis = 0; axis < 4; axis++) {
                s[which].size[axis] = 1 + below(60000);
                s[which].stride[axis] = 1 + (uint64_t)below(60000) * below(60000);
                at[which] += s[which].stride[axis] * below(s[which].size[axis]);
            }
        const uint64_t low = at[0] < at[1] ? at[0] : at[1];
        const struct placed_shape x = {&s[0], 4 * (at[1] - low), 4};
        const struct placed_shape y = {&s[1], 4 * (at[0] - low), 4};
        assert_true(shape_overlaps(&x, &y));
        assert_true(shape_overlaps(&y, &x));
    }
}

static void rank4(void **state)
{
    (void)state;
    for (int i = 0; i < 500; i++) {
        uint64_t address[MOST_ELEMENTS], got[MOST_ELEMENTS];
        struct shape from = random_shape(), to = shape_rank4(&from);
        assert_int_equal(to.rank, VKA_MAX_RANK);
        for (uint32_t axis = 0; axis < VKA_MAX_RANK - from.rank; axis++)
            assert_int_equal(to.size[axis], 1);
        size_t n = addresses_of(&from, address);
        assert_int_equal(addresses_of(&to, got), n);
        assert_memory_equal(got, address, n * sizeof *got);
    }
}

static void text(void **state)
{
    (void)state;
    char text[SHAPE_TEXT];
    struct shape s = {.rank = 1, .size = {7}};
    assert_string_equal(shape_text(&s, text), "[7]");
    s = (struct shape){.rank = 3, .size = {2, 30, 4}};
    assert_string_equal(shape_text(&s, text), "[2, 30, 4]");
    s = (struct shape){.rank = 4, .size = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}};
    assert_ptr_equal(shape_text(&s, text), text);
    assert_string_equal(text, "[4294967295, 4294967295, 4294967295, 4294967295]");
}

TEST_PROGRAM(shape)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense),
        cmocka_unit_test(dense_refuses),
        cmocka_unit_test(extent),
        cmocka_unit_test(extent_overflow),
        cmocka_unit_test(is_dense),
        cmocka_unit_test(reshape),
        cmocka_unit_test(rank4),
        cmocka_unit_test(reshape_refuses),
        cmocka_unit_test(text),
        cmocka_unit_test(overlap),
        cmocka_unit_test(distinct),
        cmocka_unit_test(overlap_large),
        cmocka_unit_test(overlap_planted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
