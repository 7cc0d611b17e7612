#include "problem_data.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The largest bias of ALiBi: far from 0, float32 scores have few digits left for the softmax, and
 * beside a sink weights become too small for float16. Layers are compared with layers, which lose the same. */
#define MOST_BIAS 6.0
#define MOST_SLOPE_OF_LAYERS 0.5

struct operand_shape problem_shape(const struct problem *p, enum operand_id id)
{
    const uint32_t B = p->batch, G = p->n_kv_head, H = problem_n_head(p), P = p->n_past;
    const uint32_t N = p->n_new, S = p->n_sequence ? p->n_sequence : B, *m = p->mask_shape;
    const struct {
        bool wanted;
        struct operand_shape shape;
    } rows[OPERAND_COUNT] = {
        [OPERAND_Q] = {true, {p->q, 4, {B, H, p->n_q, p->head_dim}}},
        [OPERAND_K] = {true, {p->k, 4, {B, G, N, p->head_dim}}},
        [OPERAND_V] = {true, {p->v, 4, {B, G, N, p->value_dim}}},
        [OPERAND_PAST_K] = {P > 0, {p->past, 4, {B, G, P, p->head_dim}}},
        [OPERAND_PAST_V] = {P > 0, {p->past, 4, {B, G, P, p->value_dim}}},
        [OPERAND_MASK] = {true, {p->mask, p->mask_rank, {m[0], m[1], m[2], m[3]}}},
        [OPERAND_LENGTH] = {p->lengths > 0, {VKA_I32, 1, {p->lengths == PER_BATCH_EACH ? S : 1}}},
        [OPERAND_OFFSET] = {p->offsets > 0, {VKA_I32, 1, {p->offsets == PER_BATCH_EACH ? S : 1}}},
        [OPERAND_Q_START] = {p->n_sequence > 0, {VKA_I32, 1, {S + 1}}},
        [OPERAND_KV_START] = {p->n_sequence && !p->capacity, {VKA_I32, 1, {S + 1}}},
        [OPERAND_N_APPEND] = {p->n_append, {VKA_I32, 1, {S}}},
        [OPERAND_Q_NORM] = {p->q_norm, {VKA_F32, 1, {p->head_dim}}},
        [OPERAND_K_NORM] = {p->k_norm, {VKA_F32, 1, {p->head_dim}}},
        [OPERAND_SINK] = {p->sink, {VKA_F32, 1, {H}}},
        [OPERAND_ALIBI] = {p->alibi, {VKA_F32, 1, {H}}},
        [OPERAND_OUTPUT] = {true, {p->output, 4, {B, H, p->n_q, p->value_dim}}},
        [OPERAND_SCORES] = {p->scores_kind > 0, {p->scores, 4, {B, H, p->n_q, problem_n_kv(p)}}},
        [OPERAND_LOG_SUM] = {p->log_sum, {VKA_F32, 3, {B, H, p->n_q}}},
        [OPERAND_PRESENT_K] = {p->has_present, {p->present, 4, {B, G, P + N, p->head_dim}}},
        [OPERAND_PRESENT_V] = {p->has_present, {p->present, 4, {B, G, P + N, p->value_dim}}},
    };
    return rows[id].wanted ? rows[id].shape : (struct operand_shape){.rank = 0};
}

static enum vka_status create(struct vka_device *device, struct problem_data *d, enum operand_id id)
{
    const struct operand_shape shape = problem_shape(d->p, id);
    if (!shape.rank)
        return VKA_OK;
    struct layout layout = d->p->scattered ? layout_random(&d->rng, shape.rank) : layout_dense();
    if (shape.rank == 1 && id != OPERAND_MASK)
        layout.step = 1; /* these have to be contiguous */
    return (d->empty ? operand_create_empty : operand_create)(
        device, shape.dtype, shape.rank, shape.size, &layout, &d->operands[id]);
}

enum vka_status problem_data_open(struct vka_device *device, const struct problem *p, bool empty,
                                  struct problem_data *d)
{
    *d = (struct problem_data){.p = p, .rng = {~p->seed}, .empty = empty};
    enum vka_status status = create(device, d, OPERAND_MASK);
    for (int i = 0; i < OPERAND_COUNT && status == VKA_OK; i++)
        if (i != OPERAND_MASK)
            status = create(device, d, (enum operand_id)i);
    return status;
}

static double mask_value(const struct problem *p, struct rng *rng)
{
    if (p->mask == VKA_BOOL) /* any byte but 0 is true */
        return rng_chance(rng, 70) ? rng_range(rng, 1, 255) : 0;
    if (rng_chance(rng, 20))
        return -INFINITY;
    return rng_range(rng, 1, 500) == 1 ? (double)NAN : rng_uniform(rng, -3, 3); /* NaN hides too */
}

/* Kind 4: a length at which a split, a tile or a step of keys ends. */
static double length_value(const struct problem *p, struct rng *rng)
{
    uint32_t n_kv = p->n_past + p->n_new, kind = rng_range(rng, 0, 9);
    const uint32_t step = n_kv < 256 ? 16 : 128;
    return kind == 0   ? 0
           : kind == 1 ? -5
           : kind == 2 ? n_kv + 7.0
           : kind == 3 ? INT32_MAX
           : kind == 4 ? step * rng_range(rng, 0, n_kv / step)
                       : rng_range(rng, 0, n_kv);
}

static double offset_value(const struct problem *p, struct rng *rng)
{
    static const int32_t far[] = {INT32_MIN, -(1 << 30), -1000000, 1000000, 1 << 30, INT32_MAX};
    int32_t n_kv = (int32_t)(p->n_past + p->n_new), n_q = (int32_t)p->n_q;
    if (p->far_offsets && rng_chance(rng, 40))
        return far[rng_range(rng, 0, 5)];
    return (double)rng_range(rng, 0, (uint32_t)(n_kv + n_q)) - n_q;
}

/* Slopes of either sign that keep what they add near 0. */
static double slope_value(const struct problem *p, struct rng *rng)
{
    double most =
        p->way == WAY_LAYER ? MOST_SLOPE_OF_LAYERS : MOST_BIAS / (problem_n_kv(p) + p->n_q);
    return rng_uniform(rng, -most / 4, most);
}

static double value_of(const struct problem *p, enum operand_id id, struct rng *rng)
{
    switch (id) {
    case OPERAND_MASK:
        return mask_value(p, rng);
    case OPERAND_LENGTH:
        return length_value(p, rng);
    case OPERAND_OFFSET:
        return offset_value(p, rng);
    case OPERAND_ALIBI:
        return slope_value(p, rng);
    case OPERAND_V:
    case OPERAND_PAST_V: /* not around 0, so that few sums cancel out */
        return rng_uniform(rng, -0.5, 1.5);
    case OPERAND_Q:
    case OPERAND_K:
    case OPERAND_PAST_K:
    case OPERAND_Q_START:
    case OPERAND_KV_START:
    case OPERAND_N_APPEND:
    case OPERAND_Q_NORM:
    case OPERAND_K_NORM:
    case OPERAND_SINK:
    case OPERAND_OUTPUT:
    case OPERAND_SCORES:
    case OPERAND_LOG_SUM:
    case OPERAND_PRESENT_K:
    case OPERAND_PRESENT_V:
    case OPERAND_COUNT:
        break;
    }
    return rng_uniform(rng, -1.7, 1.7); /* variance 1 */
}

/* Row `key` of the past or the new ones, [batch][n_kv_head][...][width]. */
static double *row_of(struct problem_data *d, enum operand_id past, enum operand_id fresh,
                      size_t head, size_t key, size_t *width)
{
    const struct problem *p = d->p;
    bool old = key < p->n_past;
    struct operand *o = &d->operands[old ? past : fresh];
    size_t row = old ? head * p->n_past + key : head * p->n_new + key - p->n_past;
    *width = o->size[3];
    return o->values + row * *width;
}

/* NaN and Inf where no result may read them. */
static enum vka_status poison_hidden(struct problem_data *d)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    const struct problem *p = d->p;
    size_t heads = (size_t)p->batch * p->n_kv_head, n_kv = p->n_past + p->n_new, width;
    bool *visible = calloc(heads * n_kv, sizeof *visible);
    if (!visible)
        return VKA_OUT_OF_HOST_MEMORY;
    enum vka_status status = problem_visible(d, visible);
    for (size_t i = 0; i < heads * n_kv && status == VKA_OK; i++) {
        if (visible[i])
            continue;
        double *k = row_of(d, OPERAND_PAST_K, OPERAND_K, i / n_kv, i % n_kv, &width);
        k[rng_range(&d->rng, 0, (uint32_t)width - 1)] = bad[rng_range(&d->rng, 0, 2)];
        double *v = row_of(d, OPERAND_PAST_V, OPERAND_V, i / n_kv, i % n_kv, &width);
        for (size_t c = 0; c < width; c++)
            v[c] = bad[rng_range(&d->rng, 0, 2)];
    }
    free(visible);
    return status;
}

static void poison_visible(struct problem_data *d)
{
    const struct problem *p = d->p;
    size_t width, head = rng_range(&d->rng, 0, p->batch * p->n_kv_head - 1);
    size_t key = rng_range(&d->rng, 0, p->n_past + p->n_new - 1);
    row_of(d, OPERAND_PAST_K, OPERAND_K, head, key, &width)[0] = NAN;
}

/* Rows of which a float mask leaves nothing of the scores, but hides no key, as padding is often told. Not
 * beside stored scores, whose type may not hold the sums. */
static void lower_rows(struct problem_data *d)
{
    static const double low[] = {-1e30, -3e38, -FLT_MAX};
    struct operand *o = &d->operands[OPERAND_MASK];
    const size_t width = o->count ? o->size[o->rank - 1] : 1;
    if (o->dtype == VKA_BOOL || d->p->scores_kind != VKA_SCORES_NONE)
        return;
    for (size_t i = 0; i < o->count; i += width) {
        const double x = operand_round(o->dtype, low[rng_range(&d->rng, 0, 2)]);
        const bool lowered = rng_chance(&d->rng, 5);
        for (size_t j = i; lowered && j < i + width; j++)
            o->values[j] = x;
    }
}

void problem_fill(struct problem_data *d, enum operand_id first, enum operand_id last)
{
    for (enum operand_id id = first; id <= last; id++) {
        struct operand *o = &d->operands[id];
        for (size_t i = 0; i < o->count; i++)
            o->values[i] = operand_round(o->dtype, value_of(d->p, id, &d->rng));
        if (id == OPERAND_MASK)
            lower_rows(d);
    }
}

enum vka_status problem_data_create(struct vka_device *device, const struct problem *p,
                                    struct problem_data *d)
{
    enum vka_status status = problem_data_open(device, p, false, d);
    if (status == VKA_OK)
        problem_fill(d, OPERAND_Q, OPERAND_ALIBI);
    if (status == VKA_OK && p->poison_hidden)
        status = poison_hidden(d);
    if (status == VKA_OK && p->poison_visible)
        poison_visible(d);
    for (int id = 0; id < OPERAND_OUTPUT && status == VKA_OK; id++)
        if (d->operands[id].view)
            status = operand_write(&d->operands[id]);
    return status;
}

void problem_data_destroy(struct problem_data *d)
{
    for (int i = 0; i < OPERAND_COUNT; i++)
        operand_destroy(&d->operands[i]);
    free(d->context);
    free(d->scores);
    free(d->log_sum);
    free(d->key);
    free(d->value);
}
