/* Regular expressions of tokenizers. SPDX-License-Identifier: MIT */
#ifndef TEXT_PATTERN_H
#define TEXT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PATTERN_MOST_NODES = 160, PATTERN_MOST_RANGES = 160 };

/* Code points: those of these kinds and those of ranges, or all others. */
struct pattern_set {
    unsigned kinds;
    uint16_t first, n_range; /* of the pattern's ranges */
    bool negated;
};

struct pattern_node {
    enum pattern_kind {
        NODE_SET,        /* from least to most code points, as many as there are */
        NODE_EITHER,     /* inner, or else `other` */
        NODE_NOT_BEFORE, /* no code point of the set follows */
        NODE_END,        /* the text ends */
        NODE_JOIN        /* nothing; alternatives go on here */
    } kind;
    struct pattern_set set;
    uint32_t least, most;
    int inner, other, next; /* nodes */
};

struct pattern {
    struct pattern_node nodes[PATTERN_MOST_NODES];
    struct {
        uint32_t first, last;
    } ranges[PATTERN_MOST_RANGES];
    int n_node, n_range, first;
};

/* A text of n code points, of which `kinds` says what letters_kinds gives. */
struct pattern_text {
    const uint32_t *points;
    const uint16_t *kinds;
    size_t n;
};

/* Reads an expression in UTF-8: code points, \p{L} and other kinds, \s, \S, sets in brackets, each of them
 * once or by ?, *, +, {m} or {m,n}; (?!a), $, |, and (?:..) or (?i:..) once or by ?. The first alternative
 * that fits is taken, and as much as fits. False: it has something else, or too much. */
bool pattern_read(const char *utf8, struct pattern *pattern);

/* How many code points fit from `at` on; 0: none. */
size_t pattern_match(const struct pattern *pattern, const struct pattern_text *text, size_t at);

#endif
