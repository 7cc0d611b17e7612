/* Ids of texts, and bytes of ids. SPDX-License-Identifier: MIT */
#include "text.h"
#include "merges.h"
#include "unigram.h"
#include "words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum vka_status push_letters(const struct text *t, const struct letters *l,
                                    struct list *list, char *why)
{
    switch (t->kind) {
    case TEXT_BYTE_PAIRS:
        pairs_encode(t, l, list);
        return VKA_OK;
    case TEXT_SCORES:
        scores_encode(t, l, list);
        return VKA_OK;
    case TEXT_WORDS:
        return words_encode(t, l, list, why);
    case TEXT_UNIGRAM:
        unigram_encode(t, l, list);
        return VKA_OK;
    }
    return VKA_INTERNAL;
}

/* A text without tokens that are one id wherever they stand. */
static enum vka_status push_plain(const struct text *t, const char *utf8, size_t size,
                                  struct list *list, char *why)
{
    struct letters l = {utf8, malloc((size + 1) * sizeof *l.points),
                        malloc((size + 1) * sizeof *l.starts), 0};
    enum vka_status status = l.points && l.starts ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    for (size_t at = 0; status == VKA_OK && at < size; l.n++) {
        l.starts[l.n] = at;
        if (!letters_read(utf8, size, &at, &l.points[l.n])) {
            snprintf(why, VKA_IO_ERROR_SIZE, "the text is not UTF-8 at byte %zu", at);
            status = VKA_INVALID;
        } else if (t->splits && t->splits->normalised && letters_unstable(l.points[l.n])) {
            snprintf(why, VKA_IO_ERROR_SIZE,
                     "the text has U+%04X, which its normal form C may have otherwise; give --ids",
                     (unsigned)l.points[l.n]);
            status = VKA_UNSUPPORTED;
        }
    }
    if (status == VKA_OK && l.n) {
        l.starts[l.n] = size;
        status = push_letters(t, &l, list, why);
    }
    free(l.points);
    free(l.starts);
    return status;
}

/* The first of whole tokens `low` on, all of which begin with the same n bytes, that has a byte from c on
 * behind them; `high`: none. One that ends there comes first. */
static uint32_t whole_from(const struct text *t, uint32_t low, uint32_t high, uint32_t n,
                           unsigned c)
{
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const struct token *token = t->whole[middle];
        if (token->size <= n || (unsigned char)token->text[n] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token at a place that is one id wherever it stands; -1: none. Takes a step for each byte
 * with which any of them goes on. */
static int32_t whole_at(const struct text *t, const char *utf8, size_t left)
{
    int32_t best = -1;
    uint32_t low = 0, high = t->n_whole;
    for (uint32_t n = 0; n < left && low < high; n++) {
        const unsigned c = (unsigned char)utf8[n];
        low = whole_from(t, low, high, n, c);
        high = whole_from(t, low, high, n, c + 1);
        if (low < high && t->whole[low]->size == n + 1)
            best = (int32_t)(t->whole[low] - t->vocabulary.tokens);
    }
    return best;
}

enum vka_status text_encode(const struct text *t, const char *utf8, int32_t **ids, uint32_t *n,
                            char why[VKA_IO_ERROR_SIZE])
{
    struct list list = {0};
    enum vka_status status = VKA_OK;
    size_t size = strlen(utf8), begin = 0, at = 0;
    if (t->adds_bos)
        list_push(&list, t->bos);
    while (status == VKA_OK && at < size) {
        int32_t id = whole_at(t, utf8 + at, size - at);
        if (id < 0) {
            at++;
            continue;
        }
        status = push_plain(t, utf8 + begin, at - begin, &list, why);
        list_push(&list, id);
        begin = at += t->vocabulary.tokens[id].size;
    }
    if (status == VKA_OK)
        status = push_plain(t, utf8 + begin, size - begin, &list, why);
    if (t->adds_eos)
        list_push(&list, t->eos);
    if (status == VKA_OK && list.failed)
        status = VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK && t->most && list.n > t->most) {
        snprintf(why, VKA_IO_ERROR_SIZE,
                 "a text has %zu tokens, more than max_seq_length %zu; shorten it or give --ids",
                 list.n, t->most);
        status = VKA_UNSUPPORTED;
    }
    if (status != VKA_OK)
        free(list.ids);
    *ids = status == VKA_OK ? list.ids : NULL;
    *n = status == VKA_OK ? (uint32_t)list.n : 0;
    return status;
}

static size_t byte_of_letter(uint32_t c)
{
    for (unsigned b = 0; b < 256; b++)
        if (text_letter_of_byte(b) == c)
            return b;
    return 256;
}

size_t text_longest(const struct text *t)
{
    return (size_t)t->vocabulary.longest + 4;
}

size_t text_decode(const struct text *t, int32_t id, char *bytes, size_t room)
{
    if (id < 0 || (uint32_t)id >= t->vocabulary.n) /* rows of the embedding that no token has */
        return 0;
    const struct token *token = &t->vocabulary.tokens[id];
    bool pairs = t->kind == TEXT_BYTE_PAIRS;
    size_t at = 0, n = 0;
    if (token->type == TOKEN_CONTROL)
        return 0;
    if (token->type == TOKEN_BYTE && !pairs) {
        unsigned byte = 0;
        while (byte < 255 && t->bytes[byte] != id)
            byte++;
        bytes[0] = (char)byte;
        return 1;
    }
    while (at < token->size && n + 4 <= room) {
        size_t start = at, byte;
        uint32_t c;
        if (!letters_read(token->text, token->size, &at, &c))
            c = (unsigned char)token->text[at++];
        if (!pairs && c == 0x2581)
            bytes[n++] = ' ';
        else if (pairs && token->type != TOKEN_USER && (byte = byte_of_letter(c)) < 256)
            bytes[n++] = (char)byte;
        else
            for (; start < at; start++)
                bytes[n++] = token->text[start];
    }
    return n;
}

/* Control tokens that end a text or a turn, as models write them. */
static bool is_end(const struct token *token)
{
    static const char *const names[] = {
        "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>",      "<|eom_id|>", "<|im_end|>",
        "<|end|>",       "<end_of_turn>",   "<|end_of_turn|>", "<|return|>", "<EOT>"};
    if (token->type != TOKEN_CONTROL && token->type != TOKEN_USER)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (token->size == strlen(names[i]) && memcmp(token->text, names[i], token->size) == 0)
            return true;
    return false;
}

bool text_ends(const struct text *t, int32_t id)
{
    static const char *const keys[] = {"eos", "eot", "eom"};
    if (id >= 0 && (uint32_t)id < t->vocabulary.n && is_end(&t->vocabulary.tokens[id]))
        return true;
    for (size_t i = 0; t->file && i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        int64_t end;
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", keys[i]);
        const struct vka_gguf_value *value = vka_gguf_metadata(t->file, key);
        for (uint64_t n = 0; value && n < value->count; n++) /* a number, or a list of them */
            if (vka_gguf_integer(value, n, &end) && end == id)
                return true;
    }
    return false;
}
