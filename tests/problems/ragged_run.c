#include "cache_soil.h"
#include "ragged_run.h"

#include <core/arith.h>
#include <gpu/device.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patience.h"

void *ragged_take(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p)
        abort();
    return p;
}

/* Notes the device's sentence where a call failed. */
bool ragged_done(const struct run *r, enum vka_status status, const char *what)
{
    if (status == VKA_OK)
        return true;
    snprintf(r->why, WHY, "%s: %s: %s", what, vka_status_name(status), vka_device_error(r->device));
    return false;
}

bool ragged_cache_open(const struct run *r, uint32_t batch, bool paged, struct vka_cache **cache)
{
    const struct problem *p = r->p;
    return ragged_done(
        r,
        vka_cache_create(r->device,
                         VKA_INFO(vka_cache_info, .batch = batch, .n_layer = p->n_layer,
                                  .n_kv_head = p->n_kv_head, .head_dim = p->head_dim,
                                  .value_dim = p->value_dim, .capacity = p->capacity,
                                  .key_dtype = p->cached_k, .value_dtype = p->cached_v,
                                  .no_hadamard = p->no_hadamard,
                                  .page_size = paged ? p->page_size ? p->page_size : 16 : 0),
                         cache),
        "cache");
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* What all layers and plans share has the values of the packed plan's first layer. */
static void share_options(const struct run *r, struct problem_data *d)
{
    const struct problem_data *first = &r->packed.layers[0];
    for (int i = OPERAND_Q_NORM; i <= OPERAND_ALIBI && d != first; i++)
        if (d->operands[i].view)
            memcpy(d->operands[i].values, first->operands[i].values,
                   d->operands[i].count * sizeof(double));
}

static bool open_operands(struct run *r, struct plan_data *d, struct problem_data *layer)
{
    const bool first = layer == &r->packed.layers[0];
    if (!ragged_done(r, problem_data_open(r->device, &d->p, false, layer), "operands"))
        return false;
    if (first)
        problem_fill(layer, OPERAND_Q_NORM, OPERAND_ALIBI);
    share_options(r, layer);
    return true;
}

static enum vka_status add_layer(const struct plan_data *d, uint32_t layer, uint32_t sequence,
                                 uint32_t first)
{
    struct vka_attention_op op;
    problem_op(&d->layers[layer], &op);
    op.cache = d->cache;
    op.cache_layer = layer;
    op.q_start = d->layers[0].operands[OPERAND_Q_START].view; /* of the step */
    op.n_append = d->layers[0].operands[OPERAND_N_APPEND].view;
    op.options.dropout_batch = sequence;
    op.options.dropout_query = first;
    return vka_plan_add_attention(d->plan, &op);
}

/* Makes operands and plan of a cache with `batch` sequences, packed or not. sequence, first: of a
 * sequence alone, its index and the first of its rows, for dropout. */
bool ragged_plan_open(struct run *r, struct vka_cache *cache, uint32_t n_row, bool packed,
                      uint32_t sequence, uint32_t first, struct plan_data *d)
{
    const struct problem *p = r->p;
    const struct kernel_set usual = r->device->caps.without;
    *d = (struct plan_data){.p = *p, .cache = cache};
    d->p.n_q = d->p.n_new = n_row;
    if (p->mask_rank > 1 && p->mask_shape[p->mask_rank - 2] != 1)
        d->p.mask_shape[p->mask_rank - 2] = n_row;
    if (!packed) {
        d->p.n_sequence = 0;
        d->p.scattered = false;
    }
    bool ok = true;
    for (uint32_t l = 0; l < p->n_layer && ok; l++)
        ok = open_operands(r, d, &d->layers[l]);
    if (!ok)
        return false;
    uint32_t whole = p->whole_n_q;
    if (!whole && (!packed || n_row != p->n_q)) /* the mean of the packed plan */
        whole = divide_up(p->n_q, p->n_sequence);
    set_join(&r->device->caps.without, p->disabled_kernels);
    enum vka_status status =
        vka_plan_create(r->device,
                        VKA_INFO(vka_plan_info, .path = VKA_PATH_FUSED, .whole_n_q = whole,
                                 .submit_budget = packed ? p->submit_budget : 0),
                        &d->plan);
    for (uint32_t l = 0; l < p->n_layer && status == VKA_OK; l++)
        status = add_layer(d, l, sequence, first);
    if (status == VKA_OK)
        status = vka_plan_finish(d->plan);
    r->device->caps.without = usual;
    if (status == VKA_OK)
        set_join(&r->kernels, problem_kernels(d->plan));
    return ragged_done(r, status, packed ? "packed plan" : "plan of a sequence");
}

void ragged_plan_close(struct plan_data *d)
{
    vka_plan_destroy(&d->plan);
    for (uint32_t l = 0; l < MOST_LAYER; l++)
        problem_data_destroy(&d->layers[l]);
}

/* Whether what stands behind the lengths changes no bit of the step that has run. */
static bool soil(struct run *r, const struct plan_data *d, const void *before)
{
    struct operand *outputs[2 * MOST_LAYER];
    size_t n = 0;
    for (uint32_t l = 0; l < r->p->n_layer; l++)
        for (int i = OPERAND_OUTPUT; i <= OPERAND_LOG_SUM; i++)
            if (d->layers[l].operands[i].view)
                outputs[n++] = (struct operand *)&d->layers[l].operands[i];
    return cache_soil_compare(r->device, d->cache, before, d->plan, outputs, n, r->why);
}

/* Writes what is read, and noise where results go; runs the plan and reads these. */
bool ragged_plan_run(struct run *r, struct plan_data *d, const int64_t *start, const int64_t *keep,
                     bool full)
{
    enum vka_status status = VKA_OK;
    const double below = r->p->seed % 3 ? 0 : -1.0 - (double)(r->p->seed % 5); /* counts as 0 */
    for (uint32_t l = 0; l < r->p->n_layer; l++) {
        struct operand *o = d->layers[l].operands;
        for (size_t i = 0; i < o[OPERAND_Q_START].count; i++)
            o[OPERAND_Q_START].values[i] = start[i] ? (double)start[i] : below;
        for (size_t i = 0; i < o[OPERAND_N_APPEND].count; i++)
            o[OPERAND_N_APPEND].values[i] = (double)keep[i];
        for (int i = 0; i <= OPERAND_LOG_SUM && status == VKA_OK; i++)
            if (o[i].view)
                status =
                    i < OPERAND_OUTPUT ? operand_write(&o[i]) : operand_write_noise(&o[i], &r->rng);
    }
    if (!ragged_done(r, status, "inputs"))
        return false;
    void *before = cache_before(d->cache);
    status = vka_plan_run(d->plan, PATIENCE);
    if (status != (full ? VKA_INVALID : VKA_OK)) {
        free(before);
        snprintf(r->why, WHY, "a run gave %s, not %s: %s", vka_status_name(status),
                 full ? "INVALID" : "OK", vka_device_error(r->device));
        return false;
    }
    status = VKA_OK;
    for (uint32_t l = 0; l < r->p->n_layer; l++)
        for (int i = OPERAND_OUTPUT; i <= OPERAND_LOG_SUM && status == VKA_OK; i++)
            if (d->layers[l].operands[i].view)
                status = operand_read(&d->layers[l].operands[i]);
    bool ok = ragged_done(r, status, "results");
    if (ok && !full && rng_chance(&r->rng, d->p.n_sequence ? 40 : 10))
        ok = soil(r, d, before);
    free(before);
    return ok;
}
