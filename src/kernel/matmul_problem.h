/* A matrix product, the kernel that is chosen for it, and the operands of its pipeline. */
#ifndef VKA_KERNEL_MATMUL_PROBLEM_H
#define VKA_KERNEL_MATMUL_PROBLEM_H

#include "kernel/tune.h"

struct matmul_problem {
    uint64_t batch; /* matrices of all batch elements and heads */
    uint32_t m, n, k;
    enum vka_dtype a_type, b_type;
    bool a_plain; /* A is float32 with contiguous rows, and plan_is_ours */
    bool a_vec;   /* A can be read as vec4 along k: float32, contiguous, 16-byte aligned rows */
    bool b_vec;   /* B can be read as vec4 along n: float32, contiguous, 16-byte aligned columns */
    uint32_t b_tile; /* columns of a tile of packed B; 0: not packed */
    bool a_vectors;  /* rows of A are whole, aligned vectors of 16 bytes along k */
    bool b_vectors;  /* columns of B are */
    bool quantised;  /* B is, in contiguous rows */
    /* Rows of quantised B are whole bundles, see BUNDLE_PAIR_WORDS, of whole words; 2: of whole vectors. */
    uint32_t b_bundles;
    uint32_t b_halves; /* 1: rows of q6_K are whole blocks; 2: of aligned vectors, too */
    bool b_words;      /* rows of quantised B begin at whole words */
    bool b_ours;       /* plan_is_ours(B) */
    bool c_free;       /* C is float32, and nothing is added to it */
    bool hidden;       /* A may hold HIDDEN_BITS */
    bool integers;     /* A is quantised first: matmul_dot */
    /* n or k is the capacity of a cache, where the bits of a row may not depend on either: the family is
     * that of many. */
    bool cached;
    /* 0: the size that the rules prefer. 1, 2, ...: other sizes of the same kernel, to be measured;
     * a rule without that variant takes size 0. */
    uint32_t variant;
};

struct matmul_choice {
    enum kernel kernel;
    uint32_t b_tile; /* columns of a tile: B is packed first unless it is already; 0: B as it is */
    bool pack_a;     /* copy A to contiguous float32 rows first; matmul_dot: quantise it */
    uint32_t tile_m, tile_n; /* matmul_tile: results of an invocation, per axis */
    uint32_t side;           /* matmul_tile: invocations, per axis */
    uint32_t lanes;          /* matmul_few, matmul_lane and matmul_coop: invocations */
    uint32_t vectors;        /* matmul_few: of B that an invocation reads at a time */
    uint32_t own_columns;    /* matmul_few: of an invocation */
    uint32_t mats_m, mats_n; /* matmul_coop: matrices of a subgroup, per axis */
    uint32_t subs_m, subs_n; /* matmul_coop: subgroups with matrices, per axis */
    uint32_t subgroup;       /* matmul_coop: lanes of a subgroup */
    uint32_t depth;          /* matmul_coop: k of a tile in shared memory */
    bool halves;     /* matmul_coop: half of those is stored while the other is multiplied */
    uint32_t a_rows; /* matmul_coop: rows of A that are loaded */
    struct matrix_size size; /* matmul_coop */
    uint32_t rows, columns;  /* results of one workgroup */
    bool a_vec;              /* wide loads */
    uint32_t b_vec;          /* the same; matmul_coop: MATMUL_COOP_B_VEC */
    const char *reason;
    char problem[PROFILE_PROBLEM]; /* set by choose.h */
};

/* What a pipeline needs to know of the operands. */
struct matmul_operands {
    enum vka_dtype a_type, b_type, c_type;
    uint32_t bias_type; /* BIAS_NONE: no bias */
    bool relu, hidden;
    uint32_t sums; /* SUMS_ bits */
    uint32_t m, n, k;
    bool c_vectors; /* rows of C are whole, aligned vectors of 16 bytes */
    bool c_pairs;   /* pairs of neighbours of C are whole words of 16-bit elements */
};

/* Whether a kernel is one of those for quantised B by address. */
static inline bool matmul_reads_blocks(enum kernel kernel)
{
    return kernel == KERNEL_matmul_block || kernel == KERNEL_matmul_bytes;
}

#endif
