/* The device here, taken for others: less of it is used, other kernels are chosen, dispatches are
 * cut. Layers and random attention problems must come out right on each.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "gpu/device.h"
#include "kernel/tune.h"
#include "layers/layer_case.h"
#include "problems/problem.h"
#include "test_program.h"

/* A CPU driver without texel buffers: weights lie transposed. */
static void as_plain_cpu(struct caps *caps)
{
    caps->int64 = caps->device_address = false;
    set_join(&caps->without, KERNEL_SET(KERNEL_matmul_texel, KERNEL_attention_texel));
}

/* Bindings and texel buffers that hold little, bindings that begin at multiples of the most bytes that
 * Vulkan lets a device ask for, and dispatches of few workgroups: every axis is cut. */
static void with_few_groups(struct caps *caps)
{
    const uint32_t few[] = {96, 6, 65535};
    for (int i = 0; i < 3; i++)
        caps->max_groups[i] = few[i];
    caps->max_texels = 4096;
    caps->buffer_alignment = 256;
}

#ifndef NO_GPU_KERNELS
/* Mali: kernels of GPUs, with the tiles that 64 registers hold. */
static void as_mali(struct caps *caps)
{
    caps->properties.type = VKA_DEVICE_INTEGRATED;
    caps->properties.vendor_id = VENDOR_ARM;
}
#endif

static const struct variant {
    const char *name;
    void (*change)(struct caps *caps);
    uint64_t
        n_problem; /* `other_devices all`: four times as many. CPU drivers take seconds to compile each tile of a GPU's kernels */
} variants[] = {
    {"a CPU driver without texel buffers", as_plain_cpu, 30},
    {"few workgroups", with_few_groups, 30},
#ifndef NO_GPU_KERNELS
    {"a GPU with few registers", as_mali, 2},
#endif
};

static const struct layer_case layers[] = {
    {"plain", .batch = 2, .n_q = 37, .n_head = 4, .head_dim = 24, .query_dim = 96,
     .biases = BIAS_ALL, .causal = true},
    {"grouped, cross", .batch = 5, .n_q = 19, .n_kv = 131, .n_head = 6, .n_kv_head = 2,
     .head_dim = 12, .value_dim = 20, .query_dim = 40, .key_dim = 28, .lengths = true,
     .biases = BIAS_ALL},
    {"interleaved, f16", .batch = 2, .n_q = 9, .n_head = 3, .head_dim = 5, .query_dim = 13,
     .interleaved = true, .dtype = VKA_F16, .biases = BIAS_QUERY | BIAS_OUTPUT},
    {"sequence first, bf16", .batch = 3, .n_q = 33, .n_head = 2, .head_dim = 16, .query_dim = 64,
     .io = LAYER_SEQUENCE_FIRST, .dtype = VKA_BF16},
    {"many rows", .batch = 1, .n_q = 700, .n_head = 2, .head_dim = 8, .query_dim = 16,
     .output_dim = 260, .biases = BIAS_ALL},
};

static void check_layers(struct vka_device *device, const char *name)
{
    for (size_t i = 0; i < COUNTOF(layers); i++) {
        double error = layer_check(device, &layers[i], i);
        if (!(error <= LAYER_NMSE))
            fail_msg("as %s: layer '%s': NMSE %.3g", name, layers[i].name, error);
    }
}

/* problems of every path, the same ones for each device. */
static void check_problems(struct vka_device *device, const char *name, uint64_t n)
{
    for (uint64_t seed = 0; seed < n; seed++) {
        struct problem p;
        struct problem_result result;
        char text[PROBLEM_TEXT];
        problem_draw(&p, 7000000 + seed, seed % 3 ? VKA_PATH_AUTO : VKA_PATH_UNFUSED);
        if (!problem_check(device, &p, NULL, &result))
            fail_msg("as %s: %s: %s", name, result.why, problem_text(&p, text));
    }
}

static uint64_t times = 1;

static void as_others(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTOF(variants); i++) {
        struct vka_device *device;
        assert_int_equal(vka_device_create(NULL, &device), VKA_OK);
        variants[i].change(&device->caps);
        check_layers(device, variants[i].name);
        check_problems(device, variants[i].name, times * variants[i].n_problem);
        vka_device_destroy(&device);
    }
}

TEST_PROGRAM_ARGUMENTS(other_devices)
{
    if (argc == 2 && strcmp(argv[1], "all") == 0)
        times = 4;
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_others)};
    if (!have_device("what is chosen on other devices"))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
