#include "llama.h"

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

struct loader {
    struct vka_device *device;
    const struct vka_gguf *file;
    uint64_t most; /* bytes that a tensor may have */
    bool *used;    /* tensors of the file, by index, that something has asked for */
    char *why;
};

static enum vka_status refuse(const struct loader *l, const char *what, const char *name)
{
    snprintf(l->why, VKA_IO_ERROR_SIZE, "%s: %s", name, what);
    return VKA_INVALID;
}

/* A tensor of the file. rows 0: a vector of `width`. */
static enum vka_status find(const struct loader *l, const char *name, uint64_t rows, uint64_t width,
                            const struct vka_gguf_tensor **found)
{
    const struct vka_gguf_tensor *t = *found = vka_gguf_find(l->file, name);
    if (!t)
        return refuse(l, "the file has no such tensor", name);
    for (size_t i = 0; i < vka_gguf_count(l->file); i++)
        l->used[i] |= vka_gguf_at(l->file, i) == t;
    bool fits = rows ? t->rank == 2 && t->shape[0] == rows && t->shape[1] == width
                     : t->rank == 1 && t->shape[0] == width;
    return fits ? VKA_OK : refuse(l, "has another shape than the metadata says", name);
}

/* Uploads tensors of one type as they are, along axis 0 one after the other. */
static enum vka_status upload(const struct loader *l, const struct vka_gguf_tensor *const *parts,
                              size_t n_part, struct vka_tensor **tensor)
{
    uint32_t shape[] = {0, (uint32_t)parts[0]->shape[1]}, first = 0;
    for (size_t p = 0; p < n_part; p++)
        shape[0] += (uint32_t)parts[p]->shape[0];
    TRY(vka_tensor_create(l->device, parts[0]->dtype, parts[0]->rank, shape, tensor));
    for (size_t p = 0; p < n_part; p++) {
        uint32_t rows = (uint32_t)parts[p]->shape[0];
        struct vka_tensor *part;
        TRY(vka_tensor_slice(*tensor, 0, first, rows, &part));
        enum vka_status status = vka_tensor_write(part, parts[p]->data, parts[p]->size);
        vka_tensor_destroy(&part);
        TRY(status);
        first += rows;
    }
    return VKA_OK;
}

static enum vka_status load(const struct loader *l, const char *name, uint64_t rows, uint64_t width,
                            struct vka_tensor **tensor)
{
    const struct vka_gguf_tensor *t;
    TRY(find(l, name, rows, width, &t));
    return upload(l, &t, 1, tensor);
}

/* A size of the metadata, at least 1; an array has to have the same for each layer. `fallback` 0: there
 * has to be one. */
static enum vka_status number(const struct loader *l, const char *key, uint32_t fallback,
                              uint32_t *n)
{
    int64_t value = fallback, other;
    const struct vka_gguf_value *given = vka_gguf_metadata(l->file, key);
    bool right = given ? vka_gguf_integer(given, 0, &value) : fallback != 0;
    if (!right || value < 1 || value > 1 << 24)
        return refuse(l, "is missing, or not from 1 to 2^24", key);
    for (uint64_t i = 1; given && i < given->count; i++)
        if (!vka_gguf_integer(given, i, &other) || other != value)
            return refuse(l, "layers of different sizes are not supported here", key);
    *n = (uint32_t)value;
    return VKA_OK;
}

static enum vka_status real(const struct loader *l, const char *key, float fallback, double least,
                            float *x)
{
    double value = (double)fallback;
    const struct vka_gguf_value *given = vka_gguf_metadata(l->file, key);
    if (given && (given->type == VKA_GGUF_ARRAY || !vka_gguf_real(given, 0, &value)))
        return refuse(l, "is not a float", key);
    if (!(value >= least && value <= (double)FLT_MAX))
        return refuse(l, "is out of range", key);
    *x = (float)value;
    return VKA_OK;
}

/* A key of the metadata that, where it is there, has to say what is computed. */
static enum vka_status expect(const struct loader *l, const char *key, uint32_t wanted)
{
    uint32_t n;
    TRY(number(l, key, wanted, &n));
    return n == wanted ? VKA_OK : refuse(l, "a value that is not supported here", key);
}

/* Refuses keys that are not known to be without effect. */
static enum vka_status check_keys(const struct loader *l)
{
    static const char *const known[] = {"embedding_length",
                                        "block_count",
                                        "feed_forward_length",
                                        "attention.head_count",
                                        "attention.head_count_kv",
                                        "attention.key_length",
                                        "attention.value_length",
                                        "attention.layer_norm_rms_epsilon",
                                        "rope.freq_base",
                                        "rope.dimension_count",
                                        "vocab_size",
                                        "context_length"};
    static const char *const inert[] = {"general.", "tokenizer.", "quantize.", "mradermacher.",
                                        "split."};
    for (size_t i = 0; i < vka_gguf_metadata_count(l->file); i++) {
        const struct vka_gguf_value *value = vka_gguf_metadata_at(l->file, i);
        bool fine = false;
        for (size_t k = 0; k < sizeof inert / sizeof *inert; k++)
            fine |= strncmp(value->key, inert[k], strlen(inert[k])) == 0;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            fine |= strncmp(value->key, "llama.", 6) == 0 && !strcmp(value->key + 6, known[k]);
        if (!fine)
            return refuse(l, "it is not known what this key would change", value->key);
    }
    return VKA_OK;
}

/* Refuses tensors that nothing has asked for, but for empty ones. */
static enum vka_status check_tensors(const struct loader *l)
{
    for (size_t i = 0; i < vka_gguf_count(l->file); i++) {
        const struct vka_gguf_tensor *t = vka_gguf_at(l->file, i);
        if (!l->used[i] && t->size)
            return refuse(l, "it is not known what this tensor would change", t->name);
    }
    return VKA_OK;
}

static enum vka_status load_sizes(const struct loader *l, struct llama *m)
{
    const char *text = "";
    size_t at = 0, size = 0;
    uint32_t value_dim;
    const struct vka_gguf_tensor *tokens = vka_gguf_find(l->file, "token_embd.weight");
    vka_gguf_string(vka_gguf_metadata(l->file, "general.architecture"), &at, &text, &size);
    if (size != 5 || memcmp(text, "llama", 5) != 0)
        return refuse(l, "is not \"llama\"", "general.architecture");
    if (vka_gguf_metadata(l->file, "llama.rope.scaling.type") ||
        vka_gguf_find(l->file, "rope_freqs.weight"))
        return refuse(l, "scaled rotary embedding is not supported here", "llama.rope");
    if (!tokens || tokens->rank != 2 || tokens->shape[0] > 1 << 24)
        return refuse(l, "is missing or no matrix", "token_embd.weight");
    m->n_token = (uint32_t)tokens->shape[0];
    TRY(number(l, "llama.embedding_length", 0, &m->width));
    TRY(number(l, "llama.block_count", 0, &m->n_block));
    TRY(number(l, "llama.feed_forward_length", 0, &m->ffn_width));
    TRY(number(l, "llama.attention.head_count", 0, &m->n_head));
    TRY(number(l, "llama.attention.head_count_kv", m->n_head, &m->n_kv_head));
    TRY(number(l, "llama.attention.key_length", m->width / m->n_head, &m->head_dim));
    TRY(number(l, "llama.attention.value_length", m->head_dim, &value_dim));
    if (value_dim != m->head_dim)
        return refuse(l, "is not that of the keys", "llama.attention.value_length");
    if (m->n_head % m->n_kv_head)
        return refuse(l, "does not divide the number of heads", "llama.attention.head_count_kv");
    TRY(expect(l, "llama.rope.dimension_count", m->head_dim));
    TRY(expect(l, "llama.vocab_size", m->n_token));
    TRY(real(l, "llama.rope.freq_base", 10000, 1, &m->rope_base));
    TRY(real(l, "llama.attention.layer_norm_rms_epsilon", 1e-5f, (double)FLT_MIN, &m->epsilon));
    m->interleaved = true; /* as llama.cpp's converter permutes the rows of q and k */
    return VKA_OK;
}

/* Matrices of a block that are applied to the same input, or a vector, of which rows is 0. */
struct group {
    struct {
        const char *name;
        uint32_t rows;
    } parts[LLAMA_MOST_PARTS];
    uint32_t width;
    struct vka_tensor **tensors; /* of each part */
};

/* Loads a group of block i. Neighbours of one type become one tensor, in the place of the first, so
 * that they take one product. */
static enum vka_status load_group(const struct loader *l, uint32_t i, const struct group *group)
{
    const struct vka_gguf_tensor *found[LLAMA_MOST_PARTS];
    char name[64];
    size_t n = 0;
    for (; n < LLAMA_MOST_PARTS && group->parts[n].name; n++) {
        snprintf(name, sizeof name, "blk.%u.%s.bias", i, group->parts[n].name);
        if (vka_gguf_find(l->file, name))
            return refuse(l, "biases are not supported here", name);
        snprintf(name, sizeof name, "blk.%u.%s.weight", i, group->parts[n].name);
        TRY(find(l, name, group->parts[n].rows, group->width, &found[n]));
    }
    for (size_t first = 0, end; first < n; first = end) {
        uint64_t size = 0;
        for (end = first; end < n && found[end]->dtype == found[first]->dtype; end++) {
            size += found[end]->size;
            if (size > l->most && end > first)
                break;
        }
        TRY(upload(l, found + first, end - first, &group->tensors[first]));
    }
    return VKA_OK;
}

static enum vka_status load_block(const struct loader *l, const struct llama *m, uint32_t i,
                                  struct llama_block *b)
{
    uint32_t heads = m->n_head * m->head_dim, kv = m->n_kv_head * m->head_dim;
    const struct group groups[] = {
        {{{"attn_norm", 0}}, m->width, &b->attn_norm},
        {{{"ffn_norm", 0}}, m->width, &b->ffn_norm},
        {{{"attn_q", heads}, {"attn_k", kv}, {"attn_v", kv}}, m->width, b->qkv},
        {{{"attn_output", m->width}}, heads, &b->o},
        {{{"ffn_gate", m->ffn_width}, {"ffn_up", m->ffn_width}}, m->width, b->gate_up},
        {{{"ffn_down", m->width}}, m->ffn_width, &b->down},
    };
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        TRY(load_group(l, i, &groups[g]));
    return VKA_OK;
}

static enum vka_status load_all(const struct loader *l, struct llama *m)
{
    TRY(load_sizes(l, m));
    TRY(check_keys(l));
    m->blocks = calloc(m->n_block, sizeof *m->blocks);
    if (!m->blocks)
        return VKA_OUT_OF_HOST_MEMORY;
    TRY(load(l, "token_embd.weight", m->n_token, m->width, &m->embedding));
    TRY(load(l, "output_norm.weight", 0, m->width, &m->norm));
    m->head = m->embedding;
    if (vka_gguf_find(l->file, "output.weight"))
        TRY(load(l, "output.weight", m->n_token, m->width, &m->head));
    for (uint32_t i = 0; i < m->n_block; i++)
        TRY(load_block(l, m, i, &m->blocks[i]));
    return check_tensors(l);
}

enum vka_status llama_load(struct vka_device *device, const char *path, struct llama *llama,
                           char why[VKA_IO_ERROR_SIZE])
{
    struct vka_gguf *file = NULL;
    *llama = (struct llama){0};
    why[0] = '\0';
    TRY(vka_gguf_open(path, why, &file));
    uint64_t most = vka_device_properties(device)->max_allocation;
    bool *used = calloc(vka_gguf_count(file) + 1, sizeof *used);
    const struct loader loader = {device, file, most, used, why};
    enum vka_status status = used ? vka_gguf_check_types(file, path, why) : VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK)
        status = load_all(&loader, llama);
    free(used);
    vka_gguf_close(&file);
    return status;
}

void llama_free(struct llama *m)
{
    if (m->head != m->embedding)
        vka_tensor_destroy(&m->head);
    vka_tensor_destroy(&m->embedding);
    vka_tensor_destroy(&m->norm);
    for (uint32_t i = 0; m->blocks && i < m->n_block; i++) {
        struct llama_block *b = &m->blocks[i];
        struct vka_tensor **all[] = {&b->attn_norm,  &b->ffn_norm,   &b->qkv[0],
                                     &b->qkv[1],     &b->qkv[2],     &b->o,
                                     &b->gate_up[0], &b->gate_up[1], &b->down};
        for (size_t t = 0; t < sizeof all / sizeof *all; t++)
            vka_tensor_destroy(all[t]);
    }
    free(m->blocks);
    m->blocks = NULL;
}
