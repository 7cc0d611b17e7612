/* Results of 16 bits that lie at words, beside the float32 of the same operation, which is stored by other
 * code. tests/devices/whole_words.sh runs it with kernels that cannot store half a word.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <vkattn/vkattn_model.h>
#include <vkattn/vkattn_train.h>

#include "patience.h"
#include "problems/compare.h"
#include "test_program.h"

#define MOST 5 /* inputs, outputs */

/* What an operand holds: values of the type that is tested, float32 or positions. */
enum holds { TESTED, FLOATS, POSITIONS };

struct shape_of {
    enum holds holds;
    uint32_t rank, size[4];
};

/* An operation's inputs and outputs; rank 0: no more of them. The views lie in this order. */
struct words_case {
    const char *name;
    enum vka_status (*add)(struct vka_plan *plan, struct vka_tensor *const in[MOST],
                           struct vka_tensor *const out[MOST]);
    struct shape_of in[MOST], out[MOST];
};

#define ADD(name)                                                                         \
    static enum vka_status name(struct vka_plan *plan, struct vka_tensor *const in[MOST], \
                                struct vka_tensor *const out[MOST])

ADD(pool)
{
    return vka_plan_add_pool(plan, VKA_INFO(vka_pool_op, .input = in[0], .output = out[0]));
}

ADD(merge)
{
    return vka_plan_add_merge(plan, VKA_INFO(vka_merge_op, .n_slice = 2, .slices = in,
                                             .log_sum_exps = in + 2, .output = out[0]));
}

ADD(merge_one)
{
    return vka_plan_add_merge(plan, VKA_INFO(vka_merge_op, .n_slice = 1, .slices = in,
                                             .log_sum_exps = in + 1, .output = out[0]));
}

ADD(convolve)
{
    return vka_plan_add_causal_conv(plan,
                                    VKA_INFO(vka_causal_conv_op, .input = in[0], .weight = in[1],
                                             .past = in[2], .output = out[0], .present = out[1]));
}

ADD(scatter_rows)
{
    return vka_plan_add_scatter(plan, VKA_INFO(vka_scatter_op, .update = in[0], .positions = in[1],
                                               .axis = 1, .circular = true, .output = out[0]));
}

ADD(scatter_columns)
{
    return vka_plan_add_scatter(plan, VKA_INFO(vka_scatter_op, .update = in[0], .axis = 2,
                                               .circular = true, .output = out[0]));
}

ADD(gather)
{
    return vka_plan_add_gather(
        plan, VKA_INFO(vka_gather_op, .table = in[0], .ids = in[1], .output = out[0]));
}

ADD(norm)
{
    return vka_plan_add_norm(
        plan, VKA_INFO(vka_norm_op, .kind = VKA_LAYER_NORM, .input = in[0], .output = out[0]));
}

ADD(add_both)
{
    return vka_plan_add_binary(
        plan, VKA_INFO(vka_binary_op, .kind = VKA_ADD, .a = in[0], .b = in[1], .output = out[0]));
}

ADD(rotate)
{
    return vka_plan_add_rotary(plan,
                               VKA_INFO(vka_rotary_op, .input = in[0], .dim = 8, .output = out[0]));
}

ADD(linear_attention)
{
    return vka_plan_add_linear_attention(plan, VKA_INFO(vka_linear_attention_op,
                                                        .rule = VKA_RULE_LINEAR, .q = in[0],
                                                        .k = in[1], .v = in[2], .output = out[0]));
}

ADD(norm_backward)
{
    return vka_plan_add_norm_backward(
        plan, VKA_INFO(vka_norm_backward_op, .kind = VKA_RMS_NORM, .input = in[0], .weight = in[1],
                       .output_gradient = in[2], .input_gradient.tensor = out[0],
                       .weight_gradient.tensor = out[1]));
}

ADD(activation_backward)
{
    return vka_plan_add_activation_backward(
        plan, VKA_INFO(vka_activation_backward_op, .kind = VKA_SILU, .input = in[0],
                       .output_gradient = in[1], .input_gradient.tensor = out[0]));
}

ADD(gather_backward)
{
    return vka_plan_add_gather_backward(plan, VKA_INFO(vka_gather_backward_op, .ids = in[1],
                                                       .output_gradient = in[0],
                                                       .table_gradient.tensor = out[0]));
}

ADD(convolve_backward)
{
    return vka_plan_add_causal_conv_backward(
        plan, VKA_INFO(vka_causal_conv_backward_op,
                       .forward = VKA_INFO(vka_causal_conv_op, .input = in[0], .weight = in[1],
                                           .output = in[3]),
                       .output_gradient = in[2], .input_gradient.tensor = out[0],
                       .weight_gradient.tensor = out[1]));
}

ADD(square_error)
{
    return vka_plan_add_square_error(plan,
                                     VKA_INFO(vka_square_error_op, .input = in[0], .target = in[1],
                                              .loss = out[1], .gradient = out[0]));
}

static const struct words_case cases[] = {
    {"pool", pool, {{TESTED, 3, {2, 9, 34}}}, {{TESTED, 2, {2, 34}}}},
    {"merge of two",
     merge,
     {{TESTED, 3, {2, 3, 6}}, {TESTED, 3, {2, 3, 6}}, {FLOATS, 2, {2, 3}}, {FLOATS, 2, {2, 3}}},
     {{TESTED, 3, {2, 3, 6}}}},
    {"merge of one", merge_one, {{TESTED, 2, {5, 70}}, {FLOATS, 1, {5}}}, {{TESTED, 2, {5, 70}}}},
    {"convolution",
     convolve,
     {{TESTED, 3, {2, 5, 6}}, {TESTED, 2, {6, 4}}, {TESTED, 3, {2, 6, 3}}},
     {{TESTED, 3, {2, 5, 6}}, {TESTED, 3, {2, 6, 3}}}},
    {"convolution of a row",
     convolve,
     {{TESTED, 3, {2, 1, 130}}, {TESTED, 2, {130, 3}}, {TESTED, 3, {2, 130, 2}}},
     {{TESTED, 3, {2, 1, 130}}, {TESTED, 3, {2, 130, 2}}}},
    {"scatter of rows",
     scatter_rows,
     {{TESTED, 3, {2, 7, 10}}, {POSITIONS, 1, {2}}},
     {{TESTED, 3, {2, 7, 10}}}},
    {"scatter of columns", scatter_columns, {{TESTED, 3, {2, 3, 10}}}, {{TESTED, 3, {2, 3, 10}}}},
    {"gather", gather, {{TESTED, 2, {3, 10}}, {POSITIONS, 1, {7}}}, {{TESTED, 2, {7, 10}}}},
    {"norm", norm, {{TESTED, 2, {3, 70}}}, {{TESTED, 2, {3, 70}}}},
    {"sum", add_both, {{TESTED, 2, {3, 70}}, {TESTED, 2, {3, 70}}}, {{TESTED, 2, {3, 70}}}},
    {"rotary", rotate, {{TESTED, 4, {1, 2, 3, 10}}}, {{TESTED, 4, {1, 2, 3, 10}}}},
    {"linear attention",
     linear_attention,
     {{TESTED, 4, {1, 2, 5, 8}}, {TESTED, 4, {1, 2, 5, 8}}, {TESTED, 4, {1, 2, 5, 6}}},
     {{TESTED, 4, {1, 2, 5, 6}}}},
    {"gradients of a norm",
     norm_backward,
     {{TESTED, 2, {3, 70}}, {TESTED, 1, {70}}, {TESTED, 2, {3, 70}}},
     {{TESTED, 2, {3, 70}}, {TESTED, 1, {70}}}},
    {"gradient of an activation",
     activation_backward,
     {{TESTED, 2, {3, 70}}, {TESTED, 2, {3, 70}}},
     {{TESTED, 2, {3, 70}}}},
    {"gradient of a gather",
     gather_backward,
     {{TESTED, 2, {7, 10}}, {POSITIONS, 1, {7}}},
     {{TESTED, 2, {3, 10}}}},
    {"gradients of a convolution",
     convolve_backward,
     {{TESTED, 3, {2, 5, 6}}, {TESTED, 2, {6, 4}}, {TESTED, 3, {2, 5, 6}}, {TESTED, 3, {2, 5, 6}}},
     {{TESTED, 3, {2, 5, 6}}, {TESTED, 2, {6, 4}}}},
    {"square error",
     square_error,
     {{TESTED, 2, {3, 70}}, {TESTED, 2, {3, 70}}},
     {{TESTED, 2, {3, 70}}, {FLOATS, 1, {1}}}},
};

static struct vka_device *device;

static void check(const struct words_case *t, enum vka_status status)
{
    if (status != VKA_OK)
        fail_msg("%s: %s: %s", t->name, vka_status_name(status), vka_device_error(device));
}

static void create(const struct words_case *t, const struct shape_of shapes[MOST],
                   enum vka_dtype dtype, struct operand made[MOST], struct vka_tensor *views[MOST])
{
    const struct layout dense = layout_dense();
    for (uint32_t i = 0; i < MOST && shapes[i].rank > 0; i++) {
        const enum vka_dtype type = shapes[i].holds == TESTED   ? dtype
                                    : shapes[i].holds == FLOATS ? VKA_F32
                                                                : VKA_I32;
        check(t, operand_create(device, type, shapes[i].rank, shapes[i].size, &dense, &made[i]));
        views[i] = made[i].view;
    }
}

static void fill(const struct words_case *t, struct operand in[MOST], struct rng *rng)
{
    for (uint32_t i = 0; i < MOST && t->in[i].rank > 0; i++) {
        for (size_t e = 0; e < in[i].count; e++)
            in[i].values[e] = t->in[i].holds == POSITIONS ? (double)rng_range(rng, 0, 2)
                                                          : rng_uniform(rng, -0.5, 1.5);
        check(t, operand_write(&in[i]));
    }
}

static void run(const struct words_case *t, struct vka_tensor *const in[MOST],
                struct vka_tensor *const views[MOST], struct operand out[MOST], struct rng *rng)
{
    struct vka_plan *plan = NULL;
    check(t, vka_plan_create(device, NULL, &plan));
    check(t, t->add(plan, in, views));
    check(t, vka_plan_finish(plan));
    for (uint32_t i = 0; i < MOST && t->out[i].rank > 0; i++)
        check(t, operand_write_noise(&out[i], rng));
    check(t, vka_plan_run(plan, PATIENCE));
    for (uint32_t i = 0; i < MOST && t->out[i].rank > 0; i++)
        check(t, operand_read(&out[i]));
    vka_plan_destroy(&plan);
}

static size_t run_case(const struct words_case *t, enum vka_dtype dtype, struct rng *rng)
{
    struct operand in[MOST] = {0}, out[MOST] = {0}, want[MOST] = {0};
    struct vka_tensor *in_views[MOST] = {0}, *views[MOST] = {0}, *want_views[MOST] = {0};
    char why[WHY];
    size_t n_wrong = 0;
    create(t, t->in, dtype, in, in_views);
    create(t, t->out, dtype, out, views);
    create(t, t->out, VKA_F32, want, want_views);
    fill(t, in, rng);
    run(t, in_views, views, out, rng);
    run(t, in_views, want_views, want, rng);
    for (uint32_t i = 0; i < MOST && t->out[i].rank > 0; i++) {
        if (!compare_values(&out[i], want[i].values, compare_limit(out[i].dtype), "output", t->name,
                            NULL, why)) {
            print_error("%s, %s: %s\n", t->name, vka_dtype_name(dtype), why);
            n_wrong++;
        }
        if (operand_damage(&out[i]) != SIZE_MAX) {
            print_error("%s, %s: written outside\n", t->name, vka_dtype_name(dtype));
            n_wrong++;
        }
    }
    for (uint32_t i = 0; i < MOST; i++) {
        operand_destroy(&in[i]);
        operand_destroy(&out[i]);
        operand_destroy(&want[i]);
    }
    return n_wrong;
}

static void results(void **state)
{
    struct rng rng = {5};
    size_t n_wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        n_wrong += run_case(&cases[i], VKA_F16, &rng);
        n_wrong += run_case(&cases[i], VKA_BF16, &rng);
    }
    assert_int_equal(n_wrong, 0);
}

TEST_PROGRAM(stored_words)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(results)};
    if (vka_device_create(NULL, &device) != VKA_OK) {
        fprintf(stderr, "SKIPPED: no Vulkan device, no results were compared\n");
        return 77;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vka_device_destroy(&device);
    return failed;
}
