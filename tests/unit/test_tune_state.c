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

/* CPU drivers take narrow heads token by token, GPUs none. */
static void narrow_heads(void **state)
{
    (void)state;
    static const struct {
        uint32_t head_dim, value_dim;
        bool gains;
    } cases[] = {{1, 1, false},  {16, 512, false}, {31, 512, false}, {32, 64, false},
                 {32, 65, true}, {64, 1, true},    {64, 16, true},   {128, 128, true}};
    struct caps cpu = discrete;
    cpu.properties.type = VKA_DEVICE_CPU;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint32_t keys = cases[i].head_dim, values = cases[i].value_dim;
        assert_int_equal(tune_gains_by_chunks(&cpu, keys, values), cases[i].gains);
        assert_true(tune_gains_by_chunks(&discrete, keys, values));
    }
}

TEST_PROGRAM(tune_state)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(chunked), cmocka_unit_test(narrow_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
