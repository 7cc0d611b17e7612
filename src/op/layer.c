/* struct vka_layer: its weights on the device, and the layer as an operation, which is three
 * projections, attention on views of their outputs, and the output projection. */
#include "core/layer_info.h"
#include "op/attention/share.h"
#include "op/check.h"
#include "op/nonfinite.h"
#include "op/weights.h"

#include <stdlib.h>

enum projection { QUERY = 0, KEY, VALUE, OUTPUT, PROJECTION_COUNT };

/* Name of the product of projections first .. last, [first][last]. */
static const char *const product_names[3][3] = {
    {"project q", "project qk", "project qkv"},
    {NULL, "project k", "project kv"},
    {NULL, NULL, "project v"},
};

struct vka_layer {
    struct vka_device *device;
    struct vka_layer_info info; /* sizes, defaults filled in; no host pointers */
    bool joined; /* sets[0] holds query, key and value, whose inputs have one width */
    struct weights sets[PROJECTION_COUNT];
};

/* Finds the weights of a projection, and its part of them. */
static const struct weights *find_part(const struct vka_layer *layer, enum projection which,
                                       uint32_t *part)
{
    bool joined = layer->joined && which != OUTPUT;
    *part = joined ? which : 0;
    return &layer->sets[joined ? QUERY : which];
}

static enum vka_status upload(struct vka_layer *layer, const struct vka_layer_info *info)
{
    enum vka_status status = VKA_OK;
    const struct weight_part parts[PROJECTION_COUNT] = {
        {&info->query, info->n_head * info->head_dim},
        {&info->key, info->n_kv_head * info->head_dim},
        {&info->value, info->n_kv_head * info->value_dim},
        {&info->output, info->output_dim},
    };
    const uint32_t in[PROJECTION_COUNT] = {info->query_dim, info->key_dim, info->value_input_dim,
                                           info->n_head * info->value_dim};
    layer->joined = in[QUERY] == in[KEY] && in[QUERY] == in[VALUE];
    for (uint32_t i = 0; i < PROJECTION_COUNT; i++) {
        uint32_t n_part = layer->joined && i == QUERY ? 3 : 1;
        if ((layer->joined && (i == KEY || i == VALUE)) || !parts[i].host->weight)
            continue;
        TRY(weights_upload(layer->device, info->dtype, layer_weight_dtype(info), info->keep_weights,
                           &parts[i], n_part, in[i], &layer->sets[i]));
    }
fail:
    return status;
}

enum vka_status vka_layer_create(struct vka_device *device, const struct vka_layer_info *given,
                                 struct vka_layer **out)
{
    if (out)
        *out = NULL;
    if (!device)
        return VKA_INVALID;
    struct log *log = &device->log;
    enum vka_status status = VKA_OK;
    struct vka_layer *layer = NULL;
    CHECK_ARG(out, "%s: layer is NULL", __func__);
    CHECK_ARG(given, "%s: info is NULL", __func__);
    CHECK_ARG(given->struct_size == sizeof *given, "%s: struct_size is %zu, not %zu", __func__,
              given->struct_size, sizeof *given);
    struct vka_layer_info info = *given;
    layer_info_fill(&info);
    TRY(layer_info_check(log, __func__, &info));
    layer = calloc(1, sizeof *layer);
    CHECK_ALLOC(layer);
    layer->device = device;
    layer->info = info;
    const struct vka_linear_weights none = {0};
    layer->info.query = layer->info.key = layer->info.value = layer->info.output = none;
    TRY(upload(layer, &info));
    *out = layer;
    return VKA_OK;

fail:
    vka_layer_destroy(&layer);
    return status;
}

void vka_layer_destroy(struct vka_layer **slot)
{
    if (!slot || !*slot)
        return;
    for (int i = 0; i < PROJECTION_COUNT; i++)
        weights_free(&(*slot)->sets[i]);
    free(*slot);
    *slot = NULL;
}

/* Checks an input or the output, [batch][n][width] or [n][batch][width], against *batch and *n;
 * sets those that are 0. */
static enum vka_status check_io(struct vka_plan *plan, const char *name,
                                const struct vka_tensor *tensor, enum vka_layout layout,
                                unsigned flags, uint32_t width, uint32_t *batch, uint32_t *n)
{
    static const char *const caller = "vka_plan_add_layer";
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

/* View [batch][n_head][n][dim] of [n0][n1][n_head][dim], or, interleaved, [n0][n1][dim][n_head]. */
static struct vka_tensor heads_of(const struct vka_tensor *flat, enum vka_layout layout,
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

/* Adds x W^T + b of projections first .. last, which share the input x, into scratch; heads[] are
 * views of the parts. */
static enum vka_status project(struct vka_plan *plan, const struct vka_layer_op *op,
                               enum projection first, enum projection last,
                               const struct vka_tensor *x, struct vka_tensor heads[])
{
    enum vka_status status = VKA_OK;
    const struct vka_layer_info *info = &op->layer->info;
    uint32_t from, to;
    const struct weights *w = find_part(op->layer, first, &from);
    find_part(op->layer, last, &to);
    const uint32_t size[4] = {1, x->shape.size[0], x->shape.size[1], weights_width(w, from, to)};
    struct vka_tensor flat;
    TRY(plan_scratch(plan, VKA_F32, size, &flat));
    TRY(weights_apply(plan, product_names[first][last], w, from, to, x, &flat));
    for (uint32_t i = from; i <= to; i++) {
        uint32_t which = first + i - from;
        uint32_t n_head = which == QUERY ? info->n_head : info->n_kv_head;
        struct vka_tensor part = tensor_part(&flat, 3, w->first[i] - w->first[from], w->out[i]);
        heads[which] = heads_of(&part, op->layout, n_head, w->out[i] / n_head, info->interleaved);
    }
fail:
    return status;
}

/* Adds all three projections, in as few products as inputs and weights allow. */
static enum vka_status project_all(struct vka_plan *plan, const struct vka_layer_op *op,
                                   const struct vka_tensor *const x[3], struct vka_tensor heads[3])
{
    enum vka_status status = VKA_OK;
    for (uint32_t first = QUERY, last; first <= VALUE; first = last + 1) {
        for (last = first; op->layer->joined && last < VALUE && x[last + 1] == x[first];)
            last++;
        TRY(project(plan, op, (enum projection)first, (enum projection)last, x[first], heads));
    }
fail:
    return status;
}

/* Checks the operation, fills in *use and sets the sizes of *a. */
static enum vka_status check(struct vka_plan *plan, const struct vka_layer_op *op,
                             const struct vka_tensor *key, const struct vka_tensor *value,
                             struct cache_use *use, struct attention *a)
{
    static const char *const caller = "vka_plan_add_layer";
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    const struct vka_layer_info *info = &op->layer->info;
    uint32_t batch = 0, n_q = 0, n_kv = 0;
    TRY(check_io(plan, "query", op->query, op->layout, CHECK_FLOAT, info->query_dim, &batch, &n_q));
    TRY(check_io(plan, "key", key, op->layout, CHECK_FLOAT, info->key_dim, &batch, &n_kv));
    TRY(check_io(plan, "value", value, op->layout, CHECK_FLOAT, info->value_input_dim, &batch,
                 &n_kv));
    TRY(check_io(plan, "output", op->output, op->layout, CHECK_FLOAT | CHECK_WRITTEN,
                 info->output_dim, &batch, &n_q));
    a->batch = batch;
    a->n_head = info->n_head;
    a->n_kv_head = info->n_kv_head;
    a->n_q = n_q;
    a->n_kv = n_kv;
    a->head_dim = info->head_dim;
    a->value_dim = info->value_dim;
    CHECK_ARG(op->cache || (!op->n_append && !op->cache_layer),
              "%s: n_append or cache_layer is given without cache", caller);
    if (op->cache) {
        *use = (struct cache_use){op->cache, op->cache_layer, n_kv, op->n_append};
        TRY(attention_check_cache(plan, caller, use, a));
    }
    TRY(attention_check_options(plan, caller, a));
    const struct vka_tensor *inputs[6 + OPTION_INPUTS] = {op->query, key, value, op->n_append};
    attention_option_inputs(a->options, inputs + 6);
    TRY(check_no_overlap(plan->device, caller, "output", op->output, inputs, COUNTOF(inputs)));
    inputs[4] = op->output;
    if (a->options->scores)
        TRY(check_no_overlap(plan->device, caller, "scores", a->options->scores, inputs,
                             COUNTOF(inputs)));
    inputs[5] = a->options->scores;
    if (a->options->log_sum_exp)
        TRY(check_no_overlap(plan->device, caller, "log_sum_exp", a->options->log_sum_exp, inputs,
                             COUNTOF(inputs)));
fail:
    return status;
}

/* Adds the layer for all batch elements. x: query, key, value; equal pointers for one tensor. */
static enum vka_status add_whole(struct vka_plan *plan, const struct vka_layer_op *op,
                                 const struct vka_tensor *const x[3], const struct cache_use *use,
                                 struct attention *a)
{
    enum vka_status status = VKA_OK;
    struct vka_tensor heads[3], context = *op->output;
    TRY(project_all(plan, op, x, heads));
    a->q = heads[QUERY];
    uint32_t part;
    const struct weights *output = find_part(op->layer, OUTPUT, &part);
    bool has_output = output->weight.storage;
    if (has_output) {
        const uint32_t *size = op->output->shape.size;
        const uint32_t width[4] = {1, size[0], size[1], a->n_head * a->value_dim};
        TRY(plan_scratch(plan, VKA_F32, width, &context));
    }
    a->output = heads_of(&context, op->layout, a->n_head, a->value_dim, false);
    TRY(plan_attention(
        plan, a,
        &(struct attention_inputs){.new_k = &heads[KEY], .new_v = &heads[VALUE], .use = *use}));
    if (has_output)
        TRY(weights_apply(plan, "project out", output, part, part, &context, op->output));
fail:
    return status;
}

struct job {
    const struct vka_layer_op *op;
    const struct vka_tensor *const *x;
    const struct cache_use *use;
    const struct attention *a;
};

/* Halves the batch until no allocation is passed by the projections. */
static int judge(const struct vka_plan *plan, const struct cut *cut, const struct box *part)
{
    const struct job *job = cut->job;
    const struct attention *a = job->a;
    uint64_t q = (uint64_t)a->n_head * a->head_dim, k = (uint64_t)a->n_kv_head * a->head_dim;
    uint64_t v = (uint64_t)a->n_kv_head * a->value_dim, o = (uint64_t)a->n_head * a->value_dim;
    uint64_t n = a->n_q > a->n_kv ? a->n_q : a->n_kv, width = q + k + v > o ? q + k + v : o;
    bool fits =
        job->op->cache || part->size[0] * n * width * 4 <= plan->caps.properties.max_allocation;
    return fits ? CUT_FITS : cut_first_axis(part, cut->least);
}

/* The layer on some batch elements. */
static enum vka_status add_share(struct vka_plan *plan, const void *given, const struct box *share)
{
    const struct job *job = given;
    const struct vka_tensor *const *x = job->x;
    const struct vka_layer_op *op = job->op;
    uint32_t axis = op->layout == VKA_BATCH_FIRST ? 0 : 1, first = share->first[0];
    uint32_t count = share->size[0];
    struct share_options options;
    struct vka_tensor tensors[3], output = tensor_part(op->output, axis, first, count);
    const struct vka_tensor *parts[3];
    struct vka_layer_op part = *op;
    struct attention a = *job->a;
    for (int i = 0; i < 3; i++) {
        tensors[i] = tensor_part(x[i], axis, first, count);
        parts[i] = i > 0 && x[i] == x[i - 1] ? parts[i - 1] : &tensors[i];
    }
    share_options(&op->attention, share, a.n_head / a.n_kv_head, &options);
    part.output = &output;
    part.attention = options.options;
    a.options = &options.options;
    a.batch = count;
    plan_scratch_enter(plan);
    enum vka_status status = add_whole(plan, &part, parts, job->use, &a);
    plan_scratch_leave(plan);
    return status;
}

static enum vka_status add_parts(struct vka_plan *plan, const struct vka_layer_op *op,
                                 const struct vka_tensor *const x[3], const struct cache_use *use,
                                 const struct attention *a)
{
    const struct cut cut = {
        .job = &(const struct job){op, x, use, a},
        .unit = {1, CUT_NEVER, CUT_NEVER, CUT_NEVER},
        .least = {1, CUT_NEVER, CUT_NEVER, CUT_NEVER},
        .judge = judge,
        .add = add_share,
    };
    return plan_cut(plan, &cut, (const uint32_t[]){a->batch, a->n_kv_head, 1, 1});
}

static enum vka_status add_layer(struct vka_plan *plan, const char *caller,
                                 const struct vka_layer_op *op, struct cache_use *use)
{
    struct log *log = &plan->device->log;
    enum vka_status status = VKA_OK;
    CHECK_ARG(op, "%s: op is NULL", caller);
    CHECK_ARG(op->struct_size == sizeof *op, "%s: struct_size is %zu, not %zu", caller,
              op->struct_size, sizeof *op);
    CHECK_ARG(op->layer && op->layer->device == plan->device,
              "%s: layer is NULL or belongs to another device", caller);
    CHECK_ARG((unsigned)op->layout < VKA_LAYOUT_COUNT, "%s: layout %d is unknown", caller,
              (int)op->layout);
    const struct vka_tensor *key = op->key ? op->key : op->query;
    const struct vka_tensor *value = op->value ? op->value : key;
    struct attention a = {.options = &op->attention};
    TRY(check(plan, op, key, value, use, &a));
    TRY(add_parts(plan, op, (const struct vka_tensor *const[]){op->query, key, value}, use, &a));
    TRY(plan_count_nonfinite(plan, "output", op->output));
    TRY(plan_count_nonfinite(plan, "scores", op->attention.scores));
    TRY(plan_count_nonfinite(plan, "log_sum_exp", op->attention.log_sum_exp));
fail:
    return status;
}

enum vka_status vka_plan_add_layer(struct vka_plan *plan, const struct vka_layer_op *op)
{
    struct plan_mark mark;
    struct cache_use use = {0};
    ENSURE(plan_begin(plan, __func__, &mark));
    ENSURE(plan_end(plan, mark, add_layer(plan, __func__, op, &use)));
    if (use.cache)
        plan_end_step(plan, &use);
    return VKA_OK;
}
