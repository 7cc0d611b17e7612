#include "patience.h"
#include "invariance.h"
#include "problems/limits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_BATCH 8u

/* The bits, where any NaN is as good as another: which of two NaN a sum gives is the compiler's. */
static uint64_t bits(double x)
{
    uint64_t b = UINT64_MAX;
    if (!isnan(x))
        memcpy(&b, &x, sizeof b);
    return b;
}

void invariance_draw(struct problem *p, uint64_t seed, enum vka_path path)
{
    problem_draw(p, seed, path);
    problem_share(p, seed);
}

uint64_t invariance_budget(struct rng *rng)
{
    uint64_t budget = (uint64_t)pow(10, rng_uniform(rng, 2, 8));
    return rng_chance(rng, 25) ? 1 : rng_chance(rng, 25) ? VKA_NO_BUDGET : budget;
}

static bool is_output(int id)
{
    return id >= OPERAND_OUTPUT;
}

/* Runs the problem once on noise and reads what it wrote. */
static enum vka_status run(struct invariance *t, struct vka_device *device, struct problem_data *d)
{
    struct vka_plan *plan = NULL;
    struct rng noise = {d->p->seed};
    enum vka_status status = problem_plan(device, d, &plan);
    for (int i = OPERAND_OUTPUT; i < OPERAND_COUNT && status == VKA_OK; i++)
        if (d->operands[i].view)
            status = operand_write_noise(&d->operands[i], &noise);
    if (status == VKA_OK)
        status = vka_plan_run(plan, PATIENCE); /* a CPU driver compiles in it */
    for (int i = OPERAND_OUTPUT; i < OPERAND_COUNT && status == VKA_OK; i++)
        if (d->operands[i].view)
            status = operand_read(&d->operands[i]);
    vka_plan_destroy(&plan);
    t->busy = device;
    return status;
}

/* Whether the last run wrote nothing outside its outputs. */
static bool is_clean(struct invariance *t, const struct problem_data *d, const char *what)
{
    for (int i = OPERAND_OUTPUT; i < OPERAND_COUNT; i++)
        if (d->operands[i].view && operand_damage(&d->operands[i]) != SIZE_MAX) {
            snprintf(t->why, WHY, "%s: output %d: a byte outside the view was overwritten", what,
                     i - OPERAND_OUTPUT);
            return false;
        }
    return true;
}

/* Elements of one batch element; all of them where all batch elements share them. */
static size_t share(const struct problem_data *d, int id)
{
    const struct operand *o = &d->operands[id];
    bool apart = id == OPERAND_MASK ? o->rank == 4 && o->size[0] > 1
                 : id == OPERAND_LENGTH || id == OPERAND_OFFSET
                     ? o->size[0] > 1
                     : id != OPERAND_Q_NORM && id != OPERAND_K_NORM && id != OPERAND_SINK &&
                           id != OPERAND_ALIBI;
    return apart ? o->count / d->p->batch : o->count;
}

/* Gives each batch element i of `to` the inputs that from[i] has in d. */
static enum vka_status move(const struct problem_data *d, const uint32_t *from,
                            struct problem_data *to)
{
    enum vka_status status = VKA_OK;
    for (int id = 0; !is_output(id) && status == VKA_OK; id++) {
        const struct operand *a = &d->operands[id];
        struct operand *b = &to->operands[id];
        if (!a->view)
            continue;
        size_t n = share(d, id), places = b->count / n;
        for (size_t i = 0; i < places; i++)
            memcpy(b->values + i * n, a->values + (n < a->count ? from[i] * n : 0),
                   n * sizeof *b->values);
        status = operand_write(b);
    }
    return status;
}

/* Whether what `to` has at each place i is what d has at from[i]. */
static bool same(struct invariance *t, const struct problem_data *d, const uint32_t *from,
                 const struct problem_data *to, const char *what)
{
    for (int id = OPERAND_OUTPUT; id < OPERAND_COUNT; id++) {
        const struct operand *a = &d->operands[id], *b = &to->operands[id];
        size_t n = a->count / d->p->batch;
        for (uint32_t i = 0; a->view && i < to->p->batch; i++) {
            const double *want = a->values + from[i] * n, *got = b->values + i * n;
            size_t e = 0;
            while (e < n && bits(want[e]) == bits(got[e]))
                e++;
            if (e == n || (d->p->dropout > 0 && from[i] != i)) /* the draw is the place's */
                continue;
            snprintf(t->why, WHY, "%s: output %d, batch element %u at %u, [%zu]: %.9g, not %.9g",
                     what, id - OPERAND_OUTPUT, from[i], i, e, got[e], want[e]);
            return false;
        }
    }
    return true;
}

/* Runs the changed problem p, its batch element i being from[i] of d, and compares. With lowered
 * limits the problem may be refused. */
static bool check(struct invariance *t, struct vka_device *device, const struct problem_data *d,
                  const struct problem *p, const uint32_t *from, bool limited, const char *what)
{
    struct problem_data to;
    enum vka_status status = problem_data_create(device, p, &to);
    t->n_run++;
    t->n_limited += limited;
    t->busy = device;
    if (status == VKA_OK)
        status = move(d, from, &to);
    if (status == VKA_OK)
        status = run(t, device, &to);
    bool ok = status == VKA_OK && is_clean(t, &to, what) && same(t, d, from, &to, what);
    if (status == VKA_UNSUPPORTED && limited) {
        t->n_refused++;
        ok = true;
    } else if (status != VKA_OK) {
        snprintf(t->why, WHY, "%s: %s: %s", what, vka_status_name(status),
                 vka_device_error(t->busy));
    }
    problem_data_destroy(&to);
    return ok;
}

/* p with another batch; what each of it has, it still has. */
static struct problem rebatch(const struct problem *p, uint32_t batch)
{
    struct problem q = *p;
    q.batch = batch;
    if (p->mask_rank == 4 && p->mask_shape[0] > 1)
        q.mask_shape[0] = batch;
    return q;
}

static bool check_batches(struct invariance *t, const struct problem_data *d)
{
    const struct problem *p = d->p;
    uint32_t elsewhere[MOST_BATCH], n = p->batch + 2;
    for (uint32_t i = 0; i < n; i++) /* backwards, the last three times */
        elsewhere[i] = i < 3 ? p->batch - 1 : p->batch + 1 - i;
    struct problem one = rebatch(p, 1), more = rebatch(p, n);
    for (uint32_t b = 0; b < p->batch; b++)
        if (!check(t, t->device, d, &one, &b, false, "alone"))
            return false;
    return check(t, t->device, d, &more, elsewhere, false, "elsewhere");
}

static const uint32_t in_place[MOST_BATCH] = {0, 1, 2, 3, 4, 5, 6, 7};

/* Within two budgets, one of them beside another limit of the workspace. */
static bool check_budgets(struct invariance *t, const struct problem_data *d, struct rng *rng)
{
    struct problem cut = *d->p;
    cut.submit_budget = invariance_budget(rng);
    char what[64];
    snprintf(what, sizeof what, "a budget of %.6g ns", (double)cut.submit_budget);
    if (!check(t, t->device, d, &cut, in_place, false, what))
        return false;
    cut.submit_budget = invariance_budget(rng);
    cut.workspace_limit = 4ull * (cut.n_past + cut.n_new) * rng_range(rng, 1, 3 * cut.n_q);
    snprintf(what, sizeof what, "a budget of %.6g ns, a workspace of %llu bytes",
             (double)cut.submit_budget, (unsigned long long)cut.workspace_limit);
    return check(t, t->device, d, &cut, in_place, false, what);
}

/* Bindings and allocations of drawn sizes, and those of the small device. */
static bool check_limits(struct invariance *t, const struct problem_data *d, struct rng *rng)
{
    struct problem whole = *d->p;
    uint64_t range = 1ull << rng_range(rng, 16, 20), allocation = range << rng_range(rng, 4, 7);
    char what[80];
    whole.workspace_limit = 0; /* by the limits alone: one row of one slice is 10,000s of passes */
    snprintf(what, sizeof what, "bindings of %llu and allocations of %llu bytes",
             (unsigned long long)range, (unsigned long long)allocation);
    struct vka_device_properties usual = limits_lower(t->device, range, allocation);
    bool ok = check(t, t->device, d, &whole, in_place, true, what);
    limits_restore(t->device, &usual);
    return ok && check(t, t->small, d, &whole, in_place, true, "on the small device");
}

static bool check_all(struct invariance *t, const struct problem_data *d)
{
    struct rng rng = {~d->p->seed};
    struct problem sliced = *d->p;
    sliced.workspace_limit = 4ull * (d->p->n_past + d->p->n_new) * (d->p->n_q / 3 + 1);
    bool ok = check(t, t->device, d, d->p, in_place, false, "again") && check_batches(t, d) &&
              check(t, t->device, d, &sliced, in_place, false, "in other slices") &&
              check_budgets(t, d, &rng) && check_limits(t, d, &rng);
    for (size_t i = t->sample ? d->p->seed % 2 : 0; i < N_THREADS && ok; i += t->sample ? 2 : 1)
        ok = check(t, t->threaded[i], d, d->p, in_place, false, "with another number of threads");
    return ok;
}

bool invariant_attention(struct invariance *t, uint64_t seed, enum vka_path path)
{
    struct problem p;
    struct problem_data d;
    invariance_draw(&p, seed, path);
    enum vka_status status = problem_data_create(t->device, &p, &d);
    t->busy = t->device;
    if (status == VKA_OK)
        status = run(t, t->device, &d);
    if (status != VKA_OK)
        snprintf(t->why, WHY, "%s: %s", vka_status_name(status), vka_device_error(t->busy));
    bool ok = status == VKA_OK && check_all(t, &d);
    problem_data_destroy(&d);
    return ok;
}
