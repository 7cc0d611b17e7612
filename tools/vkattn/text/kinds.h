/* What a tokenizer holds, whatever its kind. SPDX-License-Identifier: MIT */
#ifndef TEXT_KINDS_H
#define TEXT_KINDS_H

#include "charsmap.h"
#include "letters.h"
#include "splits.h"
#include "vocabulary.h"

enum text_kind {
    TEXT_BYTE_PAIRS, /* byte-level BPE */
    TEXT_SCORES,     /* SentencePiece's BPE */
    TEXT_WORDS,      /* BERT's WordPiece */
    TEXT_UNIGRAM     /* SentencePiece's unigram */
};

struct text {
    const struct vka_gguf *file;
    char *lines; /* of vocab.txt, in place of a file */
    struct vocabulary vocabulary;
    enum text_kind kind;
    struct splits *splits;        /* of byte pairs */
    bool prefix;                  /* of SentencePiece: a space before the first word */
    bool trims;                   /* of unigram: spaces at the ends go, several become one */
    struct charsmap map;          /* of unigram */
    float unknown_score;          /* of unigram: of a letter that no token has */
    uint32_t longest;             /* of unigram: bytes of the longest token that a text may have */
    bool lowercase;               /* of words: small letters without accents */
    const char *begins, *goes_on; /* of words: what a token has before its letters */
    int32_t bytes[256];           /* the token of each byte, -1: none */
    int32_t unknown, bos, eos;    /* -1: none */
    bool adds_bos, adds_eos;
    size_t most;                /* ids of a text; 0: any number */
    const struct token **whole; /* [n_whole] those that are one id wherever they stand, in order */
    uint32_t n_whole;
};

/* Ids that grow. */
struct list {
    int32_t *ids;
    size_t n, room;
    bool failed; /* for want of memory */
};

void list_push(struct list *list, int32_t id);
/* Pushes the tokens of bytes, those that there are. */
void list_push_bytes(const struct text *t, const char *bytes, size_t size, struct list *list);

#define TEXT_SPACE "\xe2\x96\x81" /* U+2581, of SentencePiece, and of GGUF's words */

/* Printable bytes stand for themselves in a token, the others for the letters from 256 on. */
uint32_t text_letter_of_byte(unsigned byte);

/* Code points of a text: n of them, letter i begins at starts[i], and starts[n] is its size. */
struct letters {
    const char *utf8;
    uint32_t *points;
    size_t *starts, n;
};

/* A bool of a file, or what is otherwise; the id that a key has, -1: none. */
bool text_flag(const struct text *t, const char *key, bool otherwise);
int32_t text_id(const struct text *t, const char *key);

#endif
