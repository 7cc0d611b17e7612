/* Operations that carry a state from one run to the next, shared by C and GLSL. The rules of params.h,
 * which is included before this file, hold here too. */
#ifndef VKA_STATE_H
#define VKA_STATE_H

#include "params/strided.h"

#include "params/begin.h"

/* ---- causal_conv: y[t][c] = f(bias[c] + sum over j of w[c][j] x[t - (width - 1 - j) dilation][c]) -
 * A row before the first of its sequence is one of the past, of `keep` = (width - 1) dilation rows, or
 * 0. An item is two channels of CONV_EACH rows that lie `dilation` apart; a tile is CONV_EACH *
 * dilation rows of a sequence, which begins with a tile of its own. With CONV_KEEP an item is a
 * channel of a sequence, or with CONV_Y_PAIRS or CONV_Y_DENSE two, whose last rows it writes to y,
 * [batch][keep][channels], in place of the past.
 * Dense: this pass has rows first .. first + n - 1; x is bound from row first - lead on. CONV_LENGTHS:
 * starts are the lengths; rows from a length on give 0. CONV_RAGGED: starts are q_start, n_sequence + 1
 * of them, and n all rows; rows of no sequence are left.
 * Buffers: 0 x, 1 w, 2 bias, 3 past, 4 starts, 5 y. */
struct conv_params {
    U32 batch, n, channels; /* batch: sequences */
    U32 first, lead, dilation, keep;
    U32 residues; /* rows that items begin with: `dilation`, or all if there are fewer */
    U32 x_offset, x_batch, x_row, x_col;
    U32 w_offset, w_channel, w_tap, bias_offset, bias_step;
    U32 past_offset, past_batch, past_row, past_col;
    U32 y_offset, y_batch, y_row, y_col;
    U32 starts_offset, starts_step;
    U32 n_cached, sequence_first, layer;
};
#define CONV_X_TYPE 0
#define CONV_W_TYPE 1
#define CONV_BIAS_TYPE 2 /* TYPE_NONE: 0 */
#define CONV_PAST_TYPE 3 /* TYPE_NONE: 0 */
#define CONV_Y_TYPE 4
#define CONV_WIDTH 5    /* 1 to CONV_MOST */
#define CONV_FUNCTION 6 /* enum vka_activation */
#define CONV_ROWS 7     /* ROWS_DENSE, ROWS_LENGTHS, ROWS_RAGGED or ROWS_KEPT */
#define CONV_X_PAIRS 8  /* two channels of x are a whole word of 16-bit elements; of y */
#define CONV_Y_PAIRS 9
#define CONV_KEEP 10    /* writes the last rows */
#define CONV_Y_DENSE 11 /* so, and the rows of two channels of y follow each other in whole words */
#define CONV_SPECS 12
#define CONV_MOST 16
#define CONV_EACH 8

/* Which rows a sequence has. */
#define ROWS_DENSE 0   /* all n */
#define ROWS_LENGTHS 1 /* the first ones, as many as its length */
#define ROWS_RAGGED 2  /* those from its start to the next one's */
#define ROWS_KEPT 3    /* the first ones of these, as many as its length */
/* With a cache of n_cached sequences, starts are its words, see note.glsl, and starts_offset is where
 * the rows stand that sequence sequence_first keeps, the first of the pass. n_cached 0: no cache. */

/* ---- conv_backward: gradients of the rows before a causal convolution -----------------------------
 * dx[t][c] = sum over j of w[c][j] g[t + (width - 1 - j) dilation][c], of those g that are rows of the
 * sequence, + dpresent, + what y holds. Row r of y is t = r - shift: a row of the input, or with shift
 * = keep = (width - 1) dilation one of the past. Rows from a length on get 0. An item is two channels
 * of CONV_EACH rows that lie `dilation` apart, of rows first .. end - 1, which y is bound from; g is
 * bound from row g_first to g_end - 1. Buffers: 0 g, 1 w, 2 dpresent [batch][keep][channels],
 * 3 lengths, 4 y. */
struct conv_backward_params {
    U32 batch, n, channels; /* n: rows of a sequence */
    U32 first, end, shift, keep, dilation;
    U32 residues; /* rows that items begin with: `dilation`, or all if there are fewer */
    U32 g_first, g_end, g_offset, g_batch, g_row, g_col;
    U32 w_offset, w_channel, w_tap;
    U32 present_offset, present_batch, present_row, present_col;
    U32 y_offset, y_batch, y_row, y_col;
    U32 lengths_offset, lengths_step;
};
#define CONV_BACK_G_TYPE 0
#define CONV_BACK_W_TYPE 1
#define CONV_BACK_PRESENT_TYPE 2 /* TYPE_NONE: 0 */
#define CONV_BACK_Y_TYPE 3
#define CONV_BACK_WIDTH 4
#define CONV_BACK_LENGTHS 5
#define CONV_BACK_ADD 6
#define CONV_BACK_G_PAIRS 7 /* two channels of g are a whole word of 16-bit elements; of y */
#define CONV_BACK_Y_PAIRS 8
#define CONV_BACK_SPECS 9

/* ---- conv_backward_sums: gradients of a causal convolution's weight and bias, by splits ------------
 * Column 0 of a split is the sum of g over its rows, column 1 + j that of g times the input of tap j.
 * A split has `group` sequences, and CONV_SUM_ROWS rows of them at most: workgroup y is such rows from
 * row_first on, z a group, x CHANNEL_LANES channels; the other lanes add rows, and merge as a tree. Row t
 * of x is bound from row x_first on, those of g from row_first on. Buffers: 0 x, 1 past
 * [batch][keep][channels], 2 g, 3 lengths, 4 y float32 [z][y][column][channel]. */
struct conv_sums_params {
    U32 batch, n, channels, group; /* n: rows of a sequence in this pass */
    U32 row_first, x_first, dilation, keep;
    U32 x_offset, x_batch, x_row, x_col;
    U32 past_offset, past_batch, past_row, past_col;
    U32 g_offset, g_batch, g_row, g_col;
    U32 y_offset, y_group, y_split, y_column, y_channel;
    U32 lengths_offset, lengths_step;
};
#define CONV_SUM_X_TYPE 0
#define CONV_SUM_PAST_TYPE 1 /* TYPE_NONE: 0 */
#define CONV_SUM_G_TYPE 2
#define CONV_SUM_WIDTH 3 /* 0: the bias alone */
#define CONV_SUM_LENGTHS 4
#define CONV_SUM_CHANNEL_LANES 5 /* a power of two */
#define CONV_SUM_COLUMNS 6       /* neighbouring lanes have neighbouring channels; else rows */
#define CONV_SUM_SPECS 7
#define CONV_SUM_LANES 128
#define CONV_SUM_ROWS 256

/* ---- linear_recurrent: a state that each token decays, corrects and reads -------------------------
 * For each token, with f = e^decay (1 without), u = beta (v - S^T k f) of the delta rules and else v:
 * S = f S + k u^T, and y = scale S^T q. A workgroup takes LINEAR_LANES / LINEAR_SPLITS columns of four
 * values of a sequence's state; workgroup x is such columns, y a state, z a sequence. A lane holds, of one
 * column, LINEAR_FOURS fours of features, those of its split: four c of split s is
 * c LINEAR_SPLITS + s. Sums are over the features of a lane, then over the splits, in order.
 * Output head h belongs to state h / group, and with group 1 to query head h / q_ratio; a state to key
 * head state / k_ratio. The outputs of a group are computed one after the other, with the state made
 * again.
 * In front, with LINEAR_NORMED q and k are divided by their length, and with LINEAR_SIGMOID beta is
 * the sigmoid of what is there. With a log the decay is -e^log s, s = softplus(x + bias); with
 * LINEAR_STEPS s lies within step_min .. step_max and v is multiplied by it. skip * v, of v before,
 * is added to y. Tensors are [batch][head][row][feature]; this pass takes tokens first .. first + n
 * - 1 of each sequence, from whose first one dense tensors are bound. Rows as in causal_conv.
 * in_place: `to` holds the state already. Buffers: 0 q, 1 k, 2 v, 3 decay, 4 beta, 5 state before,
 * 6 state after, 7 y, 8 starts, 9 log [state], 10 bias [state][feature], 11 skip [state], 12
 * parameters. */
struct linear_params {
    U32 n_row, n, head_dim, value_dim; /* n_row: rows of packed tensors */
    U32 first, state_first, group, q_ratio, k_ratio, in_place;
    U32 least, most; /* rows of the sequences that are taken, where those are read on the device */
    U32 chunks;      /* of linear_weights: places for each sequence; 0: as many as its rows fill */
    U32 starts_offset, starts_step;
    U32 n_cached, sequence_first, layer;
    STRUCT(strided_params) q, k, v, decay, beta, from, to, y, log, bias, skip;
    F32 scale, norm_epsilon, step_min, step_max; /* step_max: +inf where there is no bound */
};
#define LINEAR_LANES 0
#define LINEAR_SPLITS 1
#define LINEAR_FOURS 2
#define LINEAR_TOKENS 3 /* that are staged together */
#define LINEAR_Q_TYPE 4
#define LINEAR_K_TYPE 5
#define LINEAR_V_TYPE 6
#define LINEAR_DECAY_TYPE 7
#define LINEAR_BETA_TYPE 8 /* TYPE_NONE: not a delta rule */
#define LINEAR_Y_TYPE 9
#define LINEAR_DECAY 10 /* DECAY_NONE, DECAY_HEAD or DECAY_KEY */
#define LINEAR_ROWS 11
#define LINEAR_FLAGS 12
#define LINEAR_LOG_TYPE 13  /* TYPE_NONE: decays are given */
#define LINEAR_BIAS_TYPE 14 /* TYPE_NONE: 0 */
#define LINEAR_SKIP_TYPE 15 /* TYPE_NONE: 0 */
#define LINEAR_SPECS 16
#define LINEAR_LOADS 1   /* there is a state before; else it is 0 */
#define LINEAR_STORES 2  /* the state after is wanted */
#define LINEAR_WIDE 4    /* four values of a state are an aligned vec4 */
#define LINEAR_WHOLE 16  /* no lane has features or values beyond those of the state */
#define LINEAR_Y_PAIRS 8 /* two values of y are a whole word of 16-bit elements */
#define LINEAR_NORMED 32
#define LINEAR_SIGMOID 64
#define LINEAR_STEPS 128

/* ---- linear_weights, linear_chunked: the same, LINEAR_CHUNK tokens at a time ----------------------
 * With D(i, j) the sum of the decays of tokens j + 1 .. i of a chunk, D(i) that from its first on and S the
 * state before it, L_ij = beta_i e^D(i, j) k_i . k_j for j < i, A_ij = e^D(i, j) q_i . k_j for j <= i and
 * T = (I + L)^-1 diag(beta): u = T (v - e^D S^T k), y = scale (e^D(i) S^T q_i + sum of A_ij u_j), and the
 * state becomes e^D(last) S + sum of e^D(last, j) k_j u_j^T. D is summed for each pair, so that no difference
 * of sums loses a weak decay behind a strong one. linear_weights makes A, T, [j][i], and factors of each
 * token, LINEAR_WEIGHTS fours in all, of all chunks at once: workgroup x is a chunk, y a state, z a
 * sequence, of LINEAR_PAIRS lanes. linear_chunked goes from chunk to chunk with the state in shared memory:
 * a workgroup takes LINEAR_LANES / 32 columns of four values. LINEAR_FOURS are the fours of a row
 * of features, group is 1, the decay NONE or that of a HEAD. Parameters, constants and buffers are
 * those of linear_recurrent, with 13 the weights. */
#define LINEAR_CHUNK 64
#define LINEAR_PAIRS 128
#define LINEAR_WEIGHTS (LINEAR_CHUNK * LINEAR_CHUNK / 2 + 2 * LINEAR_CHUNK)

/* ---- linear_weights_coop, linear_chunked_coop: the same on matrix units, for 16-bit q and k -------
 * A matrix is LINEAR_M x LINEAR_N, from LINEAR_M x LINEAR_K and LINEAR_K x LINEAR_N, of float16; a subgroup
 * takes LINEAR_M tokens, so that a workgroup has LINEAR_CHUNK / LINEAR_M of these. Rows of q and k are one
 * float16 matrix: those of bfloat16 by a power of two each, by which they are exact but for what is 2^-39
 * of the greatest. Float32 operands, which are the state, u, A and T, are a sum of two float16 ones, by a
 * power of two for each column of values, or row of A and T. A product of two of these leaves out that of
 * both low parts. Sums are float32.
 * linear_weights_coop makes, in vectors of eight float16 values: A [i][j], high and low, T so too, rows of k
 * and q [token][feature], k [feature][token]; and LINEAR_GATES fours of floats, see chunk_coop.glsl.
 * Workgroups of linear_chunked_coop take LINEAR_WIDTH values. Features are padded to 4 LINEAR_FOURS, a
 * multiple of LINEAR_CHUNK. */
#define LINEAR_M 16
#define LINEAR_N 17
#define LINEAR_K 18
#define LINEAR_WIDTH 19
#define LINEAR_COOP_SPECS 20
#define LINEAR_VECTORS 256 /* eight features of q and k are an aligned vector; by address: below */
#define LINEAR_GATES (6 * LINEAR_CHUNK / 4 + 1)
#define LINEAR_COOP_WEIGHTS(fours) \
    (LINEAR_CHUNK * LINEAR_CHUNK / 2 + 3 * LINEAR_CHUNK * (fours) / 2 + LINEAR_GATES)

/* ---- linear_weights_address, linear_chunked_address: the same for CPU drivers, by address ---------
 * Workgroups are subgroups of 8. linear_weights_address makes of a chunk rows of keys and queries of
 * 4 LINEAR_FOURS features, a multiple of 16, as float32 and divided by their length; L and A, [i][j]; and
 * lists by token, LINEAR_ADDRESS_WEIGHTS fours in all, see linear_address.glsl. Workgroup x of
 * linear_chunked_address takes 16 values; it solves for u token by token, and keeps the state and the u
 * of a chunk in LINEAR_ADDRESS_STATES fours, which stand in front of the weights of all chunks,
 * [sequence][state][workgroup x]. With LINEAR_VECTORS rows of q and k, or in the second those of v, are
 * float32 in order, and read by address. The bits do not depend on how sequences are cut into multiples of
 * chunks. */
#define LINEAR_WEIGHTS_SLOT 13
#define LINEAR_ADDRESS_LANES 8
#define LINEAR_ADDRESS_VALUES 16
#define LINEAR_ADDRESS_STATES(fours) (LINEAR_ADDRESS_VALUES * ((fours) + LINEAR_CHUNK / 4))
#define LINEAR_ADDRESS_WEIGHTS(fours) \
    (LINEAR_CHUNK * (2 * (fours) + 8 + LINEAR_CHUNK / 2) + 6 * LINEAR_CHUNK / 4)

/* ---- linear_backward: the gradients of linear_recurrent -------------------------------------------
 * A workgroup takes LINEAR_BACK_FOURS columns of four values of a sequence's state: workgroup x is such a
 * block, y a state, z a sequence. A lane holds LINEAR_BACK_FEATURES features of these, LINEAR_LANES apart, so
 * that sums over values are its own, and those over features are merged.
 * LINEAR_BACK_KEEP goes forward and keeps the state in front of each chunk in `work`, from its begin on.
 * Without it goes from the last chunk to the first: makes its states again, keeping them, and takes the
 * gradient of the state, which `to` holds between passes, through its tokens, last first. The gradient of v
 * goes to `from`; what the block adds to those of q, k, the gates' x, the decay's logarithm, beta's x and
 * skip goes to planes of work, [block][sequence][head][token][feature], of this pass's sequences, states and
 * tokens. Parameters, constants and buffers are those of linear_recurrent, of ROWS_DENSE or ROWS_LENGTHS,
 * but y is its gradient, tensors are bound from token p.first on, and 13 is work. In push constants, in
 * floats: */
struct linear_backward_params {
    U32 states; /* fours: of a chunk, behind those that are kept of all chunks */
    U32 q_plane, k_plane, decay_plane, log_plane, beta_plane, skip_plane;
};
#define LINEAR_BACK_KEEP 16
#define LINEAR_BACK_FEATURES 17
#define LINEAR_BACK_FOURS 18
#define LINEAR_BACK_FLAGS 19
#define LINEAR_BACK_SPECS 20
#define LINEAR_BACK_V 1u /* gradients that are wanted */
#define LINEAR_BACK_Q 2u
#define LINEAR_BACK_K 4u
#define LINEAR_BACK_DECAY 8u
#define LINEAR_BACK_LOG 16u
#define LINEAR_BACK_BETA 32u
#define LINEAR_BACK_SKIP 64u
#define LINEAR_BACK_FIRST 128u /* the gradient of the state behind the last token is 0 */

/* ---- linear_backward_sums: sums of the blocks of a plane, then of the heads that have one gradient -
 * Head plane_first + h of the plane belongs to head (plane_first + h) / ratio of y. Heads whose first
 * is not in the plane go on from what y holds. An item is an element of heads y_first .. y_first + y_heads - 1
 * of y. Buffers: 0 planes, 1 y. */
struct linear_sums_params {
    U32 plane, blocks, batch, heads, n, width; /* of the plane */
    U32 plane_first, ratio, y_first, y_heads;
    STRUCT(strided_params) y;
};

#define DECAY_NONE 0
#define DECAY_HEAD 1 /* one of each state */
#define DECAY_KEY 2  /* one of each key feature */

#ifndef VULKAN
_Static_assert(sizeof(struct conv_params) <= 128, "push constants");
_Static_assert(sizeof(struct conv_backward_params) <= 128, "push constants");
_Static_assert(sizeof(struct conv_sums_params) <= 128, "push constants");
_Static_assert(sizeof(struct linear_backward_params) <= 128, "push constants");
_Static_assert(sizeof(struct linear_sums_params) <= 128, "push constants");
#endif

#include "params/end.h"
#endif
