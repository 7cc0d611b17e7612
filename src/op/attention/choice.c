/* Chooses path and kernel of an attention, once, before any pass is added. */
#include "op/attention/choice.h"
#include "core/inner.h"
#include "kernel/choose.h"
#include "op/attention/mask.h"
#include "plan/settle.h"

#include <math.h>

struct job {
    struct attention *a;
    bool fused;                /* whatever the rules prefer */
    enum vka_dtype q, k, v, o; /* types that the kernel will read and write */
    bool cached;
    const struct refusals *refusals; /* see without_refused; NULL: a refused kernel may be chosen */
};

/* A state is sized for a kernel before a pipeline of it is made. So by key chunks no kernel is taken
 * of which any pipeline was refused: asked again, the size is that of another. */
static struct caps without_refused(const struct caps *caps, const struct refusals *refusals)
{
    struct caps left = *caps;
    for (int k = 0; refusals && k < KERNEL_COUNT; k++)
        if (kernel_table[k].family == FAMILY_ATTENTION && refusals->of[k])
            left.refused[k] = refusals->why[k];
    return left;
}

/* The type of keys or values that the kernel reads: of the cache, of `present` or scratch, where past
 * and new ones are joined; without a past of the new ones, as `present` is a copy. See join_past. */
static enum vka_dtype joined_type(const struct cached_rows *cached, enum vka_dtype fresh,
                                  const struct vka_tensor *past, const struct vka_tensor *present)
{
    if (cached)
        return cached->dtype;
    if (!past)
        return fresh;
    if (present)
        return present->dtype;
    return past->dtype != fresh ? VKA_F32 : fresh;
}

enum vka_dtype attention_turned_dtype(const struct vka_plan *plan, const struct attention *a,
                                      const struct attention_inputs *in)
{
    const struct vka_tensor *const given[] = {&a->q,      in->new_k,  in->new_v,     &a->output,
                                              in->past_k, in->past_v, in->present_k, in->present_v};
    enum vka_dtype types[COUNTOF(given) + 2];
    size_t n = 0;
    for (size_t i = 0; i < COUNTOF(given); i++)
        if (given[i])
            types[n++] = given[i]->dtype;
    if (in->use.cache) {
        const struct cached_layer *cached = &in->use.cache->layers[in->use.layer];
        types[n++] = cached->k.dtype;
        types[n++] = cached->v.dtype;
    }
    return inner_dtype(&plan->caps.properties, types, n);
}

static struct job job_of(const struct vka_plan *plan, struct attention *a,
                         const struct attention_inputs *in)
{
    const struct vka_attention_options *options = a->options;
    const struct cached_layer *cached =
        in->use.cache ? &in->use.cache->layers[in->use.layer] : NULL;
    const struct cached_rows *k = cached ? &cached->k : NULL;
    const struct cached_rows *v = cached ? &cached->v : NULL;
    const enum vka_dtype turned = attention_turned_dtype(plan, a, in);
    const enum vka_dtype new_k = options->rope.dim || options->k_norm ? turned : in->new_k->dtype;
    const enum vka_dtype q = options->rope.dim || options->q_norm ? turned : a->q.dtype;
    return (struct job){
        .a = a,
        .q = k && k->hadamard ? VKA_F32 : q,
        .k = joined_type(k, new_k, in->past_k, in->present_k),
        .v = joined_type(v, in->new_v->dtype, in->past_v, in->present_v),
        .o = v && v->hadamard ? VKA_F32 : a->output.dtype,
        .cached = cached != NULL,
    };
}

static struct kernel_set choose(const struct caps *caps, void *given)
{
    const struct job *job = given;
    const struct attention *a = job->a;
    struct attention_choice *c = &job->a->choice;
    const struct attention_problem problem = {
        .batch = a->batch,
        .n_kv_head = a->whole_n_kv_head,
        .n_row = (uint64_t)a->whole_n_q * (a->whole_n_head / a->whole_n_kv_head),
        .n_kv = a->n_kv,
        .head_dim = a->head_dim,
        .value_dim = a->value_dim,
        .q_type = job->q,
        .kv_type = job->k,
        .v_type = job->v,
        .o_type = job->o,
        .address = a->head_dim % 4 == 0 && a->value_dim % 4 == 0,
        .ragged = a->n_sequence > 0 && !a->sequences,
        .mask = a->options->mask && !a->n_sequence,
        .cached = job->cached,
    };
    const struct caps left = without_refused(caps, job->refusals);
    choose_attention(&left, &problem, c);
    if (!c->usable || !(job->fused || c->preferred)) /* what is not taken is not tested */
        return NO_KERNELS;
    struct kernel_set chosen = KERNEL_SET(c->kernel);
    if (c->map)
        set_add(&chosen, KERNEL_attention_map);
    if (c->n_split > 1)
        set_add(&chosen, KERNEL_attention_merge);
    return chosen;
}

static enum vka_status check_exact(const struct vka_plan *plan, const struct attention *a,
                                   const struct attention_inputs *in)
{
    bool blocks = in->use.cache && cache_has_blocks(&in->use.cache->layers[in->use.layer]);
    const char *why = plan->path == VKA_PATH_FUSED ? "the fused path"
                      : a->n_sequence              ? "a ragged batch"
                      : a->key_chunk               ? "key chunks"
                      : blocks                     ? "a cache of a block type"
                                                   : NULL;
    if (!why)
        return VKA_OK;
    return log_error(&plan->device->log, VKA_UNSUPPORTED,
                     "exact_softmax needs the unfused path, so it is not supported with %s", why);
}

enum vka_status attention_choose(struct vka_plan *plan, struct attention *a,
                                 const struct attention_inputs *in)
{
    struct job job = job_of(plan, a, in);
    a->scale = attention_scale(a->options, a->head_dim);
    a->fused = plan->path == VKA_PATH_FUSED;
    if (a->options->exact_softmax)
        return check_exact(plan, a, in);
    if (plan->path == VKA_PATH_UNFUSED)
        return VKA_OK;
    a->fused |= in->use.cache && cache_has_blocks(&in->use.cache->layers[in->use.layer]);
    a->fused |= a->n_sequence || a->key_chunk;
    job.fused = a->fused;
    job.refusals = a->key_chunk ? &plan->device->refusals : NULL;
    ENSURE(plan_settle(plan, divide_up(a->head_dim, 4) * 4, choose, &job));
    a->fused |= a->choice.usable && a->choice.preferred;
    return VKA_OK;
}

struct attention_operands attention_operands_of(const struct attention *a)
{
    const struct vka_attention_options *options = a->options;
    return (struct attention_operands){
        .q_type = a->q.dtype,
        .k_type = a->blocks ? a->blocks->k.dtype : a->k.dtype,
        .v_type = a->blocks ? a->blocks->v.dtype : a->v.dtype,
        .o_type = a->output.dtype,
        .head_dim = a->head_dim,
        .value_dim = a->value_dim,
        .k_vec = attention_rows_of(&a->k, 4), /* bytes of quantised rows are whole vectors */
        .v_vec = attention_rows_of(&a->v, 4),
        .k_vectors = attention_rows_of(&a->k, 8), /* 16 bytes of 16-bit elements */
        .v_vectors = attention_rows_of(&a->v, 8),
        /* A scale of 0 or a subnormal too, and one whose product with log2(e) is infinite: kernels that
         * scale a vector's maximum would make NaN of -inf, or of 0. */
        .bias = options->mask || options->softcap != 0 || options->alibi ||
                !(fabsf(a->scale) > 0x1p-120f && fabsf(a->scale) < 0x1p120f),
        .dropout = options->dropout != 0,
        .reads_masked = options->masked_row == VKA_MASKED_UNIFORM && attention_hides(a),
        .ragged = a->n_sequence > 0,
        .paged = a->paged != NULL,
        .log_sum = attention_log_sum(a, &(struct vka_tensor){0}),
    };
}
