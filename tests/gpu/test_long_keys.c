/* Fused attention whose keys, values or mask of one head pass a binding: cut along the keys, with
 * the bits of the whole, by the kernel that the device prefers and by the one for GPUs.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include <gpu/device.h>

#include "problem.h"
#include "test_program.h"

#define N_KV \
    4500 /* keys of 8 float32 are 144,000 bytes, four rows of a mask or values of 4 are 72,000 */

static const struct problem problems[] = {
    {.seed = 1, .batch = 2, .n_q = 4, .mask = VKA_F32, .mask_rank = 2, .mask_shape = {4, N_KV}},
    {.seed = 2,
     .batch = 1,
     .n_q = 40,
     .offsets = PER_BATCH_ONE,
     .causal = true,
     .window = true,
     .window_left = 1500,
     .window_right = -1,
     .masked_row = VKA_MASKED_UNIFORM,
     .poison_hidden = true},
    {.seed = 3,
     .batch = 1,
     .n_q = 40,
     .n_past = N_KV - 40,
     .causal = true,
     .sink = true,
     .scattered = true,
     .poison_hidden = true},
    {.seed = 4,
     .batch = 1,
     .n_q = 1,
     .mask = VKA_BOOL,
     .mask_rank = 1,
     .mask_shape = {N_KV - 300},
     .lengths = PER_BATCH_ONE,
     .dropout = 0.25f,
     .dropout_seed = 5,
     .poison_hidden = true},
};

/* Runs all of them; the kernels that took them. */
static uint64_t check_all(struct vka_device *device, uint64_t disabled)
{
    uint64_t kernels = 0;
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        struct problem p = problems[i];
        struct problem_result result;
        char text[PROBLEM_TEXT];
        p.n_kv_head = 1;
        p.group = 2;
        p.n_new = N_KV - p.n_past;
        p.head_dim = 8;
        p.value_dim = 4; /* more, and what the pieces of a tile leave would pass a binding */
        p.path = VKA_PATH_FUSED;
        p.limits = true;
        p.disabled_kernels = disabled;
        bool ok = problem_check(device, &p, NULL, &result);
        if (!ok || result.refused)
            fail_msg("%s: %s", result.why, problem_text(&p, text));
        kernels |= result.kernels;
    }
    return kernels;
}

static void long_keys(void **state)
{
    static const enum kernel fused[] = {KERNEL_attention_row, KERNEL_attention_texel,
                                        KERNEL_attention_address, KERNEL_attention_feature,
                                        KERNEL_attention_tile};
    struct vka_device *device = *state;
    uint64_t rows = 0, used = 0;
    for (int i = 0; i < 4; i++)
        rows |= 1ull << fused[i];
    used |= check_all(device, 0);
    if (!kernel_missing(KERNEL_attention_tile, &device->caps))
        used |= check_all(device, rows);
    for (size_t i = 0; i < sizeof fused / sizeof fused[0]; i++)
        if (used >> fused[i] & 1)
            print_message("%s: %zu problems, 64 KiB a binding, the same bits\n",
                          kernel_table[fused[i]].name, sizeof problems / sizeof problems[0]);
}

TEST_PROGRAM(long_keys)
{
    struct vka_device *device = NULL;
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no long keys were tested\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(long_keys, device)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
