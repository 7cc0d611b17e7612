/* Barriers between passes: the sets of bytes answer as a comparison of all pairs does, whatever
 * the order and gaps of intervals, and thousands of passes take no time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "plan/hazard.h"
#include "test_program.h"

#define BUFFERS 3
#define BINDINGS 4
#define MOST 64

static struct memory_block blocks[BUFFERS];
static struct storage storages[2 * BUFFERS]; /* two of each buffer, one beginning 32 bytes in */

static void open_buffers(void)
{
    for (int i = 0; i < BUFFERS; i++)
        blocks[i].buffer = (VkBuffer)(uintptr_t)(16 * (BUFFERS - i)); /* in no order of ours */
    for (int i = 0; i < 2 * BUFFERS; i++)
        storages[i].range = (struct memory_range){&blocks[i / 2], i % 2 * 32u, 1024};
}

static struct binding draw(uint32_t most)
{
    return (struct binding){
        .storage = &storages[rand() % (2 * BUFFERS)],
        .offset = 16 * ((uint32_t)rand() % most),
        .size = 16 * (1 + (uint32_t)rand() % 4),
        .write = rand() % 3 == 0,
    };
}

static bool pair(const struct binding *a, const struct binding *b)
{
    const struct memory_range *x = &a->storage->range, *y = &b->storage->range;
    const uint64_t first = x->offset + a->offset, other = y->offset + b->offset;
    return x->block == y->block && (a->write || b->write) && first < other + b->size &&
           other < first + a->size;
}

static void as_all_pairs(void **state)
{
    size_t met = 0;
    (void)state;
    srand(1);
    open_buffers();
    for (int round = 0; round < 2000; round++) {
        struct hazards h = {0};
        struct binding passes[MOST][BINDINGS];
        const uint32_t most = 4u << rand() % 8;
        for (size_t n = 0, since = 0; n < MOST; n++) {
            bool want = false;
            for (int i = 0; i < BINDINGS; i++)
                passes[n][i] = draw(most);
            for (size_t open = since; open < n; open++)
                for (int i = 0; i < BINDINGS * BINDINGS; i++)
                    want |= pair(&passes[open][i / BINDINGS], &passes[n][i % BINDINGS]);
            assert_int_equal(hazards_meet(&h, passes[n], BINDINGS), want);
            if (want) {
                hazards_clear(&h);
                since = n;
            }
            met += want;
            hazards_add(&h, passes[n], BINDINGS);
        }
        hazards_free(&h);
    }
    assert_in_range(met, 10000, 2000 * MOST - 10000); /* both are common */
}

/* Intervals that touch are one, those of other buffers are not. */
static void sets_are_short(void **state)
{
    struct hazards h = {0};
    (void)state;
    open_buffers();
    for (uint64_t i = 0; i < 1000; i++) {
        const uint64_t at = (i * 389) % 1000; /* in any order */
        const struct binding b[] = {{&storages[0], 16 * at, 16, true},
                                    {&storages[2], 0, 64, false}};
        assert_false(hazards_meet(&h, b, 2));
        hazards_add(&h, b, 2);
    }
    assert_int_equal(h.written.n, 1);
    assert_int_equal(h.read.n, 1);
    assert_true(h.written.list[0].first == 0 && h.written.list[0].end == 16000);
    assert_true(hazards_meet(&h, &(struct binding){&storages[0], 15984, 16, false}, 1));
    assert_false(hazards_meet(&h, &(struct binding){&storages[0], 16000, 16, true}, 1));
    hazards_free(&h);
}

/* Takes as many passes as a plan may have, with gaps between what they write: all pairs are 10^8. */
static void many_passes(void **state)
{
    struct hazards h = {0};
    (void)state;
    open_buffers();
    const clock_t start = clock();
    for (uint64_t i = 0; i < MOST_PASSES; i++) {
        const struct binding b[] = {{&storages[0], 64 * i, 32, true}, {&storages[2], 0, 64, false}};
        assert_false(hazards_meet(&h, b, 2));
        hazards_add(&h, b, 2);
    }
    assert_int_equal(h.written.n, MOST_PASSES);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC <
                2); /* 0.01 s; sanitizers, busy machines */
    hazards_free(&h);
}

TEST_PROGRAM(hazard)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_all_pairs),
        cmocka_unit_test(sets_are_short),
        cmocka_unit_test(many_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
