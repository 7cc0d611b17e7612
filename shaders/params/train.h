/* Parameters and specialization constants of the operations of training, shared by C and GLSL. The
 * rules of params.h and model.h, which are included before this file, hold here too. */
#ifndef VKA_TRAIN_H
#define VKA_TRAIN_H

#include "params/strided.h"

#include "params/begin.h"

/* ---- sum_axes: y = scale * sum of a term over the last INNER axes, + y -------------------------
 * `sizes` are those of the kept axes, then of the reduced ones. Reduced elements are counted in
 * row-major order; split z of the grid is elements first + z * AXES_SPLIT and those after it, below
 * `first + n`, and its sum goes to y + z * y.stride3 (one split does not read stride3). AXES_RESULT_LANES
 * invocations add one result and merge as a tree. A workgroup has AXES_LANES / AXES_RESULT_LANES results;
 * group g is workgroup g % ITEM_GRID, g / ITEM_GRID. Buffers: 0 a, 1 b, 2 statistics float32
 * [element][NORM_STATS] of norm_backward, 3 y. */
struct sum_axes_params {
    U32 size0, size1, size2, size3;
    STRUCT(strided_params) a, b, y;
    U32 stats_offset; /* of reduced element 0 */
    U32 first, n;
    F32 scale;
};
#define AXES_A_TYPE 0
#define AXES_B_TYPE 1 /* of TERM_VALUE any */
#define AXES_Y_TYPE 2
#define AXES_TERM 3
#define AXES_INNER 4
#define AXES_RESULT_LANES 5 /* a power of two, at most AXES_LANES */
#define AXES_COLUMNS 6      /* neighbouring invocations have neighbouring results; else terms */
#define AXES_ADD 7          /* to what y holds */
#define AXES_PAIRS \
    8 /* two neighbouring results of a workgroup are a whole word of 16-bit elements */
#define AXES_SPECS 9
#define AXES_LANES 64
#define AXES_SPLIT 2048
#define TERM_VALUE 0
#define TERM_PRODUCT 1    /* a * b */
#define TERM_DIFFERENCE 2 /* (a - b)^2 */
#define TERM_NORMALISED 3 /* a * (b - mean) * scale, these two by the reduced element */

/* ---- map_backward: y = dy * f'(x) [* b], dy * f(x) or scale * (dy - x), + y ----------------------
 * An item is two neighbours of axis 3. Buffers: 0 dy, 1 x, 2 b, 3 y. */
struct map_backward_params {
    U32 size0, size1, size2, size3;
    STRUCT(strided_params) dy, x, b, y;
    F32 alpha; /* of SiLU */
    F32 scale; /* of a difference */
};
#define SLOPE_DY_TYPE 0
#define SLOPE_X_TYPE 1
#define SLOPE_B_TYPE 2 /* TYPE_NONE: none */
#define SLOPE_Y_TYPE 3
#define SLOPE_FUNCTION 4 /* enum vka_activation */
#define SLOPE_KIND 5
#define SLOPE_ADD 6
#define SLOPE_PAIRS 7 /* two neighbours of y are a whole word */
#define SLOPE_SPECS 8
#define SLOPE_DERIVATIVE 0
#define SLOPE_VALUE 1
#define SLOPE_DIFFERENCE 2

/* ---- cross_entropy: losses of rows of logits, and their gradient ---------------------------------
 * One workgroup a row, placed as in norm. The first pass writes the statistics of a row, LOSS_STATS
 * floats at y: its loss, 1 if it counts or else 0, its largest element, the sum of the weights
 * relative to that, and the same without the label's. The second pass reads them, and in `totals` the
 * number of rows that count at 1, and writes the gradient. Buffers: 0 x, 1 labels, 2 statistics,
 * 3 totals float32 [2], 4 gradient. */
struct cross_entropy_params {
    U32 size0, size1, size2, size3;
    STRUCT(strided_params) x, labels, y; /* of labels and statistics stride3 is not read */
    U32 stats_offset, stats0, stats1, stats2;
    U32 totals_offset;
    F32 smoothing, scale; /* scale: of the gradient */
};
#define LOSS_LANES 0 /* a power of two */
#define LOSS_X_TYPE 1
#define LOSS_Y_TYPE 2
#define LOSS_GRADIENT 3 /* the second pass */
#define LOSS_SPECS 4
#define LOSS_STATS 8
#define LOSS_BLOCK 64u /* elements that a lane adds in one chain; then these sums */
#define LOSS_IGNORED (-100)

/* ---- scalars: a few numbers, by one invocation --------------------------------------------------
 * SCALARS_MEAN: y[0] = x[0] / x[1]. SCALARS_CLIP: y[0] = sqrt(x[0]), the norm; z[0] = the factor.
 * SCALARS_ADAM: adds 1 to the step, which is the first word of y; z[0 ..] = the rate, the rate by the
 * first correction, the root of the second one. SCALARS_RATE: z[0] = the rate. With
 * SCALARS_FACTOR the rate is multiplied by x[0]. Corrections are 1 - e^(-step * decay), with each
 * decay = -log(beta) as two numbers. Buffers: 0 x, 1 y, 2 z. */
struct scalars_params {
    U32 x_offset, y_offset, z_offset;
    F32 rate;
    F32 first_high, first_low, second_high, second_low;
    F32 max_norm; /* of SCALARS_CLIP */
};
#define SCALARS_KIND 0
#define SCALARS_FACTOR 1
#define SCALARS_SPECS 2
#define SCALARS_MEAN 0
#define SCALARS_CLIP 1
#define SCALARS_ADAM 2
#define SCALARS_RATE 3
#define SCALARS_CLIP_EPSILON 1e-6 /* added to the norm */

/* ---- optimiser: a step for the elements of a parameter ------------------------------------------
 * An item is an element. m and v are float32: moments, or of SGD with a momentum m alone. Buffers:
 * 0 parameter, 1 gradient, 2 m, 3 v, 4 what SCALARS_ADAM or SCALARS_RATE left. */
struct optimiser_params {
    U32 size0, size1, size2, size3;
    STRUCT(strided_params) w, g, m, v;
    U32 rate_offset;
    F32 momentum, rest1, beta2, rest2; /* rest: 1 - beta */
    F32 epsilon, decay;
};
#define OPTIMISER_W_TYPE 0
#define OPTIMISER_G_TYPE 1
#define OPTIMISER_KIND 2     /* enum vka_optimiser */
#define OPTIMISER_MOMENTUM 3 /* 0: none, 1: m holds it, 2: and it is Nesterov's */
#define OPTIMISER_PAIRS 4    /* two neighbours of w are a whole word */
#define OPTIMISER_SPECS 5
#define OPTIMISER_SGD 0
#define OPTIMISER_ADAM 1
#define OPTIMISER_ADAMW 2

/* ---- norm_backward: dx = scale * (g - [mean of g] - n * mean of g n), + dx ------------------------
 * with g = dy * weight, n the normalised x, and the mean of g in layer norm alone. Rows as in norm.
 * Writes the statistics of each row, float32 [row][NORM_STATS]: n is (x * power - mean) * scale,
 * and they are mean (of RMS norm 0), scale and power, see lib/row_power.glsl. Buffers: 0 x, 1
 * weight, 2 dy, 3 dx, 4 statistics. */
struct norm_backward_params {
    U32 size0, size1, size2, size3;
    STRUCT(strided_params) x, dy, dx;
    U32 stats_offset, stats0, stats1, stats2;
    U32 weight_offset, weight_step;
    F32 epsilon;
};
#define BACK_LANES 0 /* a power of two */
#define BACK_X_TYPE 1
#define BACK_WEIGHT_TYPE 2
#define BACK_DY_TYPE 3
#define BACK_DX_TYPE 4 /* TYPE_NONE: not wanted */
#define BACK_CENTER 5
#define BACK_INNER 6
#define BACK_ADD 7
#define BACK_SPECS 8
#define NORM_STATS 3
#define BACK_BLOCK 64u /* elements that a lane adds in one chain; then these sums */

/* ---- gather_backward: y[row] = scale * sum of dy[i] over the ids i that are `row`, + y -----------
 * Ids are counted in row-major order, first .. first + n - 1. A workgroup takes a row and ROWS_COLUMNS
 * columns, along z; row r is workgroup r % ITEM_GRID, r / ITEM_GRID. Buffers: 0 ids, 1 dy, 2 y. */
struct gather_backward_params {
    U32 size0, size1, size2, width; /* of dy */
    STRUCT(strided_params) ids, dy;
    U32 y_offset, y_row, y_col;
    U32 first, n;
    U32 row_first, n_row; /* of the table */
    F32 scale;
};
#define ROWS_DY_TYPE 0
#define ROWS_Y_TYPE 1
#define ROWS_ADD 2
#define ROWS_PAIRS 3 /* two neighbours of y are a whole word of 16-bit elements */
#define ROWS_SPECS 4
#define ROWS_LANES 64
#define ROWS_COLUMNS 256
#define ROWS_BLOCK 64u /* rows that are added in one chain; then these sums */
#define ROWS_IDS 8192u /* of a pass */

/* ---- softmax_backward: weights and gradients of scores, in place of scores and of gradients of the
 * weights -------------------------------------------------------------------------------------------
 * With s a score, x = s after softcap and biases, e = e^(x - L), L about the log-sum-exp of the row, m
 * the factor of dropout and g the gradient of the weight. First pass: sums e and e m g over SLOPES_KEYS
 * keys. Second pass, with Z and Y these sums over the row, and the sink's weight in Z: weight = m e / Z,
 * slope = e / Z (m g Z - Y) / Z, which is exactly 0 where a row sees one key; of s in place of x that
 * times the derivative of the softcap. Those of hidden keys become HIDDEN_BITS. Workgroup (x, y) takes
 * query q_first + x of batch and head y, which counts n_head heads head_step apart, and SLOPES_KEYS
 * keys along z. Buffers: 0 scores float32 [y][n_row][SLOPES_PITCH], 1 mask, 2 kv_length,
 * 3 query_offset, 4 sink, 5 alibi, 6 slopes, as 0, 7 rows float32 [y][n_row][SLOPES_ROW_PITCH], SLOPES_ROW_ below. */
struct softmax_backward_params {
    STRUCT(mask_params) mask;
    U32 scores_offset, slopes_offset, rows_offset;
    U32 batch_first, head_first, head_step, n_head, q_first, n_row, key_first;
    F32 softcap; /* 0: none */
    U32 sink_offset, alibi_offset;
    F32 dropout;
    U32 seed_low, seed_high;
    U32 draw_place, draw_query; /* see softmax_params */
};
#define SLOPES_STAGE 0
#define SLOPES_GENERAL 1 /* a mask, softcap, ALiBi or dropout is used */
#define SLOPES_LANES 2   /* a multiple of 8 */
#define SLOPES_SPECS 3
#define SLOPES_SUM 0
#define SLOPES_OF_SCORE 1 /* of s */
#define SLOPES_OF_BIAS 2  /* of x */
#define SLOPES_KEYS 1024
#define SLOPES_PITCH(n_kv) (((n_kv) + 3) / 4 * 4)
#define SLOPES_ROW_LOG_SUM 0
#define SLOPES_ROW_SUM 1    /* Z without the sink, and Y */
#define SLOPES_ROW_SINK 3   /* receives what the row adds to the sink's gradient */
#define SLOPES_ROW_SPLITS 4 /* Z and Y of each SLOPES_KEYS keys, if there are more */
#define SLOPES_ROW_PITCH(n_kv) \
    (SLOPES_ROW_SPLITS + ((n_kv) > SLOPES_KEYS ? 2 * (((n_kv)-1) / SLOPES_KEYS + 1) : 0))

/* ---- attention_backward: gradients of attention, for GPUs ---------------------------------------
 * With e, Z, Y, m and g as in softmax_backward. A workgroup owns a tile of LANES_Y * ROWS rows and walks
 * the other side, 4 * LANES_X rows a step; those of a span, BACKWARD_SPAN of the other side and of one
 * query head, are one chain of sums, and spans are added in memory. BACKWARD_SUMS: owns queries, and
 * adds e and e m g to Z and Y of their rows, with the last span also the sink's weight to Z.
 * BACKWARD_QUERIES: A is dq. BACKWARD_KEYS: owns keys, and its spans are those of the queries of
 * each head of the group in turn; A is dk, B is dv. Tiles along x from own_first on; along y tiles
 * of features, A4 and B4 vec4 each, of query heads or (BACKWARD_KEYS) key heads; along z batch elements.
 * Buffers: 0 q, 1 k, 2 v, 3 dy, 4 mask, 5 kv_length, 6 query_offset, 7 sink, 8 alibi, 9 rows float32
 * [batch][n_head][n_q][BACKWARD_ROW], 10 A float32, 11 B float32, 12 these parameters. */
struct attention_backward_params {
    STRUCT(mask_params) mask;
    U32 n_q, group, head_dim, value_dim;
    U32 own_first, own_end; /* rows; own_end is that of all tiles */
    U32 span_first, span_end, n_span;
    U32 n_feature_tile;
    U32 batch_first, head_first; /* head: the first query head */
    U32 q_offset, q_batch, q_head, q_row;
    U32 k_offset, k_batch, k_head, k_row;
    U32 v_offset, v_batch, v_head, v_row;
    U32 dy_offset, dy_batch, dy_head, dy_row;
    U32 rows_offset, rows_batch, rows_head;
    U32 a_offset, a_batch, a_head, a_row;
    U32 b_offset, b_batch, b_head, b_row;
    U32 sink_offset, alibi_offset;
    F32 scale, softcap, dropout; /* softcap 0: none */
    U32 seed_low, seed_high;
    U32 draw_place, draw_query; /* see softmax_params */
};
#define BACKWARD_STAGE 0
#define BACKWARD_LANES_X 1
#define BACKWARD_LANES_Y 2
#define BACKWARD_ROWS 3
#define BACKWARD_HEAD4 4 /* vec4 of a row of q and k, of v and dy */
#define BACKWARD_VALUE4 5
#define BACKWARD_DEPTH4 6 /* vec4 of a row that are in shared memory at a time */
#define BACKWARD_A4 7     /* vec4 of a row of A, of B, that a workgroup adds */
#define BACKWARD_B4 8
#define BACKWARD_AT_ONCE 9 /* rows of a step that are added at a time, a multiple of 4 */
#define BACKWARD_Q_TYPE 10
#define BACKWARD_K_TYPE 11
#define BACKWARD_V_TYPE 12
#define BACKWARD_DY_TYPE 13
#define BACKWARD_VECS 14    /* which of q, k, v and dy have rows of whole, aligned vec4 */
#define BACKWARD_GENERAL 15 /* a mask, softcap, ALiBi or dropout is used */
#define BACKWARD_BATCH 16   /* loads of an invocation at a time */
#define BACKWARD_SPECS 17
/* attention_backward_coop: a tile has OWN rows and OTHERS of the other side a step. */
#define BACKWARD_COOP_STAGE 0
#define BACKWARD_COOP_THREADS 1
#define BACKWARD_COOP_SUBGROUPS 2
#define BACKWARD_COOP_M 3 /* rows, columns and depth of a matrix */
#define BACKWARD_COOP_N 4
#define BACKWARD_COOP_K 5
#define BACKWARD_COOP_OWN 6
#define BACKWARD_COOP_OTHERS 7
#define BACKWARD_COOP_HEAD 8 /* head_dim, value_dim in whole matrices */
#define BACKWARD_COOP_VALUE 9
#define BACKWARD_COOP_DEPTH 10 /* features of both sides that are in shared memory at a time */
#define BACKWARD_COOP_A 11     /* features of A, of B, that a workgroup adds */
#define BACKWARD_COOP_B 12
#define BACKWARD_COOP_VECS 13 /* which of q, k, v and dy have rows of whole, aligned vectors of 8 */
#define BACKWARD_COOP_GENERAL 14
#define BACKWARD_COOP_BATCH 15
#define BACKWARD_COOP_FORM 16 /* of a step: see train/backward_direct.glsl */
#define BACKWARD_COOP_SPECS 17
#define BACKWARD_BY_DEPTH 0 /* DEPTH features of both sides at a time */
#define BACKWARD_DIRECT 1
#define BACKWARD_APART 2
#define BACKWARD_SUMS 0
#define BACKWARD_QUERIES 1
#define BACKWARD_KEYS 2
#define BACKWARD_Q_VEC 1u
#define BACKWARD_K_VEC 2u
#define BACKWARD_V_VEC 4u
#define BACKWARD_DY_VEC 8u
#define BACKWARD_SPAN 1024u
#define BACKWARD_ROW 4 /* floats: log-sum-exp, Z, Y, what the row adds to the sink's gradient */
#define BACKWARD_ROW_LOG_SUM 0
#define BACKWARD_ROW_SUM 1
#define BACKWARD_ROW_SINK 3

#ifndef VULKAN
_Static_assert(sizeof(struct softmax_backward_params) <= 128, "push constants");
_Static_assert(sizeof(struct norm_backward_params) <= 128, "push constants");
_Static_assert(sizeof(struct gather_backward_params) <= 128, "push constants");
_Static_assert(sizeof(struct cross_entropy_params) <= 128, "push constants");
_Static_assert(sizeof(struct scalars_params) <= 128, "push constants");
_Static_assert(sizeof(struct optimiser_params) <= 128, "push constants");
_Static_assert(sizeof(struct sum_axes_params) <= 128, "push constants");
_Static_assert(sizeof(struct map_backward_params) <= 128, "push constants");
#endif

#include "params/end.h"
#endif
