/* Linear attention: arguments, and the problem that they are. */
#include "core/dtype.h"
#include "op/cache/cache.h"
#include "op/common/check.h"
#include "op/common/nonfinite.h"
#include "op/state/recurrent.h"

#include <math.h>

static bool is_gated(enum vka_rule rule)
{
    return rule == VKA_RULE_GATED || rule == VKA_RULE_GATED_DELTA;
}

static bool is_delta(enum vka_rule rule)
{
    return rule == VKA_RULE_DELTA || rule == VKA_RULE_GATED_DELTA;
}

static enum vka_status check_heads(struct vka_plan *plan, const char *caller,
                                   const struct vka_linear_attention_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    ENSURE(check_tensor(device, caller, "q", op->q, CHECK_FLOAT));
    ENSURE(check_tensor(device, caller, "k", op->k, CHECK_FLOAT));
    ENSURE(check_tensor(device, caller, "v", op->v, CHECK_FLOAT));
    const struct shape *q = &op->q->shape, *k = &op->k->shape, *v = &op->v->shape;
    ENSURE_ARG(q->rank == 4, "%s: q has rank %u, not 4", caller, q->rank);
    ENSURE_ARG(k->rank == 4 && k->size[0] == q->size[0] && k->size[2] == q->size[2] &&
                   k->size[3] == q->size[3],
               "%s: k must have the shape [%u][n_kv_head][%u][%u], as q has", caller, q->size[0],
               q->size[2], q->size[3]);
    ENSURE_ARG(v->rank == 4 && v->size[0] == q->size[0] && v->size[2] == q->size[2],
               "%s: v must have the shape [%u][n_state][%u][value_dim], as q has", caller,
               q->size[0], q->size[2]);
    const uint32_t n_state = v->size[1];
    ENSURE_ARG(n_state % k->size[1] == 0, "%s: k has %u heads, no divisor of v's %u", caller,
               k->size[1], n_state);
    ENSURE_ARG(n_state % q->size[1] == 0 || q->size[1] % n_state == 0,
               "%s: q has %u heads, neither a divisor nor a multiple of v's %u", caller, q->size[1],
               n_state);
    ENSURE_ARG(q->size[2] <= INT32_MAX, "%s: q has more than 2^31 - 1 rows", caller);
    return VKA_OK;
}

/* Decay and beta are given where the rule has them. */
static enum vka_status check_gates(struct vka_plan *plan, const char *caller,
                                   const struct vka_linear_attention_op *op)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    const uint32_t *q = op->q->shape.size, n_state = op->v->shape.size[1];
    const uint32_t shape[4] = {q[0], n_state, q[2], q[3]}, shared[3] = {q[0], 1, q[2]};
    ENSURE_ARG(!op->decay == !is_gated(op->rule),
               "%s: decay is %s, but the rule is %d: GATED and GATED_DELTA have one", caller,
               op->decay ? "given" : "NULL", (int)op->rule);
    ENSURE_ARG(!op->beta == !is_delta(op->rule),
               "%s: beta is %s, but the rule is %d: DELTA and GATED_DELTA have one", caller,
               op->beta ? "given" : "NULL", (int)op->rule);
    if (op->decay) {
        ENSURE(check_tensor(device, caller, "decay", op->decay, CHECK_FLOAT));
        ENSURE(check_shape(device, caller, "decay", op->decay, op->decay->shape.rank == 4 ? 4 : 3,
                           shape));
    }
    if (!op->beta)
        return VKA_OK;
    ENSURE(check_tensor(device, caller, "beta", op->beta, CHECK_FLOAT));
    const bool all = op->beta->shape.rank == 3 && op->beta->shape.size[1] == 1;
    return check_shape(device, caller, "beta", op->beta, 3, all ? shared : shape);
}

static enum vka_status check_states(struct vka_plan *plan, const char *caller,
                                    const struct vka_linear_attention_op *op, uint32_t n_sequence)
{
    struct vka_device *device = plan->device;
    const uint32_t shape[4] = {n_sequence, op->v->shape.size[1], op->q->shape.size[3],
                               op->v->shape.size[3]};
    if (op->past_state) {
        ENSURE(check_tensor(device, caller, "past_state", op->past_state, CHECK_F32));
        ENSURE(check_shape(device, caller, "past_state", op->past_state, 4, shape));
    }
    if (!op->present_state)
        return VKA_OK;
    const struct vka_tensor *others[] = {op->past_state, op->q,          op->k,       op->v,
                                         op->decay,      op->beta,       op->lengths, op->q_start,
                                         op->decay_log,  op->decay_bias, op->skip};
    ENSURE(check_tensor(device, caller, "present_state", op->present_state,
                        CHECK_F32 | CHECK_WRITTEN));
    ENSURE(check_shape(device, caller, "present_state", op->present_state, 4, shape));
    return axes_check_in_place(device, caller, "present_state", op->present_state, others,
                               COUNTOF(others), 1);
}

static struct cache_use use_of(const struct vka_linear_attention_op *op)
{
    return (struct cache_use){op->cache,   op->cache_layer, op->q->shape.size[2],
                              op->lengths, op->q_start,     HELD_LINEAR};
}

static enum vka_status check(struct vka_plan *plan, const char *caller,
                             const struct vka_linear_attention_op *op, struct state_rows *rows,
                             struct front *front)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    ENSURE_ARG((unsigned)op->rule < VKA_RULE_COUNT, "%s: rule is %d", caller, (int)op->rule);
    ENSURE(check_heads(plan, caller, op));
    ENSURE(check_gates(plan, caller, op));
    ENSURE(front_check(plan, caller, op, front));
    ENSURE(check_given(device, caller, op->given, VKA_GIVEN_SCALE));
    ENSURE_ARG(isfinite(op->scale), "%s: scale is %g, not a finite number", caller,
               (double)op->scale);
    const uint32_t *q = op->q->shape.size, *v = op->v->shape.size;
    const struct cache_use use = use_of(op);
    ENSURE(state_check_rows(plan, caller, op->lengths, op->q_start, &use, q[0], rows));
    ENSURE(check_states(plan, caller, op, rows->n_sequence));
    const uint32_t shape[4] = {q[0], q[1] > v[1] ? q[1] : v[1], q[2], v[3]};
    ENSURE(check_tensor(device, caller, "output", op->output, CHECK_FLOAT | CHECK_WRITTEN));
    ENSURE(check_shape(device, caller, "output", op->output, 4, shape));
    const struct vka_tensor *others[] = {
        op->q,       op->k,         op->v,          op->decay,
        op->beta,    op->lengths,   op->past_state, op->present_state,
        op->q_start, op->decay_log, op->decay_bias, op->skip};
    return check_no_overlap(device, caller, "output", op->output, others, COUNTOF(others));
}

static enum vka_status check_cache(struct vka_plan *plan, const char *caller,
                                   const struct vka_linear_attention_op *op, uint32_t n_sequence)
{
    struct log *log = &plan->device->log;
    const uint32_t *q = op->q->shape.size, *v = op->v->shape.size;
    const struct cache_use use = use_of(op);
    ENSURE_ARG(!op->past_state && !op->present_state,
               "%s: past_state or present_state is given, but the cache holds them", caller);
    return state_check_cache(plan, caller, &use, 4,
                             (const uint32_t[]){n_sequence, v[1], q[3], v[3]});
}

static struct vka_tensor or_none(const struct vka_tensor *tensor)
{
    return tensor ? *tensor : (struct vka_tensor){0};
}

/* [batch][head][n] with a last axis of 1, or NULL. */
static struct vka_tensor gate_of(const struct vka_tensor *tensor)
{
    return !tensor                   ? (struct vka_tensor){0}
           : tensor->shape.rank == 4 ? *tensor
                                     : axes_append_one(tensor);
}

enum vka_status linear_check(struct vka_plan *plan, const char *caller,
                             const struct vka_linear_attention_op *op, struct linear *linear)
{
    struct state_rows rows;
    struct front front;
    ENSURE(check(plan, caller, op, &rows, &front));
    const uint32_t *q = op->q->shape.size, *v = op->v->shape.size;
    const double scale = 1 / sqrt((double)q[3]);
    *linear = (struct linear){
        .q = *op->q,
        .k = *op->k,
        .v = *op->v,
        .decay = gate_of(op->decay),
        .beta = gate_of(op->beta),
        .past = or_none(op->past_state),
        .present = or_none(op->present_state),
        .y = *op->output,
        .front = front,
        .rows = rows,
        .n_state = v[1],
        .n = q[2],
        .head_dim = q[3],
        .value_dim = v[3],
        .decay_kind = !op->decay                   ? DECAY_NONE
                      : op->decay->shape.rank == 4 ? DECAY_KEY
                                                   : DECAY_HEAD,
        .scale = (float)or_default((double)op->scale, op->given, VKA_GIVEN_SCALE, scale),
    };
    if (op->beta && op->beta->shape.size[1] == 1) /* of all states */
        linear->beta.shape.stride[1] = 0;
    return VKA_OK;
}

static enum vka_status add_linear_attention(struct vka_plan *plan, const void *given)
{
    static const char caller[] = "vka_plan_add_linear_attention";
    const struct vka_linear_attention_op *op = given;
    struct linear linear;
    ENSURE(linear_check(plan, caller, op, &linear));
    if (op->cache) {
        const struct cache_use use = use_of(op);
        ENSURE(check_cache(plan, caller, op, linear.rows.n_sequence));
        linear.past = linear.present = *state_cached(&use);
        ENSURE(plan_begin_step(plan, &use));
    }
    ENSURE(plan_recurrent(plan, caller, &linear));
    ENSURE(plan_count_nonfinite(plan, "output", op->output));
    const struct vka_tensor *present = op->cache ? &linear.present : op->present_state;
    return plan_count_nonfinite(plan, "present_state", present);
}

enum vka_status vka_plan_add_linear_attention(struct vka_plan *plan,
                                              const struct vka_linear_attention_op *op)
{
    const enum vka_status status = plan_add(plan, __func__, op, sizeof *op, add_linear_attention);
    if (status == VKA_OK && op->cache) {
        const struct cache_use use = use_of(op);
        plan_end_step(plan, &use);
    }
    return status;
}
