/* The tiles of linear attention, on devices made by hand. SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "params/params.h"
#include "params/model.h"
#include "params/state.h"
#include "kernel/state.h"
#include "test_program.h"
#include "tune_devices.h"

static struct caps with_shared(uint32_t bytes)
{
    struct caps caps = discrete;
    caps.properties.max_shared_memory = bytes;
    return caps;
}

/* A workgroup takes values while its state has room, and no more than there are. */
static void chunked(void **state)
{
    (void)state;
    static const struct {
        uint32_t shared, head_dim, value_dim, lanes; /* 0: it does not fit */
    } cases[] = {
        {49152, 128, 128, 128}, {32768, 128, 128, 128}, {28672, 128, 128, 0},
        {32768, 256, 128, 64},  {49152, 256, 256, 128}, {32768, 512, 128, 64},
        {49152, 128, 8, 64},    {49152, 3, 4, 32},      {65536, 513, 128, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct caps caps = with_shared(cases[i].shared);
        struct recurrent_choice c = {0};
        const bool fits =
            tune_chunked(&caps, cases[i].head_dim, cases[i].value_dim, DECAY_HEAD, &c);
        assert_int_equal(fits ? c.lanes : 0, cases[i].lanes);
        if (fits)
            assert_int_equal(c.fours, (cases[i].head_dim + 3) / 4);
        assert_false(tune_chunked(&caps, cases[i].head_dim, cases[i].value_dim, DECAY_KEY, &c));
    }
}

/* Mesa's CPU driver goes by chunks from version 26 on, of rows padded to 16 features; not with the decay of
 * each key, and not where either kernel is off. */
static void by_address(void **state)
{
    (void)state;
    static const uint32_t cases[][2] = {{1, 4}, {16, 4}, {17, 8}, {128, 32}, {512, 128}, {513, 0}};
    const struct caps new = mesa(26), old = mesa(22);
    struct recurrent_choice c;
    assert_true(tune_gains_by_chunks(&new) && !tune_gains_by_chunks(&old));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) { /* keys, fours */
        const bool taken = tune_chunked_address(&new, cases[i][0], DECAY_HEAD, &c);
        assert_int_equal(taken ? c.fours : 0, cases[i][1]);
        assert_int_equal(c.lanes, 8);
        assert_false(tune_chunked_address(&new, cases[i][0], DECAY_KEY, &c));
        assert_false(tune_chunked_address(&old, cases[i][0], DECAY_HEAD, &c));
        assert_false(tune_chunked_address(&discrete, cases[i][0], DECAY_HEAD, &c));
    }
    const enum kernel both[] = {KERNEL_linear_chunked_address, KERNEL_linear_weights_address};
    for (size_t i = 0; i < 2; i++) {
        struct caps without = new;
        set_add(&without.without, both[i]);
        assert_false(tune_chunked_address(&without, 128, DECAY_HEAD, &c));
        assert_false(tune_gains_by_chunks(&without));
    }
}

/* Other CPU drivers go token by token, with four fours of keys a lane, and as long rows as GPUs. */
static void cpu_drivers(void **state)
{
    (void)state;
    static const uint32_t cases[][2] = {
        {1, 1}, {16, 1}, {17, 2}, {128, 8}, {1024, 64}}; /* keys, splits */
    struct caps cpu = discrete;
    cpu.properties.type = VKA_DEVICE_CPU;
    assert_false(tune_gains_by_chunks(&cpu));
    assert_true(tune_gains_by_chunks(&discrete));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct recurrent_choice c = {0};
        assert_true(tune_recurrent(&cpu, cases[i][0], 128, DECAY_HEAD, &c));
        assert_int_equal(c.splits, cases[i][1]);
        assert_true(c.fours <= 4 && 4 * c.fours * c.splits >= cases[i][0]);
    }
    struct recurrent_choice c = {0};
    assert_false(tune_recurrent(&cpu, 1025, 1, DECAY_HEAD, &c));
    assert_false(tune_recurrent(&discrete, 1025, 1, DECAY_HEAD, &c));
}

/* By matrix units: q and k of 16 bits, whole matrices of tokens, and heads of which they have half. */
static void matrices(void **state)
{
    (void)state;
    static const struct {
        enum vka_dtype q, k;
        uint32_t head_dim, value_dim, decay, shared, m, n, depth;
        uint32_t lanes, fours, columns; /* 0: it does not fit, or is not the better one */
    } cases[] = {
        {VKA_F16, VKA_F16, 128, 128, DECAY_HEAD, 49152, 16, 16, 16, 128, 32, 8},
        {VKA_BF16, VKA_F16, 128, 128, DECAY_NONE, 49152, 16, 16, 16, 128, 32, 8},
        {VKA_F16, VKA_F16, 128, 128, DECAY_HEAD, 32768, 16, 16, 16, 128, 32, 4},
        {VKA_F16, VKA_F16, 64, 64, DECAY_HEAD, 32768, 8, 16, 16, 256, 16, 4},
        {VKA_F16, VKA_F16, 40, 16, DECAY_HEAD, 49152, 16, 16, 16, 128, 16, 4},
        {VKA_F16, VKA_F16, 256, 256, DECAY_HEAD, 49152, 16, 16, 16, 128, 64, 4},
        {VKA_F16, VKA_F16, 256, 256, DECAY_HEAD, 32768, 16, 16, 16, 0, 0, 0},
        {VKA_F16, VKA_F16, 257, 128, DECAY_HEAD, 65536, 16, 16, 16, 0, 0, 0},
        {VKA_F16, VKA_F16, 31, 128, DECAY_HEAD, 49152, 16, 16, 16, 0, 0, 0},
        {VKA_F16, VKA_F16, 128, 15, DECAY_HEAD, 49152, 16, 16, 16, 0, 0, 0},
        {VKA_F16, VKA_F16, 128, 128, DECAY_KEY, 49152, 16, 16, 16, 0, 0, 0},
        {VKA_F32, VKA_F16, 128, 128, DECAY_HEAD, 49152, 16, 16, 16, 0, 0, 0},
        {VKA_F16, VKA_F32, 128, 128, DECAY_HEAD, 49152, 16, 16, 16, 0, 0, 0},
        {VKA_F16, VKA_F16, 128, 128, DECAY_HEAD, 49152, 24, 16, 16, 0, 0, 0},
        {VKA_F16, VKA_F16, 128, 128, DECAY_HEAD, 49152, 4, 8, 8, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct caps caps = with_matrices(&discrete), cpu;
        struct recurrent_choice c = {0};
        caps.properties.max_shared_memory = cases[i].shared;
        caps.matrix_f16 = (struct matrix_size){cases[i].m, cases[i].n, cases[i].depth};
        caps.properties.subgroup_size = caps.least_subgroup = 32;
        const bool taken = tune_chunked_coop(&caps, cases[i].q, cases[i].k, cases[i].head_dim,
                                             cases[i].value_dim, cases[i].decay, &c);
        assert_int_equal(taken ? c.lanes : 0, cases[i].lanes);
        assert_int_equal(taken ? c.fours : 0, cases[i].fours);
        assert_int_equal(taken ? c.columns : 0, cases[i].columns);
        cpu = caps;
        cpu.properties.type = VKA_DEVICE_CPU;
        assert_false(tune_chunked_coop(&cpu, cases[i].q, cases[i].k, cases[i].head_dim,
                                       cases[i].value_dim, cases[i].decay, &c));
    }
}

TEST_PROGRAM(tune_state)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(chunked), cmocka_unit_test(cpu_drivers),
                                       cmocka_unit_test(matrices), cmocka_unit_test(by_address)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
