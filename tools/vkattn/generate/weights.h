/* What a decoder holds: its sizes, and its weights on the device in the types of its GGUF file.
 * SPDX-License-Identifier: MIT */
#ifndef GENERATE_WEIGHTS_H
#define GENERATE_WEIGHTS_H

#include "family.h"

#define DECODER_MOST_STACKED 3

/* A matrix [out][in] or the weights of a norm, and their bias or NULL. */
struct affine {
    struct vka_tensor *weight, *bias;
};

/* Queries, keys and values are products of one input, gate and up of another: neighbours of one type
 * are one tensor, one matrix below the other. It stands in the place of the first; the others are
 * NULL, as is what the family has not. */
struct decoder_block {
    struct affine attn_norm, attn_after, ffn_norm, ffn_after;
    struct affine qkv[DECODER_MOST_STACKED], o;
    struct affine gate_up[2], down;
    struct affine q_norm, k_norm; /* [head_dim], or of all heads */
};

struct decoder {
    const struct family *family;
    uint32_t width, n_block, n_head, n_kv_head, head_dim, ffn_width, n_token, rope_dim;
    uint32_t n_position;                          /* 0: any number */
    uint32_t window, full_every, unrotated_every; /* as those of the family */
    bool *full;    /* [n_block]: sees all keys, by the file; or NULL */
    bool parallel; /* as the family's */
    float rope_base, local_base, epsilon, scale; /* local_base 0: no other; scale 0: the default */
    float softcap, logit_softcap, embed_scale;   /* 0: none */
    float norm_factor;                           /* of the last norm's weight and bias; 0: none */
    double *frequencies;                         /* [rope_dim / 2] in place of rope_base; or NULL */
    struct vka_tensor *alibi, *cap;              /* [n_head]; [1], logit_softcap; or NULL */
    struct vka_tensor *residual_scale;           /* [1], of what a block adds, or NULL */
    struct vka_tensor *positions;                /* [n_position][width], or NULL */
    struct vka_tensor *embedding;
    struct affine head; /* its weight is the embedding where they are tied */
    struct affine embed_norm, norm;
    struct decoder_block *blocks; /* [n_block] */
};

#endif
