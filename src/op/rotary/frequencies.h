/* Frequencies of rotary embeddings in words of their kernels. */
#ifndef VKA_OP_ROTARY_FREQUENCIES_H
#define VKA_OP_ROTARY_FREQUENCIES_H

#include "plan/plan.h"

/* Frequencies as the kernels read them, dim / 2 pairs of words, and a pair for the attention factor. */
#define ROTARY_WORDS(dim) ((dim) / 2u * 2u + 2u)
void rotary_fill_words(const struct vka_rope *rope, uint32_t *words);
enum vka_status plan_frequencies(struct vka_plan *plan, const struct vka_rope *rope,
                                 struct vka_tensor *frequencies);

#endif
