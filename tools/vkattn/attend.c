/* Runs one problem of host arrays on a device. SPDX-License-Identifier: MIT */
#include "attend.h"

#include "case/numbers.h"

#include <stdlib.h>

/* The most tensors of a problem: eight inputs, four results and a view of each. */
#define OWNED_MAX 24

struct run {
    struct tool_device *d;
    struct attend *a;
    struct vka_tensor *owned[OWNED_MAX];
    size_t owned_count;
    struct vka_layer *layer;
    struct vka_tensor *result[ATTEND_RESULT_COUNT]; /* dense, for reading back */
};

const char *attend_result_name(enum attend_result result)
{
    static const char *const names[] = {"output", "scores", "present_key", "present_value"};
    return names[result];
}

/* Keeps a new tensor until the end of the run. */
static struct vka_tensor *own(struct run *r, struct vka_tensor *tensor)
{
    r->owned[r->owned_count++] = tensor;
    return tensor;
}

/* Makes a copy of an array in dtype; NULL if memory ran out. */
static void *converted(const struct vka_io_array *array, enum vka_dtype dtype)
{
    size_t count = case_count(array);
    double *wide = case_doubles(array);
    void *narrow = wide ? malloc(count * vka_dtype_size(dtype)) : NULL;
    if (narrow)
        case_narrow(wide, count, dtype, narrow);
    free(wide);
    return narrow;
}

/* Makes a tensor with the shape and values of an array; *tensor stays NULL if there is no array. */
static enum vka_status upload(struct run *r, const struct vka_io_array *array, enum vka_dtype dtype,
                              struct vka_tensor **tensor)
{
    uint32_t shape[VKA_MAX_RANK];
    if (!array)
        return VKA_OK;
    for (uint32_t i = 0; i < array->rank; i++)
        shape[i] = (uint32_t)array->shape[i];
    void *data = converted(array, dtype);
    if (!data)
        return VKA_OUT_OF_HOST_MEMORY;
    enum vka_status status = vka_tensor_create(r->d->device, dtype, array->rank, shape, tensor);
    if (status == VKA_OK)
        status = vka_tensor_write(own(r, *tensor), data, vka_tensor_size(*tensor));
    free(data);
    return status;
}

static enum vka_dtype input_dtype(const struct run *r, const struct vka_io_array *array)
{
    return r->a->convert || !array ? r->a->dtype : case_dtype(array->dtype);
}

static enum vka_status upload_input(struct run *r, const struct vka_io_array *array,
                                    struct vka_tensor **tensor)
{
    return upload(r, array, input_dtype(r, array), tensor);
}

static enum vka_status make_result(struct run *r, enum attend_result result, uint32_t rank,
                                   const uint32_t *shape)
{
    enum vka_status status = vka_tensor_create(r->d->device, r->a->result_dtype[result], rank,
                                               shape, &r->result[result]);
    if (status == VKA_OK)
        own(r, r->result[result]);
    return status;
}

/* What a layer and attention alone have in common. */
static enum vka_status set_options(struct run *r, struct vka_attention_options *o)
{
    const struct case_file *c = r->a->problem;
    const struct case_config *config = &c->config;
    const uint32_t scores[] = {c->batch, c->n_head, c->n_q, c->n_kv};
    enum vka_status status = VKA_OK;
#define OPTION(kind, type, wide, name) o->name = (type)config->name;
#include "../../src/attention_options.def"
#undef OPTION
    o->rope = config->rope;
    o->exact_softmax = config->softmax_precision == 11;
    o->scores_kind = config->scores;
    if (c->mask)
        status = upload(r, c->mask, case_dtype(c->mask->dtype), &o->mask);
    if (status == VKA_OK)
        status = upload(r, c->kv_length, VKA_I32, &o->kv_length);
    if (status == VKA_OK)
        status = upload(r, c->query_offset, VKA_I32, &o->query_offset);
    if (status == VKA_OK && config->scores != VKA_SCORES_NONE)
        status = make_result(r, ATTEND_SCORES, 4, scores);
    o->scores = r->result[ATTEND_SCORES];
    return status;
}

/* Makes a view [batch][heads][n][dim] of a tensor in the layout of the problem. */
static enum vka_status heads_view(struct run *r, struct vka_tensor **tensor, uint32_t heads)
{
    struct vka_tensor *split = NULL, *view = NULL;
    if (r->a->problem->config.layout != CASE_BSD)
        return VKA_OK;
    const uint32_t shape[] = {vka_tensor_shape(*tensor, 0), vka_tensor_shape(*tensor, 1), heads,
                              vka_tensor_shape(*tensor, 2) / heads};
    enum vka_status status = vka_tensor_reshape(*tensor, 4, shape, &split);
    if (status == VKA_OK)
        status = vka_tensor_permute(split, (const uint32_t[]){0, 2, 1, 3}, &view);
    vka_tensor_destroy(&split);
    if (status == VKA_OK)
        *tensor = own(r, view);
    return status;
}

static enum vka_status make_output(struct run *r)
{
    const struct case_file *c = r->a->problem;
    if (c->kind == CASE_SDPA && c->config.layout == CASE_BHSD)
        return make_result(r, ATTEND_OUTPUT, 4,
                           (const uint32_t[]){c->batch, c->n_head, c->n_q, c->value_dim});
    bool sequence_first = c->config.layout == CASE_SBD;
    uint32_t width = c->kind == CASE_SDPA ? c->n_head * c->value_dim : c->output_dim;
    const uint32_t shape[] = {sequence_first ? c->n_q : c->batch,
                              sequence_first ? c->batch : c->n_q, width};
    return make_result(r, ATTEND_OUTPUT, 3, shape);
}

static enum vka_status make_present(struct run *r)
{
    const struct case_file *c = r->a->problem;
    const uint32_t key[] = {c->batch, c->n_kv_head, c->n_kv, c->head_dim};
    const uint32_t value[] = {c->batch, c->n_kv_head, c->n_kv, c->value_dim};
    if (!r->a->present)
        return VKA_OK;
    enum vka_status status = make_result(r, ATTEND_PRESENT_KEY, 4, key);
    return status == VKA_OK ? make_result(r, ATTEND_PRESENT_VALUE, 4, value) : status;
}

static enum vka_status add_attention(struct run *r, struct vka_plan *plan)
{
    const struct case_file *c = r->a->problem;
    struct vka_attention_op op = {.struct_size = sizeof op};
    enum vka_status status = upload_input(r, c->query, &op.q);
    if (status == VKA_OK)
        status = upload_input(r, c->key, &op.k);
    if (status == VKA_OK)
        status = upload_input(r, c->value, &op.v);
    if (status == VKA_OK)
        status = upload_input(r, c->past_key, &op.past_key);
    if (status == VKA_OK)
        status = upload_input(r, c->past_value, &op.past_value);
    if (status == VKA_OK)
        status = make_output(r);
    op.output = r->result[ATTEND_OUTPUT];
    if (status == VKA_OK)
        status = heads_view(r, &op.q, c->n_head);
    if (status == VKA_OK)
        status = heads_view(r, &op.k, c->n_kv_head);
    if (status == VKA_OK)
        status = heads_view(r, &op.v, c->n_kv_head);
    if (status == VKA_OK)
        status = heads_view(r, &op.output, c->n_head);
    if (status == VKA_OK)
        status = make_present(r);
    op.present_key = r->result[ATTEND_PRESENT_KEY];
    op.present_value = r->result[ATTEND_PRESENT_VALUE];
    if (status == VKA_OK)
        status = set_options(r, &op.options);
    return status == VKA_OK ? vka_plan_add_attention(plan, &op) : status;
}

/* Makes host copies of a projection in dtype; free *weights after a failure too. */
static bool convert_linear(const struct case_linear *linear, enum vka_dtype dtype,
                           struct vka_linear_weights *weights)
{
    weights->weight = linear->weight ? converted(linear->weight, dtype) : NULL;
    weights->bias = linear->bias ? converted(linear->bias, dtype) : NULL;
    return !linear->weight == !weights->weight && !linear->bias == !weights->bias;
}

static enum vka_status make_layer(struct run *r)
{
    const struct case_file *c = r->a->problem;
    enum vka_dtype dtype = input_dtype(r, c->q_proj.weight);
    const struct case_linear *linear[] = {&c->q_proj, &c->k_proj, &c->v_proj, &c->o_proj};
    struct vka_linear_weights w[4] = {0};
    enum vka_status status = VKA_OK;
    for (int i = 0; i < 4; i++) {
        if (!convert_linear(linear[i], dtype, &w[i]))
            status = VKA_OUT_OF_HOST_MEMORY;
    }
    if (status == VKA_OK)
        status = vka_layer_create(
            r->d->device,
            VKA_INFO(vka_layer_info, .n_head = c->n_head, .n_kv_head = c->n_kv_head,
                     .head_dim = c->head_dim, .value_dim = c->value_dim, .query_dim = c->query_dim,
                     .key_dim = c->key_dim, .value_input_dim = c->value_input_dim,
                     .output_dim = c->output_dim, .dtype = dtype, .quantise = r->a->quantise,
                     .interleaved = c->config.interleaved, .query = w[0], .key = w[1],
                     .value = w[2], .output = w[3]),
            &r->layer);
    for (int i = 0; i < 4; i++) {
        free((void *)w[i].weight);
        free((void *)w[i].bias);
    }
    return status;
}

static enum vka_status add_layer(struct run *r, struct vka_plan *plan)
{
    const struct case_file *c = r->a->problem;
    struct vka_layer_op op = {.struct_size = sizeof op};
    enum vka_status status = make_layer(r);
    op.layer = r->layer;
    op.layout = c->config.layout == CASE_SBD ? VKA_SEQUENCE_FIRST : VKA_BATCH_FIRST;
    if (status == VKA_OK)
        status = upload_input(r, c->query, &op.query);
    if (status == VKA_OK)
        status = upload_input(r, c->key, &op.key);
    if (status == VKA_OK)
        status = upload_input(r, c->value, &op.value);
    if (status == VKA_OK)
        status = make_output(r);
    op.output = r->result[ATTEND_OUTPUT];
    if (status == VKA_OK)
        status = set_options(r, &op.attention);
    return status == VKA_OK ? vka_plan_add_layer(plan, &op) : status;
}

static enum vka_status read_back(struct run *r, enum attend_result result)
{
    static const enum vka_io_dtype stored[] = {
        [VKA_F32] = VKA_IO_F32, [VKA_F16] = VKA_IO_F16, [VKA_BF16] = VKA_IO_BF16};
    struct vka_tensor *tensor = r->result[result];
    if (!tensor)
        return VKA_OK;
    size_t count = (size_t)vka_tensor_count(tensor), size = vka_tensor_size(tensor);
    void *data = malloc(size);
    double *values = malloc(count * sizeof *values);
    enum vka_status status = VKA_OUT_OF_HOST_MEMORY;
    if (data && values)
        status = vka_tensor_read(tensor, data, size);
    if (status == VKA_OK) {
        case_widen(stored[vka_tensor_dtype(tensor)], data, count, values);
        r->a->values[result] = values;
        r->a->count[result] = count;
        values = NULL;
    }
    free(values);
    free(data);
    return status;
}

enum vka_status attend_run(struct tool_device *d, struct attend *a)
{
    struct run r = {.d = d, .a = a};
    struct vka_plan *plan = NULL;
    enum vka_status status =
        vka_plan_create(d->device,
                        VKA_INFO(vka_plan_info, .path = a->path,
                                 .count_nonfinite = a->count_nonfinite, .submit_budget = d->budget),
                        &plan);
    if (status == VKA_OK)
        status = a->problem->kind == CASE_SDPA ? add_attention(&r, plan) : add_layer(&r, plan);
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    if (status == VKA_OK)
        status = vka_plan_run(plan, d->timeout);
    for (int i = 0; status == VKA_OK && i < ATTEND_RESULT_COUNT; i++)
        status = read_back(&r, (enum attend_result)i);
    size_t n = vka_plan_nonfinite_count(plan);
    for (; status == VKA_OK && a->n_nonfinite < n; a->n_nonfinite++)
        status = vka_plan_nonfinite(plan, a->n_nonfinite, &a->nonfinite[a->n_nonfinite]);
    vka_plan_destroy(&plan);
    for (size_t i = 0; i < r.owned_count; i++)
        vka_tensor_destroy(&r.owned[i]);
    vka_layer_destroy(&r.layer);
    return status;
}

void attend_free(struct attend *a)
{
    for (int i = 0; i < ATTEND_RESULT_COUNT; i++) {
        free(a->values[i]);
        a->values[i] = NULL;
    }
}
