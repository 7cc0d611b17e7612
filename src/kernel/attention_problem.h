/* A problem of fused attention, the kernel that is chosen for it, and the operands of its pipeline. */
#ifndef VKA_KERNEL_ATTENTION_PROBLEM_H
#define VKA_KERNEL_ATTENTION_PROBLEM_H

#include "kernel/tune.h"

struct attention_problem {
    uint32_t batch, n_kv_head;
    uint64_t n_row; /* queries times the heads of one key head; ragged: of a sequence */
    uint32_t n_kv, head_dim, value_dim;
    enum vka_dtype q_type, kv_type; /* kv_type: of k */
    enum vka_dtype v_type, o_type;
    uint32_t variant; /* see matmul_problem */
    bool address;     /* rows of q, k and v are whole vec4 */
    bool ragged;      /* n_kv counts the packed keys of all sequences together */
    bool mask;        /* a mask tensor is given, of dense rows */
    bool
        cached; /* n_kv is the capacity of a cache: the bits may not depend on it, nor on the batch */
};

struct attention_choice {
    bool usable;    /* false: the device has no kernel; see reason */
    bool preferred; /* VKA_PATH_AUTO takes it; else the unfused path */
    enum kernel kernel;
    enum vka_dtype q_type, k_type, v_type, o_type; /* for which it is; set for every kernel */
    uint32_t lanes, rows;   /* invocations (along x if lanes_y is set), rows of each */
    uint32_t tile;          /* rows of a workgroup */
    uint32_t head4, value4; /* vec4 of a row of q and of the context */
    /* attention_tile; attention_coop and _coop2 too, except depth4, v_keys and q_whole */
    uint32_t lanes_y;
    uint32_t keys;           /* keys of a step */
    uint32_t depth4, v_keys; /* vec4 of a key, and values, staged at a time */
    uint32_t
        n_feature_tile;  /* workgroups that share a row's value features; set for every kernel */
    uint32_t n_split;    /* splits of the keys; 1: no merging; set for every kernel */
    uint32_t split_keys; /* keys of a split: whole steps, TUNE_CHAIN at most */
    bool q_whole;        /* q stays in shared memory */
    bool own_words;      /* attention_feature: lanes load their own words */
    bool map;            /* attention_map runs before */
    uint32_t ahead;      /* attention_coop, _coop2: AHEAD_ bits of params.h */
    uint32_t columns;    /* attention_coop: subgroups that share rows */
    struct matrix_size size;   /* attention_coop; _coop2: m is the rows of a subgroup, k equals n */
    uint32_t k_fours, v_fours; /* attention_decode: vec4 of 16 bytes of a key, of a value */
    uint32_t batch;            /* of it: loads at a time */
    const char *reason;
    char problem[PROFILE_PROBLEM]; /* set by choose.h */
};

/* What a pipeline and its cost need to know of the operands and options. */
struct attention_operands {
    enum vka_dtype q_type, k_type, v_type, o_type;
    uint32_t head_dim, value_dim;
    bool k_vec, v_vec;         /* rows begin and end at whole vec4 */
    bool k_vectors, v_vectors; /* rows begin and end at whole vectors of 8 elements */
    bool bias, dropout;        /* bias: a mask tensor, softcap or ALiBi */
    bool reads_masked;         /* a fully masked row reads all values */
    bool ragged, paged;
    bool log_sum; /* the log-sum-exp of each row is returned */
};

#endif
