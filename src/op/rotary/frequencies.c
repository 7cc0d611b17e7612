/* What rotary embeddings turn by, as their kernels read it. */
#include "op/rotary/frequencies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TWO_PI 6.283185307179586476925286766559

/* Turns of a position in units of 2^-64: the kernels multiply integers, so that angles are exact at
 * every position. The word behind them is the attention factor. */
void rotary_fill_words(const struct vka_rope *rope, uint32_t *words)
{
    uint32_t n = rope->dim / 2;
    double base = rope->base != 0 ? (double)rope->base : 10000;
    float factor = rope->attention_factor != 0 ? rope->attention_factor : 1;
    for (uint32_t i = 0; i < n; i++) {
        double f = rope->frequencies ? rope->frequencies[i] : pow(base, -2.0 * i / rope->dim);
        double turns = f / TWO_PI, high = (turns - floor(turns)) * 4294967296.0;
        high = high < 4294967296.0 ? high : 0; /* of a tiny negative one */
        words[2 * i + 1] = (uint32_t)high;
        words[2 * i] = (uint32_t)((high - floor(high)) * 4294967296.0);
    }
    memcpy(&words[2 * n], &factor, sizeof factor);
    words[2 * n + 1] = 0;
}

enum vka_status plan_frequencies(struct vka_plan *plan, const struct vka_rope *rope,
                                 struct vka_tensor *frequencies)
{
    enum vka_status status = VKA_OK;
    struct log *log = &plan->device->log;
    uint32_t *words = calloc(ROTARY_WORDS(rope->dim), sizeof *words);
    CHECK_ALLOC(words);
    rotary_fill_words(rope, words);
    TRY(plan_constant(plan, ROTARY_WORDS(rope->dim), words, frequencies));
fail:
    free(words);
    return status;
}
