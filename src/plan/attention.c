/* Attention as an operation: sizes and checks, then norms, rotation, past and present. */
#include "plan/attention_block.h"
#include "plan/attention_share.h"
#include "plan/cache.h"
#include "plan/check.h"
#include "plan/nonfinite.h"
#include "plan/rope.h"
#include "plan/self_test.h"

#include <math.h>

void attention_option_inputs(const struct vka_attention_options *o,
                             const struct vka_tensor *inputs[OPTION_INPUTS])
{
    const struct vka_tensor *all[OPTION_INPUTS] = {
        o->mask, o->kv_length, o->query_offset, o->q_norm, o->k_norm, o->sink, o->alibi};
    for (size_t i = 0; i < OPTION_INPUTS; i++)
        inputs[i] = all[i];
}

/* The keys (or values) that attention reads: past and new ones put together where there is a past,
 * in `present` or in scratch; else `fresh` itself, copied to `present` where that is given. */
static enum vka_status join_past(struct vka_plan *plan, const struct vka_tensor *past,
                                 const struct vka_tensor *fresh, const struct vka_tensor *present,
                                 struct vka_tensor *joined)
{
    enum vka_status status = VKA_OK;
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
        TRY(plan_scratch(plan, dtype, size, &whole));
    }
    if (past) {
        struct vka_tensor to = tensor_part(&whole, 2, 0, n_past);
        TRY(plan_copy(plan, "past", past, &to));
        *joined = whole;
    }
    struct vka_tensor to = tensor_part(&whole, 2, n_past, f[2]);
    TRY(plan_copy(plan, "present", fresh, &to));
fail:
    return status;
}

static enum vka_status turn(struct vka_plan *plan, struct attention *a, struct vka_tensor *new_k,
                            const struct vka_tensor *k_offsets)
{
    enum vka_status status = VKA_OK;
    const struct vka_attention_options *o = a->options;
    if (o->rope.dim || o->q_norm)
        TRY(plan_rope(plan, "turn q", &o->rope, o->q_norm, o->norm_epsilon, o->query_offset,
                      a->n_past, &a->q));
    if (o->rope.dim || o->k_norm)
        TRY(plan_rope(plan, "turn k", &o->rope, o->k_norm, o->norm_epsilon, k_offsets,
                      a->n_past + a->key_first, new_k));
fail:
    return status;
}

/* Attention over all keys of a cache that the new ones have joined. *options is the caller's with
 * the cache's lengths and positions. */
static enum vka_status join_cache(struct vka_plan *plan, struct attention *a,
                                  const struct attention_inputs *in, bool fused)
{
    enum vka_status status = VKA_OK;
    struct vka_cache *cache = in->cache;
    struct vka_tensor new_k = *in->new_k;
    TRY(plan_keep_cache(plan, cache));
    TRY(plan_cache_advance(plan, cache, new_k.shape.size[2]));
    TRY(turn(plan, a, &new_k, a->options->query_offset));
    TRY(plan_cache_append(plan, cache, &new_k, &cache->k));
    TRY(plan_cache_append(plan, cache, in->new_v, &cache->v));
    a->k = cache->k;
    a->v = cache->v;
    if (!cache->n_page)
        return VKA_OK;
    if (fused && !a->options->scores) {
        a->paged = cache;
        return VKA_OK;
    }
    TRY(plan_cache_gather(plan, cache, &cache->k, &a->k));
    TRY(plan_cache_gather(plan, cache, &cache->v, &a->v));
fail:
    return status;
}

static enum vka_status add_halves(struct vka_plan *plan, const struct attention *a,
                                  const struct attention_inputs *in, uint32_t axis)
{
    uint32_t n = axis == 0 ? a->batch : a->n_kv_head, group = a->n_head / a->n_kv_head;
    struct share first = {axis, 0, n / 2, group}, second = {axis, n / 2, n - n / 2, group};
    enum vka_status status = plan_attention_share(plan, a, in, &first);
    return status == VKA_OK ? plan_attention_share(plan, a, in, &second) : status;
}

enum vka_status plan_attention(struct vka_plan *plan, struct attention *a,
                               const struct attention_inputs *in)
{
    int axis = attention_axis_to_share(plan, a, in);
    if (axis >= 0)
        return add_halves(plan, a, in, (uint32_t)axis);
    enum vka_status status = VKA_OK;
    struct vka_attention_options options = *a->options;
    struct vka_tensor lengths, positions;
    bool fused;
    a->options = &options;
    a->scale = options.scale != 0 ? options.scale : (float)(1 / sqrt((double)a->head_dim));
    if (in->cache) {
        lengths = cache_lengths(in->cache);
        positions = cache_positions(in->cache);
        options.kv_length = &lengths;
        options.query_offset = &positions;
        a->k = in->cache->k;
        a->v = in->cache->v;
        fused = attention_fuses(plan, a);
        TRY(join_cache(plan, a, in, fused));
    } else {
        struct vka_tensor new_k = *in->new_k;
        TRY(turn(plan, a, &new_k, NULL));
        TRY(join_past(plan, in->past_k, &new_k, in->present_k, &a->k));
        TRY(join_past(plan, in->past_v, in->new_v, in->present_v, &a->v));
        fused = attention_fuses(plan, a);
    }
    TRY(fused ? plan_attention_fused(plan, a) : plan_attention_unfused(plan, a));
fail:
    return status;
}

enum vka_status attention_check_cache(struct vka_plan *plan, const char *caller,
                                      const struct vka_cache *cache, uint32_t n_new,
                                      struct attention *a)
{
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    const struct vka_cache_info *i = &cache->info;
    CHECK_ARG(cache->device == plan->device, "%s: cache belongs to another device", caller);
    CHECK_ARG(i->batch == a->batch && i->n_kv_head == a->n_kv_head && i->head_dim == a->head_dim &&
                  i->value_dim == a->value_dim,
              "%s: cache is for batch %u, %u key heads of %u and %u, not %u, %u of %u and %u",
              caller, i->batch, i->n_kv_head, i->head_dim, i->value_dim, a->batch, a->n_kv_head,
              a->head_dim, a->value_dim);
    CHECK_ARG(n_new <= i->capacity, "%s: %u new keys pass the cache's capacity %u", caller, n_new,
              i->capacity);
    CHECK_ARG(!a->options->kv_length && !a->options->query_offset,
              "%s: kv_length and query_offset come from the cache", caller);
    a->n_kv = i->capacity;
fail:
    return status;
}

/* A ragged batch: offsets of the right type and size, and nothing that needs a dense one. */
static enum vka_status check_ragged(struct vka_plan *plan, const char *caller,
                                    const struct vka_attention_op *op, struct attention *a)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    const struct vka_attention_options *o = &op->options;
    TRY(check_tensor(device, caller, "q_start", op->q_start, CHECK_I32));
    TRY(check_tensor(device, caller, "kv_start", op->kv_start, CHECK_I32));
    const struct shape *q = &op->q_start->shape, *k = &op->kv_start->shape;
    CHECK_ARG(q->rank == 1 && k->rank == 1 && q->size[0] == k->size[0] && q->size[0] >= 2 &&
                  q->stride[0] == 1 && k->stride[0] == 1,
              "%s: q_start and kv_start are not contiguous vectors of the same n + 1", caller);
    CHECK_ARG(a->batch == 1, "%s: q has batch %u, not 1, with q_start", caller, a->batch);
    CHECK_ARG(!o->mask && !o->scores && !o->rope.dim && !op->past_key && !op->present_key &&
                  !op->cache,
              "%s: mask, scores, rope, past, present or cache is given with q_start", caller);
    CHECK_ARG(plan->path != VKA_PATH_UNFUSED, "%s: q_start needs the fused path", caller);
    a->q_start = op->q_start;
    a->kv_start = op->kv_start;
    a->n_sequence = q->size[0] - 1;
fail:
    return status;
}

/* Shapes of q, k, v, past, present and output, into *a. */
static enum vka_status check_shapes(struct vka_plan *plan, const char *caller,
                                    const struct vka_attention_op *op, struct attention *a)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    const struct {
        const char *name;
        const struct vka_tensor *tensor;
        unsigned flags;
    } given[] = {
        {"q", op->q, CHECK_FLOAT},
        {"k", op->k, CHECK_FLOAT},
        {"v", op->v, CHECK_FLOAT},
        {"output", op->output, CHECK_FLOAT | CHECK_WRITTEN},
        {"past_key", op->past_key, CHECK_FLOAT},
        {"past_value", op->past_value, CHECK_FLOAT},
        {"present_key", op->present_key, CHECK_FLOAT | CHECK_WRITTEN},
        {"present_value", op->present_value, CHECK_FLOAT | CHECK_WRITTEN},
    };
    CHECK_ARG(!op->past_key == !op->past_value, "%s: past_key and past_value come together",
              caller);
    CHECK_ARG(!op->present_key == !op->present_value,
              "%s: present_key and present_value come together", caller);
    for (size_t i = 0; i < COUNTOF(given); i++) {
        if (i >= 4 && !given[i].tensor)
            continue;
        TRY(check_tensor(device, caller, given[i].name, given[i].tensor, given[i].flags));
        CHECK_ARG(given[i].tensor->shape.rank == 4, "%s: %s has rank %u, not 4", caller,
                  given[i].name, given[i].tensor->shape.rank);
    }
    const uint32_t *q = op->q->shape.size, *k = op->k->shape.size;
    a->batch = q[0];
    a->n_head = q[1];
    a->n_q = q[2];
    a->head_dim = q[3];
    a->n_kv_head = k[1];
    a->value_dim = op->v->shape.size[3];
    a->n_past = op->past_key ? op->past_key->shape.size[2] : 0;
    CHECK_ARG(a->n_head % a->n_kv_head == 0, "%s: q has %u heads, not a multiple of k's %u", caller,
              a->n_head, a->n_kv_head);
    CHECK_ARG((uint64_t)a->n_past + k[2] <= INT32_MAX,
              "%s: past_key and k have more than 2^31 keys", caller);
    a->n_kv = a->n_past + k[2];
    const uint32_t want[][4] = {
        {a->batch, a->n_head, a->n_q, a->head_dim},
        {a->batch, a->n_kv_head, k[2], a->head_dim},
        {a->batch, a->n_kv_head, k[2], a->value_dim},
        {a->batch, a->n_head, a->n_q, a->value_dim},
        {a->batch, a->n_kv_head, a->n_past, a->head_dim},
        {a->batch, a->n_kv_head, a->n_past, a->value_dim},
        {a->batch, a->n_kv_head, a->n_kv, a->head_dim},
        {a->batch, a->n_kv_head, a->n_kv, a->value_dim},
    };
    for (size_t i = 0; i < COUNTOF(given); i++)
        if (given[i].tensor)
            TRY(check_shape(device, caller, given[i].name, given[i].tensor, 4, want[i]));
fail:
    return status;
}

/* What is written may share no memory with what is read, nor with what else is written. */
static enum vka_status check_overlaps(struct vka_plan *plan, const char *caller,
                                      const struct vka_attention_op *op)
{
    enum vka_status status = VKA_OK;
    const struct vka_attention_options *o = &op->options;
    const struct vka_tensor *all[5 + OPTION_INPUTS + 4] = {op->q, op->k, op->v, op->past_key,
                                                           op->past_value};
    attention_option_inputs(o, all + 5);
    const struct {
        const char *name;
        const struct vka_tensor *tensor;
    } written[] = {{"output", op->output},
                   {"scores", o->scores},
                   {"present_key", op->present_key},
                   {"present_value", op->present_value},
                   {"state", op->state}};
    size_t n = 5 + OPTION_INPUTS;
    for (size_t i = 0; i < COUNTOF(written); i++) {
        if (!written[i].tensor)
            continue;
        TRY(check_no_overlap(plan->device, caller, written[i].name, written[i].tensor, all, n));
        if (n < COUNTOF(all))
            all[n++] = written[i].tensor;
    }
fail:
    return status;
}

enum vka_status attention_check(struct vka_plan *plan, const char *caller,
                                const struct vka_attention_op *op, struct attention *a)
{
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    CHECK_ARG(op, "%s: op is NULL", caller);
    CHECK_ARG(op->struct_size == sizeof *op, "%s: struct_size is %zu, not %zu", caller,
              op->struct_size, sizeof *op);
    *a = (struct attention){.options = &op->options};
    TRY(check_shapes(plan, caller, op, a));
    if (op->cache) {
        CHECK_ARG(!op->past_key && !op->present_key, "%s: past or present is given with cache",
                  caller);
        TRY(attention_check_cache(plan, caller, op->cache, a->n_kv, a));
    }
    CHECK_ARG(!op->q_start == !op->kv_start, "%s: q_start and kv_start come together", caller);
    if (op->q_start)
        TRY(check_ragged(plan, caller, op, a));
    TRY(attention_check_block(plan, caller, op, a));
    TRY(attention_check_options(plan, caller, a));
    TRY(check_overlaps(plan, caller, op));
    a->q = *op->q;
    a->k = *op->k;
    a->v = *op->v;
    a->output = *op->output;
fail:
    return status;
}

static enum vka_status add_attention(struct vka_plan *plan, const char *caller,
                                     const struct vka_attention_op *op)
{
    enum vka_status status = VKA_OK;
    struct attention a;
    TRY(attention_check(plan, caller, op, &a));
    TRY(plan_attention(plan, &a,
                       &(struct attention_inputs){op->k, op->v, op->past_key, op->past_value,
                                                  op->present_key, op->present_value, op->cache}));
    if (attention_is_last(&a))
        TRY(plan_count_nonfinite(plan, "output", op->output));
    TRY(plan_count_nonfinite(plan, "scores", op->options.scores));
    TRY(plan_count_nonfinite(plan, "present_key", op->present_key));
    TRY(plan_count_nonfinite(plan, "present_value", op->present_value));
fail:
    return status;
}

enum vka_status vka_plan_add_attention(struct vka_plan *plan, const struct vka_attention_op *op)
{
    struct plan_mark mark;
    enum vka_status status;
    do {
        TRY(plan_begin(plan, __func__, &mark));
        status = plan_end(plan, mark, add_attention(plan, __func__, op));
    } while (self_test_again(plan, &mark, status));
fail:
    return status;
}
