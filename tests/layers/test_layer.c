/* The layer against the oracle: layouts, widths, biases, heads and weight types, each on every path
 * that the device has. SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "problems/compare.h"
#include "core/status.h"
#include "gpu/device.h"
#include "layer_case.h"
#include "problems/limits.h"
#include "problems/turns.h"
#include "test_program.h"

#define SHAPE .batch = 2, .n_q = 19, .n_head = 4, .head_dim = 12, .query_dim = 40
#define CROSS SHAPE, .n_kv = 31
#define WIDTHS CROSS, .key_dim = 28, .value_input_dim = 52, .output_dim = 36

static const struct layer_case cases[] = {
    /* Layouts: every one with self and cross attention. */
    {"batch first", SHAPE, .biases = BIAS_ALL},
    {"sequence first", SHAPE, .biases = BIAS_ALL, .io = LAYER_SEQUENCE_FIRST},
    {"permuted views", SHAPE, .biases = BIAS_ALL, .io = LAYER_PERMUTED_VIEWS},
    {"batch first, causal", SHAPE, .biases = BIAS_ALL, .causal = true},
    {"sequence first, causal", SHAPE, .biases = BIAS_ALL, .causal = true,
     .io = LAYER_SEQUENCE_FIRST},
    {"permuted views, causal", SHAPE, .causal = true, .io = LAYER_PERMUTED_VIEWS},
    {"batch first, lengths", CROSS, .biases = BIAS_ALL, .lengths = true},
    {"sequence first, lengths", CROSS, .biases = BIAS_ALL, .lengths = true,
     .io = LAYER_SEQUENCE_FIRST},
    {"permuted views, lengths", CROSS, .lengths = true, .io = LAYER_PERMUTED_VIEWS},
    {"sequence first, one batch element", .batch = 1, .n_q = 33, .n_head = 2, .head_dim = 12,
     .query_dim = 24, .io = LAYER_SEQUENCE_FIRST},
    {"sequence first, one position", .batch = 5, .n_q = 1, .n_head = 2, .head_dim = 12,
     .query_dim = 24, .io = LAYER_SEQUENCE_FIRST},

    /* Inputs. */
    {"cross, value is key", CROSS, .biases = BIAS_ALL, .value_is_key = true},
    {"cross, value is key, another width", CROSS, .key_dim = 20, .value_is_key = true},
    {"cross, three widths", WIDTHS, .biases = BIAS_ALL},
    {"cross, three widths, sequence first", WIDTHS, .biases = BIAS_ALL, .io = LAYER_SEQUENCE_FIRST},
    {"cross, three widths, permuted views", WIDTHS, .io = LAYER_PERMUTED_VIEWS},
    {"cross, more queries than keys", .batch = 2, .n_q = 50, .n_kv = 3, .n_head = 2, .head_dim = 8,
     .query_dim = 16, .causal = true},
    {"cross, one key", SHAPE, .n_kv = 1, .biases = BIAS_ALL},

    /* Heads. */
    {"interleaved", SHAPE, .biases = BIAS_ALL, .interleaved = true},
    {"interleaved, sequence first", SHAPE, .biases = BIAS_ALL, .interleaved = true,
     .io = LAYER_SEQUENCE_FIRST},
    {"interleaved, three widths", WIDTHS, .biases = BIAS_ALL, .interleaved = true},
    {"grouped", SHAPE, .n_kv_head = 2, .biases = BIAS_ALL},
    {"grouped, interleaved", SHAPE, .n_kv_head = 2, .biases = BIAS_ALL, .interleaved = true},
    {"one key head", SHAPE, .n_kv_head = 1, .biases = BIAS_ALL, .causal = true},
    {"one key head, interleaved, sequence first", SHAPE, .n_kv_head = 1, .interleaved = true,
     .io = LAYER_SEQUENCE_FIRST},
    {"grouped by 3 of 6", .batch = 3, .n_q = 9, .n_head = 6, .n_kv_head = 2, .head_dim = 10,
     .value_dim = 6, .query_dim = 21, .output_dim = 17, .biases = BIAS_ALL},
    {"one head", .batch = 2, .n_q = 21, .n_head = 1, .head_dim = 12, .query_dim = 64},
    {"heads of one feature", .batch = 2, .n_q = 6, .n_head = 7, .head_dim = 1, .query_dim = 7,
     .biases = BIAS_ALL},
    {"wider values", SHAPE, .value_dim = 20, .biases = BIAS_ALL},
    {"narrower values, interleaved", SHAPE, .value_dim = 5, .interleaved = true},
    {"odd everything", .batch = 3, .n_q = 7, .n_kv = 11, .n_head = 3, .head_dim = 5, .value_dim = 7,
     .query_dim = 13, .key_dim = 9, .value_input_dim = 3, .output_dim = 1, .biases = BIAS_ALL},
    {"the least layer", .batch = 1, .n_q = 1, .n_head = 1, .head_dim = 1, .query_dim = 1},

    /* Biases and the output projection. */
    {"no bias", SHAPE},
    {"query bias", SHAPE, .biases = BIAS_QUERY},
    {"key bias", SHAPE, .biases = BIAS_KEY},
    {"value bias", SHAPE, .biases = BIAS_VALUE},
    {"output bias", SHAPE, .biases = BIAS_OUTPUT},
    {"no key bias", SHAPE, .biases = BIAS_ALL & ~BIAS_KEY},
    {"no output weight", SHAPE, .biases = BIAS_QUERY | BIAS_KEY | BIAS_VALUE,
     .no_output_weight = true},
    {"no output weight, sequence first", SHAPE, .no_output_weight = true,
     .io = LAYER_SEQUENCE_FIRST},
    {"no output weight, permuted views", SHAPE, .value_dim = 7, .no_output_weight = true,
     .io = LAYER_PERMUTED_VIEWS},
    {"no output weight, interleaved", SHAPE, .interleaved = true, .no_output_weight = true},
    {"wider output", SHAPE, .output_dim = 100, .biases = BIAS_ALL},

    {"rotated", SHAPE, .biases = BIAS_ALL, .rope_dim = 12, .causal = true},
    {"partly rotated, grouped, interleaved", SHAPE, .n_kv_head = 2, .interleaved = true,
     .rope_dim = 6},

    /* Weight types. */
    {"f16 weights", SHAPE, .dtype = VKA_F16, .biases = BIAS_ALL},
    {"bf16 weights", SHAPE, .dtype = VKA_BF16, .biases = BIAS_ALL},
    {"f16 weights, three widths", WIDTHS, .dtype = VKA_F16, .biases = BIAS_ALL},
    {"bf16 weights, three widths, sequence first", WIDTHS, .dtype = VKA_BF16,
     .io = LAYER_SEQUENCE_FIRST},
    {"f16 weights, odd sizes", .batch = 3, .n_q = 7, .n_head = 3, .head_dim = 5, .value_dim = 3,
     .query_dim = 11, .output_dim = 9, .dtype = VKA_F16, .biases = BIAS_ALL},
    {"bf16 weights, odd sizes", .batch = 1, .n_q = 1, .n_head = 3, .head_dim = 3, .query_dim = 7,
     .output_dim = 5, .dtype = VKA_BF16, .biases = BIAS_ALL},
    {"f16 weights, grouped, interleaved", SHAPE, .n_kv_head = 2, .interleaved = true,
     .dtype = VKA_F16, .biases = BIAS_ALL},

    /* Large enough for several tiles in every direction. */
    {"large", .batch = 2, .n_q = 150, .n_head = 20, .head_dim = 12, .query_dim = 256,
     .biases = BIAS_ALL, .causal = true},
    {"large, cross, bf16", .batch = 1, .n_q = 70, .n_kv = 333, .n_head = 24, .n_kv_head = 12,
     .head_dim = 12, .query_dim = 130, .key_dim = 200, .dtype = VKA_BF16, .biases = BIAS_ALL},
};

/* AUTO takes the fused path where the device has it. */
static const enum vka_path paths[] = {VKA_PATH_AUTO, VKA_PATH_UNFUSED};

static struct vka_device *unlimited; /* with the driver's own limits; NULL: not needed yet */

/* The bits of a run there. */
static void same_bits(const struct layer_rig *lowered, const struct layer_case *c,
                      enum vka_path path)
{
    struct layer_rig rig;
    size_t bytes = rig_count(lowered) * sizeof(float);
    float *got = malloc(bytes), *want = malloc(bytes);
    assert_true(got && want);
    if (!unlimited)
        assert_int_equal(vka_device_create(NULL, &unlimited), VKA_OK);
    rig_create(&rig, unlimited, c, (uint64_t)(c - cases));
    struct vka_plan *plan = rig_plan(&rig, VKA_INFO(vka_plan_info, .path = path));
    rig_run(&rig, plan);
    rig_read(&rig, want);
    rig_read(lowered, got);
    if (memcmp(got, want, bytes) != 0)
        fail_msg("%s, path %d: other bits with lower limits", c->name, (int)path);
    vka_plan_destroy(&plan);
    rig_destroy(&rig);
    free(got);
    free(want);
}

static double check(struct vka_device *device, const struct layer_case *c, enum vka_path path)
{
    struct layer_rig rig;
    rig_create(&rig, device, c, (uint64_t)(c - cases));
    struct vka_plan *plan = rig_plan(&rig, VKA_INFO(vka_plan_info, .path = path));
    double error = rig_run(&rig, plan);
    if (!(error <= LAYER_NMSE))
        fail_msg("%s, path %d: NMSE %.3g", c->name, (int)path, error);
    if (limits_given())
        same_bits(&rig, c, path);
    vka_plan_destroy(&plan);
    rig_destroy(&rig);
    return error;
}

/* With lower limits, where each case is run on two devices: at a landing every third case in turn, and
 * the large ones, which are cut most. */
static bool is_tried(size_t i)
{
    const uint32_t turn = turn_of(3);
    return !limits_given() || turn == 3 || i % 3 == turn || strncmp(cases[i].name, "large", 5) == 0;
}

static void all_cases(void **state)
{
    struct vka_device *device = *state;
    double worst[COUNTOF(paths)] = {0};
    size_t n = 0;
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        for (size_t path = 0; path < COUNTOF(paths) && is_tried(i); path++)
            worst[path] = fmax(worst[path], check(device, &cases[i], paths[path]));
        n += is_tried(i);
    }
    printf("%zu layers, worst NMSE %.2g, unfused %.2g\n", n, worst[0], worst[1]);
}

/* Makes and judges the layer of a case whose rows and weights are of one 16-bit type. `inner`: its
 * intermediate values are of that type too. */
static double check_inner(struct vka_device *device, const struct layer_case *given,
                          enum vka_dtype type, enum vka_path path, bool inner)
{
    struct layer_case c = *given;
    struct layer_rig rig;
    c.dtype = c.rows = type;
    rig_create(&rig, device, &c, (uint64_t)(given - cases));
    struct vka_plan *plan = rig_plan(&rig, VKA_INFO(vka_plan_info, .path = path));
    const double error = rig_run(&rig, plan);
    if (!(error <= compare_limit(type)))
        fail_msg("%s, %s, path %d: NMSE %.3g", c.name, vka_dtype_name(type), (int)path, error);
    size_t n_other = 0; /* projections and fused attention that read or write float32 */
    for (size_t i = 0; i < vka_plan_pass_count(plan); i++) {
        struct vka_pass_info pass;
        assert_int_equal(vka_plan_pass(plan, i, &pass), VKA_OK);
        const bool judged = strncmp(pass.name, "project", 7) == 0 ||
                            (path == VKA_PATH_FUSED && strcmp(pass.name, "attention") == 0);
        n_other += judged && strstr(pass.detail, "f32") != NULL;
    }
    if (inner ? n_other != 0 : n_other == 0)
        fail_msg("%s, %s, path %d: %zu passes with float32", c.name, vka_dtype_name(type),
                 (int)path, n_other);
    vka_plan_destroy(&plan);
    rig_destroy(&rig);
    return error;
}

/* Takes the device for a GPU that multiplies matrices of 16-bit types; its kernels stay those of a
 * CPU driver where they take the problem. */
static void as_matrices(struct vka_device_properties *p)
{
    p->type = VKA_DEVICE_INTEGRATED;
    p->cooperative_matrix_count = 2;
    strcpy(p->cooperative_matrix[0].types, "f16*f16+f32");
    strcpy(p->cooperative_matrix[1].types, "bf16*bf16+f32");
}

/* On a GPU with matrix units the intermediate values of a 16-bit layer are of its type, and within
 * the same limit; on a CPU driver they are float32. */
static void sixteen_bits(void **state)
{
    static const char *const chosen[] = {"batch first",
                                         "sequence first, causal",
                                         "permuted views, lengths",
                                         "cross, three widths",
                                         "grouped, interleaved",
                                         "no output weight, permuted views",
                                         "f16 weights, odd sizes",
                                         "partly rotated, grouped, interleaved",
                                         "rotated",
                                         "large, cross, bf16"};
    struct vka_device *device = *state;
    const struct vka_device_properties usual = device->caps.properties;
    double worst[2][2] = {{0}};
    for (int matrices = 0; matrices < 2; matrices++) {
        if (matrices)
            as_matrices(&device->caps.properties);
        else if (usual.type != VKA_DEVICE_CPU)
            continue;
        for (size_t i = 0; i < COUNTOF(cases); i++)
            for (size_t j = 0; j < COUNTOF(chosen); j++)
                for (int bf16 = 0; bf16 < 2 && strcmp(cases[i].name, chosen[j]) == 0; bf16++)
                    worst[matrices][bf16] =
                        fmax(worst[matrices][bf16],
                             check_inner(device, &cases[i], bf16 ? VKA_BF16 : VKA_F16,
                                         j % 2 ? VKA_PATH_UNFUSED : VKA_PATH_FUSED, matrices));
        device->caps.properties = usual;
    }
    printf("worst NMSE of 16 bits: f16 %.2g and bf16 %.2g, with float32 inside %.2g and %.2g\n",
           worst[1][0], worst[1][1], worst[0][0], worst[0][1]);
}

/* Two layers in one plan, the second reading what the first wrote. */
static void stacked(void **state)
{
    struct vka_device *device = *state;
    struct layer_rig first, second;
    struct vka_plan *plan = NULL;
    struct vka_tensor *between = NULL;
    rig_create(&first, device, &layer_plain, 1);
    rig_create(&second, device, &layer_plain, 2);
    struct vka_layer_op op1 = rig_op(&first), op2 = rig_op(&second), chained = op2;
    const uint32_t shape[] = {layer_plain.batch, layer_plain.n_q, layer_plain.query_dim};
    assert_int_equal(vka_tensor_create(device, VKA_F32, 3, shape, &between), VKA_OK);
    chained.query = op1.output;
    chained.output = between;
    assert_int_equal(vka_plan_create(device, NULL, &plan), VKA_OK);
    assert_int_equal(vka_plan_add_layer(plan, &op1), VKA_OK);
    assert_int_equal(vka_plan_add_layer(plan, &op2), VKA_OK);
    assert_int_equal(vka_plan_add_layer(plan, &chained), VKA_OK);
    assert_int_equal(vka_plan_finish(plan), VKA_OK);
    assert_true(rig_run(&first, plan) <= LAYER_NMSE);
    assert_true(rig_error(&second) <= LAYER_NMSE);
    vka_plan_destroy(&plan);

    /* The chained result again, with the first layer's output as a plain input. */
    static float together[2 * 37 * 96], apart[2 * 37 * 96];
    assert_int_equal(sizeof together, vka_tensor_size(between));
    assert_int_equal(vka_tensor_read(between, together, sizeof together), VKA_OK);
    rig_read(&first, apart);
    assert_int_equal(vka_tensor_write(second.query, apart, sizeof apart), VKA_OK);
    plan = rig_plan(&second, NULL);
    rig_run(&second, plan);
    rig_read(&second, apart);
    assert_memory_equal(together, apart, sizeof apart);
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&between);
    rig_destroy(&first);
    rig_destroy(&second);
}

static int open_device(void **state)
{
    struct vka_device *device = NULL;
    const struct vka_device_info info = limits_info(*VKA_INFO(vka_device_info, .device = NULL));
    int status = vka_device_create(&info, &device);
    *state = device;
    return status;
}

static int close_device(void **state)
{
    struct vka_device *device = *state;
    vka_device_destroy(&device);
    vka_device_destroy(&unlimited);
    return 0;
}

TEST_PROGRAM(layer)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_cases),
        cmocka_unit_test(sixteen_bits),
        cmocka_unit_test(stacked),
    };
    if (!have_device("the layer"))
        return 77;
    return cmocka_run_group_tests(tests, open_device, close_device);
}
