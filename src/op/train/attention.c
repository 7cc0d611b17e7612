/* Gradients of attention: checks, rotation there and back, and where sums go. */
#include "op/train/attention.h"
#include "core/dtype.h"
#include "op/attention/choice.h"
#include "op/common/check.h"
#include "op/common/nonfinite.h"
#include "op/rotary/heads.h"
#include "op/train/sum.h"
#include "op/train/slope.h"
#include "op/train/norm.h"
#include "op/train/check.h"
#include "op/train/attention_slices.h"
#include "op/train/attention_fused.h"
#include "plan/settle.h"

#include <math.h>
#include <stdlib.h>

static const char caller[] = "vka_plan_add_attention_backward";

#define GRADIENTS 7
struct named_gradient {
    const char *name;
    const struct vka_gradient *gradient;
};

static void list_gradients(const struct vka_attention_backward_op *op,
                           struct named_gradient list[GRADIENTS])
{
    const struct named_gradient all[GRADIENTS] = {
        {"q_gradient", &op->q_gradient},           {"k_gradient", &op->k_gradient},
        {"v_gradient", &op->v_gradient},           {"sink_gradient", &op->sink_gradient},
        {"mask_gradient", &op->mask_gradient},     {"q_norm_gradient", &op->q_norm_gradient},
        {"k_norm_gradient", &op->k_norm_gradient},
    };
    for (size_t i = 0; i < GRADIENTS; i++)
        list[i] = all[i];
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static enum vka_status check_supported(struct vka_device *device, const struct vka_attention_op *f)
{
    const struct {
        bool given;
        const char *what;
    } list[] = {
        {f->past_key || f->past_value, "past_key"},
        {f->present_key || f->present_value, "present_key"},
        {f->cache != NULL, "cache"},
        {f->q_start || f->kv_start, "q_start, a ragged batch,"},
        {f->n_key != 0, "n_key, a key chunk,"},
    };
    for (size_t i = 0; i < COUNTOF(list); i++)
        if (list[i].given)
            return log_error(&device->log, VKA_UNSUPPORTED,
                             "%s: forward has %s which has no backward: give all keys and values "
                             "as k and v, in a dense batch",
                             caller, list[i].what);
    return VKA_OK;
}

static enum vka_status check_option(struct vka_device *device, const char *function,
                                    const char *name, const struct vka_gradient *gradient,
                                    const char *option, const struct vka_tensor *tensor)
{
    struct log *log = &device->log;
    if (!gradient->tensor)
        return VKA_OK;
    ENSURE_ARG(tensor, "%s: %s is given, but forward has no %s", function, name, option);
    ENSURE_ARG(dtype_is_float(tensor->dtype), "%s: %s is given, but %s is %s: it has no gradient",
               caller, name, option, vka_dtype_name(tensor->dtype));
    return train_check_gradient(device, function, name, gradient, &tensor->shape);
}

enum vka_status attention_check_option_gradients(struct vka_device *device, const char *function,
                                                 const struct vka_attention_options *options,
                                                 const struct vka_attention_backward_op *op)
{
    ENSURE(
        check_option(device, function, "sink_gradient", &op->sink_gradient, "sink", options->sink));
    ENSURE(
        check_option(device, function, "mask_gradient", &op->mask_gradient, "mask", options->mask));
    ENSURE(check_option(device, function, "q_norm_gradient", &op->q_norm_gradient, "q_norm",
                        options->q_norm));
    return check_option(device, function, "k_norm_gradient", &op->k_norm_gradient, "k_norm",
                        options->k_norm);
}

static enum vka_status check_gradients(struct vka_device *device,
                                       const struct vka_attention_backward_op *op)
{
    struct log *log = &device->log;
    const struct vka_attention_op *f = op->forward;
    const struct vka_attention_options *options = &f->options;
    const struct vka_tensor *inputs[5 + OPTION_INPUTS] = {f->q, f->k, f->v, f->output,
                                                          op->output_gradient};
    struct vka_tensor const *all[6 + OPTION_INPUTS];
    struct named_gradient list[GRADIENTS];
    struct named_tensor written[GRADIENTS];
    bool wanted = false;
    list_gradients(op, list);
    for (size_t i = 0; i < GRADIENTS; i++) {
        written[i] = (struct named_tensor){list[i].name, list[i].gradient->tensor};
        wanted |= written[i].tensor != NULL;
    }
    ENSURE_ARG(wanted, "%s: no gradient is wanted", caller);
    const struct vka_tensor *const like[] = {f->q, f->k, f->v};
    for (size_t i = 0; i < 3; i++)
        ENSURE(
            train_check_gradient(device, caller, list[i].name, list[i].gradient, &like[i]->shape));
    ENSURE(attention_check_option_gradients(device, caller, options, op));
    attention_option_inputs(options, inputs + 5);
    for (size_t i = 0; i < COUNTOF(inputs); i++)
        all[i] = inputs[i];
    all[COUNTOF(inputs)] = options->log_sum_exp;
    return train_check_apart(device, caller, written, GRADIENTS, all, COUNTOF(all));
}

static enum vka_status check(struct vka_plan *plan, const struct vka_attention_backward_op *op,
                             struct attention *a)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    struct cache_use use;
    const struct vka_attention_op *f = op->forward;
    ENSURE_ARG(f, "%s: forward is NULL", caller);
    ENSURE_ARG(f->struct_size == sizeof *f, "%s: forward.struct_size is %zu, not %zu", caller,
               f->struct_size, sizeof *f);
    ENSURE(check_supported(device, f));
    ENSURE(attention_check(plan, caller, f, &use, a));
    ENSURE_ARG(f->options.log_sum_exp,
               "%s: forward.options.log_sum_exp is NULL: the forward has to keep it", caller);
    ENSURE(check_tensor(device, caller, "output_gradient", op->output_gradient, CHECK_FLOAT));
    ENSURE(check_shape(device, caller, "output_gradient", op->output_gradient, 4,
                       f->output->shape.size));
    return check_gradients(device, op);
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* *sum: the gradient itself where it receives one product, else float32 scratch. The fused path writes
 * float32 in contiguous rows. */
static enum vka_status make_sum(struct vka_plan *plan, const struct attention_backward *b,
                                const struct vka_gradient *gradient, const struct vka_tensor *like,
                                bool direct, struct vka_tensor *sum)
{
    const struct vka_tensor *t = gradient->tensor;
    const bool plain =
        t && t->dtype == VKA_F32 && (t->shape.size[3] == 1 || t->shape.stride[3] == 1);
    if (!direct || gradient->accumulate || (b->fused && !plain))
        return plan_scratch(plan, VKA_F32, like->shape.size, sum);
    *sum = *gradient->tensor;
    return VKA_OK;
}

static bool is_turned(const struct vka_attention_options *options, const struct vka_tensor *norm)
{
    return options->rope.dim || norm;
}

/* The mask's gradient is a sum of many in float32. */
static enum vka_status make_mask(struct vka_plan *plan, struct attention_backward *b)
{
    const struct vka_gradient *gradient = &b->op->mask_gradient;
    if (!gradient->tensor)
        return VKA_OK;
    b->mask = tensor_rank4(gradient->tensor);
    b->add_mask = gradient->accumulate;
    if (gradient->tensor->dtype == VKA_F32)
        return VKA_OK;
    b->add_mask = false;
    return plan_scratch(plan, VKA_F32, tensor_rank4(gradient->tensor).shape.size, &b->mask);
}

static enum vka_status make_sums(struct vka_plan *plan, struct attention_backward *b)
{
    const struct vka_attention_backward_op *op = b->op;
    const struct vka_attention_options *options = b->a.options;
    const struct attention *a = &b->a;
    const bool once = b->fused || (b->group == 1 && b->n_slice_q == a->n_q);
    if (op->q_gradient.tensor || op->q_norm_gradient.tensor)
        ENSURE(make_sum(plan, b, &op->q_gradient, op->forward->q,
                        !is_turned(options, options->q_norm), &b->dq));
    if (op->k_gradient.tensor || op->k_norm_gradient.tensor)
        ENSURE(make_sum(plan, b, &op->k_gradient, op->forward->k,
                        once && !is_turned(options, options->k_norm), &b->dk));
    if (op->v_gradient.tensor)
        ENSURE(make_sum(plan, b, &op->v_gradient, op->forward->v, once, &b->dv));
    if (op->sink_gradient.tensor)
        ENSURE(plan_scratch(plan, VKA_F32, (const uint32_t[]){a->batch, a->n_head, a->n_q, 1},
                            &b->sinks));
    return make_mask(plan, b);
}

/* ---- Results --------------------------------------------------------------------------------- */

/* gradient = sum, where it is not that already. */
static enum vka_status move(struct vka_plan *plan, const char *name, const struct vka_tensor *sum,
                            const struct vka_gradient *gradient)
{
    const struct slope slope = {
        .name = name,
        .dy = *sum,
        .x = *sum,
        .y = tensor_rank4(gradient->tensor),
        .kind = SLOPE_DERIVATIVE,
        .add = gradient->accumulate,
    };
    return sum->storage == gradient->tensor->storage ? VKA_OK : plan_slope(plan, &slope);
}

/* Rotates rows of gradients back: the transposed rotation is that by the opposite angles. */
static enum vka_status rotate_back(struct vka_plan *plan, const char *name,
                                   const struct attention *a, const struct vka_tensor *offsets,
                                   struct vka_tensor *rows)
{
    struct log *log = &plan->device->log;
    struct vka_rope back = a->options->rope;
    const double base = back.base != 0 ? (double)back.base : 10000;
    double *frequencies = malloc(back.dim / 2 * sizeof *frequencies);
    ENSURE_ALLOC(frequencies);
    for (uint32_t i = 0; i < back.dim / 2; i++)
        frequencies[i] = back.frequencies ? -back.frequencies[i] : -pow(base, -2.0 * i / back.dim);
    back.base = 0;
    back.frequencies = frequencies;
    enum vka_status status =
        plan_rotary(plan, name, &back, NULL, 0, offsets, NULL, 0, VKA_F32, rows);
    free(frequencies);
    return status;
}

/* Queries or keys as they were given, and the gradients that are wanted of them. */
struct side {
    const char *name;
    struct vka_tensor *rows, *norm; /* norm NULL: none */
    const struct vka_tensor *offsets;
    const struct vka_tensor *sum; /* gradient of the rows as they enter the scores */
    const struct vka_gradient *gradient, *norm_gradient;
};

static enum vka_status finish_side(struct vka_plan *plan, const struct attention *a,
                                   const struct side *side)
{
    struct vka_tensor sum = *side->sum;
    if (!sum.storage)
        return VKA_OK;
    if (a->options->rope.dim)
        ENSURE(rotate_back(plan, side->name, a, side->offsets, &sum));
    if (!side->norm)
        return move(plan, side->name, &sum, side->gradient);
    return plan_norm_backward(
        plan, VKA_INFO(vka_norm_backward_op, .kind = VKA_RMS_NORM, .axes = 1,
                       .given = VKA_GIVEN_EPSILON, .epsilon = attention_epsilon(a->options),
                       .input = side->rows, .weight = side->norm, .output_gradient = &sum,
                       .input_gradient = *side->gradient, .weight_gradient = *side->norm_gradient));
}

static enum vka_status finish_sinks(struct vka_plan *plan, const struct attention_backward *b)
{
    const struct vka_gradient *gradient = &b->op->sink_gradient;
    struct sum_axes sum = {
        .name = "sink gradient",
        .a = b->sinks,
        .y = tensor_rank4(gradient->tensor),
        .reduced = 1 | 4,
        .term = TERM_VALUE,
        .scale = 1,
        .add = gradient->accumulate,
    };
    struct shape *y = &sum.y.shape; /* [1][n_head][1][1] */
    y->size[1] = y->size[3];
    y->stride[1] = y->stride[3];
    y->size[3] = 1;
    y->stride[3] = 0;
    return plan_sum_axes(plan, &sum);
}

static enum vka_status finish(struct vka_plan *plan, const struct attention_backward *b)
{
    const struct vka_attention_backward_op *op = b->op;
    const struct vka_attention_options *options = b->a.options;
    const struct vka_attention_op *f = op->forward;
    const struct side sides[] = {
        {"q gradient", f->q, options->q_norm, options->query_offset, &b->dq, &op->q_gradient,
         &op->q_norm_gradient},
        {"k gradient", f->k, options->k_norm, NULL, &b->dk, &op->k_gradient, &op->k_norm_gradient},
    };
    for (size_t i = 0; i < COUNTOF(sides); i++)
        ENSURE(finish_side(plan, &b->a, &sides[i]));
    if (b->dv.storage)
        ENSURE(move(plan, "v gradient", &b->dv, &op->v_gradient));
    if (b->mask.storage)
        ENSURE(move(plan, "mask gradient", &b->mask, &op->mask_gradient));
    return b->sinks.storage ? finish_sinks(plan, b) : VKA_OK;
}

enum vka_status plan_attention_backward(struct vka_plan *plan,
                                        const struct vka_attention_backward_op *op,
                                        const struct attention *problem)
{
    struct attention_backward b = {.op = op, .a = *problem};
    struct attention *a = &b.a;
    struct vka_attention_options options = op->forward->options;
    options.scores_kind = VKA_SCORES_NONE;
    options.scores = NULL;
    a->options = &options;
    a->scale = attention_scale(&options, a->head_dim);
    b.dy = *op->output_gradient;
    b.group = a->n_head / a->n_kv_head;
    b.n_slice_q = attention_slice_queries(a->n_q, a->n_kv);
    const enum vka_dtype turned = attention_turned_dtype(
        plan, a, &(struct attention_inputs){.new_k = op->forward->k, .new_v = op->forward->v});
    ENSURE(attention_backward_choose(plan, &b));
    if (!b.fused)
        ENSURE(plan_settle_kernel(plan, KERNEL_softmax_backward));
    if (is_turned(&options, options.q_norm))
        ENSURE(plan_rotary(plan, "rotate q", &options.rope, options.q_norm,
                           attention_epsilon(&options), options.query_offset, NULL, 0, turned,
                           &a->q));
    if (is_turned(&options, options.k_norm))
        ENSURE(plan_rotary(plan, "rotate k", &options.rope, options.k_norm,
                           attention_epsilon(&options), NULL, NULL, 0, turned, &a->k));
    ENSURE(make_sums(plan, &b));
    ENSURE(b.fused ? attention_add_fused(plan, &b) : attention_add_backward(plan, &b));
    return finish(plan, &b);
}

static enum vka_status add(struct vka_plan *plan, const void *given)
{
    const struct vka_attention_backward_op *op = given;
    struct attention a;
    struct named_gradient list[GRADIENTS];
    ENSURE(check(plan, op, &a));
    ENSURE(plan_attention_backward(plan, op, &a));
    list_gradients(op, list);
    for (size_t i = 0; i < GRADIENTS; i++)
        ENSURE(plan_count_nonfinite(plan, list[i].name, list[i].gradient->tensor));
    return VKA_OK;
}

enum vka_status vka_plan_add_attention_backward(struct vka_plan *plan,
                                                const struct vka_attention_backward_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add);
}
