/* What must hold of the choice of a product's and a softmax's kernel for every problem on every device.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "core/arith.h"
#include "params/params.h"
#include "kernel/matmul.h"
#include "kernel/matmul_lane.h"
#include "kernel/softmax.h"
#include "test_program.h"
#include "tune_devices.h"

static struct matmul_problem any_problem(void)
{
    return (struct matmul_problem){
        .batch = any_size(10),
        .m = any_size(16),
        .n = any_size(16),
        .k = any_size(16),
        .a_type = (enum vka_dtype)below(3),
        .b_type = (enum vka_dtype)below(3),
        .a_vec = below(2),
        .b_vec = below(2),
        .a_plain = below(2),
        .a_vectors = below(2),
        .b_vectors = below(2),
        .hidden = below(2),
    };
}

static void check_matmul(const struct caps *caps, const struct matmul_problem *p)
{
    const struct vka_device_properties *has = &caps->properties;
    struct matmul_choice c = tune_choose(caps, p), again = tune_choose(caps, p);
    assert_true(c.kernel == again.kernel && c.rows == again.rows && c.columns == again.columns);
    assert_null(kernel_missing(c.kernel, caps));
    assert_non_null(c.reason);
    assert_true(c.reason[0]);
    assert_true(c.rows > 0 && c.columns > 0);
    assert_true(c.b_tile || !p->b_tile); /* packed B is for the kernels that read it */
    if (c.size.m) {
        uint32_t subs = c.subs_m * c.subs_n, both = c.a_rows + c.columns;
        uint32_t rows =
            both > c.rows ? both : c.rows; /* of A, then of B; matrices of A may end there */
        uint32_t shared = rows * (c.depth + 8) * 2 + subs * c.size.m * c.size.n * 4;
        assert_in_range(shared, 1, has->max_shared_memory);
        assert_in_range(c.lanes, subs * c.subgroup, COOP_SUBGROUPS * has->subgroup_size);
        assert_int_equal(c.lanes % c.subgroup, 0);
        assert_int_equal(c.subgroup, has->subgroup_size);
        assert_int_equal(c.depth % c.size.k, 0);
        assert_in_range(c.a_rows, p->m < c.rows ? p->m : c.rows, c.rows);
        assert_true(p->a_type == p->b_type && p->a_type != VKA_F32 && !p->hidden);
        assert_int_equal(c.rows, c.subs_m * c.mats_m * c.size.m);
        assert_int_equal(c.columns, c.subs_n * c.mats_n * c.size.n);
        return;
    }
    bool mixed = c.kernel == KERNEL_matmul_few_mixed || c.kernel == KERNEL_matmul_tile_mixed;
    assert_true(!mixed || (p->a_type == VKA_F16 && p->b_type == VKA_F16 && !p->hidden));
    if (c.kernel == KERNEL_matmul_few || c.kernel == KERNEL_matmul_few_mixed) {
        uint32_t blocks = c.lanes / c.columns;
        uint32_t fours = c.vectors * (p->b_type == VKA_F32 || mixed ? 1 : 2);
        uint32_t vectors = c.rows * blocks * FEW_PITCH(fours) + c.lanes * FEW_PITCH(c.vectors);
        assert_in_range(16 * vectors, 1, has->max_shared_memory);
        assert_in_range(c.lanes, 32, has->max_workgroup);
        assert_in_range(c.rows, 1, FEW_TILE_ROWS);
        assert_true(c.rows <= 4 * FEW_PITCH(c.vectors)); /* sums of blocks take the place of B */
        assert_int_equal(blocks * c.columns, c.lanes);
        assert_int_equal(MATMUL_BLOCK % (16 / (p->b_type == VKA_F32 ? 4 : 2) * c.vectors), 0);
        assert_true(p->b_vectors && !c.b_tile);
        return;
    }
    if (c.kernel == KERNEL_matmul_tile || c.kernel == KERNEL_matmul_tile_mixed) {
        uint32_t shared = TILE_DEPTH / (mixed ? 2 : 1) * (c.rows + c.columns + 8) * 4;
        assert_in_range(shared, 1, has->max_shared_memory);
        assert_in_range(c.side * c.side, 1, has->max_workgroup);
        assert_true(c.tile_m > 0 && c.tile_n > 0);
        assert_int_equal(c.rows, c.side * c.tile_m);
        assert_int_equal(c.columns, c.side * c.tile_n);
        assert_true(!c.b_tile && !c.pack_a);
        return;
    }
    if (c.kernel == KERNEL_matmul_address || c.kernel == KERNEL_matmul_texel) {
        assert_int_equal(has->subgroup_size, 8);
        assert_int_equal(c.columns, c.b_tile);
        assert_int_equal(c.b_tile % COPY_EACH, 0);
        assert_int_equal(c.b_tile, tune_weight_tile(caps));
        assert_true(c.pack_a || p->a_plain);
        assert_in_range(c.rows, 1, c.kernel == KERNEL_matmul_address ? ADDRESS_ROWS : TEXEL_ROWS);
        assert_true(c.rows < 2 * p->m);
        return;
    }
    assert_true(c.kernel == KERNEL_matmul_lane4 || c.kernel == KERNEL_matmul_lane8);
    assert_true(!c.b_tile && !c.pack_a);
    assert_int_equal(c.lanes, has->subgroup_size); /* one workgroup is one full subgroup */
    assert_true(is_power_of_two(c.lanes));
    assert_in_range(c.lanes, c.kernel == KERNEL_matmul_lane4 ? 4 : 8, has->max_workgroup);
    assert_in_range(c.rows, 1, LANE_ROWS);
    assert_true(c.rows == LANE_ROWS || c.rows < 2 * p->m);
    assert_int_equal(c.columns, c.lanes * LANE_COLUMNS);
    assert_int_equal(c.a_vec, p->a_vec);
    assert_int_equal(c.b_vec, p->b_vec);
}

static void check_softmax(const struct caps *caps, uint32_t n_kv)
{
    struct softmax_choice c;
    memset(&c, 0xa5, sizeof c);
    tune_softmax(caps, n_kv, &c);
    assert_null(kernel_missing(c.kernel, caps));
    assert_true(c.reason && c.reason[0]);
    assert_true(is_power_of_two(c.lanes));
    assert_in_range(c.lanes, 1, caps->properties.max_workgroup);
    if (c.kernel == KERNEL_softmax_subgroup)
        assert_int_equal(c.lanes, caps->properties.subgroup_size);
    else
        assert_in_range(c.lanes * 4, 4, caps->properties.max_shared_memory);
}

static void check_device(const struct caps *caps)
{
    struct matmul_problem p = any_problem();
    check_matmul(caps, &p);
    p.b_tile = tune_weight_tile(caps); /* a layer's weights */
    check_matmul(caps, &p);
    check_softmax(caps, any_size(20));
}

static void invariants(void **state)
{
    (void)state;
    tune_vary(check_device);
}

TEST_PROGRAM(tune_invariants)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invariants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
