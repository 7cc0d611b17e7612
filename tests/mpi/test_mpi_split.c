/* Who computes what: every head, batch element and position once, in order, groups intact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "mpi/slice.h"
#include "test_program.h"

#define MOST_RANKS 9

static void test_heads(void **state)
{
    (void)state;
    for (uint32_t n_kv = 1; n_kv <= 8; n_kv++)
        for (uint32_t group = 1; group <= 5; group++)
            for (int size = 1; size <= MOST_RANKS; size++)
                for (uint32_t rounds = 1; rounds <= 3; rounds++) {
                    uint32_t next = 0;
                    for (int rank = 0; rank < size; rank++)
                        for (uint32_t p = 0; p < rounds; p++) {
                            struct head_ranges s =
                                split_heads(n_kv * group, n_kv, size, rank, rounds, p);
                            assert_int_equal(s.query.first, next);
                            next += s.query.count;
                            if (!s.query.count)
                                continue;
                            /* Local head h reads local key head h / group. */
                            assert_int_equal(s.query.count % s.key.count, 0);
                            uint32_t local = s.query.count / s.key.count;
                            for (uint32_t h = 0; h < s.query.count; h++)
                                assert_int_equal(s.key.first + h / local,
                                                 (s.query.first + h) / group);
                        }
                    assert_int_equal(next, n_kv * group);
                }
}

/* No rank has more than one unit above another: key heads, or a group's heads beyond them. */
static void test_balance(void **state)
{
    (void)state;
    for (uint32_t n_kv = 1; n_kv <= 16; n_kv++)
        for (int size = 1; size <= (int)n_kv; size++) {
            uint32_t least = UINT32_MAX, most = 0;
            for (int rank = 0; rank < size; rank++) {
                struct vka_mpi_range query, key;
                vka_mpi_heads(3 * n_kv, n_kv, size, rank, &query, &key);
                least = key.count < least ? key.count : least;
                most = key.count > most ? key.count : most;
                assert_int_equal(query.count, 3 * key.count);
            }
            assert_true(most - least <= 1);
        }
}

static void test_batch(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 20; n++)
        for (int size = 1; size <= MOST_RANKS; size++) {
            uint32_t next = 0;
            for (int rank = 0; rank < size; rank++) {
                struct vka_mpi_range r = vka_mpi_batch(n, size, rank);
                assert_int_equal(r.first, next);
                next += r.count;
            }
            assert_int_equal(next, n);
        }
}

/* Front slices rise with the rank, their mirrors fall, and together they are all positions. */
static void test_positions(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 100; n++)
        for (int size = 1; size <= MOST_RANKS; size++) {
            uint32_t next = 0, end = n;
            struct vka_mpi_range r[2];
            for (int rank = 0; rank < size; rank++) {
                vka_mpi_positions(n, size, rank, r);
                assert_int_equal(r[0].first, next);
                next += r[0].count;
                end -= r[1].count;
                assert_int_equal(r[1].first, end);
                assert_true(n < (uint32_t)size || r[0].count + r[1].count > 0);
            }
            assert_int_equal(next, end);
        }
}

static void expect_nothing(int size, int rank)
{
    struct vka_mpi_range query, key, half[2], batch = vka_mpi_batch(20, size, rank);
    vka_mpi_heads(8, 4, size, rank, &query, &key);
    vka_mpi_positions(20, size, rank, half);
    assert_int_equal(query.count + key.count + batch.count + half[0].count + half[1].count, 0);
}

static void test_no_such_rank(void **state)
{
    (void)state;
    for (int size = -2; size <= 3; size++)
        for (int rank = -2; rank <= 4; rank++)
            if (rank < 0 || rank >= size)
                expect_nothing(size, rank);
    expect_nothing(INT32_MAX, -1);
    expect_nothing(INT32_MIN, 0);
    expect_nothing(0, INT32_MAX);
}

static void test_nothing_to_share(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        struct vka_mpi_range query, key, half[2];
        vka_mpi_heads(0, 0, 3, rank, &query, &key);
        assert_int_equal(query.count + key.count, 0);
        vka_mpi_heads(4, 0, 3, rank, &query, &key);
        assert_int_equal(query.count + key.count, 0);
        vka_mpi_positions(0, 3, rank, half);
        assert_int_equal(half[0].count + half[1].count + vka_mpi_batch(0, 3, rank).count, 0);
    }
}

/* Visible pairs of a causal square: within 1 % of each other on all ranks. */
static void test_causal_balance(void **state)
{
    (void)state;
    for (int size = 2; size <= MOST_RANKS; size++) {
        uint64_t least = UINT64_MAX, most = 0;
        for (int rank = 0; rank < size; rank++) {
            struct vka_mpi_range r[2];
            uint64_t pairs = 0;
            vka_mpi_positions(4096, size, rank, r);
            for (int half = 0; half < 2; half++)
                for (uint32_t i = 0; i < r[half].count; i++)
                    pairs += r[half].first + i + 1;
            least = pairs < least ? pairs : least;
            most = pairs > most ? pairs : most;
        }
        assert_true(most - least <= most / 100);
    }
}

TEST_PROGRAM(mpi_split)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_balance),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_causal_balance),
        cmocka_unit_test(test_no_such_rank),
        cmocka_unit_test(test_nothing_to_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
