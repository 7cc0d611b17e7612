/* Predicted times, and what is cut and grouped by them, on devices and problems made by hand: what
 * is counted in closed form is counted key by key here. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/dtype.h"
#include "op/attention/cuts.h"
#include "op/matmul/budget.h"
#include "op/matmul/matmul.h"
#include "op/matmul/pass.h"
#include "params/params.h"
#include "test_program.h"

#define MS 1e6 /* nanoseconds */

static uint32_t state;

static uint32_t draw(uint32_t least, uint32_t most)
{
    state = state * 1664525u + 1013904223u;
    return least + (uint32_t)(((uint64_t)(state >> 8) * (most - least + 1)) >> 24);
}

static void test_group_named(void **unused)
{
    (void)unused;
    size_t first[6];
    const double time[6] = {5, 5, 1, 20, 3, 4};
    assert_int_equal(budget_group(time, 6, 10, first), 4); /* 5 5 | 1 | 20 | 3 4 */
    assert_int_equal(first[0], 0);
    assert_int_equal(first[1], 2);
    assert_int_equal(first[2], 3);
    assert_int_equal(first[3], 4);
    assert_int_equal(budget_group(time, 6, 1e300, first), 1);
    assert_int_equal(budget_group(time, 6, 0.5, first), 6);
}

static void test_group_any(void **unused)
{
    (void)unused;
    for (int round = 0; round < 1000; round++) {
        double time[50], budget = draw(1, 200);
        size_t first[51], n = draw(1, 50);
        for (size_t i = 0; i < n; i++)
            time[i] = draw(0, 100);
        size_t count = budget_group(time, n, budget, first);
        first[count] = n;
        assert_int_equal(first[0], 0);
        for (size_t i = 0; i < count; i++) {
            double sum = 0;
            assert_true(first[i] < first[i + 1]);
            for (size_t j = first[i]; j < first[i + 1]; j++)
                sum += time[j];
            assert_true(sum <= budget || first[i] + 1 == first[i + 1]);
            if (i + 1 < count) /* the next did not fit */
                assert_true(sum + time[first[i + 1]] > budget);
        }
    }
}

static void test_time(void **unused)
{
    (void)unused;
    const struct caps caps = {.properties.type = VKA_DEVICE_DISCRETE};
    struct rates rates = {{{0, 0}}};
    const struct work wide = {1e9, 1, 1}, narrow = {1e6, 1e6, 1};
    double cautious = budget_time(&caps, &rates, KERNEL_matmul_tile, &wide);
    assert_false(budget_is_measured(&rates, KERNEL_matmul_tile));
    rates.of[KERNEL_matmul_tile] = (struct rate){1000, 10};
    assert_true(budget_is_measured(&rates, KERNEL_matmul_tile));
    double measured = budget_time(&caps, &rates, KERNEL_matmul_tile, &wide);
    assert_true(measured < cautious);
    assert_true(measured > 1e9 / 1000 && measured < 4 * 1e9 / 1000); /* a margin */
    double one = budget_time(&caps, &rates, KERNEL_matmul_tile, &narrow);
    assert_true(one > 1e6 / 10 && one < 4 * 1e6 / 10); /* a large device does not help one group */
    rates.of[KERNEL_copy] = (struct rate){7, 7};
    assert_true(budget_is_measured(&rates, KERNEL_rope)); /* is as fast as what only moves data */
    assert_false(budget_is_measured(&rates, KERNEL_attention_tile));
}

static bool sees(const struct attention *a, int64_t query, int64_t key)
{
    const struct vka_attention_options *o = a->options;
    int64_t p = (int64_t)a->n_past + query;
    if (o->causal && key > p)
        return false;
    if (o->window && o->window_left >= 0 && p - key > o->window_left)
        return false;
    return !o->window || o->window_right < 0 || key - p <= o->window_right;
}

static struct vka_attention_options draw_options(void)
{
    return (struct vka_attention_options){
        .causal = draw(0, 1),
        .window = draw(0, 1),
        .window_left = (int32_t)draw(0, 30) - 1,
        .window_right = (int32_t)draw(0, 30) - 1,
        .dropout = draw(0, 3) ? 0 : 0.5f,
    };
}

static struct attention draw_problem(const struct vka_attention_options *options)
{
    struct attention a = {.options = options};
    a.batch = draw(1, 3);
    a.n_kv_head = draw(1, 3);
    a.n_head = a.n_kv_head * draw(1, 3);
    a.n_q = draw(1, 80);
    a.n_past = draw(0, 1) ? 0 : draw(0, 60);
    a.n_kv = a.n_past + draw(1, 200);
    a.head_dim = draw(1, 64);
    a.value_dim = draw(1, 64);
    return a;
}

static void test_count_keys(void **unused)
{
    (void)unused;
    for (int round = 0; round < 2000; round++) {
        const struct vka_attention_options options = draw_options();
        struct attention a = draw_problem(&options);
        uint32_t query = draw(0, a.n_q - 1), n = draw(1, a.n_q - query);
        uint32_t first = draw(0, a.n_kv - 1), end = draw(first, a.n_kv);
        uint64_t count = 0;
        for (uint32_t i = query; i < query + n; i++)
            for (uint32_t j = first; j < end; j++)
                count += sees(&a, i, j);
        assert_int_equal((uint64_t)attention_count_keys(&a, query, n, first, end), count);
    }
}

/* Lengths and positions that the device alone knows: never fewer than there can be. */
static void test_count_unknown(void **unused)
{
    (void)unused;
    struct vka_tensor offsets = {0};
    struct vka_attention_options options = {.causal = true, .query_offset = &offsets};
    struct attention a = {.options = &options, .n_q = 10, .n_kv = 100};
    assert_int_equal((int)attention_count_keys(&a, 0, 10, 0, 100), 1000);
    options.window = true;
    options.window_left = 4;
    assert_int_equal((int)attention_count_keys(&a, 0, 10, 0, 100), 50);
    assert_int_equal((int)attention_count_keys(&a, 0, 10, 98, 100), 20);
}

static struct attention_choice draw_choice(const struct attention *a)
{
    struct attention_choice c = {.kernel = KERNEL_attention_row, .lanes = 8, .rows = 2, .tile = 16};
    c.keys = ATTENTION_BLOCK;
    c.head4 = (a->head_dim + 3) / 4;
    c.value4 = (a->value_dim + 3) / 4;
    c.n_feature_tile = 1;
    if (draw(0, 1)) {
        c.kernel = KERNEL_attention_tile;
        c.lanes_y = c.depth4 = 4;
        c.rows = 16;
        c.tile = 64;
        c.v_keys = c.keys = 32;
        c.n_feature_tile = draw(1, 2);
    }
    c.n_split = draw(0, 1) ? 1 : draw(2, 6);
    c.split_keys = (a->n_kv / c.n_split / c.keys + 1) * c.keys;
    return c;
}

/* The passes follow each other in whole steps and take in every key of every split, once. */
static void check_spans(const struct attention *a, const struct attention_cuts *cuts)
{
    const struct attention_choice *c = &a->choice;
    uint32_t next = c->n_split > 1 ? 0 : cuts->key;
    assert_true(cuts->n_span >= 1 && cuts->keys >= 1 && cuts->splits >= 1);
    assert_true(cuts->n_span == 1 || cuts->splits == 1);
    assert_int_equal(cuts->key % attention_span_multiple(c), 0);
    for (uint32_t split = 0; split < c->n_split; split += cuts->splits)
        for (uint32_t span = 0; span < cuts->n_span; span++) {
            struct key_range keys = attention_pass_keys(a, cuts, split, span);
            if (!keys.end)
                continue;
            assert_int_equal(keys.first, next);
            assert_int_equal(keys.first % attention_span_multiple(c), 0);
            next = keys.end;
        }
    struct key_range last = attention_chain_keys(a, cuts, c->n_split - 1);
    assert_int_equal(next, last.end < a->n_kv ? last.end : a->n_kv);
}

/* A cut says itself whether it fits, whatever the problem, and what is last is cut as far as it
 * goes. */
static void test_cut(void **unused)
{
    (void)unused;
    static const double budgets[] = {1e2, 1e4, 1 * MS, 1e300};
    struct vka_device device = {0};
    size_t cut_keys = 0, cut_splits = 0, cut_tiles = 0;
    for (int round = 0; round < 4000; round++) {
        const struct vka_attention_options options = draw_options();
        struct vka_plan plan = {
            .device = &device,
            .caps.properties = {.type = VKA_DEVICE_CPU, .max_buffer_range = UINT64_MAX},
            .caps.max_groups = {UINT32_MAX, UINT32_MAX, UINT32_MAX},
            .workspace_limit = UINT64_MAX,
            .budget = budgets[draw(0, 3)]};
        struct attention a = draw_problem(&options);
        struct attention_choice c = draw_choice(&a);
        plan.caps.max_loops = draw(0, 1) ? 0 : draw(3000, 30000);
        const bool last = draw(0, 1);
        const struct head_slice s = {.n_batch = last ? 1 : a.batch,
                                     .n_head = last ? a.n_head / a.n_kv_head : a.n_head,
                                     .n_query = last ? 1 : a.n_q};
        a.n_sequence = draw(0, 1) ? draw(1, 5) : 0;
        while (c.n_split > 1 && c.split_keys * (c.n_split - 1) >= a.n_kv)
            c.n_split--; /* none is empty */
        a.choice = c;
        struct attention_cuts cuts;
        bool fits = attention_cut(&plan, &a, &s, last, &cuts);
        check_spans(&a, &cuts);
        assert_true(fits || !last);
        assert_true(cuts.tiles >= 1 && cuts.tiles <= cuts.n_tile);
        cut_keys += cuts.n_span > 1;
        cut_splits += cuts.splits < c.n_split;
        cut_tiles += cuts.tiles < cuts.n_tile;
        for (uint32_t i = 0; i < cuts.n_span && fits && !last; i++) {
            struct key_range keys = attention_pass_keys(&a, &cuts, 0, i);
            struct work work = attention_work(&a, &s, cuts.tiles, keys);
            assert_true(!keys.end || plan_fits(&plan, c.kernel, &work));
        }
    }
    assert_true(cut_keys > 100 && cut_splits > 100 && cut_tiles > 100); /* it came to that */
}

/* Cuts a problem into slices, and adds up their work. */
struct slices {
    const struct attention *a;
    double *sum;
};

static int judge_slice(const struct vka_plan *plan, const struct cut *cut,
                       const struct slice *slice)
{
    (void)plan;
    return rand() % 8 == 0 ? CUT_FITS : cut_first_axis(slice, cut->least);
}

static enum vka_status add_slice(struct vka_plan *plan, const void *job, const struct slice *slice)
{
    const struct slices *slices = job;
    const struct attention *a = slices->a;
    const struct head_slice s = head_slice_of(&(struct head_slice){0}, slice);
    const struct key_range all = {0, a->n_kv};
    (void)plan;
    *slices->sum += attention_work(a, &s, attention_tiles(a, &s), all).ops;
    return VKA_OK;
}

/* The work of a problem is that of its slices, but for rows that fill up tiles. */
static void test_work_adds_up(void **unused)
{
    (void)unused;
    for (int round = 0; round < 1000; round++) {
        const struct vka_attention_options options = draw_options();
        struct attention a = draw_problem(&options);
        a.choice = (struct attention_choice){
            .kernel = KERNEL_attention_row, .tile = 1, .n_feature_tile = 1, .n_split = 1};
        const struct key_range all = {0, a.n_kv};
        struct head_slice s = {.n_batch = a.batch, .n_head = a.n_head, .n_query = a.n_q};
        double whole = attention_work(&a, &s, attention_tiles(&a, &s), all).ops;
        assert_true(whole > 0);
        double sum = 0;
        uint32_t group = a.n_head / a.n_kv_head;
        const struct cut cut = {
            .job = &(const struct slices){&a, &sum},
            .multiple = {1, group, 1, CUT_NEVER},
            .least = {1, group, 1, CUT_NEVER},
            .judge = judge_slice,
            .add = add_slice,
        };
        assert_int_equal(plan_cut(NULL, &cut, (const uint32_t[]){a.batch, a.n_head, a.n_q, 1}),
                         VKA_OK);
        assert_true(sum > whole * (1 - 1e-9) && sum < whole * (1 + 1e-9));
    }
}

static void test_matmul(void **unused)
{
    (void)unused;
    struct vka_device device = {0};
    struct vka_plan plan = {.device = &device, .budget = 1e300};
    struct matmul_op op = {.group = 2};
    const uint32_t a[4] = {3, 4, 100, 50}, c[4] = {3, 4, 100, 70};
    const struct matmul_choice choice = {.kernel = KERNEL_matmul_tile,
                                         .rows = 32,
                                         .columns = 64,
                                         .side = 8,
                                         .tile_m = 4,
                                         .tile_n = 4};
    memcpy(op.a.shape.size, a, sizeof a);
    memcpy(op.c.shape.size, c, sizeof c);
    struct work work = matmul_work(&op, &choice);
    assert_true(work.longest == 2.0 * 32 * 64 * 50);
    assert_true(work.ops == work.longest * 4 * 2 * 12); /* four tiles of rows, two of columns */
    assert_int_equal(matmul_budget_axis(&plan, &op, &choice), -1);
    plan.budget = 1;
    for (int axis = 0; axis < 4; axis++) {
        static const uint32_t least[4] = {1, 2, 32, 64};
        assert_int_equal(matmul_budget_axis(&plan, &op, &choice), axis);
        op.c.shape.size[axis] = least[axis];
    }
    assert_int_equal(matmul_budget_axis(&plan, &op, &choice), -1);
}

/* Sums that wait for the next span of k, two floats a result, fit a binding and an allocation, or are of the
 * least slice. */
static void test_matmul_sums(void **unused)
{
    (void)unused;
    struct vka_device device = {0};
    struct vka_plan plan = {.device = &device, .budget = 1e300};
    struct vka_device_properties *p = &plan.caps.properties;
    const struct matmul_choice choice = {.kernel = KERNEL_matmul_tile, .rows = 32, .columns = 64};
    unsigned halved[4] = {0};
    for (int round = 0; round < 1000; round++) {
        struct matmul_op op = {.group = draw(1, 2), .a.shape.size = {1, 1, 1, 5000}};
        const uint32_t size[4] = {draw(1, 9), op.group * draw(1, 9), draw(1, 3), draw(1, 9999)};
        const uint32_t shortest[4] = {1, op.group, 1, 64};
        memcpy(op.c.shape.size, size, sizeof size);
        p->max_buffer_range = draw(1u << 16, 1u << 20);
        p->max_allocation = draw(1u << 16, 1u << 20);
        int axis;
        while ((axis = matmul_axis_of_k(&plan, &op, &choice)) != AXIS_K) {
            assert_in_range(axis, 0, 3);
            uint32_t *cut = &op.c.shape.size[axis];
            assert_true(*cut > shortest[axis]);
            *cut = *cut / 2 < shortest[axis] ? shortest[axis] : *cut / 2;
            halved[axis]++;
        }
        uint64_t sums = 8;
        for (int i = 0; i < 4; i++)
            sums *= op.c.shape.size[i];
        assert_true(sums <= p->max_buffer_range && sums <= p->max_allocation);
    }
    for (int i = 0; i < 4; i++)
        assert_true(halved[i] > 10);
}

/* Slices along k of rows that a kernel reads by aligned vectors of 16 bytes begin at vectors. */
static void test_matmul_vectors(void **unused)
{
    (void)unused;
    struct matmul_choice words = {.kernel = KERNEL_matmul_few, .b_vec = 1}, vectors = words;
    unsigned read = 0, longer = 0;
    vectors.b_vec = 2;
    for (int t = 0; t < VKA_DTYPE_COUNT; t++) {
        struct matmul_op op = {.b = {.dtype = (enum vka_dtype)t}};
        if (BUNDLE_PAIR_WORDS(t) == 0)
            continue;
        read++;
        assert_int_equal(dtype_bytes(op.b.dtype, matmul_least_k(&op, &words)) % 4, 0);
        assert_int_equal(dtype_bytes(op.b.dtype, matmul_least_k(&op, &vectors)) % 16, 0);
        longer += matmul_least_k(&op, &vectors) > matmul_least_k(&op, &words);
    }
    assert_in_range(longer, 1, read);
}

TEST_PROGRAM(prediction)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_named),   cmocka_unit_test(test_group_any),
        cmocka_unit_test(test_time),          cmocka_unit_test(test_count_keys),
        cmocka_unit_test(test_count_unknown), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_work_adds_up),  cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_matmul_sums),   cmocka_unit_test(test_matmul_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
