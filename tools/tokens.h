/* What the queries and keys of a run stand for, as text. SPDX-License-Identifier: MIT */
#ifndef TOOLS_TOKENS_H
#define TOOLS_TOKENS_H

#include <jansson.h>
#include <vkattn/vkattn_io.h>

/* Bytes of a file of tokens at most. */
#define TOKENS_MAX_SIZE (16u << 20)

/* Reads UTF-8 text, a line a token, into an array of sequences, each an array of strings: an empty
 * line ends a sequence, several of them are one. VKA_IO with a sentence in error
 * (VKA_IO_ERROR_SIZE characters) where the file cannot be read, is too large, is not UTF-8 or has
 * no token. */
enum vka_status tokens_read(const char *path, char *error, json_t **sequences);

/* Whether there are as many sequences and tokens as a run has. Self-attention takes one sequence of
 * n_kv tokens for every batch element, or one for all. Attention over other keys takes pairs, the
 * n_q tokens of the queries and then the n_kv of the keys. VKA_IO with a sentence. */
enum vka_status tokens_check(const char *path, const json_t *sequences, bool pairs, uint32_t batch,
                             uint32_t n_q, uint32_t n_kv, char *error);

/* The tokens of a batch element that tokens_check found right. */
const json_t *tokens_of_queries(const json_t *sequences, bool pairs, uint32_t b);
const json_t *tokens_of_keys(const json_t *sequences, bool pairs, uint32_t b);

#endif
