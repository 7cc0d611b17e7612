#include "op/attention/chunk.h"
#include "op/attention/keys.h"
#include "op/attention/merge.h"

/* Why the problem cannot take key chunks; NULL where it can. */
static const char *why_not(const struct vka_plan *plan, const struct attention_choice *c)
{
    if (!c->usable)
        return c->reason;
    if (c->n_split > 1 && c->split_keys < TUNE_CHAIN)
        return "with few rows the keys are split over workgroups";
    if (plan->path == VKA_PATH_AUTO && !c->preferred)
        return "attention over all keys would not be fused";
    return NULL;
}

enum vka_status attention_add_chunk(struct vka_plan *plan, const struct attention *given)
{
    struct log *log = &plan->device->log;
    struct attention problem = *given, *a = &problem;
    const struct slice all = {.n_batch = a->batch, .n_head = a->n_head, .n_query = a->n_q};
    struct attention_parts parts;
    uint64_t count = attention_count_state(a, &all);
    if (why_not(plan, &a->choice))
        return log_error(log, VKA_UNSUPPORTED, "key chunks are not supported here: %s",
                         why_not(plan, &a->choice));
    ENSURE_ARG(a->state, "vka_plan_add_attention: state is NULL");
    ENSURE_ARG(a->state->shape.size[0] >= count,
               "vka_plan_add_attention: state has %u elements, but needs %llu",
               a->state->shape.size[0], (unsigned long long)count);
    a->choice.map = false; /* each key chunk would make the map of all keys */
    attention_cut(plan, a, &all, true, &parts);
    return attention_add_parts(plan, a, &all, &parts);
}

enum vka_status vka_plan_attention_state(struct vka_plan *plan, const struct vka_attention_op *op,
                                         uint64_t *count)
{
    if (!plan)
        return VKA_INVALID;
    struct log *log = &plan->device->log;
    struct vka_attention_op without = op ? *op : (struct vka_attention_op){0};
    struct attention a;
    ENSURE_ARG(count, "%s: count is NULL", __func__);
    *count = 0;
    without.state = NULL;
    ENSURE(attention_check(plan, __func__, op ? &without : NULL, &a));
    ENSURE_ARG(op->n_key, "%s: n_key is 0", __func__);
    ENSURE(attention_choose(plan, &a, &(struct attention_inputs){.new_k = op->k, .new_v = op->v}));
    const struct slice all = {.n_batch = a.batch, .n_head = a.n_head, .n_query = a.n_q};
    *count = why_not(plan, &a.choice) ? 0 : attention_count_state(&a, &all);
    return VKA_OK;
}
