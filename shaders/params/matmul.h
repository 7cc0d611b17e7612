/* Products, and what comes before and after them, shared by C and GLSL. */
#ifndef VKA_PARAMS_MATMUL_H
#define VKA_PARAMS_MATMUL_H

#include "params/begin.h"
#include "params/types.h"

/* Weight that softmax writes for a hidden key: the bits of -0.0, which no real weight has. The
 * weighted sum skips it, so that NaN in a hidden value never reaches the result. */
#define HIDDEN_BITS 0x80000000u

/* ---- matmul: C[z][m][n] = alpha * sum over k of f(A[z][m][k]) * B[z'][n][k] + bias[n] ----------
 * With SUMS_ADD that is added to C.
 * z is batch z / n_head and head z % n_head; z' is the same batch and head / group. Packed B:
 * float32 tiles of neighbouring columns, [tile][k][column of the tile], padded with any value.
 * Where k is cut, a pass starts from the sums of the pass before: float32 [batch][n_head][m][n][2],
 * of whole groups of k and of the group after them (matmul_coop: [batch][n_head][m][n]). Quantised
 * B: offset and strides count bytes, b_col is not read, and with SUMS_SCALE column n is multiplied by
 * scale[n]. Buffers: 0 A, 1 B, 2 bias, 3 C, 4 sums, and for kernels that read quantised B 5 scale,
 * of those for GPUs 6 the grid of B's type. */
struct matmul_params {
    U32 a_low, a_high, b_low, b_high; /* of A and B, for kernels that read by address */
    U32 m, n, k;
    F32 alpha;
    U32 n_head, group;
    U32 a_offset, a_batch, a_head, a_row, a_col;
    U32 b_offset, b_batch, b_head, b_row, b_col; /* b_row steps n, or tiles of B; b_col steps k */
    U32 c_offset, c_batch, c_head, c_row, c_col;
    U32 bias_offset;
    U32 scale_offset;
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
#define MATMUL_TILE_A_VEC 11 /* rows of A are whole, aligned vectors of 16 bytes along k */
#define MATMUL_TILE_B_VEC 12 /* columns of B are */
#define MATMUL_TILE_EDGE 13  /* k is not a multiple of TILE_DEPTH */
#define MATMUL_TILE_HELD 14  /* C is float32 and has the sums of whole groups until the end */
#define MATMUL_TILE_SPECS 15
/* matmul_few: THREADS invocations, each with a block of k of a column; THREADS / COLUMNS blocks. */
#define MATMUL_FEW_THREADS 7
#define MATMUL_FEW_ROWS 8 /* of a tile, at most FEW_TILE_ROWS */
#define MATMUL_FEW_COLUMNS 9
#define MATMUL_FEW_A_VEC 10       /* rows are whole, aligned vectors of 16 bytes along k */
#define MATMUL_FEW_B_VEC 11       /* columns are */
#define MATMUL_FEW_EDGE 12        /* k is not a multiple of the blocks of a workgroup */
#define MATMUL_FEW_VECTORS 13     /* of 16 bytes of B that an invocation reads at a time */
#define MATMUL_FEW_OWN_COLUMNS 14 /* of an invocation, with float32 A and quantised B */
#define MATMUL_FEW_PAIRS 15       /* two neighbours of C are a whole word of 16-bit elements */
#define MATMUL_FEW_SPECS 16
/* matmul_dot: A is quantised activations, its offset and strides count bytes; as matmul_few otherwise. */
#define MATMUL_DOT_THREADS 7
#define MATMUL_DOT_ROWS 8 /* of a tile, at most DOT_ROWS */
#define MATMUL_DOT_COLUMNS 9
#define MATMUL_DOT_B_VEC 10 /* rows of B are bundles, of words; 2: of aligned vectors of 16 bytes */
#define MATMUL_DOT_EDGE 11  /* k is not a multiple of the blocks of a workgroup */
#define MATMUL_DOT_OWN_COLUMNS 12
#define MATMUL_DOT_PAIRS 13 /* as of matmul_few; but not with one block of k at a time */
#define MATMUL_DOT_SPECS 14
#define DOT_ROWS 8
/* matmul_lane: one subgroup of `lanes` a workgroup. */
#define MATMUL_LANES 7
#define MATMUL_A_VEC 8 /* A is float32, a_col 1, rows 16-byte aligned: vec4 loads along k */
#define MATMUL_B_VEC 9 /* B is float32, b_row 1, columns 16-byte aligned, n a multiple of 4 */
#define MATMUL_ROWS 10 /* rows of a tile, at most LANE_ROWS */
#define MATMUL_LANE_SPECS 11
/* matmul_address, matmul_texel: the most rows of a tile, and the columns of a tile of B. */
#define ADDRESS_ROWS 6
#define ADDRESS_COLUMNS 16
#define TEXEL_ROWS 8
#define BLOCK_ROWS 8 /* matmul_block and matmul_bytes: the most rows of a tile */
#define TEXEL_COLUMNS 64
/* matmul_coop: SUBS_M x SUBS_N subgroups of LANES, each with MATS_M x MATS_N matrices of M x N
 * results, made from M x K of A and K x N of B; the others of THREADS only load. */
#define MATMUL_COOP_THREADS 7
#define MATMUL_COOP_M 8
#define MATMUL_COOP_N 9
#define MATMUL_COOP_K 10
#define MATMUL_COOP_MATS_M 11
#define MATMUL_COOP_MATS_N 12
#define MATMUL_COOP_A_VEC 13 /* a_col 1, rows 16-byte aligned, k a multiple of 8 */
/* b_col 1, columns 16-byte aligned, k a multiple of 8. Quantised B: bundles are read through shared
 * memory, as words; 2: columns are 16-byte aligned, as are DEPTH values. */
#define MATMUL_COOP_B_VEC 14
#define MATMUL_COOP_SUBS_M 15
#define MATMUL_COOP_SUBS_N 16
#define MATMUL_COOP_LANES 17
#define MATMUL_COOP_DEPTH 18  /* k of a tile in shared memory, a multiple of K */
#define MATMUL_COOP_A_ROWS 19 /* rows of A that are loaded */
#define MATMUL_COOP_EDGE 20   /* COOP_EDGE_ below */
#define MATMUL_COOP_C_VEC 21  /* c_col 1, rows of C 16-byte aligned, n and N multiples of 8 */
#define MATMUL_COOP_HALVES 22 /* halves of DEPTH, multiples of K, are stored in turn */
#define MATMUL_COOP_SPECS 23
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
    (IS_QUANT(b_type) && (a_type) == TYPE_F32 && (b_type) != TYPE_Q6_K)
#define SUMS_LOAD 1u   /* start from the sums in buffer 4, else from 0 */
#define SUMS_KEEP 2u   /* C is the sums for the next pass */
#define SUMS_OPEN 4u   /* the next pass continues the last group */
#define SUMS_GROUPS 8u /* k is longer than a group */
#define SUMS_SCALE 16u /* multiply each column by its scale */
#define SUMS_ADD 32u   /* add to what C holds, after the bias */
#define TILE_DEPTH 16
#define FEW_TILE_ROWS 16                   /* sums of an invocation */
#define FEW_WHOLE_ROWS 4                   /* most rows for which a lane holds a whole block of B */
#define FEW_PITCH(vectors) ((vectors) | 1) /* odd, so that lines start in different banks */
/* Words of the table that matmul_few has of a type: of each nibble a value, or with `half` of each byte
 * two float16, or where values are no float16 two words; of float8 each byte's. */
#define FEW_TABLE_WORDS(type, half)  \
    (IS_F8(type)              ? 256u \
     : !HAS_TABLE(type)       ? 0u   \
     : !(half)                ? 16u  \
     : (type) == TYPE_NF4_G64 ? 512u \
                              : 256u)
#define LANE_ROWS 16
#define LANE_COLUMNS 4   /* columns of a lane */
#define COOP_SUBGROUPS 8 /* most of a workgroup of matmul_coop */
#define COOP_DEPTH 32    /* least k of its tiles */

/* ---- quantise: rows of A to ACTIVATION_ blocks --------------------------------------------------
 * An invocation takes 16 neighbours along k: sixteens along x, rows along y, matrices along z.
 * Buffers: 0 A, 1 blocks. Strides of blocks are in words. */
struct quantise_params {
    U32 n_head, k, n_sixteen; /* n_sixteen: of whole blocks */
    U32 from_offset, from_batch, from_head, from_row, from_col;
    U32 to_offset, to_batch, to_head, to_row;
};
#define QUANTISE_FROM_TYPE 0
#define QUANTISE_RELU 1 /* max(x, 0) first */
#define QUANTISE_SPECS 2
#define QUANTISE_LANES 64
#define QUANTISE_VALUES 16
/* Scales below 2^-120 count as 0: half a scale, which decides a rounding, must not be subnormal. */
#define QUANTISE_LEAST 0x03800000u

/* ---- sum_splits: C[z][m][n] = alpha * sum of the splits + bias[n] -------------------------------
 * One invocation per element, or with SUM_C_PAIRS two: columns along x, rows along y, matrices along z.
 * Buffers: 0 splits float32 [n_split][batch][n_head][m][n], contiguous along n, 1 bias, 2 C. */
struct sum_params {
    U32 m, n, n_head, n_split;
    U32 split;                    /* elements from split to split */
    U32 offset, batch, head, row; /* of split 0 */
    F32 alpha;
    U32 c_offset, c_batch, c_head, c_row, c_col;
    U32 bias_offset;
};
#define SUM_C_TYPE 0
#define SUM_BIAS_TYPE 1 /* BIAS_NONE: no bias */
#define SUM_ADD 2       /* add to what C holds */
#define SUM_C_PAIRS 3   /* two neighbours of C are a whole word of 16-bit elements */
#define SUM_SPECS 4
#define SUM_LANES 64

#ifndef VULKAN
_Static_assert(sizeof(struct matmul_params) <= 128, "push constants");
#endif

#include "params/end.h"
#endif
