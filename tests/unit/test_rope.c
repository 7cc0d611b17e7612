/* Frequencies of rotary embedding against formulas written another way, and values that other
 * programs give for published configurations. SPDX-License-Identifier: MIT */
#include "test_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include <vkattn/vkattn_model.h>

#define PI 3.14159265358979323846
#define MOST 64

struct result {
    double f[MOST];
    float factor;
    char error[VKA_ROPE_ERROR_SIZE];
};

static struct result make(const struct vka_rope_info *info)
{
    struct result r = {.factor = -1};
    assert_int_equal(vka_rope_frequencies(info, r.f, &r.factor, r.error), VKA_OK);
    assert_string_equal(r.error, "");
    return r;
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want)))
        fail_msg("got %.17g, expected %.17g", got, want);
}

/* base^(-2i / dim) by logarithms. */
static double plain(double base, uint32_t dim, uint32_t i)
{
    return exp(-log(base) * 2 * i / dim);
}

static void unscaled(void **state)
{
    (void)state;
    struct result r = make(VKA_INFO(vka_rope_info, .dim = 64));
    for (uint32_t i = 0; i < 32; i++)
        near(r.f[i], plain(10000, 64, i));
    assert_true(r.factor == 1);
    r = make(VKA_INFO(vka_rope_info, .dim = 6, .base = 5e5, .attention_factor = 0.5));
    for (uint32_t i = 0; i < 3; i++)
        near(r.f[i], plain(5e5, 6, i));
    assert_true(r.factor == 0.5f);
    near(make(VKA_INFO(vka_rope_info, .dim = 2, .base = 1)).f[0], 1);
}

static void linear(void **state)
{
    (void)state;
    struct result r = make(
        VKA_INFO(vka_rope_info, .type = VKA_ROPE_LINEAR, .dim = 80, .base = 1e6, .factor = 2.5));
    for (uint32_t i = 0; i < 40; i++)
        near(r.f[i], 0.4 * plain(1e6, 80, i));
    assert_true(r.factor == 1);
}

/* By the number of turns over the original length instead of wavelengths. */
static double llama3(double f, double length, double factor, double low, double high)
{
    double turns = length * f / (2 * PI), keep = (turns - low) / (high - low);
    keep = keep < 0 ? 0 : keep > 1 ? 1 : keep;
    return f * (keep + (1 - keep) / factor);
}

static void llama3_of_published_models(void **state)
{
    (void)state;
    static const struct {
        uint32_t dim;
        double factor;
    } models[] = {{128, 8}, {64, 32}, {128, 1}}; /* Llama 3.1 8B, 3.2 1B */
    for (size_t m = 0; m < 3; m++) {
        struct result r =
            make(VKA_INFO(vka_rope_info, .type = VKA_ROPE_LLAMA3, .dim = models[m].dim,
                          .base = 500000, .factor = models[m].factor, .low_freq_factor = 1,
                          .high_freq_factor = 4, .original_max_position_embeddings = 8192));
        int kept = 0, blended = 0, divided = 0;
        for (uint32_t i = 0; i < models[m].dim / 2; i++) {
            double f = plain(500000, models[m].dim, i);
            near(r.f[i], llama3(f, 8192, models[m].factor, 1, 4));
            double turns = 8192 * f / (2 * PI);
            *(turns > 4 ? &kept : turns < 1 ? &divided : &blended) += 1;
        }
        assert_true(kept > 0 && blended > 0 && divided > 0);
        assert_true(r.factor == 1);
    }
}

/* The pair at which a ramp ends, found by counting pairs with more turns: for whole ends. */
static double yarn(uint32_t i, uint32_t dim, double base, double length, double factor, double fast,
                   double slow)
{
    int low = -1, high = 0;
    for (uint32_t p = 0; p < 10 * dim; p++) { /* pairs beyond dim / 2 too */
        double turns = length / (2 * PI) * exp(-log(base) * 2 * p / dim);
        low += turns >= fast; /* the last that has them */
        high += turns > slow; /* the first that has not */
    }
    low = low < 0 ? 0 : low;
    high = high > (int)dim - 1 ? (int)dim - 1 : high;
    double ramp =
        low == high ? (double)((int)i > low) : fmin(fmax(((double)i - low) / (high - low), 0), 1);
    double f = plain(base, dim, i);
    return f * (1 - ramp) + f * ramp / factor;
}

static void yarn_of_published_models(void **state)
{
    (void)state;
    static const struct {
        uint32_t dim, length;
        double base, factor, fast, slow, mscale, all, want;
    } models[] = {
        {128, 32768, 1e6, 4, 0, 0, 0, 0, 1.1386294361119891}, /* Qwen 2.5 */
        {64, 4096, 1e4, 40, 32, 1, 0.707, 0.707, 1},          /* DeepSeek V2 */
        {64, 4096, 1e4, 40, 32, 1, 1, 0.5, 1.3688879454113936 / 1.1844439727056968},
        {64, 4096, 1e4, 40, 32, 1, 1, 0, 1.3688879454113936},
        {16, 64, 1e4, 2, 64, 1, 0, 0, 1.0693147180559945},   /* no pair turns 64 times */
        {6, 100000, 10, 3, 32, 1, 0, 0, 1.1098612288668110}, /* the ramp begins behind all pairs */
        {32, 2048, 1e4, 1, 0, 0, 0, 0, 1},
    };
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct result r = make(VKA_INFO(vka_rope_info, .type = VKA_ROPE_YARN, .dim = models[m].dim,
                                        .base = models[m].base, .factor = models[m].factor,
                                        .beta_fast = models[m].fast, .beta_slow = models[m].slow,
                                        .mscale = models[m].mscale, .mscale_all_dim = models[m].all,
                                        .original_max_position_embeddings = models[m].length));
        for (uint32_t i = 0; i < models[m].dim / 2; i++)
            near(r.f[i], yarn(i, models[m].dim, models[m].base, models[m].length, models[m].factor,
                              models[m].fast != 0 ? models[m].fast : 32,
                              models[m].slow != 0 ? models[m].slow : 1));
        assert_true(fabs((double)r.factor - models[m].want) < 1e-7);
    }
}

/* The ends as they are: at pair x = dim log(length / (2 pi turns)) / (2 log base). */
static void yarn_not_truncated(void **state)
{
    (void)state;
    struct result r =
        make(VKA_INFO(vka_rope_info, .type = VKA_ROPE_YARN, .dim = 64, .base = 150000, .factor = 32,
                      .original_max_position_embeddings = 4096, .no_truncate = true));
    double low = 64 * log(4096 / (2 * PI * 32)) / log(150000) / 2; /* gpt-oss */
    double high = 64 * log(4096 / (2 * PI)) / log(150000) / 2;
    int between = 0;
    for (uint32_t i = 0; i < 32; i++) {
        double ramp = i <= low ? 0 : i >= high ? 1 : (i - low) / (high - low);
        near(r.f[i], plain(150000, 64, i) * (1 - ramp * 31 / 32));
        between += ramp > 0 && ramp < 1;
    }
    assert_true(between > 5);
}

static void longrope(void **state)
{
    (void)state;
    double few[48], many[48];
    for (int i = 0; i < 48; i++) {
        few[i] = 1 + 0.01 * i;
        many[i] = 1 + i;
    }
    for (uint32_t length = 4096; length <= 4097; length++) {
        struct result r =
            make(VKA_INFO(vka_rope_info, .type = VKA_ROPE_LONGROPE, .dim = 96, .factor = 32,
                          .original_max_position_embeddings = 4096, .short_factor = few,
                          .long_factor = many, .length = length)); /* Phi 3 */
        for (uint32_t i = 0; i < 48; i++)
            near(r.f[i], plain(10000, 96, i) / (length > 4096 ? many : few)[i]);
        assert_true(fabs((double)r.factor - 1.190238) < 1e-6);
    }
    struct vka_rope_info given =
        *VKA_INFO(vka_rope_info, .type = VKA_ROPE_LONGROPE, .dim = 96, .factor = 1,
                  .short_factor = few, .long_factor = many, .attention_factor = 1.5);
    assert_true(make(&given).factor == 1.5f);
}

static struct vka_rope_info good(enum vka_rope_type type)
{
    static const double factors[] = {1, 2, 3, 4};
    return *VKA_INFO(vka_rope_info, .type = type, .dim = 8, .factor = 2, .low_freq_factor = 1,
                     .high_freq_factor = 4, .original_max_position_embeddings = 64,
                     .short_factor = factors, .long_factor = factors);
}

#define REFUSED(kind, word, ...)                                                            \
    do {                                                                                    \
        struct vka_rope_info r = good(VKA_ROPE_##kind);                                     \
        double f[MOST];                                                                     \
        float factor;                                                                       \
        char why[VKA_ROPE_ERROR_SIZE] = "";                                                 \
        make(&r);                                                                           \
        __VA_ARGS__;                                                                        \
        assert_int_equal(vka_rope_frequencies(&r, f, &factor, why), VKA_INVALID);           \
        assert_int_equal(vka_rope_frequencies(&r, f, &factor, NULL), VKA_INVALID);          \
        if (strncmp(why, "vka_rope_frequencies: ", 22) != 0 || !strstr(why + 22, word " ")) \
            fail_msg("the sentence is \"%s\", without %s", why, word);                      \
    } while (0)

static void refused(void **state)
{
    (void)state;
    const double small[] = {1, 1, 1e-9, 1}, zero[] = {1, 0, 1, 1}, bad[] = {NAN, 1, 1, 1};
    REFUSED(DEFAULT, "struct_size", r.struct_size--);
    REFUSED(DEFAULT, "type", r.type = VKA_ROPE_TYPE_COUNT);
    REFUSED(DEFAULT, "type", r.type = (enum vka_rope_type) - 1);
    REFUSED(DEFAULT, "dim", r.dim = 0);
    REFUSED(DEFAULT, "dim", r.dim = 7);
    REFUSED(DEFAULT, "base", r.base = 0.5);
    REFUSED(DEFAULT, "base", r.base = NAN);
    REFUSED(DEFAULT, "attention_factor", r.attention_factor = -1);
    REFUSED(DEFAULT, "attention_factor", r.attention_factor = INFINITY);
    REFUSED(LINEAR, "factor", r.factor = 0);
    REFUSED(LINEAR, "factor", r.factor = NAN);
    REFUSED(LINEAR, "factor", r.factor = 0.5);
    REFUSED(LLAMA3, "original_max_position_embeddings", r.original_max_position_embeddings = 0);
    REFUSED(LLAMA3, "low_freq_factor", r.low_freq_factor = 0);
    REFUSED(LLAMA3, "high_freq_factor", r.high_freq_factor = 1);
    REFUSED(YARN, "original_max_position_embeddings", r.original_max_position_embeddings = 0);
    REFUSED(YARN, "base", r.base = 1);
    REFUSED(YARN, "beta_fast", r.beta_fast = -1);
    REFUSED(YARN, "beta_slow", r.beta_slow = 33);
    REFUSED(YARN, "mscale", r.mscale = NAN);
    REFUSED(YARN, "mscale_all_dim", r.mscale_all_dim = -1);
    REFUSED(LONGROPE, "original_max_position_embeddings", r.original_max_position_embeddings = 1);
    REFUSED(LONGROPE, "short_factor", r.short_factor = NULL);
    REFUSED(LONGROPE, "long_factor", r.long_factor = NULL);
    REFUSED(LONGROPE, "frequency 2", r.short_factor = small);
    REFUSED(LONGROPE, "frequency 1", r.short_factor = zero);
    REFUSED(LONGROPE, "frequency 0", r.short_factor = bad);
    double f[MOST];
    float factor;
    struct vka_rope_info r = good(VKA_ROPE_DEFAULT);
    assert_int_equal(vka_rope_frequencies(NULL, f, &factor, NULL), VKA_INVALID);
    assert_int_equal(vka_rope_frequencies(&r, NULL, &factor, NULL), VKA_INVALID);
    assert_int_equal(vka_rope_frequencies(&r, f, NULL, NULL), VKA_INVALID);
}

TEST_PROGRAM(rope)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unscaled),
        cmocka_unit_test(linear),
        cmocka_unit_test(llama3_of_published_models),
        cmocka_unit_test(yarn_of_published_models),
        cmocka_unit_test(yarn_not_truncated),
        cmocka_unit_test(longrope),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
