/* SentencePiece's unigram: the tokens of a text whose scores have the largest sum.
 * SPDX-License-Identifier: MIT */
#include "unigram.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES 1024    /* of a token, which is looked for at each letter */
#define UNKNOWN_PENALTY 10 /* below the lowest score: a letter that no token has */

/* Bytes that grow. */
struct buffer {
    char *bytes;
    size_t n, room;
    bool failed; /* for want of memory */
};

static void append(struct buffer *b, const char *bytes, size_t n)
{
    if (b->n + n > b->room) {
        size_t room = 2 * (b->n + n);
        char *grown = realloc(b->bytes, room);
        b->failed |= !grown;
        if (!grown)
            return;
        b->bytes = grown;
        b->room = room;
    }
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
}

/* Appends with U+2581 for spaces; trims: without those behind a space. */
static void append_normal(const struct text *t, const char *bytes, size_t n, bool *behind_space,
                          struct buffer *b)
{
    for (size_t i = 0; i < n; i++) {
        bool space = bytes[i] == ' ';
        if (!(space && t->trims && *behind_space))
            append(b, space ? TEXT_SPACE : bytes + i, space ? 3 : 1);
        *behind_space = space;
    }
}

/* The text by the table of the file, with the spaces that the file wants. */
static struct buffer normalise(const struct text *t, const struct letters *letters)
{
    struct buffer b = {0};
    size_t size = letters->starts[letters->n], prefix;
    bool behind_space = true; /* a space at the begin */
    if (t->prefix)
        append(&b, TEXT_SPACE, 3);
    prefix = b.n;
    for (size_t i = 0; i < letters->n;) {
        const char *at = letters->utf8 + letters->starts[i], *to = NULL;
        size_t whole = charsmap_find(&t->map, at, size - letters->starts[i], &to);
        size_t own = letters->starts[i + 1] - letters->starts[i];
        append_normal(t, whole ? to : at, whole ? strlen(to) : own, &behind_space, &b);
        size_t end = letters->starts[i] + (whole ? whole : own);
        while (i < letters->n && letters->starts[i] < end)
            i++;
    }
    while (t->trims && b.n >= prefix + 3 && !memcmp(b.bytes + b.n - 3, TEXT_SPACE, 3))
        b.n -= 3;
    if (t->trims && b.n == prefix)
        b.n = 0;
    return b;
}

/* The best way to what ends at a byte of the text. */
struct step {
    float score;
    int32_t id;      /* its last token; the unknown one: a letter that no token has */
    uint32_t length; /* of that token, in bytes; 0: nothing ends here */
};

static size_t letter_size(const char *text, size_t size, size_t at)
{
    uint32_t c;
    size_t end = at;
    return letters_read(text, size, &end, &c) ? end - at : 1;
}

static void offer(struct step *step, float score, int32_t id, size_t length)
{
    if (!step->length || score > step->score)
        *step = (struct step){score, id, (uint32_t)length};
}

/* steps[i], of n + 1, has what ends at byte i. */
static void search(const struct text *t, const char *bytes, size_t n, struct step *steps)
{
    const struct vocabulary *v = &t->vocabulary;
    const struct vka_gguf_value *scores = vka_gguf_metadata(t->file, "tokenizer.ggml.scores");
    for (size_t at = 0; at < n; at += letter_size(bytes, n, at)) {
        size_t letter = letter_size(bytes, n, at), hashed = at;
        float so_far = at ? steps[at].score : 0;
        uint32_t hash = VOCABULARY_NO_BYTES;
        bool alone = false;
        for (size_t end = at + letter; end <= n && end - at <= t->longest;
             end += end < n ? letter_size(bytes, n, end) : 1) {
            hash = vocabulary_hash(hash, bytes + hashed, end - hashed);
            hashed = end;
            int32_t id = vocabulary_find_hashed(v, bytes + at, end - at, hash);
            double score;
            if (id < 0 || v->tokens[id].type != TOKEN_NORMAL)
                continue;
            vka_gguf_real(scores, (uint32_t)id, &score);
            offer(&steps[end], so_far + (float)score, id, end - at);
            alone |= end == at + letter;
        }
        if (!alone)
            offer(&steps[at + letter], so_far + t->unknown_score, t->unknown, letter);
    }
}

/* A letter that no token has: its bytes, where all are tokens, else the unknown one, once. */
static void push_unknown(const struct text *t, const char *letter, size_t size, struct list *list)
{
    bool bytes = true;
    for (size_t i = 0; i < size; i++)
        bytes &= t->bytes[(unsigned char)letter[i]] >= 0;
    if (bytes)
        list_push_bytes(t, letter, size, list);
    else if (!(list->n && list->ids[list->n - 1] == t->unknown))
        list_push(list, t->unknown);
}

void unigram_encode(const struct text *t, const struct letters *letters, struct list *list)
{
    struct buffer b = normalise(t, letters);
    struct step *steps = calloc(b.n + 1, sizeof *steps);
    uint32_t *lengths = malloc((b.n + 1) * sizeof *lengths);
    size_t n = 0, at = 0;
    list->failed |= b.failed || !steps || !lengths;
    if (!list->failed && b.n) {
        search(t, b.bytes, b.n, steps);
        for (size_t end = b.n; end > 0; end -= steps[end].length)
            lengths[n++] = steps[end].length;
    }
    while (n-- > 0 && !list->failed) {
        const struct step *step = &steps[at + lengths[n]];
        if (step->id == t->unknown)
            push_unknown(t, b.bytes + at, step->length, list);
        else
            list_push(list, step->id);
        at += step->length;
    }
    free(b.bytes);
    free(steps);
    free(lengths);
}

static enum vka_status refuse(const char *path, const char *what, enum vka_status status, char *why)
{
    snprintf(why, VKA_IO_ERROR_SIZE, "%.400s: tokenizer.ggml.%s", path, what);
    return status;
}

enum vka_status unigram_read(struct text *t, const char *path, char *why)
{
    const struct vocabulary *v = &t->vocabulary;
    const struct vka_gguf_value *map =
        vka_gguf_metadata(t->file, "tokenizer.ggml.precompiled_charsmap");
    const struct vka_gguf_value *scores = vka_gguf_metadata(t->file, "tokenizer.ggml.scores");
    double least = DBL_MAX, score;
    if (map && (map->type != VKA_GGUF_ARRAY || map->size != map->count ||
                !charsmap_read(map->data, map->size, &t->map)))
        return refuse(path, "precompiled_charsmap: expected the table of a SentencePiece model",
                      VKA_INVALID, why);
    for (uint32_t i = 0; i < v->n; i++) {
        if (!scores || scores->count != v->n || !vka_gguf_real(scores, i, &score) ||
            !isfinite(score))
            return refuse(path, "scores: expected a number for each token", VKA_INVALID, why);
        if (v->tokens[i].type != TOKEN_NORMAL)
            continue;
        uint32_t size = v->tokens[i].size;
        if (size > MOST_BYTES)
            return refuse(path, "tokens: one of more than 1024 bytes is not supported; give --ids",
                          VKA_UNSUPPORTED, why);
        least = score < least ? score : least;
        t->longest = size > t->longest ? size : t->longest;
    }
    t->unknown_score = (float)(least < DBL_MAX ? least : 0) - UNKNOWN_PENALTY;
    t->trims = text_flag(t, "remove_extra_whitespaces", false);
    t->unknown = text_id(t, "unknown_token_id");
    if (t->unknown < 0)
        t->unknown = vocabulary_find(v, "<unk>", 5);
    return t->unknown < 0 ? refuse(path, "unknown_token_id: expected an id", VKA_INVALID, why)
                          : VKA_OK;
}
