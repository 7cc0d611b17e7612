/* The cutter: what is added covers a problem once, in order and in whole multiples. */
#include "plan/cut.h"
#include "test_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SLICES 4096

/* A problem whose slices fit where they have `room` elements at most; `shuffled`: the axis to halve
 * is drawn. */
struct problem {
    struct cut cut;
    uint32_t size[CUT_AXES];
    uint64_t room;
    bool shuffled, fails, failed;
    struct slice slices[MOST_SLICES];
    uint32_t n_slice, fails_at;
};

static uint64_t count(const uint32_t size[CUT_AXES])
{
    uint64_t n = 1;
    for (int i = 0; i < CUT_AXES; i++)
        n *= size[i];
    return n;
}

static int judge(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    const struct problem *p = cut->job;
    (void)plan;
    if (count(slice->size) <= p->room)
        return CUT_FITS;
    for (int i = 0; p->shuffled && i < 16; i++) {
        int axis = rand() % CUT_AXES;
        if (slice->size[axis] > cut->least[axis])
            return axis;
    }
    return cut_first_axis(slice, cut->least);
}

static enum vka_status add(struct vka_plan *plan, const void *job, const struct slice *slice)
{
    struct problem *p = (struct problem *)job;
    (void)plan;
    assert_false(p->failed); /* nothing is added after it */
    p->failed = p->fails && p->n_slice == p->fails_at;
    if (p->failed)
        return VKA_UNSUPPORTED;
    assert_true(p->n_slice < MOST_SLICES);
    p->slices[p->n_slice++] = *slice;
    return VKA_OK;
}

static uint32_t draw(uint32_t most)
{
    return 1 + (uint32_t)rand() % most;
}

static void draw_problem(struct problem *p)
{
    static const uint32_t sizes[CUT_AXES] = {5, 9, 70, 40}, multiples[CUT_AXES] = {1, 3, 16, 8};
    memset(p, 0, sizeof *p);
    p->cut = (struct cut){.job = p, .judge = judge, .add = add};
    for (int i = 0; i < CUT_AXES; i++) {
        uint32_t multiple = draw(multiples[i]);
        p->size[i] = draw(sizes[i]);
        p->cut.multiple[i] = multiple;
        p->cut.least[i] = rand() % 3 == 0 ? multiple : 1;
        if (rand() % 8 == 0)
            p->cut.multiple[i] = p->cut.least[i] = CUT_NEVER;
    }
    p->room = draw(rand() % 2 ? 64 : 4096);
    while (count(p->size) / p->room > MOST_SLICES / 32)
        p->room *= 2;
    p->shuffled = rand() % 2;
}

/* Whether element e of an axis is in the slice. */
static bool covers(const struct slice *slice, int axis, uint32_t e)
{
    return e >= slice->first[axis] && e - slice->first[axis] < slice->size[axis];
}

/* Each element once: the counts add up, and drawn elements are in one slice. */
static void check_cover(const struct problem *p)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_slice; i++)
        sum += count(p->slices[i].size);
    assert_int_equal(sum, count(p->size));
    for (int probe = 0; probe < 64; probe++) {
        uint32_t at[CUT_AXES], n = 0;
        for (int axis = 0; axis < CUT_AXES; axis++)
            at[axis] = (uint32_t)rand() % p->size[axis];
        for (uint32_t i = 0; i < p->n_slice; i++) {
            bool all = true;
            for (int axis = 0; axis < CUT_AXES; axis++)
                all = all && covers(&p->slices[i], axis, at[axis]);
            n += all;
        }
        assert_int_equal(n, 1);
    }
}

/* A slice fits or cannot be cut, and begins at a multiple: at a whole one where it is longer. */
static void check_slice(const struct problem *p, const struct slice *slice)
{
    assert_true(count(slice->size) <= p->room || cut_first_axis(slice, p->cut.least) == CUT_FITS);
    for (int axis = 0; axis < CUT_AXES; axis++) {
        uint32_t multiple = p->cut.multiple[axis], least = p->cut.least[axis];
        assert_true(slice->size[axis] >= 1);
        if (multiple == CUT_NEVER)
            assert_int_equal(slice->size[axis], p->size[axis]);
        else
            assert_int_equal(slice->first[axis] % (slice->size[axis] > multiple ? multiple : least),
                             0);
    }
}

static void test_covers(void **unused)
{
    static struct problem p;
    uint32_t cut = 0;
    (void)unused;
    for (int round = 0; round < 3000; round++) {
        draw_problem(&p);
        assert_int_equal(plan_cut(NULL, &p.cut, p.size), VKA_OK);
        check_cover(&p);
        for (uint32_t i = 0; i < p.n_slice; i++)
            check_slice(&p, &p.slices[i]);
        cut += p.n_slice > 1;
    }
    assert_true(cut > 1000);
}

/* Axes of almost 2^32 elements, where a sum of two lengths would pass 32 bits. */
static void test_longest(void **unused)
{
    static struct problem p;
    (void)unused;
    for (int round = 0; round < 100; round++) {
        const int axis = round % CUT_AXES;
        memset(&p, 0, sizeof p);
        p.cut = (struct cut){.job = &p, .judge = judge, .add = add};
        for (int i = 0; i < CUT_AXES; i++) {
            p.size[i] = i == axis ? UINT32_MAX - (draw(40) - 1) : 1;
            p.cut.multiple[i] = draw(64);
            p.cut.least[i] = 1;
        }
        p.room = 1u << 26 << rand() % 6;
        assert_int_equal(plan_cut(NULL, &p.cut, p.size), VKA_OK);
        check_cover(&p);
        for (uint32_t i = 0; i < p.n_slice; i++)
            check_slice(&p, &p.slices[i]);
    }
}

static void test_failure(void **unused)
{
    static struct problem p;
    uint32_t failed = 0;
    (void)unused;
    for (int round = 0; round < 500; round++) {
        draw_problem(&p);
        p.fails = true;
        p.fails_at = (uint32_t)rand() % 8;
        enum vka_status status = plan_cut(NULL, &p.cut, p.size);
        if (status == VKA_OK) {
            assert_true(p.n_slice <= p.fails_at);
            continue;
        }
        assert_int_equal(status, VKA_UNSUPPORTED);
        assert_int_equal(p.n_slice, p.fails_at);
        failed++;
    }
    assert_true(failed > 100);
}

TEST_PROGRAM(cut)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_covers),
        cmocka_unit_test(test_longest),
        cmocka_unit_test(test_failure),
    };
    srand(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
