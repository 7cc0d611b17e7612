/* The layer as an operation, which is three projections, attention on views of their outputs, and the
 * output projection. */
#include "op/layer/plan.h"
#include "core/inner.h"
#include "core/layer_info.h"
#include "op/attention/slice.h"
#include "op/common/check.h"
#include "op/layer/layer.h"
#include "op/common/nonfinite.h"
#include "op/cache/room.h"

/* Name of the product of projections first .. last, [first][last]. */
static const char *const product_names[3][3] = {
    {"project q", "project qk", "project qkv"},
    {NULL, "project k", "project kv"},
    {NULL, NULL, "project v"},
};

enum vka_status layer_check_io(struct vka_plan *plan, const char *caller, const char *name,
                               const struct vka_tensor *tensor, enum vka_layout layout,
                               unsigned flags, uint32_t width, uint32_t *batch, uint32_t *n)
{
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    TRY(check_tensor(plan->device, caller, name, tensor, flags));
    CHECK_ARG(tensor->shape.rank == 3, "%s: %s has rank %u, not 3", caller, name,
              tensor->shape.rank);
    const uint32_t *size = tensor->shape.size;
    uint32_t b = layout == VKA_BATCH_FIRST ? 0 : 1;
    CHECK_ARG(size[2] == width, "%s: %s has width %u, but the layer needs %u", caller, name,
              size[2], width);
    CHECK_ARG(!*batch || size[b] == *batch, "%s: %s has batch %u, not %u", caller, name, size[b],
              *batch);
    CHECK_ARG(!*n || size[1 - b] == *n, "%s: %s has %u positions, not %u", caller, name,
              size[1 - b], *n);
    *batch = size[b];
    *n = size[1 - b];
fail:
    return status;
}

struct vka_tensor layer_heads(const struct vka_tensor *flat, enum vka_layout layout,
                              uint32_t n_head, uint32_t dim, bool interleaved)
{
    uint32_t b = layout == VKA_BATCH_FIRST ? 0 : 1, lead = flat->shape.rank - 3;
    const uint32_t *size = flat->shape.size + lead;
    const uint64_t *stride = flat->shape.stride + lead;
    struct vka_tensor heads = *flat;
    heads.shape = (struct shape){
        .rank = 4,
        .size = {size[b], n_head, size[1 - b], dim},
        .stride = {stride[b], stride[2] * (interleaved ? 1 : dim), stride[1 - b],
                   stride[2] * (interleaved ? n_head : 1)},
        .offset = flat->shape.offset,
    };
    return heads;
}

/* The type of the layer's queries, keys, values and context. */
static enum vka_dtype inner_of(const struct vka_plan *plan, const struct vka_layer_op *op)
{
    const struct layer_inputs in = layer_inputs_of(op);
    const enum vka_dtype rows[] = {in.x[QUERY]->dtype, in.x[KEY]->dtype, in.x[VALUE]->dtype,
                                   op->output->dtype};
    return inner_dtype_of_layer(&plan->caps.properties, layer_weight_dtype(&op->layer->info), rows);
}

/* Adds x W^T + b of projections first .. last, which share the input x, into scratch; heads[] are
 * views of it. */
static enum vka_status project(struct vka_plan *plan, const struct layer_sets *sets,
                               const struct vka_layer_op *op, enum projection first,
                               enum projection last, const struct vka_tensor *x,
                               enum vka_dtype dtype, struct vka_tensor heads[])
{
    enum vka_status status = VKA_OK;
    const struct vka_layer_info *info = &op->layer->info;
    uint32_t from, to;
    const struct weights *w = layer_find(sets, first, &from);
    layer_find(sets, last, &to);
    const uint32_t size[4] = {1, x->shape.size[0], x->shape.size[1], weights_width(w, from, to)};
    struct vka_tensor flat;
    TRY(plan_scratch(plan, dtype, size, &flat));
    TRY(weights_apply(plan, product_names[first][last], w, from, to, x, op->activations == VKA_I8,
                      &flat));
    for (uint32_t i = from; i <= to; i++) {
        uint32_t which = first + i - from;
        uint32_t n_head = which == QUERY ? info->n_head : info->n_kv_head;
        struct vka_tensor view =
            tensor_slice_along(&flat, 3, w->first[i] - w->first[from], w->out[i]);
        heads[which] =
            layer_heads(&view, op->layout, n_head, w->out[i] / n_head, info->interleaved);
    }
fail:
    return status;
}

enum vka_status layer_project(struct vka_plan *plan, const struct layer_sets *sets,
                              const struct vka_layer_op *op, const struct layer_inputs *in,
                              enum vka_dtype dtype, struct vka_tensor heads[3])
{
    const struct vka_tensor *const *x = in->x;
    enum vka_status status = VKA_OK;
    for (uint32_t first = QUERY, last; first <= VALUE; first = last + 1) {
        for (last = first; op->layer->joined && last < VALUE && x[last + 1] == x[first];)
            last++;
        TRY(project(plan, sets, op, (enum projection)first, (enum projection)last, x[first], dtype,
                    heads));
    }
fail:
    return status;
}

struct layer_inputs layer_inputs_of(const struct vka_layer_op *op)
{
    const struct vka_tensor *key = op->key ? op->key : op->query;
    return (struct layer_inputs){{op->query, key, op->value ? op->value : key}};
}

/* Checks inputs and output, and sets the sizes of *a. */
static enum vka_status check_sizes(struct vka_plan *plan, const char *caller,
                                   const struct vka_layer_op *op, struct attention *a)
{
    const struct vka_layer_info *info = &op->layer->info;
    const struct layer_inputs in = layer_inputs_of(op);
    const enum vka_layout layout = op->layout;
    uint32_t batch = 0, n_q = 0, n_kv = 0;
    ENSURE(layer_check_io(plan, caller, "query", in.x[QUERY], layout, CHECK_FLOAT, info->query_dim,
                          &batch, &n_q));
    ENSURE(layer_check_io(plan, caller, "key", in.x[KEY], layout, CHECK_FLOAT, info->key_dim,
                          &batch, &n_kv));
    ENSURE(layer_check_io(plan, caller, "value", in.x[VALUE], layout, CHECK_FLOAT,
                          info->value_input_dim, &batch, &n_kv));
    ENSURE(layer_check_io(plan, caller, "output", op->output, layout, CHECK_FLOAT | CHECK_WRITTEN,
                          info->output_dim, &batch, &n_q));
    a->batch = batch;
    a->n_head = info->n_head;
    a->n_kv_head = info->n_kv_head;
    a->n_q = n_q;
    a->n_kv = n_kv;
    a->head_dim = info->head_dim;
    a->value_dim = info->value_dim;
    return VKA_OK;
}

/* Checks that what is written shares no element with what is read, weights in tensors included, or
 * with anything else that is written. */
static enum vka_status check_overlaps(struct vka_plan *plan, const char *caller,
                                      const struct vka_layer_op *op)
{
    enum { IN = 5 + OPTION_INPUTS + 2 * PROJECTION_COUNT };
    const struct vka_attention_options *options = &op->attention;
    const struct layer_inputs in = layer_inputs_of(op);
    const struct vka_tensor *all[IN + 2] = {in.x[QUERY], in.x[KEY], in.x[VALUE], op->n_append,
                                            op->q_start};
    attention_option_inputs(options, all + 5);
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        const struct vka_tensor *weight = &op->layer->weights[i], *bias = &op->layer->biases[i];
        all[5 + OPTION_INPUTS + 2 * i] = weight->storage ? weight : NULL;
        all[6 + OPTION_INPUTS + 2 * i] = bias->storage ? bias : NULL;
    }
    ENSURE(check_no_overlap(plan->device, caller, "output", op->output, all, IN));
    all[IN] = op->output;
    if (options->scores)
        ENSURE(
            check_no_overlap(plan->device, caller, "scores", options->scores, all, COUNTOF(all)));
    all[IN + 1] = options->scores;
    return options->log_sum_exp ? check_no_overlap(plan->device, caller, "log_sum_exp",
                                                   options->log_sum_exp, all, COUNTOF(all))
                                : VKA_OK;
}

enum vka_status layer_op_check(struct vka_plan *plan, const char *caller,
                               const struct vka_layer_op *op, struct cache_use *use,
                               struct attention *a)
{
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    TRY(plan_check_op(plan, caller, op, sizeof *op));
    CHECK_ARG(op->layer && op->layer->device == plan->device,
              "%s: layer is NULL or belongs to another device", caller);
    CHECK_ARG((unsigned)op->layout < VKA_LAYOUT_COUNT, "%s: layout %d is unknown", caller,
              (int)op->layout);
    const struct vka_layer_info *info = &op->layer->info;
    *a = (struct attention){.options = &op->attention};
    TRY(check_activations(plan->device, caller, op->activations,
                          info->quantise ? info->quantise : info->dtype));
    TRY(check_sizes(plan, caller, op, a));
    CHECK_ARG(op->cache || (!op->n_append && !op->cache_layer),
              "%s: n_append or cache_layer is given without cache", caller);
    CHECK_ARG(op->cache || !op->q_start, "%s: q_start is given without cache", caller);
    if (op->q_start)
        TRY(attention_check_ragged(plan, caller, op->q_start, op->cache, a->n_kv, a));
    if (op->cache) {
        *use = (struct cache_use){op->cache,    op->cache_layer, a->n_kv,
                                  op->n_append, op->q_start,     HELD_KEYS};
        TRY(attention_check_cache(plan, caller, use, a));
    }
    TRY(attention_check_options(plan, caller, a));
    TRY(check_overlaps(plan, caller, op));
fail:
    return status;
}

/* Adds the layer for all batch elements. */
static enum vka_status add_whole(struct vka_plan *plan, const struct layer_sets *sets,
                                 const struct vka_layer_op *op, const struct layer_inputs *in,
                                 const struct cache_use *use, struct attention *a)
{
    enum vka_status status = VKA_OK;
    struct vka_tensor heads[3], context = *op->output;
    const enum vka_dtype inner = inner_of(plan, op);
    TRY(layer_project(plan, sets, op, in, inner, heads));
    a->q = heads[QUERY];
    uint32_t map;
    const struct weights *output = layer_find(sets, OUTPUT, &map);
    if (op->layer->has_output) {
        const uint32_t *size = op->output->shape.size;
        const uint32_t width[4] = {1, size[0], size[1], a->n_head * a->value_dim};
        TRY(plan_scratch(plan, inner, width, &context));
    }
    a->output = layer_heads(&context, op->layout, a->n_head, a->value_dim, false);
    TRY(plan_attention(
        plan, a,
        &(struct attention_inputs){.new_k = &heads[KEY], .new_v = &heads[VALUE], .use = *use}));
    if (op->layer->has_output)
        TRY(weights_apply(plan, "project out", output, map, map, &context,
                          op->activations == VKA_I8, op->output));
fail:
    return status;
}

struct job {
    const struct vka_layer_op *op;
    const struct layer_sets *sets;
    const struct layer_inputs *in;
    const struct cache_use *use;
    const struct attention *a;
};

/* Halves the batch until no allocation is passed by the projections. */
static int judge(const struct vka_plan *plan, const struct cut *cut, const struct slice *slice)
{
    const struct job *job = cut->job;
    const struct attention *a = job->a;
    uint64_t q = (uint64_t)a->n_head * a->head_dim, k = (uint64_t)a->n_kv_head * a->head_dim;
    uint64_t v = (uint64_t)a->n_kv_head * a->value_dim, o = (uint64_t)a->n_head * a->value_dim;
    uint64_t n = a->n_q > a->n_kv ? a->n_q : a->n_kv, width = q + k + v > o ? q + k + v : o;
    uint64_t bytes = slice->size[0] * n * width * vka_dtype_size(inner_of(plan, job->op));
    bool fits = job->op->cache || bytes <= plan->caps.properties.max_allocation;
    return fits ? CUT_FITS : cut_first_axis(slice, cut->least);
}

/* The layer on some batch elements. */
static enum vka_status add_slice(struct vka_plan *plan, const void *given,
                                 const struct slice *slice)
{
    const struct job *job = given;
    const struct vka_tensor *const *x = job->in->x;
    const struct vka_layer_op *op = job->op;
    uint32_t axis = op->layout == VKA_BATCH_FIRST ? 0 : 1, first = slice->first[0];
    uint32_t count = slice->size[0];
    struct sliced_options options;
    struct vka_tensor tensors[3], output = tensor_slice_along(op->output, axis, first, count);
    struct layer_inputs inputs;
    struct vka_layer_op sliced = *op;
    struct attention a = *job->a;
    for (int i = 0; i < 3; i++) {
        tensors[i] = tensor_slice_along(x[i], axis, first, count);
        inputs.x[i] = i > 0 && x[i] == x[i - 1] ? inputs.x[i - 1] : &tensors[i];
    }
    attention_slice_options(&op->attention, slice, a.n_head / a.n_kv_head, &options);
    sliced.output = &output;
    sliced.attention = options.options;
    a.options = &options.options;
    a.batch = count;
    plan_scratch_enter(plan);
    enum vka_status status = add_whole(plan, job->sets, &sliced, &inputs, job->use, &a);
    plan_scratch_leave(plan);
    return status;
}

static enum vka_status add_slices(struct vka_plan *plan, const struct job *job)
{
    const struct attention *a = job->a;
    const struct cut cut = {
        .job = job,
        .multiple = {1, CUT_NEVER, CUT_NEVER, CUT_NEVER},
        .least = {1, CUT_NEVER, CUT_NEVER, CUT_NEVER},
        .judge = judge,
        .add = add_slice,
    };
    return plan_cut(plan, &cut, (const uint32_t[]){a->batch, a->n_kv_head, 1, 1});
}

static enum vka_status add_layer(struct vka_plan *plan, const char *caller,
                                 const struct vka_layer_op *op, struct cache_use *use)
{
    struct attention a;
    struct layer_sets sets;
    ENSURE(layer_op_check(plan, caller, op, use, &a));
    const struct layer_inputs in = layer_inputs_of(op);
    ENSURE(layer_take_sets(plan, op->layer, &sets));
    ENSURE(add_slices(plan, &(const struct job){op, &sets, &in, use, &a}));
    ENSURE(plan_count_nonfinite(plan, "output", op->output));
    ENSURE(plan_count_nonfinite(plan, "scores", op->attention.scores));
    return plan_count_nonfinite(plan, "log_sum_exp", op->attention.log_sum_exp);
}

enum vka_status vka_plan_add_layer(struct vka_plan *plan, const struct vka_layer_op *op)
{
    struct plan_mark mark;
    struct cache_use use = {0};
    ENSURE(plan_begin(plan, __func__, &mark));
    while (mark.open)
        plan_end(plan, &mark, add_layer(plan, __func__, op, &use));
    ENSURE(mark.status);
    if (use.cache)
        plan_end_step(plan, &use);
    return VKA_OK;
}
