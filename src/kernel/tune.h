/* Rules that choose kernels and tiles: pure functions of caps and the problem, tested without a
 * GPU. */
#ifndef VKA_KERNEL_TUNE_H
#define VKA_KERNEL_TUNE_H

#include "gpu/caps.h"
#include "gpu/verdict.h"

/* Most terms of a float32 sum. Longer sums are made of pieces of TUNE_CHAIN terms, added pairwise,
 * so that errors do not grow with length. The pieces depend on k or the number of keys alone. */
#define TUNE_CHAIN 16384u

struct matmul_problem {
    uint64_t batch; /* matrices of all batch elements and heads */
    uint32_t m, n, k;
    enum vka_dtype a_type, b_type;
    bool a_plain; /* A is float32 with contiguous rows, and plan_is_ours */
    bool a_vec;   /* A can be read as vec4 along k: float32, contiguous, 16-byte aligned rows */
    bool b_vec;   /* B can be read as vec4 along n: float32, contiguous, 16-byte aligned columns */
    uint32_t panel; /* columns of a panel of packed B; 0: not packed */
    bool a_chunks;  /* A is 16-bit, contiguous along k, rows 16-byte aligned, k a multiple of 8 */
    bool b_chunks; /* B is 16-bit, contiguous along k, columns 16-byte aligned, k a multiple of 8 */
    bool hidden;   /* A may hold HIDDEN_BITS */
    /* 0: the size that the rules prefer. 1, 2, ...: other sizes of the same kernel, to be measured;
     * a rule without that variant takes size 0. */
    uint32_t variant;
};

struct matmul_choice {
    enum kernel kernel;
    uint32_t panel; /* columns of a panel: B is packed first unless it is already; 0: B as it is */
    bool pack_a;    /* copy A to contiguous float32 rows first */
    uint32_t tile_m, tile_n; /* matmul_tile: results of an invocation, per axis */
    uint32_t side;           /* matmul_tile: invocations, per axis */
    uint32_t lanes;          /* matmul_lane and matmul_coop: invocations */
    uint32_t mats_m, mats_n; /* matmul_coop: matrices of a subgroup, per axis */
    struct matrix_size size; /* matmul_coop */
    uint32_t rows, columns;  /* results of one workgroup */
    bool a_vec, b_vec;       /* matmul_lane and matmul_coop: wide loads */
    const char *reason;
    char problem[VERDICT_PROBLEM]; /* set by choose.h */
};

void tune_matmul(const struct caps *caps, const struct matmul_problem *problem,
                 struct matmul_choice *choice);

/* Loop iterations of an invocation for a chain of k, unrolled ones included. */
double tune_matmul_loops(const struct matmul_choice *choice, double k);

/* The kernel for packed B; KERNEL_COUNT: none. */
enum kernel tune_packed_kernel(const struct caps *caps);

/* Columns of a panel if weights are best kept packed (params.h); 0: not packed. */
uint32_t tune_weight_panel(const struct caps *caps);

/* Whether unpacked weights are best kept as [in][out]. */
bool tune_transposes_weights(const struct caps *caps);

struct attention_problem {
    uint32_t batch, n_kv_head;
    uint64_t n_row; /* queries times the heads of one key head */
    uint32_t n_kv, head_dim, value_dim;
    enum vka_dtype q_type, kv_type; /* kv_type: of k */
    enum vka_dtype v_type, o_type;
    uint32_t variant; /* see matmul_problem */
    bool address;     /* rows of q, k and v are whole vec4 */
    bool ragged;      /* n_row and n_kv count all sequences together */
    bool mask;        /* a mask tensor is given */
};

struct attention_choice {
    bool usable;    /* false: the device has no kernel; see reason */
    bool preferred; /* VKA_PATH_AUTO takes it; else the unfused path */
    enum kernel kernel;
    uint32_t lanes, rows;   /* invocations (along x if lanes_y is set), rows of each */
    uint32_t tile;          /* rows of a workgroup */
    uint32_t head4, value4; /* vec4 of a row of q and of the context */
    /* attention_tile; attention_coop too, except lanes_y, depth4, v_keys and q_whole */
    uint32_t lanes_y;
    uint32_t keys;           /* keys of a step */
    uint32_t depth4, v_keys; /* vec4 of a key, and values, staged at a time */
    uint32_t n_chunk;    /* workgroups that share a row's value features; set for every kernel */
    uint32_t n_piece;    /* splits of its keys; 1: no merging; set for every kernel */
    uint32_t piece_keys; /* keys of a split: whole steps, TUNE_CHAIN at most */
    bool q_whole;        /* q stays in shared memory */
    bool map;            /* attention_map runs before */
    struct matrix_size size; /* attention_coop */
    const char *reason;
    char problem[VERDICT_PROBLEM]; /* set by choose.h */
};

/* Whether a kernel computes on matrix units; whether it takes tiles of rows in shared memory. */
bool tune_is_coop(enum kernel kernel);
bool tune_takes_tiles(enum kernel kernel);

/* Chooses the fused kernel for a problem. */
void tune_attention(const struct caps *caps, const struct attention_problem *problem,
                    struct attention_choice *choice);

/* Sets the sizes of attention_tile, which never depend on other sequences of the batch. False where
 * shared memory is too small. */
bool tune_attention_tile(const struct caps *caps, const struct attention_problem *problem,
                         struct attention_choice *choice);

/* Bytes of shared memory that attention_tile takes. */
uint64_t tune_attention_shared(const struct attention_choice *choice);

/* Sets the sizes of attention_coop; false where shared memory, types or sizes do not suit it. */
bool tune_attention_coop(const struct caps *caps, const struct attention_problem *problem,
                         struct attention_choice *choice);
uint64_t tune_attention_coop_shared(const struct attention_choice *choice);

/* Most rows of decoding, where each key read gives little work: steps are wide, and every lane has
 * keys of its own. */
#define TUNE_FEW_ROWS 16u

/* Splits the keys until the assumed number of processors has work: sets n_piece and piece_keys of a
 * choice that has tile and keys. */
void tune_cut_keys(const struct caps *caps, const struct attention_problem *problem,
                   struct attention_choice *choice);

struct softmax_choice {
    enum kernel kernel;
    uint32_t lanes; /* invocations of a row, a power of two */
    const char *reason;
};

void tune_softmax(const struct caps *caps, uint32_t n_kv, struct softmax_choice *choice);

#endif
