/* Checks an attention: sizes, types, combinations of arguments, overlaps, and the options against the
 * problem's sizes. */
#include "op/attention/problem.h"
#include "core/dtype.h"
#include "core/mask.h"
#include "op/common/check.h"
#include "op/cache/room.h"

#include <math.h>

/* A multiple of the keys of every kernel's step: a step cut in two would change the bits. */
#define KEY_CHUNK_MULTIPLE 128u

static enum vka_status check_mask(struct vka_plan *plan, const char *caller,
                                  const struct attention *a)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    const struct vka_tensor *mask = a->options->mask;
    if (!mask)
        return VKA_OK;
    ENSURE(check_tensor(device, caller, "mask", mask, 0));
    ENSURE_ARG(mask->dtype == VKA_BOOL || dtype_is_float(mask->dtype),
               "%s: mask is %s, not bool or a float type", caller, vka_dtype_name(mask->dtype));
    const uint32_t full[4] = {a->batch, a->n_head, a->n_q, a->n_kv};
    uint64_t stride[4];
    uint32_t n_kv;
    const char *wrong = mask_broadcast(&mask->shape, full, stride, &n_kv);
    char text[SHAPE_TEXT];
    ENSURE_ARG(!wrong, "%s: mask %s does not broadcast to [%u, %u, %u, %u]: %s", caller,
               shape_text(&mask->shape, text), full[0], full[1], full[2], full[3], wrong);
    return VKA_OK;
}

enum vka_status attention_check_per_batch(struct vka_plan *plan, const char *caller,
                                          const char *name, const struct vka_tensor *tensor,
                                          uint32_t batch)
{
    struct log *log = &plan->device->log;
    if (!tensor)
        return VKA_OK;
    ENSURE(check_tensor(plan->device, caller, name, tensor, CHECK_I32));
    const struct shape *shape = &tensor->shape;
    ENSURE_ARG(shape->rank == 1 && (shape->size[0] == 1 || shape->size[0] == batch),
               "%s: %s is neither [1] nor [%u], one value for each batch element", caller, name,
               batch);
    ENSURE_ARG(shape->size[0] == 1 || shape->stride[0] == 1, "%s: %s is not contiguous", caller,
               name);
    return VKA_OK;
}

static enum vka_status check_scores(struct vka_plan *plan, const char *caller,
                                    const struct attention *a)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    const struct vka_attention_options *options = a->options;
    ENSURE_ARG((unsigned)options->scores_kind < VKA_SCORES_COUNT, "%s: scores_kind %d is unknown",
               caller, (int)options->scores_kind);
    ENSURE_ARG(options->scores_kind == VKA_SCORES_NONE || options->scores,
               "%s: scores_kind is given, but scores is NULL", caller);
    ENSURE_ARG(options->scores_kind != VKA_SCORES_NONE || !options->scores,
               "%s: scores is given, but scores_kind is NONE", caller);
    if (!options->scores)
        return VKA_OK;
    ENSURE(check_tensor(device, caller, "scores", options->scores, CHECK_FLOAT | CHECK_WRITTEN));
    const uint32_t full[4] = {a->batch, a->n_head, a->n_q, a->n_kv};
    return check_shape(device, caller, "scores", options->scores, 4, full);
}

static enum vka_status check_log_sum(struct vka_plan *plan, const char *caller,
                                     const struct attention *a)
{
    const struct vka_tensor *tensor = a->options->log_sum_exp;
    if (!tensor)
        return VKA_OK;
    ENSURE(check_tensor(plan->device, caller, "log_sum_exp", tensor, CHECK_F32 | CHECK_WRITTEN));
    return check_shape(plan->device, caller, "log_sum_exp", tensor, 3,
                       (const uint32_t[]){a->batch, a->n_head, a->n_q});
}

/* Checks that positions, keys and their differences fit int32 (offsets are within 2^30), and that
 * rows of all batch elements and heads fit uint32, as kernels count them so. */
static enum vka_status check_sizes(struct vka_plan *plan, const char *caller,
                                   const struct attention *a)
{
    struct log *log = &plan->device->log;
    ENSURE_ARG(a->n_q < 1u << 30, "%s: %u queries, but there must be fewer than 2^30", caller,
               a->n_q);
    ENSURE_ARG(a->n_kv <= 1u << 30, "%s: %u keys exceed 2^30", caller, a->n_kv);
    ENSURE_ARG((uint64_t)a->batch * a->n_head <= INT32_MAX,
               "%s: batch %u times %u heads must be below 2^31", caller, a->batch, a->n_head);
    return VKA_OK;
}

static enum vka_status check_rope(struct vka_plan *plan, const char *caller,
                                  const struct attention *a)
{
    struct log *log = &plan->device->log;
    const struct vka_rope *rope = &a->options->rope;
    ENSURE_ARG(rope->dim % 2 == 0 && rope->dim <= a->head_dim,
               "%s: rope.dim is %u, but must be even and at most head_dim %u", caller, rope->dim,
               a->head_dim);
    ENSURE_ARG(rope->base == 0 || (isfinite(rope->base) && rope->base > 0),
               "%s: rope.base is %g, not a positive number", caller, (double)rope->base);
    ENSURE_ARG(rope->dim || (rope->base == 0 && rope->attention_factor == 0 && !rope->interleaved),
               "%s: rope.dim is 0, which rotates nothing, but another field of rope is given",
               caller);
    ENSURE_ARG(!rope->frequencies || (rope->dim && rope->base == 0),
               "%s: rope.frequencies is given with a base or without a dim", caller);
    for (uint32_t i = 0; rope->frequencies && i < rope->dim / 2; i++)
        ENSURE_ARG(fabs(rope->frequencies[i]) <= 1, "%s: rope.frequencies[%u] is %g, not -1 to 1",
                   caller, i, rope->frequencies[i]);
    ENSURE_ARG(isfinite(rope->attention_factor) && rope->attention_factor >= 0,
               "%s: rope.attention_factor is %g, not a positive number, or 0 for 1", caller,
               (double)rope->attention_factor);
    return VKA_OK;
}

static enum vka_status check_numbers(struct vka_plan *plan, const char *caller,
                                     const struct attention *a)
{
    struct log *log = &plan->device->log;
    const struct vka_attention_options *options = a->options;
    ENSURE(check_given(plan->device, caller, options->given, VKA_GIVEN_SCALE | VKA_GIVEN_EPSILON));
    ENSURE_ARG(isfinite(options->scale), "%s: scale is %g, not a finite number", caller,
               (double)options->scale);
    ENSURE_ARG(isfinite(options->softcap) && options->softcap >= 0,
               "%s: softcap is %g, not a number from 0", caller, (double)options->softcap);
    ENSURE_ARG(options->dropout >= 0 && options->dropout < 1,
               "%s: dropout is %g, not from 0 to below 1", caller, (double)options->dropout);
    ENSURE_ARG(options->dropout_batch <= UINT16_MAX && options->dropout_head <= UINT16_MAX,
               "%s: dropout_batch is %u and dropout_head %u, not both up to 65535", caller,
               options->dropout_batch, options->dropout_head);
    const uint64_t batch = a->n_sequence > a->batch ? a->n_sequence : a->batch;
    if (options->dropout > 0 && (options->dropout_batch + batch > UINT16_MAX + 1u ||
                                 options->dropout_head + (uint64_t)a->n_head > UINT16_MAX + 1u))
        return log_error(log, VKA_UNSUPPORTED,
                         "%s: dropout draws for 65536 batch elements and heads, not for %llu and "
                         "%u from %u and %u on",
                         caller, (unsigned long long)batch, a->n_head, options->dropout_batch,
                         options->dropout_head);
    ENSURE_ARG(isfinite(options->norm_epsilon) && options->norm_epsilon >= 0,
               "%s: norm_epsilon is %g, not a number from 0", caller,
               (double)options->norm_epsilon);
    ENSURE_ARG((unsigned)options->masked_row < VKA_MASKED_ROW_COUNT, "%s: masked_row %d is unknown",
               caller, (int)options->masked_row);
    if (options->window) {
        ENSURE_ARG(options->window_left >= -1, "%s: window_left is %d, less than -1", caller,
                   options->window_left);
        ENSURE_ARG(options->window_right >= -1, "%s: window_right is %d, less than -1", caller,
                   options->window_right);
    } else {
        ENSURE_ARG(options->window_left == 0 && options->window_right == 0,
                   "%s: window_left or window_right is given, but window is false", caller);
    }
    return VKA_OK;
}

float attention_scale(const struct vka_attention_options *options, uint32_t head_dim)
{
    return (float)or_default((double)options->scale, options->given, VKA_GIVEN_SCALE,
                             1 / sqrt((double)head_dim));
}

float attention_epsilon(const struct vka_attention_options *options)
{
    return (float)or_default((double)options->norm_epsilon, options->given, VKA_GIVEN_EPSILON,
                             1e-6);
}

enum vka_status attention_check_options(struct vka_plan *plan, const char *caller,
                                        struct attention *a)
{
    const struct vka_attention_options *options = a->options;
    const uint32_t batch = a->n_sequence ? a->n_sequence : a->batch;
    ENSURE(check_sizes(plan, caller, a));
    ENSURE(check_numbers(plan, caller, a));
    ENSURE(check_rope(plan, caller, a));
    ENSURE(check_mask(plan, caller, a));
    ENSURE(attention_check_per_batch(plan, caller, "kv_length", options->kv_length, batch));
    ENSURE(attention_check_per_batch(plan, caller, "query_offset", options->query_offset, batch));
    ENSURE(check_scores(plan, caller, a));
    ENSURE(check_log_sum(plan, caller, a));
    ENSURE(check_vector(plan->device, caller, "q_norm", options->q_norm, a->head_dim));
    ENSURE(check_vector(plan->device, caller, "k_norm", options->k_norm, a->head_dim));
    ENSURE(check_vector(plan->device, caller, "sink", options->sink, a->n_head));
    ENSURE(check_vector(plan->device, caller, "alibi", options->alibi, a->n_head));
    a->whole_n_head = plan->whole_n_head ? plan->whole_n_head : a->n_head;
    a->whole_n_kv_head = plan->whole_n_head ? plan->whole_n_kv_head : a->n_kv_head;
    a->whole_n_q = plan->whole_n_q ? plan->whole_n_q
                   : a->n_sequence ? divide_up(a->n_q, a->n_sequence)
                                   : a->n_q;
    return VKA_OK;
}

void attention_option_inputs(const struct vka_attention_options *options,
                             const struct vka_tensor *inputs[OPTION_INPUTS])
{
    const struct vka_tensor *all[OPTION_INPUTS] = {
        options->mask,   options->kv_length, options->query_offset, options->q_norm,
        options->k_norm, options->sink,      options->alibi};
    for (size_t i = 0; i < OPTION_INPUTS; i++)
        inputs[i] = all[i];
}

enum vka_status attention_check_cache(struct vka_plan *plan, const char *caller,
                                      const struct cache_use *use, struct attention *a)
{
    struct log *log = &plan->device->log;
    const struct vka_cache *cache = use->cache;
    const struct vka_cache_info *i = &cache->info;
    const uint32_t batch = a->n_sequence ? a->n_sequence : a->batch;
    ENSURE_ARG(cache->device == plan->device, "%s: cache belongs to another device", caller);
    ENSURE_ARG(use->layer < i->n_layer, "%s: cache_layer is %u, but the cache has %u layers",
               caller, use->layer, i->n_layer);
    const struct vka_cache_layer_info *layer = &cache->layers[use->layer].info;
    ENSURE_ARG(layer->n_kv_head, "%s: cache_layer is %u, which holds a state, not keys and values",
               caller, use->layer);
    ENSURE_ARG(i->batch == batch && layer->n_kv_head == a->n_kv_head &&
                   layer->head_dim == a->head_dim && layer->value_dim == a->value_dim,
               "%s: cache has batch %u, %u key heads, head_dim %u and value_dim %u, but %s "
               "have %u, %u, %u and %u",
               caller, i->batch, layer->n_kv_head, layer->head_dim, layer->value_dim,
               a->n_sequence ? "q_start, k and v" : "k and v", batch, a->n_kv_head, a->head_dim,
               a->value_dim);
    ENSURE_ARG(a->n_sequence || use->n_new <= i->capacity,
               "%s: %u new keys exceed the cache's capacity of %u", caller, use->n_new,
               i->capacity);
    ENSURE(attention_check_per_batch(plan, caller, "n_append", use->n_append, batch));
    if (cache_has_blocks(&cache->layers[use->layer]) &&
        (plan->path == VKA_PATH_UNFUSED || a->options->scores))
        return log_error(log, VKA_UNSUPPORTED,
                         "%s: the cache has keys of type %s and values of type %s, which only the "
                         "fused path reads, and it returns no scores",
                         caller, vka_dtype_name(layer->key_dtype),
                         vka_dtype_name(layer->value_dtype));
    ENSURE_ARG(!a->options->kv_length && !a->options->query_offset,
               "%s: kv_length or query_offset is given, but the cache sets them", caller);
    a->n_kv = i->capacity;
    a->cached = true;
    return plan_check_step(plan, caller, use);
}

/* Checks the offsets of packed rows. */
static enum vka_status check_starts(struct vka_plan *plan, const char *caller, const char *name,
                                    const struct vka_tensor *tensor)
{
    struct log *log = &plan->device->log;
    ENSURE(check_tensor(plan->device, caller, name, tensor, CHECK_I32));
    const struct shape *shape = &tensor->shape;
    ENSURE_ARG(shape->rank == 1 && shape->size[0] >= 2 && shape->stride[0] == 1,
               "%s: %s must be contiguous, of rank 1 and a length n + 1 for n sequences", caller,
               name);
    return VKA_OK;
}

enum vka_status attention_check_ragged(struct vka_plan *plan, const char *caller,
                                       const struct vka_tensor *q_start,
                                       const struct vka_cache *cache, uint32_t n_new,
                                       struct attention *a)
{
    struct log *log = &plan->device->log;
    ENSURE(check_starts(plan, caller, "q_start", q_start));
    ENSURE_ARG(a->batch == 1, "%s: q has batch %u, but with q_start it must be 1", caller,
               a->batch);
    ENSURE_ARG(!a->options->scores, "%s: scores is given with q_start", caller);
    ENSURE_ARG(plan->path != VKA_PATH_UNFUSED,
               "%s: q_start is given, but the plan's path is UNFUSED", caller);
    ENSURE_ARG(!cache || n_new == a->n_q,
               "%s: %u new keys, but with q_start and a cache there is one for each of the %u rows "
               "of q",
               caller, n_new, a->n_q);
    a->q_start = q_start;
    a->n_sequence = q_start->shape.size[0] - 1;
    a->sequences = cache;
    return VKA_OK;
}

/* Checks packed rows: no option that needs a dense batch, and without a cache none that needs one. */
static enum vka_status check_packed(struct vka_plan *plan, const char *caller,
                                    const struct vka_attention_op *op, struct attention *a)
{
    struct log *log = &plan->device->log;
    const struct vka_attention_options *options = &op->options;
    ENSURE_ARG(op->q_start || !op->kv_start, "%s: only one of q_start and kv_start is given",
               caller);
    if (!op->q_start)
        return VKA_OK;
    ENSURE_ARG(!op->cache == !!op->kv_start,
               op->cache ? "%s: kv_start is given, but with a cache q_start is also of k and v"
                         : "%s: only one of q_start and kv_start is given, without cache",
               caller);
    ENSURE_ARG(!op->past_key && !op->present_key, "%s: past or present is given with q_start",
               caller);
    ENSURE_ARG(op->cache || (!options->mask && !options->rope.dim),
               "%s: mask or rope is given with q_start, but without cache", caller);
    ENSURE(attention_check_ragged(plan, caller, op->q_start, op->cache, a->n_kv, a));
    if (op->cache)
        return VKA_OK;
    ENSURE(check_starts(plan, caller, "kv_start", op->kv_start));
    ENSURE_ARG(op->kv_start->shape.size[0] == op->q_start->shape.size[0],
               "%s: q_start and kv_start have %u and %u elements", caller,
               op->q_start->shape.size[0], op->kv_start->shape.size[0]);
    a->kv_start = op->kv_start;
    return VKA_OK;
}

/* Checks a key chunk, where op is one, and sets a->n_kv to the number of all keys. */
static enum vka_status check_key_chunk(struct vka_plan *plan, const char *caller,
                                       const struct vka_attention_op *op, struct attention *a)
{
    struct log *log = &plan->device->log;
    uint64_t end = (uint64_t)op->key_first + a->n_kv;
    ENSURE_ARG(op->n_key || (!op->state && !op->key_first),
               "%s: state or key_first is given, but n_key is 0", caller);
    if (!op->n_key)
        return VKA_OK;
    ENSURE_ARG(!op->options.scores && !op->past_key && !op->present_key && !op->cache &&
                   !op->q_start,
               "%s: scores, past, present, cache or q_start is given with n_key", caller);
    ENSURE_ARG(plan->path != VKA_PATH_UNFUSED, "%s: n_key is given, but the plan's path is UNFUSED",
               caller);
    ENSURE_ARG(end <= op->n_key && op->n_key <= INT32_MAX,
               "%s: keys %u to %llu exceed n_key %u, or n_key exceeds 2^31 - 1", caller,
               op->key_first, (unsigned long long)end, op->n_key);
    ENSURE_ARG(op->key_first % KEY_CHUNK_MULTIPLE == 0 &&
                   (end % KEY_CHUNK_MULTIPLE == 0 || end == op->n_key),
               "%s: keys %u to %llu: a key chunk begins, and unless it is the last ends, at a "
               "multiple of %u",
               caller, op->key_first, (unsigned long long)end, KEY_CHUNK_MULTIPLE);
    if (op->state) {
        ENSURE(check_tensor(plan->device, caller, "state", op->state, CHECK_F32));
        const struct shape *shape = &op->state->shape;
        ENSURE_ARG(shape->rank == 1 && shape->offset == 0 &&
                       (shape->size[0] == 1 || shape->stride[0] == 1),
                   "%s: state is a view, or not of rank 1", caller);
    }
    if (op->n_key == a->n_kv) /* a key chunk of all keys is an ordinary problem */
        return VKA_OK;
    a->state = op->state;
    a->key_first = op->key_first;
    a->key_chunk = a->n_kv;
    a->n_kv = op->n_key;
    return VKA_OK;
}

/* Checks shapes of q, k, v, past, present and output, and stores the sizes in *a. */
static enum vka_status check_shapes(struct vka_plan *plan, const char *caller,
                                    const struct vka_attention_op *op, struct attention *a)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
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
    ENSURE_ARG(!op->past_key == !op->past_value, "%s: only one of past_key and past_value is given",
               caller);
    ENSURE_ARG(!op->present_key == !op->present_value,
               "%s: only one of present_key and present_value is given", caller);
    for (size_t i = 0; i < COUNTOF(given); i++) {
        if (i >= 4 && !given[i].tensor)
            continue;
        ENSURE(check_tensor(device, caller, given[i].name, given[i].tensor, given[i].flags));
        ENSURE_ARG(given[i].tensor->shape.rank == 4, "%s: %s has rank %u, not 4", caller,
                   given[i].name, given[i].tensor->shape.rank);
    }
    a->batch = op->q->shape.size[0];
    a->n_head = op->q->shape.size[1];
    a->n_q = op->q->shape.size[2];
    a->head_dim = op->q->shape.size[3];
    a->n_kv_head = op->k->shape.size[1];
    a->value_dim = op->v->shape.size[3];
    a->n_past = op->past_key ? op->past_key->shape.size[2] : 0;
    ENSURE_ARG(a->n_head % a->n_kv_head == 0, "%s: q has %u heads, not a multiple of k's %u",
               caller, a->n_head, a->n_kv_head);
    ENSURE_ARG((uint64_t)a->n_past + op->k->shape.size[2] <= INT32_MAX,
               "%s: past_key and k have more than 2^31 keys", caller);
    a->n_kv = a->n_past + op->k->shape.size[2];
    const uint32_t want[][4] = {
        {a->batch, a->n_head, a->n_q, a->head_dim},
        {a->batch, a->n_kv_head, a->n_kv - a->n_past, a->head_dim},
        {a->batch, a->n_kv_head, a->n_kv - a->n_past, a->value_dim},
        {a->batch, a->n_head, a->n_q, a->value_dim},
        {a->batch, a->n_kv_head, a->n_past, a->head_dim},
        {a->batch, a->n_kv_head, a->n_past, a->value_dim},
        {a->batch, a->n_kv_head, a->n_kv, a->head_dim},
        {a->batch, a->n_kv_head, a->n_kv, a->value_dim},
    };
    for (size_t i = 0; i < COUNTOF(given); i++)
        if (given[i].tensor)
            ENSURE(check_shape(device, caller, given[i].name, given[i].tensor, 4, want[i]));
    return VKA_OK;
}

/* Checks that a written tensor shares memory with no tensor read and no other tensor written. */
static enum vka_status check_overlaps(struct vka_plan *plan, const char *caller,
                                      const struct vka_attention_op *op)
{
    const struct vka_attention_options *options = &op->options;
    const struct vka_tensor *all[8 + OPTION_INPUTS + 5] = {
        op->q, op->k, op->v, op->past_key, op->past_value, op->n_append, op->q_start, op->kv_start};
    attention_option_inputs(options, all + 8);
    const struct {
        const char *name;
        const struct vka_tensor *tensor;
    } written[] = {{"output", op->output},
                   {"scores", options->scores},
                   {"log_sum_exp", options->log_sum_exp},
                   {"present_key", op->present_key},
                   {"present_value", op->present_value},
                   {"state", op->state}};
    size_t n = 8 + OPTION_INPUTS;
    for (size_t i = 0; i < COUNTOF(written); i++) {
        if (!written[i].tensor)
            continue;
        ENSURE(check_no_overlap(plan->device, caller, written[i].name, written[i].tensor, all, n));
        if (n < COUNTOF(all))
            all[n++] = written[i].tensor;
    }
    return VKA_OK;
}

enum vka_status attention_check(struct vka_plan *plan, const char *caller,
                                const struct vka_attention_op *op, struct cache_use *use,
                                struct attention *a)
{
    struct log *log = &plan->device->log;
    ENSURE(plan_check_op(plan, caller, op, sizeof *op));
    *a = (struct attention){.options = &op->options};
    ENSURE(check_shapes(plan, caller, op, a));
    ENSURE(check_packed(plan, caller, op, a));
    if (op->cache) {
        ENSURE_ARG(!op->past_key && !op->present_key, "%s: past or present is given with cache",
                   caller);
        *use = (struct cache_use){op->cache,    op->cache_layer, a->n_kv,
                                  op->n_append, op->q_start,     HELD_KEYS};
        ENSURE(attention_check_cache(plan, caller, use, a));
    }
    ENSURE_ARG(op->cache || (!op->n_append && !op->cache_layer),
               "%s: n_append or cache_layer is given without cache", caller);
    ENSURE(check_key_chunk(plan, caller, op, a));
    ENSURE(attention_check_options(plan, caller, a));
    ENSURE(check_overlaps(plan, caller, op));
    a->q = *op->q;
    a->k = *op->k;
    a->v = *op->v;
    a->output = *op->output;
    return VKA_OK;
}
