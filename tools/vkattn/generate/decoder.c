#include "decoder.h"
#include "loader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Uploads tensors of one type as they are, along axis 0 one after the other. */
static enum vka_status upload(const struct loader *l, const struct vka_gguf_tensor *const *stacked,
                              size_t n_stacked, struct vka_tensor **tensor)
{
    uint32_t shape[] = {0, (uint32_t)stacked[0]->shape[1]}, first = 0;
    for (size_t p = 0; p < n_stacked; p++)
        shape[0] += (uint32_t)stacked[p]->shape[0];
    TRY(vka_tensor_create(l->device, stacked[0]->dtype, stacked[0]->rank, shape, tensor));
    for (size_t p = 0; p < n_stacked; p++) {
        uint32_t rows = (uint32_t)stacked[p]->shape[0];
        struct vka_tensor *rows_of_one;
        TRY(vka_tensor_slice(*tensor, 0, first, rows, &rows_of_one));
        enum vka_status status = vka_tensor_write(rows_of_one, stacked[p]->data, stacked[p]->size);
        vka_tensor_destroy(&rows_of_one);
        TRY(status);
        first += rows;
    }
    return VKA_OK;
}

static enum vka_status load(const struct loader *l, const char *name, uint64_t rows, uint64_t width,
                            struct vka_tensor **tensor)
{
    const struct vka_gguf_tensor *t;
    TRY(loader_find(l, name, rows, width, &t));
    return upload(l, &t, 1, tensor);
}

/* Floats of the host as a vector of the device. */
static enum vka_status load_floats(const struct loader *l, const float *x, uint32_t n,
                                   struct vka_tensor **tensor)
{
    TRY(vka_tensor_create(l->device, VKA_F32, 1, &n, tensor));
    return vka_tensor_write(*tensor, x, n * sizeof *x);
}

/* Matrices of a block that are applied to the same input, or a vector, of which rows is 0. */
struct group {
    struct {
        const char *name;
        uint32_t rows;
    } stacked[DECODER_MOST_STACKED];
    uint32_t width;
    struct affine *affine; /* of each rows_of_one */
    bool is_norm;
};

/* The tensors of a group of block i: n weights, and as many biases or none. */
static enum vka_status find_group(const struct loader *l, uint32_t i, const struct group *group,
                                  const struct vka_gguf_tensor **weights,
                                  const struct vka_gguf_tensor **biases, size_t *n, size_t *n_bias)
{
    char name[64];
    for (*n = *n_bias = 0; *n < DECODER_MOST_STACKED && group->stacked[*n].name; ++*n) {
        const uint32_t rows = group->stacked[*n].rows;
        snprintf(name, sizeof name, "blk.%u.%s.weight", i, group->stacked[*n].name);
        TRY(loader_find(l, name, rows, group->width, &weights[*n]));
        snprintf(name, sizeof name, "blk.%u.%s.bias", i, group->stacked[*n].name);
        if (group->is_norm ? l->family->norm_bias : vka_gguf_find(l->file, name) != NULL)
            TRY(loader_find(l, name, 0, rows ? rows : group->width, &biases[(*n_bias)++]));
        if (*n_bias && *n_bias != *n + 1)
            return loader_refuse(l, "a bias is missing, or it should be", name);
    }
    for (size_t b = 0; b < *n_bias; b++)
        if (biases[b]->dtype != biases[0]->dtype)
            return loader_refuse(l, "biases of different types are not supported", biases[b]->name);
    return VKA_OK;
}

/* Loads a group of block i. Neighbours of one type become one tensor, in the place of the first, so
 * that they take one product. */
static enum vka_status load_group(const struct loader *l, uint32_t i, const struct group *group)
{
    const struct vka_gguf_tensor *weights[DECODER_MOST_STACKED], *biases[DECODER_MOST_STACKED];
    size_t n, n_bias;
    TRY(find_group(l, i, group, weights, biases, &n, &n_bias));
    for (size_t first = 0, end; first < n; first = end) {
        uint64_t size = 0;
        for (end = first; end < n && weights[end]->dtype == weights[first]->dtype; end++) {
            size += weights[end]->size;
            if (size > l->most && end > first)
                break;
        }
        TRY(upload(l, weights + first, end - first, &group->affine[first].weight));
        if (n_bias)
            TRY(upload(l, biases + first, end - first, &group->affine[first].bias));
    }
    return VKA_OK;
}

static enum vka_status load_block(const struct loader *l, const struct decoder *m, uint32_t i,
                                  struct decoder_block *b)
{
    const struct family *f = m->family;
    uint32_t heads = m->n_head * m->head_dim, kv = m->n_kv_head * m->head_dim, ffn = m->ffn_width;
    const uint32_t q_norm = f->joint_norms ? heads : m->head_dim;
    const uint32_t k_norm = f->joint_norms ? kv : m->head_dim;
    const bool before = f->norms_before && !f->plain_norms;
    const char *ffn_norm = f->ffn_norm ? f->ffn_norm : "ffn_norm";
    const struct {
        bool has;
        struct group group;
    } groups[] = {
        {before, {{{"attn_norm", 0}}, m->width, &b->attn_norm, true}},
        {before && !f->one_norm, {{{ffn_norm, 0}}, m->width, &b->ffn_norm, true}},
        {f->norms_after, {{{"post_attention_norm", 0}}, m->width, &b->attn_after, true}},
        {f->norms_after, {{{"post_ffw_norm", 0}}, m->width, &b->ffn_after, true}},
        {f->head_norms, {{{"attn_q_norm", 0}}, q_norm, &b->q_norm, true}},
        {f->head_norms, {{{"attn_k_norm", 0}}, k_norm, &b->k_norm, true}},
        {f->fused_qkv, {{{"attn_qkv", heads + 2 * kv}}, m->width, b->qkv, false}},
        {!f->fused_qkv,
         {{{"attn_q", heads}, {"attn_k", kv}, {"attn_v", kv}}, m->width, b->qkv, false}},
        {true, {{{"attn_output", m->width}}, heads, &b->o, false}},
        {f->fused_gate, {{{"ffn_up", 2 * ffn}}, m->width, b->gate_up, false}},
        {f->gated && !f->fused_gate,
         {{{"ffn_gate", ffn}, {"ffn_up", ffn}}, m->width, b->gate_up, false}},
        {!f->gated, {{{"ffn_up", ffn}}, m->width, b->gate_up, false}},
        {true, {{{"ffn_down", m->width}}, ffn, &b->down, false}},
    };
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        if (groups[g].has)
            TRY(load_group(l, i, &groups[g].group));
    return VKA_OK;
}

/* A norm of the model, without weights none. factor: of what it gives; 0: 1. */
static enum vka_status load_norm(const struct loader *l, const char *name, uint32_t width,
                                 float factor, struct affine *norm)
{
    const struct vka_gguf_tensor *t;
    struct vka_tensor **const to[] = {&norm->weight, &norm->bias};
    static const char *const ends[] = {"weight", "bias"};
    for (size_t i = 0; i < (l->family->plain_norms ? 0 : l->family->norm_bias ? 2 : 1); i++) {
        char full[64];
        snprintf(full, sizeof full, "%s.%s", name, ends[i]);
        TRY(loader_find(l, full, 0, width, &t));
        if (factor <= 0) {
            TRY(upload(l, &t, 1, to[i]));
            continue;
        }
        float *x = t->dtype == VKA_F32 ? malloc(t->size) : NULL;
        if (!x)
            return t->dtype == VKA_F32 ? VKA_OUT_OF_HOST_MEMORY
                                       : loader_refuse(l, "expected float32", full);
        memcpy(x, t->data, t->size);
        for (uint32_t j = 0; j < width; j++)
            x[j] *= factor;
        enum vka_status status = load_floats(l, x, width, to[i]);
        free(x);
        TRY(status);
    }
    return VKA_OK;
}

/* 2^(-8 i / n) for a power of two; for others those of the power below, then every second one of the
 * power above. */
static enum vka_status load_slopes(const struct loader *l, struct decoder *m)
{
    float *slopes = malloc(m->n_head * sizeof *slopes);
    uint32_t below = 1;
    while (2 * below <= m->n_head)
        below *= 2;
    for (uint32_t i = 0; slopes && i < m->n_head; i++)
        slopes[i] =
            (float)exp2(i < below ? -8.0 * (i + 1) / below : -4.0 * (2 * (i - below) + 1) / below);
    enum vka_status status =
        slopes ? load_floats(l, slopes, m->n_head, &m->alibi) : VKA_OUT_OF_HOST_MEMORY;
    free(slopes);
    return status;
}

static enum vka_status load_head(const struct loader *l, struct decoder *m)
{
    m->head.weight = m->embedding;
    if (vka_gguf_find(l->file, "output.weight"))
        TRY(load(l, "output.weight", m->n_token, m->width, &m->head.weight));
    if (m->family->head_bias && vka_gguf_find(l->file, "output.bias"))
        TRY(load(l, "output.bias", 0, m->n_token, &m->head.bias));
    return VKA_OK;
}

static enum vka_status load_all(const struct loader *l, struct decoder *m)
{
    float residual = 0;
    TRY(loader_read_sizes(l, m));
    TRY(loader_read_factors(l, m, &residual));
    TRY(loader_check_keys(l));
    m->blocks = calloc(m->n_block, sizeof *m->blocks);
    if (!m->blocks)
        return VKA_OUT_OF_HOST_MEMORY;
    TRY(load(l, "token_embd.weight", m->n_token, m->width, &m->embedding));
    if (m->family->learned)
        TRY(load(l, "position_embd.weight", m->n_position, m->width, &m->positions));
    if (m->family->embed_norm)
        TRY(load_norm(l, "token_embd_norm", m->width, 0, &m->embed_norm));
    TRY(load_norm(l, "output_norm", m->width, m->norm_factor, &m->norm));
    if (m->logit_softcap > 0)
        TRY(load_floats(l, &m->logit_softcap, 1, &m->cap));
    if (residual > 0 && (residual < 1 || residual > 1))
        TRY(load_floats(l, &residual, 1, &m->residual_scale));
    if (m->family->alibi)
        TRY(load_slopes(l, m));
    TRY(load_head(l, m));
    for (uint32_t i = 0; i < m->n_block; i++)
        TRY(load_block(l, m, i, &m->blocks[i]));
    return loader_check_tensors(l);
}

enum vka_status decoder_load(struct vka_device *device, const char *path, struct decoder *decoder,
                             char why[VKA_IO_ERROR_SIZE])
{
    struct vka_gguf *file = NULL;
    *decoder = (struct decoder){0};
    why[0] = '\0';
    TRY(vka_gguf_open(path, why, &file));
    bool *tensors = calloc(vka_gguf_count(file) + 1, sizeof *tensors);
    bool *keys = calloc(vka_gguf_metadata_count(file) + 1, sizeof *keys);
    decoder->family = family_of(file, why);
    const struct loader loader = {
        device, file, decoder->family, vka_device_properties(device)->max_allocation, tensors,
        keys,   why};
    enum vka_status status = !tensors || !keys ? VKA_OUT_OF_HOST_MEMORY
                             : decoder->family ? vka_gguf_check_types(file, path, why)
                                               : VKA_INVALID;
    if (status == VKA_OK)
        status = load_all(&loader, decoder);
    free(tensors);
    free(keys);
    vka_gguf_close(&file);
    return status;
}

static void free_affines(struct affine *affine, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        vka_tensor_destroy(&affine[i].weight);
        vka_tensor_destroy(&affine[i].bias);
    }
}

void decoder_free(struct decoder *m)
{
    if (m->head.weight != m->embedding)
        vka_tensor_destroy(&m->head.weight);
    vka_tensor_destroy(&m->head.bias);
    vka_tensor_destroy(&m->embedding);
    vka_tensor_destroy(&m->positions);
    vka_tensor_destroy(&m->alibi);
    vka_tensor_destroy(&m->cap);
    vka_tensor_destroy(&m->residual_scale);
    free_affines(&m->embed_norm, 1);
    free_affines(&m->norm, 1);
    for (uint32_t i = 0; m->blocks && i < m->n_block; i++) {
        struct decoder_block *b = &m->blocks[i];
        struct affine *const single[] = {&b->attn_norm, &b->attn_after, &b->ffn_norm, &b->ffn_after,
                                         &b->o,         &b->down,       &b->q_norm,   &b->k_norm};
        for (size_t t = 0; t < sizeof single / sizeof *single; t++)
            free_affines(single[t], 1);
        free_affines(b->qkv, DECODER_MOST_STACKED);
        free_affines(b->gate_up, 2);
    }
    free(m->blocks);
    free(m->frequencies);
    free(m->full);
    m->blocks = NULL;
    m->frequencies = NULL;
    m->full = NULL;
}
