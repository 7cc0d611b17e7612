/* The tokens of a GGUF file. SPDX-License-Identifier: MIT */
#include "vocabulary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TOKENS (1u << 24)
#define MOST_BYTES 1024 /* of a token whose halves are all looked up */
#define NO_RANK UINT32_MAX
#define NO_PLACE SIZE_MAX

static enum vka_status refuse(const char *path, const char *what, enum vka_status status, char *why)
{
    snprintf(why, VKA_IO_ERROR_SIZE, "%.400s: tokenizer.ggml.%s", path, what);
    return status;
}

uint32_t vocabulary_hash(uint32_t hash, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}

static uint32_t slot_of_hash(uint32_t hash)
{
    return hash ^ hash >> 15;
}

static uint32_t hash_pair(int32_t left, int32_t right)
{
    uint64_t both = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(both >> 32);
}

/* A power of two, at least twice n. */
static uint32_t room_for(size_t n)
{
    uint32_t room = 16;
    while (room < 2 * n)
        room *= 2;
    return room;
}

int32_t vocabulary_find_hashed(const struct vocabulary *v, const char *text, size_t size,
                               uint32_t hash)
{
    for (uint32_t at = slot_of_hash(hash);; at++) {
        int32_t id = v->slots[at & (v->n_slot - 1)];
        if (id < 0 || (v->tokens[id].size == size && !memcmp(v->tokens[id].text, text, size)))
            return id;
    }
}

int32_t vocabulary_find(const struct vocabulary *v, const char *text, size_t size)
{
    return vocabulary_find_hashed(v, text, size, vocabulary_hash(VOCABULARY_NO_BYTES, text, size));
}

static enum vka_status read_types(const struct vka_gguf *file, const char *path,
                                  struct vocabulary *v, char *why)
{
    const struct vka_gguf_value *types = vka_gguf_metadata(file, "tokenizer.ggml.token_type");
    for (uint32_t i = 0; i < v->n; i++) {
        int64_t type = TOKEN_NORMAL;
        if (types && (types->count != v->n || !vka_gguf_integer(types, i, &type) || type < 0 ||
                      type > TOKEN_BYTE))
            return refuse(path, "token_type: expected a type from 0 to 6 for each token",
                          VKA_INVALID, why);
        v->tokens[i].type = (uint8_t)type;
    }
    return VKA_OK;
}

static bool make_tokens(struct vocabulary *v, size_t n)
{
    v->n_slot = room_for(n);
    v->tokens = calloc(n, sizeof *v->tokens);
    v->slots = malloc(v->n_slot * sizeof *v->slots);
    if (v->slots)
        memset(v->slots, 0xff, v->n_slot * sizeof *v->slots);
    return v->tokens && v->slots;
}

/* False: it is there already. */
static bool add_token(struct vocabulary *v, const char *text, size_t size)
{
    if (size > UINT32_MAX || vocabulary_find(v, text, size) >= 0)
        return false;
    uint32_t slot = slot_of_hash(vocabulary_hash(VOCABULARY_NO_BYTES, text, size));
    while (v->slots[slot & (v->n_slot - 1)] >= 0)
        slot++;
    v->slots[slot & (v->n_slot - 1)] = (int32_t)v->n;
    v->tokens[v->n++] = (struct token){text, (uint32_t)size, TOKEN_NORMAL};
    v->longest = size > v->longest ? (uint32_t)size : v->longest;
    return true;
}

enum vka_status vocabulary_read(const struct vka_gguf *file, const char *path, struct vocabulary *v,
                                char *why)
{
    const struct vka_gguf_value *list = vka_gguf_metadata(file, "tokenizer.ggml.tokens");
    if (!list || list->item != VKA_GGUF_STRING || !list->count || list->count > MOST_TOKENS)
        return refuse(path, "tokens: expected the texts of the tokens", VKA_INVALID, why);
    if (!make_tokens(v, list->count))
        return VKA_OUT_OF_HOST_MEMORY;
    const char *text;
    size_t at = 0, size;
    while (v->n < list->count && vka_gguf_string(list, &at, &text, &size)) {
        if (!add_token(v, text, size))
            return refuse(path, "tokens: a token occurs twice", VKA_INVALID, why);
    }
    return read_types(file, path, v, why);
}

enum vka_status vocabulary_lines(const char *lines, size_t size, const char *path,
                                 struct vocabulary *v, char *why)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += lines[i] == '\n';
    if (n >= MOST_TOKENS || !make_tokens(v, n + 1))
        return VKA_OUT_OF_HOST_MEMORY;
    for (size_t at = 0; at < size;) {
        const char *end = memchr(lines + at, '\n', size - at);
        size_t length = end ? (size_t)(end - lines) - at : size - at;
        size_t next = at + length + 1;
        length -= length && lines[at + length - 1] == '\r';
        if (!add_token(v, lines + at, length)) {
            snprintf(why, VKA_IO_ERROR_SIZE, "%.400s: line %u: the token occurs twice", path,
                     (unsigned)v->n + 1);
            return VKA_INVALID;
        }
        at = next;
    }
    return VKA_OK;
}

void vocabulary_free(struct vocabulary *v)
{
    free(v->tokens);
    free(v->slots);
    free(v->merges);
    *v = (struct vocabulary){0};
}

static enum vka_status make_merges(struct vocabulary *v, size_t n)
{
    v->n_merge_slot = room_for(n);
    v->merges = malloc(v->n_merge_slot * sizeof *v->merges);
    for (uint32_t i = 0; v->merges && i < v->n_merge_slot; i++)
        v->merges[i].left = -1;
    return v->merges ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
}

static struct merge *slot_of(const struct vocabulary *v, int32_t left, int32_t right)
{
    for (uint32_t at = hash_pair(left, right);; at++) {
        struct merge *m = &v->merges[at & (v->n_merge_slot - 1)];
        if (m->left < 0 || (m->left == left && m->right == right))
            return m;
    }
}

const struct merge *vocabulary_merge(const struct vocabulary *v, int32_t left, int32_t right)
{
    const struct merge *m = slot_of(v, left, right);
    return m->left < 0 ? NULL : m;
}

enum vka_status vocabulary_merges(const struct vka_gguf *file, const char *path,
                                  struct vocabulary *v, char *why)
{
    const struct vka_gguf_value *list = vka_gguf_metadata(file, "tokenizer.ggml.merges");
    if (!list || list->item != VKA_GGUF_STRING || list->count > MOST_TOKENS)
        return refuse(path, "merges: expected pairs of tokens", VKA_INVALID, why);
    if (make_merges(v, list->count) != VKA_OK)
        return VKA_OUT_OF_HOST_MEMORY;
    const char *text;
    size_t at = 0, size;
    for (uint32_t rank = 0; rank < list->count && vka_gguf_string(list, &at, &text, &size);
         rank++) {
        const char *space = memchr(text, ' ', size);
        char both[2 * MOST_BYTES];
        size_t left = space ? (size_t)(space - text) : 0, right = space ? size - left - 1 : 0;
        if (!left || !right || left + right > sizeof both || memchr(space + 1, ' ', right))
            return refuse(path, "merges: one is no pair", VKA_INVALID, why);
        memcpy(both, text, left);
        memcpy(both + left, space + 1, right);
        struct merge m = {vocabulary_find(v, text, left), vocabulary_find(v, space + 1, right),
                          vocabulary_find(v, both, left + right), rank};
        if (m.left < 0 || m.right < 0 || m.made < 0)
            return refuse(path, "merges: one is of tokens that are not there", VKA_INVALID, why);
        struct merge *slot = slot_of(v, m.left, m.right);
        if (slot->left < 0) /* one that is listed twice has its first rank, as for llama.cpp */
            *slot = m;
    }
    return VKA_OK;
}

/* A pair whose token has a score, to be put in order. */
struct scored {
    struct merge merge;
    double score;
    uint32_t letters;        /* of the left one */
    const struct token *all; /* of the vocabulary */
};

static int compare_bytes(const struct token *a, const struct token *b)
{
    uint32_t least = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->text, b->text, least);
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

/* By their bytes; equal ones by their ids. */
static int compare_tokens(const void *a, const void *b)
{
    const struct token *x = *(const struct token *const *)a, *y = *(const struct token *const *)b;
    int order = compare_bytes(x, y);
    return order ? order : (x > y) - (x < y);
}

void vocabulary_sort(const struct token **list, size_t n)
{
    qsort(list, n, sizeof *list, compare_tokens);
}

/* The highest score first; of equal ones that with the longest begin. */
static int compare_scored(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score > y->score || x->score < y->score)
        return x->score > y->score ? -1 : 1;
    if (x->letters != y->letters)
        return x->letters > y->letters ? -1 : 1;
    int order = compare_bytes(&x->all[x->merge.left], &x->all[y->merge.left]);
    return order ? order : compare_bytes(&x->all[x->merge.right], &x->all[y->merge.right]);
}

static bool usable(const struct vocabulary *v, int32_t id)
{
    return id >= 0 && (v->tokens[id].type == TOKEN_NORMAL || v->tokens[id].type == TOKEN_USER ||
                       v->tokens[id].type == TOKEN_UNUSED);
}

/* Adds the pairs that make a token; list NULL: counts them. */
static size_t add_pairs(const struct vocabulary *v, int32_t id, double score, struct scored *list)
{
    const struct token *t = &v->tokens[id];
    size_t n = 0;
    uint32_t letters = 0;
    for (uint32_t i = 1; usable(v, id) && i < t->size; i++) {
        if (((unsigned char)t->text[i] & 0xc0) == 0x80) /* within a letter */
            continue;
        letters++;
        int32_t left = vocabulary_find(v, t->text, i);
        int32_t right = vocabulary_find(v, t->text + i, t->size - i);
        if (!usable(v, left) || !usable(v, right))
            continue;
        if (list)
            list[n] = (struct scored){{left, right, id, 0}, score, letters, v->tokens};
        n++;
    }
    return n;
}

enum vka_status vocabulary_scores(const struct vka_gguf *file, const char *path,
                                  struct vocabulary *v, char *why)
{
    const struct vka_gguf_value *scores = vka_gguf_metadata(file, "tokenizer.ggml.scores");
    size_t n = 0, at = 0;
    double score = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        if (!scores || scores->count != v->n || !vka_gguf_real(scores, i, &score) ||
            !isfinite(score))
            return refuse(path, "scores: expected a number for each token", VKA_INVALID, why);
        if (v->tokens[i].size > MOST_BYTES && usable(v, (int32_t)i))
            return refuse(path, "tokens: one of more than 1024 bytes is not supported; give --ids",
                          VKA_UNSUPPORTED, why);
        n += add_pairs(v, (int32_t)i, 0, NULL);
    }
    struct scored *list = malloc((n ? n : 1) * sizeof *list);
    if (!list || make_merges(v, n) != VKA_OK) {
        free(list);
        return VKA_OUT_OF_HOST_MEMORY;
    }
    for (uint32_t i = 0; i < v->n; i++) {
        vka_gguf_real(scores, i, &score);
        at += add_pairs(v, (int32_t)i, score, list + at);
    }
    qsort(list, n, sizeof *list, compare_scored);
    for (uint32_t i = 0; i < n; i++) {
        list[i].merge.rank = i;
        *slot_of(v, list[i].merge.left, list[i].merge.right) = list[i].merge;
    }
    free(list);
    return VKA_OK;
}

static uint32_t rank_of(const struct vocabulary *v, int32_t left, int32_t right)
{
    const struct merge *m = left < 0 || right < 0 ? NULL : vocabulary_merge(v, left, right);
    return m ? m->rank : NO_RANK;
}

/* What is to be merged: a list of places, and a tree of comparisons of the ranks at them. */
struct joined {
    const struct vocabulary *v;
    int32_t *ids;
    size_t *before, *after; /* [n] the neighbours of a place; NO_PLACE: none */
    size_t *best;           /* [2 * room]: node i has the least of nodes 2i and 2i + 1 */
    uint32_t *ranks;        /* [room], of a place and the one behind it */
    size_t room;            /* a power of two */
};

/* The left one of equal ranks. */
static void compare(struct joined *j, size_t node)
{
    size_t left = j->best[2 * node], right = j->best[2 * node + 1];
    j->best[node] = j->ranks[right] < j->ranks[left] ? right : left;
}

static void set_rank(struct joined *j, size_t at, uint32_t rank)
{
    j->ranks[at] = rank;
    for (size_t node = (j->room + at) / 2; node; node /= 2)
        compare(j, node);
}

static uint32_t rank_at(const struct joined *j, size_t at)
{
    return j->after[at] == NO_PLACE ? NO_RANK : rank_of(j->v, j->ids[at], j->ids[j->after[at]]);
}

static void begin_join(struct joined *j, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        j->before[i] = i ? i - 1 : NO_PLACE;
        j->after[i] = i + 1 < n ? i + 1 : NO_PLACE;
    }
    for (size_t i = 0; i < j->room; i++) {
        j->ranks[i] = i < n ? rank_at(j, i) : NO_RANK;
        j->best[j->room + i] = i;
    }
    for (size_t node = j->room - 1; node; node--)
        compare(j, node);
}

/* Merges the place with the one behind it, which is taken out. */
static void merge_at(struct joined *j, size_t at)
{
    size_t gone = j->after[at], next = j->after[gone];
    j->ids[at] = vocabulary_merge(j->v, j->ids[at], j->ids[gone])->made;
    j->after[at] = next;
    if (next != NO_PLACE)
        j->before[next] = at;
    set_rank(j, gone, NO_RANK);
    set_rank(j, at, rank_at(j, at));
    if (j->before[at] != NO_PLACE)
        set_rank(j, j->before[at], rank_at(j, j->before[at]));
}

bool vocabulary_join(const struct vocabulary *v, int32_t *ids, size_t *n)
{
    struct joined j = {.v = v, .ids = ids, .room = 2};
    size_t left = 0;
    if (*n < 2)
        return true;
    while (j.room < *n)
        j.room *= 2;
    j.before = malloc((2 * *n + 2 * j.room) * sizeof *j.before);
    j.ranks = malloc(j.room * sizeof *j.ranks);
    bool made = j.before && j.ranks;
    if (made) {
        j.after = j.before + *n;
        j.best = j.after + *n;
        begin_join(&j, *n);
        while (j.ranks[j.best[1]] != NO_RANK)
            merge_at(&j, j.best[1]);
        for (size_t i = 0; i != NO_PLACE; i = j.after[i])
            ids[left++] = ids[i];
        *n = left;
    }
    free(j.before);
    free(j.ranks);
    return made;
}
