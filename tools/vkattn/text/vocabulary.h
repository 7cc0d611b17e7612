/* The tokens of a GGUF file: their bytes, types and ids, and which two make a third.
 * SPDX-License-Identifier: MIT */
#ifndef TEXT_VOCABULARY_H
#define TEXT_VOCABULARY_H

#include <vkattn/vkattn_io.h>

enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER,
    TOKEN_UNUSED,
    TOKEN_BYTE,
};

struct token {
    const char *text; /* in the mapped file, no 0 at the end */
    uint32_t size;    /* bytes */
    uint8_t type;
};

/* Two neighbours that become one. */
struct merge {
    int32_t left, right, made;
    uint32_t rank; /* the lowest goes first */
};

struct vocabulary {
    struct token *tokens; /* [n] */
    uint32_t n;
    uint32_t longest; /* bytes of a token */
    int32_t *slots;   /* [n_slot], a power of two: ids by a hash of their bytes, -1: none */
    uint32_t n_slot;
    struct merge
        *merges; /* [n_merge_slot], a power of two, by a hash of left and right; left -1: none */
    uint32_t n_merge_slot;
};

/* Reads tokens and types; vocabulary_free accepts what a failure left. */
enum vka_status vocabulary_read(const struct vka_gguf *file, const char *path, struct vocabulary *v,
                                char *why);
/* Reads a list of lines; no line of it may be there twice. */
enum vka_status vocabulary_lines(const char *lines, size_t size, const char *path,
                                 struct vocabulary *v, char *why);
void vocabulary_free(struct vocabulary *v);

/* The id of the token with these bytes; -1: none. */
int32_t vocabulary_find(const struct vocabulary *v, const char *text, size_t size);

/* Puts tokens in the order of their bytes; one that goes on comes behind the one that ends. */
void vocabulary_sort(const struct token **list, size_t n);

/* Finds a token by a hash that grows with the bytes: VOCABULARY_NO_BYTES before the first one. */
#define VOCABULARY_NO_BYTES 2166136261u
uint32_t vocabulary_hash(uint32_t hash, const char *text, size_t size);
int32_t vocabulary_find_hashed(const struct vocabulary *v, const char *text, size_t size,
                               uint32_t hash);

/* The merges that the file lists, or those that scores give: every pair of tokens that is one. */
enum vka_status vocabulary_merges(const struct vka_gguf *file, const char *path,
                                  struct vocabulary *v, char *why);
enum vka_status vocabulary_scores(const struct vka_gguf *file, const char *path,
                                  struct vocabulary *v, char *why);

/* The merge of two ids; NULL: none. */
const struct merge *vocabulary_merge(const struct vocabulary *v, int32_t left, int32_t right);

/* Merges *n ids in place, the lowest rank and of equal ones the leftmost first, and sets *n to how
 * many are left. False: no memory. */
bool vocabulary_join(const struct vocabulary *v, int32_t *ids, size_t *n);

#endif
