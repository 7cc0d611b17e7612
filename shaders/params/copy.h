/* Copies, counts and the probe of loops, shared by C and GLSL. */
#ifndef VKA_PARAMS_COPY_H
#define VKA_PARAMS_COPY_H

#include "params/begin.h"

/* ---- loop_probe: x = x * LOOP_PROBE_FACTOR + 1, n times. Buffers: 0 x ------------------------ */
struct loop_probe_params {
    U32 n;
};
#define LOOP_PROBE_FACTOR 1664525u

/* ---- copy between strided 4-D tensors, with conversion -----------------------------------------
 * Grid: COPY_LANES elements of axis 3, or with COPY_PAIRS pairs, along x, COPY_EACH of axis 2 along y,
 * the outer two axes along z.
 * Buffers: 0 source, 1 destination. */
struct copy_params {
    U32 shape0, shape1, shape2, shape3;
    U32 from_offset, from0, from1, from2, from3;
    U32 to_offset, to0, to1, to2, to3;
    U32 tile, to_tile; /* elements of a tile of axis 2, and from tile to tile */
};
#define COPY_FROM_TYPE 0
#define COPY_TO_TYPE 1
#define COPY_PAIRS 2 /* two neighbours are a whole word where they go, and an element above */
#define COPY_SPECS 3
#define COPY_EACH 16 /* elements of axis 2 an invocation copies; a tile is a multiple */
#define COPY_LANES 32

/* ---- hadamard: rows times a Hadamard matrix, block by block -------------------------------------
 * Grid: HADAMARD_LANES features of axes 2 and 3 along x, axis 1 along y, axis 0 along z. Buffers:
 * 0 source, 1 destination, 2 q_start; rows outside all sequences are not written. */
struct hadamard_params {
    U32 n_row, head_dim; /* axes 2 and 3 */
    U32 from_offset, from_batch, from_head, from_row, from_col;
    U32 to_offset, to_batch, to_head, to_row, to_col;
    U32 block;                                 /* features */
    F32 factor;                                /* 1 / sqrt(block) */
    U32 n_sequence, q_start_offset, row_first; /* as in rope_params */
};
#define HADAMARD_FROM_TYPE 0
#define HADAMARD_TO_TYPE 1
#define HADAMARD_PAIRS 2 /* two neighbours are a whole word where they go */
#define HADAMARD_SPECS 3
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

#ifndef VULKAN
_Static_assert(sizeof(struct copy_params) <= 128, "push constants");
#endif

#include "params/end.h"
#endif
