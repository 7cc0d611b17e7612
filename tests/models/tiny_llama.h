/* A tiny random Llama with quantised weights of one type or of several: its file of GGUF, and what follows
 * ids by it, in double and without a cache. Failures end the test. */
#ifndef TESTS_MODELS_TINY_LLAMA_H
#define TESTS_MODELS_TINY_LLAMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <vkattn/vkattn.h>
#include <vkattn/vkattn_io.h>

enum { WIDTH = 64, BLOCKS = 2, HEADS = 4, KV_HEADS = 2, DIM = 16, FFN = 96, TOKENS = 80 };
enum { KV = KV_HEADS * DIM, PROMPT = 37, COUNT = 12, LENGTH = PROMPT + COUNT };
enum { WEIGHTS = 9, TENSORS = 3 + BLOCKS * WEIGHTS, KEYS = 9 };
enum { EMBEDDING, NORM, HEAD, FIRST_BLOCK };
enum { ATTN_NORM, FFN_NORM, WQ, WK, WV, WO, GATE, UP, DOWN };

/* A weight [rows][width], or vector where rows is 1, as the file has it and as double. */
struct weight {
    char name[40];
    uint32_t rows, width;
    enum vka_dtype dtype;
    void *data;
    double *values;
};

/* The weights of the drawn model; there is one at a time. */
extern struct weight weights[TENSORS];

/* Draws the weights, of layers of ffn hidden features; free with free_model. mixed: block 0 has values of
 * another type than queries and keys, block 1 also keys of another type than queries, and up of another
 * type than gate. */
void draw_model(uint32_t ffn, bool mixed);
void free_model(void);

/* The drawn model as a file. key and tensor, or NULL, are what it has besides; a key of the same name is
 * replaced. */
void write_model(const char *path, uint32_t ffn, const struct vka_gguf_value *key,
                 const struct vka_gguf_tensor *tensor);

/* The id that follows n ids in a model of FFN hidden features; *gap: how far the second best logit is. */
int32_t follow(const int32_t *ids, size_t n, double *gap);

#endif
