/* Texts and token ids, by the tokenizer of a GGUF file: byte-level BPE, SentencePiece's BPE or
 * unigram, WordPiece. SPDX-License-Identifier: MIT */
#ifndef TEXT_TEXT_H
#define TEXT_TEXT_H

#include <vkattn/vkattn_io.h>

struct text;

/* The tokenizer of an open file, which must outlive it. UNSUPPORTED, with a sentence, where it is
 * of another kind or has what is not known here. */
enum vka_status text_open(const struct vka_gguf *file, const char *path, struct text **text,
                          char why[VKA_IO_ERROR_SIZE]);
/* That of a folder with vocab.txt, WordPiece's, which has a line for each token. Letters become
 * small unless do_lower_case of tokenizer_config.json is false. */
enum vka_status text_open_folder(const char *folder, struct text **text,
                                 char why[VKA_IO_ERROR_SIZE]);
void text_close(struct text **text);

/* The ids of a text, with those that the file wants before and behind it. The caller frees *ids. */
enum vka_status text_encode(const struct text *text, const char *utf8, int32_t **ids, uint32_t *n,
                            char why[VKA_IO_ERROR_SIZE]);

/* The bytes that a token stands for, at most room of them, and how many: 0 of one that is only a
 * sign for the model. */
size_t text_decode(const struct text *text, int32_t id, char *bytes, size_t room);

/* Room for the bytes of any token. */
size_t text_longest(const struct text *text);

/* Whether a text ends with this token. */
bool text_ends(const struct text *text, int32_t id);

#endif
