/* Code points: UTF-8, classes of Unicode, and how a text is split into words before byte-level BPE.
 * SPDX-License-Identifier: MIT */
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
bool letters_letter(uint32_t c);
bool letters_number(uint32_t c);
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

enum letters_split {
    SPLIT_GPT2,   /* gpt-2, phi-2 */
    SPLIT_DIGITS, /* smollm, starcoder, refact: each digit alone, then as gpt-2 */
    SPLIT_LLAMA3, /* up to three digits */
    SPLIT_QWEN2,  /* each digit alone */
    SPLIT_COUNT
};

/* The end of the word that begins at `at`, of n code points. */
size_t letters_word_end(enum letters_split split, const uint32_t *text, size_t n, size_t at);

#endif
