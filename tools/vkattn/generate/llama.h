/* The weights of a Llama on the device, in the types of its GGUF file. SPDX-License-Identifier: MIT */
#ifndef GENERATE_LLAMA_H
#define GENERATE_LLAMA_H

#include <vkattn/vkattn_io.h>

#define LLAMA_MOST_PARTS 3

/* Matrices are [out][in]. Queries, keys and values are products of one input, gate and up of
 * another: neighbours of one type are one tensor, one matrix below the other. It stands in the place
 * of the first; the others are NULL. */
struct llama_block {
    struct vka_tensor *attn_norm, *ffn_norm; /* [width] */
    struct vka_tensor *qkv[LLAMA_MOST_PARTS], *o;
    struct vka_tensor *gate_up[2], *down;
};

struct llama {
    uint32_t width, n_block, n_head, n_kv_head, head_dim, ffn_width, n_token;
    float rope_base, epsilon;
    bool interleaved;                           /* pairs of the rotary embedding, see vkattn_io.h */
    struct vka_tensor *embedding, *norm, *head; /* head: the embedding where they are tied */
    struct llama_block *blocks;                 /* [n_block] */
};

/* Opens a file of the architecture "llama" and uploads its weights. On failure *why says it, where
 * the device has no sentence; llama_free accepts what was loaded until then. */
enum vka_status llama_load(struct vka_device *device, const char *path, struct llama *llama,
                           char why[VKA_IO_ERROR_SIZE]);
void llama_free(struct llama *llama);

#endif
