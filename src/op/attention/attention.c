/* Attention as an operation: choice, norms and rotation, past and present, then a path. */
#include "op/attention/attention.h"
#include "op/attention/choice.h"
#include "op/attention/fused.h"
#include "op/attention/slice.h"
#include "op/attention/unfused.h"
#include "op/cache/hadamard.h"
#include "op/common/nonfinite.h"
#include "op/matmul/matmul.h"
#include "op/rotary/heads.h"
#include "op/common/copy.h"
#include "op/cache/cache.h"
#include "op/cache/room.h"
#include "op/cache/append.h"
#include "op/cache/passes.h"

/* The keys (or values) that attention reads: past and new ones joined, in `present` or in scratch;
 * without a past `fresh` itself, copied to `present` where that is given. */
static enum vka_status join_past(struct vka_plan *plan, const struct vka_tensor *past,
                                 const struct vka_tensor *fresh, const struct vka_tensor *present,
                                 struct vka_tensor *joined)
{
    const uint32_t n_past = past ? past->shape.size[2] : 0;
    const uint32_t *f = fresh->shape.size;
    *joined = *fresh;
    if (!past && !present)
        return VKA_OK;
    struct vka_tensor whole;
    if (present) {
        whole = *present;
    } else {
        const uint32_t size[4] = {f[0], f[1], n_past + f[2], f[3]};
        enum vka_dtype dtype = past->dtype == fresh->dtype ? past->dtype : VKA_F32;
        ENSURE(plan_scratch(plan, dtype, size, &whole));
    }
    if (past) {
        struct vka_tensor to = tensor_slice_along(&whole, 2, 0, n_past);
        ENSURE(plan_copy(plan, "past", past, &to));
        *joined = whole;
    }
    struct vka_tensor to = tensor_slice_along(&whole, 2, n_past, f[2]);
    return plan_copy(plan, "present", fresh, &to);
}

static enum vka_status rotate(struct vka_plan *plan, struct attention *a,
                              const struct attention_inputs *in, struct vka_tensor *new_k,
                              const struct vka_tensor *k_offsets)
{
    const enum vka_dtype dtype = attention_turned_dtype(plan, a, in);
    const struct vka_attention_options *options = a->options;
    const struct vka_tensor *starts = a->sequences ? a->q_start : NULL;
    if (options->rope.dim || options->q_norm)
        ENSURE(plan_rotary(plan, "rotate q", &options->rope, options->q_norm,
                           attention_epsilon(options), options->query_offset, starts, a->n_past,
                           dtype, &a->q));
    if (options->rope.dim || options->k_norm)
        ENSURE(plan_rotary(plan, "rotate k", &options->rope, options->k_norm,
                           attention_epsilon(options), k_offsets, starts, a->n_past + a->key_first,
                           dtype, new_k));
    return VKA_OK;
}

/* Replaces rows by their product with the Hadamard matrix, float32; block 0: leaves them. */
static enum vka_status hadamard(struct vka_plan *plan, const char *name, uint32_t block,
                                struct vka_tensor *rows)
{
    struct vka_tensor to;
    if (!block)
        return VKA_OK;
    ENSURE(plan_scratch(plan, VKA_F32, rows->shape.size, &to));
    ENSURE(plan_hadamard(plan, name, block, NULL, rows, &to));
    *rows = to;
    return VKA_OK;
}

/* Attends to values that a cache keeps multiplied by the Hadamard matrix. */
static enum vka_status attend_hadamard(struct vka_plan *plan, const struct attention *a)
{
    struct attention b = *a;
    ENSURE(plan_scratch(plan, VKA_F32, a->output.shape.size, &b.output));
    ENSURE(plan_attention_fused(plan, &b));
    return plan_hadamard(plan, "hadamard output", a->blocks->v.hadamard, a->q_start, &b.output,
                         &a->output);
}

/* Appends the new keys and values to the cache, and makes the cache's a->k and a->v. a->options has
 * the cache's lengths and positions. */
static enum vka_status join_cache(struct vka_plan *plan, struct attention *a,
                                  const struct attention_inputs *in)
{
    struct vka_cache *cache = in->use.cache;
    struct cached_layer *layer = &cache->layers[in->use.layer];
    const struct vka_attention_options *options = a->options;
    struct new_rows rows = {*in->new_k, *in->new_v, a->q, attention_turned_dtype(plan, a, in),
                            &options->rope};
    ENSURE(plan_begin_step(plan, &in->use));
    if (!options->rope.dim || options->q_norm || options->k_norm ||
        !cache_append_rotates(plan, &in->use, &rows)) {
        ENSURE(rotate(plan, a, in, &rows.k, options->query_offset));
        ENSURE(hadamard(plan, "hadamard q", layer->k.hadamard, &a->q));
        ENSURE(hadamard(plan, "hadamard k", layer->k.hadamard, &rows.k));
        ENSURE(hadamard(plan, "hadamard v", layer->v.hadamard, &rows.v));
        rows.q.storage = NULL;
    }
    ENSURE(plan_cache_append(plan, &in->use, &rows));
    if (rows.q.storage)
        a->q = rows.q;
    a->k = layer->k.rows;
    a->v = layer->v.rows;
    a->blocks = cache_has_blocks(layer) ? layer : NULL;
    if (!cache->table_row)
        return VKA_OK;
    if (a->fused && !a->options->scores) {
        a->paged = cache;
        return VKA_OK;
    }
    ENSURE(plan_cache_gather(plan, cache, &layer->k.rows, &a->k));
    return plan_cache_gather(plan, cache, &layer->v.rows, &a->v);
}

/* Cut into slices where an intermediate result of the whole would exceed an allocation. */
struct job {
    const struct attention *a;
    const struct attention_inputs *in;
};

static int judge(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    const struct job *job = cut->job;
    return attention_slice_fits(plan, job->a, job->in, slice) ? CUT_FITS
                                                              : cut_first_axis(slice, cut->least);
}

static enum vka_status add(struct vka_plan *plan, struct attention *a,
                           const struct attention_inputs *in)
{
    struct vka_attention_options options = *a->options;
    struct vka_tensor lengths, positions, new_k = *in->new_k;
    a->options = &options;
    if (in->use.cache) {
        lengths = cache_lengths(in->use.cache);
        positions = cache_positions(in->use.cache);
        options.kv_length = &lengths;
        options.query_offset = &positions;
        ENSURE(join_cache(plan, a, in));
    } else {
        ENSURE(rotate(plan, a, in, &new_k, NULL));
        ENSURE(join_past(plan, in->past_k, &new_k, in->present_k, &a->k));
        ENSURE(join_past(plan, in->past_v, in->new_v, in->present_v, &a->v));
    }
    if (a->blocks && a->blocks->v.hadamard)
        return attend_hadamard(plan, a);
    return a->fused ? plan_attention_fused(plan, a) : plan_attention_unfused(plan, a, true);
}

static enum vka_status add_slice(struct vka_plan *plan, const void *given,
                                 const struct slice *slice)
{
    const struct job *job = given;
    struct sliced_attention sliced;
    attention_take_slice(job->a, job->in, slice, &sliced);
    plan_scratch_enter(plan);
    enum vka_status status = add(plan, &sliced.attention, &sliced.inputs);
    plan_scratch_leave(plan);
    return status;
}

enum vka_status plan_attention(struct vka_plan *plan, struct attention *a,
                               const struct attention_inputs *in)
{
    const struct cut cut = {
        .job = &(const struct job){a, in},
        .multiple = {1, 1, CUT_NEVER, CUT_NEVER},
        .least = {1, 1, CUT_NEVER, CUT_NEVER},
        .judge = judge,
        .add = add_slice,
    };
    ENSURE(attention_choose(plan, a, in));
    return plan_cut(plan, &cut, (const uint32_t[]){a->batch, a->n_kv_head, 1, 1});
}

static enum vka_status add_attention(struct vka_plan *plan, const char *caller,
                                     const struct vka_attention_op *op, struct cache_use *use)
{
    struct attention a;
    ENSURE(attention_check(plan, caller, op, use, &a));
    if (a.key_chunk && !a.state)
        return log_error(&plan->device->log, VKA_INVALID, "%s: state is NULL", caller);
    ENSURE(plan_attention(plan, &a,
                          &(struct attention_inputs){op->k, op->v, op->past_key, op->past_value,
                                                     op->present_key, op->present_value, *use}));
    if (attention_is_last(&a))
        ENSURE(plan_count_nonfinite(plan, "output", op->output));
    ENSURE(plan_count_nonfinite(plan, "scores", op->options.scores));
    if (attention_is_last(&a))
        ENSURE(plan_count_nonfinite(plan, "log_sum_exp", op->options.log_sum_exp));
    ENSURE(plan_count_nonfinite(plan, "present_key", op->present_key));
    return plan_count_nonfinite(plan, "present_value", op->present_value);
}

enum vka_status vka_plan_add_attention(struct vka_plan *plan, const struct vka_attention_op *op)
{
    struct plan_mark mark;
    struct cache_use use = {0};
    ENSURE(plan_begin(plan, __func__, &mark));
    while (mark.open)
        plan_end(plan, &mark, add_attention(plan, __func__, op, &use));
    ENSURE(mark.status);
    if (use.cache)
        plan_end_step(plan, &use);
    return VKA_OK;
}
