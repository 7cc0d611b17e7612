/* Parameters and specialization constants of the operations around attention, shared by C and GLSL.
 * The rules of params.h, which is included before this file, hold here too. */
#ifndef VKA_MODEL_H
#define VKA_MODEL_H

#include "params/strided.h"

#include "params/begin.h"

#define TYPE_NONE 99 /* in place of an element type: there is no such tensor */

/* ---- norm: y = normalised (x + residual) * weight + bias ----------------------------------------
 * One workgroup a row. A row is the last INNER axes; its elements are counted in row-major order.
 * Element e of the weight is at weight_offset + e * weight_step; with NORM_GROUPS the rows along axis 2
 * have weights of their own, one after the other. Row r of n_row is workgroup r % NORM_GRID,
 * r / NORM_GRID. `other` is the residual, or a gate: by NORM_GATE y or x is multiplied by a function
 * of it. Buffers: 0 x, 1 other, 2 weight, 3 bias, 4 sum, 5 y. */
struct norm_params {
    U32 size0, size1, size2, size3;
    STRUCT(strided_params) x, other, sum, y;
    U32 weight_offset, weight_step, bias_offset, bias_step;
    F32 epsilon;
};
#define NORM_LANES 0 /* a power of two */
#define NORM_X_TYPE 1
#define NORM_OTHER_TYPE 2 /* TYPE_NONE: none */
#define NORM_WEIGHT_TYPE 3
#define NORM_BIAS_TYPE 4
#define NORM_SUM_TYPE 5
#define NORM_Y_TYPE 6
#define NORM_CENTER 7 /* subtract the mean: layer norm; else RMS norm */
#define NORM_INNER 8
#define NORM_SUM_PAIRS 9 /* two neighbours of the sum are a whole word; of y */
#define NORM_Y_PAIRS 10
#define NORM_GATE 11     /* GATE_NONE, GATE_FIRST or GATE_BEHIND */
#define NORM_FUNCTION 12 /* enum vka_activation, of the gate */
#define NORM_GROUPS 13
#define NORM_SPECS 14
#define GATE_NONE 0 /* `other` is a residual, if there is one */
#define GATE_FIRST 1
#define GATE_BEHIND 2
#define NORM_GRID 32768u
#define NORM_BLOCK 64u /* pairs that a lane adds in one chain; then these sums */

/* ---- map: y = f(x), f(x) + b or f(x) * b ---------------------------------------------------------
 * An item is two neighbours of axis 3. Buffers: 0 x, 1 b, 2 y. */
struct map_params {
    U32 size0, size1, size2, size3;
    STRUCT(strided_params) x, b, y;
    F32 alpha; /* of SiLU */
};
#define ELEMENT_X_TYPE 0
#define ELEMENT_B_TYPE 1 /* TYPE_NONE: none */
#define ELEMENT_Y_TYPE 2
#define ELEMENT_FUNCTION 3 /* enum vka_activation */
#define ELEMENT_MULTIPLY 4 /* by b; else it is added */
#define ELEMENT_PAIRS 5    /* two neighbours of y are a whole word */
#define ELEMENT_SPECS 6
#define ELEMENT_IDENTITY 0
#define ELEMENT_GELU 1
#define ELEMENT_GELU_TANH 2
#define ELEMENT_SILU 3
#define ELEMENT_RELU 4
#define ELEMENT_TANH 5
#define ELEMENT_SIGMOID 6

/* ---- gather: y[i][j][l] = scale * table[ids[i][j][l]] --------------------------------------------
 * The n_table rows of the table may need several passes: one sees rows first .. first + n_row - 1
 * and leaves the others. Ids beyond the table give 0, in the pass whose `first` is 0. With block
 * types, table_offset and table_row count bytes. An item is four columns. Buffers: 0 ids, 1 table,
 * 2 y, 3 the grid of the table's type. */
struct gather_params {
    U32 size0, size1, size2, size3; /* of y */
    STRUCT(strided_params) ids, y;
    U32 table_offset, table_row, table_col;
    U32 first, n_row, n_table;
    F32 scale;
};
#define GATHER_TABLE_TYPE 0
#define GATHER_Y_TYPE 1
#define GATHER_PAIRS 2
#define GATHER_SPECS 3

/* ---- rotary: rotates the first `dim` of head_dim features, and copies the others ----------------
 * An item is a pair of features, or one that is copied; with ROTARY_PAIRS two of either. An angle is
 * position * frequency, or its cosine and sine are in tables: row `position` of them, or without
 * positions their row of the same batch and index. Positions beyond the table give NaN.
 * Buffers: 0 x, 1 positions, 2 cos, 3 sin, 4 frequencies u32 [dim / 2][2], low and high word of the turns
 * of a position in units of 2^-64, 5 y. */
struct rotary_params {
    U32 batch, n_head, n, head_dim, dim;
    STRUCT(strided_params) x, y;
    U32 position_offset, position_batch, position_row;
    U32 cos_offset, cos_batch, cos_row, cos_col;
    U32 sin_offset, sin_batch, sin_row, sin_col;
    U32 n_table; /* rows of the tables, where positions select them */
    U32 first;   /* position of the first row, without positions */
    F32 factor;  /* of cosine and sine */
    F32 sign;    /* of the sine: -1 turns back */
};
#define ROTARY_X_TYPE 0
#define ROTARY_Y_TYPE 1
#define ROTARY_COS_TYPE 2 /* TYPE_NONE: frequencies */
#define ROTARY_SIN_TYPE 3
#define ROTARY_POSITIONS 4 /* there are positions */
#define ROTARY_INTERLEAVED 5
#define ROTARY_PAIRS 6 /* two neighbours of y are a whole word, and dim is a multiple of 4 */
#define ROTARY_SPECS 7

/* ---- scatter: y[.. position[i] + j ..] = x[i .. j ..] --------------------------------------------
 * Row j of axis `axis`, of `extent` elements in y. What lies outside is dropped, or with `circular` wraps. A
 * item is an element of x, with SCATTER_PAIRS two. Buffers: 0 x, 1 positions, 2 y. */
struct scatter_params {
    U32 size0, size1, size2, size3; /* of x */
    STRUCT(strided_params) x, y;
    U32 position_offset, position_step; /* from batch element to batch element */
    U32 axis, extent, first;            /* first: row of this pass */
};
#define SCATTER_X_TYPE 0
#define SCATTER_Y_TYPE 1
#define SCATTER_POSITIONS 2 /* there are positions; else they are 0 */
#define SCATTER_CIRCULAR 3
#define SCATTER_PAIRS 4 /* SCATTER_WORDS: two neighbours of y are a whole word */
#define SCATTER_SPECS 5
#define SCATTER_WORDS 1
#define SCATTER_PLACES 2 /* so where the first has an even place: the axis is the last one */

/* ---- argmax: y[i][j][l] = index of the largest element of x[i][j][l] ----------------------------
 * One workgroup a row, placed as in norm. Buffers: 0 x, 1 y. */
struct argmax_params {
    U32 size0, size1, size2, size3;
    STRUCT(strided_params) x, y; /* y has stride 0 along axis 3 */
};
#define ARGMAX_LANES 0 /* a power of two */
#define ARGMAX_TYPE 1
#define ARGMAX_NUMBERS 2 /* NaN and -inf do not count, and a row without others gives -1 */
#define ARGMAX_SPECS 3

/* ---- sample: y[row] = an index drawn by the softmax of x[row] / temperature ----------------------
 * One workgroup a row. SAMPLE_ADVANCE: one workgroup, which adds 1 to the n_step steps. Buffers: 0 x,
 * 1 step, 2 y, 3 seeds u32 [row][low, high]. */
struct sample_params {
    U32 n;
    U32 x_offset, x_row, x_col, y_offset, y_row, step_offset;
    U32 row_first; /* number of the first row of this pass */
    U32 n_step;    /* 1: of all rows, which the draw counts; else of each row, which it does not */
    U32 seeds_offset, seeds_row, seeds_col;
    F32 temperature, top_p, min_p;
    U32 top_k, seed_low, seed_high;
};
#define SAMPLE_TYPE 0
#define SAMPLE_STEP 1 /* there is a step; else it is 0 */
#define SAMPLE_ADVANCE 2
#define SAMPLE_SEEDS 3 /* each row has its own seed */
#define SAMPLE_SPECS 4
#define SAMPLE_LANES 128
#define SAMPLE_PASSES 72 /* over a row, at most */

/* ---- pool: y[batch][col] = mean over the rows of x[batch][row][col] that count -------------------
 * An item is an element of y. Buffers: 0 x, 1 mask, 2 lengths, 3 y. */
struct pool_params {
    U32 batch, n, width;
    U32 x_offset, x_batch, x_row, x_col;
    U32 mask_offset, mask_batch, mask_row; /* weight of a row */
    U32 length_offset, length_step;
    U32 y_offset, y_batch, y_col;
};
#define POOL_X_TYPE 0
#define POOL_MASK_TYPE 1 /* TYPE_NONE: 1 for each row */
#define POOL_LENGTHS 2   /* rows from a length on do not count */
#define POOL_Y_TYPE 3
#define POOL_PAIRS 4 /* two neighbours of y are a whole word of 16-bit elements; an item has both */
#define POOL_X_PAIRS 5 /* so, and of x too */
#define POOL_SPECS 6
#define POOL_BLOCK 64u /* rows in one chain of sums */

/* ---- merge_slices: y = sum of x[i] e^(l[i]) / sum of e^(l[i]) ------------------------------------
 * Takes one or two slices, whose l has stride 0 along axis 3, and the state that a pass before left:
 * float32 rows of size3 sums of x[i] e^(l[i] - most) SLICES_WEIGHT, then most, the largest l so
 * far, and the sum of the weights. An item is four columns. The parameters are in a buffer.
 * Buffers: 0 and 1 x, 2 and 3 l, 4 state before, 5 y or the state for the next pass, 6 l of y, 7
 * parameters. */
struct slices_params {
    U32 size0, size1, size2, size3;
    STRUCT(strided_params) x0, x1, l0, l1, state, y, l;
};
#define SLICES_COUNT 0 /* 1 or 2 */
#define SLICES_X0_TYPE 1
#define SLICES_X1_TYPE 2
#define SLICES_Y_TYPE 3
#define SLICES_STATE 4   /* SLICES_LOAD, SLICES_STORE */
#define SLICES_LOG_SUM 5 /* l of y is stored */
#define SLICES_PAIRS 6   /* two neighbours of y are a whole word of 16-bit elements */
#define SLICES_SPECS 7
#define SLICES_LOAD 1
#define SLICES_STORE 2
#define SLICES_WEIGHT 0.0009765625 /* 1 / VKA_MERGE_SLICES: no sum of so many slices overflows */

#ifndef VULKAN
_Static_assert(sizeof(struct argmax_params) <= 128, "push constants");
_Static_assert(sizeof(struct sample_params) <= 128, "push constants");
_Static_assert(sizeof(struct pool_params) <= 128, "push constants");
_Static_assert(sizeof(struct gather_params) <= 128, "push constants");
_Static_assert(sizeof(struct rotary_params) <= 128, "push constants");
_Static_assert(sizeof(struct scatter_params) <= 128, "push constants");
_Static_assert(sizeof(struct map_params) <= 128, "push constants");
_Static_assert(sizeof(struct norm_params) <= 128, "push constants");
#endif

#include "params/end.h"
#endif
