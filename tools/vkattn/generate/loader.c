#include "loader.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum vka_status loader_refuse(const struct loader *l, const char *what, const char *name)
{
    snprintf(l->why, VKA_IO_ERROR_SIZE, "%s: %s", name, what);
    return VKA_INVALID;
}

const struct vka_gguf_value *loader_key(const struct loader *l, const char *key, char full[96])
{
    snprintf(full, 96, "%s.%s", l->family->name, key);
    const struct vka_gguf_value *found = vka_gguf_metadata(l->file, full);
    for (size_t i = 0; i < vka_gguf_metadata_count(l->file); i++)
        l->used_keys[i] |= vka_gguf_metadata_at(l->file, i) == found;
    return found;
}

enum vka_status loader_find(const struct loader *l, const char *name, uint64_t rows, uint64_t width,
                            const struct vka_gguf_tensor **found)
{
    const struct vka_gguf_tensor *t = *found = vka_gguf_find(l->file, name);
    if (!t)
        return loader_refuse(l, "the file has no such tensor", name);
    for (size_t i = 0; i < vka_gguf_count(l->file); i++)
        l->used_tensors[i] |= vka_gguf_at(l->file, i) == t;
    bool fits = rows ? t->rank == 2 && t->shape[0] == rows && t->shape[1] == width
                     : t->rank == 1 && t->shape[0] == width;
    return fits ? VKA_OK : loader_refuse(l, "has another shape than the metadata says", name);
}

/* A size of the metadata, at least 1; an array has to have the same for each layer. `fallback` 0: there
 * has to be one. */
static enum vka_status number(const struct loader *l, const char *key, uint32_t fallback,
                              uint32_t *n)
{
    char full[96];
    int64_t value = fallback, other;
    const struct vka_gguf_value *given = loader_key(l, key, full);
    bool right = given ? vka_gguf_integer(given, 0, &value) : fallback != 0;
    if (!right || value < 1 || value > 1 << 24)
        return loader_refuse(l, "is missing, or not from 1 to 2^24", full);
    for (uint64_t i = 1; given && i < given->count; i++)
        if (!vka_gguf_integer(given, i, &other) || other != value)
            return loader_refuse(l, "layers of different sizes are not supported here", full);
    *n = (uint32_t)value;
    return VKA_OK;
}

static enum vka_status real(const struct loader *l, const char *key, double fallback, double least,
                            float *x)
{
    char full[96];
    double value = fallback;
    const struct vka_gguf_value *given = loader_key(l, key, full);
    if (given && (given->type == VKA_GGUF_ARRAY || !vka_gguf_real(given, 0, &value)))
        return loader_refuse(l, "is not a float", full);
    if (given && !(value >= least && value <= (double)FLT_MAX))
        return loader_refuse(l, "is out of range", full);
    *x = (float)value;
    return VKA_OK;
}

/* A whole number of a row, 0 or more. */
static enum vka_status count(const struct loader *l, const struct family_number *said, uint32_t *n)
{
    char full[96];
    int64_t value = (int64_t)said->value;
    const struct vka_gguf_value *given = said->name ? loader_key(l, said->name, full) : NULL;
    if (given && (given->type == VKA_GGUF_ARRAY || !vka_gguf_integer(given, 0, &value) ||
                  value < 0 || value > INT32_MAX))
        return loader_refuse(l, "is not from 0 to 2^31 - 1", full);
    *n = (uint32_t)value;
    return VKA_OK;
}

/* A float of a row, above 0 where the file has it. */
static enum vka_status factor(const struct loader *l, const struct family_number *said, float *x)
{
    *x = (float)said->value;
    return said->name ? real(l, said->name, said->value, (double)FLT_MIN, x) : VKA_OK;
}

/* A key of the metadata that, where it is there, has to say what is computed. */
static enum vka_status expect(const struct loader *l, const char *key, uint32_t wanted)
{
    char full[96];
    uint32_t n;
    TRY(number(l, key, wanted, &n));
    loader_key(l, key, full);
    return n == wanted ? VKA_OK : loader_refuse(l, "a value that is not supported here", full);
}

/* Which blocks have a window: by a bool for each, or each full_every-th has none. */
static enum vka_status read_windows(const struct loader *l, struct decoder *m)
{
    char full[96];
    const struct family *f = l->family;
    TRY(count(l, &f->window, &m->window));
    TRY(count(l, &f->unrotated_every, &m->unrotated_every));
    if (f->needs_window && !m->window) {
        loader_key(l, f->window.name, full);
        return loader_refuse(l, "is missing or 0", full);
    }
    const struct vka_gguf_value *each =
        f->window.name ? loader_key(l, "attention.sliding_window_pattern", full) : NULL;
    if (!each || each->type != VKA_GGUF_ARRAY || each->item != VKA_GGUF_BOOL)
        return count(l, &f->full_every, &m->full_every);
    m->full = calloc(m->n_block, sizeof *m->full);
    if (!m->full)
        return VKA_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < m->n_block; i++) {
        int64_t slides = 0;
        if (each->count != m->n_block || !vka_gguf_integer(each, i, &slides))
            return loader_refuse(l, "is not of as many as there are blocks", full);
        if (slides && !m->window)
            return loader_refuse(l, "without attention.sliding_window", full);
        m->full[i] = !slides;
    }
    return VKA_OK;
}

static enum vka_status read_heads(const struct loader *l, struct decoder *m)
{
    char full[96];
    TRY(number(l, "attention.head_count", 0, &m->n_head));
    TRY(number(l, "attention.head_count_kv", m->n_head, &m->n_kv_head));
    TRY(number(l, "attention.key_length", m->width / m->n_head, &m->head_dim));
    TRY(expect(l, "attention.value_length", m->head_dim));
    loader_key(l, "attention.head_count_kv", full);
    if (m->n_head % m->n_kv_head)
        return loader_refuse(l, "does not divide the number of heads", full);
    return read_windows(l, m);
}

enum vka_status loader_read_factors(const struct loader *l, struct decoder *m, float *residual)
{
    const struct family *f = l->family;
    float by = 1, divisor = 1;
    TRY(factor(l, &f->softcap, &m->softcap));
    TRY(factor(l, &f->logit_softcap, &m->logit_softcap));
    TRY(factor(l, &f->embed_scale, &m->embed_scale));
    TRY(factor(l, &f->scale, &m->scale));
    TRY(factor(l, &f->residual_scale, residual));
    TRY(factor(l, &f->logit_scale, &by));
    TRY(factor(l, &f->logit_divisor, &divisor));
    if (f->root_scaled)
        m->embed_scale = (float)sqrt(m->width);
    if (f->gemma_scale && (m->n_block == 46 || m->n_block == 62))
        m->scale = 1 / sqrtf((float)m->width / (float)m->n_head);
    const double cap = m->logit_softcap > 0 ? (double)m->logit_softcap : 1;
    const double logits = (by > 0 ? (double)by : 1) / (divisor > 0 ? (double)divisor : 1) / cap;
    m->norm_factor = logits < 1 || logits > 1 ? (float)logits : 0;
    return VKA_OK;
}

/* What the rotary embedding is slowed down by: all of it by a factor, and by one for each pair. */
static enum vka_status read_scaling(const struct loader *l, struct decoder *m)
{
    char full[96];
    const char *text = "none";
    size_t at = 0, size = 4;
    float scale = 1;
    const struct vka_gguf_tensor *each = NULL;
    const struct vka_gguf_value *kind = loader_key(l, "rope.scaling.type", full);
    TRY(real(l, "rope.scaling.factor", 1, (double)FLT_MIN, &scale));
    if (scale >= 1 && scale <= 1) /* the length that a factor would be of */
        loader_key(l, "rope.scaling.original_context_length", full);
    loader_key(l, "rope.scaling.type", full);
    bool linear = kind && vka_gguf_string(kind, &at, &text, &size) && size == 6 &&
                  memcmp(text, "linear", 6) == 0;
    if (!linear && (size != 4 || memcmp(text, "none", 4) != 0 || scale != 1))
        return loader_refuse(l, "is not \"none\" or \"linear\" with a factor", full);
    if (vka_gguf_find(l->file, "rope_freqs.weight"))
        TRY(loader_find(l, "rope_freqs.weight", 0, m->rope_dim / 2, &each));
    if (each && each->dtype != VKA_F32)
        return loader_refuse(l, "expected float32", each->name);
    if (!each && scale == 1)
        return VKA_OK;
    m->frequencies = malloc(m->rope_dim / 2 * sizeof *m->frequencies);
    if (!m->frequencies)
        return VKA_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < m->rope_dim / 2; i++) {
        float by = 1;
        if (each)
            memcpy(&by, (const char *)each->data + i * sizeof by, sizeof by);
        if (!(by * scale >= 1 && by * scale <= FLT_MAX))
            return loader_refuse(l, "a factor below 1 is not supported", "rope_freqs.weight");
        m->frequencies[i] =
            pow((double)m->rope_base, -2.0 * i / m->rope_dim) / (double)(by * scale);
    }
    return VKA_OK;
}

static enum vka_status read_rotation(const struct loader *l, struct decoder *m)
{
    char full[96];
    if (l->family->learned)
        return number(l, "context_length", 0, &m->n_position);
    if (l->family->alibi)
        return VKA_OK;
    TRY(number(l, "rope.dimension_count", m->head_dim, &m->rope_dim));
    loader_key(l, "rope.dimension_count", full);
    if (m->rope_dim % 2 || m->rope_dim > m->head_dim)
        return loader_refuse(l, "is odd, or more than a head has", full);
    TRY(real(l, "rope.freq_base", 10000, 1, &m->rope_base));
    TRY(factor(l, &l->family->local_theta, &m->local_base));
    return read_scaling(l, m);
}

/* A bool of the file; *flag stays as it is where the file has none. */
static enum vka_status read_bool(const struct loader *l, const char *key, bool *flag)
{
    char full[96];
    const struct vka_gguf_value *given = key ? loader_key(l, key, full) : NULL;
    if (given && given->type != VKA_GGUF_BOOL)
        return loader_refuse(l, "is not true or false", full);
    if (given)
        memcpy(flag, given->data, sizeof *flag);
    return VKA_OK;
}

/* What the file has to say, so that it is of the family that is computed. */
static enum vka_status read_switches(const struct loader *l, struct decoder *m)
{
    const struct family *f = l->family;
    char full[96];
    bool flag = false;
    float number = 0;
    m->parallel = f->parallel;
    TRY(read_bool(l, f->parallel_key, &m->parallel));
    TRY(read_bool(l, f->unless, &flag));
    if (flag) {
        loader_key(l, f->unless, full);
        return loader_refuse(l, "is not false, which alone is supported", full);
    }
    if (f->needed && !loader_key(l, f->needed, full))
        return loader_refuse(l, "is missing", full);
    if (f->only.name) {
        TRY(real(l, f->only.name, f->only.value, 0, &number));
        loader_key(l, f->only.name, full);
        if (number < (float)f->only.value || number > (float)f->only.value)
            return loader_refuse(l, "a value that is not supported here", full);
    }
    const struct vka_gguf_value *said = f->only_text ? loader_key(l, f->only_text, full) : NULL;
    const char *text = "";
    size_t at = 0, size = 0;
    if (said && !(vka_gguf_string(said, &at, &text, &size) && size == strlen(f->text) &&
                  memcmp(text, f->text, size) == 0))
        return loader_refuse(l, "a value that is not supported here", full);
    return VKA_OK;
}

/* Some files count their chosen experts as 0. */
static enum vka_status refuse_experts(const struct loader *l)
{
    static const struct family_number counts[] = {{"expert_count", 0}, {"expert_used_count", 0}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char full[96];
        uint32_t n;
        TRY(count(l, &counts[i], &n));
        loader_key(l, counts[i].name, full);
        if (n)
            return loader_refuse(l, "chosen experts are not supported here", full);
    }
    return VKA_OK;
}

enum vka_status loader_read_sizes(const struct loader *l, struct decoder *m)
{
    char full[96];
    const struct vka_gguf_tensor *tokens = vka_gguf_find(l->file, "token_embd.weight");
    if (!tokens || tokens->rank != 2 || tokens->shape[0] > 1 << 24)
        return loader_refuse(l, "is missing or no matrix", "token_embd.weight");
    m->n_token = (uint32_t)tokens->shape[0];
    TRY(number(l, "embedding_length", 0, &m->width));
    TRY(number(l, "block_count", 0, &m->n_block));
    TRY(number(l, "feed_forward_length", l->family->four_widths ? 4 * m->width : 0, &m->ffn_width));
    TRY(expect(l, "vocab_size", m->n_token));
    const char *epsilon =
        l->family->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
    if (!loader_key(l, epsilon, full))
        return loader_refuse(l, "is missing", full);
    TRY(real(l, epsilon, 0, (double)FLT_MIN, &m->epsilon));
    TRY(refuse_experts(l));
    TRY(read_heads(l, m));
    TRY(read_rotation(l, m));
    loader_key(l, "context_length", full);
    if (l->family->inert)
        loader_key(l, l->family->inert, full);
    return read_switches(l, m);
}

enum vka_status loader_check_keys(const struct loader *l)
{
    static const char *const inert[] = {"general.", "tokenizer.", "quantize.", "mradermacher.",
                                        "split."};
    for (size_t i = 0; i < vka_gguf_metadata_count(l->file); i++) {
        const struct vka_gguf_value *value = vka_gguf_metadata_at(l->file, i);
        bool fine = l->used_keys[i];
        for (size_t k = 0; k < sizeof inert / sizeof *inert; k++)
            fine |= strncmp(value->key, inert[k], strlen(inert[k])) == 0;
        if (!fine)
            return loader_refuse(l, "it is not known what this key would change", value->key);
    }
    return VKA_OK;
}

enum vka_status loader_check_tensors(const struct loader *l)
{
    for (size_t i = 0; i < vka_gguf_count(l->file); i++) {
        const struct vka_gguf_tensor *t = vka_gguf_at(l->file, i);
        if (!l->used_tensors[i] && t->size)
            return loader_refuse(l, "it is not known what this tensor would change", t->name);
    }
    return VKA_OK;
}
