/* Choices of kernel and tile on devices made by hand. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "core/arith.h"
#include "core/dtype.h"
#include "params/params.h"
#include "kernel/matmul_lane.h"
#include "kernel/softmax.h"
#include "problems/types.h"
#include "test_program.h"
#include "tune_devices.h"

static const struct matmul_problem large = {.batch = 1, .m = 512, .n = 512, .k = 512};

static void cpu_takes_packed(void **state)
{
    (void)state;
    struct caps old = mesa(22), new = mesa(26);
    struct matmul_choice c = tune_choose(&old, &large);
    assert_int_equal(c.kernel, KERNEL_matmul_texel);
    assert_int_equal(c.b_tile, TEXEL_COLUMNS);
    assert_int_equal(c.columns, TEXEL_COLUMNS);
    assert_int_equal(tune_weight_tile(&old), TEXEL_COLUMNS);
    c = tune_choose(&new, &large);
    assert_int_equal(c.kernel, KERNEL_matmul_address);
    assert_int_equal(c.b_tile, ADDRESS_COLUMNS);
    assert_int_equal(tune_weight_tile(&new), ADDRESS_COLUMNS);
    new.device_address = false;
    assert_int_equal(tune_choose(&new, &large).kernel, KERNEL_matmul_texel);
    new = mesa(26);
    new.without = KERNEL_SET(KERNEL_matmul_address);
    assert_int_equal(tune_choose(&new, &large).kernel, KERNEL_matmul_texel);

    struct matmul_problem p = large;
    const struct caps now = mesa(26);
    p.a_plain = true; /* by address any float32 rows will do, as texels only aligned ones */
    assert_false(tune_choose(&now, &p).pack_a);
    assert_true(tune_choose(&old, &p).pack_a);
    p.a_vec = true;
    assert_false(tune_choose(&old, &p).pack_a);
    p.a_plain = false;
    assert_true(tune_choose(&old, &p).pack_a);

    p.m = 1; /* one row reads B once: packing would double that */
    assert_int_equal(tune_choose(&old, &p).b_tile, 0);
    assert_int_equal(tune_choose(&old, &p).kernel, KERNEL_matmul_lane8);
    p.b_tile = TEXEL_COLUMNS; /* weights are packed already */
    assert_int_equal(tune_choose(&old, &p).kernel, KERNEL_matmul_texel);
    assert_int_equal(tune_choose(&old, &p).rows, 1);
    assert_int_equal(tune_weight_tile(&discrete), 0);
}

static void cpu_takes_lanes(void **state)
{
    (void)state;
    struct caps caps = cpu(8);
    caps.without = KERNEL_SET(KERNEL_matmul_texel);
    struct matmul_choice c = tune_choose(&caps, &large);
    assert_int_equal(c.kernel, KERNEL_matmul_lane8);
    assert_int_equal(c.lanes, 8);
    assert_int_equal(c.rows, LANE_ROWS);
    assert_int_equal(c.columns, 8 * LANE_COLUMNS);
    assert_int_equal(tune_weight_tile(&caps), 0);
    assert_true(tune_transposes_weights(&caps));
    struct matmul_problem few = large;
    for (few.m = 1; few.m <= LANE_ROWS; few.m *= 2) /* no lane works on rows that are not there */
        assert_int_equal(tune_choose(&caps, &few).rows, few.m);
    few.m = 5;
    assert_int_equal(tune_choose(&caps, &few).rows, 8);
    set_add(&caps.without, KERNEL_matmul_lane8);
    assert_int_equal(tune_choose(&caps, &large).kernel, KERNEL_matmul_lane4);
    set_add(&caps.without, KERNEL_matmul_lane4);
    assert_int_equal(tune_choose(&caps, &large).kernel, KERNEL_matmul_tile);
    assert_false(tune_transposes_weights(&caps));
    caps = cpu(16); /* the packed kernels are written for 8 */
    assert_int_equal(tune_choose(&caps, &large).kernel, KERNEL_matmul_lane8);
    caps = cpu(4); /* SwiftShader's compiler does not finish the lane kernel */
    assert_int_equal(tune_choose(&caps, &large).kernel, KERNEL_matmul_tile);
    caps.without = KERNEL_SET(KERNEL_matmul_tile);
    c = tune_choose(&caps, &large);
    assert_int_equal(c.kernel, KERNEL_matmul_lane4);
    assert_int_equal(c.lanes, 4);
}

static void cpu_without_what_lanes_need(void **state)
{
    (void)state;
    struct caps narrow = cpu(2), no_ballot = cpu(8), no_control = cpu(8);
    no_ballot.properties.subgroup_ballot = false;
    no_control.subgroup_size_control = false;
    const struct caps *all[] = {&narrow, &no_ballot, &no_control};
    for (size_t i = 0; i < COUNTOF(all); i++) {
        assert_int_equal(tune_choose(all[i], &large).kernel, KERNEL_matmul_tile);
        assert_false(tune_transposes_weights(all[i]));
    }
}

static void gpu_tiles(void **state)
{
    (void)state;
    struct matmul_problem p = large;
    struct matmul_choice c = tune_choose(&discrete, &p);
    assert_int_equal(c.kernel, KERNEL_matmul_tile);
    assert_int_equal(c.side, 16);
    assert_int_equal(c.rows, 64);
    assert_int_equal(c.columns, 64);
    p.m = 20; /* too few rows for 64, enough for 32 */
    assert_int_equal(tune_choose(&discrete, &p).rows, 32);
    p.m = 1;
    c = tune_choose(&discrete, &p);
    assert_int_equal(c.tile_m, 1);
    assert_int_equal(c.rows, 16);
    p = (struct matmul_problem){.batch = 1, .m = 1024, .n = 1024, .k = 4096, .a_vectors = true};
    p.b_vectors = true;
    c = tune_choose(&discrete, &p);
    assert_true(c.rows == 128 && c.columns == 64 && c.a_vec && c.b_vec);
    p.k++; /* sums of groups take registers */
    assert_int_equal(tune_choose(&discrete, &p).rows, 64);
    p.k = p.m = 512; /* 64 tiles of that */
    assert_int_equal(tune_choose(&discrete, &p).rows, 128);
    p.n--; /* as many, but one not whole */
    assert_int_equal(tune_choose(&discrete, &p).rows, 128);
    p.m = 256;
    assert_int_equal(tune_choose(&discrete, &p).rows, 64);
    c = tune_choose(&mobile, &large);
    assert_int_equal(c.side, 8);
    assert_int_equal(c.rows, 32);
    struct caps lowered = discrete;
    lowered.properties.max_shared_memory = 8192; /* 64 x 64 needs 8704 bytes */
    assert_int_equal(tune_choose(&lowered, &large).rows, 32);
    assert_false(tune_transposes_weights(&discrete));
    assert_false(tune_transposes_weights(&mobile));
}

static void few_rows(void **state)
{
    (void)state;
    struct matmul_problem p = {.batch = 1, .m = 1, .n = 4096, .k = 4096, .b_vectors = true};
    struct matmul_choice c = tune_choose(&discrete, &p);
    assert_int_equal(c.kernel, KERNEL_matmul_few);
    assert_true(c.columns == 4 && c.lanes == 64); /* 16 blocks of k, 1,024 workgroups */
    p.n = 512;                                    /* more blocks, so that the device is full */
    assert_int_equal(tune_choose(&discrete, &p).columns, 2);
    p.k = 256; /* but no more than there are */
    assert_int_equal(tune_choose(&discrete, &p).columns, 32);
    for (p.m = 1; p.m <= 32; p.m++) {
        c = tune_choose(&discrete, &p);
        assert_int_equal(c.kernel, KERNEL_matmul_few);
        assert_in_range(c.rows * divide_up(p.m, c.rows), p.m, p.m + 1);
    }
    assert_int_equal(tune_choose(&discrete, &p).kernel, KERNEL_matmul_tile); /* 33 rows */
    p.m = 16;
    assert_int_equal(tune_choose(&mobile, &p).kernel, KERNEL_matmul_few);
    p.b_vectors = false; /* of attention: values are read along rows */
    assert_int_equal(tune_choose(&discrete, &p).kernel, KERNEL_matmul_tile);
    p.b_vectors = true;
    struct caps caps = cpu(2); /* subgroups too small for lanes */
    assert_int_equal(tune_choose(&caps, &p).kernel, KERNEL_matmul_tile);
}

/* Products of two matrices of float16, where one instruction adds two of them. Rows by the other of the
 * two kernels have the same bits, so both are taken or neither. */
static void mixed_products(void **state)
{
    (void)state;
    struct matmul_problem p = {.batch = 1, .n = 4096, .k = 4096, .a_vectors = true};
    struct caps able = discrete;
    p.a_type = p.b_type = VKA_F16;
    p.b_vectors = able.mixed_dot = able.properties.float16 = true;
    static const enum kernel plain[] = {KERNEL_matmul_few, KERNEL_matmul_tile};
    static const enum kernel mixed[] = {KERNEL_matmul_few_mixed, KERNEL_matmul_tile_mixed};
    for (int many = 0; many < 2; many++) {
        struct matmul_problem other = p;
        p.m = other.m = many ? 4096 : 3;
        assert_int_equal(tune_choose(&able, &p).kernel, mixed[many]);
        assert_int_equal(tune_choose(&discrete, &p).kernel, plain[many]);
        other.hidden = true;
        assert_int_equal(tune_choose(&able, &other).kernel, plain[many]);
        other.hidden = false;
        other.a_type = VKA_F32;
        assert_int_equal(tune_choose(&able, &other).kernel, plain[many]);
        other.a_type = VKA_F16;
        other.b_type = VKA_BF16;
        assert_int_equal(tune_choose(&able, &other).kernel, plain[many]);
        for (int i = 0; i < 2; i++) {
            struct caps caps = able;
            caps.kernels[mixed[i]] = KERNEL_WRONG;
            assert_int_equal(tune_choose(&caps, &p).kernel, plain[many]);
            caps.kernels[mixed[i]] = KERNEL_RIGHT;
            caps.refused[mixed[i]] = "is refused";
            assert_int_equal(tune_choose(&caps, &p).kernel, plain[many]);
        }
        struct caps caps = able; /* all others are switched off, as for a self-test */
        caps.without = set_all_but(KERNEL_SET(mixed[many]));
        assert_int_equal(tune_choose(&caps, &p).kernel, mixed[many]);
    }
    p.k = 8192; /* three sums a result */
    assert_int_equal(tune_choose(&able, &p).rows, 64);
    able.properties.vendor_id = VENDOR_AMD;
    assert_int_equal(tune_choose(&able, &p).rows, 128);
    assert_int_equal(tune_choose(&able, &large).rows, 64); /* of float32 */
    able.properties.max_shared_memory = 8192; /* 128 x 64 by words of two needs 6400 bytes */
    assert_int_equal(tune_choose(&able, &p).rows, 128);
}

/* Blocks that no kernel of CPU drivers reads; and what compilers have no registers for. */
static void few_rows_of_blocks(void **state)
{
    (void)state;
    struct caps caps = cpu(8), intel = discrete, amd = discrete;
    struct matmul_problem p = {.batch = 1, .m = 1, .n = 512, .k = 512, .quantised = true};
    p.b_ours = true;
    p.b_bundles = 2;
    for (EACH_TYPE(type, dtype_is_block)) {
        p.b_type = type;
        for (p.m = 1; p.m <= 33; p.m += 8) {
            bool few = !dtype_has_cpu_kernels(type) && p.m <= 32;
            struct matmul_choice c = tune_choose(&caps, &p);
            assert_true((c.kernel == KERNEL_matmul_few) == few);
            if (few)
                assert_true(c.rows <= 8 && (c.lanes == 8) == (p.m == 1));
        }
    }
    intel.properties.vendor_id = 0x8086;
    p.m = 16;
    p.b_type = VKA_Q5_K;
    assert_int_equal(tune_choose(&intel, &p).rows, 8);
    assert_int_equal(tune_choose(&discrete, &p).rows, 8);
    amd.properties.vendor_id = 0x1002;
    assert_int_equal(tune_choose(&amd, &p).rows, 16);
    p.b_type = VKA_Q4_0;
    assert_int_equal(tune_choose(&intel, &p).rows, 16);
    p.a_type = VKA_F16;
    p.b_bundles = 0;
    p.m = 1;
    assert_int_equal(tune_choose(&discrete, &p).vectors, 8);
    p.b_type = VKA_Q2_K;
    assert_int_equal(tune_choose(&discrete, &p).vectors, 4);
}

/* Mali: 64 registers hold the sums of smaller tiles. */
static void few_registers(void **state)
{
    (void)state;
    struct caps caps = discrete;
    caps.properties.vendor_id = 0x13b5;
    struct matmul_problem p = {.batch = 1, .m = 1024, .n = 1024, .k = 4096, .a_vectors = true};
    p.b_vectors = true;
    struct matmul_choice c = tune_choose(&caps, &p);
    assert_true(c.kernel == KERNEL_matmul_tile && c.tile_m == 4 && c.tile_n == 4 && c.a_vec);
    p.k++; /* sums of groups */
    c = tune_choose(&caps, &p);
    assert_true(c.tile_m == 4 && c.tile_n == 2);
    assert_int_equal(tune_choose(&discrete, &p).tile_n, 4);
    p.k = 4096;
    p.quantised = true;
    p.b_type = VKA_Q8_0;
    c = tune_choose(&caps, &p);
    assert_true(c.tile_m == 2 && c.tile_n == 2);
    for (p.b_bundles = 0; p.b_bundles <= 2; p.b_bundles++)
        for (p.m = 1; p.m <= 32; p.m++) {
            p.a_type = VKA_F32; /* a lane reads its own block */
            c = tune_choose(&caps, &p);
            assert_int_equal(c.kernel, KERNEL_matmul_few);
            assert_true(c.rows <= 4 && c.own_columns == 1);
            p.a_type = VKA_F16;
            c = tune_choose(&caps, &p);
            assert_int_equal(c.kernel, KERNEL_matmul_few);
            assert_true(c.rows <= 4 && c.vectors == 2 && !c.b_vec);
        }
    p.m = 4;
    p.b_type = VKA_Q4_0; /* whose bundles are half as long */
    p.b_bundles = 2;
    assert_true(tune_choose(&caps, &p).b_vec && tune_choose(&caps, &p).rows == 4);
    p.quantised = false;
    p.b_type = VKA_F32;
    for (p.m = 1; p.m <= 32; p.m++) {
        p.k = 4096;
        assert_in_range(tune_choose(&caps, &p).rows, 1, 8);
        p.k++;
        assert_in_range(tune_choose(&caps, &p).rows, 1, 4);
    }
}

/* NVIDIA: registers for the largest tiles of float32, and C for what they do not hold. */
static void most_registers(void **state)
{
    (void)state;
    struct caps caps = discrete;
    struct matmul_problem p = {.batch = 1, .m = 4096, .n = 4096, .k = 4096, .a_vectors = true};
    p.b_vectors = true;
    struct matmul_choice c = tune_choose(&caps, &p);
    assert_true(c.tile_m == 8 && c.tile_n == 4);
    caps.properties.vendor_id = 0x10de;
    c = tune_choose(&caps, &p);
    assert_true(c.tile_m == 8 && c.tile_n == 8 && c.rows == 128 && c.columns == 128);
    caps.processors = 1024; /* each with two workgroups at least */
    assert_int_equal(tune_choose(&caps, &p).columns, 64);
    caps.processors = 0;
    p.k++; /* sums of groups */
    c = tune_choose(&caps, &p);
    assert_true(c.tile_m == 8 && c.tile_n == 4);
    assert_int_equal(tune_choose(&discrete, &p).tile_m, 4);
    p.c_free = true;
    assert_int_equal(tune_choose(&caps, &p).tile_n, 8);
    for (p.variant = 1; p.variant <= 2; p.variant++) /* to be measured: smaller ones */
        assert_int_equal(tune_choose(&caps, &p).columns, 64);
    p.variant = 0;
    p.quantised = true;
    p.b_type = VKA_Q8_0;
    assert_int_equal(tune_choose(&caps, &p).tile_m, 4);
}

static void matrix_units(void **state)
{
    (void)state;
    struct caps caps = with_matrices(&discrete);
    struct matmul_problem p = {.batch = 1, .m = 4096, .n = 4096, .k = 64};
    assert_int_equal(tune_choose(&caps, &p).kernel, KERNEL_matmul_tile); /* float32 stays float32 */
    p.a_type = p.b_type = VKA_F16;
    p.a_vectors = true;
    struct matmul_choice c = tune_choose(&caps, &p);
    assert_int_equal(c.kernel, KERNEL_matmul_coop_f16);
    assert_int_equal(c.lanes, 256);
    assert_int_equal(c.rows, 128);
    assert_int_equal(c.columns, 128);
    assert_int_equal(c.depth, 64);
    assert_true(c.a_vec && !c.b_vec);
    p.b_vectors = true;
    assert_int_equal(tune_choose(&caps, &p).mats_m, 2);
    caps.properties.vendor_id = 0x10de; /* registers for more matrices, but not for edges too */
    c = tune_choose(&caps, &p);
    assert_true(c.rows == 128 && c.columns == 128 && c.lanes == 128 && c.mats_m == 4);
    p.m++;
    assert_int_equal(tune_choose(&caps, &p).mats_m, 2);
    p.b_vectors = false;
    p.m = p.n = 1000; /* 64 tiles of that, for an assumed 64 processors */
    assert_int_equal(tune_choose(&caps, &p).rows, 128);
    caps.processors = 65;
    c = tune_choose(&caps, &p);
    assert_true(c.rows == 64 && c.columns == 128 && c.lanes == 128);
    caps.processors = 0;
    caps.properties.max_shared_memory = 32768; /* too small for that depth */
    assert_int_equal(tune_choose(&caps, &p).rows, 64);
    caps = with_matrices(&discrete);
    p.m = p.n = 4096;
    caps.properties.subgroup_size = 64; /* more matrices fit in as many registers of a lane */
    assert_int_equal(tune_choose(&caps, &p).rows, 128);
    caps = with_matrices(&discrete);
    p.m = p.n = 512; /* 32 tiles of that would leave most of a GPU idle */
    c = tune_choose(&caps, &p);
    assert_true(c.rows == 64 && c.columns == 64);
    caps.processors = 32;
    c = tune_choose(&caps, &p);
    assert_true(c.rows == 64 && c.columns == 128);
    caps.matrix_f16 = (struct matrix_size){8, 16, 16};
    assert_int_equal(tune_choose(&caps, &p).rows, 64);
    caps.matrix_f16.n = 8; /* too small for what it takes in registers */
    assert_int_equal(tune_choose(&caps, &p).kernel, KERNEL_matmul_tile);
    caps = with_matrices(&discrete);
    p.k = 4096;
    for (p.m = 1; p.m <= 32; p.m++) { /* the same kernel for any number of rows: the same bits */
        c = tune_choose(&caps, &p);
        assert_int_equal(c.kernel, KERNEL_matmul_coop_f16);
        assert_true(c.columns == 16 && c.depth >= 256);
        assert_int_equal(c.rows, p.m <= 16 ? 16 : 32);
        assert_in_range(c.a_rows, p.m, 2 * p.m - 1);
    }
    caps.matrix_f16.m = 8;
    p.m = 19; /* three matrices of rows */
    c = tune_choose(&caps, &p);
    assert_true(c.rows == 24 && c.a_rows == 24);
    p.n = 8;
    assert_int_equal(tune_choose(&caps, &p).kernel, KERNEL_matmul_tile);
    p.m = p.n = 512;
    p.hidden = true;
    assert_int_equal(tune_choose(&caps, &p).kernel, KERNEL_matmul_tile);
    p.hidden = false;
    p.b_type = VKA_BF16;
    assert_int_equal(tune_choose(&caps, &p).kernel, KERNEL_matmul_tile);
    p.b_type = VKA_F16;
    caps.properties.max_workgroup = 128;
    assert_non_null(strstr(kernel_missing(KERNEL_matmul_coop_f16, &caps), "8 subgroups"));
    caps = with_matrices(&discrete);
    caps.matrices = false;
    assert_int_equal(tune_choose(&caps, &p).kernel, KERNEL_matmul_tile);
    caps = with_matrices(&discrete);
    caps.kernels[KERNEL_matmul_coop_f16] = KERNEL_WRONG;
    assert_non_null(strstr(kernel_missing(KERNEL_matmul_coop_f16, &caps), "failed its self-test"));
    assert_int_equal(tune_choose(&caps, &p).kernel, KERNEL_matmul_tile);
    caps = with_matrices(&discrete);
    caps.properties.type = VKA_DEVICE_CPU; /* many steps a matrix there */
    assert_true(tune_choose(&caps, &p).kernel != KERNEL_matmul_coop_f16);
}

static void softmax_kernels(void **state)
{
    (void)state;
    struct softmax_choice c;
    tune_softmax(&discrete, 1000, &c);
    assert_int_equal(c.kernel, KERNEL_softmax_subgroup);
    assert_int_equal(c.lanes, 32);
    assert_true(c.exchange);
    struct caps caps = discrete;
    caps.properties.type = VKA_DEVICE_CPU;
    tune_softmax(&caps, 1000, &c);
    assert_false(c.exchange);
    caps = discrete;
    caps.properties.subgroup_size = 1; /* without a neighbour */
    tune_softmax(&caps, 1000, &c);
    assert_false(c.exchange);
    caps = discrete;
    caps.without = KERNEL_SET(KERNEL_softmax_subgroup);
    tune_softmax(&caps, 1000, &c);
    assert_int_equal(c.kernel, KERNEL_softmax_shared);
    caps = discrete;
    caps.properties.subgroup_arithmetic = false;
    tune_softmax(&caps, 1000, &c);
    assert_int_equal(c.kernel, KERNEL_softmax_shared);
    caps = discrete;
    caps.subgroup_size_control = false;
    tune_softmax(&caps, 1000, &c);
    assert_int_equal(c.kernel, KERNEL_softmax_shared);
    tune_softmax(&mobile, 1000, &c);
    assert_int_equal(c.lanes, 128);
    tune_softmax(&mobile, 20, &c); /* no more lanes than the row has work for */
    assert_int_equal(c.lanes, 32);
    tune_softmax(&mobile, 1, &c);
    assert_int_equal(c.lanes, 8);
}

static void missing(void **state)
{
    (void)state;
    assert_null(kernel_missing(KERNEL_matmul_lane8, &discrete));
    struct caps caps = discrete;
    caps.without = KERNEL_SET(KERNEL_matmul_lane8);
    assert_non_null(strstr(kernel_missing(KERNEL_matmul_lane8, &caps), "switched off"));
    assert_null(kernel_missing(KERNEL_matmul_lane4, &caps));
    caps = discrete;
    assert_non_null(strstr(kernel_missing(KERNEL_matmul_texel, &caps), "CPU driver"));
    assert_non_null(strstr(kernel_missing(KERNEL_matmul_block, &caps), "addresses"));
    caps.device_address = true;
    assert_non_null(strstr(kernel_missing(KERNEL_matmul_block, &caps), "64-bit"));
    caps.int64 = true;
    assert_null(kernel_missing(KERNEL_matmul_block, &caps));
    assert_non_null(strstr(kernel_missing(KERNEL_matmul_address, &caps), "scalar"));
    caps.properties.subgroup_size = 4;
    assert_non_null(strstr(kernel_missing(KERNEL_matmul_lane8, &caps), "subgroups of 8"));
    assert_null(kernel_missing(KERNEL_matmul_lane4, &caps));
    caps.properties.subgroup_ballot = false;
    assert_non_null(strstr(kernel_missing(KERNEL_matmul_lane4, &caps), "broadcasts"));
    caps.properties.subgroup_arithmetic = false;
    assert_non_null(strstr(kernel_missing(KERNEL_softmax_subgroup, &caps), "reductions"));
    caps = discrete;
    caps.subgroup_size_control = false;
    assert_non_null(strstr(kernel_missing(KERNEL_softmax_subgroup, &caps), "subgroup size"));
    caps = discrete;
    caps.max_bindings = 6;
    assert_non_null(strstr(kernel_missing(KERNEL_softmax_shared, &caps), "storage buffers"));
    for (int k = 0; k < KERNEL_COUNT; k++) {
        assert_in_range(kernel_table[k].buffers, 1, MAX_BUFFERS);
        if (kernel_table[k].needs == NEED_NOTHING && kernel_table[k].buffers <= mobile.max_bindings)
            assert_null(kernel_missing((enum kernel)k, &mobile));
    }
}

TEST_PROGRAM(tune)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_takes_lanes),    cmocka_unit_test(cpu_without_what_lanes_need),
        cmocka_unit_test(cpu_takes_packed),   cmocka_unit_test(gpu_tiles),
        cmocka_unit_test(few_rows),           cmocka_unit_test(mixed_products),
        cmocka_unit_test(few_rows_of_blocks), cmocka_unit_test(few_registers),
        cmocka_unit_test(most_registers),     cmocka_unit_test(matrix_units),
        cmocka_unit_test(softmax_kernels),    cmocka_unit_test(missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
