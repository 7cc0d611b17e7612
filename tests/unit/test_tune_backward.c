/* Tiles of attention's gradients, on devices and sizes drawn at random. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "gpu/pipeline.h"
#include "kernel/attention_backward.h"
#include "params/params.h"
#include "params/model.h"
#include "test_program.h"
#include "params/train.h"
#include "tune_devices.h"

static uint32_t round_up(uint32_t n, uint32_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Sums that no register file holds would lie in memory. */
static void check_scalar(const struct backward_tile *t)
{
    const uint32_t sums =
        (t->a4 + t->lanes_x - 1) / t->lanes_x + (t->b4 + t->lanes_x - 1) / t->lanes_x;
    assert_true(sums * t->rows <= 16);
    assert_true(t->at_once % 4 == 0 && backward_others(t) % t->at_once == 0);
}

/* Whole matrices for each subgroup, whose sums leave half of the registers free. */
static void check_coop(const struct caps *caps, const struct backward_choice *c,
                       const struct backward_tile *t)
{
    const uint32_t own = backward_own(t), others = backward_others(t);
    const uint32_t threads = t->lanes_x * t->lanes_y, columns = t->subgroups * c->size.m / own;
    assert_int_equal(threads, own * others / 8);
    assert_int_equal(threads, t->subgroups * caps->least_subgroup);
    assert_true(own % c->size.m == 0 && others % c->size.k == 0);
    assert_true(columns > 0 && columns * own == t->subgroups * c->size.m);
    assert_true(others % (c->size.n * columns) == 0);
    assert_true(4 * t->depth4 % c->size.k == 0 && 4 * t->depth4 % 8 == 0);
    assert_true(4 * c->head4 % c->size.k == 0 && 4 * c->value4 % c->size.k == 0);
    assert_true(4 * t->a4 % (c->size.n * columns) == 0 && 4 * t->b4 % (c->size.n * columns) == 0);
    const uint32_t matrices = 4 * (t->a4 + t->b4) / c->size.n / columns;
    assert_true(matrices * c->size.m * c->size.n / caps->least_subgroup <=
                caps->matrix_registers / 2);
}

/* What the shaders take for granted, and that all features of both results have a workgroup. */
static void check_tile(const struct caps *caps, const struct backward_problem *problem,
                       const struct backward_choice *c, uint32_t stage)
{
    const struct backward_tile *t = &c->tiles[stage];
    const uint32_t own = backward_own(t), others = backward_others(t);
    assert_true(t->lanes_x * t->lanes_y <= caps->properties.max_workgroup);
    assert_true(tune_backward_shared(c, stage) <= caps->properties.max_shared_memory);
    assert_true(own > 0 && BACKWARD_SPAN % others == 0);
    assert_true(t->depth4 > 0 && t->n_feature_tile > 0);
    assert_true(c->head4 >= round_up(problem->head_dim, 4) / 4 &&
                c->value4 >= round_up(problem->value_dim, 4) / 4);
    if (stage == BACKWARD_SUMS)
        assert_true(t->a4 == 0 && t->b4 == 0 && t->n_feature_tile == 1);
    else
        assert_true(4 * t->a4 * t->n_feature_tile >= problem->head_dim);
    if (stage == BACKWARD_KEYS)
        assert_true(4 * t->b4 * t->n_feature_tile >= problem->value_dim);
    if (c->kernel == KERNEL_attention_backward)
        check_scalar(t);
    else
        check_coop(caps, c, t);
    assert_true(!caps->max_loops || tune_backward_loops(c, stage) <= caps->max_loops);
}

static void tiles(void **state)
{
    (void)state;
    static const enum vka_dtype types[] = {VKA_F32, VKA_F16, VKA_BF16};
    struct caps devices[TUNE_DEVICES];
    unsigned usable = 0, chunked = 0, matrices = 0;
    tune_devices(devices);
    for (size_t d = 0; d < TUNE_DEVICES; d++)
        for (int i = 0; i < 6000; i++) {
            const struct caps caps = vary(&devices[d]);
            const struct backward_problem problem = {any_size(11), any_size(11), types[i % 3]};
            struct backward_choice c;
            tune_attention_backward(&caps, &problem, &c);
            assert_non_null(c.reason);
            for (uint32_t stage = 0; stage < BACKWARD_STAGES && c.usable; stage++) {
                check_tile(&caps, &problem, &c, stage);
                chunked += c.tiles[stage].n_feature_tile > 1;
            }
            usable += c.usable;
            matrices += c.usable && c.kernel != KERNEL_attention_backward;
        }
    assert_true(usable > 6000 && chunked > 2000 && matrices > 2000);
}

/* GPUs take the kernel where they can; CPU drivers, which pay for barriers, take products. */
static void preferred(void **state)
{
    (void)state;
    const struct backward_problem problem = {64, 64, VKA_F32}, wide = {TUNE_CHAIN + 1, 64, VKA_F32};
    struct backward_choice c;
    struct caps caps = discrete;
    tune_attention_backward(&caps, &problem, &c);
    assert_true(c.usable && c.preferred);
    caps.without = KERNEL_SET(KERNEL_attention_backward);
    tune_attention_backward(&caps, &problem, &c);
    assert_false(c.usable);
    caps = cpu(8);
    tune_attention_backward(&caps, &problem, &c);
    assert_false(c.preferred);
    caps = discrete;
    tune_attention_backward(&caps, &wide, &c);
    assert_false(c.usable);
    caps.max_bindings = 8;
    tune_attention_backward(&caps, &problem, &c);
    assert_false(c.usable);
    assert_string_equal(c.reason, "needs more storage buffers");
}

/* Matrices are taken on GPUs, for operands and gradients of one 16-bit type. */
static void matrices(void **state)
{
    (void)state;
    const struct backward_problem f32 = {128, 64, VKA_F32}, f16 = {128, 64, VKA_F16};
    const struct backward_problem bf16 = {80, 80, VKA_BF16};
    const struct kernel_set scalar = KERNEL_SET(KERNEL_attention_backward);
    struct backward_choice c;
    struct caps caps = with_matrices(&discrete);
    tune_attention_backward(&caps, &f32, &c);
    assert_int_equal(c.kernel, KERNEL_attention_backward);
    tune_attention_backward(&caps, &f16, &c);
    assert_int_equal(c.kernel, KERNEL_attention_backward_coop_f16);
    assert_true(c.usable && c.preferred);
    assert_int_equal(backward_own(&c.tiles[BACKWARD_KEYS]), 64);
    assert_int_equal(c.tiles[BACKWARD_KEYS].n_feature_tile, 1);
    assert_int_equal(backward_vector(&c), 8);
    tune_attention_backward(&caps, &bf16, &c);
    assert_int_equal(c.kernel, KERNEL_attention_backward_coop_bf16);
    caps.without = KERNEL_SET(KERNEL_attention_backward_coop_bf16);
    tune_attention_backward(&caps, &bf16, &c);
    assert_int_equal(c.kernel, KERNEL_attention_backward);
    assert_int_equal(backward_vector(&c), 4);
    caps = with_matrices(&discrete);
    caps.properties.type = VKA_DEVICE_CPU;
    tune_attention_backward(&caps, &f16, &c);
    assert_true(c.usable && !c.preferred && c.kernel == KERNEL_attention_backward);
    caps.without = scalar;
    tune_attention_backward(&caps, &f16, &c);
    assert_true(c.usable && c.kernel == KERNEL_attention_backward_coop_f16);
}

static uint32_t form_of(const struct backward_choice *c, const struct backward_operands *operands)
{
    struct pipeline_key key;
    tune_backward_key(c, BACKWARD_KEYS, operands, &key);
    return key.spec[BACKWARD_COOP_FORM];
}

/* All features of the others of a step are staged where heads and rows are whole, there are rows for a
 * tile, and shared memory is had; on Intel's GPUs never. */
static void forms(void **state)
{
    (void)state;
    const struct backward_problem whole = {128, 128, VKA_F16}, odd = {120, 128, VKA_F16};
    const struct backward_problem wide = {256, 256, VKA_F16};
    const struct backward_operands operands = {.vecs = 15, .n_q = 1, .n_kv = 64};
    struct backward_operands few = operands, unaligned = operands;
    struct backward_choice c;
    struct caps caps = with_matrices(&discrete);
    few.n_kv = 63;
    unaligned.vecs = 7;
    caps.properties.max_shared_memory = 49152;
    caps.properties.vendor_id = VENDOR_NVIDIA;
    tune_attention_backward(&caps, &whole, &c);
    assert_int_equal(c.kernel, KERNEL_attention_backward_coop_f16);
    assert_int_equal(form_of(&c, &operands), BACKWARD_APART);
    for (uint32_t stage = 0; stage < BACKWARD_STAGES; stage++)
        assert_true(tune_backward_shared(&c, stage) <= 49152);
    assert_int_equal(form_of(&c, &few), BACKWARD_BY_DEPTH);
    assert_int_equal(form_of(&c, &unaligned), BACKWARD_BY_DEPTH);
    tune_attention_backward(&caps, &odd, &c);
    assert_int_equal(form_of(&c, &operands), BACKWARD_BY_DEPTH);
    tune_attention_backward(&caps, &wide, &c);
    assert_int_equal(form_of(&c, &operands), BACKWARD_BY_DEPTH);
    caps.properties.vendor_id = 0x1002; /* AMD */
    tune_attention_backward(&caps, &whole, &c);
    assert_int_equal(form_of(&c, &operands), BACKWARD_DIRECT);
    assert_true(tune_backward_shared(&c, BACKWARD_KEYS) <= 32768);
    caps.properties.vendor_id = VENDOR_INTEL;
    tune_attention_backward(&caps, &whole, &c);
    assert_int_equal(form_of(&c, &operands), BACKWARD_BY_DEPTH);
}

TEST_PROGRAM(tune_backward)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiles), cmocka_unit_test(preferred),
                                       cmocka_unit_test(matrices), cmocka_unit_test(forms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
