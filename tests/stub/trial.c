#include "trial.h"

#include "judge.h"

#include <plan/plan.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_SLICES 200
#define TIMEOUT 1000000000u /* nanoseconds; the stub needs none */

bool trial_passed(struct trial *t, enum vka_status status)
{
    if (status == VKA_OK)
        return true;
    t->refused = status == VKA_UNSUPPORTED || status == VKA_OUT_OF_DEVICE_MEMORY;
    snprintf(t->why, sizeof t->why, "%s: %s", vka_status_name(status), vka_device_error(t->device));
    return t->refused;
}

uint32_t trial_size(struct trial *t, uint32_t low, uint32_t high)
{
    uint32_t n = (uint32_t)exp(rng_uniform(&t->rng, log((double)low), log((double)high + 1)));
    if (rng_chance(&t->rng, 30)) {
        uint32_t power = 1;
        while (power <= n / 2)
            power *= 2;
        n = power + rng_range(&t->rng, 0, 2) - 1;
    }
    return n < low ? low : n > high ? high : n;
}

bool trial_giant(struct trial *t)
{
    const struct vka_device_properties *has = vka_device_properties(t->device);
    const uint64_t least = UINT64_C(1) << 31;
    return has->max_buffer_range >= least && has->max_allocation > 16 * least &&
           rng_chance(&t->rng, 40);
}

/* Several runs in flight, of which the last is waited for, or none. */
static enum vka_status run(struct trial *t, struct vka_plan *plan)
{
    uint64_t ticket = 0;
    enum vka_status status = VKA_OK;
    const uint32_t runs = rng_range(&t->rng, 1, 3);
    t->passes += plan->n_pass;
    t->submits += plan->n_submit;
    for (uint32_t i = 0; i < runs && status == VKA_OK; i++)
        status = vka_plan_submit(plan, &ticket);
    if (status == VKA_OK && rng_chance(&t->rng, 70))
        status = vka_plan_wait(plan, ticket, TIMEOUT);
    return status;
}

/* A budget that cuts the plan into some slices, by what the device is said to do. */
static uint64_t draw_budget(struct trial *t, const struct vka_plan *whole)
{
    const double budget = whole->predicted / trial_size(t, 1, MOST_SLICES);
    return budget < 1 ? 1 : budget < 1e15 ? (uint64_t)budget : (uint64_t)1e15;
}

static bool judge(struct trial *t, struct vka_plan *plan, const struct trial_tensors *tensors)
{
    bool ok = judge_barriers(plan, t->why, sizeof t->why) &&
              judge_plan(plan, tensors->outputs, TRIAL_OUTPUTS, t->why, sizeof t->why);
    for (int i = 0; i < 4 && ok && tensors->exact; i++)
        ok = !tensors->inputs[i] || judge_input(plan, tensors->inputs[i], t->why, sizeof t->why);
    return ok;
}

/* The plan in slices, which is destroyed at once, at work or not. */
static bool run_cut(struct trial *t, trial_plan *make, const void *job, struct vka_plan *whole,
                    const struct trial_tensors *tensors)
{
    struct vka_plan *cut = NULL;
    judge_watch(t->device);
    enum vka_status status = make(t, job, draw_budget(t, whole), &cut);
    bool ok = trial_passed(t, status);
    if (status == VKA_OK) {
        ok = judge(t, cut, tensors) &&
             judge_cut(whole, cut, tensors->exact, tensors->least, t->why, sizeof t->why) &&
             trial_passed(t, run(t, cut));
        ok = ok && !t->refused; /* a plan that was made is not refused when it runs */
    }
    vka_plan_destroy(&cut);
    return ok;
}

bool trial_run(struct trial *t, trial_plan *make, const void *job,
               const struct trial_tensors *tensors)
{
    struct vka_plan *whole = NULL;
    judge_watch(t->device);
    enum vka_status status = make(t, job, VKA_NO_BUDGET, &whole);
    bool ok = trial_passed(t, status);
    if (status == VKA_OK) {
        ok = judge(t, whole, tensors);
        if (ok && rng_chance(&t->rng, 30))
            ok = trial_passed(t, run(t, whole)) && !t->refused;
        ok = ok && run_cut(t, make, job, whole, tensors);
    }
    vka_plan_destroy(&whole);
    return ok;
}
