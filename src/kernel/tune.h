/* Which kernel and tile: pure functions of caps and the problem, tested without a GPU. */
#ifndef VKA_KERNEL_TUNE_H
#define VKA_KERNEL_TUNE_H

#include "gpu/caps.h"
#include "gpu/verdict.h"

/* Terms of a float32 sum at most. More are pieces of so many, summed by themselves and then
 * pairwise: errors do not grow with length, and the pieces follow from k or the number of keys
 * alone. */
#define TUNE_CHAIN 16384u

struct matmul_problem {
    uint64_t batch; /* matrices, of all heads */
    uint32_t m, n, k;
    enum vka_dtype a_type, b_type;
    bool a_plain;   /* A is float32 with contiguous rows, in memory of our own */
    bool a_vec;     /* A can be read as vec4 along k: float32, contiguous, 16-byte aligned rows */
    bool b_vec;     /* B can be read as vec4 along n, likewise */
    uint32_t panel; /* columns of a panel of packed B; 0: B is not packed */
    bool a_chunks;  /* A is 16-bit, contiguous along k, rows 16-byte aligned, k a multiple of 8 */
    bool b_chunks;  /* B likewise */
    bool hidden;    /* A may hold HIDDEN_BITS */
    /* 0: what the rules prefer. 1, 2, ...: other sizes of the same kernel, for what measures them;
     * a rule that has no such variant gives what it gives for 0. */
    uint32_t variant;
};

struct matmul_choice {
    enum kernel kernel;
    uint32_t
        panel;   /* columns of a panel of B, which is packed first where it is not; 0: as it lies */
    bool pack_a; /* copy A to contiguous float32 rows first */
    uint32_t tile_m, tile_n; /* matmul_tile: results an invocation, per axis */
    uint32_t side;           /* matmul_tile: invocations, per axis */
    uint32_t lanes;          /* matmul_lane and matmul_coop: invocations */
    uint32_t mats_m, mats_n; /* matmul_coop: matrices a subgroup, per axis */
    struct matrix_size size; /* matmul_coop */
    uint32_t rows, columns;  /* results of one workgroup */
    bool a_vec, b_vec;       /* matmul_lane and matmul_coop: wide loads */
    const char *reason;
    char problem[VERDICT_PROBLEM]; /* set by choose.h */
};

void tune_matmul(const struct caps *caps, const struct matmul_problem *problem,
                 struct matmul_choice *choice);

/* Loop iterations of an invocation for a chain of k, those that compilers unroll counted too. */
double tune_matmul_loops(const struct matmul_choice *choice, double k);

/* The kernel for packed B; KERNEL_COUNT: none. */
enum kernel tune_packed_kernel(const struct caps *caps);

/* The columns of a panel where weights are best kept packed (params.h); 0: they are not. */
uint32_t tune_weight_panel(const struct caps *caps);

/* Whether weights that are not packed are best kept as [in][out]. */
bool tune_transposes_weights(const struct caps *caps);

struct attention_problem {
    uint32_t batch, n_kv_head;
    uint64_t n_row; /* queries times heads that share a key head */
    uint32_t n_kv, head_dim, value_dim;
    enum vka_dtype q_type, kv_type; /* kv_type: of the keys */
    enum vka_dtype v_type, o_type;
    uint32_t variant; /* as of a matmul_problem */
    bool address;     /* rows of q, k and v are whole vec4 */
    bool ragged;      /* n_row and n_kv are of all sequences together */
    bool mask;        /* a mask tensor is given */
};

struct attention_choice {
    bool usable;    /* false: this device cannot; reason says why */
    bool preferred; /* what VKA_PATH_AUTO takes; else the unfused path */
    enum kernel kernel;
    uint32_t lanes, rows;   /* invocations (of an axis where lanes_y is), and rows an invocation */
    uint32_t tile;          /* rows of a workgroup */
    uint32_t head4, value4; /* vec4 of a row of q and of the context */
    /* attention_tile, and where it says so attention_coop */
    uint32_t lanes_y;
    uint32_t keys; /* of a step; attention_coop too, and all but depth4 and q_whole below */
    uint32_t depth4, v_keys; /* vec4 of each key, and values, staged at a time */
    uint32_t n_chunk;    /* workgroups for a row's value features; of every kernel, like pieces */
    uint32_t n_piece;    /* and for its keys; 1: no merging */
    uint32_t piece_keys; /* whole steps, TUNE_CHAIN at most */
    bool q_whole;        /* q stays in shared memory */
    bool map;            /* attention_map runs before */
    struct matrix_size size; /* attention_coop */
    const char *reason;
    char problem[VERDICT_PROBLEM]; /* set by choose.h */
};

/* Whether a kernel computes with matrix units, and whether it takes tiles of rows in shared memory.
 * */
bool tune_is_coop(enum kernel kernel);
bool tune_takes_tiles(enum kernel kernel);

/* The fused kernel for a problem. */
void tune_attention(const struct caps *caps, const struct attention_problem *problem,
                    struct attention_choice *choice);

/* The part of tune_attention for attention_tile: its sizes, which depend on nothing that other
 * sequences of the batch could change. False where shared memory is too small. */
bool tune_attention_tile(const struct caps *caps, const struct attention_problem *problem,
                         struct attention_choice *choice);

/* Bytes of shared memory that attention_tile takes. */
uint64_t tune_attention_shared(const struct attention_choice *choice);

/* The same for attention_coop; false also where types or sizes are not for it. */
bool tune_attention_coop(const struct caps *caps, const struct attention_problem *problem,
                         struct attention_choice *choice);
uint64_t tune_attention_coop_shared(const struct attention_choice *choice);

/* Up to so many rows (decoding) the keys are read for little work each: wide steps, every lane busy
 * with keys of its own. */
#define TUNE_FEW_ROWS 16u

/* Cuts the keys into pieces until the processors assumed have work: n_piece and piece_keys of a
 * choice that has its tile and keys. */
void tune_cut_keys(const struct caps *caps, const struct attention_problem *problem,
                   struct attention_choice *choice);

struct softmax_choice {
    enum kernel kernel;
    uint32_t lanes; /* invocations a row, a power of two */
    const char *reason;
};

void tune_softmax(const struct caps *caps, uint32_t n_kv, struct softmax_choice *choice);

#endif
