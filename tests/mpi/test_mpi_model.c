/* The cost model finds the lines that made the points, and keeps to lines that make sense. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "vkattn-mpi/model.h"
#include "test_program.h"

static const struct model truth = {
    .start_ms = 2, .ms_per_gflop = 30, .hop_ms = 0.5, .ms_per_mib = 0.125};

/* Strong and weak scaling of 8 GFLOP and 16 MiB over 1, 2 and 4 ranks. */
static size_t make_points(struct model_point points[5])
{
    static const unsigned ranks[] = {1, 2, 4, 2, 4};
    for (int i = 0; i < 5; i++) {
        struct model_point *p = &points[i];
        double r = ranks[i], grow = i < 3 ? 1 : r;
        *p = (struct model_point){
            .ranks = ranks[i], .gflop = 8 * grow / r, .mib = 16 * grow * (r - 1) / r};
        p->contention = r > 2 ? 2 : 1;
        p->compute_ms = truth.start_ms + truth.ms_per_gflop * p->gflop * p->contention;
        p->total_ms = model_predict(&truth, p);
    }
    return 5;
}

static void test_exact(void **state)
{
    (void)state;
    struct model_point points[5];
    struct model model;
    size_t n = make_points(points);
    assert_true(model_fit(points, n, &model));
    assert_true(fabs(model.start_ms - truth.start_ms) < 1e-6);
    assert_true(fabs(model.ms_per_gflop - truth.ms_per_gflop) < 1e-6);
    assert_true(fabs(model.hop_ms - truth.hop_ms) < 1e-6);
    assert_true(fabs(model.ms_per_mib - truth.ms_per_mib) < 1e-6);
    struct model_point more = {.ranks = 16, .gflop = 0.5, .mib = 15, .contention = 1};
    assert_true(fabs(model_predict(&model, &more) - (2 + 15 + 2 + 1.875)) < 1e-6);
}

/* What a point adds beyond the lines is what its error says. */
static void test_error(void **state)
{
    (void)state;
    struct model_point points[5];
    make_points(points);
    points[2].total_ms *= 1.25;
    assert_true(fabs(model_error(&truth, &points[2]) - 0.2) < 1e-9);
    assert_true(model_error(&truth, &points[1]) < 1e-12);
}

/* Work that costs less the more there is of it: no negative coefficient. */
static void test_not_negative(void **state)
{
    (void)state;
    struct model_point points[3] = {
        {.ranks = 1, .gflop = 4, .contention = 1, .compute_ms = 1, .total_ms = 1},
        {.ranks = 2, .gflop = 2, .mib = 1, .contention = 1, .compute_ms = 2, .total_ms = 5},
        {.ranks = 4, .gflop = 1, .mib = 2, .contention = 1, .compute_ms = 3, .total_ms = 4}};
    struct model model;
    assert_true(model_fit(points, 3, &model));
    assert_true(model.start_ms >= 0 && model.ms_per_gflop >= 0);
    assert_true(model.hop_ms >= 0 && model.ms_per_mib >= 0);
    assert_true(model.start_ms > 0);
}

static void test_too_few(void **state)
{
    (void)state;
    struct model_point points[5];
    struct model model;
    make_points(points);
    assert_false(model_fit(points, 1, &model));
    assert_false(model_fit(points, 0, &model));
}

TEST_PROGRAM(mpi_model)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_not_negative),
        cmocka_unit_test(test_too_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
