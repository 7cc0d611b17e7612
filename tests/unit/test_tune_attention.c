/* Choices of attention kernels and their sizes on devices made by hand: named cases, then what must
 * hold for every problem on every device. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "core/status.h"
#include "params/params.h"
#include "kernel/attention.h"
#include "kernel/attention_family.h"
#include "test_program.h"
#include "tune_devices.h"

/* ---- Named cases ----------------------------------------------------------------------------- */

static void cpu_attends_by_address(void **state)
{
    (void)state;
    struct caps old = mesa(22), new = mesa(26);
    const struct attention_problem far = {
        .batch = 1,
        .n_kv_head = 8,
        .n_row = 512,
        .n_kv = 512,
        .head_dim = 64,
        .value_dim = 64,
        .address = true,
    };
    struct attention_problem unaligned = far, near = far;
    struct attention_choice c;
    unaligned.address = false;
    near.n_kv = 100;
    tune_attention(&new, &far, &c);
    assert_int_equal(c.kernel, KERNEL_attention_address);
    assert_true(c.usable && c.preferred);
    assert_in_range(c.rows, 1, 2);
    tune_attention(&new, &unaligned, &c);
    assert_int_equal(c.kernel, KERNEL_attention_texel);
    assert_true(c.usable && !c.preferred); /* compiling it takes too long */
    tune_attention(&new, &near, &c);
    assert_false(c.preferred);
    tune_attention(&old, &far, &c);
    assert_int_equal(c.kernel, KERNEL_attention_texel);
    tune_attention(&discrete, &far, &c);
    assert_int_equal(c.kernel, KERNEL_attention_tile);
}

/* Few rows of whole vectors: features in lanes. */
static void cpu_decodes_by_features(void **state)
{
    (void)state;
    struct caps new = mesa(26), old = mesa(22), wide = new, plain = new;
    const struct attention_problem step = {
        .batch = 1,
        .n_kv_head = 8,
        .n_row = 3,
        .n_kv = 4096,
        .head_dim = 128,
        .value_dim = 128,
        .address = true,
    };
    struct attention_problem p = step;
    struct attention_choice c;
    tune_attention(&new, &step, &c);
    assert_int_equal(c.kernel, KERNEL_attention_feature);
    assert_true(c.usable && c.preferred && c.rows == 4 && c.tile == 4);
    for (p.n_row = 1; p.n_row <= 16; p.n_row++) {
        tune_attention(&new, &p, &c);
        assert_int_equal(c.kernel, KERNEL_attention_feature);
    }
    tune_attention(&new, &p, &c); /* 17 rows */
    assert_int_equal(c.kernel, KERNEL_attention_address);
    p = step;
    p.head_dim = 72;
    tune_attention(&new, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_feature);
    p.kv_type = VKA_F16;
    tune_attention(&new, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_address);
    p = step;
    p.head_dim = p.value_dim = 264;
    tune_attention(&new, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_address);
    plain.shuffle = false;
    tune_attention(&plain, &step, &c);
    assert_int_equal(c.kernel, KERNEL_attention_address);
    wide.properties.subgroup_size = 16;
    tune_attention(&wide, &step, &c);
    assert_int_equal(c.kernel, KERNEL_attention_texel);
    tune_attention(&old, &step, &c);
    assert_int_equal(c.kernel, KERNEL_attention_texel);
}

/* Few rows of each sequence of a ragged batch are as few rows of each batch element, but not split,
 * as only the device knows how many keys a sequence has. */
static void ragged_decoding(void **state)
{
    (void)state;
    struct attention_problem p = {.batch = 1,
                                  .n_kv_head = 2,
                                  .n_row = 4,
                                  .n_kv = 9000,
                                  .head_dim = 128,
                                  .value_dim = 128,
                                  .ragged = true};
    struct attention_choice c;
    tune_attention(&discrete, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_decode);
    assert_int_equal(c.rows, 4);
    assert_int_equal(c.n_split, 1);
    p.n_row = 17;
    tune_attention(&discrete, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_tile);
}

/* With a cache, kernel and size of a split follow from types, head sizes, device and whether rows are few:
 * capacity, batch, and numbers of rows and heads change nothing. */
static void cached_keys(void **state)
{
    (void)state;
    static const uint32_t capacities[] = {16, 33, 129, 2047, 2049, 16385, 20000, 1u << 20};
    struct caps devices[TUNE_DEVICES];
    tune_devices(devices);
    for (size_t d = 0; d < TUNE_DEVICES; d++)
        for (uint32_t many = 0; many < 2; many++) {
            struct attention_problem p = {.batch = 1,
                                          .n_kv_head = 8,
                                          .n_row = many ? 17 : 1,
                                          .n_kv = 20000,
                                          .head_dim = 64,
                                          .value_dim = 64,
                                          .cached = true};
            struct attention_choice want, c;
            tune_attention(&devices[d], &p, &want);
            for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
                p.n_kv = capacities[i];
                p.batch = 1 + (uint32_t)i;
                p.n_kv_head = i % 2 ? 2 : 8;
                p.n_row = many ? 17 + 300 * i : 1 + 2 * i;
                tune_attention(&devices[d], &p, &c);
                assert_int_equal(c.kernel, want.kernel);
                assert_int_equal(c.usable, want.usable);
                assert_int_equal(c.preferred, want.preferred);
                assert_int_equal(c.keys, want.keys);
                if (!c.usable || (c.n_split == 1 && p.n_kv <= want.split_keys))
                    continue;
                assert_int_equal(c.split_keys, want.split_keys);
                assert_int_equal(c.n_split, (p.n_kv - 1) / want.split_keys + 1);
            }
        }
}

/* With a cache each variant is a size of the splits of its own, on every device, or another step. */
static void cached_variants(void **state)
{
    (void)state;
    /* Halves of the rules' own keys of a split. */
    static const uint32_t halves[] = {2, 4, 8, 16, 32, 1, 2, 8};
    struct caps devices[TUNE_DEVICES];
    tune_devices(devices);
    uint32_t n_split = 0, n_step = 0;
    for (size_t d = 0; d < TUNE_DEVICES; d++)
        for (int f16 = 0; f16 < 2; f16++) {
            const enum vka_dtype type = f16 ? VKA_F16 : VKA_F32;
            struct attention_problem p = {.batch = 4,
                                          .n_kv_head = 8,
                                          .n_row = 4,
                                          .n_kv = 32768,
                                          .head_dim = 128,
                                          .value_dim = 128,
                                          .q_type = type,
                                          .kv_type = type,
                                          .v_type = type,
                                          .o_type = type,
                                          .cached = true};
            struct attention_choice own, c;
            tune_attention(&devices[d], &p, &own);
            for (uint32_t i = 0; i < sizeof halves / sizeof *halves && own.n_split > 2; i++) {
                p.variant = i;
                tune_attention(&devices[d], &p, &c);
                if (c.kernel != own.kernel || own.split_keys == TUNE_CHAIN)
                    continue;
                const uint32_t keys = own.split_keys / 2 * halves[i];
                assert_int_equal(c.split_keys, (keys + c.keys - 1) / c.keys * c.keys);
                assert_true(i >= 6 || (c.keys == own.keys && c.batch == own.batch));
                n_step += i >= 6 && (c.keys != own.keys || c.batch != own.batch);
                n_split++;
            }
        }
    assert_true(n_split > 20 && n_step > 2);
}

static void fused_attention(void **state)
{
    (void)state;
    const struct attention_problem p = {
        .n_kv_head = 8, .n_row = 512, .n_kv = 512, .head_dim = 64, .value_dim = 64};
    struct attention_choice c;
    tune_attention(&mobile, &p, &c);
    assert_false(c.usable);
    struct caps caps = cpu(8);
    tune_attention(&caps, &p, &c);
    assert_true(c.usable);
    assert_int_equal(c.kernel, KERNEL_attention_texel);
    caps.without = KERNEL_SET(KERNEL_attention_texel);
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_row);
    set_add(&caps.without, KERNEL_attention_row); /* tiles work there too, slowly */
    tune_attention(&caps, &p, &c);
    assert_true(c.usable && !c.preferred);
    assert_int_equal(c.kernel, KERNEL_attention_tile);
    caps.without = set_all_but(NO_KERNELS);
    tune_attention(&caps, &p, &c);
    assert_false(c.usable);
}

static void fused_tiles(void **state)
{
    (void)state;
    struct attention_problem p = {
        .n_kv_head = 8, .n_row = 4096, .n_kv = 4096, .head_dim = 64, .value_dim = 64};
    struct attention_choice c;
    struct caps caps = discrete;
    tune_attention(&caps, &p, &c);
    assert_true(c.usable && c.preferred);
    assert_int_equal(c.kernel, KERNEL_attention_tile);
    assert_int_equal(c.tile, 48);
    assert_int_equal(c.keys, 32);
    assert_int_equal(c.n_split, 1); /* 512 workgroups */
    assert_true(c.q_whole && !c.map);
    p.mask = true;
    tune_attention(&caps, &p, &c);
    assert_true(c.map);
    p.n_row = 4; /* decoding: 8 workgroups, so the keys are cut */
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.tile, 4);
    assert_int_equal(c.split_keys, 128);
    assert_int_equal(c.n_split, 32);
    assert_false(c.map);  /* one tile reads the mask once anyway */
    caps.processors = 32; /* the device tells: 8 heads by 8 splits */
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.split_keys, 512);
    assert_int_equal(c.n_split, 8);
    caps.processors = 0;
    caps.without = KERNEL_SET(KERNEL_attention_merge);
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.n_split, 1);
    caps.properties.max_shared_memory = 4096;
    p.head_dim = p.value_dim = 5000; /* of any size */
    tune_attention(&caps, &p, &c);
    assert_true(c.usable && !c.q_whole);
    assert_true(c.n_feature_tile > 1);
    caps.without = KERNEL_SET(KERNEL_attention_tile);
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_row);
}

/* Where registers are few, more lanes share a row of a large head, and Intel has fewer rows. */
static void tiles_fit_registers(void **state)
{
    (void)state;
    static const struct {
        uint32_t vendor, dim, lanes, lanes_y, rows;
    } want[] = {
        {0x1002, 64, 8, 16, 3},  {0x1002, 128, 8, 16, 2},   {0x10de, 256, 16, 12, 2},
        {0x8086, 64, 8, 16, 2},  {0x8086, 128, 16, 16, 2},  {0x8086, 256, 32, 8, 2},
        {0x5143, 64, 8, 16, 3},  {0x5143, 128, 16, 16, 2},  {0x5143, 256, 32, 8, 2},
        {0x10005, 64, 8, 16, 3}, {0x10005, 128, 16, 16, 2}, {0x1010, 256, 32, 8, 2},
        {0x13b5, 64, 16, 16, 1}, {0x13b5, 128, 32, 8, 1},   {0x13b5, 256, 32, 8, 1},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct caps caps = discrete;
        struct attention_problem p = {.n_kv_head = 8,
                                      .n_row = 4096,
                                      .n_kv = 4096,
                                      .head_dim = want[i].dim,
                                      .value_dim = want[i].dim};
        struct attention_choice c;
        caps.properties.vendor_id = want[i].vendor;
        tune_attention(&caps, &p, &c);
        assert_int_equal(c.kernel, KERNEL_attention_tile);
        assert_true(c.lanes == want[i].lanes && c.lanes_y == want[i].lanes_y);
        assert_true(c.rows == want[i].rows && c.n_feature_tile == 1);
        assert_true(c.q_whole || want[i].vendor != 0x10de);
        caps.properties.max_workgroup = 128;
        tune_attention(&caps, &p, &c);
        assert_int_equal(c.lanes * c.lanes_y, want[i].lanes_y == 12 ? 96 : 128);
        assert_true(c.rows >= 2 || want[i].rows == 1);
    }
}

/* A query row a workgroup, and fewer loads at a time, where an invocation has 64 registers. */
static void few_rows_of_few_registers(void **state)
{
    (void)state;
    struct caps caps = discrete;
    struct attention_problem p = {
        .n_kv_head = 8, .n_row = 4, .n_kv = 4096, .head_dim = 128, .value_dim = 128};
    struct attention_choice many, few;
    tune_attention(&caps, &p, &many);
    caps.properties.vendor_id = 0x13b5;
    tune_attention(&caps, &p, &few);
    assert_int_equal(many.kernel, KERNEL_attention_decode);
    assert_int_equal(few.kernel, KERNEL_attention_decode);
    assert_true(many.rows == 4 && few.rows == 1 && 4 * few.batch == many.batch);
    assert_int_equal(many.keys, few.keys); /* which decide the bits of a row */
    p.kv_type = p.v_type = VKA_Q4_0;
    tune_attention(&caps, &p, &few);
    assert_true(few.kernel == KERNEL_attention_decode && few.rows == 1 && few.batch == 2);
}

/* ---- What must hold for every problem -------------------------------------------------------- */

static void check_tile_sizes(const struct caps *caps, const struct attention_problem *p,
                             const struct attention_choice *c)
{
    assert_in_range(tune_attention_shared(c), 1, caps->properties.max_shared_memory);
    assert_in_range(c->lanes * c->lanes_y, 1, caps->properties.max_workgroup);
    assert_int_equal(c->tile, c->lanes_y * c->rows);
    assert_int_equal(c->keys, 4 * c->lanes);
    assert_true(c->lanes_y > 0 && c->depth4 > 0);
    assert_int_equal(c->head4 % c->depth4, 0);
    assert_true(c->head4 * 4 >= p->head_dim && c->head4 * 4 < p->head_dim + 4 * c->depth4 + 4);
    assert_true(c->v_keys >= 4 && c->v_keys % 4 == 0);
    assert_int_equal(c->keys % c->v_keys, 0);
}

static void check_coop_sizes(const struct caps *caps, const struct attention_problem *p,
                             const struct attention_choice *c)
{
    uint32_t row_lanes = caps->least_subgroup / c->size.m * c->columns;
    assert_in_range(tune_attention_shared(c), 1, caps->properties.max_shared_memory);
    assert_int_equal(c->lanes, c->lanes_y * caps->least_subgroup);
    assert_int_equal(c->tile, c->lanes_y / c->columns * c->size.m);
    assert_true(4 * c->head4 >= p->head_dim && 4 * c->head4 % c->size.k == 0);
    assert_true(4 * c->value4 >= p->value_dim && 4 * c->value4 % c->size.n == 0);
    assert_int_equal(4 * c->value4 % (c->size.n * c->columns), 0);
    assert_true(c->keys % (c->size.n * c->columns) == 0 && c->keys % c->size.k == 0);
    assert_true(row_lanes > 0 && c->keys % (8 * row_lanes) == 0 && c->keys / row_lanes <= 32);
    assert_true(p->q_type == p->kv_type && p->kv_type == p->v_type);
    assert_true(p->q_type != VKA_F32 && p->o_type != VKA_F32);
    assert_int_equal(c->n_feature_tile, 1);
}

static void check_coop2_sizes(const struct caps *caps, const struct attention_problem *p,
                              const struct attention_choice *c)
{
    assert_in_range(tune_attention_shared(c), 1, caps->properties.max_shared_memory);
    assert_int_equal(c->lanes, c->lanes_y * caps->least_subgroup);
    assert_int_equal(c->tile, c->lanes_y * c->size.m);
    bool flexible;
    struct matrix_size size = caps_reduced_size(caps, kernel_table[c->kernel].needs, &flexible);
    assert_true(c->size.m <= COOP2_ROWS_MOST && c->size.m % size.m == 0);
    assert_true(c->size.n == c->size.k && c->size.n % 8 == 0);
    assert_int_equal(c->size.n % size.k, 0);
    assert_true(4 * c->head4 >= p->head_dim && 4 * c->head4 % c->size.n == 0);
    assert_true(4 * c->value4 >= p->value_dim && 4 * c->value4 % c->size.n == 0);
    assert_int_equal(c->keys % c->size.n, 0);
    assert_true(p->q_type == p->kv_type && p->kv_type == p->v_type);
    assert_true(p->q_type != VKA_F32 && p->o_type != VKA_F32);
    assert_int_equal(c->n_feature_tile, 1);
}

static void check_decode_sizes(const struct caps *caps, const struct attention_problem *p,
                               const struct attention_choice *c)
{
    uint32_t k_elements = p->kv_type == VKA_F32 ? 4 : 8, v_elements = p->v_type == VKA_F32 ? 4 : 8;
    assert_true(p->n_row <= 16);
    assert_true(caps->properties.subgroup_size >= DECODE_THREADS / DECODE_SUBGROUPS);
    assert_true(tune_attention_shared(c) <= caps->properties.max_shared_memory);
    assert_int_equal(c->keys, DECODE_KEYS);
    assert_true(c->batch > 0 && c->batch % 2 == 0);
    assert_in_range(c->rows, 1, 8);
    assert_int_equal(c->rows, c->tile);
    assert_true(4 * c->head4 >= p->head_dim && 4 * c->head4 % k_elements == 0);
    assert_true(4 * c->value4 % v_elements == 0);
    assert_in_range(4 * c->value4 / v_elements, 1, DECODE_THREADS);
    assert_int_equal(c->n_feature_tile, 1);
    assert_false(c->map);
}

/* What the kernels that take tiles have in common. */
static void check_attention_tile(const struct caps *caps, const struct attention_problem *p,
                                 const struct attention_choice *c)
{
    if (c->kernel == KERNEL_attention_tile || c->kernel == KERNEL_attention_tile_mixed)
        check_tile_sizes(caps, p, c);
    else if (c->kernel == KERNEL_attention_decode)
        check_decode_sizes(caps, p, c);
    else if (attention_reduces_matrices(c->kernel))
        check_coop2_sizes(caps, p, c);
    else
        check_coop_sizes(caps, p, c);
    assert_true(c->n_feature_tile * c->value4 * 4 >= p->value_dim);
    assert_true(c->n_split > 0);
    if (c->n_split > 1) {
        assert_true(!p->ragged || c->split_keys == TUNE_CHAIN);
        assert_true(c->split_keys <= TUNE_CHAIN);
        assert_null(kernel_missing(KERNEL_attention_merge, caps));
        assert_int_equal(c->split_keys % c->keys, 0);
        assert_true((uint64_t)c->split_keys * c->n_split >= p->n_kv);
        assert_true((uint64_t)c->split_keys * (c->n_split - 1) < p->n_kv); /* none is empty */
    }
    if (c->map)
        assert_true(p->mask && !kernel_missing(KERNEL_attention_map, caps));
    struct attention_problem more = *p; /* of the same kind: other sequences change no bits */
    struct attention_choice d;
    more.batch = any_size(10);
    if (p->ragged && p->n_row > 16)
        more.n_row += any_size(20);
    tune_attention(caps, &more, &d);
    assert_int_equal(d.kernel, c->kernel);
    assert_int_equal(d.keys, c->keys);
    assert_int_equal(d.n_split, c->n_split);
    assert_int_equal(d.split_keys, c->split_keys);
}

static void check_attention(const struct caps *caps)
{
    struct attention_problem p = {
        .batch = any_size(10),
        .n_kv_head = any_size(6),
        .n_row = any_size(20),
        .n_kv = any_size(20),
        .head_dim = any_size(9),
        .value_dim = any_size(9),
        .q_type = (enum vka_dtype)below(3),
        .ragged = below(2),
        .mask = below(2),
    };
    struct attention_choice c;
    p.kv_type = below(4) ? p.q_type : (enum vka_dtype)below(3);
    p.v_type = below(4) ? p.q_type : (enum vka_dtype)below(3);
    p.o_type = below(4) ? p.q_type : (enum vka_dtype)below(3);
    memset(&c, 0xa5, sizeof c);
    tune_attention(caps, &p, &c);
    assert_true(c.reason && c.reason[0]);
    if (!c.usable) { /* the unfused path is always there */
        assert_true(c.kernel < KERNEL_COUNT);
        return;
    }
    assert_null(kernel_missing(c.kernel, caps));
    assert_true(is_power_of_two(c.lanes));
    assert_in_range(c.lanes, 1, caps->properties.max_workgroup);
    assert_true(c.rows > 0 && c.tile > 0);
    if (tune_takes_tiles(c.kernel)) {
        check_attention_tile(caps, &p, &c);
        return;
    }
    assert_true(c.kernel == KERNEL_attention_row || c.kernel == KERNEL_attention_texel ||
                c.kernel == KERNEL_attention_address || c.kernel == KERNEL_attention_feature);
    assert_true(c.head4 * 4 >= p.head_dim && c.value4 * 4 >= p.value_dim);
}

static void invariants(void **state)
{
    (void)state;
    tune_vary(check_attention);
}

TEST_PROGRAM(tune_attention)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_attends_by_address),
        cmocka_unit_test(cpu_decodes_by_features),
        cmocka_unit_test(ragged_decoding),
        cmocka_unit_test(cached_keys),
        cmocka_unit_test(cached_variants),
        cmocka_unit_test(fused_attention),
        cmocka_unit_test(fused_tiles),
        cmocka_unit_test(tiles_fit_registers),
        cmocka_unit_test(few_rows_of_few_registers),
        cmocka_unit_test(invariants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
