/* Fused and unfused attention: the problem, its check, the choice of kernel, slices. */
#ifndef VKA_OP_ATTENTION_ATTENTION_H
#define VKA_OP_ATTENTION_ATTENTION_H

#include "kernel/attention.h"
#include "op/cache/cache.h"
#include "op/matmul/matmul.h"
#include "params/params.h"
#include "plan/cut.h"

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
    /* Fused path only: k and v are keys key_first .. key_first + n_chunk_key - 1 of n_kv. */
    uint32_t key_first, n_chunk_key; /* n_chunk_key 0: all keys */
    const struct vka_tensor *state;
    /* Sizes that the kernel is chosen for: those of the problem that this one is cut from. */
    uint32_t whole_n_head, whole_n_kv_head, whole_n_q;
    bool fused;
    struct attention_choice choice; /* of the fused path */
};

/* Parameters of softcap and dropout, which the kernels of both paths and of gradients name alike. */
#define ATTENTION_DRAW(o)                                                                      \
    .softcap = (o)->softcap, .dropout = (o)->dropout, .seed_low = (uint32_t)(o)->dropout_seed, \
    .seed_high = (uint32_t)((o)->dropout_seed >> 32),                                          \
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

/* Some batch elements with all heads, or some heads of one, or some queries of one head. */
struct slice {
    uint32_t batch, n_batch, head, n_head, query, n_query;
};

/* The part [n_batch][n_head][n_query][any] of a slice. */
struct slice attention_slice_part(const struct slice *s, const struct box *part);

/* The slice of a tensor [batch][n_head][n_q][...], and the keys or values its heads read. */
struct vka_tensor attention_slice(const struct vka_tensor *t, const struct slice *s);
struct vka_tensor attention_slice_kv(const struct vka_tensor *t, const struct attention *a,
                                     const struct slice *s);

/* The mask as [batch][n_head][n_q][mask_n_kv], strides 0 where it broadcasts. */
struct vka_tensor attention_mask(const struct attention *a, uint32_t *mask_n_kv);

/* The log-sum-exp that the operation is to write, as [batch][n_head][n_q][1]; false: none, or not
 * by this key chunk. */
bool attention_log_sum(const struct attention *a, struct vka_tensor *log_sum);

/* Whether any key can be hidden. */
bool attention_hides(const struct attention *a);

/* Moves an offset back by the origin of the slice: kernels count batch, head and query from the
 * whole problem, while a binding starts at the slice. */
uint32_t attention_rebase(uint32_t offset, const struct vka_tensor *t, const struct slice *s);

/* Fills in *m and binds mask, kv_length, query_offset, sink and alibi, where given, to five slots
 * from `slot` on. The caller has bound some tensor to each slot before. */
void attention_bind_mask(const struct vka_plan *plan, const struct attention *a,
                         const struct slice *s, struct pass *pass, uint32_t slot,
                         struct mask_params *m, uint32_t *sink_offset, uint32_t *alibi_offset);

/* Adds scores, softmax and, unless only returned scores are wanted, weighted sum as separate passes,
 * slice by slice. */
enum vka_status plan_attention_unfused(struct vka_plan *plan, const struct attention *a,
                                       bool with_context);

/* Adds the softmax of a slice's scores, in place: float32 [n_batch][n_head][n_query][n_kv], rows a
 * multiple of 4 apart. */
enum vka_status attention_add_softmax(struct vka_plan *plan, const struct attention *a,
                                      const struct slice *s, const struct vka_tensor *scores);

/* Adds fused attention, without a buffer of scores. UNSUPPORTED where the device has no kernel. */
enum vka_status plan_attention_fused(struct vka_plan *plan, const struct attention *a);

/* The type in which rotated or normalised queries and new keys enter the scores: that of all operands,
 * where matrix units take it; else float32. */
enum vka_dtype attention_turned_dtype(const struct vka_plan *plan, const struct attention *a,
                                      const struct attention_inputs *in);

/* Chooses path and kernel, and tests untested kernels: fills in fused and choice. Succeeds without
 * a usable kernel. */
enum vka_status attention_choose(struct vka_plan *plan, struct attention *a,
                                 const struct attention_inputs *in);

/* Adds the checked operation: choice, norms and rotation, past and present, then a path. */
enum vka_status plan_attention(struct vka_plan *plan, struct attention *a,
                               const struct attention_inputs *inputs);

/* Whether the operation writes its output: false for all key chunks but the last. */
static inline bool attention_is_last(const struct attention *a)
{
    return !a->n_chunk_key || a->key_first + a->n_chunk_key == a->n_kv;
}

/* Replaces *t, where its rows are not contiguous, by a copy in scratch. whole, of keys and values: also
 * where rows are so far apart that a head exceeds a binding. */
enum vka_status attention_join_rows(struct vka_plan *plan, struct vka_tensor *t, bool whole);

/* Whether rows begin at a multiple of so many elements, and whether they also end at one. */
bool attention_rows_begin(const struct vka_tensor *t, uint32_t unit);
bool attention_rows_of(const struct vka_tensor *t, uint32_t unit);

/* Types, sizes and alignment of the operands, for the kernel of the fused path. */
/* The scale and the norm's epsilon that options ask for. */
float attention_scale(const struct vka_attention_options *options, uint32_t head_dim);
float attention_epsilon(const struct vka_attention_options *options);

struct attention_operands attention_operands_of(const struct attention *a);

/* Tensors that an operation reads through its options, for the overlap check; NULL where absent. */
#define OPTION_INPUTS 7
void attention_option_inputs(const struct vka_attention_options *o,
                             const struct vka_tensor *inputs[OPTION_INPUTS]);

#endif
