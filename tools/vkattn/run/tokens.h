/* The tokens of a run: text labels of its queries and keys. SPDX-License-Identifier: MIT */
#ifndef TOOLS_TOKENS_H
#define TOOLS_TOKENS_H

#include <jansson.h>
#include <vkattn/vkattn_io.h>

/* The most bytes of a file of tokens. */
#define TOKENS_MAX_SIZE (16u << 20)

/* Reads UTF-8 text with one token on each line into an array of sequences, each an array of
 * strings. One or more empty lines end a sequence. VKA_IO, with a sentence in error
 * (VKA_IO_ERROR_SIZE characters), if the file cannot be read, is too large, is not UTF-8 or has no
 * token. */
enum vka_status tokens_read(const char *path, char *error, json_t **sequences);

/* Checks that the numbers of sequences and tokens fit a run. Self-attention takes a sequence of
 * n_kv tokens for each batch element, or one for all. Attention over other keys takes pairs of
 * sequences: n_q tokens for the queries, then n_kv for the keys. VKA_IO with a sentence. */
enum vka_status tokens_check(const char *path, const json_t *sequences, bool pairs, uint32_t batch,
                             uint32_t n_q, uint32_t n_kv, char *error);

/* The tokens of a batch element, after tokens_check. */
const json_t *tokens_of_queries(const json_t *sequences, bool pairs, uint32_t b);
const json_t *tokens_of_keys(const json_t *sequences, bool pairs, uint32_t b);

#endif
