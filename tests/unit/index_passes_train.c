/* What the passes of training count in 32 bits. SPDX-License-Identifier: MIT */
#include "index_passes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "params/params.h"
#include "params/model.h"
#include "params/train.h"
#include "op/train/sum.h"

static double check_map_backward(const struct pass *pass)
{
    struct map_backward_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t size[4] = {p.size0, p.size1, p.size2, p.size3};
    check_strided(&pass->bindings[0], pass->key.spec[SLOPE_DY_TYPE], size, &p.dy);
    check_strided(&pass->bindings[1], pass->key.spec[SLOPE_X_TYPE], size, &p.x);
    check_strided(&pass->bindings[3], pass->key.spec[SLOPE_Y_TYPE], size, &p.y);
    check_items(pass, (double)p.size0 * p.size1 * p.size2 * (p.size3 / 2 + p.size3 % 2));
    return (double)p.size0 * p.size1 * p.size2 * p.size3;
}

static double check_optimiser(const struct pass *pass)
{
    struct optimiser_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t size[4] = {p.size0, p.size1, p.size2, p.size3};
    check_strided(&pass->bindings[0], pass->key.spec[OPTIMISER_W_TYPE], size, &p.w);
    check_strided(&pass->bindings[1], pass->key.spec[OPTIMISER_G_TYPE], size, &p.g);
    const bool pairs = are_words(pass->key.spec[OPTIMISER_W_TYPE], size, &p.w);
    assert_int_equal(pass->key.spec[OPTIMISER_PAIRS], pairs);
    check_items(pass, (double)p.size0 * p.size1 * p.size2 * (pairs ? p.size3 / 2 : p.size3));
    return (double)p.size0 * p.size1 * p.size2 * p.size3;
}

/* Elements of the gradient. */
static double check_cross_entropy(const struct pass *pass)
{
    struct cross_entropy_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t size[4] = {p.size0, p.size1, p.size2, p.size3};
    const uint32_t stats_size[4] = {p.size0, p.size1, p.size2, LOSS_STATS};
    const uint32_t stats_stride[4] = {p.stats0, p.stats1, p.stats2, 1};
    const double rows = (double)p.size0 * p.size1 * p.size2;
    check_strided(&pass->bindings[0], pass->key.spec[LOSS_X_TYPE], size, &p.x);
    if (pass->key.spec[LOSS_GRADIENT])
        check_strided(&pass->bindings[4], pass->key.spec[LOSS_Y_TYPE], size, &p.y);
    check_operand(&pass->bindings[2], VKA_F32, p.stats_offset, stats_size, stats_stride);
    assert_true((double)pass->groups[0] * pass->groups[1] >= rows);
    assert_true(pass->groups[1] == 1 || pass->groups[0] == NORM_GRID);
    assert_true(rows + NORM_GRID <= 4294967296.0);
    return pass->key.spec[LOSS_GRADIENT] ? rows * p.size3 : 0;
}

/* Two neighbouring results, along the last kept axis, are a word where y has 16 bits. */
static void check_sum_pairs(const struct pass *pass, const struct sum_axes_params *p,
                            uint32_t inner)
{
    const uint32_t kept[3] = {p->size0, inner < 3 ? p->size1 : 1, inner < 2 ? p->size2 : 1};
    const uint32_t stride[3] = {p->y.stride0, p->y.stride1, p->y.stride2};
    uint32_t size[4] = {kept[0], kept[1], kept[2], 1};
    struct strided_params y = p->y;
    if (inner < 4) {
        size[3] = kept[3 - inner];
        size[3 - inner] = 1;
        y.stride3 = stride[3 - inner];
    }
    const bool several =
        inner < 4 && pass->groups[2] == 1 && pass->key.spec[AXES_RESULT_LANES] < AXES_LANES;
    assert_int_equal(pass->key.spec[AXES_PAIRS],
                     several && are_words(pass->key.spec[AXES_Y_TYPE], size, &y));
}

/* Elements of the first operand, of sums of differences. */
static double check_sum_axes(const struct pass *pass)
{
    struct sum_axes_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t inner = pass->key.spec[AXES_INNER];
    const uint32_t size[4] = {p.size0, p.size1, p.size2, p.size3};
    const double per_group = (double)AXES_LANES / pass->key.spec[AXES_RESULT_LANES];
    double results = 1, reduced = 1;
    for (uint32_t i = 0; i < 4; i++)
        *(i < 4 - inner ? &results : &reduced) *= size[i];
    check_strided(&pass->bindings[0], pass->key.spec[AXES_A_TYPE], size, &p.a);
    check_sum_pairs(pass, &p, inner);
    assert_true((double)pass->groups[0] * pass->groups[1] * per_group >= results);
    assert_true(pass->groups[1] == 1 || pass->groups[0] == ITEM_GRID);
    assert_true(results + ITEM_GRID * per_group <= 4294967296.0);
    assert_true((double)p.first + p.n <= reduced);
    assert_true((double)pass->groups[2] * AXES_SPLIT >= p.n);
    assert_true((double)pass->groups[2] * AXES_SPLIT + p.first <= 4294967296.0);
    return pass->key.spec[AXES_TERM] == TERM_DIFFERENCE ? results * p.n : 0;
}

static double check_norm_backward(const struct pass *pass)
{
    struct norm_backward_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t size[4] = {p.size0, p.size1, p.size2, p.size3};
    double rows = 1;
    for (uint32_t i = 0; i < 4 - pass->key.spec[BACK_INNER]; i++)
        rows *= size[i];
    check_strided(&pass->bindings[0], pass->key.spec[BACK_X_TYPE], size, &p.x);
    check_strided(&pass->bindings[3], pass->key.spec[BACK_DX_TYPE], size, &p.dx);
    assert_true((double)pass->groups[0] * pass->groups[1] >= rows);
    assert_true(pass->groups[1] == 1 || pass->groups[0] == NORM_GRID);
    assert_true(rows + NORM_GRID <= 4294967296.0);
    return (double)p.size0 * p.size1 * p.size2 * p.size3;
}

/* Each pass of ids that need several sees all of the table. */
static double check_gather_backward(const struct pass *pass)
{
    struct gather_backward_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t y_size[4] = {1, 1, p.n_row, p.width};
    const uint32_t y_stride[4] = {0, 0, p.y_row, p.y_col};
    const uint32_t dy_size[4] = {p.size0, p.size1, p.size2, p.width};
    check_strided(&pass->bindings[1], pass->key.spec[ROWS_DY_TYPE], dy_size, &p.dy);
    check_operand(&pass->bindings[2], pass->key.spec[ROWS_Y_TYPE], p.y_offset, y_size, y_stride);
    const struct strided_params y = {p.y_offset, 0, 0, p.y_row, p.y_col};
    assert_int_equal(pass->key.spec[ROWS_PAIRS],
                     are_words(pass->key.spec[ROWS_Y_TYPE], y_size, &y));
    assert_true((double)pass->groups[0] * pass->groups[1] >= p.n_row);
    assert_true(pass->groups[1] == 1 || pass->groups[0] == ITEM_GRID);
    assert_true((uint64_t)pass->groups[2] * ROWS_COLUMNS >= p.width);
    assert_true((uint64_t)p.first + p.n + ROWS_LANES <= INT32_MAX + 1ull + ROWS_LANES);
    return p.first ? 0 : (double)p.n_row * p.width;
}

/* Scores. */
static double check_softmax_backward(const struct pass *pass)
{
    struct softmax_backward_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t n_kv = p.mask.n_kv, n_key = n_kv - p.key_first;
    const uint32_t keys =
        n_key < pass->groups[2] * SLOPES_KEYS ? n_key : pass->groups[2] * SLOPES_KEYS;
    const uint32_t rows = pass->groups[0], heads = pass->groups[1];
    const uint32_t size[4] = {1, heads, rows, p.key_first + keys};
    const uint32_t pitch = SLOPES_PITCH(n_kv), row = SLOPES_ROW_PITCH(n_kv);
    const uint32_t strides[4] = {0, p.n_row * pitch, pitch, 1};
    check_operand(&pass->bindings[0], VKA_F32, p.scores_offset, size, strides);
    check_operand(&pass->bindings[6], VKA_F32, p.slopes_offset, size, strides);
    check_operand(&pass->bindings[7], VKA_F32, p.rows_offset,
                  (const uint32_t[]){1, heads, rows, row},
                  (const uint32_t[]){0, p.n_row * row, row, 1});
    return pass->key.spec[SLOPES_STAGE] == SLOPES_SUM ? 0 : (double)rows * heads * keys;
}

/* Binds a slice of a tensor [batch][head][row], whose rows are `dim` elements. */
static void check_heads(const struct binding *b, enum vka_dtype dtype, const uint32_t size[4],
                        const uint32_t strides[4] /* the offset, then those of a slice */)
{
    const uint32_t of_elements[4] = {strides[1], strides[2], strides[3], 1};
    check_operand(b, dtype, strides[0], size, of_elements);
}

#define HEADS(name)                                                  \
    (const uint32_t[])                                               \
    {                                                                \
        p.name##_offset, p.name##_batch, p.name##_head, p.name##_row \
    }

/* Scores of the pass that sums dq. */
static double check_attention_backward(const struct vka_plan *plan, const struct pass *pass)
{
    struct attention_backward_params p;
    memcpy(&p, plan->constants.bytes + pass->bindings[12].offset, sizeof p);
    const uint32_t *spec = pass->key.spec, stage = spec[BACKWARD_STAGE];
    const bool keys = stage == BACKWARD_KEYS;
    const bool scalar = pass->key.kernel == KERNEL_attention_backward;
    const enum vka_dtype coop =
        pass->key.kernel == KERNEL_attention_backward_coop_f16 ? VKA_F16 : VKA_BF16;
    const uint32_t tile =
        scalar ? spec[BACKWARD_LANES_Y] * spec[BACKWARD_ROWS] : spec[BACKWARD_COOP_OWN];
    const uint32_t batch = pass->groups[2], own = p.own_end - p.own_first;
    const uint32_t heads = pass->groups[1] / p.n_feature_tile * (keys ? p.group : 1);
    const uint32_t first = p.head_first / p.group;
    const uint32_t kv = (p.head_first + heads - 1) / p.group - first + 1;
    check_heads(&pass->bindings[0], scalar ? spec[BACKWARD_Q_TYPE] : coop,
                (const uint32_t[]){batch, heads, p.n_q, p.head_dim}, HEADS(q));
    check_heads(&pass->bindings[1], scalar ? spec[BACKWARD_K_TYPE] : coop,
                (const uint32_t[]){batch, kv, p.mask.n_kv, p.head_dim}, HEADS(k));
    check_heads(&pass->bindings[2], scalar ? spec[BACKWARD_V_TYPE] : coop,
                (const uint32_t[]){batch, kv, p.mask.n_kv, p.value_dim}, HEADS(v));
    check_heads(&pass->bindings[3], scalar ? spec[BACKWARD_DY_TYPE] : coop,
                (const uint32_t[]){batch, heads, p.n_q, p.value_dim}, HEADS(dy));
    check_operand(&pass->bindings[9], VKA_F32, p.rows_offset,
                  (const uint32_t[]){batch, heads, p.n_q, BACKWARD_ROW},
                  (const uint32_t[]){p.rows_batch, p.rows_head, BACKWARD_ROW, 1});
    assert_true((uint64_t)pass->groups[0] * tile >= own);
    assert_true(p.span_end <= p.n_span);
    if (stage != BACKWARD_QUERIES)
        return 0;
    check_heads(&pass->bindings[10], VKA_F32,
                (const uint32_t[]){batch, heads, p.own_end, p.head_dim}, HEADS(a));
    const uint64_t end = (uint64_t)p.span_end * BACKWARD_SPAN;
    const double n_kv =
        (double)(end < p.mask.n_kv ? end : p.mask.n_kv) - (double)p.span_first * BACKWARD_SPAN;
    return (double)batch * heads * own * n_kv;
}

double check_train_pass(const struct vka_plan *plan, const struct pass *pass)
{
    switch ((int)pass->key.kernel) {
    case KERNEL_map_backward:
        return check_map_backward(pass);
    case KERNEL_optimiser:
        return check_optimiser(pass);
    case KERNEL_cross_entropy:
        return check_cross_entropy(pass);
    case KERNEL_norm_backward:
        return check_norm_backward(pass);
    case KERNEL_gather_backward:
        return check_gather_backward(pass);
    case KERNEL_sum_axes:
        return check_sum_axes(pass);
    case KERNEL_softmax_backward:
        return check_softmax_backward(pass);
    case KERNEL_attention_backward:
    case KERNEL_attention_backward_coop_f16:
    case KERNEL_attention_backward_coop_bf16:
        return check_attention_backward(plan, pass);
    default:
        return 0;
    }
}
