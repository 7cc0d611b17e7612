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
    const struct ragged_problem *p = r->p;
    return ragged_done(
        r,
        vka_cache_create(r->device,
                         VKA_INFO(vka_cache_info, .batch = batch, .n_layer = p->n_layer,
                                  .n_kv_head = p->n_kv_head, .head_dim = p->head_dim,
                                  .value_dim = p->value_dim, .capacity = p->capacity,
                                  .key_dtype = p->key, .value_dtype = p->value,
                                  .no_hadamard = p->no_hadamard,
                                  .page_size = paged ? p->page_size ? p->page_size : 16 : 0),
                         cache),
        "cache");
}

/* ---- plans ----------------------------------------------------------------------------------- */

static bool open_operands(struct run *r, struct plan_data *d, struct operand io[OPERANDS])
{
    const struct ragged_problem *p = r->p;
    const uint32_t n_head = heads_of(p);
    uint32_t mask[4];
    memcpy(mask, p->mask_shape, sizeof mask);
    if (p->mask_rank > 1 && mask[p->mask_rank - 2] != 1)
        mask[p->mask_rank - 2] = d->n_row;
    const struct {
        enum vka_dtype dtype;
        uint32_t rank, size[4];
    } all[OPERANDS] = {
        [Q] = {p->io, 4, {1, n_head, d->n_row, p->head_dim}},
        [K] = {p->io, 4, {1, p->n_kv_head, d->n_row, p->head_dim}},
        [V] = {p->io, 4, {1, p->n_kv_head, d->n_row, p->value_dim}},
        [O] = {p->io, 4, {1, n_head, d->n_row, p->value_dim}},
        [LOG_SUM] = {VKA_F32, p->log_sum ? 3 : 0, {1, n_head, d->n_row}},
        [MASK] = {p->mask, p->mask_rank, {mask[0], mask[1], mask[2], mask[3]}},
    };
    for (int i = 0; i < OPERANDS; i++) {
        struct layout layout = p->scattered && d->q_start && all[i].rank
                                   ? layout_random(&r->rng, all[i].rank)
                                   : layout_dense();
        if (all[i].rank && !ragged_done(r,
                                        operand_create(r->device, all[i].dtype, all[i].rank,
                                                       all[i].size, &layout, &io[i]),
                                        "operand"))
            return false;
    }
    return true;
}

static enum vka_status add_layer(const struct run *r, const struct plan_data *d, uint32_t layer,
                                 uint32_t sequence, uint32_t first)
{
    const struct ragged_problem *p = r->p;
    const struct operand *io = d->io[layer];
    return vka_plan_add_attention(
        d->plan, VKA_INFO(vka_attention_op, .q = io[Q].view, .k = io[K].view, .v = io[V].view,
                          .output = io[O].view, .cache = d->cache, .cache_layer = layer,
                          .n_append = d->n_append, .q_start = d->q_start,
                          .options = {.mask = io[MASK].view,
                                      .causal = p->causal,
                                      .window = p->window,
                                      .window_left = p->window_left,
                                      .window_right = p->window_right,
                                      .softcap = p->softcap,
                                      .masked_row = p->masked_row,
                                      .log_sum_exp = io[LOG_SUM].view,
                                      .rope = p->rope,
                                      .q_norm = r->q_norm.view,
                                      .k_norm = r->k_norm.view,
                                      .sink = r->sink.view,
                                      .alibi = r->alibi.view,
                                      .dropout = p->dropout,
                                      .dropout_seed = p->dropout_seed,
                                      .dropout_batch = sequence,
                                      .dropout_query = first}));
}

static void count_kernels(struct run *r, struct vka_plan *plan)
{
    struct vka_pass_info pass;
    for (size_t i = 0; i < vka_plan_pass_count(plan); i++)
        for (int k = 0; k < KERNEL_COUNT; k++)
            if (vka_plan_pass(plan, i, &pass) == VKA_OK &&
                strcmp(kernel_table[k].name, pass.kernel) == 0)
                r->kernels |= 1ull << k;
}

/* Makes operands and plan of a cache with `batch` sequences, packed or not. sequence, first: of a
 * sequence alone, its index and the first of its rows, for dropout. */
bool ragged_plan_open(struct run *r, struct vka_cache *cache, uint32_t n_row, bool packed,
                      uint32_t sequence, uint32_t first, struct plan_data *d)
{
    const struct ragged_problem *p = r->p;
    const uint32_t n = packed ? p->n_sequence : 1, n_start = n + 1;
    const uint64_t usual = r->device->caps.without;
    *d = (struct plan_data){.n_row = n_row, .cache = cache};
    bool ok = true;
    if (packed)
        ok = ragged_done(r, vka_tensor_create(r->device, VKA_I32, 1, &n_start, &d->q_start),
                         "q_start");
    if (ok && p->n_append)
        ok = ragged_done(r, vka_tensor_create(r->device, VKA_I32, 1, &n, &d->n_append), "n_append");
    for (uint32_t l = 0; l < p->n_layer; l++)
        ok = ok && open_operands(r, d, d->io[l]);
    if (!ok)
        return false;
    uint32_t whole = p->whole_n_q;
    if (!whole && (!packed || n_row != p->n_row)) /* the mean of the packed plan */
        whole = divide_up(p->n_row, p->n_sequence);
    r->device->caps.without |= p->disabled_kernels;
    enum vka_status status =
        vka_plan_create(r->device,
                        VKA_INFO(vka_plan_info, .path = VKA_PATH_FUSED, .whole_n_q = whole,
                                 .submit_budget = packed ? p->submit_budget : 0),
                        &d->plan);
    for (uint32_t l = 0; l < p->n_layer && status == VKA_OK; l++)
        status = add_layer(r, d, l, sequence, first);
    if (status == VKA_OK)
        status = vka_plan_finish(d->plan);
    r->device->caps.without = usual;
    if (status == VKA_OK)
        count_kernels(r, d->plan);
    return ragged_done(r, status, packed ? "packed plan" : "plan of a sequence");
}

void ragged_plan_close(struct plan_data *d)
{
    const struct plan_data none = {0};
    vka_plan_destroy(&d->plan);
    vka_tensor_destroy(&d->q_start);
    vka_tensor_destroy(&d->n_append);
    for (uint32_t l = 0; l < MOST_LAYER; l++)
        for (int i = 0; i < OPERANDS; i++)
            operand_destroy(&d->io[l][i]);
    *d = none;
}

/* Whether what stands behind the lengths changes no bit of the step that has run. */
static bool soil(struct run *r, const struct plan_data *d, const void *before)
{
    struct operand *outputs[2 * MOST_LAYER];
    size_t n = 0;
    for (uint32_t l = 0; l < r->p->n_layer; l++)
        for (int i = O; i <= LOG_SUM; i++)
            if (d->io[l][i].view)
                outputs[n++] = (struct operand *)&d->io[l][i];
    return cache_soil_compare(r->device, d->cache, before, d->plan, outputs, n, r->why);
}

/* Writes what is read, and noise where results go; runs the plan and reads these. */
bool ragged_plan_run(struct run *r, struct plan_data *d, const int64_t *start, const int64_t *keep,
                     bool full)
{
    const uint32_t n = d->q_start ? r->p->n_sequence : 1;
    int32_t *words = ragged_take(n + 1, sizeof *words);
    enum vka_status status = VKA_OK;
    for (uint32_t i = 0; i <= n && d->q_start; i++)
        words[i] = (int32_t)start[i];
    if (d->q_start)
        status = vka_tensor_write(d->q_start, words, (n + 1) * sizeof *words);
    for (uint32_t i = 0; i < n && d->n_append; i++)
        words[i] = (int32_t)keep[i];
    if (d->n_append && status == VKA_OK)
        status = vka_tensor_write(d->n_append, words, n * sizeof *words);
    free(words);
    for (uint32_t l = 0; l < r->p->n_layer; l++)
        for (int i = 0; i < OPERANDS && status == VKA_OK; i++)
            if (d->io[l][i].view)
                status = i == O || i == LOG_SUM ? operand_write_noise(&d->io[l][i], &r->rng)
                                                : operand_write(&d->io[l][i]);
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
        for (int i = O; i <= LOG_SUM && status == VKA_OK; i++)
            if (d->io[l][i].view)
                status = operand_read(&d->io[l][i]);
    bool ok = ragged_done(r, status, "results");
    if (ok && !full && rng_chance(&r->rng, d->q_start ? 40 : 10))
        ok = soil(r, d, before);
    free(before);
    return ok;
}

/* ---- unused cells ---------------------------------------------------------------------------- */

/* Fills the cells of a cache with NaN, and empties it. */
bool ragged_poison(struct run *r, struct vka_cache *cache, bool packed)
{
    const struct ragged_problem *p = r->p;
    struct plan_data d;
    int64_t *start = ragged_take(p->n_sequence + 1, sizeof *start);
    int64_t *keep = ragged_take(p->n_sequence, sizeof *keep);
    bool ok = ragged_plan_open(r, cache, p->capacity, packed, 0, 0, &d);
    for (uint32_t l = 0; l < p->n_layer && ok; l++)
        for (int i = Q; i <= V; i++)
            for (size_t e = 0; e < d.io[l][i].count; e++)
                d.io[l][i].values[e] = NAN;
    for (uint32_t s = 0; s < (packed ? p->n_sequence : 1) && ok; s++) {
        for (uint32_t i = 0; i <= p->n_sequence; i++)
            start[i] = i > s ? p->capacity : 0;
        for (uint32_t i = 0; i < p->n_sequence; i++)
            keep[i] = p->capacity;
        ok = ragged_plan_run(r, &d, start, keep, false) &&
             ragged_done(r, vka_cache_truncate(cache, s, 0), "truncate");
    }
    ragged_plan_close(&d);
    free(start);
    free(keep);
    return ok;
}
