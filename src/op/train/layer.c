/* Gradients of the layer: its forward again, then backward through the output projection, attention and
 * the three projections. */
#include "core/dtype.h"
#include "op/common/check.h"
#include "op/layer/layer.h"
#include "op/common/nonfinite.h"
#include "op/train/attention.h"
#include "op/train/slope.h"
#include "op/train/linear.h"
#include "op/train/check.h"
#include "op/layer/plan.h"

#include <stdio.h>

static const char caller[] = "vka_plan_add_layer_backward";

/* Three inputs, four weights, four biases and four options have one. */
#define GRADIENTS 15

struct layer_backward {
    const struct vka_layer_backward_op *op;
    const struct vka_layer_op *forward;
    const struct vka_layer_info *info;
    struct layer_inputs in;
    struct layer_sets sets;
    struct attention a;                              /* sizes and options */
    struct vka_gradient inputs[3];                   /* those of one tensor at its first place */
    struct vka_linear_gradients w[PROJECTION_COUNT]; /* gradients of weights */
};

/* The first input that is the same tensor. */
static int owner(const struct layer_inputs *in, int which)
{
    int first = 0;
    while (in->x[first] != in->x[which])
        first++;
    return first;
}

static void list_gradients(const struct layer_backward *b, struct named_tensor list[GRADIENTS])
{
    static const char *const inputs[3] = {"query_gradient", "key_gradient", "value_gradient"};
    static const char *const names[PROJECTION_COUNT][2] = {
        {"query_weights.weight", "query_weights.bias"},
        {"key_weights.weight", "key_weights.bias"},
        {"value_weights.weight", "value_weights.bias"},
        {"output_weights.weight", "output_weights.bias"}};
    const struct vka_layer_backward_op *op = b->op;
    const struct named_tensor options[4] = {{"sink_gradient", op->sink_gradient.tensor},
                                            {"mask_gradient", op->mask_gradient.tensor},
                                            {"q_norm_gradient", op->q_norm_gradient.tensor},
                                            {"k_norm_gradient", op->k_norm_gradient.tensor}};
    for (int i = 0; i < 3; i++)
        list[i] = (struct named_tensor){inputs[i], b->inputs[i].tensor};
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        list[3 + 2 * i] = (struct named_tensor){names[i][0], b->w[i].weight.tensor};
        list[4 + 2 * i] = (struct named_tensor){names[i][1], b->w[i].bias.tensor};
    }
    for (int i = 0; i < 4; i++)
        list[11 + i] = options[i];
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static enum vka_status check_inputs(struct vka_device *device, const struct layer_backward *b)
{
    static const char *const names[3] = {"query", "key", "value"};
    struct log *log = &device->log;
    for (int i = 0; i < 3; i++) {
        const int first = owner(&b->in, i);
        char name[32];
        snprintf(name, sizeof name, "%s_gradient", names[i]);
        ENSURE_ARG(first == i || !b->inputs[i].tensor,
                   "%s: %s is given, but %s is the tensor of %s, whose gradient is the sum", caller,
                   name, names[i], names[first]);
        ENSURE(train_check_gradient(device, caller, name, &b->inputs[i], &b->in.x[i]->shape));
    }
    return VKA_OK;
}

static enum vka_status check_weights(struct vka_device *device, const struct layer_backward *b,
                                     const struct named_tensor list[GRADIENTS])
{
    struct log *log = &device->log;
    const struct vka_layer *layer = b->forward->layer;
    const struct vka_layer_info *info = b->info;
    for (enum projection i = QUERY; i < PROJECTION_COUNT; i++) {
        const struct shape shape = {.rank = 2, .size = {layer_out(info, i), layer_in(info, i)}};
        const struct shape row = {.rank = 1, .size = {layer_out(info, i)}};
        const char *weight = list[3 + 2 * i].name, *bias = list[4 + 2 * i].name;
        ENSURE_ARG(!b->w[i].weight.tensor || i != OUTPUT || layer->has_output,
                   "%s: %s is given, but the layer has no output projection", caller, weight);
        ENSURE_ARG(!b->w[i].bias.tensor || layer->has_bias[i],
                   "%s: %s is given, but the layer has no such bias", caller, bias);
        ENSURE(train_check_gradient(device, caller, weight, &b->w[i].weight, &shape));
        ENSURE(train_check_gradient(device, caller, bias, &b->w[i].bias, &row));
    }
    return VKA_OK;
}

/* Gradients share no element with each other, nor with what is read. */
static enum vka_status check_apart(struct vka_device *device, const struct layer_backward *b,
                                   const struct named_tensor list[GRADIENTS])
{
    enum { WEIGHTS = 4 + OPTION_INPUTS };
    const struct vka_layer *layer = b->forward->layer;
    const struct vka_tensor *inputs[WEIGHTS + 2 * PROJECTION_COUNT] = {
        b->in.x[QUERY], b->in.x[KEY], b->in.x[VALUE], b->op->output_gradient};
    attention_option_inputs(&b->forward->attention, inputs + 4);
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        inputs[WEIGHTS + 2 * i] = layer->weights[i].storage ? &layer->weights[i] : NULL;
        inputs[WEIGHTS + 2 * i + 1] = layer->biases[i].storage ? &layer->biases[i] : NULL;
    }
    return train_check_apart(device, caller, list, GRADIENTS, inputs, COUNTOF(inputs));
}

static struct vka_attention_backward_op option_gradients(const struct vka_layer_backward_op *op)
{
    return (struct vka_attention_backward_op){.struct_size =
                                                  sizeof(struct vka_attention_backward_op),
                                              .sink_gradient = op->sink_gradient,
                                              .mask_gradient = op->mask_gradient,
                                              .q_norm_gradient = op->q_norm_gradient,
                                              .k_norm_gradient = op->k_norm_gradient};
}

static enum vka_status check_gradients(struct vka_device *device, const struct layer_backward *b)
{
    struct log *log = &device->log;
    struct named_tensor list[GRADIENTS];
    const struct vka_attention_backward_op options = option_gradients(b->op);
    bool wanted = false;
    list_gradients(b, list);
    for (size_t i = 0; i < GRADIENTS; i++)
        wanted |= list[i].tensor != NULL;
    ENSURE_ARG(wanted, "%s: no gradient is wanted", caller);
    ENSURE(check_inputs(device, b));
    ENSURE(check_weights(device, b, list));
    ENSURE(attention_check_option_gradients(device, caller, &b->forward->attention, &options));
    return check_apart(device, b, list);
}

static enum vka_status check(struct vka_plan *plan, const struct vka_layer_backward_op *op,
                             struct layer_backward *b)
{
    struct vka_device *device = plan->device;
    struct log *log = &device->log;
    struct cache_use use;
    const struct vka_layer_op *f = op->forward;
    ENSURE_ARG(f, "%s: forward is NULL", caller);
    ENSURE(layer_op_check(plan, caller, f, &use, &b->a));
    if (f->cache)
        return log_error(log, VKA_UNSUPPORTED,
                         "%s: forward has a cache, which has no backward: give all keys and values "
                         "as inputs",
                         caller);
    *b = (struct layer_backward){
        .op = op,
        .forward = f,
        .info = &f->layer->info,
        .in = layer_inputs_of(f),
        .a = b->a,
        .inputs = {op->query_gradient, op->key_gradient, op->value_gradient},
        .w = {op->query_weights, op->key_weights, op->value_weights, op->output_weights},
    };
    ENSURE_ARG(dtype_is_float(b->info->dtype) && b->info->quantise == VKA_F32,
               "%s: the layer's weights are %s, which have no gradient", caller,
               vka_dtype_name(dtype_is_float(b->info->dtype) ? b->info->quantise : b->info->dtype));
    uint32_t batch = b->a.batch, n_q = b->a.n_q;
    ENSURE(layer_check_io(plan, caller, "output_gradient", op->output_gradient, f->layout,
                          CHECK_FLOAT, b->info->output_dim, &batch, &n_q));
    return check_gradients(device, b);
}

/* ---- Passes ---------------------------------------------------------------------------------- */

/* Float32 [1][n0][n1][width], as the layout has it. */
static enum vka_status make_flat(struct vka_plan *plan, const struct vka_tensor *like,
                                 uint32_t width, struct vka_tensor *flat)
{
    const uint32_t size[4] = {1, like->shape.size[0], like->shape.size[1], width};
    return plan_scratch(plan, VKA_F32, size, flat);
}

static struct vka_tensor heads_of(const struct layer_backward *b, enum projection which,
                                  const struct vka_tensor *flat)
{
    const uint32_t n_head =
        which == QUERY || which == OUTPUT ? b->info->n_head : b->info->n_kv_head;
    const uint32_t dim = which == QUERY || which == KEY ? b->info->head_dim : b->info->value_dim;
    return layer_heads(flat, b->forward->layout, n_head, dim,
                       b->info->interleaved && which != OUTPUT);
}

/* Whether anything behind a projection is wanted. */
static bool wants(const struct layer_backward *b, enum projection which)
{
    return b->w[which].weight.tensor || b->w[which].bias.tensor ||
           b->inputs[owner(&b->in, (int)which)].tensor;
}

/* What the passes hand on: queries, keys and values as they enter attention, its context and the
 * gradient of that, and gradients of queries, keys and values, storage NULL where they are not
 * wanted. */
struct flow {
    struct vka_tensor heads[3], context, log_sum, dcontext, d[3];
    bool through; /* attention's gradients are wanted */
};

/* Projections and attention with its log-sum-exp. */
static enum vka_status add_forward(struct vka_plan *plan, const struct layer_backward *b,
                                   struct attention *a, struct vka_attention_options *options,
                                   struct flow *flow)
{
    const uint32_t rows[4] = {1, a->batch, a->n_head, a->n_q};
    ENSURE(layer_project(plan, &b->sets, b->forward, &b->in, VKA_F32, flow->heads));
    ENSURE(make_flat(plan, b->op->output_gradient, a->n_head * a->value_dim, &flow->context));
    ENSURE(plan_scratch(plan, VKA_F32, rows, &flow->log_sum));
    const uint64_t offset = flow->log_sum.shape.offset;
    shape_dense(3, rows + 1, &flow->log_sum.shape);
    flow->log_sum.shape.offset = offset;
    *options = b->forward->attention;
    options->scores_kind = VKA_SCORES_NONE;
    options->scores = NULL;
    options->log_sum_exp = &flow->log_sum;
    a->options = options;
    a->q = flow->heads[QUERY];
    a->output = heads_of(b, OUTPUT, &flow->context);
    const struct attention_inputs in = {.new_k = &flow->heads[KEY], .new_v = &flow->heads[VALUE]};
    plan_scratch_enter(plan);
    struct attention forward = *a;
    enum vka_status status = plan_attention(plan, &forward, &in);
    plan_scratch_leave(plan);
    return status;
}

/* Backward through the output projection. */
static enum vka_status add_output(struct vka_plan *plan, const struct layer_backward *b,
                                  struct flow *flow)
{
    const struct vka_linear_gradients *w = &b->w[OUTPUT];
    struct vka_linear_backward_op linear = {
        .struct_size = sizeof linear,
        .input = &flow->context,
        .output_gradient = b->op->output_gradient,
        .weight_gradient = w->weight,
        .bias_gradient = w->bias,
    };
    struct vka_tensor weight;
    flow->dcontext = *b->op->output_gradient;
    if (!b->forward->layer->has_output)
        return VKA_OK;
    if (flow->through) {
        ENSURE(
            make_flat(plan, b->op->output_gradient, b->a.n_head * b->a.value_dim, &flow->dcontext));
        linear.input_gradient.tensor = &flow->dcontext;
    }
    plan_scratch_enter(plan);
    enum vka_status status = flow->through ? layer_weight(plan, &b->sets, OUTPUT, &weight) : VKA_OK;
    linear.weight = &weight;
    if (status == VKA_OK)
        status = plan_linear_backward(plan, &linear);
    plan_scratch_leave(plan);
    return status;
}

/* Backward through attention. */
static enum vka_status add_attention(struct vka_plan *plan, const struct layer_backward *b,
                                     struct attention *a, struct flow *flow)
{
    struct vka_tensor d[3] = {{0}}, *heads = flow->heads;
    for (enum projection i = QUERY; i <= VALUE; i++)
        if (wants(b, i)) {
            ENSURE(make_flat(plan, b->in.x[i], layer_out(b->info, i), &flow->d[i]));
            d[i] = heads_of(b, i, &flow->d[i]);
        }
    const struct vka_tensor dcontext = heads_of(b, OUTPUT, &flow->dcontext);
    const struct vka_attention_op forward = {
        .struct_size = sizeof forward,
        .q = &heads[QUERY],
        .k = &heads[KEY],
        .v = &heads[VALUE],
        .output = &a->output,
        .options = *a->options,
    };
    struct vka_attention_backward_op op = option_gradients(b->op);
    op.forward = &forward;
    op.output_gradient = (struct vka_tensor *)&dcontext;
    op.q_gradient.tensor = d[QUERY].storage ? &d[QUERY] : NULL;
    op.k_gradient.tensor = d[KEY].storage ? &d[KEY] : NULL;
    op.v_gradient.tensor = d[VALUE].storage ? &d[VALUE] : NULL;
    a->k = heads[KEY];
    a->v = heads[VALUE];
    plan_scratch_enter(plan);
    enum vka_status status = plan_attention_backward(plan, &op, a);
    plan_scratch_leave(plan);
    return status;
}

/* Backward through a projection; dx receives the gradient of its input. */
static enum vka_status add_projection(struct vka_plan *plan, const struct layer_backward *b,
                                      enum projection which, const struct flow *flow,
                                      const struct vka_gradient *dx)
{
    struct vka_tensor weight, dy = flow->d[which];
    plan_scratch_enter(plan);
    enum vka_status status = dx->tensor ? layer_weight(plan, &b->sets, which, &weight) : VKA_OK;
    if (status == VKA_OK)
        status = plan_linear_backward(
            plan,
            VKA_INFO(vka_linear_backward_op, .input = (struct vka_tensor *)b->in.x[which],
                     .weight = &weight, .output_gradient = &dy, .input_gradient = *dx,
                     .weight_gradient = b->w[which].weight, .bias_gradient = b->w[which].bias));
    plan_scratch_leave(plan);
    return status;
}

/* Adds the projections of one input. Where there are several and its gradient is not float32, they are
 * summed in scratch that is. */
static enum vka_status add_input(struct vka_plan *plan, const struct layer_backward *b, int first,
                                 const struct flow *flow)
{
    const struct vka_gradient *gradient = &b->inputs[first];
    struct vka_gradient dx = *gradient;
    struct vka_tensor sum;
    int n = 0;
    for (int i = first; i <= VALUE; i++)
        n += owner(&b->in, i) == first;
    const bool apart = dx.tensor && n > 1 && dx.tensor->dtype != VKA_F32;
    if (apart) {
        ENSURE(make_flat(plan, b->in.x[first], b->in.x[first]->shape.size[2], &sum));
        dx = (struct vka_gradient){&sum, false};
    }
    for (enum projection i = (enum projection)first; i <= VALUE; i++)
        if (owner(&b->in, (int)i) == first && flow->d[i].storage) {
            ENSURE(add_projection(plan, b, i, flow, &dx));
            dx.accumulate = true;
        }
    if (!apart)
        return VKA_OK;
    const struct slope slope = {
        .name = "input gradient",
        .dy = sum,
        .x = sum,
        .y = tensor_rank4(gradient->tensor),
        .kind = SLOPE_DERIVATIVE,
        .add = gradient->accumulate,
    };
    return plan_slope(plan, &slope);
}

static enum vka_status add_passes(struct vka_plan *plan, struct layer_backward *b)
{
    const struct vka_layer_backward_op *op = b->op;
    struct vka_attention_options options;
    struct attention a = b->a;
    struct flow flow = {.through = op->sink_gradient.tensor || op->mask_gradient.tensor ||
                                   op->q_norm_gradient.tensor || op->k_norm_gradient.tensor};
    for (enum projection i = QUERY; i <= VALUE; i++)
        flow.through |= wants(b, i);
    ENSURE(layer_take_sets(plan, b->forward->layer, &b->sets));
    if (flow.through || b->w[OUTPUT].weight.tensor)
        ENSURE(add_forward(plan, b, &a, &options, &flow));
    ENSURE(add_output(plan, b, &flow));
    plan_scratch_free(plan, &flow.context); /* the backward of attention does not read it */
    if (!flow.through)
        return VKA_OK;
    ENSURE(add_attention(plan, b, &a, &flow));
    plan_scratch_free(plan, &flow.dcontext);
    for (int i = 0; i < 3; i++)
        plan_scratch_free(plan, &flow.heads[i]);
    for (int i = 0; i < 3; i++)
        if (owner(&b->in, i) == i)
            ENSURE(add_input(plan, b, i, &flow));
    return VKA_OK;
}

static enum vka_status add(struct vka_plan *plan, const void *given)
{
    const struct vka_layer_backward_op *op = given;
    struct layer_backward b;
    struct named_tensor list[GRADIENTS];
    ENSURE(check(plan, op, &b));
    ENSURE(add_passes(plan, &b));
    list_gradients(&b, list);
    for (size_t i = 0; i < GRADIENTS; i++)
        ENSURE(plan_count_nonfinite(plan, list[i].name, list[i].tensor));
    return VKA_OK;
}

enum vka_status vka_plan_add_layer_backward(struct vka_plan *plan,
                                            const struct vka_layer_backward_op *op)
{
    return plan_add(plan, __func__, op, sizeof *op, add);
}
