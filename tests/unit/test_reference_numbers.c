/* What surrounds the oracle's attention, each against answers known beforehand.
 * SPDX-License-Identifier: MIT */
#include "test_program.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <reference/reference.h>

#define COUNTOF(a) (sizeof(a) / sizeof *(a))

static void assert_near(double got, double want)
{
    if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= 1e-12 * fmax(1, fabs(want))))
        fail_msg("got %.17g, want %.17g", got, want);
}

static void assert_all_near(const double *got, const double *want, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_near(got[i], want[i]);
}

static void rms_norm(void **state)
{
    (void)state;
    const double weight[] = {1, 2};
    double x[] = {0, 2, 3, -4};
    ref_rms_norm(x, 2, 2, weight, 1e-6);
    assert_all_near(x, (const double[]){0, 4 / sqrt(2 + 1e-6)}, 2);
    assert_all_near(x + 2, (const double[]){3 / sqrt(12.5 + 1e-6), -8 / sqrt(12.5 + 1e-6)}, 2);
}

static void rotation(void **state)
{
    (void)state;
    const double c = cos(2), s = sin(2), c1 = cos(0.02), s1 = sin(0.02);
    double half[] = {1, 2, 3, 4, 9}, paired[] = {1, 2, 3, 4, 9}, first[] = {1, 2, 3, 4, 9};
    ref_rope(half, 1, 5, &(struct vka_rope){.dim = 4}, 2);
    const double want_half[] = {c - 3 * s, 2 * c1 - 4 * s1, s + 3 * c, 2 * s1 + 4 * c1, 9};
    assert_all_near(half, want_half, 5);
    ref_rope(paired, 1, 5, &(struct vka_rope){.dim = 4, .interleaved = true}, 2);
    const double want_paired[] = {c - 2 * s, s + 2 * c, 3 * c1 - 4 * s1, 3 * s1 + 4 * c1, 9};
    assert_all_near(paired, want_paired, 5);
    ref_rope(first, 1, 5, &(struct vka_rope){.dim = 2, .base = 7}, 2);
    assert_all_near(first, (const double[]){c - 2 * s, s + 2 * c, 3, 4, 9}, 5);
    double rows[] = {1, 2, 1, 2};
    ref_rope(rows, 2, 2, &(struct vka_rope){.dim = 2, .base = 100}, -1);
    assert_all_near(rows, (const double[]){cos(1) + 2 * sin(1), 2 * cos(1) - sin(1), 1, 2}, 4);
    double base[] = {1, 1, 0, 0};
    ref_rope(base, 1, 4, &(struct vka_rope){.dim = 4, .base = 16}, 4);
    assert_all_near(base, (const double[]){cos(4), cos(1), sin(4), sin(1)}, 4);
}

/* At every base and position that the header allows, against angles of long double: the row's
 * promise is 1e-11 of the square, 3e-6 of an angle; the oracle is to have a tenth of that. */
static void far_rotation(void **state)
{
    (void)state;
    static const float bases[] = {0, 1, 1.0000001f, 1.5f, 2, 100, 500000, 1e9f, 1e30f, FLT_MAX};
    static const int64_t positions[] = {0,           1,         -1,         16777215,
                                        16777217,    -16777217, 123456789,  1073741823,
                                        -1073741824, 1 << 30,   2147483647, 999999937};
    const size_t dim = 64;
    for (size_t b = 0; b < COUNTOF(bases); b++)
        for (size_t p = 0; p < COUNTOF(positions); p++) {
            const struct vka_rope rope = {.dim = 64, .base = bases[b], .interleaved = b % 2};
            const long double base = bases[b] != 0 ? (long double)bases[b] : 10000;
            double x[64] = {0};
            for (size_t i = 0; i < dim / 2; i++)
                x[rope.interleaved ? 2 * i : i] = 1;
            ref_rope(x, 1, dim, &rope, positions[p]);
            for (size_t i = 0; i < dim / 2; i++) {
                const long double angle =
                    (long double)positions[p] * powl(base, -2 * (long double)i / (long double)dim);
                const double c = x[rope.interleaved ? 2 * i : i];
                const double s = x[rope.interleaved ? 2 * i + 1 : i + dim / 2];
                assert_true(fabs(c - (double)cosl(angle)) < 3e-7);
                assert_true(fabs(s - (double)sinl(angle)) < 3e-7);
            }
        }
}

/* The generator's published known answers. */
static void philox(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } KNOWN[] = {
        {{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < COUNTOF(KNOWN); i++) {
        uint32_t out[4];
        ref_philox(KNOWN[i].counter, KNOWN[i].key, out);
        assert_memory_equal(out, KNOWN[i].out, sizeof out);
    }
}

static void linear(void **state)
{
    (void)state;
    const double x[] = {1, -2, 3, 4}, w[] = {1, 10, 2, 20, -1, 0}, bias[] = {0.5, 0, 7};
    double y[6];
    ref_linear(x, w, bias, 2, 2, 3, false, y);
    assert_all_near(y, (const double[]){-18.5, -38, 6, 43.5, 86, 4}, 6);
    ref_linear(x, w, NULL, 2, 2, 3, true, y);
    assert_all_near(y, (const double[]){1, 2, -1, 43, 86, -3}, 6);
    const double poison[] = {NAN, 1};
    ref_linear(poison, w, NULL, 1, 2, 1, true, y);
    assert_true(isnan(y[0]));
}

static void row_nmse(void **state)
{
    (void)state;
    const double want[] = {3, 4, 6, 8, 0, 0}, got[] = {3, 4.5, 7, 8, 0, 0};
    size_t worst = 9;
    assert_near(ref_row_nmse(got, want, 3, 2, &worst), 0.01);
    assert_int_equal(worst, 0);
    assert_near(ref_row_nmse(got, want, 2, 3, NULL), 1.25 / 61);
    const double odd[] = {NAN, INFINITY, -INFINITY, 2}, flipped[] = {NAN, INFINITY, INFINITY, 2};
    assert_true(ref_row_nmse(odd, odd, 1, 4, NULL) == 0);
    assert_true(ref_row_nmse(odd, flipped, 2, 2, &worst) == INFINITY);
    assert_int_equal(worst, 1);
    assert_true(ref_row_nmse(want, odd, 1, 1, NULL) == INFINITY);
    assert_true(ref_row_nmse((const double[]){1e-20}, (const double[]){0}, 1, 1, NULL) > 1e10);
}

struct narrow {
    double x;
    uint16_t bits;
};

static void narrowing(void **state)
{
    (void)state;
    static const struct narrow F16[] = {
        {1, 0x3c00},           {-2, 0xc000},           {65504, 0x7bff},     {65519.999, 0x7bff},
        {65520, 0x7c00},       {1e300, 0x7c00},        {-INFINITY, 0xfc00}, {0, 0},
        {-0.0, 0x8000},        {0x1p-14, 0x0400},      {0x1p-24, 1},        {0x1p-25, 0},
        {0x1.000001p-25, 1},   {0x1.8p-24, 2},         {0x1p-1074, 0},      {0x1.ffbp-15, 0x03ff},
        {0x1.ffcp-15, 0x0400}, {0x1.002p0, 0x3c00},    {0x1.006p0, 0x3c02}, {1.0 / 3, 0x3555},
        {-1e-300, 0x8000},     {0x1.0020001p0, 0x3c01}};
    static const struct narrow BF16[] = {
        {1, 0x3f80},     {-2.5, 0xc020},     {0x1.fep127, 0x7f7f}, {0x1.ffp127, 0x7f80},
        {1e39, 0x7f80},  {0x1p-126, 0x0080}, {0x1p-133, 1},        {0x1p-134, 0},
        {0x1.8p-133, 2}, {0x1.01p0, 0x3f80}, {0x1.03p0, 0x3f82},   {0x1.010001p0, 0x3f81},
        {-0.0, 0x8000},  {1.0 / 3, 0x3eab},  {-INFINITY, 0xff80},  {0x1.fefffp127, 0x7f7f}};
    for (size_t i = 0; i < COUNTOF(F16); i++)
        assert_int_equal(ref_to_f16(F16[i].x), F16[i].bits);
    for (size_t i = 0; i < COUNTOF(BF16); i++)
        assert_int_equal(ref_to_bf16(BF16[i].x), BF16[i].bits);
    assert_true(isnan(ref_from_f16(ref_to_f16(NAN))));
    assert_true(isnan(ref_from_bf16(ref_to_bf16(NAN))));
    assert_true(ref_from_f16(0x3555) == 1365.0 / 4096);
    assert_true(ref_from_f16(0x8001) == -0x1p-24);
    assert_true(ref_from_bf16(0x4049) == 3.140625);
}

/* Every pattern survives the way out and back, and halfway between neighbours the even one wins. */
static void narrow_all(double (*from)(uint16_t), uint16_t (*to)(double), unsigned infinity)
{
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        double x = from((uint16_t)bits);
        unsigned size = bits & 0x7fff;
        assert_true((isnan(x) != 0) == (size > infinity));
        if (size <= infinity)
            assert_int_equal(to(x), bits);
    }
    for (unsigned bits = 0; bits + 1 < infinity; bits++) {
        double low = from((uint16_t)bits), high = from((uint16_t)(bits + 1));
        double middle = low + (high - low) / 2;
        assert_int_equal(to(middle), bits + (bits & 1));
        assert_int_equal(to(nextafter(middle, 0)), bits);
        assert_int_equal(to(-nextafter(middle, high)), 0x8000 | (bits + 1));
    }
}

static void narrowing_all(void **state)
{
    (void)state;
    narrow_all(ref_from_f16, ref_to_f16, 0x7c00);
    narrow_all(ref_from_bf16, ref_to_bf16, 0x7f80);
}

TEST_PROGRAM(reference_numbers)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rms_norm),     cmocka_unit_test(rotation),
        cmocka_unit_test(far_rotation), cmocka_unit_test(philox),
        cmocka_unit_test(linear),       cmocka_unit_test(row_nmse),
        cmocka_unit_test(narrowing),    cmocka_unit_test(narrowing_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
