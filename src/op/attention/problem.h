/* An attention problem: what an operation's arguments ask for, checked, and its options. */
#ifndef VKA_OP_ATTENTION_PROBLEM_H
#define VKA_OP_ATTENTION_PROBLEM_H

#include "kernel/attention_problem.h"
#include "op/cache/cache.h"

/* An attention problem: sizes and rank-4 operands; masks and options as the caller gave them. */
struct attention {
    uint32_t batch, n_head, n_kv_head, n_q, n_kv, n_past, head_dim, value_dim;
    struct vka_tensor q;      /* [batch][n_head][n_q][head_dim] */
    struct vka_tensor k;      /* [batch][n_kv_head][n_kv][head_dim], past included */
    struct vka_tensor v;      /* [batch][n_kv_head][n_kv][value_dim] */
    struct vka_tensor output; /* [batch][n_head][n_q][value_dim] */
    float scale;
    const struct vka_attention_options *options;
    bool cached; /* n_kv is the capacity of a cache: the bits may not depend on it */
    /* Fused path only. Paged: k and v are [n_page][n_kv_head][page_size][dim]. */
    const struct vka_cache *paged;
    const struct cached_layer *blocks; /* k or v are rows of a block type; fused path only */
    const struct vka_tensor *q_start, *kv_start; /* ragged: n_sequence + 1 rows each */
    uint32_t n_sequence;                         /* 0: not ragged */
    const struct vka_cache *sequences; /* ragged: has the keys, and kv_start is NULL; else NULL */
    /* Fused path only: k and v are keys key_first .. key_first + key_chunk - 1 of n_kv. */
    uint32_t key_first, key_chunk; /* key_chunk 0: all keys */
    const struct vka_tensor *state;
    /* Sizes that the kernel is chosen for: those of the problem that this one is cut from. */
    uint32_t whole_n_head, whole_n_kv_head, whole_n_q;
    bool fused;
    struct attention_choice choice; /* of the fused path */
};

/* The softcap as kernels take it, 0 for none: in the range in which devices divide scores by it and keep
 * the quotients. Far above the scores it changes none, far below it leaves none. */
static inline float attention_softcap(const struct vka_attention_options *options)
{
    const float least = 0x1p-126f, most = 0x1p104f, softcap = options->softcap;
    if (softcap == 0)
        return 0;
    return softcap < least ? least : softcap > most ? most : softcap;
}

/* Parameters of softcap and dropout, which the kernels of both paths and of gradients name alike. */
#define ATTENTION_DRAW(o)                                                                      \
    .softcap = attention_softcap(o), .dropout = (o)->dropout,                                  \
    .seed_low = (uint32_t)(o)->dropout_seed, .seed_high = (uint32_t)((o)->dropout_seed >> 32), \
    .draw_place = (o)->dropout_batch << 16 | (o)->dropout_head, .draw_query = (o)->dropout_query

/* New and kept keys and values; past, present and use.cache may be NULL. */
struct attention_inputs {
    const struct vka_tensor *new_k, *new_v, *past_k, *past_v, *present_k, *present_v;
    struct cache_use use;
};

/* Checks the operation and fills in *use and *a, except the choice and the joined past or cache. */
enum vka_status attention_check(struct vka_plan *plan, const char *caller,
                                const struct vka_attention_op *op, struct cache_use *use,
                                struct attention *a);

/* Checks an I32 tensor [batch] or [1], which may be NULL. */
enum vka_status attention_check_per_batch(struct vka_plan *plan, const char *caller,
                                          const char *name, const struct vka_tensor *tensor,
                                          uint32_t batch);

/* Checks options against the sizes of *a and fills in whole_n_head, whole_n_kv_head and whole_n_q;
 * caller names the public function. */
enum vka_status attention_check_options(struct vka_plan *plan, const char *caller,
                                        struct attention *a);

/* Checks that the cache fits the problem, and that the options give no lengths and offsets beside
 * the cache's own. Sets a->n_kv to its capacity. */
enum vka_status attention_check_cache(struct vka_plan *plan, const char *caller,
                                      const struct cache_use *use, struct attention *a);

/* Checks rows packed by q_start, of n_new new keys, and sets their sequences in *a. cache: has the
 * keys; NULL: none. */
enum vka_status attention_check_ragged(struct vka_plan *plan, const char *caller,
                                       const struct vka_tensor *q_start,
                                       const struct vka_cache *cache, uint32_t n_new,
                                       struct attention *a);

/* Whether the operation writes its output: false for all key chunks but the last. */
static inline bool attention_is_last(const struct attention *a)
{
    return !a->key_chunk || a->key_first + a->key_chunk == a->n_kv;
}

/* The scale and the norm's epsilon that options ask for. */
float attention_scale(const struct vka_attention_options *options, uint32_t head_dim);
float attention_epsilon(const struct vka_attention_options *options);

/* Tensors that an operation reads through its options, for the overlap check; NULL where absent. */
#define OPTION_INPUTS 7
void attention_option_inputs(const struct vka_attention_options *options,
                             const struct vka_tensor *inputs[OPTION_INPUTS]);

#endif
