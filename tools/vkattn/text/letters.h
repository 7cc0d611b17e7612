/* Code points: UTF-8, and classes of Unicode. SPDX-License-Identifier: MIT */
#ifndef TEXT_LETTERS_H
#define TEXT_LETTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the code point at *at, below size bytes, and moves *at behind it. False: no UTF-8. */
bool letters_read(const char *text, size_t size, size_t *at, uint32_t *c);
/* Writes a code point to 4 bytes or fewer, and returns how many. */
size_t letters_write(uint32_t c, char *to);

bool letters_space(uint32_t c);
/* Whether a text with this code point may have another normal form C. */
bool letters_unstable(uint32_t c);
/* A mark that takes no room of its own, such as an accent. */
bool letters_mark(uint32_t c);
bool letters_punctuation(uint32_t c);
/* Control, format and private characters. */
bool letters_control(uint32_t c);
/* Marks that a canonical decomposition may put behind later ones, and letters_stripped keeps. */
bool letters_ordered(uint32_t c);

uint32_t letters_small(uint32_t c);
/* Writes the canonical decomposition without marks that take no room of their own, such as accents,
 * and returns how many letters that is. */
size_t letters_stripped(uint32_t c, uint32_t to[3]);

/* What a code point is: one of these, or 0. A space is no mark and no symbol. */
enum letters_kind {
    KIND_UPPER = 1,
    KIND_LOWER = 2,
    KIND_TITLE = 4,
    KIND_MODIFIER = 8,
    KIND_OTHER_LETTER = 16,
    KIND_LETTER = 31, /* any of these */
    KIND_MARK = 32,
    KIND_NUMBER = 64,
    KIND_PUNCTUATION = 128,
    KIND_SYMBOL = 256,
    KIND_SPACE = 512
};
unsigned letters_kinds(uint32_t c);

#endif
