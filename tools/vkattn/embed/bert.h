/* The weights of a BERT, a Nomic BERT or the encoder of a T5 on the device, in the types of its files.
 * SPDX-License-Identifier: MIT */
#ifndef EMBED_BERT_H
#define EMBED_BERT_H

#include <vkattn/vkattn_io.h>

struct bert_linear {
    struct vka_tensor *weight, *bias; /* [out][in], [out] */
};

struct bert_block {
    struct bert_linear q, k, v, o, up, down;
    struct bert_linear gate;            /* of a gated feed-forward */
    struct bert_linear attn_norm, norm; /* vectors of width */
};

struct bert {
    uint32_t width, n_block, n_head, head_dim, ffn_width, n_token, n_position;
    uint32_t n_bucket; /* of t5: of distances, each with a bias of a head's scores; else 0 */
    bool gated;        /* the feed-forward of nomic, and of some t5 */
    /* Positions by a rotary embedding, one matrix for q, k and v, a gate, no biases. */
    bool nomic;
    float rope_base; /* of nomic */
    float epsilon;
    bool first_row; /* what the file says of the embedding: its first row; else the mean of all */
    struct vka_tensor *tokens, *positions, *types; /* [n_token], [n_position], [n_type][width] */
    struct vka_tensor *distances;                  /* [n_bucket][n_head] of t5 */
    struct bert_linear norm;   /* of the embeddings; of t5 behind the last block */
    struct bert_block *blocks; /* [n_block] */
};

/* Opens a folder with config.json and model.safetensors of the model_type "bert", or a GGUF file of
 * that architecture, of nomic-bert or of t5encoder, and uploads the weights. What the files have and
 * this does not compute is refused. On failure *why says it, where the device has no sentence;
 * bert_free accepts what was loaded until then. */
enum vka_status bert_load(struct vka_device *device, const char *path, struct bert *bert,
                          char why[VKA_IO_ERROR_SIZE]);
void bert_free(struct bert *bert);

#endif
