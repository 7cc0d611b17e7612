/* Caches, shared by C and GLSL. */
#ifndef VKA_PARAMS_CACHE_H
#define VKA_PARAMS_CACHE_H

#include "params/begin.h"

/* ---- cache: appending rows to a cache, and making the dense view of a paged one -----------------
 * State u32 [3][batch]: lengths; lengths before this run; 1 where a run had no room. Then u32
 * [batch + 1]: q_start of a ragged step.
 * cache_advance: one invocation per sequence; n_row: new rows; from_: n_append, see `append`. Buffers: 0 state,
 * 1 page table, 2 running ticket u32 [2], 3 first ticket without room u32 [batch][2]; first word 0:
 * none, 4 n_append i32 [batch] or [1], 5 q_start.
 * cache_gather copies rows row_first .. row_first + n_row - 1 of a paged cache, one invocation per
 * element, or with CACHE_PAIRS two neighbours, of [batch][n_head][n_row][dim]. Buffers: 0 from, 1 to,
 * 2 state, 3 page table.
 * Ragged: rows of `batch` sequences are packed, [1][n_head][n_row][dim]; sequence s has rows
 * q_start[s] .. q_start[s + 1] - 1 of all packed rows. */
struct cache_params {
    U32 batch, n_row, dim, capacity;
    U32 from_offset, from_batch, from_head, from_row, from_col;
    U32 to_offset, to_batch, to_head, to_row, to_col;
    U32 state_offset;
    U32 page_size, table_offset, table_row, n_page; /* page_size 0: not paged */
    U32 row_first;                                  /* first of the n_row rows */
    U32 n_sequence, q_start_offset; /* ragged: see below; n_sequence 0: not ragged */
    U32 append;                     /* of cache_advance: APPEND_ALL, APPEND_ONE or APPEND_EACH */
    U32 scale_offset;               /* of cache_quantise: see below */
};
#define APPEND_ALL 0  /* n_row for each sequence */
#define APPEND_ONE 1  /* n_append[0] */
#define APPEND_EACH 2 /* n_append[sequence] */
/* cache_quantise: one invocation per block of [batch][n_head][n_row][dim in blocks]; appends as many
 * rows as the lengths grew by. Buffers as cache_gather, and 4 q_start. A quantised cache: integers of
 * all rows, which are whole blocks, then their scales, float16 [row][block]. to_ counts values;
 * scale_offset is the first scale, counted in float16. Q8_0: value i of a word is its byte i, an int8;
 * Q4_0: its 4 bits i, less 8. F8_E4M3: value i is byte i, and behind the rows lie float32 scales
 * [n_head] and float32 1 / scale [n_head]; the first scale is counted in words, for attention that of
 * the pass's first head, and scale_offset is 1 / scale of the pass's first head. */
#define CACHE_BLOCK 32
#define CACHE_Q8_STEP 0.00787401574803149606 /* 1 / 127 */
#define CACHE_FROM_TYPE 0
#define CACHE_TO_TYPE 1
#define CACHE_PAIRS 2 /* of cache_gather: two neighbours are a whole word where they go */
#define CACHE_SPECS 3

/* ---- cache_append: new keys and values to their places, keys and queries rotated first ----------
 * Appends as many rows as the lengths grew by. Grid: for `each` rows their pairs of features along
 * x; n_key heads of keys, then n_value of values, then those of queries along y; batch elements along
 * z. Buffers: 0 queries, 1 keys, 2 values, 3 rotated queries, 4 cached keys, 5 cached values, 6 state
 * and page table, 7 these parameters, then frequencies as of rope. */
struct append_rows { /* rows of a cache and rotated ones are contiguous */
    U32 from_offset, from_batch, from_head, from_row, from_col;
    U32 to_offset, to_batch, to_head, to_row;
};
struct append_params {
    STRUCT(append_rows) rows[3]; /* APPEND_KEY, APPEND_VALUE, APPEND_QUERY */
    U32 n_row, each;             /* rows of an invocation */
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
#define APPEND_PAIRS \
    8 /* what is stored is float32, or whole words of two neighbours; four an item */
#define APPEND_SPECS 9

#ifndef VULKAN
_Static_assert(sizeof(struct cache_params) <= 128, "push constants");
#endif

#include "params/end.h"
#endif
