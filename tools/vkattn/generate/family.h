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
    bool interleaved; /* pairs of the rotary embedding, see vkattn_io.h */
    bool alibi;       /* in place of it */
    bool learned;     /* in place of it: an embedding of each position, context_length of them */
    bool layer_norm;  /* norms with biases, and not those of the root of the mean square */
    bool embed_norm, norms_after; /* norms of embeddings; of what a block adds */
    bool head_norms;            /* of the heads of queries and keys, before the rotary embedding */
    bool fused_qkv, fused_gate; /* matrices that the file has as one */
    bool gated;                 /* the feed-forward has a gate, on which the activation works */
    bool squared;               /* f(x) x in place of f(x) */
    bool root_scaled;           /* embeddings are multiplied by the root of the width */
    bool gemma_scale; /* scores of 46 and 62 blocks are scaled by width / n_head, not head_dim */
    bool four_widths; /* the feed-forward, where the file does not say its width */
    enum vka_activation activation;
    /* Keys that a position sees, 0: all; but each full_every-th block sees all, 0: none does. */
    struct family_number window, full_every;
    struct family_number softcap, logit_softcap; /* 0: none */
    struct family_number
        local_theta;    /* base of the rotary embedding of blocks with a window, 0: no other */
    const char *unless; /* a key that has to be false where it is there */
    const char *inert;  /* a key without effect, beside context_length */
};

/* The family of a file's general.architecture. NULL, with a sentence that lists them, where it is none of
 * them. */
const struct family *family_of(const struct vka_gguf *file, char why[VKA_IO_ERROR_SIZE]);

#endif
