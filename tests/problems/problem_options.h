/* Options of attention over a cache that hold for its keys wherever a run begins, so that a prompt in
 * chunks, pages or alone has to give the bits of the whole. Drawn at random. */
#ifndef TESTS_PROBLEM_OPTIONS_H
#define TESTS_PROBLEM_OPTIONS_H

#include <vkattn/vkattn.h>

#include "rng.h"

struct problem_options {
    uint32_t batch, n_head, head_dim, capacity;
    struct vka_attention_options drawn; /* all but its tensors */
    enum vka_dtype mask_dtype;          /* BOOL or F32; VKA_DTYPE_COUNT: none */
    bool mask_heads;                    /* a mask for each head, or one for all */
    bool has_sink, has_alibi, has_norm;
    struct vka_tensor *sink, *alibi; /* F32 [n_head], or NULL */
    struct vka_tensor *norm;         /* F32 [head_dim], of q and k, or NULL */
    struct vka_tensor *mask;         /* [batch][1 or n_head][1][capacity], or NULL */
};

void problem_options_draw(struct rng *rng, struct problem_options *o);

/* Makes and fills the tensors. On failure o can be destroyed all the same. */
enum vka_status problem_options_create(struct vka_device *device, struct rng *rng,
                                       struct problem_options *o);
void problem_options_destroy(struct problem_options *o);

/* The options of sequences first .. first + count - 1; *mask, which the caller destroys, is a view of
 * the mask of these, or NULL. */
enum vka_status problem_options_of(const struct problem_options *o, uint32_t first, uint32_t count,
                                   struct vka_attention_options *options, struct vka_tensor **mask);

/* Says what was drawn beyond the defaults, in words. */
void problem_options_text(const struct problem_options *o, char *text, size_t size);

#endif
