/* Parameters and specialization constants, shared by C and GLSL (which defines VULKAN). Structs
 * hold only 4-byte scalars, so that the layouts agree; push constants take at most 128 bytes.
 * Offsets and strides count elements modulo 2^32: a negative stride is its two's complement. */
#ifndef VKA_PARAMS_H
#define VKA_PARAMS_H

#ifdef VULKAN
#define U32 uint
#define I32 int
#define F32 float
#define STRUCT(tag) tag
#else
#include <stdint.h>
#define U32 uint32_t
#define I32 int32_t
#define F32 float
#define STRUCT(tag) struct tag
#endif

/* Element types, as enum vka_dtype. */
#define TYPE_F32 0
#define TYPE_F16 1
#define TYPE_BF16 2
#define TYPE_I32 3
#define TYPE_BOOL 4
#define TYPE_I8 5
#define TYPE_Q8_0 6 /* block types: this and all up to TYPE_I4_G128 */
#define TYPE_Q4_0 7
#define TYPE_Q4_1 8
#define TYPE_Q5_0 9
#define TYPE_Q4_K 10
#define TYPE_Q6_K 11
#define TYPE_MXFP4 12
#define TYPE_I4_G128 13
#define TYPE_F8_E4M3 14 /* of caches alone */
/* Quantised activations, beside the API's types: a block is MATMUL_BLOCK neighbours along k in 48
 * words: int8, 4 a word; for each 16 of them a float32 scale, then for each the sum of the integers.
 * Scales have 12 significant bits. Rows are padded to whole blocks with 0. */
#define ACTIVATION_VALUES 128u
#define ACTIVATION_BYTES 192u
#define ACTIVATION_SCALE 32u /* words before the scales, and before the sums */
#define ACTIVATION_SUM 40u
/* Values and bytes of a block; I8 is read as blocks of one. */
#define BLOCK_VALUES(type)                               \
    ((type) == TYPE_I8                            ? 1u   \
     : (type) == TYPE_Q4_K || (type) == TYPE_Q6_K ? 256u \
     : (type) == TYPE_I4_G128                     ? 128u \
                                                  : 32u)
#define BLOCK_BYTES(type)          \
    ((type) == TYPE_I8      ? 1u   \
     : (type) == TYPE_Q8_0  ? 34u  \
     : (type) == TYPE_Q4_0  ? 18u  \
     : (type) == TYPE_Q4_1  ? 20u  \
     : (type) == TYPE_Q5_0  ? 22u  \
     : (type) == TYPE_Q4_K  ? 144u \
     : (type) == TYPE_Q6_K  ? 210u \
     : (type) == TYPE_MXFP4 ? 17u  \
                            : 68u)
/* A run is 64 values of a row, of types whose runs are whole words where the row begins with one: see
 * lib/runs.glsl. Words of two runs; 0: not such a type. */
#define RUN_VALUES 64u
#define RUN_PAIR_WORDS(type)        \
    ((type) == TYPE_Q8_0      ? 34u \
     : (type) == TYPE_Q4_0    ? 18u \
     : (type) == TYPE_Q4_1    ? 20u \
     : (type) == TYPE_Q5_0    ? 22u \
     : (type) == TYPE_Q4_K    ? 18u \
     : (type) == TYPE_I4_G128 ? 17u \
                              : 0u)

/* Weight that softmax writes for a hidden key: the bits of -0.0, which no real weight has. The
 * weighted sum skips it, so that NaN in a hidden value never reaches the result. */
#define HIDDEN_BITS 0x80000000u

/* ---- matmul: C[z][m][n] = alpha * sum over k of f(A[z][m][k]) * B[z'][n][k] + bias[n] ----------
 * With SUMS_ADD that is added to C.
 * z is batch z / n_head and head z % n_head; z' is the same batch and head / group. Packed B:
 * float32 panels of neighbouring columns, [panel][k][column of the panel], padded with any value.
 * Where k is cut, a pass starts from the sums of the pass before: float32 [batch][n_head][m][n][2],
 * of whole groups of k and of the group after them (matmul_coop: [batch][n_head][m][n]). Quantised
 * B: offset and strides count bytes, b_col is not read, and with SUMS_SCALE column n is multiplied by
 * scale[n]. Buffers: 0 A, 1 B, 2 bias, 3 C, 4 sums, and for kernels that read quantised B 5 scale. */
struct matmul_params {
    U32 a_low, a_high, b_low, b_high; /* of A and B, for kernels that read by address */
    U32 m, n, k;
    F32 alpha;
    U32 n_head, group;
    U32 a_offset, a_batch, a_head, a_row, a_col;
    U32 b_offset, b_batch, b_head, b_row, b_col; /* b_row steps n, b_col steps k */
    U32 c_offset, c_batch, c_head, c_row, c_col;
    U32 bias_offset;
    U32 b_panel; /* packed B: elements from panel to panel; quantised B: offset of the scale */
    U32 n_block; /* packed B: blocks of row tiles, along z of the grid */
    U32 sums_offset, sums_batch, sums_head, sums_row;
};
#define MATMUL_A_TYPE 0
#define MATMUL_B_TYPE 1
#define MATMUL_C_TYPE 2
#define MATMUL_BIAS_TYPE 3 /* BIAS_NONE: no bias */
#define MATMUL_RELU 4      /* f(x) = max(x, 0), else x */
#define MATMUL_HIDDEN 5    /* skip elements of A that are HIDDEN_BITS */
#define MATMUL_SUMS 6      /* SUMS_ below */
/* matmul_tile: side x side invocations, each tile_m x tile_n results. */
#define MATMUL_TILE_M 7
#define MATMUL_TILE_N 8
#define MATMUL_SIDE_X 9
#define MATMUL_SIDE_Y 10     /* equal to MATMUL_SIDE_X */
#define MATMUL_TILE_A_VEC 11 /* rows of A are whole, aligned chunks of 16 bytes along k */
#define MATMUL_TILE_B_VEC 12 /* columns of B are */
#define MATMUL_TILE_EDGE 13  /* k is not a multiple of TILE_DEPTH */
#define MATMUL_TILE_HELD 14  /* C is float32 and has the sums of whole groups until the end */
#define MATMUL_TILE_SPECS 15
/* matmul_few: THREADS invocations, each with a block of k of a column; THREADS / COLUMNS blocks. */
#define MATMUL_FEW_THREADS 7
#define MATMUL_FEW_ROWS 8 /* of a tile, at most FEW_TILE_ROWS */
#define MATMUL_FEW_COLUMNS 9
#define MATMUL_FEW_A_VEC 10       /* rows are whole, aligned chunks of 16 bytes along k */
#define MATMUL_FEW_B_VEC 11       /* columns are */
#define MATMUL_FEW_EDGE 12        /* k is not a multiple of the blocks of a workgroup */
#define MATMUL_FEW_CHUNKS 13      /* of 16 bytes of B that an invocation reads at a time */
#define MATMUL_FEW_OWN_COLUMNS 14 /* of an invocation, with float32 A and quantised B */
#define MATMUL_FEW_SPECS 15
/* matmul_dot: A is quantised activations, its offset and strides count bytes; as matmul_few otherwise. */
#define MATMUL_DOT_THREADS 7
#define MATMUL_DOT_ROWS 8 /* of a tile, at most DOT_ROWS */
#define MATMUL_DOT_COLUMNS 9
#define MATMUL_DOT_B_VEC 10 /* rows of B are runs, of words; 2: of aligned chunks of 16 bytes */
#define MATMUL_DOT_EDGE 11  /* k is not a multiple of the blocks of a workgroup */
#define MATMUL_DOT_OWN_COLUMNS 12
#define MATMUL_DOT_SPECS 13
#define DOT_ROWS 8
/* matmul_lane: one subgroup of `lanes` a workgroup. */
#define MATMUL_LANES 7
#define MATMUL_A_VEC 8 /* A is float32, a_col 1, rows 16-byte aligned: vec4 loads along k */
#define MATMUL_B_VEC 9 /* B is float32, b_row 1, columns 16-byte aligned, n a multiple of 4 */
#define MATMUL_ROWS 10 /* rows of a tile, at most LANE_ROWS */
#define MATMUL_LANE_SPECS 11
/* matmul_address, matmul_texel: the most rows of a tile, and the columns of a panel of B. */
#define ADDRESS_ROWS 6
#define ADDRESS_PANEL 16
#define TEXEL_ROWS 8
#define BLOCK_ROWS 8 /* matmul_block and matmul_bytes: the most rows of a tile */
#define TEXEL_PANEL 64
/* matmul_coop: SUBS_M x SUBS_N subgroups of LANES, each with MATS_M x MATS_N matrices of M x N
 * results, made from M x K of A and K x N of B; the others of THREADS only load. */
#define MATMUL_COOP_THREADS 7
#define MATMUL_COOP_M 8
#define MATMUL_COOP_N 9
#define MATMUL_COOP_K 10
#define MATMUL_COOP_MATS_M 11
#define MATMUL_COOP_MATS_N 12
#define MATMUL_COOP_A_VEC 13 /* a_col 1, rows 16-byte aligned, k a multiple of 8 */
/* b_col 1, columns 16-byte aligned, k a multiple of 8. Quantised B: runs are read through shared
 * memory, as words; 2: columns are 16-byte aligned, as are DEPTH values. */
#define MATMUL_COOP_B_VEC 14
#define MATMUL_COOP_SUBS_M 15
#define MATMUL_COOP_SUBS_N 16
#define MATMUL_COOP_LANES 17
#define MATMUL_COOP_DEPTH 18  /* k of a tile in shared memory, a multiple of K */
#define MATMUL_COOP_A_ROWS 19 /* rows of A that are loaded */
#define MATMUL_COOP_EDGE 20   /* COOP_EDGE_ below */
#define MATMUL_COOP_C_VEC 21  /* c_col 1, rows of C 16-byte aligned, n and N multiples of 8 */
#define MATMUL_COOP_SPECS 22
#define COOP_BAND 8     /* rows of tiles of C that workgroups fill together */
#define COOP_EDGE_K 1u  /* k is not a multiple of DEPTH */
#define COOP_EDGE_MN 2u /* m is not a multiple of the tile's rows, or n of its columns */

#define BIAS_NONE 99
/* Terms in a block of k, and in a group of blocks. Kernels with float32 sums add each block by
 * fma(), in order, then the blocks of a group, then the groups: equal terms round the same way, and
 * in one chain of 16,384 those errors would add up to 3e-4 of the sum; so they are 2.2e-6 at most. */
#define MATMUL_BLOCK 128
#define MATMUL_GROUP 4096
/* With quantised B, whose large sums cancel out, a block is sums of QUANT_CHAIN terms that are added
 * with what rounding loses. With float32 A, GPUs multiply integers and scale chains of 16, which
 * rounds about twice as much; not so where the sums are the largest. */
#define QUANT_CHAIN 8
#define SCALES_CHAINS(a_type, b_type) \
    ((b_type) >= TYPE_I8 && (a_type) == TYPE_F32 && (b_type) != TYPE_Q6_K)
#define SUMS_LOAD 1u   /* start from the sums in buffer 4, else from 0 */
#define SUMS_KEEP 2u   /* C is the sums for the next pass */
#define SUMS_OPEN 4u   /* the next pass continues the last group */
#define SUMS_GROUPS 8u /* k is longer than a group */
#define SUMS_SCALE 16u /* multiply each column by its scale */
#define SUMS_ADD 32u   /* add to what C holds, after the bias */
#define TILE_DEPTH 16
#define FEW_TILE_ROWS 16                 /* sums of an invocation */
#define FEW_WHOLE_ROWS 4                 /* most rows for which a lane holds a whole block of B */
#define FEW_PITCH(chunks) ((chunks) | 1) /* odd, so that lines start in different banks */
#define LANE_ROWS 16
#define LANE_COLUMNS 4   /* columns of a lane */
#define COOP_SUBGROUPS 8 /* most of a workgroup of matmul_coop */
#define COOP_DEPTH 32    /* least k of its tiles */

/* ---- quantise: rows of A to ACTIVATION_ blocks --------------------------------------------------
 * An invocation takes 16 neighbours along k: parts of 16 along x, rows along y, matrices along z.
 * Buffers: 0 A, 1 blocks. Of blocks, strides are in words. */
struct quantise_params {
    U32 n_head, k, n_part; /* n_part: those of whole blocks */
    U32 from_offset, from_batch, from_head, from_row, from_col;
    U32 to_offset, to_batch, to_head, to_row;
};
#define QUANTISE_FROM_TYPE 0
#define QUANTISE_RELU 1 /* max(x, 0) first */
#define QUANTISE_SPECS 2
#define QUANTISE_LANES 64
#define QUANTISE_PART 16
/* Scales below 2^-120 count as 0: half a scale, which decides a rounding, must not be subnormal. */
#define QUANTISE_LEAST 0x03800000u

/* ---- sum_pieces: C[z][m][n] = alpha * sum of the pieces + bias[n] -------------------------------
 * One invocation per element: columns along x, rows along y, matrices along z. Buffers: 0 pieces
 * float32 [n_piece][batch][n_head][m][n], contiguous along n, 1 bias, 2 C. */
struct sum_params {
    U32 m, n, n_head, n_piece;
    U32 piece;                    /* elements from piece to piece */
    U32 offset, batch, head, row; /* of piece 0 */
    F32 alpha;
    U32 c_offset, c_batch, c_head, c_row, c_col;
    U32 bias_offset;
};
#define SUM_C_TYPE 0
#define SUM_BIAS_TYPE 1 /* BIAS_NONE: no bias */
#define SUM_ADD 2       /* add to what C holds */
#define SUM_SPECS 3
#define SUM_LANES 64

/* ---- loop_probe: x = x * LOOP_PROBE_FACTOR + 1, n times. Buffers: 0 x ------------------------ */
struct loop_probe_params {
    U32 n;
};
#define LOOP_PROBE_FACTOR 1664525u

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
 * SOFTMAX_PIECE keys along z of the grid, in two passes: the first takes weights relative to the
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
#define SOFTMAX_PIECE 2   /* keys */
#define SOFTMAX_LOG_SUM 3 /* the last element of a row, behind its keys, is its log-sum-exp */
#define SOFTMAX_EXACT 4   /* with twice float32's digits; whole rows alone */
#define SOFTMAX_SPECS 5
#define SOFTMAX_WHOLE 0 /* SOFTMAX_STAGE: whole rows, or the first or second pass over splits */
#define SOFTMAX_WEIGH 1
#define SOFTMAX_FINISH 2

/* ---- copy between strided 4-D tensors, with conversion -----------------------------------------
 * Grid: COPY_LANES elements of axis 3 along x, runs of axis 2 along y, the outer two axes along z.
 * Buffers: 0 source, 1 destination. */
struct copy_params {
    U32 shape0, shape1, shape2, shape3;
    U32 from_offset, from0, from1, from2, from3;
    U32 to_offset, to0, to1, to2, to3;
    U32 panel, to_panel; /* elements of a panel of axis 2, and from panel to panel */
    U32 n_sequence, q_start_offset, row_first; /* of hadamard alone, as in rope_params */
};
#define COPY_FROM_TYPE 0
#define COPY_TO_TYPE 1
#define COPY_SPECS 2
#define COPY_RUN 16 /* elements of axis 2 an invocation copies; a panel is whole runs */
#define COPY_LANES 32
/* hadamard: HADAMARD_LANES features of axes 2 and 3 along x, axis 1 along y, axis 0 along z. panel:
 * features of a block; to_panel: bits of the float 1 / sqrt(panel). Buffer 2: q_start; rows outside
 * all sequences are not written. */
#define HADAMARD_LANES 64

/* ---- nonfinite: NaN and Inf in a strided 4-D tensor ---------------------------------------------
 * Buffers: 0 tensor, 1 counts u32 [first + invocation][2]: NaN, Inf. */
struct nonfinite_params {
    U32 shape0, shape1, shape2, shape3;
    U32 from_offset, from0, from1, from2, from3;
    U32 first;
};
#define NONFINITE_TYPE 0
#define NONFINITE_SPECS 1
#define NONFINITE_LANES 64

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
    /* y of the grid: (key head * piece_count + piece) * n_chunk + chunk */
    U32 n_chunk;                      /* workgroups that share the value features of a row */
    U32 n_piece, piece_keys;          /* splits of the keys, and keys of a split, whole steps */
    U32 piece_first, piece_count;     /* splits of this pass */
    U32 map_head, map_batch, map_row; /* strides in words of attention_map; map_row 0: no map */
    U32 n_tile;                       /* tiles of this pass, along x */
    U32 tile_first, tile_step;        /* ragged: tiles tile_first, tile_first + tile_step ... */
    U32 key_first, key_end;           /* keys of this pass where a STATE_ bit is set; whole steps */
    U32 log_sum_offset, log_sum_batch, log_sum_head, log_sum_row;
};
/* Record of a row in one split of the keys, for attention_merge: float32 [z][key head][tile][row of
 * the tile][n_piece][RECORD_PITCH]. Holds the context, not yet divided by row_sum; the last four
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
#define ATTENTION_PIECES 12  /* the output is records */
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
#define TILE_K_VEC 11
#define TILE_V_VEC 12
#define TILE_GENERAL 13
#define TILE_Q_WHOLE 14 /* all of q stays in shared memory; else it is staged with the keys */
#define TILE_PIECES 15  /* the output is records */
#define TILE_STATE 16
#define TILE_LOG_SUM 17
#define TILE_SPECS 18

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
#define ATTENTION_COOP_K_VEC 11 /* rows begin and end at whole chunks; 2: and HEAD is head_dim */
#define ATTENTION_COOP_V_VEC 12 /* 2: and all VALUE features of every workgroup are there */
#define ATTENTION_COOP_GENERAL 13
#define ATTENTION_COOP_PAGED 14
#define ATTENTION_COOP_PIECES 15
#define ATTENTION_COOP_STATE 16
#define ATTENTION_COOP_LOG_SUM 17
#define ATTENTION_COOP_SPECS 18
#define AHEAD_VALUES 1 /* values of the step, while its scores are computed */
#define AHEAD_Q 2      /* q; else it stays in shared memory */
#define AHEAD_KEYS 4   /* keys of the next step */

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
#define COOP2_PIECES 13
#define COOP2_STATE 14
#define COOP2_LOG_SUM 15
#define COOP2_SPECS 16
#define COOP2_ROWS_MOST 32u /* of a subgroup: it has a bit for each */

/* attention_decode: DECODE_THREADS invocations take ROWS rows, and two keys each a step. A chunk is
 * 16 bytes of a key or value, of a quantised value 8 features. State of a row: DECODE_PITCH floats, 4 * v_fours a lane of context,
 * row_sum of each lane, not 0 where a key was seen, row_max; v_fours: vec4 of a chunk of values. */
#define DECODE_THREADS 64
#define DECODE_KEYS (2 * DECODE_THREADS)
#define DECODE_SUBGROUPS 16 /* most that a workgroup has: subgroups of 4 */
#define DECODE_PITCH(v_fours) (DECODE_THREADS * (4u * (v_fours) + 1u) + 2u)
#define DECODE_ROWS 0
#define DECODE_K_CHUNKS 1 /* of a key */
#define DECODE_V_CHUNKS 2 /* of a value; at most DECODE_THREADS */
#define DECODE_Q_TYPE 3
#define DECODE_K_TYPE 4
#define DECODE_V_TYPE 5
#define DECODE_O_TYPE 6
#define DECODE_K_VEC 7 /* rows begin and end at whole chunks */
#define DECODE_V_VEC 8
#define DECODE_GENERAL 9
#define DECODE_PAGED 10
#define DECODE_PIECES 11
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

/* ---- cache: appending rows to a cache, and making the dense view of a paged one -----------------
 * State u32 [3][batch]: lengths; lengths before this run; 1 where a run had no room. Then u32
 * [batch + 1]: q_start of a ragged step.
 * cache_advance: one invocation per sequence; n_row: new rows; from_: n_append. Buffers: 0 state,
 * 1 page table, 2 running ticket u32 [2], 3 first ticket without room u32 [batch][2]; first word 0:
 * none, 4 n_append i32 [batch] or [1], see APPEND_, 5 q_start.
 * cache_gather copies rows row_first .. row_first + n_row - 1 of a paged cache, one invocation per
 * element of [batch][n_head][n_row][dim]. Buffers: 0 from, 1 to, 2 state, 3 page table.
 * Ragged: rows of `batch` sequences are packed, [1][n_head][n_row][dim]; sequence s has rows
 * q_start[s] .. q_start[s + 1] - 1 of all packed rows. */
struct cache_params {
    U32 batch, n_row, dim, capacity;
    U32 from_offset, from_batch, from_head, from_row, from_col;
    U32 to_offset, to_batch, to_head, to_row, to_col;
    U32 state_offset;
    U32 page_size, table_offset, table_row, n_page; /* page_size 0: not paged */
    U32 row_first;                  /* first of the n_row rows; of cache_advance an APPEND_ */
    U32 n_sequence, q_start_offset; /* ragged: see below; n_sequence 0: not ragged */
};
#define APPEND_ALL 0  /* n_row for each sequence */
#define APPEND_ONE 1  /* n_append[0] */
#define APPEND_EACH 2 /* n_append[sequence] */
/* cache_quantise: one invocation per block of [batch][n_head][n_row][dim in blocks]; appends as many
 * rows as the lengths grew by. Buffers as cache_gather, and 4 q_start. A quantised cache: integers of
 * all rows, which are whole blocks, then their scales, float16 [row][block]. to_ counts values;
 * to_col is the first scale, counted in float16. Q8_0: value i of a word is its byte i, an int8;
 * Q4_0: its 4 bits i, less 8. F8_E4M3: value i is byte i, and behind the rows lie float32 scales
 * [n_head] and float32 1 / scale [n_head]; the first scale is counted in words, for attention that of
 * the pass's first head, and to_col is 1 / scale of the pass's first head. */
#define CACHE_BLOCK 32
#define CACHE_Q8_UNIT 0.00787401574803149606 /* 1 / 127 */
#define CACHE_FROM_TYPE 0
#define CACHE_TO_TYPE 1
#define CACHE_SPECS 2

/* ---- cache_append: new keys and values to their places, keys and queries rotated first ----------
 * Appends as many rows as the lengths grew by. Grid: for each run of rows its pairs of features along
 * x; n_key heads of keys, then n_value of values, then those of queries along y; batch elements along
 * z. Buffers: 0 queries, 1 keys, 2 values, 3 rotated queries, 4 cached keys, 5 cached values, 6 state
 * and page table, 7 these parameters, then frequencies as of rope. */
struct append_rows { /* rows of a cache and rotated ones are contiguous */
    U32 from_offset, from_batch, from_head, from_row, from_col;
    U32 to_offset, to_batch, to_head, to_row;
};
struct append_params {
    STRUCT(append_rows) rows[3]; /* APPEND_KEY, APPEND_VALUE, APPEND_QUERY */
    U32 n_row, run;              /* rows of an invocation */
    U32 n_key, n_value;
    U32 head_dim, value_dim;
    U32 dim, interleaved; /* leading features that rotate */
    U32 batch, capacity;  /* of the cache */
    U32 state_offset, table_offset;
    U32 page_size, table_row, n_page; /* page_size 0: not paged */
    U32 row_first;                    /* of the first row among all new ones */
    U32 n_sequence;                   /* ragged; 0: not */
};
#define APPEND_KEY 0
#define APPEND_VALUE 1
#define APPEND_QUERY 2
#define APPEND_KEY_TYPE 0
#define APPEND_VALUE_TYPE 1
#define APPEND_QUERY_TYPE 2
#define APPEND_TO_KEY_TYPE 3
#define APPEND_TO_VALUE_TYPE 4
#define APPEND_LANES 5
#define APPEND_KIND 6 /* the only kind of the pass, or APPEND_KINDS: any, by workgroup */
#define APPEND_KINDS 3
#define APPEND_TO_QUERY_TYPE 7 /* of rotated queries */
#define APPEND_SPECS 8

#ifndef VULKAN
_Static_assert(sizeof(struct cache_params) <= 128, "push constants");
_Static_assert(sizeof(struct matmul_params) <= 128, "push constants");
_Static_assert(sizeof(struct softmax_params) <= 128, "push constants");
_Static_assert(sizeof(struct copy_params) <= 128, "push constants");
_Static_assert(sizeof(struct attention_map_params) <= 128, "push constants");
_Static_assert(sizeof(struct rope_params) <= 128, "push constants");
#endif

#undef U32
#undef I32
#undef F32
#undef STRUCT
#endif
