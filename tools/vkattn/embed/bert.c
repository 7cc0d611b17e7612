#include "bert.h"

#include "source_open.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                  \
    do {                           \
        enum vka_status s_ = call; \
        if (s_ != VKA_OK)          \
            return s_;             \
    } while (0)

static enum vka_status load_sizes(const struct source *s, struct bert *m)
{
    double epsilon = 1e-12, base = 1000;
    int64_t pooling = 0, tokens = 0;
    TRY(source_size(s, "hidden_size", "embedding_length", 0, &m->width));
    TRY(source_size(s, "num_hidden_layers", "block_count", 0, &m->n_block));
    TRY(source_size(s, "intermediate_size", "feed_forward_length", 0, &m->ffn_width));
    TRY(source_size(s, "num_attention_heads", "attention.head_count", 0, &m->n_head));
    TRY(source_size(s, "max_position_embeddings", "context_length", 0, &m->n_position));
    if (m->width % m->n_head && !(s->kind && strcmp(s->kind, "t5encoder") == 0))
        return source_refuse(s, "heads", "do not divide the width");
    if (s->config) {
        const json_t *value = json_object_get(s->config, "layer_norm_eps");
        epsilon = value ? json_number_value(value) : epsilon;
        tokens = (int64_t)json_integer_value(json_object_get(s->config, "vocab_size"));
    } else {
        const struct vka_gguf_tensor *t = vka_gguf_find(s->gguf, "token_embd.weight");
        char key[64];
        snprintf(key, sizeof key, "%s.pooling_type", s->kind);
        const struct vka_gguf_value *p = vka_gguf_metadata(s->gguf, key);
        const bool t5 = strcmp(s->kind, "t5encoder") == 0; /* whose norms have another one */
        TRY(source_real(s, "attention.layer_norm_epsilon", !t5, &epsilon));
        TRY(source_real(s, "rope.freq_base", false, &base));
        if (p && !vka_gguf_integer(p, 0, &pooling))
            return source_refuse(s, key, "is not a whole number");
        if (pooling < 0 || pooling > 2)
            return source_refuse(s, key, "is not none, mean or first");
        m->nomic = strcmp(s->kind, "nomic-bert") == 0;
        tokens = t && t->rank == 2 && t->shape[0] <= 1 << 24 ? (int64_t)t->shape[0] : 0;
    }
    if (tokens < 1 || tokens > 1 << 24)
        return source_refuse(s, "vocabulary", "is missing, or not from 1 to 2^24");
    if (!(epsilon > 0 && epsilon < 1))
        return source_refuse(s, "epsilon of the norms", "is not above 0 and below 1");
    if (!(base >= 1 && base <= (double)FLT_MAX) || (m->nomic && m->width / m->n_head % 2))
        return source_refuse(s, "rope.freq_base", "is below 1, or heads have an odd width");
    m->rope_base = (float)base;
    m->gated = m->nomic;
    m->head_dim = m->width / m->n_head;
    m->epsilon = (float)epsilon;
    m->n_token = (uint32_t)tokens;
    m->first_row = pooling == 2 || s->first_row;
    return VKA_OK;
}

/* What the encoder of a T5 has besides; its norms are those of the root of the mean square. */
static enum vka_status load_t5(const struct source *s, struct bert *m)
{
    double epsilon = 1e-6;
    uint32_t dim;
    TRY(source_size(s, "", "attention.key_length", m->width / m->n_head, &m->head_dim));
    TRY(source_size(s, "", "attention.value_length", m->head_dim, &dim));
    TRY(source_size(s, "", "attention.relative_buckets_count", 32, &m->n_bucket));
    TRY(source_real(s, "attention.layer_norm_rms_epsilon", true, &epsilon));
    if (dim != m->head_dim)
        return source_refuse(s, "attention.value_length", "is not attention.key_length");
    if (m->n_bucket % 4 || m->n_bucket > 256)
        return source_refuse(s, "attention.relative_buckets_count", "is not supported");
    if (!(epsilon > 0 && epsilon < 1))
        return source_refuse(s, "epsilon of the norms", "is not above 0 and below 1");
    m->epsilon = (float)epsilon;
    m->gated = vka_gguf_find(s->gguf, "enc.blk.0.ffn_gate.weight") != NULL;
    return VKA_OK;
}

/* A linear, biased or not, or with rows 0 the weight and bias of a norm. */
static enum vka_status load_pair(struct source *s, const char *json, const char *gguf,
                                 uint32_t rows, uint32_t width, bool biased,
                                 struct bert_linear *pair)
{
    char names[4][SOURCE_NAME];
    snprintf(names[0], SOURCE_NAME, "%s.weight", json);
    snprintf(names[1], SOURCE_NAME, "%s.weight", gguf);
    snprintf(names[2], SOURCE_NAME, "%s.bias", json);
    snprintf(names[3], SOURCE_NAME, "%s.bias", gguf);
    TRY(source_load(s, names[0], names[1], rows, width, &pair->weight));
    if (!biased)
        return VKA_OK;
    return source_load(s, names[2], names[3], 0, rows ? rows : width, &pair->bias);
}

static enum vka_status load_block(struct source *s, const struct bert *m, uint32_t i,
                                  struct bert_block *b)
{
    const bool nomic = m->nomic, t5 = m->n_bucket > 0;
    const uint32_t heads = m->n_head * m->head_dim;
    const char *const attn_norm = t5 ? "attn_norm" : "attn_output_norm";
    const char *const norm = t5 ? "ffn_norm" : "layer_output_norm";
    const struct {
        bool has;
        const char *json, *gguf;
        uint32_t rows, width;
        struct bert_linear *pair;
    } pairs[] = {
        {nomic, "", "attn_qkv", 3 * m->width, m->width, &b->q},
        {!nomic, "attention.self.query", "attn_q", heads, m->width, &b->q},
        {!nomic, "attention.self.key", "attn_k", heads, m->width, &b->k},
        {!nomic, "attention.self.value", "attn_v", heads, m->width, &b->v},
        {true, "attention.output.dense", t5 ? "attn_o" : "attn_output", m->width, heads, &b->o},
        {true, "attention.output.LayerNorm", attn_norm, 0, m->width, &b->attn_norm},
        {m->gated, "", "ffn_gate", m->ffn_width, m->width, &b->gate},
        {true, "intermediate.dense", "ffn_up", m->ffn_width, m->width, &b->up},
        {true, "output.dense", "ffn_down", m->width, m->ffn_width, &b->down},
        {true, "output.LayerNorm", norm, 0, m->width, &b->norm},
    };
    char json[64], gguf[64];
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        if (!pairs[p].has)
            continue;
        snprintf(json, sizeof json, "encoder.layer.%u.%s", i, pairs[p].json);
        snprintf(gguf, sizeof gguf, "%sblk.%u.%s", t5 ? "enc." : "", i, pairs[p].gguf);
        TRY(load_pair(s, json, gguf, pairs[p].rows, pairs[p].width,
                      !t5 && (!nomic || !pairs[p].rows), pairs[p].pair));
    }
    return VKA_OK;
}

/* What stands before the blocks, or behind those of t5. */
static enum vka_status load_embeddings(struct source *s, struct bert *m)
{
    uint32_t n_type = 2;
    TRY(source_load(s, "embeddings.word_embeddings.weight", "token_embd.weight", m->n_token,
                    m->width, &m->tokens));
    if (m->n_bucket) {
        TRY(source_load(s, "", "enc.blk.0.attn_rel_b.weight", m->n_bucket, m->n_head,
                        &m->distances));
        return load_pair(s, "", "enc.output_norm", 0, m->width, false, &m->norm);
    }
    if (s->config)
        TRY(source_size(s, "type_vocab_size", "", 2, &n_type));
    else if (vka_gguf_find(s->gguf, "token_types.weight"))
        n_type = (uint32_t)vka_gguf_find(s->gguf, "token_types.weight")->shape[0];
    if (!m->nomic)
        TRY(source_load(s, "embeddings.position_embeddings.weight", "position_embd.weight",
                        m->n_position, m->width, &m->positions));
    TRY(source_load(s, "embeddings.token_type_embeddings.weight", "token_types.weight", n_type,
                    m->width, &m->types));
    return load_pair(s, "embeddings.LayerNorm", "token_embd_norm", 0, m->width, true, &m->norm);
}

static enum vka_status load_all(struct source *s, struct bert *m)
{
    TRY(load_sizes(s, m));
    if (s->kind && strcmp(s->kind, "t5encoder") == 0)
        TRY(load_t5(s, m));
    m->blocks = calloc(m->n_block, sizeof *m->blocks);
    if (!m->blocks)
        return VKA_OUT_OF_HOST_MEMORY;
    TRY(load_embeddings(s, m));
    for (uint32_t i = 0; i < m->n_block; i++)
        TRY(load_block(s, m, i, &m->blocks[i]));
    return source_finish(s);
}

enum vka_status bert_load(struct vka_device *device, const char *path, struct bert *bert,
                          char why[VKA_IO_ERROR_SIZE])
{
    struct source source;
    *bert = (struct bert){0};
    why[0] = '\0';
    enum vka_status status = source_open(device, path, why, &source);
    if (status == VKA_OK)
        status = load_all(&source, bert);
    source_close(&source);
    return status;
}

static void free_pair(struct bert_linear *pair)
{
    vka_tensor_destroy(&pair->weight);
    vka_tensor_destroy(&pair->bias);
}

void bert_free(struct bert *m)
{
    vka_tensor_destroy(&m->tokens);
    vka_tensor_destroy(&m->positions);
    vka_tensor_destroy(&m->types);
    vka_tensor_destroy(&m->distances);
    free_pair(&m->norm);
    for (uint32_t i = 0; m->blocks && i < m->n_block; i++) {
        struct bert_block *b = &m->blocks[i];
        struct bert_linear *all[] = {&b->q,    &b->k,    &b->v,         &b->o,   &b->up,
                                     &b->gate, &b->down, &b->attn_norm, &b->norm};
        for (size_t p = 0; p < sizeof all / sizeof *all; p++)
            free_pair(all[p]);
    }
    free(m->blocks);
    m->blocks = NULL;
}
