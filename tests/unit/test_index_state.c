/* Operations with a state over tensors of more than 2^31 and 2^32 elements, see test_index.c.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <vkattn/vkattn_train.h>

#include "core/arith.h"
#include "params/params.h"
#include "params/model.h"
#include "params/state.h"
#include "test_program.h"
#include "index_draw.h"
#include "index_passes.h"
#include "tune_devices.h"

enum rows { DENSE, PADDED, RAGGED };
enum { Q, K, V, DECAY, BETA, STATES, STARTS, Y, OPERANDS };

static struct vka_tensor *starts_of(struct vka_device *device, enum rows rows, uint32_t n_sequence)
{
    const uint32_t count = rows == RAGGED ? n_sequence + 1 : n_sequence;
    struct vka_tensor *t = NULL;
    if (rows != DENSE && vka_tensor_create(device, VKA_I32, 1, &count, &t) != VKA_OK)
        fail_msg("%s", vka_device_error(device));
    return t;
}

static void destroy(struct vka_tensor *t[], int count)
{
    for (int i = 0; i < count; i++)
        vka_tensor_destroy(&t[i]);
}

/* Rows of a gate, [batch][n_state][n], of a view of any strides; NULL: too large. */
static struct vka_tensor *draw_gate(struct vka_device *device, const uint32_t size[4])
{
    struct vka_tensor *t = draw_tensor(device, VKA_F32, size, true), *gate = NULL;
    const uint64_t stride[3] = {t ? t->shape.stride[0] : 0, t ? t->shape.stride[1] : 0,
                                t ? t->shape.stride[2] : 0};
    if (t)
        assert_int_equal(vka_tensor_strided(t, 0, 3, size, stride, &gate), VKA_OK);
    vka_tensor_destroy(&t);
    return gate;
}

struct drawn {
    struct vka_tensor *t[OPERANDS];
    enum rows rows;
    bool whole; /* all could be made */
};

/* Heads of 1 to 512 features, up to 65,536 rows of many sequences and states. */
static struct drawn draw_linear(struct vka_device *device, enum vka_dtype dtype)
{
    struct drawn d = {.rows = (enum rows)below(3), .whole = true};
    uint32_t size[4];
    draw_shape(size, 12, 29);
    size[2] = size[2] > 8192 ? 65536 : 8 * size[2];
    const uint32_t key_heads = 1 + below(3), ratio = 1 + below(3), states = key_heads * ratio;
    const uint32_t heads = size[1] > 4096 ? 4096 : size[1], n_sequence = size[0];
    const uint32_t batch = d.rows == RAGGED ? 1 : size[0], n = size[2];
    const uint32_t dim = 1u << below(10), value_dim = 1 + below(1u << below(10));
    const uint32_t group = below(3) ? 1 : 2, n_state = states * heads;
    const uint32_t q[4] = {batch, group > 1 ? group * n_state : key_heads * heads, n, dim};
    const uint32_t k[4] = {batch, key_heads * heads, n, dim}, v[4] = {batch, n_state, n, value_dim};
    const uint32_t y[4] = {batch, n_state * group, n, value_dim};
    const uint32_t decay[4] = {batch, n_state, n, dim},
                   s[4] = {n_sequence, n_state, dim, value_dim};
    const bool by_key = below(3) == 0;
    d.t[Q] = draw_tensor(device, dtype, q, true);
    d.t[K] = draw_tensor(device, dtype, k, true);
    d.t[V] = draw_tensor(device, dtype, v, true);
    d.t[DECAY] = by_key ? draw_tensor(device, dtype, decay, true) : draw_gate(device, decay);
    d.t[BETA] = draw_gate(device, decay);
    d.t[Y] = draw_tensor(device, VKA_F32, y, false);
    for (int i = Q; i <= BETA; i++)
        d.whole &= d.t[i] != NULL;
    d.whole &= d.t[Y] != NULL;
    if (below(2)) {
        d.t[STATES] = draw_tensor(device, VKA_F32, s, false);
        d.whole &= d.t[STATES] != NULL;
    }
    d.t[STARTS] = starts_of(device, d.rows, n_sequence);
    return d;
}

static struct vka_linear_attention_op op_of(const struct drawn *d)
{
    return (struct vka_linear_attention_op){
        .struct_size = sizeof(struct vka_linear_attention_op),
        .rule = VKA_RULE_GATED_DELTA,
        .q = d->t[Q],
        .k = d->t[K],
        .v = d->t[V],
        .decay = d->t[DECAY],
        .beta = d->t[BETA],
        .past_state = d->t[STATES],
        .lengths = d->rows == PADDED ? d->t[STARTS] : NULL,
        .q_start = d->rows == RAGGED ? d->t[STARTS] : NULL,
        .output = d->t[Y],
    };
}

/* Dense rows are written once; where lengths are read, by one kernel or by each of both. */
static void linear(void **state)
{
    (void)state;
    struct made made = {0};
    unsigned chunked = 0, packed = 0;
    for (int round = 0; round < 300; round++) {
        struct vka_device *device = &huge_devices[below(HUGE_DEVICES)];
        struct vka_plan *plan = new_plan(device, false);
        struct drawn d = draw_linear(device, below(2) ? VKA_F32 : VKA_BF16);
        struct vka_linear_attention_op op = op_of(&d);
        op.present_state = op.past_state;
        if (d.whole && is_made(device, vka_plan_add_linear_attention(plan, &op))) {
            const double written = check_passes(plan).around;
            const double rows = (double)shape_count(&d.t[Y]->shape);
            for (int i = Q; i <= Y; i++)
                if (d.t[i])
                    add_made(&made, d.t[i]);
            if (d.rows == DENSE)
                assert_true(written == rows);
            else if (d.rows == PADDED)
                assert_true(written == rows || written == 2 * rows);
            packed += d.rows == RAGGED;
            chunked += plan->passes[plan->n_pass - 1].key.kernel != KERNEL_linear_recurrent;
        }
        vka_plan_destroy(&plan);
        destroy(d.t, OPERANDS);
    }
    check_made(&made);
    assert_true(chunked > 20 && packed > 20);
}

/* Each value of a gradient of v is written once. */
static void linear_backward(void **state)
{
    (void)state;
    struct made made = {0};
    unsigned cut = 0;
    for (int round = 0; round < 600; round++) {
        struct vka_device *device = &huge_devices[below(HUGE_DEVICES)];
        struct vka_plan *plan = new_plan(device, false);
        struct drawn d = draw_linear(device, below(2) ? VKA_F32 : VKA_BF16);
        struct vka_tensor *dv = NULL, *dk = NULL;
        if (d.whole && d.rows != RAGGED) {
            dv = draw_tensor(device, VKA_F32, d.t[V]->shape.size, false);
            if (below(2)) /* NULL too where it is more than an allocation */
                dk = draw_tensor(device, VKA_F32, d.t[K]->shape.size, false);
        }
        const struct vka_linear_attention_op forward = op_of(&d);
        if (dv && is_made(device,
                          vka_plan_add_linear_attention_backward(
                              plan, VKA_INFO(vka_linear_attention_backward_op, .forward = &forward,
                                             .output_gradient = d.t[Y], .v_gradient.tensor = dv,
                                             .k_gradient.tensor = dk)))) {
            assert_true(check_passes(plan).around == (double)shape_count(&dv->shape));
            for (int i = Q; i <= Y; i++)
                if (d.t[i])
                    add_made(&made, d.t[i]);
            cut += plan->n_pass > 4;
        }
        vka_plan_destroy(&plan);
        vka_tensor_destroy(&dv);
        vka_tensor_destroy(&dk);
        destroy(d.t, OPERANDS);
    }
    assert_true(made.n > 500 &&
                made.largest > 1ull << 31); /* of float32, that is written, no more */
    assert_true(cut > 10);
}

/* A drawn tensor of rank 4 without its axis `drop`, of size 1. */
static bool draw_view(struct vka_device *device, enum vka_dtype dtype, const uint32_t size[4],
                      int drop, bool sparse, struct vka_tensor **t, struct vka_tensor **view)
{
    const int first = drop == 0;
    *t = draw_tensor(device, dtype, size, sparse);
    if (!*t)
        return false;
    const struct shape *s = &(*t)->shape;
    return vka_tensor_strided(*t, 0, 3, (const uint32_t[]){s->size[first], s->size[2], s->size[3]},
                              (const uint64_t[]){s->stride[first], s->stride[2], s->stride[3]},
                              view) == VKA_OK;
}

static void convolutions(void **state)
{
    (void)state;
    struct made made = {0};
    for (int round = 0; round < 200; round++) {
        struct vka_device *device = &huge_devices[below(HUGE_DEVICES)];
        struct vka_plan *plan = new_plan(device, false);
        const enum rows rows = (enum rows)below(2); /* dense or padded: all are written once */
        uint32_t size[4];
        draw_shape(size, 20, 36);
        size[2] = size[2] > 1u << 20 ? 1u << 20 : size[2];
        const uint32_t batch = size[0], n = size[2], width = 2 + below(15);
        const uint32_t channels = size[1] < 1u << 16 && size[3] < 1u << 15 ? size[1] * size[3] : 7;
        const uint32_t dilation = below(2) ? 1 : 1u << below(8);
        const uint32_t x_size[4] = {batch, 1, n, channels},
                       kept[4] = {1, batch, channels, (width - 1) * dilation};
        struct vka_tensor *t[5] = {NULL}, *views[3] = {NULL};
        bool whole = true;
        for (int i = 0; i < 3; i++)
            whole = whole && draw_view(device, i == 0 ? VKA_BF16 : VKA_F32, i < 2 ? x_size : kept,
                                       i < 2 ? 1 : 0, i == 0, &t[i], &views[i]);
        whole &= vka_tensor_create(device, VKA_F32, 2, (const uint32_t[]){channels, width},
                                   &t[3]) == VKA_OK;
        t[4] = starts_of(device, rows, batch);
        if (whole && is_made(device, vka_plan_add_causal_conv(
                                         plan, VKA_INFO(vka_causal_conv_op, .input = views[0],
                                                        .dilation = dilation, .weight = t[3],
                                                        .past = views[2], .present = views[2],
                                                        .lengths = t[4], .output = views[1])))) {
            add_made(&made, t[1]);
            assert_true(check_passes(plan).around ==
                        (double)shape_count(&t[1]->shape) + (double)shape_count(&t[2]->shape));
        }
        vka_plan_destroy(&plan);
        destroy(views, 3);
        destroy(t, 5);
    }
    check_made(&made);
}

static void convolution_gradients(void **state)
{
    enum { X, DX, PAST, DPAST, VIEWS, W = VIEWS, DW, LENGTHS, TENSORS };
    (void)state;
    struct made made = {0};
    for (int round = 0; round < 200; round++) {
        struct vka_device *device = &huge_devices[below(HUGE_DEVICES)];
        struct vka_plan *plan = new_plan(device, false);
        struct vka_tensor *t[TENSORS] = {NULL}, *views[VIEWS] = {NULL};
        uint32_t size[4];
        draw_shape(size, 20, 36);
        size[2] = size[2] > 1u << 20 ? 1u << 20 : size[2];
        const uint32_t batch = size[0], width = 2 + below(15), dilation = 1 + below(2) * below(50);
        const uint32_t channels = size[1] < 1u << 16 && size[3] < 1u << 15 ? size[1] * size[3] : 7;
        const uint32_t x[4] = {batch, 1, size[2], channels},
                       kept[4] = {1, batch, channels, (width - 1) * dilation};
        const uint32_t taps[2] = {channels, width};
        bool whole = true;
        for (int i = 0; i < VIEWS; i++)
            whole = whole && draw_view(device, i == X ? VKA_BF16 : VKA_F32, i < PAST ? x : kept,
                                       i < PAST ? 1 : 0, i == X, &t[i], &views[i]);
        whole &= vka_tensor_create(device, VKA_F32, 2, taps, &t[W]) == VKA_OK;
        whole &= vka_tensor_create(device, VKA_F32, 2, taps, &t[DW]) == VKA_OK;
        t[LENGTHS] = starts_of(device, (enum rows)below(2), batch);
        const struct vka_causal_conv_op forward =
            *VKA_INFO(vka_causal_conv_op, .input = views[X], .weight = t[W], .dilation = dilation,
                      .past = views[PAST], .lengths = t[LENGTHS], .output = views[DX]);
        if (whole &&
            is_made(device,
                    vka_plan_add_causal_conv_backward(
                        plan, VKA_INFO(vka_causal_conv_backward_op, .forward = &forward,
                                       .output_gradient = views[X], .present_gradient = views[PAST],
                                       .input_gradient.tensor = views[DX],
                                       .past_gradient.tensor = views[DPAST],
                                       .weight_gradient.tensor = t[DW])))) {
            add_made(&made, t[DX]);
            assert_true(check_passes(plan).around ==
                        (double)shape_count(&t[DX]->shape) + (double)shape_count(&t[DPAST]->shape));
        }
        vka_plan_destroy(&plan);
        destroy(views, VIEWS);
        destroy(t, TENSORS);
    }
    check_made(&made);
}

TEST_PROGRAM(index_state)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(linear), cmocka_unit_test(linear_backward),
                                       cmocka_unit_test(convolutions),
                                       cmocka_unit_test(convolution_gradients)};
    return cmocka_run_group_tests(tests, huge_devices_make, huge_devices_free);
}
