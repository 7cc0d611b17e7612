/* Operations around attention and of training over tensors of more than 2^31 and 2^32 elements, see
 * test_index.c. SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <vkattn/vkattn_train.h>

#include "core/arith.h"
#include "op/train/sum.h"
#include "params/each.h"
#include "params/params.h"
#include "params/model.h"
#include "test_program.h"
#include "params/train.h"
#include "index_draw.h"
#include "index_passes.h"
#include "tune_devices.h"

/* One slice, or five in three passes. */
static enum vka_status add_merge(struct vka_plan *plan, struct vka_tensor *x, struct vka_tensor *y)
{
    struct vka_tensor *l = NULL;
    enum vka_status status = vka_tensor_create(plan->device, VKA_F32, 3, y->shape.size, &l);
    struct vka_tensor *const slices[] = {x, x, x, x, x}, *const log_sums[] = {l, l, l, l, l};
    if (status == VKA_OK)
        status = vka_plan_add_merge(plan, VKA_INFO(vka_merge_op, .n_slice = below(2) ? 1 : 5,
                                                   .slices = slices, .log_sum_exps = log_sums,
                                                   .output = y));
    vka_tensor_destroy(&l);
    return status;
}

/* One operation around attention, of tensors of any strides; the last two axes are a row. */
static enum vka_status add_around(struct vka_plan *plan, int kind, struct vka_tensor *x,
                                  struct vka_tensor *y)
{
    if (kind == 0)
        return vka_plan_add_binary(plan, VKA_INFO(vka_binary_op, .a = x, .b = x, .output = y));
    if (kind == 1)
        return vka_plan_add_norm(plan, VKA_INFO(vka_norm_op, .axes = 2, .input = x, .output = y));
    if (kind == 2)
        return vka_plan_add_scatter(plan,
                                    VKA_INFO(vka_scatter_op, .axis = 2, .update = x, .output = y));
    if (kind == 4)
        return add_merge(plan, x, y);
    return vka_plan_add_rotary(plan, VKA_INFO(vka_rotary_op, .input = x, .output = y,
                                              .dim = y->shape.size[3] > 4 ? 4 : 0));
}

static void around(void **state)
{
    (void)state;
    struct made made = {0};
    for (int round = 0; round < 500; round++) {
        struct vka_device *device = &huge_devices[below(HUGE_DEVICES)];
        struct vka_plan *plan = new_plan(device, false);
        uint32_t size[4];
        draw_shape(size, 20, 36);
        if (round % 5 == 3 && size[3] == 1)
            size[3] = 2; /* a pair to rotate */
        struct vka_tensor *x = draw_tensor(device, below(2) ? VKA_F32 : VKA_BF16, size, true);
        struct vka_tensor *y = draw_tensor(device, below(2) ? VKA_F32 : VKA_F16, size, false);
        if (x && y && (round % 5 != 3 || size[3] > 4 || size[3] % 2 == 0) &&
            is_made(device, add_around(plan, round % 5, x, y))) {
            add_made(&made, y);
            assert_true(check_passes(plan).around == (double)shape_count(&y->shape));
        }
        vka_plan_destroy(&plan);
        vka_tensor_destroy(&x);
        vka_tensor_destroy(&y);
    }
    check_made(&made);
}

/* One operation of training. */
static enum vka_status add_training(struct vka_plan *plan, int kind, struct vka_tensor *x,
                                    struct vka_tensor *y, struct vka_tensor *labels,
                                    struct vka_tensor *loss)
{
    if (kind == 0)
        return vka_plan_add_activation_backward(plan, VKA_INFO(vka_activation_backward_op,
                                                               .input = x, .output_gradient = x,
                                                               .input_gradient.tensor = y));
    if (kind == 1)
        return vka_plan_add_optimiser(
            plan, VKA_INFO(vka_optimiser_op, .learning_rate = 1, .n_parameter = 1,
                           .parameters = &(const struct vka_parameter){y, x, NULL, NULL}));
    if (kind == 2)
        return vka_plan_add_cross_entropy(plan,
                                          VKA_INFO(vka_cross_entropy_op, .logits = x,
                                                   .labels = labels, .loss = loss, .gradient = y));
    if (kind == 3)
        return vka_plan_add_norm_backward(plan, VKA_INFO(vka_norm_backward_op, .axes = 2,
                                                         .input = x, .output_gradient = x,
                                                         .input_gradient.tensor = y));
    return vka_plan_add_square_error(
        plan, VKA_INFO(vka_square_error_op, .input = x, .target = x, .loss = loss));
}

static void training(void **state)
{
    (void)state;
    struct made made = {0};
    for (int round = 0; round < 500; round++) {
        struct vka_device *device = &huge_devices[below(HUGE_DEVICES)];
        struct vka_plan *plan = new_plan(device, false);
        const uint32_t one = 1;
        uint32_t size[4];
        draw_shape(size, 20, 36);
        struct vka_tensor *x = draw_tensor(device, below(2) ? VKA_F32 : VKA_BF16, size, true);
        struct vka_tensor *y = draw_tensor(device, below(2) ? VKA_F32 : VKA_F16, size, false);
        struct vka_tensor *labels = NULL, *loss = NULL;
        assert_int_equal(vka_tensor_create(device, VKA_F32, 1, &one, &loss), VKA_OK);
        if (x && y && vka_tensor_create(device, VKA_I32, 3, size, &labels) == VKA_OK &&
            size[3] <= INT32_MAX &&
            is_made(device, add_training(plan, round % 5, x, y, labels, loss))) {
            add_made(&made, x);
            assert_true(check_passes(plan).around == (double)shape_count(&x->shape));
        }
        vka_plan_destroy(&plan);
        vka_tensor_destroy(&x);
        vka_tensor_destroy(&y);
        vka_tensor_destroy(&labels);
        vka_tensor_destroy(&loss);
    }
    check_made(&made);
}

/* Sums over any axes to 16 bits, whose neighbours are stored as words: check_passes asks of each pass
 * whether they are. */
static void sums(void **state)
{
    (void)state;
    unsigned n_made = 0, pairs = 0, single = 0;
    for (int round = 0; round < 300; round++) {
        struct vka_device *device = &huge_devices[below(HUGE_DEVICES)];
        struct vka_plan *plan = new_plan(device, false);
        const unsigned reduced = 1 + below(15);
        uint32_t size[4], y_size[4];
        draw_shape(size, 12, 34);
        for (unsigned i = 0; i < 4; i++)
            y_size[i] = reduced >> i & 1 ? 1 : size[i];
        struct vka_tensor *x = draw_tensor(device, below(2) ? VKA_F32 : VKA_BF16, size, true);
        struct vka_tensor *y = draw_tensor(device, below(4) ? VKA_F16 : VKA_F32, y_size, false);
        if (x && y &&
            is_made(device, plan_sum_axes(plan, &(const struct sum_axes){.name = "sum",
                                                                         .a = *x,
                                                                         .y = *y,
                                                                         .reduced = reduced,
                                                                         .term = TERM_VALUE,
                                                                         .scale = 1}))) {
            n_made++;
            check_passes(plan);
            for (size_t i = 0; i < plan->n_pass; i++)
                *(plan->passes[i].key.spec[AXES_PAIRS] ? &pairs : &single) += 1;
        }
        vka_plan_destroy(&plan);
        vka_tensor_destroy(&x);
        vka_tensor_destroy(&y);
    }
    assert_true(n_made > 100 && pairs > 30 && single > 100);
}

#define ROW_LOOPS 140 /* by which short rows are predicted less, far from any limit */

/* Iterations of the loops of sample.comp that a lane makes at most for a row of n logits. */
static double sample_loops(uint32_t n)
{
    const double each = SAMPLE_LANES * SAMPLE_EACH, read = ceil(n / each), reduced = 7;
    const double own = ceil((n / SAMPLE_LANES + 1) / (double)SAMPLE_EACH); /* of a draw */
    const double searches = 2 * 32 * (1 + read + reduced);                 /* of top_k and top_p */
    return searches + 2 * (read + reduced) + 2 * own + 2 * SAMPLE_LANES;
}

/* What is predicted of draws is not less than they take. */
static void draws(void **state)
{
    (void)state;
    unsigned n_pass = 0, shared = 0;
    assert_int_equal(SAMPLE_LANES, 1 << 7);
    for (int round = 0; round < 300; round++) {
        struct vka_device *device = &huge_devices[below(HUGE_DEVICES)];
        struct vka_plan *plan = new_plan(device, false);
        const uint32_t size[2] = {any_size(10), any_size(22)};
        struct vka_tensor *x = NULL, *y = NULL;
        if (vka_tensor_create(device, below(2) ? VKA_F32 : VKA_F16, 2, size, &x) == VKA_OK &&
            vka_tensor_create(device, VKA_I32, 1, size, &y) == VKA_OK &&
            is_made(device,
                    vka_plan_add_sample(plan, VKA_INFO(vka_sample_op, .logits = x, .temperature = 1,
                                                       .top_k = 9, .top_p = 0.5f, .output = y))))
            for (size_t i = 0; i < plan->n_pass; i++) {
                const struct pass *pass = &plan->passes[i];
                const double reads = 68.0 * size[1]; /* the searches and four passes more */
                assert_true(pass->work.loops + ROW_LOOPS >= sample_loops(size[1]));
                assert_true(pass->work.longest >= reads);
                assert_true(pass->work.ops >= reads * pass->groups[0]);
                shared += pass->groups[0] > 1;
                n_pass++;
            }
        vka_plan_destroy(&plan);
        vka_tensor_destroy(&x);
        vka_tensor_destroy(&y);
    }
    assert_true(n_pass > 200 && shared > 50);
}

/* Gradients of tables of many rows. */
static void table_gradients(void **state)
{
    (void)state;
    unsigned n_made = 0;
    for (int round = 0; round < 100; round++) {
        struct vka_device *device = &huge_devices[below(HUGE_DEVICES)];
        struct vka_plan *plan = new_plan(device, false);
        const uint32_t width = 4 * any_size(12), n = any_size(18);
        const uint32_t table_size[2] = {any_size(24), width}, dy_size[2] = {n, width};
        struct vka_tensor *dy = NULL, *table = NULL, *ids = NULL;
        if (vka_tensor_create(device, VKA_F16, 2, table_size, &table) == VKA_OK &&
            vka_tensor_create(device, VKA_F16, 2, dy_size, &dy) == VKA_OK &&
            vka_tensor_create(device, VKA_I32, 1, &n, &ids) == VKA_OK &&
            is_made(device,
                    vka_plan_add_gather_backward(plan, VKA_INFO(vka_gather_backward_op, .ids = ids,
                                                                .output_gradient = dy,
                                                                .table_gradient.tensor = table)))) {
            double wanted = (double)shape_count(&table->shape);
            wanted *= n > ROWS_IDS ? 2 : 1; /* and what is moved from float32 */
            assert_true(check_passes(plan).around == wanted);
            n_made++;
        }
        vka_plan_destroy(&plan);
        vka_tensor_destroy(&table);
        vka_tensor_destroy(&dy);
        vka_tensor_destroy(&ids);
    }
    assert_true(n_made > 30);
}

/* Gradients of attention, whose scores are counted once. */
static void attention_gradients(void **state)
{
    (void)state;
    unsigned n_made = 0;
    for (int round = 0; round < 120; round++) {
        struct vka_device *device = &huge_devices[below(HUGE_DEVICES)];
        struct vka_plan *plan = new_plan(device, false);
        plan->path = round % 2 ? VKA_PATH_FUSED : VKA_PATH_UNFUSED;
        const uint32_t heads = any_size(4), n_kv = any_size(18), dim = 4 * any_size(3);
        const uint32_t q_size[4] = {any_size(4), heads * (1 + below(2)), any_size(12), dim};
        const uint32_t k_size[4] = {q_size[0], heads, n_kv, dim};
        struct vka_tensor *q = draw_tensor(device, VKA_F16, q_size, true);
        struct vka_tensor *k = draw_tensor(device, VKA_F16, k_size, true);
        struct vka_tensor *dq = draw_tensor(device, VKA_F32, q_size, false), *log_sum = NULL;
        struct vka_attention_op forward = {.struct_size = sizeof forward, .q = q, .k = k, .v = k};
        struct vka_tensor *y = draw_tensor(device, VKA_F32, q_size, false);
        forward.output = y;
        if (q && k && dq && y &&
            vka_tensor_create(device, VKA_F32, 3, q_size, &log_sum) == VKA_OK) {
            forward.options.log_sum_exp = log_sum;
            if (is_made(device,
                        vka_plan_add_attention_backward(
                            plan, VKA_INFO(vka_attention_backward_op, .forward = &forward,
                                           .output_gradient = q, .q_gradient.tensor = dq)))) {
                const double scores = (double)q_size[0] * q_size[1] * q_size[2] * n_kv;
                /* The fused path moves dq to rows that are not contiguous. */
                const bool moved = round % 2 && dim > 1 && dq->shape.stride[3] != 1;
                const double dqs = (double)q_size[0] * q_size[1] * q_size[2] * dim;
                assert_true(check_passes(plan).around == scores + (moved ? dqs : 0));
                n_made += round % 2 ? 1000 : 1;
            }
        }
        vka_plan_destroy(&plan);
        struct vka_tensor **const all[] = {&q, &k, &dq, &y, &log_sum};
        for (size_t i = 0; i < COUNTOF(all); i++)
            vka_tensor_destroy(all[i]);
    }
    assert_true(n_made / 1000 > 20 && n_made % 1000 > 20); /* of each path */
}

/* A table that no binding holds. */
static void tables(void **state)
{
    (void)state;
    struct made made = {0};
    for (int round = 0; round < 800; round++) {
        struct vka_device *device = &huge_devices[below(HUGE_DEVICES)];
        struct vka_plan *plan = new_plan(device, false);
        const uint32_t width = 4 * any_size(12), table_size[4] = {1, 1, any_size(24), width};
        const uint32_t n = any_size(22), y_size[4] = {1, 1, n, width};
        struct vka_tensor *table = draw_tensor(device, VKA_F16, table_size, true), *rows = NULL;
        struct vka_tensor *y = draw_tensor(device, VKA_F32, y_size, false), *out = NULL;
        struct vka_tensor *ids = NULL;
        if (table && y && vka_tensor_reshape(table, 2, table_size + 2, &rows) == VKA_OK &&
            vka_tensor_reshape(y, 2, y_size + 2, &out) == VKA_OK &&
            vka_tensor_create(device, VKA_I32, 1, &n, &ids) == VKA_OK &&
            is_made(device, vka_plan_add_gather(plan, VKA_INFO(vka_gather_op, .table = rows,
                                                               .ids = ids, .output = out)))) {
            add_made(&made, table);
            assert_true(check_passes(plan).around == (double)n * width);
        }
        vka_plan_destroy(&plan);
        vka_tensor_destroy(&table);
        vka_tensor_destroy(&rows);
        vka_tensor_destroy(&y);
        vka_tensor_destroy(&out);
        vka_tensor_destroy(&ids);
    }
    check_made(&made);
}

TEST_PROGRAM(index_model)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(around),          cmocka_unit_test(training),
        cmocka_unit_test(table_gradients), cmocka_unit_test(attention_gradients),
        cmocka_unit_test(tables),          cmocka_unit_test(sums),
        cmocka_unit_test(draws),
    };
    return cmocka_run_group_tests(tests, huge_devices_make, huge_devices_free);
}
