/* Choices of attention kernels with matrices, and their sizes, on devices made by hand. What must hold
 * for every problem is in test_tune_attention.c. SPDX-License-Identifier: MIT */
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
#include "test_program.h"
#include "tune_devices.h"

static void fused_matrices(void **state)
{
    (void)state;
    struct caps caps = with_matrices(&discrete);
    struct attention_problem p = {
        .n_kv_head = 8, .n_row = 4096, .n_kv = 4096, .head_dim = 64, .value_dim = 64};
    struct attention_choice c;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_tile); /* float32 stays float32 */
    p.q_type = p.kv_type = p.v_type = p.o_type = VKA_F16;
    tune_attention(&caps, &p, &c);
    assert_true(c.usable && c.preferred);
    assert_int_equal(c.kernel, KERNEL_attention_coop_f16);
    assert_int_equal(c.tile, 64);
    assert_int_equal(c.keys, 64);
    assert_int_equal(c.lanes, 128);
    assert_int_equal(c.columns, 1);
    assert_int_equal(c.ahead, AHEAD_VALUES | AHEAD_Q | AHEAD_KEYS);
    assert_int_equal(c.n_split, 1);
    p.n_row = 64; /* 8 workgroups */
    tune_attention(&caps, &p, &c);
    assert_true(c.n_split > 1);
    p.n_row = 16; /* one matrix of rows, and as many subgroups as load */
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop_f16);
    assert_int_equal(c.tile, 16);
    assert_int_equal(c.columns, 4);
    assert_int_equal(c.keys, 64);
    caps.matrix_registers = 96; /* not enough for the loads of so few lanes */
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_decode);
    assert_int_equal(c.rows, 8);
    caps.matrix_registers = MATRIX_REGISTERS;
    p.n_row = 64;
    p.head_dim = 257;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_tile);
    p.head_dim = 64;
    p.o_type = VKA_F32; /* weights would be rounded to 16 bits */
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_tile);
    p.o_type = VKA_F16;
    p.v_type = VKA_BF16;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_tile);
    p.q_type = p.kv_type = p.o_type = VKA_BF16;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop_bf16);
    p.o_type = VKA_F16; /* weights would be rounded to 8 bits where the output has 11 */
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_tile);
    p.q_type = p.kv_type = p.v_type = VKA_F16;
    p.o_type = VKA_BF16;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop_f16);
    p.q_type = p.kv_type = p.v_type = VKA_BF16;
    caps.kernels[KERNEL_attention_coop_bf16] = KERNEL_WRONG;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_tile);
}

/* Many rows and keys of float16, which the kernels on matrices are for. */
static const struct attention_problem many_halves = {.n_kv_head = 8,
                                                     .n_row = 4096,
                                                     .n_kv = 4096,
                                                     .head_dim = 64,
                                                     .value_dim = 64,
                                                     .q_type = VKA_F16,
                                                     .kv_type = VKA_F16,
                                                     .v_type = VKA_F16,
                                                     .o_type = VKA_F16};

/* Matrices of flexible size: for many rows, and where all that stays in registers fits them. */
static void fused_flexible_matrices(void **state)
{
    (void)state;
    struct caps caps = with_flexible_matrices(&discrete);
    struct attention_problem p = many_halves;
    static const struct {
        uint32_t dim, m, keys; /* given; chosen, or 0 */
    } cases[] = {{40, 32, 64},  {64, 32, 64}, {80, 16, 64}, {128, 16, 64},
                 {160, 16, 32}, {192, 0, 0},  {256, 0, 0}};
    struct attention_choice c;
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        p.head_dim = p.value_dim = cases[i].dim;
        tune_attention(&caps, &p, &c);
        assert_int_equal(c.kernel,
                         cases[i].m ? KERNEL_attention_coop2_f16 : KERNEL_attention_coop_f16);
        if (!cases[i].m)
            continue;
        assert_true(c.usable && c.preferred);
        assert_int_equal(c.size.m, cases[i].m);
        assert_true(c.size.n == 16 && c.size.k == 16);
        assert_int_equal(c.keys, cases[i].keys);
        assert_int_equal(c.lanes_y, 4);
        assert_int_equal(c.tile, 4 * cases[i].m);
        assert_int_equal(c.lanes, 32 * 4);
        assert_int_equal(c.ahead, AHEAD_VALUES | AHEAD_KEYS);
    }
    p.head_dim = p.value_dim = 128;
    p.n_row = 16; /* few rows have their own */
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop_f16);
    p.n_row = 64;
    p.q_type = p.kv_type = p.v_type = p.o_type = VKA_BF16;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop2_bf16);
    assert_true(c.n_split > 1);
    caps.kernels[KERNEL_attention_coop2_bf16] = KERNEL_WRONG;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop_bf16);
    p.o_type = VKA_F16; /* of more digits than its weights */
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_tile);
    p.q_type = p.kv_type = p.v_type = VKA_F16;
    p.o_type = VKA_BF16; /* of fewer */
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop2_f16);
    p.o_type = VKA_F32;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_tile);
    p.o_type = VKA_F16;
    caps.reduced_nv.f16 = (struct matrix_size){64, 8, 16}; /* more rows than a subgroup has bits */
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop_f16);
}

/* Whether they come first depends on the lanes of a row, which are as many as the columns where nothing
 * is known of them; the vendor does not matter. */
static void lanes_of_rows(void **state)
{
    (void)state;
    struct caps caps = with_flexible_matrices(&discrete);
    struct attention_choice c;
    caps.properties.vendor_id = 0x1002;
    tune_attention(&caps, &many_halves, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop2_f16);
    caps.reduced_nv.f16.n = 16;
    tune_attention(&caps, &many_halves, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop_f16);
    caps.without = KERNEL_SET(KERNEL_attention_coop_f16); /* as `vkattn tune` does */
    tune_attention(&caps, &many_halves, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop2_f16);
    caps.without = NO_KERNELS;
    caps.matrix_row_lanes = 4;
    tune_attention(&caps, &many_halves, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop2_f16);
    caps.matrix_row_lanes = 16;
    tune_attention(&caps, &many_halves, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop_f16);
}

/* By two extensions: NVIDIA's comes first, the other stands in for it, and without both there is
 * attention_coop. */
static void two_extensions(void **state)
{
    (void)state;
    struct caps caps = with_maintained_matrices(&discrete);
    struct attention_problem p = many_halves;
    struct attention_choice c;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop2_ext_f16);
    assert_true(c.size.m == 32 && c.size.n == 16 && c.size.k == 16 && c.keys == 64);
    caps.reduced_nv = caps.reduced_ext;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop2_f16);
    set_add(&caps.without, KERNEL_attention_coop2_f16);
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop2_ext_f16);
    caps.without = NO_KERNELS;
    caps.reduced_nv.f16.m = 64; /* too many rows */
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop2_ext_f16);
    caps.reduced_ext.f16.m = 64;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop_f16);
    p.q_type = p.kv_type = p.v_type = p.o_type = VKA_BF16;
    set_add(&caps.without, KERNEL_attention_coop2_bf16);
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop2_ext_bf16);
    caps.reduced_ext.usable = false;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop_bf16);
}

/* Variants halve keys and rows of a subgroup. */
static void variants_of_flexible_matrices(void **state)
{
    (void)state;
    struct caps caps = with_flexible_matrices(&discrete);
    struct attention_problem p = many_halves;
    static const uint32_t shapes[][2] = {{32, 64}, {32, 32}, {16, 64}, {16, 32}};
    struct attention_choice c;
    for (p.variant = 0; p.variant < COUNTOF(shapes); p.variant++) {
        tune_attention(&caps, &p, &c);
        assert_true(c.size.m == shapes[p.variant][0] && c.keys == shapes[p.variant][1]);
    }
    p.variant = 0;
    caps.properties.max_workgroup = 64; /* fewer than four subgroups */
    tune_attention(&caps, &p, &c);
    assert_true(c.kernel != KERNEL_attention_coop2_f16);
}

/* Matrices of one size, with reductions: as many keys as k, and that many rows. */
static void fused_reduced_matrices(void **state)
{
    (void)state;
    struct caps caps = with_matrices(&discrete);
    struct attention_problem p = many_halves;
    struct attention_choice c;
    caps.reduced_nv.usable = true;
    caps.matrix_row_lanes = 4;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop2_f16);
    assert_true(c.size.m == 16 && c.size.n == 16 && c.keys == 64 && c.tile == 64);
    caps.matrix_f16.n = 8;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop_f16);
}

/* A CPU driver has them to be checked, and prefers all others. */
static void flexible_matrices_of_cpu_drivers(void **state)
{
    (void)state;
    struct caps caps = mesa(26);
    caps.matrices = caps.reduced_nv.usable = caps.reduced_nv.flexible = true;
    caps.matrix_registers = 96;
    caps.least_subgroup = 8;
    caps.reduced_nv.f16 = (struct matrix_size){8, 8, 8};
    struct attention_problem p = {.n_kv_head = 8,
                                  .n_row = 256,
                                  .n_kv = 256,
                                  .head_dim = 8,
                                  .value_dim = 40,
                                  .q_type = VKA_F16,
                                  .kv_type = VKA_F16,
                                  .v_type = VKA_F16,
                                  .o_type = VKA_F16};
    struct attention_choice c;
    tune_attention(&caps, &p, &c);
    assert_true(c.kernel != KERNEL_attention_coop2_f16);
    caps.without = set_all_but(KERNEL_SET(KERNEL_attention_coop2_f16));
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop2_f16);
    assert_true(c.usable && !c.preferred);
    assert_true(c.size.m == 8 && c.size.n == 8 && c.keys == 32 && c.lanes == 32);
    caps.matrix_registers = 48;
    tune_attention(&caps, &p, &c);
    assert_false(c.usable);
}

/* Matrices, subgroups and memory that attention_coop cannot work with: tiles then. */
static void matrices_that_do_not_fit(void **state)
{
    (void)state;
    struct caps wide = with_matrices(&discrete), narrow = wide, small = wide, odd = wide;
    const struct attention_problem p = {
        .n_kv_head = 8,
        .n_row = 4096,
        .n_kv = 4096,
        .head_dim = 256,
        .value_dim = 256,
        .q_type = VKA_F16,
        .kv_type = VKA_F16,
        .v_type = VKA_F16,
        .o_type = VKA_F16,
    };
    struct attention_choice c;
    wide.properties.max_shared_memory = 65536;
    tune_attention(&wide, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop_f16);
    assert_in_range(tune_attention_shared(&c), 40961, 65536); /* more than is aimed at */
    assert_int_equal(c.columns, 2); /* a subgroup has no registers for 16 x 256 floats */
    assert_int_equal(c.tile, 64);
    wide.properties.max_shared_memory = 49152;
    tune_attention(&wide, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_coop_f16);
    assert_int_equal(c.tile, 32);
    narrow.least_subgroup = 8; /* fewer lanes than a matrix has rows */
    small.properties.max_shared_memory = 16384;
    odd.matrix_f16.n = 4; /* not whole vectors */
    const struct caps *const unfit[] = {&narrow, &small, &odd};
    for (size_t i = 0; i < sizeof unfit / sizeof unfit[0]; i++) {
        tune_attention(unfit[i], &p, &c);
        assert_int_equal(c.kernel, KERNEL_attention_tile);
    }
}

/* Intel's GPUs: matrices of 8 rows, half the registers. Columns, rows and keys are those of which
 * its compiler spills nothing. */
static void few_registers(void **state)
{
    (void)state;
    struct caps caps = with_matrices(&discrete);
    struct attention_problem p = many_halves;
    static const struct {
        uint32_t subgroup, registers, n, dim; /* given */
        uint32_t columns, tile, keys, ahead;  /* chosen */
    } cases[] = {
        {16, 96, 16, 64, 1, 64, 32, AHEAD_VALUES | AHEAD_LANE_Q},
        /* 80 features: 96, so that both columns have as many */
        {16, 96, 16, 80, 2, 64, 32, AHEAD_VALUES | AHEAD_LANE_Q},
        {16, 96, 16, 128, 2, 64, 64, AHEAD_VALUES | AHEAD_ONE_STAGE | AHEAD_LANE_Q},
        {16, 96, 16, 256, 4, 16, 64, AHEAD_VALUES | AHEAD_ONE_STAGE | AHEAD_LANE_Q},
        {8, 80, 8, 64, 4, 64, 32, 0},
        {8, 80, 8, 128, 4, 64, 32, AHEAD_ONE_STAGE | AHEAD_LANE_Q},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        struct attention_choice c;
        caps.least_subgroup = cases[i].subgroup;
        caps.matrix_registers = cases[i].registers;
        caps.matrix_f16 = (struct matrix_size){8, cases[i].n, 16};
        p.head_dim = p.value_dim = cases[i].dim;
        tune_attention(&caps, &p, &c);
        assert_int_equal(c.kernel, KERNEL_attention_coop_f16);
        assert_int_equal(c.columns, cases[i].columns);
        assert_int_equal(c.tile, cases[i].tile);
        assert_int_equal(c.keys, cases[i].keys);
        assert_int_equal(c.ahead, cases[i].ahead);
    }
}

/* A profile, and --kernel, may ask for variants of which a step has no keys left: the least it can have is
 * taken, or the kernel is not. */
static void variants_of_few_keys(void **state)
{
    (void)state;
    struct caps caps = with_matrices(&discrete);
    struct attention_problem p = many_halves;
    caps.without = set_all_but(KERNEL_SET(KERNEL_attention_coop_f16));
    for (p.variant = 0; p.variant < 8; p.variant++)
        for (uint32_t i = 0; i < 8; i++) {
            struct attention_choice c = {0};
            const bool intel = i & 1;
            caps.least_subgroup = intel ? 16 : 32;
            caps.matrix_registers = intel ? 96 : 160;
            caps.matrix_f16 = (struct matrix_size){intel ? 8 : 16, 16, 16};
            p.head_dim = p.value_dim = i & 2 ? 128 : 64;
            p.n_row = i & 4 ? 2 : many_halves.n_row;
            tune_attention(&caps, &p, &c);
            assert_true(!c.usable || c.keys >= caps.matrix_f16.n);
        }
}

/* Where an instruction adds two products of float16; words of two take half the shared memory. */
static void mixed_tiles(void **state)
{
    (void)state;
    struct attention_problem p = {
        .n_kv_head = 8, .n_row = 512, .n_kv = 512, .head_dim = 128, .value_dim = 128};
    struct attention_choice c, plain;
    struct caps amd = discrete, caps;
    amd.properties.vendor_id = VENDOR_AMD;
    caps = amd;
    caps.mixed_dot = caps.properties.float16 = true;
    p.q_type = VKA_F16;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_tile); /* keys are float32 */
    p.kv_type = VKA_F16;
    tune_attention(&caps, &p, &c);
    tune_attention(&amd, &p, &plain);
    assert_int_equal(c.kernel, KERNEL_attention_tile_mixed);
    assert_true(c.usable && c.preferred && c.tile == plain.tile && c.keys == plain.keys);
    assert_true(tune_attention_shared(&c) < tune_attention_shared(&plain));
    caps.kernels[KERNEL_attention_tile_mixed] = KERNEL_WRONG;
    tune_attention(&caps, &p, &c);
    assert_int_equal(c.kernel, KERNEL_attention_tile);
}

TEST_PROGRAM(tune_matrices)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_matrices),
        cmocka_unit_test(fused_flexible_matrices),
        cmocka_unit_test(lanes_of_rows),
        cmocka_unit_test(two_extensions),
        cmocka_unit_test(variants_of_flexible_matrices),
        cmocka_unit_test(fused_reduced_matrices),
        cmocka_unit_test(flexible_matrices_of_cpu_drivers),
        cmocka_unit_test(matrices_that_do_not_fit),
        cmocka_unit_test(few_registers),
        cmocka_unit_test(mixed_tiles),
        cmocka_unit_test(variants_of_few_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
