/* A tokenizer as a file says it is. SPDX-License-Identifier: MIT */
#include "text.h"
#include "merges.h"
#include "unigram.h"
#include "words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool key_is(const struct vka_gguf *file, const char *key, const char *word)
{
    const char *text;
    size_t at = 0, size;
    const struct vka_gguf_value *value = vka_gguf_metadata(file, key);
    return value && value->type == VKA_GGUF_STRING && vka_gguf_string(value, &at, &text, &size) &&
           strlen(word) == size && !memcmp(word, text, size);
}

static void find_bytes(struct text *t)
{
    for (unsigned b = 0; b < 256; b++) {
        char name[8];
        bool pairs = t->kind == TEXT_BYTE_PAIRS;
        size_t size = pairs ? letters_write(text_letter_of_byte(b), name)
                            : (size_t)snprintf(name, sizeof name, "<0x%02X>", b);
        int32_t id = vocabulary_find(&t->vocabulary, name, size);
        bool is = id >= 0 && (pairs || t->vocabulary.tokens[id].type == TOKEN_BYTE);
        t->bytes[b] = is ? id : -1;
    }
}

static enum vka_status find_splits(struct text *t, const char *path, char *why)
{
    const char *name = "default";
    size_t at = 0, size = strlen(name);
    bool known = true;
    const struct vka_gguf_value *value = vka_gguf_metadata(t->file, "tokenizer.ggml.pre");
    if (value && (value->type != VKA_GGUF_STRING || !vka_gguf_string(value, &at, &name, &size)))
        size = 0;
    t->splits = splits_of(name, size, &known);
    if (!t->splits && known)
        return VKA_OUT_OF_HOST_MEMORY;
    if (t->splits)
        return VKA_OK;
    snprintf(
        why, VKA_IO_ERROR_SIZE,
        "%.300s: tokenizer.ggml.pre: \"%.*s\" is not supported, docs/models.md lists those that "
        "are; give --ids",
        path, (int)(size < 60 ? size : 60), name);
    return VKA_UNSUPPORTED;
}

/* Keys that would change what is made of a text. */
static enum vka_status refuse_keys(const struct text *t, const char *path, char *why)
{
    static const struct {
        const char *key;
        bool known[TEXT_UNIGRAM + 1]; /* by kind */
    } keys[] = {
        {"remove_extra_whitespaces", {[TEXT_UNIGRAM] = true}},
        {"precompiled_charsmap", {[TEXT_UNIGRAM] = true}},
        {"add_sep_token", {[TEXT_WORDS] = true}},
        {"add_space_prefix", {[TEXT_SCORES] = true, [TEXT_UNIGRAM] = true}},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s", keys[i].key);
        if (keys[i].known[t->kind] || !vka_gguf_metadata(t->file, key) ||
            !text_flag(t, keys[i].key, true))
            continue;
        snprintf(why, VKA_IO_ERROR_SIZE, "%.400s: %s is not supported; give --ids", path, key);
        return VKA_UNSUPPORTED;
    }
    return VKA_OK;
}

/* The first id that one of two keys has, or that of a token with these letters. */
static int32_t find_end(const struct text *t, const char *key, const char *other, const char *token)
{
    int32_t id = text_id(t, key);
    if (id < 0)
        id = text_id(t, other);
    return id < 0 ? vocabulary_find(&t->vocabulary, token, strlen(token)) : id;
}

/* Which ids stand before and behind a text. */
static enum vka_status find_ends(struct text *t, const char *path, char *why)
{
    bool words = t->kind == TEXT_WORDS;
    t->adds_bos = text_flag(t, "add_bos_token",
                            words || t->kind == TEXT_SCORES || (t->splits && t->splits->adds_bos));
    t->adds_eos =
        text_flag(t, words ? "add_sep_token" : "add_eos_token", words || t->kind == TEXT_UNIGRAM);
    t->bos =
        words ? find_end(t, "cls_token_id", "bos_token_id", "[CLS]") : text_id(t, "bos_token_id");
    t->eos = words ? find_end(t, "seperator_token_id", "eos_token_id", "[SEP]")
                   : text_id(t, "eos_token_id");
    if ((!t->adds_bos || t->bos >= 0) && (!t->adds_eos || t->eos >= 0))
        return VKA_OK;
    snprintf(why, VKA_IO_ERROR_SIZE,
             "%.400s: expected tokenizer.ggml.%s_token_id, the id of one of %u tokens", path,
             t->adds_bos && t->bos < 0 ? "bos" : "eos", (unsigned)t->vocabulary.n);
    return VKA_INVALID;
}

/* Tokens that are one id wherever they stand, and the unknown one. */
static enum vka_status find_whole(struct text *t)
{
    const struct vocabulary *v = &t->vocabulary;
    t->unknown = -1;
    t->whole = malloc(v->n * sizeof *t->whole);
    for (uint32_t i = 0; t->whole && i < v->n; i++) {
        if (t->unknown < 0 && v->tokens[i].type == TOKEN_UNKNOWN)
            t->unknown = (int32_t)i;
        if (v->tokens[i].size &&
            (v->tokens[i].type == TOKEN_CONTROL || v->tokens[i].type == TOKEN_USER))
            t->whole[t->n_whole++] = &v->tokens[i];
    }
    if (t->whole)
        vocabulary_sort(t->whole, t->n_whole);
    return t->whole ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
}

static enum vka_status find_kind(struct text *t, const char *path, char *why)
{
    static const struct {
        const char *name;
        enum text_kind kind;
    } kinds[] = {{"gpt2", TEXT_BYTE_PAIRS},
                 {"llama", TEXT_SCORES},
                 {"bert", TEXT_WORDS},
                 {"t5", TEXT_UNIGRAM}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (key_is(t->file, "tokenizer.ggml.model", kinds[i].name)) {
            t->kind = kinds[i].kind;
            return VKA_OK;
        }
    snprintf(why, VKA_IO_ERROR_SIZE,
             "%.400s: tokenizer.ggml.model: expected gpt2, llama, bert or t5; give --ids", path);
    return VKA_UNSUPPORTED;
}

static enum vka_status read_kind(struct text *t, const char *path, char *why)
{
    switch (t->kind) {
    case TEXT_BYTE_PAIRS:
        return vocabulary_merges(t->file, path, &t->vocabulary, why);
    case TEXT_SCORES:
        return vocabulary_scores(t->file, path, &t->vocabulary, why);
    case TEXT_WORDS:
        return words_read(t, path, why);
    case TEXT_UNIGRAM:
        return unigram_read(t, path, why);
    }
    return VKA_INTERNAL;
}

static enum vka_status read_tokenizer(struct text *t, const char *path, char *why)
{
    enum vka_status status = find_kind(t, path, why);
    if (status == VKA_OK)
        status = refuse_keys(t, path, why);
    if (status == VKA_OK && t->kind == TEXT_BYTE_PAIRS)
        status = find_splits(t, path, why);
    if (status == VKA_OK)
        status = vocabulary_read(t->file, path, &t->vocabulary, why);
    if (status == VKA_OK)
        status = find_whole(t);
    if (status == VKA_OK)
        status = read_kind(t, path, why);
    if (status == VKA_OK)
        status = find_ends(t, path, why);
    if (status == VKA_OK)
        find_bytes(t);
    t->prefix = text_flag(t, "add_space_prefix", true);
    return status;
}

enum vka_status text_open(const struct vka_gguf *file, const char *path, struct text **text,
                          char why[VKA_IO_ERROR_SIZE])
{
    struct text *t = *text = calloc(1, sizeof *t);
    if (!t)
        return VKA_OUT_OF_HOST_MEMORY;
    t->file = file;
    enum vka_status status = read_tokenizer(t, path, why);
    if (status != VKA_OK)
        text_close(text);
    return status;
}

void text_close(struct text **text)
{
    if (*text) {
        vocabulary_free(&(*text)->vocabulary);
        free((*text)->whole);
        free((*text)->splits);
        free((*text)->lines);
    }
    free(*text);
    *text = NULL;
}
