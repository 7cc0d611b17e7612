/* What the passes of operations with a state count in 32 bits. SPDX-License-Identifier: MIT */
#include "index_passes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "params/params.h"
#include "params/model.h"
#include "params/state.h"

/* ---- Linear attention ------------------------------------------------------------------------- */

static bool is_packed(uint32_t rows)
{
    return rows == ROWS_RAGGED || rows == ROWS_KEPT;
}

/* Fours of values that a workgroup takes. */
static uint32_t columns_of(const struct pass *pass)
{
    const uint32_t *spec = pass->key.spec;
    if (pass->key.kernel == KERNEL_linear_chunked_coop)
        return spec[LINEAR_WIDTH] / 4;
    if (pass->key.kernel == KERNEL_linear_chunked_address)
        return LINEAR_ADDRESS_VALUES / 4;
    return spec[LINEAR_LANES] /
           (pass->key.kernel == KERNEL_linear_recurrent ? spec[LINEAR_SPLITS] : 32);
}

static bool is_within_chunks(const struct pass *pass)
{
    return pass->key.kernel == KERNEL_linear_weights ||
           pass->key.kernel == KERNEL_linear_weights_coop ||
           pass->key.kernel == KERNEL_linear_weights_address;
}

static bool has_matrices(const struct pass *pass)
{
    return pass->key.kernel == KERNEL_linear_weights_coop ||
           pass->key.kernel == KERNEL_linear_chunked_coop;
}

static bool is_by_address(const struct pass *pass)
{
    return pass->key.kernel == KERNEL_linear_weights_address ||
           pass->key.kernel == KERNEL_linear_chunked_address;
}

/* Rows of q, k, v and what belongs to them. */
static void check_rows(const struct pass *pass, const struct linear_params *p)
{
    const uint32_t *spec = pass->key.spec, states = p->state_first + pass->groups[1];
    const uint32_t batch = is_packed(spec[LINEAR_ROWS]) ? 1 : pass->groups[2];
    const uint32_t n = is_packed(spec[LINEAR_ROWS]) ? p->n_row : p->n;
    const uint32_t out = states * p->group, gates = spec[LINEAR_DECAY] == DECAY_KEY;
    const uint32_t q_heads = p->group > 1 ? out : (states - 1) / p->q_ratio + 1;
    const uint32_t q[4] = {batch, q_heads, n, p->head_dim};
    const uint32_t k[4] = {batch, (states - 1) / p->k_ratio + 1, n, p->head_dim};
    const uint32_t v[4] = {batch, states, n, p->value_dim}, y[4] = {batch, out, n, p->value_dim};
    const uint32_t decay[4] = {batch, states, n, gates ? p->head_dim : 1};
    const uint32_t beta[4] = {batch, states, n, 1};
    check_strided(&pass->bindings[0], spec[LINEAR_Q_TYPE], q, &p->q);
    check_strided(&pass->bindings[1], spec[LINEAR_K_TYPE], k, &p->k);
    if (spec[LINEAR_DECAY] != DECAY_NONE)
        check_strided(&pass->bindings[3], spec[LINEAR_DECAY_TYPE], decay, &p->decay);
    if (spec[LINEAR_BETA_TYPE] != TYPE_NONE)
        check_strided(&pass->bindings[4], spec[LINEAR_BETA_TYPE], beta, &p->beta);
    if (is_within_chunks(pass))
        return;
    check_strided(&pass->bindings[2], spec[LINEAR_V_TYPE], v, &p->v);
    check_strided(&pass->bindings[7], spec[LINEAR_Y_TYPE], y, &p->y);
    assert_true((uint64_t)pass->groups[0] * 4 * columns_of(pass) >= p->value_dim);
}

static void check_states(const struct pass *pass, const struct linear_params *p)
{
    const uint32_t flags = pass->key.spec[LINEAR_FLAGS];
    const uint32_t size[4] = {pass->groups[2], p->state_first + pass->groups[1], p->head_dim,
                              p->value_dim};
    if (flags & LINEAR_LOADS)
        check_strided(&pass->bindings[5], VKA_F32, size, &p->from);
    if (flags & LINEAR_STORES)
        check_strided(&pass->bindings[6], VKA_F32, size, &p->to);
}

/* Weights of each chunk have a place, and its number has 32 bits. */
static void check_weights(const struct pass *pass, const struct linear_params *p)
{
    const uint64_t chunks = (uint64_t)(p->n_row - 1) / LINEAR_CHUNK + 1;
    const uint64_t slots =
        p->chunks ? (uint64_t)pass->groups[2] * p->chunks : chunks + pass->groups[2] - 1;
    const uint32_t row = pass->key.spec[LINEAR_FOURS];
    const uint64_t each = is_by_address(pass)  ? LINEAR_ADDRESS_WEIGHTS(row)
                          : has_matrices(pass) ? LINEAR_COOP_WEIGHTS(row)
                                               : LINEAR_WEIGHTS;
    const uint64_t blocks = (p->value_dim - 1) / LINEAR_ADDRESS_VALUES + 1;
    const uint64_t states =
        is_by_address(pass) ? pass->groups[2] * blocks * LINEAR_ADDRESS_STATES(row) : 0;
    const uint64_t fours = (slots * each + states) * pass->groups[1];
    /* Lists of floats begin at four times such an index. */
    assert_true((has_matrices(pass) ? 4 : 1) * fours <= UINT32_MAX &&
                16 * fours <= pass->bindings[13].size);
    assert_true(!p->chunks || (uint64_t)p->chunks * LINEAR_CHUNK >= p->n);
    if (is_within_chunks(pass))
        assert_true((uint64_t)pass->groups[0] * LINEAR_CHUNK >= p->n);
}

/* Values of y, by the pass that writes them. */
static double check_linear(const struct vka_plan *plan, const struct pass *pass)
{
    struct linear_params p;
    memcpy(&p, plan->constants.bytes + pass->bindings[12].offset, sizeof p);
    check_rows(pass, &p);
    if (pass->key.kernel != KERNEL_linear_recurrent)
        check_weights(pass, &p);
    if (is_within_chunks(pass))
        return 0;
    check_states(pass, &p);
    return (double)pass->groups[2] * pass->groups[1] * p.group * p.n * p.value_dim;
}

/* Values of a gradient of v, by the pass that writes them. */
static double check_backward(const struct vka_plan *plan, const struct pass *pass)
{
    struct linear_params p;
    struct linear_backward_params b;
    const uint32_t *spec = pass->key.spec, *groups = pass->groups, batch = groups[2];
    memcpy(&p, plan->constants.bytes + pass->bindings[12].offset, sizeof p);
    memcpy(&b, pass->push, sizeof b);
    const uint32_t states = p.state_first + groups[1], out = states * p.group;
    const uint32_t k[4] = {batch, (states - 1) / p.k_ratio + 1, p.n, p.head_dim};
    const uint32_t v[4] = {batch, states, p.n, p.value_dim}, y[4] = {batch, out, p.n, p.value_dim};
    const uint32_t carried[4] = {batch, states, p.head_dim, p.value_dim};
    const uint64_t each = (uint64_t)spec[LINEAR_LANES] * spec[LINEAR_BACK_FEATURES] *
                          spec[LINEAR_BACK_FOURS] * groups[0] * groups[1] * batch;
    const uint64_t room = pass->bindings[13].size, heads = (uint64_t)groups[0] * groups[1] * batch;
    assert_true((uint64_t)groups[0] * 4 * spec[LINEAR_BACK_FOURS] >= p.value_dim);
    assert_true(spec[LINEAR_LANES] * spec[LINEAR_BACK_FEATURES] >= p.head_dim);
    assert_true(p.first % LINEAR_CHUNK == 0);
    assert_true(each * ((uint64_t)(p.n_row - 1) / LINEAR_CHUNK + 1) <= b.states);
    assert_true(16 * (b.states + each * LINEAR_CHUNK) <= room);
    check_strided(&pass->bindings[1], spec[LINEAR_K_TYPE], k, &p.k);
    check_strided(&pass->bindings[2], spec[LINEAR_V_TYPE], v, &p.v);
    if (spec[LINEAR_BACK_KEEP])
        return 0;
    check_strided(&pass->bindings[7], spec[LINEAR_Y_TYPE], y, &p.y);
    check_strided(&pass->bindings[6], VKA_F32, carried, &p.to);
    if (spec[LINEAR_BACK_FLAGS] & LINEAR_BACK_Q)
        assert_true(4 * (b.q_plane + heads * p.group * p.n * p.head_dim) <= room);
    if (spec[LINEAR_BACK_FLAGS] & LINEAR_BACK_K)
        assert_true(4 * (b.k_plane + heads * p.n * p.head_dim) <= room);
    if (spec[LINEAR_BACK_FLAGS] & LINEAR_BACK_BETA)
        assert_true(4 * (b.beta_plane + heads * p.n) <= room);
    if (!(spec[LINEAR_BACK_FLAGS] & LINEAR_BACK_V))
        return 0;
    check_strided(&pass->bindings[5], VKA_F32, v, &p.from);
    return (double)batch * groups[1] * p.n * p.value_dim;
}

static void check_sums(const struct pass *pass)
{
    struct linear_sums_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t y[4] = {p.batch, p.y_first + p.y_heads, p.n, p.width};
    check_strided(&pass->bindings[1], VKA_F32, y, &p.y);
    check_items(pass, (double)p.batch * p.y_heads * p.n * p.width);
    assert_true(4 * (p.plane + (uint64_t)p.blocks * p.batch * p.heads * p.n * p.width) <=
                pass->bindings[0].size);
    assert_true((p.plane_first + p.heads - 1) / p.ratio == p.y_first + p.y_heads - 1);
}

/* ---- Convolution ------------------------------------------------------------------------------ */

/* Elements of y, or of what is kept. */
static double check_conv(const struct pass *pass)
{
    struct conv_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t *spec = pass->key.spec, keep = spec[CONV_KEEP];
    const bool packed = is_packed(spec[CONV_ROWS]);
    const uint32_t tile = CONV_EACH * p.dilation, batch = packed ? 1 : p.batch;
    const uint32_t x[4] = {batch, 1, p.n + (packed || keep ? 0 : p.lead), p.channels};
    const uint32_t y[4] = {keep ? p.batch : batch, 1, keep ? p.keep : p.n, p.channels};
    const uint32_t past[4] = {p.batch, 1, p.keep, p.channels};
    const uint32_t weight[4] = {1, 1, p.channels, spec[CONV_WIDTH]};
    check_operand(&pass->bindings[0], spec[CONV_X_TYPE], p.x_offset, x,
                  (const uint32_t[]){p.x_batch, 0, p.x_row, p.x_col});
    check_operand(&pass->bindings[5], spec[CONV_Y_TYPE], p.y_offset, y,
                  (const uint32_t[]){p.y_batch, 0, p.y_row, p.y_col});
    if (spec[CONV_PAST_TYPE] != TYPE_NONE)
        check_operand(&pass->bindings[3], spec[CONV_PAST_TYPE], p.past_offset, past,
                      (const uint32_t[]){p.past_batch, 0, p.past_row, p.past_col});
    if (keep) {
        const struct strided_params place = {p.y_offset, p.y_batch, 0, p.y_row, p.y_col};
        bool pairs = are_words(spec[CONV_Y_TYPE], y, &place);
        assert_int_equal(spec[CONV_Y_PAIRS], pairs);
        if (spec[CONV_Y_DENSE]) { /* as rows of two channels each */
            const struct strided_params both = {p.y_offset, p.y_batch, 0, 2 * p.keep, p.y_row};
            const uint32_t dense[4] = {p.batch, 1, p.channels / 2, 2 * p.keep};
            assert_true(!pairs && p.y_col == p.keep && p.channels % 2 == 0);
            pairs = are_words(spec[CONV_Y_TYPE], dense, &both);
            assert_true(pairs);
        }
        check_items(pass, (double)p.batch * (p.channels / (pairs ? 2 : 1)));
        return (double)p.batch * p.keep * p.channels;
    }
    check_operand(&pass->bindings[1], spec[CONV_W_TYPE], p.w_offset, weight,
                  (const uint32_t[]){0, 0, p.w_channel, p.w_tap});
    const double tiles =
        packed ? (double)(p.n / tile) + p.batch : (double)((p.n - 1) / tile + 1) * p.batch;
    assert_true(p.residues == (p.n < p.dilation ? p.n : p.dilation));
    check_items(pass, tiles * p.residues * (p.channels / 2 + p.channels % 2));
    return (double)batch * p.n * p.channels;
}

/* Elements of the gradient. */
static double check_conv_backward(const struct pass *pass)
{
    struct conv_backward_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t *spec = pass->key.spec, rows = p.end - p.first;
    const uint32_t g[4] = {p.batch, 1, p.g_end - p.g_first, p.channels};
    const uint32_t y[4] = {p.batch, 1, rows, p.channels};
    const uint32_t present[4] = {p.batch, 1, p.keep, p.channels};
    const uint32_t weight[4] = {1, 1, p.channels, spec[CONV_BACK_WIDTH]};
    const uint32_t tile = CONV_EACH * p.dilation;
    check_operand(&pass->bindings[0], spec[CONV_BACK_G_TYPE], p.g_offset, g,
                  (const uint32_t[]){p.g_batch, 0, p.g_row, p.g_col});
    check_operand(&pass->bindings[1], spec[CONV_BACK_W_TYPE], p.w_offset, weight,
                  (const uint32_t[]){0, 0, p.w_channel, p.w_tap});
    if (spec[CONV_BACK_PRESENT_TYPE] != TYPE_NONE)
        check_operand(&pass->bindings[2], spec[CONV_BACK_PRESENT_TYPE], p.present_offset, present,
                      (const uint32_t[]){p.present_batch, 0, p.present_row, p.present_col});
    check_operand(&pass->bindings[4], spec[CONV_BACK_Y_TYPE], p.y_offset, y,
                  (const uint32_t[]){p.y_batch, 0, p.y_row, p.y_col});
    assert_true(p.residues == (rows < p.dilation ? rows : p.dilation));
    check_items(pass, ((rows - 1) / tile + 1.0) * p.residues * p.batch *
                          (p.channels / 2 + p.channels % 2));
    return (double)p.batch * rows * p.channels;
}

/* Places of the sums of splits. */
static double check_conv_sums(const struct pass *pass)
{
    struct conv_sums_params p;
    memcpy(&p, pass->push, sizeof p);
    const uint32_t *spec = pass->key.spec;
    const uint32_t x[4] = {p.batch, 1, p.row_first + p.n - p.x_first, p.channels};
    const uint32_t g[4] = {p.batch, 1, p.n, p.channels};
    const uint32_t past[4] = {p.batch, 1, p.keep, p.channels};
    const uint32_t y[4] = {pass->groups[2], pass->groups[1], spec[CONV_SUM_WIDTH] + 1, p.channels};
    if (spec[CONV_SUM_WIDTH])
        check_operand(&pass->bindings[0], spec[CONV_SUM_X_TYPE], p.x_offset, x,
                      (const uint32_t[]){p.x_batch, 0, p.x_row, p.x_col});
    if (spec[CONV_SUM_PAST_TYPE] != TYPE_NONE)
        check_operand(&pass->bindings[1], spec[CONV_SUM_PAST_TYPE], p.past_offset, past,
                      (const uint32_t[]){p.past_batch, 0, p.past_row, p.past_col});
    check_operand(&pass->bindings[2], spec[CONV_SUM_G_TYPE], p.g_offset, g,
                  (const uint32_t[]){p.g_batch, 0, p.g_row, p.g_col});
    check_operand(&pass->bindings[4], VKA_F32, p.y_offset, y,
                  (const uint32_t[]){p.y_group, p.y_split, p.y_column, p.y_channel});
    assert_true((uint64_t)pass->groups[0] * spec[CONV_SUM_CHANNEL_LANES] >= p.channels);
    assert_true((uint64_t)pass->groups[1] * CONV_SUM_ROWS >= p.n);
    assert_true((uint64_t)pass->groups[2] * p.group >= p.batch);
    assert_true(p.group == 1 || (uint64_t)p.group * p.n <= CONV_SUM_ROWS);
    return 0;
}

double check_state_pass(const struct vka_plan *plan, const struct pass *pass)
{
    switch ((int)pass->key.kernel) {
    case KERNEL_linear_recurrent:
    case KERNEL_linear_chunked:
    case KERNEL_linear_weights:
    case KERNEL_linear_chunked_coop:
    case KERNEL_linear_weights_coop:
    case KERNEL_linear_chunked_address:
    case KERNEL_linear_weights_address:
        return check_linear(plan, pass);
    case KERNEL_conv_backward:
        return check_conv_backward(pass);
    case KERNEL_conv_backward_sums:
        return check_conv_sums(pass);
    case KERNEL_linear_backward:
        return check_backward(plan, pass);
    case KERNEL_linear_backward_sums:
        check_sums(pass);
        return 0;
    case KERNEL_causal_conv:
        return check_conv(pass);
    default:
        return 0;
    }
}
