/* Texts and token ids. SPDX-License-Identifier: MIT */
#include "text.h"
#include "letters.h"
#include "vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPACE "\xe2\x96\x81" /* U+2581, of SentencePiece */

struct text {
    const struct vka_gguf *file;
    struct vocabulary vocabulary;
    bool by_score;            /* SentencePiece; else byte-level BPE */
    enum letters_split split; /* of the latter: how words begin, */
    bool whole_words,
        normalised;            /* whether a word that is a token is that one, and NFC is wanted */
    bool prefix;               /* of SentencePiece: a space before the first word */
    int32_t bytes[256];        /* the token of each byte, -1: none */
    int32_t unknown, bos, eos; /* -1: none */
    bool adds_bos, adds_eos;
    uint32_t *whole; /* [n_whole] ids that are one id wherever they stand */
    uint32_t n_whole;
};

/* Ids that grow. */
struct list {
    int32_t *ids;
    size_t n, room;
    bool failed; /* for want of memory */
};

static void push(struct list *list, int32_t id)
{
    if (list->n == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        int32_t *ids = realloc(list->ids, room * sizeof *ids);
        list->failed |= !ids;
        if (!ids)
            return;
        list->ids = ids;
        list->room = room;
    }
    list->ids[list->n++] = id;
}

static bool key_is(const struct vka_gguf *file, const char *key, const char *word)
{
    const char *text;
    size_t at = 0, size;
    const struct vka_gguf_value *value = vka_gguf_metadata(file, key);
    return value && value->type == VKA_GGUF_STRING && vka_gguf_string(value, &at, &text, &size) &&
           strlen(word) == size && !memcmp(word, text, size);
}

static bool flag(const struct vka_gguf *file, const char *key, bool otherwise)
{
    int64_t value = otherwise;
    return vka_gguf_integer(vka_gguf_metadata(file, key), 0, &value) ? value != 0 : otherwise;
}

static int32_t id_of_key(const struct text *t, const char *key)
{
    int64_t id = -1;
    vka_gguf_integer(vka_gguf_metadata(t->file, key), 0, &id);
    return id >= 0 && id < t->vocabulary.n ? (int32_t)id : -1;
}

/* Printable bytes stand for themselves in a token, the others for the letters from 256 on. */
static uint32_t letter_of_byte(unsigned byte)
{
    static const unsigned char shown[][2] = {{33, 126}, {161, 172}, {174, 255}};
    uint32_t hidden = 0;
    for (unsigned b = 0; b <= byte; b++) {
        bool is_shown = false;
        for (size_t i = 0; i < 3; i++)
            is_shown |= b >= shown[i][0] && b <= shown[i][1];
        if (b == byte)
            return is_shown ? byte : 256 + hidden;
        hidden += !is_shown;
    }
    return 0;
}

static void find_bytes(struct text *t)
{
    for (unsigned b = 0; b < 256; b++) {
        char name[8];
        size_t size = t->by_score ? (size_t)snprintf(name, sizeof name, "<0x%02X>", b)
                                  : letters_write(letter_of_byte(b), name);
        int32_t id = vocabulary_find(&t->vocabulary, name, size);
        t->bytes[b] =
            t->by_score && id >= 0 && t->vocabulary.tokens[id].type != TOKEN_BYTE ? -1 : id;
    }
}

static enum vka_status find_split(struct text *t, const char *path, char *why)
{
    static const struct {
        const char *name;
        enum letters_split split;
    } known[] = {
        {"gpt-2", SPLIT_GPT2},    {"phi-2", SPLIT_GPT2},
        {"smollm", SPLIT_DIGITS}, {"starcoder", SPLIT_DIGITS},
        {"refact", SPLIT_DIGITS}, {"llama-bpe", SPLIT_LLAMA3},
        {"llama3", SPLIT_LLAMA3}, {"llama-v3", SPLIT_LLAMA3},
        {"qwen2", SPLIT_QWEN2},   {"deepseek-r1-qwen", SPLIT_QWEN2},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (key_is(t->file, "tokenizer.ggml.pre", known[i].name)) {
            t->split = known[i].split;
            t->whole_words = t->adds_bos = t->split == SPLIT_LLAMA3;
            t->normalised = t->split == SPLIT_QWEN2;
            return VKA_OK;
        }
    snprintf(why, VKA_IO_ERROR_SIZE,
             "%.300s: tokenizer.ggml.pre: expected gpt-2, phi-2, smollm, starcoder, refact, "
             "llama-bpe, llama3, llama-v3, qwen2 or deepseek-r1-qwen; give --ids",
             path);
    return VKA_UNSUPPORTED;
}

/* Keys that would change what is made of a text. */
static enum vka_status refuse_keys(const struct text *t, const char *path, char *why)
{
    static const char *const keys[] = {"remove_extra_whitespaces", "precompiled_charsmap",
                                       "add_sep_token", "add_space_prefix"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys - (t->by_score ? 1 : 0); i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s", keys[i]);
        if (!vka_gguf_metadata(t->file, key) || !flag(t->file, key, true))
            continue;
        snprintf(why, VKA_IO_ERROR_SIZE, "%.400s: %s is not supported; give --ids", path, key);
        return VKA_UNSUPPORTED;
    }
    return VKA_OK;
}

static enum vka_status find_ends(struct text *t, const char *path, char *why)
{
    struct vocabulary *v = &t->vocabulary;
    t->adds_bos = flag(t->file, "tokenizer.ggml.add_bos_token", t->by_score || t->adds_bos);
    t->adds_eos = flag(t->file, "tokenizer.ggml.add_eos_token", false);
    t->bos = id_of_key(t, "tokenizer.ggml.bos_token_id");
    t->eos = id_of_key(t, "tokenizer.ggml.eos_token_id");
    if ((t->adds_bos && t->bos < 0) || (t->adds_eos && t->eos < 0)) {
        snprintf(why, VKA_IO_ERROR_SIZE, "%.400s: expected tokenizer.ggml.%s_token_id", path,
                 t->adds_bos && t->bos < 0 ? "bos" : "eos");
        return VKA_INVALID;
    }
    t->unknown = -1;
    t->whole = malloc(v->n * sizeof *t->whole);
    for (uint32_t i = 0; t->whole && i < v->n; i++) {
        if (t->unknown < 0 && v->tokens[i].type == TOKEN_UNKNOWN)
            t->unknown = (int32_t)i;
        if (v->tokens[i].size &&
            (v->tokens[i].type == TOKEN_CONTROL || v->tokens[i].type == TOKEN_USER))
            t->whole[t->n_whole++] = i;
    }
    return t->whole ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
}

static enum vka_status read_tokenizer(struct text *t, const char *path, char *why)
{
    const struct vka_gguf *file = t->file;
    t->by_score = key_is(file, "tokenizer.ggml.model", "llama");
    if (!t->by_score && !key_is(file, "tokenizer.ggml.model", "gpt2")) {
        snprintf(why, VKA_IO_ERROR_SIZE,
                 "%.400s: tokenizer.ggml.model: expected gpt2 or llama; give --ids", path);
        return VKA_UNSUPPORTED;
    }
    enum vka_status status = refuse_keys(t, path, why);
    if (status == VKA_OK && !t->by_score)
        status = find_split(t, path, why);
    if (status == VKA_OK)
        status = vocabulary_read(file, path, &t->vocabulary, why);
    if (status == VKA_OK)
        status =
            (t->by_score ? vocabulary_scores : vocabulary_merges)(file, path, &t->vocabulary, why);
    if (status == VKA_OK)
        status = find_ends(t, path, why);
    if (status == VKA_OK)
        find_bytes(t);
    t->prefix = flag(file, "tokenizer.ggml.add_space_prefix", true);
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
    }
    free(*text);
    *text = NULL;
}

/* Merges what list holds from `first` on. */
static void join(const struct text *t, struct list *list, size_t first)
{
    uint32_t *ranks = malloc((list->n - first + 1) * sizeof *ranks);
    list->failed |= !ranks;
    if (ranks)
        list->n =
            first + vocabulary_join(&t->vocabulary, list->ids + first, ranks, list->n - first);
    free(ranks);
}

static void push_bytes(const struct text *t, const char *bytes, size_t size, struct list *list)
{
    for (size_t i = 0; i < size; i++)
        if (t->bytes[(unsigned char)bytes[i]] >= 0)
            push(list, t->bytes[(unsigned char)bytes[i]]);
}

/* A word that byte-level BPE makes, as its letters are one token. -1: it is none. */
static int32_t whole_word(const struct text *t, const char *word, size_t size)
{
    char written[256];
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        if (n + 4 > sizeof written)
            return -1;
        n += letters_write(letter_of_byte((unsigned char)word[i]), written + n);
    }
    return vocabulary_find(&t->vocabulary, written, n);
}

/* Words of a text of n letters; starts[i] is where letter i begins, starts[n] where the text ends. */
static void push_words(const struct text *t, const char *utf8, const uint32_t *letters,
                       const size_t *starts, size_t n, struct list *list)
{
    for (size_t at = 0, end; at < n; at = end) {
        end = letters_word_end(t->split, letters, n, at);
        const char *word = utf8 + starts[at];
        size_t size = starts[end] - starts[at], first = list->n;
        int32_t whole = t->whole_words ? whole_word(t, word, size) : -1;
        if (whole >= 0) {
            push(list, whole);
            continue;
        }
        push_bytes(t, word, size, list);
        join(t, list, first);
    }
}

/* A letter of SentencePiece: its token, else those of its bytes, else the unknown one, once. */
static void push_letter(const struct text *t, const char *letter, size_t size, struct list *list)
{
    int32_t id = vocabulary_find(&t->vocabulary, letter, size);
    bool bytes = id < 0;
    for (size_t i = 0; i < size; i++)
        bytes &= t->bytes[(unsigned char)letter[i]] >= 0;
    if (bytes)
        push_bytes(t, letter, size, list);
    else if (id >= 0)
        push(list, id);
    else if (t->unknown >= 0 && !(list->n && list->ids[list->n - 1] == t->unknown))
        push(list, t->unknown);
}

static void push_by_score(const struct text *t, const char *utf8, const size_t *starts, size_t n,
                          struct list *list)
{
    size_t first = list->n;
    if (t->prefix)
        push_letter(t, SPACE, 3, list);
    for (size_t i = 0; i < n; i++) {
        size_t size = starts[i + 1] - starts[i];
        bool space = utf8[starts[i]] == ' ';
        push_letter(t, space ? SPACE : utf8 + starts[i], space ? 3 : size, list);
    }
    join(t, list, first);
}

/* A text without tokens that are one id wherever they stand. */
static enum vka_status push_plain(const struct text *t, const char *utf8, size_t size,
                                  struct list *list, char *why)
{
    uint32_t *letters = malloc((size + 1) * sizeof *letters);
    size_t *starts = malloc((size + 1) * sizeof *starts), n = 0, at = 0;
    enum vka_status status = letters && starts ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
    while (status == VKA_OK && at < size) {
        starts[n] = at;
        if (!letters_read(utf8, size, &at, &letters[n])) {
            snprintf(why, VKA_IO_ERROR_SIZE, "the text is not UTF-8 at byte %zu", at);
            status = VKA_INVALID;
        } else if (t->normalised && letters_unstable(letters[n])) {
            snprintf(why, VKA_IO_ERROR_SIZE,
                     "the text has U+%04X, which its normal form C may have otherwise; give --ids",
                     (unsigned)letters[n]);
            status = VKA_UNSUPPORTED;
        }
        n++;
    }
    if (status == VKA_OK && n) {
        starts[n] = size;
        if (t->by_score)
            push_by_score(t, utf8, starts, n, list);
        else
            push_words(t, utf8, letters, starts, n, list);
    }
    free(letters);
    free(starts);
    return status;
}

/* The longest token at `at` that is one id wherever it stands; -1: none. */
static int32_t whole_at(const struct text *t, const char *utf8, size_t left)
{
    int32_t best = -1;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < t->n_whole; i++) {
        const struct token *token = &t->vocabulary.tokens[t->whole[i]];
        if (token->size > longest && token->size <= left &&
            !memcmp(token->text, utf8, token->size)) {
            best = (int32_t)t->whole[i];
            longest = token->size;
        }
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
        push(&list, t->bos);
    while (status == VKA_OK && at < size) {
        int32_t id = whole_at(t, utf8 + at, size - at);
        if (id < 0) {
            at++;
            continue;
        }
        status = push_plain(t, utf8 + begin, at - begin, &list, why);
        push(&list, id);
        begin = at += t->vocabulary.tokens[id].size;
    }
    if (status == VKA_OK)
        status = push_plain(t, utf8 + begin, size - begin, &list, why);
    if (t->adds_eos)
        push(&list, t->eos);
    if (status == VKA_OK && list.failed)
        status = VKA_OUT_OF_HOST_MEMORY;
    if (status != VKA_OK)
        free(list.ids);
    *ids = status == VKA_OK ? list.ids : NULL;
    *n = status == VKA_OK ? (uint32_t)list.n : 0;
    return status;
}

static size_t byte_of_letter(uint32_t c)
{
    for (unsigned b = 0; b < 256; b++)
        if (letter_of_byte(b) == c)
            return b;
    return 256;
}

size_t text_decode(const struct text *t, int32_t id, char *bytes, size_t room)
{
    const struct token *token = &t->vocabulary.tokens[id];
    size_t at = 0, n = 0;
    if (token->type == TOKEN_CONTROL)
        return 0;
    if (token->type == TOKEN_BYTE && t->by_score) {
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
        if (t->by_score && c == 0x2581)
            bytes[n++] = ' ';
        else if (!t->by_score && token->type != TOKEN_USER && (byte = byte_of_letter(c)) < 256)
            bytes[n++] = (char)byte;
        else
            for (; start < at; start++)
                bytes[n++] = token->text[start];
    }
    return n;
}

bool text_ends(const struct text *t, int32_t id)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id"};
    bool ends = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ends |= id_of_key(t, keys[i]) == id;
    return ends;
}
