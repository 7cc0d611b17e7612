#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache_soil.h"
#include "ragged_run.h"

#define STEPS 4u

/* ---- each sequence alone --------------------------------------------------------------------- */

/* Copies rows first .. of an operand of packed rows to the same rows of a sequence, or compares
 * them with these: [...][rows][width]. */
static bool move_rows(const struct operand *packed, struct operand *own, uint32_t first, int axis,
                      bool compare)
{
    size_t width = 1, outer = 1;
    for (int i = 0; i < axis; i++)
        outer *= own->size[i];
    for (uint32_t i = (uint32_t)axis + 1; i < own->rank; i++)
        width *= own->size[i];
    const bool broadcast = packed->size[axis] == 1 && own->size[axis] == 1;
    for (size_t o = 0; o < outer; o++) {
        const double *from =
            packed->values + (o * packed->size[axis] + (broadcast ? 0 : first)) * width;
        double *to = own->values + o * own->size[axis] * width;
        size_t bytes = own->size[axis] * width * sizeof *to;
        if (!compare)
            memcpy(to, from, bytes);
        else if (memcmp(to, from, bytes) != 0)
            return false;
    }
    return true;
}

/* Runs rows first .. first + n - 1 of the packed ones, of one sequence, in its own cache. before:
 * rows of the sequence in this step that have run. */
static bool run_alone(struct run *r, uint32_t s, uint32_t first, uint32_t n, uint32_t before)
{
    const struct problem *p = r->p;
    struct plan_data d;
    bool ok = ragged_plan_open(r, r->alone[s], n, false, s, before, &d);
    for (uint32_t l = 0; l < p->n_layer && ok; l++) {
        const struct operand *packed = r->packed.layers[l].operands;
        struct operand *own = d.layers[l].operands;
        for (int i = OPERAND_Q; i <= OPERAND_V; i++)
            move_rows(&packed[i], &own[i], first, 2, false);
        if (p->mask_rank > 1)
            move_rows(&packed[OPERAND_MASK], &own[OPERAND_MASK], first, (int)p->mask_rank - 2,
                      false);
        else if (p->mask_rank)
            memcpy(own[OPERAND_MASK].values, packed[OPERAND_MASK].values,
                   own[OPERAND_MASK].count * sizeof(double));
    }
    ok = ok && ragged_plan_run(r, &d, NULL, &r->keep[s], r->full[s]);
    for (uint32_t l = 0; l < p->n_layer && ok; l++)
        for (int i = OPERAND_OUTPUT; i <= OPERAND_LOG_SUM && ok; i++) {
            struct operand *own = &d.layers[l].operands[i];
            if (own->view && !move_rows(&r->packed.layers[l].operands[i], own, first, 2, true)) {
                snprintf(r->why, WHY, "sequence %u, layer %u: other bits alone, %s %u rows from %u",
                         s, l, i == OPERAND_OUTPUT ? "output," : "log_sum_exp,", n, first);
                ok = false;
            }
        }
    ragged_plan_close(&d);
    return ok;
}

/* In one run, or where no row sees a later one in two: a row without visible keys is the mean of all
 * values up to the length, those of later rows too, where masked_row says so. */
static bool serve_alone(struct run *r, uint32_t s)
{
    const struct problem *p = r->p;
    uint32_t first = (uint32_t)r->start[s], n = (uint32_t)(r->start[s + 1] - r->start[s]);
    bool splits = p->causal && p->masked_row != VKA_MASKED_UNIFORM && !p->n_append && !r->full[s] &&
                  n > 1 && rng_chance(&r->rng, 60);
    uint32_t some = splits ? rng_range(&r->rng, 1, n - 1) : n;
    if (n == 0)
        return true;
    return run_alone(r, s, first, some, 0) &&
           (some == n || run_alone(r, s, first + some, n - some, some));
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Deals rows out to the sequences: none, one, or several. */
static void draw_rows(struct run *r)
{
    const struct problem *p = r->p;
    uint32_t left = p->n_q, n = p->n_sequence, from = rng_range(&r->rng, 0, n - 1);
    int64_t *rows = ragged_take(n, sizeof *rows);
    r->start[0] = rng_chance(&r->rng, 20) ? rng_range(&r->rng, 0, left - 1) : 0;
    left -= (uint32_t)r->start[0];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t kind = rng_range(&r->rng, 0, 4);
        uint32_t want = kind == 0 ? 0 : kind < 3 ? 1 : rng_range(&r->rng, 1, p->n_q);
        want = want < left ? want : left;
        want = want < p->capacity ? want : p->capacity; /* the most that one alone may have */
        rows[(from + i) % n] = want;
        left -= want;
    }
    for (uint32_t s = 0; s < n; s++) {
        r->start[s + 1] = r->start[s] + rows[s];
        r->keep[s] = p->n_append ? (int64_t)rng_range(&r->rng, 0, p->n_q + 1) - 1 : rows[s];
    }
    free(rows);
}

static void draw_values(struct run *r)
{
    for (uint32_t l = 0; l < r->p->n_layer; l++) {
        struct problem_data *d = &r->packed.layers[l];
        problem_fill(d, OPERAND_Q, OPERAND_MASK);
        for (int i = OPERAND_Q; i <= OPERAND_V; i++)
            for (size_t e = 0; e < d->operands[i].count; e++)
                if (ragged_outside(r, &d->operands[i], e))
                    d->operands[i].values[e] = (double)NAN;
    }
}

static bool check_lengths(const struct run *r, const int64_t *length)
{
    for (uint32_t s = 0; s < r->p->n_sequence; s++) {
        uint32_t got = 0;
        if (!ragged_done(r, vka_cache_length(r->cache, s, &got), "length"))
            return false;
        if (got == length[s])
            continue;
        snprintf(r->why, WHY, "sequence %u has length %u, not %lld", s, got, (long long)length[s]);
        return false;
    }
    return true;
}

/* Empties sequences that had no room, and now and then others, in all caches. */
static bool empty_some(struct run *r)
{
    for (uint32_t s = 0; s < r->p->n_sequence; s++) {
        r->refused[s] = r->full[s];
        if (!rng_chance(&r->rng, r->full[s] ? 70 : 10))
            continue;
        uint32_t length = rng_range(&r->rng, 0, (uint32_t)r->length[s]);
        if (!ragged_done(r, vka_cache_truncate(r->cache, s, length), "truncate") ||
            !ragged_done(r, vka_cache_truncate(r->alone[s], 0, length), "truncate"))
            return false;
        r->length[s] = length;
        r->refused[s] = false;
    }
    return true;
}

/* Whether a sequence will have no room. */
static bool find_full(struct run *r)
{
    bool any = false;
    for (uint32_t s = 0; s < r->p->n_sequence; s++) {
        int64_t n = r->start[s + 1] - r->start[s], keep = r->keep[s] < 0 ? 0 : r->keep[s];
        n = keep < n ? keep : n;
        any |= r->refused[s] || r->length[s] + n > r->p->capacity;
    }
    return any;
}

static bool take_step(struct run *r)
{
    int64_t *length = ragged_take(r->p->n_sequence, sizeof *length);
    draw_rows(r);
    draw_values(r);
    bool ok = ragged_plan_run(r, &r->packed, r->start, r->keep, find_full(r)) &&
              ragged_ask(r, length) && check_lengths(r, length);
    for (uint32_t s = 0; s < r->p->n_sequence && ok; s++)
        ok = serve_alone(r, s);
    memcpy(r->length, length, r->p->n_sequence * sizeof *length);
    free(length);
    return ok && empty_some(r);
}

static bool run_open(struct run *r)
{
    const struct problem *p = r->p;
    const size_t n = p->n_sequence, cells = n * p->n_kv_head * p->capacity;
    r->start = ragged_take(n + 1, sizeof *r->start);
    r->keep = ragged_take(n, sizeof *r->keep);
    r->length = ragged_take(n, sizeof *r->length);
    r->refused = ragged_take(n, sizeof *r->refused);
    r->full = ragged_take(n, sizeof *r->full);
    r->alone = ragged_take(n, sizeof *r->alone);
    for (uint32_t l = 0; l < p->n_layer; l++) {
        r->keys[l] = ragged_take(cells * p->head_dim, sizeof(double));
        r->values[l] = ragged_take(cells * p->value_dim, sizeof(double));
    }
    bool ok = ragged_cache_open(r, p->n_sequence, p->page_size, &r->cache) &&
              ragged_plan_open(r, r->cache, p->n_q, true, 0, 0, &r->packed) &&
              ragged_done(r, cache_soil(r->cache, SOIL_NAN), "NaN in a new cache");
    for (uint32_t s = 0; s < n && ok; s++)
        ok = ragged_cache_open(r, 1, !p->page_size, &r->alone[s]) &&
             ragged_done(r, cache_soil(r->alone[s], SOIL_NAN), "NaN in a new cache");
    return ok;
}

static void run_close(struct run *r)
{
    ragged_plan_close(&r->packed);
    for (uint32_t s = 0; s < r->p->n_sequence; s++)
        vka_cache_destroy(&r->alone[s]);
    vka_cache_destroy(&r->cache);
    for (uint32_t l = 0; l < MOST_LAYER; l++) {
        free(r->keys[l]);
        free(r->values[l]);
    }
    free(r->start);
    free(r->keep);
    free(r->length);
    free(r->refused);
    free(r->full);
    free(r->alone);
}

bool ragged_check(struct vka_device *device, const struct problem *p, struct worst *worst,
                  struct problem_result *result)
{
    struct run r = {
        .device = device, .p = p, .rng = {p->seed ^ 0x57e95}, .why = result->why, .worst = worst};
    bool ok = run_open(&r);
    for (uint32_t i = 0; i < STEPS && ok; i++)
        ok = take_step(&r);
    result->kernels = r.kernels;
    run_close(&r);
    return ok;
}
