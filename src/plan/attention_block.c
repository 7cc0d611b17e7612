#include "plan/attention_block.h"
#include "plan/attention_keys.h"
#include "plan/attention_pieces.h"
#include "plan/check.h"
#include "plan/self_test.h"

/* A multiple of the keys of every kernel's step: whole steps make the bits. */
#define BLOCK_UNIT 128u

enum vka_status attention_check_block(struct vka_plan *plan, const char *caller,
                                      const struct vka_attention_op *op, struct attention *a)
{
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    uint64_t end = (uint64_t)op->key_first + a->n_kv;
    CHECK_ARG(op->n_key || (!op->state && !op->key_first),
              "%s: state or key_first is given, but n_key is 0", caller);
    if (!op->n_key)
        return VKA_OK;
    CHECK_ARG(!op->options.scores && !op->past_key && !op->present_key && !op->cache &&
                  !op->q_start,
              "%s: scores, past, present, cache or q_start is given with n_key", caller);
    CHECK_ARG(plan->path != VKA_PATH_UNFUSED, "%s: n_key needs the fused path", caller);
    CHECK_ARG(end <= op->n_key && op->n_key <= INT32_MAX,
              "%s: keys %u to %llu are not of n_key %u, at most 2^31 - 1", caller, op->key_first,
              (unsigned long long)end, op->n_key);
    CHECK_ARG(op->key_first % BLOCK_UNIT == 0 && (end % BLOCK_UNIT == 0 || end == op->n_key),
              "%s: keys %u to %llu are not whole blocks of %u", caller, op->key_first,
              (unsigned long long)end, BLOCK_UNIT);
    if (op->state) {
        TRY(check_tensor(plan->device, caller, "state", op->state, CHECK_F32));
        const struct shape *s = &op->state->shape;
        CHECK_ARG(s->rank == 1 && s->offset == 0 && (s->size[0] == 1 || s->stride[0] == 1),
                  "%s: state is a view, or not of rank 1", caller);
    }
    if (op->n_key == a->n_kv) /* a block that is all keys is none */
        return VKA_OK;
    a->state = op->state;
    a->key_first = op->key_first;
    a->n_block = a->n_kv;
    a->n_kv = op->n_key;
fail:
    return status;
}

bool attention_is_last(const struct attention *a)
{
    return !a->n_block || a->key_first + a->n_block == a->n_kv;
}

/* Why the problem is not one pass of the chosen kernel; NULL where it is. */
static const char *why_not(const struct vka_plan *plan, const struct attention_choice *c)
{
    if (!c->usable)
        return c->reason;
    if (c->n_piece > 1 && c->piece_keys < TUNE_CHAIN)
        return "few rows share the keys in pieces";
    if (plan->path == VKA_PATH_AUTO && !c->preferred)
        return "all keys at once would not be fused";
    return NULL;
}

enum vka_status attention_add_block(struct vka_plan *plan, const struct attention *a,
                                    const struct attention_choice *choice)
{
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    const struct slice all = {.n_batch = a->batch, .n_head = a->n_head, .n_query = a->n_q};
    struct attention_choice c = *choice;
    struct attention_parts parts;
    uint64_t count = attention_count_state(a, &c, &all);
    if (why_not(plan, &c)) {
        status = log_error(log, VKA_UNSUPPORTED, "no attention by blocks of keys here: %s",
                           why_not(plan, &c));
        goto fail;
    }
    CHECK_ARG(a->state, "vka_plan_add_attention: state is NULL");
    CHECK_ARG(a->state->shape.size[0] >= count,
              "vka_plan_add_attention: state has %u elements, not %llu", a->state->shape.size[0],
              (unsigned long long)count);
    c.map = false; /* of all keys, which each block would make anew */
    attention_cut_block(plan, a, &c, &all, &parts);
    TRY(attention_add_parts(plan, a, &c, &all, &parts));
fail:
    return status;
}

enum vka_status vka_plan_attention_state(struct vka_plan *plan, const struct vka_attention_op *op,
                                         uint64_t *count)
{
    if (!plan)
        return VKA_INVALID;
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    struct vka_attention_op without = op ? *op : (struct vka_attention_op){0};
    struct attention a;
    struct attention_choice c;
    CHECK_ARG(count, "%s: count is NULL", __func__);
    *count = 0;
    without.state = NULL;
    TRY(attention_check(plan, __func__, op ? &without : NULL, &a));
    CHECK_ARG(op->n_key, "%s: n_key is 0", __func__);
    uint64_t wrong;
    do { /* until no kernel fails its self-test: another one may need more */
        wrong = plan->device->caps.wrong_kernels;
        attention_choose(plan, &a, &c);
        if (c.usable)
            TRY(self_test_kernel(plan->device, c.kernel));
    } while (plan->device->caps.wrong_kernels != wrong);
    const struct slice all = {.n_batch = a.batch, .n_head = a.n_head, .n_query = a.n_q};
    *count = why_not(plan, &c) ? 0 : attention_count_state(&a, &c, &all);
fail:
    return status;
}
