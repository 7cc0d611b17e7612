#include "op/state/front.h"

#include "op/common/check.h"

#include <math.h>

/* A tensor of one number, or with `features` of so many, of each state; NULL: none. */
static enum vka_status check_states_of(struct vka_plan *plan, const char *caller, const char *name,
                                       const struct vka_tensor *tensor, uint32_t n_state,
                                       uint32_t features, struct vka_tensor *to)
{
    struct vka_device *device = plan->device;
    const uint32_t shape[2] = {n_state, features};
    if (!tensor)
        return VKA_OK;
    const bool wide = features && tensor->shape.rank == 2;
    ENSURE(check_tensor(device, caller, name, tensor, CHECK_FLOAT));
    ENSURE(check_shape(device, caller, name, tensor, wide ? 2 : 1, shape));
    *to = *tensor;
    for (int i = wide ? 2 : 1; i < 4; i++)
        *to = axes_append_one(to);
    return VKA_OK;
}

static enum vka_status check_steps(struct vka_plan *plan, const char *caller,
                                   const struct vka_linear_attention_op *op)
{
    struct log *log = &plan->device->log;
    const double low = (double)op->step_min, high = (double)op->step_max;
    ENSURE_ARG(op->decay || !op->decay_log, "%s: decay_log is given, but decay is NULL", caller);
    ENSURE_ARG(op->decay_log || !op->decay_bias, "%s: decay_bias is given, but decay_log is NULL",
               caller);
    ENSURE_ARG(op->decay_log || !op->decay_steps, "%s: decay_steps is true, but decay_log is NULL",
               caller);
    ENSURE_ARG(!op->decay_steps || op->decay->shape.rank == 3,
               "%s: decay_steps is true, but decay has rank 4: a step is of a head, rank 3",
               caller);
    ENSURE_ARG(op->decay_steps || (low == 0 && high == 0),
               "%s: step_min is %g and step_max %g, but decay_steps is false", caller, low, high);
    ENSURE_ARG(isfinite(low) && low >= 0, "%s: step_min is %g, not a finite number from 0 on",
               caller, low);
    ENSURE_ARG(isfinite(high) && (high == 0 || high >= low),
               "%s: step_max is %g, neither 0 (no bound) nor a finite number from step_min, %g, on",
               caller, high, low);
    return VKA_OK;
}

enum vka_status front_check(struct vka_plan *plan, const char *caller,
                            const struct vka_linear_attention_op *op, struct front *front)
{
    struct log *log = &plan->device->log;
    const uint32_t n_state = op->v->shape.size[1];
    const uint32_t features = op->decay && op->decay->shape.rank == 4 ? op->q->shape.size[3] : 0;
    ENSURE_ARG(isfinite(op->norm_epsilon) && op->norm_epsilon >= 0,
               "%s: norm_epsilon is %g, not a finite number from 0 on", caller,
               (double)op->norm_epsilon);
    ENSURE_ARG(op->beta || !op->beta_sigmoid, "%s: beta_sigmoid is true, but beta is NULL", caller);
    ENSURE(check_steps(plan, caller, op));
    *front = (struct front){
        .flags = (op->norm_epsilon > 0 ? LINEAR_NORMED : 0u) |
                 (op->beta_sigmoid ? LINEAR_SIGMOID : 0u) | (op->decay_steps ? LINEAR_STEPS : 0u),
        .norm_epsilon = op->norm_epsilon,
        .step_min = op->step_min,
        .step_max = op->step_max > 0 ? op->step_max : INFINITY,
    };
    ENSURE(check_states_of(plan, caller, "decay_log", op->decay_log, n_state, 0, &front->log));
    ENSURE(check_states_of(plan, caller, "decay_bias", op->decay_bias, n_state, features,
                           &front->bias));
    return check_states_of(plan, caller, "skip", op->skip, n_state, 0, &front->skip);
}
