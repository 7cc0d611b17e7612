#include "pipeline_list.h"
#include "example.h"
#include "state_problems.h"
#include "problems/types.h"

#include <stdio.h>
#include <string.h>

#define N_HEAD 8
#define N_KV_HEAD 4

enum kind {
    KIND_PLAIN,
    KIND_CAUSAL,
    KIND_GENERAL,
    KIND_PAST,
    KIND_DECODE,
    KIND_PAGED,
    KIND_SCALED /* a cache of each type whose values have a scale */
};

/* Attention with the head sizes that models use, and one that is no multiple of 4. */
static const struct attention_case {
    enum kind kind;
    uint32_t n_q, n_kv, head_dim;
} attention_cases[] = {
    {KIND_PLAIN, 512, 512, 64}, {KIND_CAUSAL, 512, 512, 128}, {KIND_GENERAL, 96, 96, 64},
    {KIND_GENERAL, 96, 96, 30}, {KIND_DECODE, 1, 512, 64},    {KIND_DECODE, 1, 512, 128},
    {KIND_PAGED, 1, 512, 64},   {KIND_PAST, 16, 512, 64},     {KIND_SCALED, 1, 512, 64},
    {KIND_SCALED, 64, 512, 64},
};

/* Rows, outputs and inputs of a product; the last inputs come in splits. */
static const uint32_t linear_cases[][3] = {
    {512, 512, 512}, {1, 1024, 1024}, {20, 100, 60}, {20, 100, 20000}};

/* How problems are planned, and of which passes the pipelines are listed. */
struct view {
    enum vka_dtype dtype;
    enum vka_path path;
    enum kernel only; /* KERNEL_COUNT: every kernel */
    bool forced;
    enum vka_status (*add)(struct vka_plan *plan, enum vka_dtype dtype);
};

/* The row of a key, appended where there is none yet; NULL where the list is full. */
static struct listed_pipeline *find_row(struct pipeline_list *list, const struct pass *pass,
                                        enum vka_dtype dtype, bool forced)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->rows[i].dtype == dtype && pipeline_same_key(&list->rows[i].key, &pass->key))
            return &list->rows[i];
    if (list->n == MAX_PIPELINES)
        return NULL;
    struct listed_pipeline *row = &list->rows[list->n++];
    *row = (struct listed_pipeline){.key = pass->key, .dtype = dtype, .forced = forced};
    memcpy(row->detail, pass->detail, sizeof row->detail);
    return row;
}

static void add_keys(struct pipeline_list *list, const struct vka_plan *plan,
                     const struct view *view)
{
    for (size_t i = 0; i < plan->n_pass; i++) {
        const struct pass *pass = &plan->passes[i];
        if (view->only == KERNEL_COUNT || view->only == pass->key.kernel)
            find_row(list, pass, view->dtype, view->forced);
    }
}

void pipeline_list_add(struct pipeline_list *list, const struct vka_plan *plan,
                       enum vka_dtype dtype, const char *problem)
{
    for (size_t i = 0; i < plan->n_pass; i++) {
        struct listed_pipeline *row = find_row(list, &plan->passes[i], dtype, false);
        size_t length = row ? strlen(row->problems) : 0;
        if (row &&
            (length < strlen(problem) || strcmp(row->problems + length - strlen(problem), problem)))
            snprintf(row->problems + length, sizeof row->problems - length, "\t%s", problem);
    }
}

static enum vka_status plan_linear(struct vka_plan *plan, enum vka_dtype dtype,
                                   enum vka_dtype weights, enum vka_dtype activations,
                                   const uint32_t c[3])
{
    struct vka_device *device = plan->device;
    enum vka_status status = VKA_OK;
    struct vka_tensor *input = NULL, *weight = NULL, *bias = NULL, *output = NULL;
    TRY(vka_tensor_create(device, dtype, 2, (const uint32_t[]){c[0], c[2]}, &input));
    TRY(vka_tensor_create(device, weights, 2, (const uint32_t[]){c[1], c[2]}, &weight));
    TRY(vka_tensor_create(device, dtype, 1, &c[1], &bias));
    TRY(vka_tensor_create(device, dtype, 2, (const uint32_t[]){c[0], c[1]}, &output));
    TRY(vka_plan_add_linear(plan,
                            VKA_INFO(vka_linear_op, .input = input, .weight = weight, .bias = bias,
                                     .output = output, .activations = activations)));
fail:
    vka_tensor_destroy(&input);
    vka_tensor_destroy(&weight);
    vka_tensor_destroy(&bias);
    vka_tensor_destroy(&output);
    return status;
}

enum operand {
    Q,
    K,
    V,
    OPERAND_OUTPUT,
    OPERAND_MASK,
    SCORES,
    LOG_SUM,
    SINK,
    NORM,
    PAST,
    PRESENT_K,
    PRESENT_V,
    OPERAND_COUNT
};

/* Every option that a kernel knows. */
static enum vka_status set_general(struct vka_device *device, enum vka_dtype dtype,
                                   const struct attention_case *c,
                                   struct vka_tensor *t[OPERAND_COUNT],
                                   struct vka_attention_options *o)
{
    enum vka_status status = VKA_OK;
    const uint32_t heads = N_HEAD;
    TRY(vka_tensor_create(device, dtype, 2, (const uint32_t[]){c->n_q, c->n_kv}, &t[OPERAND_MASK]));
    TRY(vka_tensor_create(device, dtype, 4, (const uint32_t[]){1, N_HEAD, c->n_q, c->n_kv},
                          &t[SCORES]));
    TRY(vka_tensor_create(device, VKA_F32, 3, (const uint32_t[]){1, N_HEAD, c->n_q}, &t[LOG_SUM]));
    TRY(vka_tensor_create(device, VKA_F32, 1, &heads, &t[SINK]));
    TRY(vka_tensor_create(device, VKA_F32, 1, &c->head_dim, &t[NORM]));
    o->mask = t[OPERAND_MASK];
    o->scores = t[SCORES];
    o->scores_kind = VKA_SCORES_SOFTMAX;
    o->log_sum_exp = t[LOG_SUM];
    o->sink = o->alibi = t[SINK];
    o->q_norm = o->k_norm = t[NORM];
    o->rope.dim = c->head_dim;
    o->softcap = 30;
    o->dropout = 0.1f;
fail:
    return status;
}

/* The keys' tensors serve as the values' too: nothing runs. */
static enum vka_status set_past(struct vka_device *device, enum vka_dtype dtype,
                                const struct attention_case *c, struct vka_tensor *t[OPERAND_COUNT],
                                struct vka_attention_op *op)
{
    enum vka_status status = VKA_OK;
    const uint32_t past[4] = {1, N_KV_HEAD, c->n_kv, c->head_dim};
    const uint32_t present[4] = {1, N_KV_HEAD, c->n_kv + c->n_q, c->head_dim};
    TRY(vka_tensor_create(device, dtype, 4, past, &t[PAST]));
    TRY(vka_tensor_create(device, dtype, 4, present, &t[PRESENT_K]));
    TRY(vka_tensor_create(device, dtype, 4, present, &t[PRESENT_V]));
    op->past_key = op->past_value = t[PAST];
    op->present_key = t[PRESENT_K];
    op->present_value = t[PRESENT_V];
fail:
    return status;
}

static enum vka_status plan_attention_case(struct vka_plan *plan, enum vka_dtype dtype,
                                           enum vka_dtype kept, const struct attention_case *c)
{
    if (c->kind == KIND_SCALED && plan->path == VKA_PATH_UNFUSED)
        return VKA_OK; /* which does not read quantised caches */
    struct vka_device *device = plan->device;
    enum vka_status status = VKA_OK;
    struct vka_tensor *t[OPERAND_COUNT] = {NULL};
    struct vka_cache *cache = NULL;
    bool cached = c->kind >= KIND_DECODE;
    uint32_t n_new = cached || c->kind == KIND_PAST ? c->n_q : c->n_kv;
    struct vka_attention_op op = {.struct_size = sizeof op};
    TRY(vka_tensor_create(device, dtype, 4, (const uint32_t[]){1, N_HEAD, c->n_q, c->head_dim},
                          &t[Q]));
    TRY(vka_tensor_create(device, dtype, 4, (const uint32_t[]){1, N_KV_HEAD, n_new, c->head_dim},
                          &t[K]));
    TRY(vka_tensor_create(device, dtype, 4, (const uint32_t[]){1, N_KV_HEAD, n_new, c->head_dim},
                          &t[V]));
    TRY(vka_tensor_create(device, dtype, 4, (const uint32_t[]){1, N_HEAD, c->n_q, c->head_dim},
                          &t[OPERAND_OUTPUT]));
    if (cached)
        TRY(vka_cache_create(device,
                             VKA_INFO(vka_cache_info, .batch = 1, .n_kv_head = N_KV_HEAD,
                                      .head_dim = c->head_dim, .capacity = c->n_kv,
                                      .key_dtype = kept, .value_dtype = kept,
                                      .page_size = c->kind == KIND_PAGED ? 16 : 0),
                             &cache));
    if (c->kind == KIND_GENERAL)
        TRY(set_general(device, dtype, c, t, &op.options));
    if (c->kind == KIND_PAST)
        TRY(set_past(device, dtype, c, t, &op));
    op.options.causal = c->kind != KIND_PLAIN;
    op.options.exact_softmax = c->kind == KIND_GENERAL && plan->path == VKA_PATH_UNFUSED;
    op.q = t[Q];
    op.k = t[K];
    op.v = t[V];
    op.output = t[OPERAND_OUTPUT];
    op.cache = cache;
    TRY(vka_plan_add_attention(plan, &op));
fail:
    vka_cache_destroy(&cache);
    for (int i = 0; i < OPERAND_COUNT; i++)
        vka_tensor_destroy(&t[i]);
    return status;
}

/* An embedding, of each type of table. */
static enum vka_status plan_tables(struct vka_plan *plan, enum vka_dtype dtype)
{
    enum vka_status status = VKA_OK;
    const uint32_t n = 20, size[2] = {1024, 512};
    struct vka_tensor *ids = NULL, *rows = NULL, *table = NULL;
    TRY(vka_tensor_create(plan->device, VKA_I32, 1, &n, &ids));
    TRY(vka_tensor_create(plan->device, dtype, 2, (const uint32_t[]){n, 512}, &rows));
    for (EACH_TYPE(type, type_is_table)) {
        TRY(vka_tensor_create(plan->device, type, 2, size, &table));
        TRY(vka_plan_add_gather(
            plan, VKA_INFO(vka_gather_op, .table = table, .ids = ids, .output = rows)));
        vka_tensor_destroy(&table);
    }
fail:
    vka_tensor_destroy(&ids);
    vka_tensor_destroy(&rows);
    vka_tensor_destroy(&table);
    return status;
}

/* The example of each operation; of float32 also each value of its enumerations that goes with the
 * rest. */
static enum vka_status plan_examples(struct vka_plan *plan, enum vka_dtype dtype)
{
    enum vka_status status = VKA_OK;
    struct instance made = {0};
    for (size_t i = 0; i < N_EXAMPLE; i++) {
        TRY(example_create(&examples[i], plan->device, dtype, &made));
        TRY(examples[i].add(plan, made.op));
        for (size_t j = 0; j < examples[i].n_field; j++) {
            const struct field *f = &examples[i].fields[j];
            for (uint32_t value = 0; f->fault == ENUM && value < f->limit && dtype == VKA_F32;
                 value++) {
                field_set(f, made.op, value);
                enum vka_status other = examples[i].add(plan, made.op);
                if (other != VKA_OK && other != VKA_INVALID && other != VKA_UNSUPPORTED)
                    TRY(other);
            }
            if (f->fault == ENUM)
                field_set(f, made.op, f->number);
        }
        example_destroy(&made);
    }
fail:
    example_destroy(&made);
    return status;
}

/* Gradients of causal attention with a softcap and sinks; then that of a mask, which is not fused. */
static enum vka_status plan_train_attention(struct vka_plan *plan, enum vka_dtype dtype)
{
    enum vka_status status = VKA_OK;
    enum { X, Y, DY, DX, SUMS, SINKS, DSINKS, ADDED, DADDED, N_MADE };
    static const struct {
        enum vka_dtype dtype;
        uint32_t rank, size[4];
    } made[N_MADE] = {
        [X] = {VKA_DTYPE_COUNT, 4, {1, 4, 64, 16}},
        [Y] = {VKA_DTYPE_COUNT, 4, {1, 4, 64, 16}},
        [DY] = {VKA_DTYPE_COUNT, 4, {1, 4, 64, 16}},
        [DX] = {VKA_DTYPE_COUNT, 4, {1, 4, 64, 16}},
        [SUMS] = {VKA_F32, 3, {1, 4, 64}},
        [SINKS] = {VKA_F32, 1, {4}},
        [DSINKS] = {VKA_F32, 1, {4}},
        [ADDED] = {VKA_F32, 2, {64, 64}},
        [DADDED] = {VKA_F32, 2, {64, 64}},
    };
    struct vka_tensor *t[N_MADE] = {NULL};
    for (int i = 0; i < N_MADE; i++)
        TRY(vka_tensor_create(plan->device,
                              made[i].dtype == VKA_DTYPE_COUNT ? dtype : made[i].dtype,
                              made[i].rank, made[i].size, &t[i]));
    const struct vka_attention_op forward = {
        .struct_size = sizeof forward,
        .q = t[X],
        .k = t[X],
        .v = t[X],
        .output = t[Y],
        .options = {.causal = true, .softcap = 30, .log_sum_exp = t[SUMS], .sink = t[SINKS]},
    };
    TRY(vka_plan_add_attention_backward(
        plan, VKA_INFO(vka_attention_backward_op, .forward = &forward, .output_gradient = t[DY],
                       .q_gradient = {t[DX], false}, .sink_gradient = {t[DSINKS], false})));
    struct vka_attention_op masked = forward;
    masked.options.mask = t[ADDED];
    if (plan->path != VKA_PATH_FUSED)
        TRY(vka_plan_add_attention_backward(
            plan, VKA_INFO(vka_attention_backward_op, .forward = &masked, .output_gradient = t[DY],
                           .q_gradient = {t[DX], false}, .mask_gradient = {t[DADDED], false})));
fail:
    for (int i = 0; i < N_MADE; i++)
        vka_tensor_destroy(&t[i]);
    return status;
}

static enum vka_status add_problems(struct vka_plan *plan, enum vka_dtype dtype)
{
    enum vka_status status = VKA_OK;
    for (size_t i = 0; i < COUNTOF(linear_cases); i++)
        TRY(plan_linear(plan, dtype, dtype, VKA_F32, linear_cases[i]));
    for (size_t i = 0; i < COUNTOF(attention_cases); i++) {
        if (attention_cases[i].kind != KIND_SCALED)
            TRY(plan_attention_case(plan, dtype, dtype, &attention_cases[i]));
        for (EACH_TYPE(kept, dtype_is_scaled))
            if (attention_cases[i].kind == KIND_SCALED)
                TRY(plan_attention_case(plan, dtype, kept, &attention_cases[i]));
    }
    TRY(plan_tables(plan, dtype));
    TRY(plan_conv_problem(plan, dtype, 512));
    TRY(plan_linear_attention_problem(plan, dtype, VKA_RULE_GATED_DELTA, false, 1));
    TRY(plan_linear_attention_problem(plan, dtype, VKA_RULE_GATED_DELTA, false, 512));
    TRY(plan_train_attention(plan, dtype));
fail:
    return status;
}

/* In plans of their own, as not every kernel of products takes them. */
static enum vka_status add_quantised(struct vka_plan *plan, enum vka_dtype dtype)
{
    return plan_linear(plan, dtype, VKA_Q8_0, VKA_F32, (const uint32_t[]){1, 1024, 1024});
}

static enum vka_status add_integers(struct vka_plan *plan, enum vka_dtype dtype)
{
    return plan_linear(plan, dtype, VKA_Q8_0, VKA_I8, (const uint32_t[]){1, 1024, 1024});
}

/* The plan is only looked at: finishing it would record and allocate. */
static bool list_problems(struct vka_device *device, const struct view *view,
                          struct pipeline_list *list)
{
    struct vka_plan *plan = NULL;
    enum vka_status status = vka_plan_create(
        device, VKA_INFO(vka_plan_info, .path = view->path, .count_nonfinite = true), &plan);
    if (status == VKA_OK)
        status = view->add(plan, view->dtype);
    if (plan)
        add_keys(list, plan, view);
    vka_plan_destroy(&plan);
    if (status != VKA_OK && view->only == KERNEL_COUNT)
        fprintf(stderr, "no plan in %s: %s: %s\n", vka_dtype_name(view->dtype),
                vka_status_name(status), vka_device_error(device));
    return status == VKA_OK;
}

static bool is_listed(const struct pipeline_list *list, enum kernel kernel)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->rows[i].key.kernel == kernel)
            return true;
    return false;
}

/* The kernel that is always in a plan with this one. */
static enum kernel partner(enum kernel kernel)
{
    return kernel == KERNEL_linear_chunked_coop      ? KERNEL_linear_weights_coop
           : kernel == KERNEL_linear_weights_coop    ? KERNEL_linear_chunked_coop
           : kernel == KERNEL_linear_chunked_address ? KERNEL_linear_weights_address
           : kernel == KERNEL_linear_weights_address ? KERNEL_linear_chunked_address
                                                     : kernel;
}

/* Rows of one family begin alike: what stands before the first underscore. */
static struct kernel_set rivals(enum kernel kernel)
{
    const char *name = kernel_table[kernel].name;
    struct kernel_set mask = NO_KERNELS;
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (k != (int)kernel && k != (int)partner(kernel) &&
            strncmp(kernel_table[k].name, name, strcspn(name, "_") + 1) == 0)
            set_add(&mask, k);
    return mask;
}

/* The choice takes them as they come: a path would refuse some of their options. */
static bool list_examples(struct vka_device *device, struct pipeline_list *list)
{
    bool ok = true;
    for (EACH_TYPE(dtype, dtype_is_float)) {
        const struct view view = {dtype, VKA_PATH_AUTO, KERNEL_COUNT, false, plan_examples};
        ok &= list_problems(device, &view, list);
    }
    return ok;
}

/* AUTO and UNFUSED take tune's choices; FUSED takes a kernel where tune would rather not. */
static bool list_all(struct vka_device *device, enum kernel only, struct pipeline_list *list)
{
    static const enum vka_path paths[] = {VKA_PATH_AUTO, VKA_PATH_UNFUSED, VKA_PATH_FUSED};
    bool ok = true;
    for (EACH_TYPE(dtype, dtype_is_float))
        for (size_t i = 0; i < COUNTOF(paths); i++) {
            struct view view = {dtype, paths[i], only, false, add_problems};
            view.forced = only != KERNEL_COUNT || view.path == VKA_PATH_FUSED;
            /* Not every problem can be planned with one kernel of a family alone. */
            ok &= list_problems(device, &view, list) || only != KERNEL_COUNT;
            view.add = add_quantised;
            ok &= list_problems(device, &view, list) || only != KERNEL_COUNT;
            view.add = add_integers;
            ok &= list_problems(device, &view, list) || only != KERNEL_COUNT;
        }
    return ok;
}

bool pipeline_list_fill(struct vka_device *device, struct pipeline_list *list)
{
    /* Only its self-test has it in a plan. */
    list->rows[list->n++] =
        (struct listed_pipeline){.key.kernel = KERNEL_loop_probe, .detail = "loops"};
    bool ok = list_all(device, KERNEL_COUNT, list) && list_examples(device, list);
    for (int k = 0; k < KERNEL_COUNT; k++) {
        enum kernel kernel = (enum kernel)k;
        if (is_listed(list, kernel) || kernel_missing(kernel, &device->caps))
            continue;
        device->caps.without = rivals(kernel);
        ok &= list_all(device, kernel, list);
        device->caps.without = NO_KERNELS;
        if (!is_listed(list, kernel)) {
            fprintf(stderr, "no problem uses %s\n", kernel_table[k].name);
            ok = false;
        }
    }
    return ok && list->n < MAX_PIPELINES;
}
