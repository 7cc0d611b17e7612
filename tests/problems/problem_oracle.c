/* A problem put to the oracle. */
#include "problem_data.h"

#include <reference/attention_backward.h>
#include <reference/layer.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Past and new rows in one array; NULL where memory ends. */
static double *join(const struct operand *past, const struct operand *fresh)
{
    size_t heads = (size_t)fresh->size[0] * fresh->size[1], width = fresh->size[3];
    size_t n_past = past->view ? past->size[2] * width : 0, n_new = fresh->size[2] * width;
    double *all = malloc(heads * (n_past + n_new) * sizeof *all);
    for (size_t h = 0; all && h < heads; h++) {
        double *to = all + h * (n_past + n_new);
        if (n_past)
            memcpy(to, past->values + h * n_past, n_past * sizeof *to);
        memcpy(to + n_past, fresh->values + h * n_new, n_new * sizeof *to);
    }
    return all;
}

static const int64_t *set_per_batch(const struct operand *o, int64_t *values, size_t *count)
{
    *count = o->count;
    for (size_t i = 0; i < o->count; i++)
        values[i] = (int64_t)o->values[i];
    return o->view ? values : NULL;
}

static enum vka_status set_mask(const struct problem_data *d, struct question *q)
{
    const struct operand *mask = &d->operands[OPERAND_MASK];
    q->ref.mask_rank = mask->rank;
    for (uint32_t i = 0; i < mask->rank; i++)
        q->ref.mask_shape[i] = mask->size[i];
    if (mask->dtype != VKA_BOOL) {
        q->ref.float_mask = mask->values;
        return VKA_OK;
    }
    q->mask = malloc(mask->count);
    for (size_t i = 0; q->mask && i < mask->count; i++)
        q->mask[i] = (uint8_t)mask->values[i];
    q->ref.bool_mask = q->mask;
    return q->mask ? VKA_OK : VKA_OUT_OF_HOST_MEMORY;
}

enum vka_status problem_ask(const struct problem_data *d, struct question *q)
{
    const struct problem *p = d->p;
    const struct operand *o = d->operands;
    *q = (struct question){
        .k = join(&o[OPERAND_PAST_K], &o[OPERAND_K]),
        .v = join(&o[OPERAND_PAST_V], &o[OPERAND_V]),
    };
    if (!q->k || !q->v)
        return VKA_OUT_OF_HOST_MEMORY;
    struct ref_attention *r = &q->ref;
    r->batch = p->batch;
    r->n_head = (size_t)p->n_kv_head * p->group;
    r->n_kv_head = p->n_kv_head;
    r->n_q = p->n_q;
    r->n_kv = p->n_past + p->n_new;
    r->n_past = p->n_past;
    r->head_dim = p->head_dim;
    r->value_dim = p->value_dim;
    r->q = o[OPERAND_Q].values;
    r->k = q->k;
    r->v = q->v;
    r->kv_length = set_per_batch(&o[OPERAND_LENGTH], q->lengths, &r->kv_length_count);
    r->query_offset = set_per_batch(&o[OPERAND_OFFSET], q->offsets, &r->query_offset_count);
    problem_ask_options(d, r);
    return set_mask(d, q);
}

void question_destroy(struct question *q)
{
    free(q->k);
    free(q->v);
    free(q->mask);
}

enum vka_status problem_visible(const struct problem_data *d, bool *visible)
{
    struct question q;
    enum vka_status status = problem_ask(d, &q);
    struct ref_attention *r = &q.ref;
    size_t rows = r->batch * r->n_head * r->n_q, n_kv = r->n_kv, per_group = d->p->group * r->n_q;
    double *zeros = calloc(rows + r->batch * r->n_kv_head * n_kv, sizeof *zeros);
    double *scores = calloc(rows * n_kv, sizeof *scores);
    if (status != VKA_OK || !zeros || !scores) {
        status = VKA_OUT_OF_HOST_MEMORY;
        goto fail;
    }
    /* One feature, always 0: a score after the mask is -inf where hidden, else finite. */
    r->q = r->k = r->v = zeros;
    r->head_dim = r->value_dim = 1;
    r->rope.dim = 0;
    r->q_norm = r->k_norm = NULL;
    r->scores[VKA_SCORES_BIAS] = scores;
    status = ref_attention(r);
    for (size_t i = 0; i < rows * n_kv; i++)
        if (scores[i] > -INFINITY)
            visible[i / n_kv / per_group * n_kv + i % n_kv] = true;
fail:
    free(zeros);
    free(scores);
    question_destroy(&q);
    return status;
}

/* Where there is a past, attention reads keys and values from the present: asks again with all keys
 * ready and of its type. They are the plan's own, compared on their own, as a key that the plan
 * rounds the other way would count for much more in the scores. */
static enum vka_status through_present(struct problem_data *d, struct question *q)
{
    struct ref_attention *r = &q->ref;
    size_t n = r->batch * r->n_kv_head * r->n_kv;
    double *scores = r->scores[d->p->scores_kind], *context = r->context;
    r->context = r->log_sum_exp = r->scores[d->p->scores_kind] = NULL;
    enum vka_status status = ref_attention(r);
    memcpy(q->k, d->operands[OPERAND_PRESENT_K].values, n * r->head_dim * sizeof *q->k);
    for (size_t i = 0; i < n * r->value_dim; i++)
        q->v[i] = operand_round(d->p->present, q->v[i]);
    if (!r->query_offset) {
        q->offsets[0] = (int64_t)r->n_past;
        r->query_offset = q->offsets;
        r->query_offset_count = 1;
    }
    r->n_past = r->n_kv;
    r->key = NULL;
    r->context = context;
    r->scores[d->p->scores_kind] = scores;
    r->log_sum_exp = d->log_sum;
    return status == VKA_OK ? ref_attention(r) : status;
}

enum vka_status problem_oracle(struct problem_data *d)
{
    const struct problem *p = d->p;
    struct question q;
    enum vka_status status = problem_ask(d, &q);
    size_t rows = q.ref.batch * q.ref.n_head * p->n_q;
    size_t keys = q.ref.batch * q.ref.n_kv_head * q.ref.n_kv;
    if (status != VKA_OK)
        goto fail;
    status = VKA_OUT_OF_HOST_MEMORY;
    q.ref.context = d->context = calloc(rows * p->value_dim, sizeof(double));
    d->scores = calloc(rows * q.ref.n_kv, sizeof(double));
    q.ref.log_sum_exp = d->log_sum = calloc(rows, sizeof(double));
    q.ref.key = d->key = calloc(keys * p->head_dim, sizeof(double));
    d->value = join(&d->operands[OPERAND_PAST_V], &d->operands[OPERAND_V]);
    if (!d->context || !d->scores || !d->log_sum || !d->key || !d->value)
        goto fail;
    for (size_t i = 0; p->has_present && i < keys * p->value_dim; i++)
        d->value[i] = operand_round(p->present, d->value[i]);
    if (p->scores_kind)
        q.ref.scores[p->scores_kind] = d->scores;
    if (p->has_present && p->n_past)
        status = through_present(d, &q);
    else
        status = ref_attention(&q.ref);
fail:
    question_destroy(&q);
    return status;
}

enum vka_status problem_backward_oracle(const struct problem_data *d, const double *dy,
                                        const struct ref_attention_gradients *g)
{
    struct question q;
    enum vka_status status = problem_ask(d, &q);
    if (status == VKA_OK)
        status = ref_attention_backward(&q.ref, dy, g);
    question_destroy(&q);
    return status;
}

enum vka_status problem_layer_oracle(const struct problem_data *d, struct ref_layer *l,
                                     const double *dy, double *y,
                                     const struct ref_layer_gradients *g)
{
    struct question q;
    enum vka_status status = problem_ask(d, &q);
    l->a = q.ref;
    if (status == VKA_OK)
        status = ref_layer(l, y);
    if (status == VKA_OK)
        status = ref_layer_backward(l, dy, g);
    question_destroy(&q);
    return status;
}
