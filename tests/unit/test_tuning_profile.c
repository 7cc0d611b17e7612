/* Tuning profiles: what is read, what is left aside, and what they may choose.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/status.h"
#include "params/params.h"
#include "kernel/choose.h"
#include "mutated.h"
#include "test_program.h"

static const struct caps device = {
    .properties =
        {
            .name = "CPU driver",
            .driver = "driver 1.2.3",
            .type = VKA_DEVICE_CPU,
            .vendor_id = 0x10005,
            .subgroup_size = 8,
            .max_workgroup = 1024,
            .max_shared_memory = 32768,
            .max_buffer_range = 1u << 27,
            .max_allocation = 1u << 30,
            .subgroup_arithmetic = true,
            .subgroup_ballot = true,
        },
    .max_groups = {65535, 65535, 65535},
    .buffer_alignment = 16,
    .max_bindings = 64,
    .int64 = true,
    .subgroup_size_control = true,
};

static const struct matmul_problem product = {.batch = 1, .m = 512, .n = 512, .k = 512};
static const char product_name[] = "matmul/f32*f32/---0/m32/n256/k256";
static const struct attention_problem attention = {
    .batch = 1, .n_kv_head = 8, .n_row = 512, .n_kv = 512, .head_dim = 64, .value_dim = 64};

/* The number of warnings of one call, and the last. */
static unsigned warnings;
static char warning[256];
static void count(void *user, enum vka_log_level level, const char *message)
{
    (void)user;
    snprintf(warning, sizeof warning, "%s", message);
    warnings += level == VKA_LOG_WARNING;
}

static unsigned read_text(const char *text, size_t size, struct caps *caps,
                          struct tuning_profile *profile)
{
    struct log log = {.callback = count};
    warnings = 0;
    *caps = device;
    assert_int_equal(tuning_profile_read(&log, text, size, caps, profile), VKA_OK);
    caps->profile = profile;
    return warnings;
}

/* Reads the head of `device` and these lines. */
static unsigned read_lines(const char *lines, struct caps *caps, struct tuning_profile *profile)
{
    char text[4096];
    size_t head = tuning_profile_identity(&device.properties, text, sizeof text);
    assert_true(head < sizeof text);
    snprintf(text + head, sizeof text - head, "%s", lines);
    return read_text(text, strlen(text), caps, profile);
}

static void overrides_the_rules(void **state)
{
    (void)state;
    struct caps caps;
    struct tuning_profile profile;
    struct matmul_choice c;
    struct attention_choice a;
    assert_int_equal(read_lines("kernel matmul/f32*f32/---0/m32/n256/k256 matmul_tile 1\n"
                                "kernel matmul/* matmul_lane4 0\n"
                                "path attention/f32*f32/d64/v64/q256/k256 fused\n",
                                &caps, &profile),
                     0);
    choose_matmul(&caps, &product, &c);
    assert_string_equal(c.problem, product_name);
    assert_int_equal(c.kernel, KERNEL_matmul_tile);
    assert_int_equal(c.tile_m, 2); /* one size below the rules' */
    struct matmul_problem other = product;
    other.k = 64; /* the line for all others */
    choose_matmul(&caps, &other, &c);
    assert_int_equal(c.kernel, KERNEL_matmul_lane4);
    tune_attention(&device, &attention, &a);
    assert_false(a.preferred);
    choose_attention(&caps, &attention, &a);
    assert_true(a.usable && a.preferred);
    tuning_profile_free(&profile);
}

/* What a profile asks for and the device lacks is chosen by the rules. */
static void cannot_choose_what_is_missing(void **state)
{
    (void)state;
    struct caps caps;
    struct tuning_profile profile;
    struct matmul_choice c, rules;
    struct attention_choice a, attention_rules;
    read_lines("kernel matmul/* copy 0\nkernel attention/* softmax_shared 3\n", &caps, &profile);
    choose_matmul(&caps, &product, &c);
    tune_matmul(&device, &product, &rules);
    assert_int_equal(c.kernel, rules.kernel);
    choose_attention(&caps, &attention, &a);
    tune_attention(&device, &attention, &attention_rules);
    assert_int_equal(a.kernel, attention_rules.kernel);
    tuning_profile_free(&profile);
    read_lines("kernel matmul/* matmul_tile 0\n", &caps, &profile);
    struct matmul_problem packed = product;
    packed.b_tile = TEXEL_COLUMNS; /* which the tile kernel cannot read */
    caps.max_texels = 1 << 27;
    choose_matmul(&caps, &packed, &c);
    assert_int_equal(c.kernel, KERNEL_matmul_texel);
    tuning_profile_free(&profile);
}

static void demotes(void **state)
{
    (void)state;
    struct caps caps;
    struct tuning_profile profile;
    struct matmul_choice c;
    assert_int_equal(read_lines("demote matmul_texel\n", &caps, &profile), 0);
    assert_non_null(kernel_missing(KERNEL_matmul_texel, &caps));
    choose_matmul(&caps, &product, &c);
    assert_int_equal(c.kernel, KERNEL_matmul_lane8);
    tuning_profile_free(&profile);
}

static void malformed_is_left_aside(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "kernel matmul/* matmul_tile\n",
        "kernel matmul/* matmul_tile 8\n",
        "kernel matmul/* matmul_tile -1\n",
        "kernel matmul/* matmul_tile 00\n",
        "kernel matmul/* matmul_tile 0 0\n",
        "kernel matmul/* no_such_kernel 0\n",
        "kernel  matmul_tile 0\n",
        " kernel matmul/* matmul_tile 0\n",
        "kernel matmul/* matmul_tile 0 \n",
        "kernel matmul/* matmul_tile 0\r\n",
        "kernel matmul/*\tmatmul_tile 0\n",
        "path attention/* both\n",
        "path attention/*\n",
        "demote\n",
        "demote copy now\n",
        "demote 0\n",
        "\n",
        "kernel matmul/* matmul_tile 0", /* cut */
        ("kernel matmul/f32*f32/a-name-that-is-longer-than-any-problem-that-there-could-be/n1/k1 "
         "matmul_tile 0\n"),
    };
    for (size_t i = 0; i < COUNTOF(lines); i++) {
        char text[512];
        struct caps caps;
        struct tuning_profile profile;
        snprintf(text, sizeof text, "demote copy\n%s", lines[i]); /* the good line goes too */
        assert_int_equal(read_lines(text, &caps, &profile), 1);
        assert_int_equal(profile.n, 0);
        assert_false(caps.kernels[KERNEL_copy] == KERNEL_DEMOTED);
    }
}

static void another_device_is_left_aside(void **state)
{
    (void)state;
    char text[512];
    struct caps caps;
    struct tuning_profile profile;
    size_t head = tuning_profile_identity(&device.properties, text, sizeof text);
    strcpy(text + head, "demote copy\n");
    size_t size = strlen(text);
    assert_int_equal(read_text(text, size, &caps, &profile), 0);
    for (int k = 0; k < KERNEL_COUNT; k++)
        assert_int_equal(caps.kernels[k] == KERNEL_DEMOTED, k == KERNEL_copy);
    tuning_profile_free(&profile);
    for (size_t i = 0; i < head; i++) { /* any other head, and any shorter one */
        text[i] ^= 1;
        assert_int_equal(read_text(text, size, &caps, &profile), 1);
        text[i] ^= 1;
        assert_int_equal(read_text(text, i, &caps, &profile), 1);
        assert_true(caps.kernels[KERNEL_copy] == KERNEL_UNTESTED && profile.n == 0);
    }
    assert_true(tuning_profile_identity(&device.properties, NULL, 0) == head);
}

/* What unreleased versions wrote is refused by its name, with what to do; a shorter text is not. */
static void verdicts_are_refused(void **state)
{
    (void)state;
    static const char old[] = "vkattn-verdict 1\ndevice 0:0:0 0\ndemote copy\n";
    struct caps caps;
    struct tuning_profile profile;
    for (size_t size = 0; size < sizeof old; size++) {
        char *text = malloc(size ? size : 1); /* so that a sanitizer sees a read behind it */
        memcpy(text, old, size);
        assert_int_equal(read_text(text, size, &caps, &profile), 1);
        assert_true((strstr(warning, "a file of verdicts") != NULL) ==
                    (size >= strlen("vkattn-verdict ")));
        assert_non_null(strstr(warning, "; 'vkattn tune' makes a new one"));
        assert_true(caps.kernels[KERNEL_copy] == KERNEL_UNTESTED && profile.n == 0);
        free(text);
    }
}

/* A profile is read or left aside, with a warning, and what it chooses can run. */
static bool read_mutated(const unsigned char *text, size_t size)
{
    struct caps caps;
    struct tuning_profile profile;
    struct matmul_choice c;
    const bool accepted = read_text((const char *)text, size, &caps, &profile) == 0;
    choose_matmul(&caps, &product, &c);
    assert_null(kernel_missing(c.kernel, &caps));
    assert_true(accepted || profile.n == 0);
    tuning_profile_free(&profile);
    return accepted;
}

/* Any byte anywhere changed to what means something, or nothing, there. */
static void survives_mutants(void **state)
{
    (void)state;
    static const char lines[] = "kernel matmul/f32*f32/---0/m32/n256/k256 matmul_tile 1\n"
                                "path attention/* fused\ndemote matmul_lane8\n";
    static const char bytes[] = "\n\r\t */_-0189amz~\x7f\x80\xff"; /* and the 0 at its end */
    char text[sizeof lines + 256];
    const size_t head = tuning_profile_identity(&device.properties, text, sizeof text);
    memcpy(text + head, lines, sizeof lines - 1);
    check_mutants((unsigned char *)text, head + sizeof lines - 1,
                  &(struct mutants){.first = head,
                                    .values = bytes,
                                    .n = sizeof bytes,
                                    .least_accepted = 300,
                                    .least_refused = 1000},
                  read_mutated);
}

TEST_PROGRAM(tuning_profile)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overrides_the_rules),
        cmocka_unit_test(cannot_choose_what_is_missing),
        cmocka_unit_test(demotes),
        cmocka_unit_test(malformed_is_left_aside),
        cmocka_unit_test(another_device_is_left_aside),
        cmocka_unit_test(verdicts_are_refused),
        cmocka_unit_test(survives_mutants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
