/* Masks, softmax, rotary embedding and fused attention, shared by C and GLSL. */
#ifndef VKA_PARAMS_ATTENTION_H
#define VKA_PARAMS_ATTENTION_H

#include "params/begin.h"

/* ---- the keys a row sees, for all kernels that mask ------------------------------------------ */
struct mask_params {
    U32 flags; /* MASK_ below */
    U32 n_kv;
    U32 mask_n_kv; /* keys of the mask tensor; later keys are hidden */
    U32 mask_offset, mask_batch, mask_head, mask_row, mask_col;
    U32 length_offset, query_offset_offset;
    I32 default_offset; /* position of query 0 where no query offsets are bound */
    I32 window_left, window_right;
};
#define MASK_CAUSAL 1u
#define MASK_WINDOW_LEFT 2u
#define MASK_WINDOW_RIGHT 4u
#define MASK_LENGTH 8u
#define MASK_LENGTH_PER_BATCH 16u
#define MASK_OFFSET 32u
#define MASK_OFFSET_PER_BATCH 64u
#define MASK_TENSOR 128u  /* a mask is bound */
#define MASK_TYPE_SHIFT 8 /* 3 bits: its TYPE_ */
#define MASK_SINK 2048u
#define MASK_ALIBI 4096u
#define MASK_ROW_SHIFT 13             /* 2 bits: enum vka_masked_row */
#define MASK_SCORES_SHIFT 15          /* 3 bits: enum vka_scores */
#define MASK_SCORES_TYPE_SHIFT 18     /* 3 bits: TYPE_ of the returned scores */
#define MASK_LENGTH_BESIDE (1u << 21) /* kv_length is in the buffer of query_offset */

#define MASKED_ZERO 0
#define MASKED_UNIFORM 1
#define MASKED_NAN 2
#define SCORES_NONE 0
#define SCORES_RAW 1
#define SCORES_SOFTCAP 2
#define SCORES_BIAS 3
#define SCORES_SOFTMAX 4

/* ---- softmax over the rows of a slice of raw scores, in place --------------------------------
 * Workgroup (x, y) takes query q_first + x of batch and head z_first + y. A long row is split into
 * SOFTMAX_SPLIT keys along z of the grid, in two passes: the first takes weights relative to the
 * row_max of its split and stores row_max and row_sum, -1 where no key is visible; the second
 * merges the splits. Buffers: 0 slice float32 [y][n_row][pitch], 1 mask, 2 kv_length,
 * 3 query_offset, 4 sink, 5 alibi, 6 returned scores, 7 splits float32 [y][x][z][2]. */
struct softmax_params {
    STRUCT(mask_params) mask;
    U32 slice_offset, z_first, q_first, n_head, n_row, pitch;
    F32 softcap; /* 0: none */
    U32 sink_offset, alibi_offset;
    U32 scores_offset, scores_batch, scores_head, scores_row, scores_col;
    F32 dropout;
    U32 seed_low, seed_high;
    U32 draw_place, draw_query; /* added to the counter of dropout: batch << 16 | head, and query */
};
#define SOFTMAX_LANES 0
#define SOFTMAX_STAGE 1
#define SOFTMAX_SPLIT 2   /* keys */
#define SOFTMAX_LOG_SUM 3 /* the last element of a row, behind its keys, is its log-sum-exp */
#define SOFTMAX_EXACT 4   /* with twice float32's digits; whole rows alone */
#define SOFTMAX_PAIRS 5   /* two neighbours of the returned scores are a whole word */
#define SOFTMAX_SPECS 6
#define SOFTMAX_WHOLE 0 /* SOFTMAX_STAGE: whole rows, or the first or second pass over splits */
#define SOFTMAX_WEIGH 1
#define SOFTMAX_FINISH 2

/* ---- rope: RMS norm and rotary embedding of q or k ----------------------------------------------
 * One invocation per (batch, head, row). Buffers: 0 input, 1 output, 2 norm weights [head_dim],
 * 3 query_offset, 4 frequencies u32 [dim / 2][2]: turns per position of pair i,
 * base^(-2 i / dim) / (2 pi), in units of 2^-64, low word first; 5 q_start. */
struct rope_params {
    U32 batch, n_head, n_row, head_dim;
    U32 from_offset, from_batch, from_head, from_row, from_col;
    U32 to_offset, to_batch, to_head, to_row, to_col;
    U32 norm_offset;
    U32 position_offset; /* first element of the query offsets i32 [batch] or [1] */
    I32 first_position;  /* position of row 0; added to its query offset where one is bound */
    U32 flags;
    F32 epsilon;
    U32 dim;                       /* leading features that rotate */
    U32 n_sequence;                /* ragged: sequences of the rows, by q_start; 0: not ragged */
    U32 q_start_offset, row_first; /* row_first: of the first row among all packed ones */
};
#define ROPE_FROM_TYPE 0
#define ROPE_TO_TYPE 1
#define ROPE_SPECS 2
#define ROPE_NORM 1u
#define ROPE_INTERLEAVED 2u
#define ROPE_OFFSET 4u
#define ROPE_OFFSET_PER_BATCH 8u

/* ---- attention_row, _tile, _coop, _coop2, _decode: fused attention, one pass over the keys ----
 * A workgroup takes a tile of rows of one key head; row t is query t / group of head t % group.
 * Grid: tiles along x, key heads along y, batch elements along z. The parameters are in a buffer.
 * Buffers: 0 q, 1 k, 2 v, 3 output, 4 mask, 5 kv_length, 6 query_offset, 7 sink, 8 alibi,
 * 9 page table, 10 q_start, 11 kv_start, 12 parameters. With LOG_SUM also the log-sum-exp of the
 * rows, float32: 11, or with kv_start, beside which there is no mask, 4. A ragged batch with a cache
 * reads kv_length from buffer 6. */
struct attention_params {
    STRUCT(mask_params) mask;
    U32 n_q, group, head_dim, value_dim;
    U32 batch_first, head_first, query_first; /* first batch element, head and query of this pass */
    U32 q_offset, q_batch, q_head, q_row;
    U32 k_offset, k_batch, k_head, k_row;
    U32 v_offset, v_batch, v_head, v_row;
    U32 k_scales, v_scales; /* of a quantised cache: first scale, see CACHE_BLOCK */
    U32 o_offset, o_batch, o_head, o_row;
    F32 scale, softcap, dropout;
    U32 seed_low, seed_high;
    U32 draw_place, draw_query; /* see softmax_params */
    U32 sink_offset, alibi_offset;
    U32 n_sequence; /* ragged: sequences packed along the row axes; 0: not ragged */
    U32 q_start_offset, kv_start_offset;
    U32 kv_packed; /* 1: k and v are packed too, by kv_start; 0: not ragged, or keys of a cache */
    U32 page_size; /* paged: keys of a page, a multiple of 16; 0: not paged */
    U32 table_offset, table_row, n_page; /* page table [sequence][table_row]; pages of the pool */
    /* y of the grid: (key head * split_count + split) * n_feature_tile + feature tile */
    U32 n_feature_tile;               /* workgroups that share the value features of a row */
    U32 n_split, split_keys;          /* splits of the keys, and keys of a split, whole steps */
    U32 split_first, split_count;     /* splits of this pass */
    U32 map_head, map_batch, map_row; /* strides in words of attention_map; map_row 0: no map */
    U32 n_tile;                       /* tiles of this pass, along x */
    U32 tile_first, tile_step;        /* ragged: tiles tile_first, tile_first + tile_step ... */
    U32 key_first, key_end;           /* keys of this pass where a STATE_ bit is set; whole steps */
    U32 log_sum_offset, log_sum_batch, log_sum_head, log_sum_row;
};
/* Record of a row in one split of the keys, for attention_merge: float32 [z][key head][tile][row of
 * the tile][n_split][RECORD_PITCH]. Holds the context, not yet divided by row_sum; the last four
 * floats are row_max, row_sum, 1 where a key was visible, and the unit of the weights. */
#define RECORD_PITCH(value_dim) (((value_dim) + 3u) / 4u * 4u + 4u)
/* State of a row between passes that each take some of its keys: float32 [workgroup][row of the
 * tile][STATE_PITCH]. Holds the context so far, not yet divided; row_sum, one per lane where lanes
 * share a row (HIDDEN where no key was visible; attention_row: one, then `seen`, 1 or 0); row_max.
 * Written in place of the output; read from buffer 10, in a ragged batch from one that it does not
 * need: without a cache it has no pages, buffer 9; with one it has no lengths, buffer 5. */
#define STATE_LOAD 1  /* not the first pass */
#define STATE_STORE 2 /* not the last */
#define STATE_PITCH(value4, lanes) (4u * (value4) + (lanes) + 1u)
/* attention_row: a workgroup takes LANES * ROWS rows. On CPU drivers sums have three levels, for
 * the reason at MATMUL_BLOCK: the keys of a step, the steps of a block of ATTENTION_BLOCK keys, the
 * blocks. */
#define ATTENTION_BLOCK 128
#define ATTENTION_LANES 0
#define ATTENTION_ROWS 1   /* rows of a lane */
#define ATTENTION_HEAD4 2  /* vec4 of q in registers: at least head_dim / 4 */
#define ATTENTION_VALUE4 3 /* vec4 of the context */
#define ATTENTION_Q_TYPE 4
#define ATTENTION_K_TYPE 5
#define ATTENTION_V_TYPE 6
#define ATTENTION_O_TYPE 7
#define ATTENTION_K_VEC 8 /* rows start at whole vec4 and head_dim is a multiple of 4 */
#define ATTENTION_V_VEC 9
#define ATTENTION_GENERAL 10 /* mask, softcap, ALiBi or dropout are used; else only key ranges */
#define ATTENTION_STATE 11
#define ATTENTION_SPLITS 12  /* the output is records */
#define ATTENTION_LOG_SUM 13 /* the log-sum-exp of a row is stored; here and below not of records */
#define ATTENTION_SPECS 14

/* attention_tile: LANES_X * LANES_Y invocations take a tile of LANES_Y * ROWS rows, and 4 * LANES_X
 * keys a step; steps start at multiples of that. Buffer 13: words of attention_map. */
#define TILE_LANES_X 0
#define TILE_LANES_Y 1
#define TILE_ROWS 2   /* rows of an invocation */
#define TILE_HEAD4 3  /* vec4 of a row of q */
#define TILE_DEPTH4 4 /* vec4 of a row of q and k staged at a time */
#define TILE_VALUE4 5 /* vec4 of the context of one workgroup */
#define TILE_V_KEYS 6 /* values staged at a time: a multiple of 4 that divides the keys */
#define TILE_Q_TYPE 7
#define TILE_K_TYPE 8
#define TILE_V_TYPE 9
#define TILE_O_TYPE 10
#define TILE_K_VEC 11 /* rows begin and end at whole vec4; 2: and HEAD4 is all of head_dim */
#define TILE_V_VEC 12 /* 2: and all VALUE4 features of every workgroup are there */
#define TILE_GENERAL 13
#define TILE_Q_WHOLE 14 /* all of q stays in shared memory; else it is staged with the keys */
#define TILE_SPLITS 15  /* the output is records */
#define TILE_STATE 16
#define TILE_LOG_SUM 17
#define TILE_PAGED 18
#define TILE_LOADS 19 /* vec4 of keys or values that a lane has on their way at a time */
#define TILE_SPECS 20

/* attention_coop: THREADS are SUBGROUPS subgroups of a multiple of M lanes; COLUMNS of them
 * share M rows; matrices as in matmul_coop. Buffer 13: words of attention_map. */
#define ATTENTION_COOP_THREADS 0
#define ATTENTION_COOP_SUBGROUPS 1
#define ATTENTION_COOP_COLUMNS 2
#define ATTENTION_COOP_M 3
#define ATTENTION_COOP_N 4
#define ATTENTION_COOP_K 5
#define ATTENTION_COOP_HEAD 6  /* head_dim, rounded up to a multiple of K */
#define ATTENTION_COOP_VALUE 7 /* value features of a workgroup, a multiple of N * COLUMNS */
#define ATTENTION_COOP_KEYS 8  /* keys of a step, a multiple of N * COLUMNS and K */
#define ATTENTION_COOP_AHEAD 9 /* AHEAD_ bits: what waits in registers */
#define ATTENTION_COOP_O_TYPE 10
#define ATTENTION_COOP_K_VEC 11 /* rows begin and end at whole vectors; 2: and HEAD is head_dim */
#define ATTENTION_COOP_V_VEC 12 /* 2: and all VALUE features of every workgroup are there */
#define ATTENTION_COOP_GENERAL 13
#define ATTENTION_COOP_PAGED 14
#define ATTENTION_COOP_SPLITS 15
#define ATTENTION_COOP_STATE 16
#define ATTENTION_COOP_LOG_SUM 17
#define ATTENTION_COOP_SPECS 18
#define AHEAD_VALUES 1    /* values of the step, while its scores are computed */
#define AHEAD_Q 2         /* q; else it stays in shared memory */
#define AHEAD_KEYS 4      /* keys of the next step */
#define AHEAD_ONE_STAGE 8 /* nothing: scores lie over keys, and values over both */
#define AHEAD_LANE_Q 16   /* nothing: q in shared memory as lanes read it, where it stays there */

/* attention_coop2: THREADS are SUBGROUPS subgroups, each with M rows; matrices are M x N, from M x N
 * and N x N. Buffer 13: words of attention_map. */
#define COOP2_THREADS 0
#define COOP2_SUBGROUPS 1
#define COOP2_M 2
#define COOP2_N 3
#define COOP2_HEAD 4  /* head_dim, rounded up to a multiple of N */
#define COOP2_VALUE 5 /* value features of a workgroup, a multiple of N */
#define COOP2_KEYS 6  /* keys of a step, a multiple of N */
#define COOP2_AHEAD 7 /* AHEAD_VALUES, AHEAD_KEYS */
#define COOP2_O_TYPE 8
#define COOP2_K_VEC 9 /* as ATTENTION_COOP_K_VEC */
#define COOP2_V_VEC 10
#define COOP2_GENERAL 11
#define COOP2_PAGED 12
#define COOP2_SPLITS 13
#define COOP2_STATE 14
#define COOP2_LOG_SUM 15
#define COOP2_SPECS 16
#define COOP2_ROWS_MOST 32u /* of a subgroup: it has a bit for each */

/* attention_decode: DECODE_THREADS invocations take ROWS rows, and two keys each a step. A vector
 * is 16 bytes of a key or value, of a quantised value 8 features. State of a row: DECODE_PITCH
 * floats, 4 * v_fours a lane of context, row_sum of each lane, not 0 where a key was seen, row_max;
 * v_fours: vec4 of a vector of values. */
#define DECODE_THREADS 64
#define DECODE_KEYS (2 * DECODE_THREADS)
#define DECODE_SUBGROUPS 16 /* most that a workgroup has: subgroups of 4 */
#define DECODE_PITCH(v_fours) (DECODE_THREADS * (4u * (v_fours) + 1u) + 2u)
#define DECODE_ROWS 0
#define DECODE_K_VECTORS 1 /* of a key */
#define DECODE_V_VECTORS 2 /* of a value; at most DECODE_THREADS */
#define DECODE_Q_TYPE 3
#define DECODE_K_TYPE 4
#define DECODE_V_TYPE 5
#define DECODE_O_TYPE 6
#define DECODE_K_VEC 7 /* rows begin and end at whole vectors */
#define DECODE_V_VEC 8
#define DECODE_GENERAL 9
#define DECODE_PAGED 10
#define DECODE_SPLITS 11
#define DECODE_STATE 12
#define DECODE_BATCH 13 /* loads at a time: even */
#define DECODE_LOG_SUM 14
#define DECODE_SPECS 15

/* Shared memory of a workgroup of attention_tile in bytes: q, stage, weights, exchange, ranges. */
#define TILE_PITCH(n4) ((n4) | 1u) /* vec4 a row; odd, so that rows lie in different banks */
#define TILE_WEIGHT_PITCH(lanes_x) ((lanes_x) + 1u)

/* ---- attention_map: tiles that a mask tensor hides or leaves unchanged -------------------------
 * A word holds the MAP_ bits of 16 tiles of rows x keys, along the keys. Grid: words along x, tiles
 * of rows along y, n_head heads of each batch element of the mask along z; an axis that the mask
 * broadcasts has size 1. Buffers: 0 words u32 [z][tile of rows][word], 1 mask. */
struct attention_map_params {
    STRUCT(mask_params) mask;
    U32 n_q, group;
    U32 batch_first, head_first, query_first;
    U32 tile_rows, tile_keys;
    U32 n_head;
};
#define MAP_LANES 0
#define MAP_SPECS 1
#define MAP_SOME 1u /* some key of the tile is visible to some row */
#define MAP_TEST 2u /* some key is hidden from some row, or has a bias */

/* ---- attention_merge: merges the splits of a row -----------------------------------------------
 * Grid: rows along x (tiles in a ragged batch), key heads along y, batch elements along z. Takes
 * the parameters of the attention kernel before, with those of the output replaced.
 * Buffers: 0 records, 1 output, 2 sinks, 3 q_start, 4 parameters, 5 log-sum-exp, 6 lengths; splits that
 * begin at or behind a length have no records. */
#define MERGE_LANES 0
#define MERGE_O_TYPE 1
#define MERGE_ROWS 2 /* rows of a tile */
#define MERGE_LOG_SUM 3
#define MERGE_AHEAD 4 /* records that a lane reads at a time: a multiple of 8 */
#define MERGE_SPECS 5

#ifndef VULKAN
_Static_assert(sizeof(struct softmax_params) <= 128, "push constants");
_Static_assert(sizeof(struct rope_params) <= 128, "push constants");
_Static_assert(sizeof(struct attention_map_params) <= 128, "push constants");
#endif

#include "params/end.h"
#endif
