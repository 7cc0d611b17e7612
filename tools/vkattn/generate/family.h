/* How decoders of a GGUF file compute, by general.architecture: the rows of families.def.
 * SPDX-License-Identifier: MIT */
#ifndef GENERATE_FAMILY_H
#define GENERATE_FAMILY_H

#include <vkattn/vkattn_io.h>
#include <vkattn/vkattn_model.h>

/* A number: the file's key behind the architecture's name, or what stands for it where the file has
 * not that key. name NULL: no key says it. */
struct family_number {
    const char *name;
    double value;
};

struct family {
    const char *name;
    /* Positions: pairs of the rotary embedding, see vkattn_io.h; in its place slopes of ALiBi, or an
     * embedding of each position, context_length of them. */
    bool interleaved, alibi, learned;
    /* Norms: by mean and variance, not by the root of the mean square; with biases; without weights.
     * They stand behind the embedding, before what a block computes, and on what it adds. */
    bool layer_norm, norm_bias, plain_norms;
    bool embed_norm, norms_before, norms_after;
    /* Norms of each head of queries and keys before they are rotated; of all heads in one. */
    bool head_norms, joint_norms;
    bool fused_qkv, fused_gate; /* matrices that the file has as one */
    bool head_bias;             /* logits have a bias, where the file has one */
    bool gated;                 /* the feed-forward has a gate, on which the activation works */
    bool squared;               /* f(x) x in place of f(x) */
    bool parallel, one_norm;    /* the feed-forward reads what attention does; by its norm */
    bool root_scaled;           /* embeddings are multiplied by the root of the width */
    bool gemma_scale; /* scores of 46 and 62 blocks are scaled by width / n_head, not head_dim */
    bool four_widths; /* the feed-forward, where the file does not say its width */
    /* Blocks that see all keys are not rotated, where others have a window; which there has to be. */
    bool full_unrotated, needs_window;
    enum vka_activation activation;
    /* Keys that a position sees, 0: all; but each full_every-th block sees all, 0: none does. */
    struct family_number window, full_every;
    struct family_number unrotated_every; /* each so many blocks the last is not rotated; 0: none */
    struct family_number softcap, logit_softcap;             /* 0: none */
    struct family_number embed_scale, scale, residual_scale; /* factors; 0: none, or the default */
    struct family_number logit_scale, logit_divisor;
    struct family_number
        local_theta; /* base of the rotary embedding of blocks with a window, 0: no other */
    /* Keys: a bool that says whether the feed-forward is parallel; without which it is not known what
     * is computed; that has to be false, or this number, or this text, where it is there; without
     * effect, beside context_length. */
    const char *parallel_key, *needed, *unless;
    struct family_number only;
    const char *only_text, *text, *inert;
    const char *ffn_norm; /* the tensor of the norm before the feed-forward; NULL: ffn_norm */
};

/* The family of a file's general.architecture. NULL, with a sentence that lists them, where it is none of
 * them. */
const struct family *family_of(const struct vka_gguf *file, char why[VKA_IO_ERROR_SIZE]);

#endif
