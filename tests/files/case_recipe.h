/* Case files made in memory for tests: three good ones, and ways to change them.
 * SPDX-License-Identifier: MIT */
#ifndef CASE_RECIPE_H
#define CASE_RECIPE_H

#include <case/case.h>

#define COUNTOF(a) (sizeof(a) / sizeof *(a))
#define MAX_TENSORS 24

struct tensor {
    const char *name, *dtype, *shape; /* shape as JSON */
    int64_t fill;                     /* of I64 elements; others are 0 */
};

struct text {
    const char *key, *value;
};

/* A case still to be written; tensors and metadata end at a NULL name. */
struct recipe {
    struct tensor tensors[MAX_TENSORS];
    struct text metadata[8];
};

/* sdpa: batch 2, 4 heads over 2, n_q 3, n_kv 5 + 1 past, head_dim 6, value_dim 7. */
extern const struct recipe RECIPE_BHSD;

/* sdpa, float16: batch 2, 4 heads over 2, n_q 3, n_kv 5, head_dim 6, value_dim 7. */
extern const struct recipe RECIPE_BSD;

/* A layer, sequence first: n_q 3, n_kv 5, batch 2, 4 heads over 2, head_dim 6, value_dim 7, widths
 * 8, 9 and 10 in and 11 out. */
extern const struct recipe RECIPE_LAYER;

/* One change of a recipe: a metadata value (NULL takes it away) where key is there, a tensor where
 * tensor.name is. words: what a refusal must say. */
struct change {
    const struct recipe *from;
    const char *key, *value;
    struct tensor tensor;
    const char *words;
};

#define META(from, key, value, words)          \
    {                                          \
        &RECIPE_##from, key, value, {0}, words \
    }
#define CONFIG(from, value, words)                  \
    {                                               \
        &RECIPE_##from, "config", value, {0}, words \
    }
#define TENSOR(from, name, dtype, shape, words)                    \
    {                                                              \
        &RECIPE_##from, NULL, NULL, {name, dtype, shape, 0}, words \
    }
#define WITHOUT(from, name, words)                               \
    {                                                            \
        &RECIPE_##from, NULL, NULL, {name, NULL, NULL, 0}, words \
    }
#define FILLED(from, name, shape, fill, words)                        \
    {                                                                 \
        &RECIPE_##from, NULL, NULL, {name, "I64", shape, fill}, words \
    }

/* The config of RECIPE_BHSD with one more key. */
#define MORE(key) \
    "{\"layout\":\"bhsd\",\"num_heads\":4,\"num_kv_heads\":2,\"scores\":\"raw\"," key "}"

void recipe_put_metadata(struct recipe *recipe, const char *key, const char *value);

/* Replaces a tensor of that name, or adds one; dtype NULL takes it away. */
void recipe_put_tensor(struct recipe *recipe, struct tensor tensor);
struct recipe recipe_changed(const struct change *change);

/* The bytes of the file, which are to be freed; its header ends with spaces. */
unsigned char *recipe_bytes(const struct recipe *recipe, size_t *size);

/* case_parse of the file, called made.safetensors. bytes must be freed after the case is closed. */
enum vka_status recipe_parse(const struct recipe *recipe, char *error, struct case_file **c,
                             unsigned char **bytes);

#endif
