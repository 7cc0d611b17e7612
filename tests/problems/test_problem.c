/* What struct problem is drawn, told, read and shrunk as. Needs no Vulkan device.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "problem_fields.h"
#include "test_program.h"

#include <math.h>

#define DRAWS 2000

static void draw(struct problem *p, enum problem_way way, uint64_t seed)
{
    static void (*const draws[WAY_COUNT])(struct problem *,
                                          uint64_t) = {[WAY_LAYER] = problem_quantised_draw,
                                                       [WAY_BACKWARD] = problem_backward_draw,
                                                       [WAY_PACKED] = ragged_draw};
    if (way == WAY_DENSE)
        problem_draw(p, seed, (enum vka_path)(seed % VKA_PATH_COUNT));
    else
        draws[way](p, seed);
    if (way == WAY_PACKED && seed % 5 == 0)
        ragged_share(p, seed);
    assert_int_equal(p->way, way);
}

/* The first field in which two problems differ, or NULL. */
static const struct problem_field *difference(const struct problem *a, const struct problem *b)
{
    for (size_t i = 0; i < problem_field_count; i++) {
        const struct problem_field *field = &problem_fields[i];
        if (memcmp((const char *)a + field->offset, (const char *)b + field->offset, field->size))
            return field;
    }
    return NULL;
}

static void check_read_back(const struct problem *p)
{
    struct problem read;
    char text[PROBLEM_TEXT], wrong[PROBLEM_TEXT];
    problem_text(p, text);
    assert_true(strlen(text) < PROBLEM_TEXT - 1);
    if (!problem_read(text, &read, wrong))
        fail_msg("%s is not understood: %s", wrong, text);
    assert_true(p->rope.dim == read.rope.dim && p->rope.base == read.rope.base &&
                p->rope.interleaved == read.rope.interleaved &&
                memcmp(p->mask_shape, read.mask_shape, sizeof read.mask_shape) == 0);
    const struct problem_field *other = difference(p, &read);
    if (other)
        fail_msg("another %s is read: %s", other->name, text);
}

/* The text has all of a problem, and so has its seed. */
static void told(void **state)
{
    (void)state;
    for (int way = 0; way < WAY_COUNT; way++)
        for (uint64_t seed = 1; seed <= DRAWS; seed++) {
            struct problem p, again;
            draw(&p, (enum problem_way)way, seed);
            check_read_back(&p);
            memset(&again, 0xa5, sizeof again); /* nothing is left as it was */
            draw(&again, (enum problem_way)way, p.seed);
            assert_null(difference(&p, &again));
        }
}

/* Each field alone, of values that no draw gives too. */
static void told_alone(void **state)
{
    static const int64_t numbers[] = {1, 7, UINT32_MAX, INT64_MIN, -1}, names[] = {1, 2};
    (void)state;
    for (size_t i = 0; i < problem_field_count; i++) {
        const struct problem_field *field = &problem_fields[i];
        const bool named = field->kind >= FIELD_KERNELS;
        for (size_t n = 0; n < (named ? sizeof names / 8 : sizeof numbers / 8); n++) {
            struct problem p = {0};
            const float real = 0.1f * (float)(n + 1);
            uint32_t bits;
            memcpy(&bits, &real, sizeof bits);
            if (field->kind == FIELD_KERNELS)
                set_add(problem_field_kernels(&p, field), n ? KERNEL_COUNT - 1 : 0);
            else
                problem_field_set(&p, field,
                                  field->kind == FIELD_REAL ? bits
                                  : named                   ? names[n]
                                                            : numbers[n]);
            if (field->kind == FIELD_REAL && n == 1)
                problem_field_set(&p, field, 0x80000000); /* -0 */
            check_read_back(&p);
            struct problem none = {0};
            if (difference(&p, &none) != field && difference(&p, &none))
                fail_msg("%s lies over %s", field->name, difference(&p, &none)->name);
        }
    }
}

static void misread(void **state)
{
    static const char *const texts[] = {
        "batc=1",   "batch",     "batch=",      "batch=1x",
        "batch=-1", "causal=1",  "q=f17",       "seed=1 rope.dim=4294967296",
        "scale=x",  "way=large", "lengths=all", "disabled_kernels=none"};
    struct problem p;
    char wrong[PROBLEM_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (problem_read(texts[i], &p, wrong))
            fail_msg("%s is read", texts[i]);
    assert_true(problem_read("", &p, wrong));
    assert_true(problem_read(" batch=2  causal ", &p, wrong) && p.batch == 2 && p.causal);
}

/* ---- Comparison ------------------------------------------------------------------------------ */

enum { ROWS = 6, WIDTH = 20 };

/* Three ways to judge rows [ROWS][WIDTH]. */
static bool right(double *got, const double *want)
{
    const struct operand o = {
        .rank = 2, .size = {ROWS, WIDTH}, .count = (size_t)ROWS * WIDTH, .values = got};
    char why[WHY] = "";
    size_t row = 0;
    const bool values = compare_values(&o, want, compare_limit(VKA_F32), "rows", "", NULL, why);
    const bool terms = compare_terms(&o, want, 0, &row) <= compare_limit(VKA_F32);
    const bool sums = compare_log_sums(&o, want, VKA_F32, why);
    if (values != sums || values != terms || (!values && !*why))
        fail_msg("values %d, log-sum-exps %d, terms %d: %s", values, sums, terms, why);
    return values;
}

/* What is wrong by little is right; by more, or not a number where it should be one, in any row. */
static void compared(void **state)
{
    static const double kinds[] = {0, 1.5, -2, INFINITY, -INFINITY, NAN};
    double want[ROWS * WIDTH], got[ROWS * WIDTH];
    (void)state;
    for (int i = 0; i < ROWS * WIDTH; i++)
        want[i] = kinds[i / WIDTH] * (i / WIDTH < 3 ? 1 + 0.01 * (i % WIDTH) : 1);
    memcpy(got, want, sizeof got);
    assert_true(right(got, want));
    got[WIDTH] *= 1 + 1e-7;
    assert_true(right(got, want));
    for (int i = 0; i < ROWS * WIDTH; i++)
        for (int k = 0; k < ROWS; k++) {
            memcpy(got, want, sizeof got);
            got[i] = kinds[k] * (k < 3 ? 1.5 : 1);
            if (k != i / WIDTH && right(got, want))
                fail_msg("%g is taken for %g", got[i], want[i]);
        }
}

/* ---- Draws ----------------------------------------------------------------------------------- */

/* How many of 2,000 problems have an option at least: dense, packed, layers, backward. A tenth
 * fewer than of the generators that these are made of. */
static const struct {
    const char *name;
    int least[WAY_COUNT];
} options[] = {
    {"n_past", {440, 0, 0, 0}},
    {"has_present", {390, 0, 0, 0}},
    {"scattered", {1270, 690, 0, 1270}},
    {"causal", {630, 1450, 1800, 630}},
    {"window", {480, 440, 430, 470}},
    {"window_left", {470, 430, 430, 470}},
    {"window_right", {470, 420, 430, 470}},
    {"mask_rank", {730, 630, 500, 730}},
    {"mask", {560, 470, 0, 560}},
    {"mask_shape[3]", {180, 180, 0, 180}},
    {"lengths", {520, 0, 0, 520}},
    {"offsets", {540, 0, 0, 530}},
    {"far_offsets", {710, 0, 0, 720}},
    {"masked_row", {1160, 1190, 0, 1180}},
    {"poison_hidden", {860, 0, 0, 800}},
    {"poison_visible", {70, 0, 0, 70}},
    {"scale", {610, 0, 360, 600}},
    {"softcap", {460, 380, 340, 460}},
    {"given", {500, 0, 0, 500}},
    {"scores_kind", {710, 0, 0, 0}},
    {"log_sum", {520, 740, 0, 1800}},
    {"sink", {370, 340, 340, 380}},
    {"alibi", {350, 370, 340, 340}},
    {"dropout", {370, 260, 0, 370}},
    {"rope.dim", {530, 880, 850, 340}},
    {"rope.base", {270, 0, 0, 180}},
    {"rope.interleaved", {260, 430, 260, 170}},
    {"q_norm", {200, 250, 340, 140}},
    {"k_norm", {220, 270, 340, 150}},
    {"norm_epsilon", {720, 0, 0, 730}},
    {"disabled_kernels", {0, 1590, 0, 0}},
    {"workspace_limit", {710, 0, 0, 700}},
    {"submit_budget", {0, 290, 0, 0}},
    {"whole_n_q", {0, 1250, 0, 0}},
    {"page_size", {0, 890, 0, 0}},
    {"cached_k", {0, 1020, 1600, 0}},
    {"cached_v", {0, 1040, 1590, 0}},
    {"no_hadamard", {0, 850, 700, 0}},
    {"n_append", {0, 530, 0, 0}},
    {"weight", {0, 0, 1800, 0}},
    {"interleaved", {0, 0, 330, 0}},
};

/* What one field alone does not say. */
static bool mask_repeats(const struct problem *p)
{
    const uint32_t full[] = {p->batch, problem_n_head(p), p->n_q};
    bool repeats = false;
    for (uint32_t i = 0; i + 1 < p->mask_rank; i++)
        repeats |= p->mask_shape[i] == 1 && full[4 - p->mask_rank + i] > 1;
    return repeats;
}

static bool mask_is_whole(const struct problem *p)
{
    const uint32_t *m = p->mask_shape;
    return p->mask_rank == 4 && m[0] == p->batch && m[1] == problem_n_head(p) && p->batch > 1;
}

static bool mask_ends_early(const struct problem *p)
{
    const uint32_t last = p->mask_rank ? p->mask_shape[p->mask_rank - 1] : 1;
    return last > 1 && last < problem_n_kv(p);
}

static bool rotates_some(const struct problem *p)
{
    return p->rope.dim && p->rope.dim < p->head_dim;
}

static bool window_is_open(const struct problem *p)
{
    return p->window && (p->window_left == -1) != (p->window_right == -1);
}

static const struct {
    const char *name;
    bool (*has)(const struct problem *p);
    int least[WAY_COUNT];
} more[] = {
    {"a mask that repeats", mask_repeats, {260, 190, 500, 270}},
    {"a mask of each sequence and head", mask_is_whole, {60, 0, 130, 60}},
    {"a mask that ends early", mask_ends_early, {170, 160, 0, 170}},
    {"features that are not rotated", rotates_some, {270, 570, 850, 180}},
    {"a window that is open to one side", window_is_open, {180, 220, 430, 180}},
};

static void drawn(void **state)
{
    (void)state;
    for (int way = 0; way < WAY_COUNT; way++) {
        int count[128] = {0}, has[sizeof more / sizeof *more] = {0};
        for (uint64_t seed = 1; seed <= DRAWS; seed++) {
            struct problem p;
            draw(&p, (enum problem_way)way, seed);
            for (size_t i = 0; i < problem_field_count; i++)
                count[i] += problem_field_get(&p, &problem_fields[i]) != 0;
            for (size_t i = 0; i < sizeof more / sizeof *more; i++)
                has[i] += more[i].has(&p);
        }
        for (size_t o = 0; o < sizeof options / sizeof *options; o++) {
            size_t i = 0;
            while (strcmp(options[o].name, problem_fields[i].name) != 0)
                assert_true(++i < problem_field_count);
            if (count[i] < options[o].least[way])
                fail_msg("way %d: %d of %d problems have %s, not %d", way, count[i], DRAWS,
                         options[o].name, options[o].least[way]);
        }
        for (size_t i = 0; i < sizeof more / sizeof *more; i++)
            if (has[i] < more[i].least[way])
                fail_msg("way %d: %d of %d problems have %s, not %d", way, has[i], DRAWS,
                         more[i].name, more[i].least[way]);
    }
}

/* ---- Shrinking ------------------------------------------------------------------------------- */

/* A fault of a soft cap with at least 3 keys behind one query head beyond the second. */
static bool fails_with_softcap(const struct problem *p, void *user)
{
    (void)user;
    return p->softcap != 0 && p->n_new >= 3 && p->n_kv_head * p->group > 2;
}

/* A fault of a mask that has a row for each query, of which there are several. Masks that do not
 * fit are refused. */
static bool fails_with_mask(const struct problem *p, void *user)
{
    const uint32_t full[] = {p->batch, problem_n_head(p), p->n_q, problem_n_kv(p)};
    (void)user;
    for (uint32_t i = 0; i < p->mask_rank; i++) {
        const uint32_t n = p->mask_shape[i], most = full[4 - p->mask_rank + i];
        if (i + 1 < p->mask_rank ? n != 1 && n != most : n > most)
            return false;
    }
    return p->mask_rank > 1 && p->mask_shape[p->mask_rank - 2] > 1;
}

static void shrunk(void **state)
{
    int softcaps = 0, masks = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= DRAWS; seed++) {
        struct problem p;
        draw(&p, (enum problem_way)(seed % 2 ? WAY_DENSE : WAY_PACKED), seed);
        const struct problem whole = p;
        if (fails_with_softcap(&p, NULL)) {
            problem_shrink(&p, fails_with_softcap, NULL, 1000);
            assert_true(p.softcap == whole.softcap && p.n_new == 3 && problem_n_head(&p) <= 4);
            assert_true(p.batch == 1 && p.n_past == 0 && p.head_dim == 1 && p.q == VKA_F32);
            assert_true(p.mask_rank == 0 && !p.causal && !p.window &&
                        set_is_empty(p.disabled_kernels));
            assert_true(p.n_q == (p.way == WAY_PACKED ? 3 : 1) && p.seed == whole.seed);
            softcaps++;
        }
        p = whole;
        if (fails_with_mask(&p, NULL)) {
            problem_shrink(&p, fails_with_mask, NULL, 1000);
            assert_true(p.n_q == 2 && p.mask_rank == 2 && p.mask_shape[0] == 2 && p.batch == 1);
            masks++;
        }
    }
    assert_true(softcaps > 100 && masks > 100);
}

static bool never(const struct problem *p, void *user)
{
    (void)p;
    ++*(int *)user;
    return false;
}

/* What does not fail is left alone; tries are counted and bounded. */
static void shrunk_in_vain(void **state)
{
    (void)state;
    for (int most = 1; most < 300; most += 40) {
        struct problem p, before;
        int tries = 0;
        draw(&p, WAY_PACKED, 3);
        before = p;
        assert_true(problem_shrink(&p, never, &tries, most) <= most && tries <= most && tries > 0);
        assert_null(difference(&p, &before));
    }
}

static void reasons(void **state)
{
    (void)state;
    assert_true(problem_same_reason("output: NMSE 1e-3 at 7", "output: NMSE 0.5 at 8"));
    assert_true(problem_same_reason("lost", "lost"));
    assert_false(problem_same_reason("output: NMSE 1", "scores: NMSE 1"));
    assert_false(problem_same_reason("VKA_INVALID: q", "VKA_INVALID: k"));
    assert_false(problem_same_reason("lost", "lost keys"));
}

TEST_PROGRAM(problem)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(told),           cmocka_unit_test(told_alone), cmocka_unit_test(misread),
        cmocka_unit_test(compared),       cmocka_unit_test(drawn),      cmocka_unit_test(shrunk),
        cmocka_unit_test(shrunk_in_vain), cmocka_unit_test(reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
