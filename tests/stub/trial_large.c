/* The problems of test_large, of sizes for which this machine has neither memory nor time. */
#include "trial.h"

#include "judge.h"
#include "problems/large_problem.h"

#include <stdio.h>

bool trial_large(struct trial *t)
{
    static const uint64_t budgets[] = {0, 5000000, VKA_NO_BUDGET};
    struct large_problem p;
    struct large_result result;
    struct large_bounds bounds = {
        .work = (double)trial_size(t, 1000, 4000000) * 1e6,
        .bytes = (double)trial_size(t, 1000, 4000000) * 1e4,
        .ops = 1u << rng_range(&t->rng, 0, LARGE_OP_COUNT - 1),
        .kernels = -1,
        .path = -1,
    };
    if (trial_giant(t)) {
        bounds.work = 1e15;
        bounds.bytes = 6e10;
    }
    if (bounds.ops == 1u << LARGE_LAYER && bounds.bytes > 2e7)
        bounds.bytes = 2e7; /* its weights are the host's */
    large_draw(&p, t->seed, &bounds);
    p.judge = judge_plan;
    p.a.submit_budget = budgets[rng_range(&t->rng, 0, 2)];
    large_text(&p, t->text);
    const bool ok = large_check(t->device, &p, &result);
    t->refused = result.refused;
    snprintf(t->why, sizeof t->why, "%s", result.why);
    return ok;
}
