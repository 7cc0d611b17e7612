/* The problems that matter: what models do, in the sizes at which time is spent. Heads of 64, 128
 * and 256 in prefill, one query of a model with 32 heads by 8 in decode, products of a layer. */
#include <vkattn/vkattn_train.h>

#include "pipeline_list.h"
#include "state_problems.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PREFILL_HEADS 8
#define TENSORS 6      /* most of an operation */
#define ROW_WIDTH 4096 /* outputs and inputs of products with few rows */
#define LARGE_SIZE 8192
#define LARGE_PROCESSORS 132

struct problem {
    char name[64];
    enum vka_dtype dtype;
    uint32_t n_head, n_kv_head, n_q, n_kv, head_dim; /* attention */
    bool causal, log_sum;                            /* log_sum: with log_sum_exp */
    bool exact;            /* with exact_softmax, unfused, and weights that are returned */
    uint32_t m, n, k;      /* linear, where m is not 0 */
    enum vka_dtype weight; /* of linear, where it is quantised; else 0 */
    bool accumulate;       /* of linear */
    bool integers;         /* of linear: quantised activations */
    enum vka_dtype cache;  /* of keys and values, where they are quantised; else 0 */
};

/* Keys and values of a decoding step come from a cache that holds all but one. */
static enum vka_status plan_attention_problem(struct vka_plan *plan, const struct problem *p)
{
    struct vka_device *device = plan->device;
    enum vka_status status = VKA_OK;
    const uint32_t q_shape[4] = {1, p->n_head, p->n_q, p->head_dim};
    const uint32_t kv_shape[4] = {1, p->n_kv_head, p->n_q, p->head_dim};
    struct vka_tensor *q = NULL, *k = NULL, *v = NULL, *output = NULL, *log_sum = NULL;
    struct vka_tensor *scores = NULL;
    struct vka_cache *cache = NULL;
    TRY(vka_tensor_create(device, p->dtype, 4, q_shape, &q));
    TRY(vka_tensor_create(device, p->dtype, 4, kv_shape, &k));
    TRY(vka_tensor_create(device, p->dtype, 4, kv_shape, &v));
    TRY(vka_tensor_create(device, p->dtype, 4, q_shape, &output));
    if (p->log_sum)
        TRY(vka_tensor_create(device, VKA_F32, 3, q_shape, &log_sum));
    if (p->exact)
        TRY(vka_tensor_create(device, p->dtype, 4,
                              (const uint32_t[]){1, p->n_head, p->n_q, p->n_kv}, &scores));
    if (p->n_q < p->n_kv)
        TRY(vka_cache_create(device,
                             VKA_INFO(vka_cache_info, .batch = 1, .n_kv_head = p->n_kv_head,
                                      .head_dim = p->head_dim, .capacity = p->n_kv,
                                      .key_dtype = p->cache ? p->cache : p->dtype,
                                      .value_dtype = p->cache ? p->cache : p->dtype),
                             &cache));
    TRY(vka_plan_add_attention(
        plan, VKA_INFO(vka_attention_op, .q = q, .k = k, .v = v, .output = output, .cache = cache,
                       .options.causal = p->causal, .options.log_sum_exp = log_sum,
                       .options.exact_softmax = p->exact, .options.scores = scores,
                       .options.scores_kind = scores ? VKA_SCORES_SOFTMAX : VKA_SCORES_NONE)));
fail:
    vka_cache_destroy(&cache);
    vka_tensor_destroy(&q);
    vka_tensor_destroy(&k);
    vka_tensor_destroy(&v);
    vka_tensor_destroy(&output);
    vka_tensor_destroy(&log_sum);
    vka_tensor_destroy(&scores);
    return status;
}

static enum vka_status plan_linear_problem(struct vka_plan *plan, const struct problem *p)
{
    struct vka_device *device = plan->device;
    enum vka_status status = VKA_OK;
    struct vka_tensor *input = NULL, *weight = NULL, *output = NULL;
    TRY(vka_tensor_create(device, p->dtype, 2, (const uint32_t[]){p->m, p->k}, &input));
    TRY(vka_tensor_create(device, p->weight ? p->weight : p->dtype, 2,
                          (const uint32_t[]){p->n, p->k}, &weight));
    TRY(vka_tensor_create(device, p->dtype, 2, (const uint32_t[]){p->m, p->n}, &output));
    TRY(vka_plan_add_linear(plan, VKA_INFO(vka_linear_op, .input = input, .weight = weight,
                                           .output = output, .accumulate = p->accumulate,
                                           .activations = p->integers ? VKA_I8 : VKA_F32)));
fail:
    vka_tensor_destroy(&input);
    vka_tensor_destroy(&weight);
    vka_tensor_destroy(&output);
    return status;
}

/* Adds the pipelines of a plan that was made with a status, or the sentence of one that the device
 * cannot run; false where it is another error, or there is no room. */
static bool list_plan(struct vka_device *device, struct vka_plan *plan, enum vka_status status,
                      enum vka_dtype dtype, const char *name, struct pipeline_list *list)
{
    const size_t used = strlen(list->unsupported), room = sizeof list->unsupported - used;
    if (status == VKA_OK) {
        pipeline_list_add(list, plan, dtype, name);
        return true;
    }
    if (status == VKA_UNSUPPORTED && (size_t)snprintf(list->unsupported + used, room, "%s: %s\n",
                                                      name, vka_device_error(device)) < room)
        return true;
    fprintf(stderr, "no plan of %s: %s: %s\n", name, vka_status_name(status),
            vka_device_error(device));
    list->unsupported[used] = '\0';
    return false;
}

/* The plan is only looked at: finishing it would record and allocate. */
static bool list_problem(struct vka_device *device, const struct problem *p,
                         struct pipeline_list *list)
{
    struct vka_plan *plan = NULL;
    enum vka_status status =
        vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = VKA_NO_BUDGET), &plan);
    if (status == VKA_OK)
        status = p->m ? plan_linear_problem(plan, p) : plan_attention_problem(plan, p);
    bool ok = list_plan(device, plan, status, p->dtype, p->name, list);
    vka_plan_destroy(&plan);
    return ok;
}

static bool list_linear(struct vka_device *device, enum vka_dtype dtype, uint32_t m, uint32_t n,
                        uint32_t k, struct pipeline_list *list)
{
    struct problem p = {.dtype = dtype, .m = m, .n = n, .k = k};
    snprintf(p.name, sizeof p.name, "linear %s %" PRIu32 "x%" PRIu32 "x%" PRIu32,
             vka_dtype_name(dtype), m, n, k);
    return list_problem(device, &p, list);
}

/* A residual connection. */
static bool list_accumulated(struct vka_device *device, enum vka_dtype dtype, uint32_t m,
                             struct pipeline_list *list)
{
    struct problem p = {.dtype = dtype, .m = m, .n = ROW_WIDTH, .k = ROW_WIDTH, .accumulate = true};
    snprintf(p.name, sizeof p.name, "linear %s %" PRIu32 "x%dx%d added", vka_dtype_name(dtype), m,
             ROW_WIDTH, ROW_WIDTH);
    return list_problem(device, &p, list);
}

/* Products that fill a large chip, which few null devices say that they are: of whole tiles, and a
 * residual connection of ragged ones. */
static bool list_large(struct vka_device *device, struct pipeline_list *list)
{
    const uint32_t processors = device->caps.processors;
    bool ok = true;
    device->caps.processors = LARGE_PROCESSORS;
    for (int added = 0; added < 2; added++) {
        struct problem p = {.dtype = VKA_F16,
                            .m = LARGE_SIZE - (added ? 1 : 0),
                            .n = LARGE_SIZE,
                            .k = LARGE_SIZE - (added ? 8 : 0),
                            .accumulate = added};
        snprintf(p.name, sizeof p.name,
                 "linear f16 %" PRIu32 "x%" PRIu32 "x%" PRIu32 "%s, %d processors", p.m, p.n, p.k,
                 added ? " added" : "", LARGE_PROCESSORS);
        ok &= list_problem(device, &p, list);
    }
    device->caps.processors = processors;
    return ok;
}

static bool list_quantised(struct vka_device *device, enum vka_dtype dtype, enum vka_dtype weight,
                           uint32_t m, struct pipeline_list *list)
{
    struct problem p = {.dtype = dtype, .m = m, .n = ROW_WIDTH, .k = ROW_WIDTH, .weight = weight};
    snprintf(p.name, sizeof p.name, "linear %s*%s %" PRIu32 "x%dx%d", vka_dtype_name(dtype),
             vka_dtype_name(weight), m, ROW_WIDTH, ROW_WIDTH);
    return list_problem(device, &p, list);
}

static bool list_integers(struct vka_device *device, enum vka_dtype weight, uint32_t m,
                          struct pipeline_list *list)
{
    struct problem p = {.m = m, .n = ROW_WIDTH, .k = ROW_WIDTH, .weight = weight, .integers = true};
    snprintf(p.name, sizeof p.name, "linear i8*%s %" PRIu32 "x%dx%d", vka_dtype_name(weight), m,
             ROW_WIDTH, ROW_WIDTH);
    return list_problem(device, &p, list);
}

static bool list_exact(struct vka_device *device, enum vka_dtype dtype, struct pipeline_list *list)
{
    struct problem p = {.dtype = dtype,
                        .n_head = PREFILL_HEADS,
                        .n_kv_head = PREFILL_HEADS,
                        .n_q = 512,
                        .n_kv = 512,
                        .head_dim = 64,
                        .causal = true,
                        .exact = true};
    snprintf(p.name, sizeof p.name, "attention %s with the exact softmax", vka_dtype_name(dtype));
    return list_problem(device, &p, list);
}

static bool list_prefill(struct vka_device *device, enum vka_dtype dtype, uint32_t head_dim,
                         uint32_t length, bool causal, struct pipeline_list *list)
{
    struct problem p = {.dtype = dtype,
                        .n_head = PREFILL_HEADS,
                        .n_kv_head = PREFILL_HEADS,
                        .n_q = length,
                        .n_kv = length,
                        .head_dim = head_dim,
                        .causal = causal};
    snprintf(p.name, sizeof p.name, "prefill %s %s d%" PRIu32 " %" PRIu32, vka_dtype_name(dtype),
             causal ? "causal" : "full", head_dim, length);
    return list_problem(device, &p, list);
}

/* Training and merging ask for the log-sum-exps of long rows. */
static bool list_log_sum(struct vka_device *device, enum vka_dtype dtype, uint32_t n_q,
                         struct pipeline_list *list)
{
    struct problem p = {.dtype = dtype,
                        .n_head = n_q == 1 ? 32 : PREFILL_HEADS,
                        .n_kv_head = 8,
                        .n_q = n_q,
                        .n_kv = 8192,
                        .head_dim = 128,
                        .causal = true,
                        .log_sum = true};
    snprintf(p.name, sizeof p.name, "%s %s d128 8192 log-sum-exp", n_q == 1 ? "decode" : "prefill",
             vka_dtype_name(dtype));
    return list_problem(device, &p, list);
}

static bool list_decode(struct vka_device *device, enum vka_dtype dtype, enum vka_dtype cache,
                        uint32_t n_kv, struct pipeline_list *list)
{
    struct problem p = {.dtype = dtype,
                        .n_head = 32,
                        .n_kv_head = 8,
                        .n_q = 1,
                        .n_kv = n_kv,
                        .head_dim = 128,
                        .causal = true,
                        .cache = cache};
    snprintf(p.name, sizeof p.name, "decode %s%s%s d128 %" PRIu32, vka_dtype_name(dtype),
             cache ? "*" : "", cache ? vka_dtype_name(cache) : "", n_kv);
    return list_problem(device, &p, list);
}

/* Prefill by a kernel of attention_coop2 where it is usable but another kernel is chosen. */
static bool list_coop2(struct vka_device *device, enum kernel kernel, struct pipeline_list *list)
{
    bool ok = true;
    if (kernel_missing(kernel, &device->caps))
        return true;
    const struct kernel_set without = device->caps.without;
    set_join(&device->caps.without,
             set_minus(KERNEL_SET(KERNEL_attention_coop_f16, KERNEL_attention_coop2_f16,
                                  KERNEL_attention_coop2_ext_f16, KERNEL_attention_tile,
                                  KERNEL_attention_tile_mixed, KERNEL_attention_row),
                       KERNEL_SET(kernel)));
    for (uint32_t dim = 64; dim <= 128; dim *= 2)
        ok &= list_prefill(device, VKA_F16, dim, 8192, false, list);
    device->caps.without = without;
    return ok;
}

/* Operations around attention: of a step with so many rows of ROW_WIDTH. */
enum model_op {
    MODEL_NORM,
    MODEL_GATE,
    MODEL_EMBEDDING,
    MODEL_ROTARY,
    MODEL_POOL,
    MODEL_TOKEN,
    MODEL_OPS
};
static const char *const model_names[MODEL_OPS] = {"norm",   "gate", "embedding",
                                                   "rotary", "pool", "token"};

static enum vka_status plan_model_op(struct vka_plan *plan, enum model_op op, enum vka_dtype dtype,
                                     uint32_t m, struct vka_tensor *t[4])
{
    const uint32_t rows[2] = {m, ROW_WIDTH}, width = ROW_WIDTH, table[2] = {32000, ROW_WIDTH};
    const uint32_t heads[4] = {1, 32, m, 128}, places[2] = {1, m};
    struct vka_device *device = plan->device;
    if (op == MODEL_ROTARY) {
        ENSURE(vka_tensor_create(device, dtype, 4, heads, &t[0]));
        ENSURE(vka_tensor_create(device, VKA_I32, 2, places, &t[1]));
        return vka_plan_add_rotary(
            plan, VKA_INFO(vka_rotary_op, .input = t[0], .positions = t[1], .output = t[0]));
    }
    if (op == MODEL_POOL) {
        ENSURE(vka_tensor_create(device, dtype, 3, (const uint32_t[]){1, m, ROW_WIDTH}, &t[0]));
        ENSURE(vka_tensor_create(device, dtype, 2, (const uint32_t[]){1, ROW_WIDTH}, &t[1]));
        return vka_plan_add_pool(plan, VKA_INFO(vka_pool_op, .input = t[0], .output = t[1]));
    }
    ENSURE(vka_tensor_create(device, dtype, 2, rows, &t[0]));
    ENSURE(vka_tensor_create(device, dtype, 2, rows, &t[1]));
    ENSURE(vka_tensor_create(device, VKA_I32, 1, &m, &t[2]));
    if (op == MODEL_NORM) {
        ENSURE(vka_tensor_create(device, VKA_F32, 1, &width, &t[3]));
        return vka_plan_add_norm(plan, VKA_INFO(vka_norm_op, .input = t[0], .residual = t[1],
                                                .sum = t[1], .weight = t[3], .output = t[0]));
    }
    if (op == MODEL_GATE)
        return vka_plan_add_activation(plan,
                                       VKA_INFO(vka_activation_op, .kind = VKA_SILU, .input = t[0],
                                                .multiplier = t[1], .output = t[0]));
    if (op == MODEL_EMBEDDING) {
        ENSURE(vka_tensor_create(device, VKA_Q4_0, 2, table, &t[3]));
        return vka_plan_add_gather(
            plan, VKA_INFO(vka_gather_op, .table = t[3], .ids = t[2], .output = t[0]));
    }
    ENSURE(vka_plan_add_argmax(plan, VKA_INFO(vka_argmax_op, .input = t[0], .output = t[2])));
    return vka_plan_add_sample(plan, VKA_INFO(vka_sample_op, .logits = t[0], .temperature = 1,
                                              .top_k = 40, .top_p = 0.9f, .output = t[2]));
}

/* Gradients and a step of training, of rows as above. */
enum train_op {
    TRAIN_GATE,
    TRAIN_NORM,
    TRAIN_EMBEDDING,
    TRAIN_LOSS,
    TRAIN_STEP,
    TRAIN_ATTENTION,
    TRAIN_ATTENTION_64,
    TRAIN_OPS
};
static const char *const train_names[TRAIN_OPS] = {"gate backward",
                                                   "norm backward",
                                                   "embedding backward",
                                                   "loss",
                                                   "step",
                                                   "attention backward",
                                                   "attention backward of heads of 64"};

/* Causal. */
static enum vka_status plan_train_attention(struct vka_plan *plan, enum vka_dtype dtype, uint32_t m,
                                            uint32_t dim, struct vka_tensor *t[TENSORS])
{
    const uint32_t heads[4] = {1, ROW_WIDTH / dim, m, dim};
    struct vka_attention_op forward = {.struct_size = sizeof forward, .options.causal = true};
    for (int i = 0; i < 5; i++)
        ENSURE(vka_tensor_create(plan->device, dtype, 4, heads, &t[i]));
    ENSURE(vka_tensor_create(plan->device, VKA_F32, 3, heads, &t[5]));
    forward.q = forward.k = forward.v = t[0];
    forward.output = t[1];
    forward.options.log_sum_exp = t[5];
    return vka_plan_add_attention_backward(
        plan,
        VKA_INFO(vka_attention_backward_op, .forward = &forward, .output_gradient = t[1],
                 .q_gradient.tensor = t[2], .k_gradient.tensor = t[3], .v_gradient.tensor = t[4]));
}

static enum vka_status plan_train_op(struct vka_plan *plan, enum train_op op, enum vka_dtype dtype,
                                     uint32_t m, struct vka_tensor *t[TENSORS])
{
    const uint32_t rows[2] = {m, ROW_WIDTH}, width = ROW_WIDTH, one = 1;
    struct vka_device *device = plan->device;
    if (op == TRAIN_ATTENTION || op == TRAIN_ATTENTION_64)
        return plan_train_attention(plan, dtype, m, op == TRAIN_ATTENTION ? 128 : 64, t);
    ENSURE(vka_tensor_create(device, dtype, 2, rows, &t[0]));
    ENSURE(vka_tensor_create(device, dtype, 2, rows, &t[1]));
    if (op == TRAIN_GATE) {
        ENSURE(vka_tensor_create(device, VKA_F32, 1, &width, &t[2]));
        ENSURE(vka_plan_add_activation_backward(
            plan, VKA_INFO(vka_activation_backward_op, .kind = VKA_GELU, .input = t[0],
                           .output_gradient = t[1], .input_gradient.tensor = t[1])));
        return vka_plan_add_linear_backward(plan, VKA_INFO(vka_linear_backward_op,
                                                           .output_gradient = t[1],
                                                           .bias_gradient.tensor = t[2]));
    }
    if (op == TRAIN_NORM) {
        ENSURE(vka_tensor_create(device, VKA_F32, 1, &width, &t[2]));
        ENSURE(vka_tensor_create(device, dtype, 2, rows, &t[3]));
        return vka_plan_add_norm_backward(
            plan, VKA_INFO(vka_norm_backward_op, .input = t[0], .output_gradient = t[1],
                           .input_gradient.tensor = t[3], .weight_gradient.tensor = t[2]));
    }
    ENSURE(vka_tensor_create(device, op == TRAIN_STEP ? VKA_F32 : VKA_I32, op == TRAIN_STEP ? 2 : 1,
                             rows, &t[2]));
    if (op == TRAIN_EMBEDDING)
        return vka_plan_add_gather_backward(plan, VKA_INFO(vka_gather_backward_op, .ids = t[2],
                                                           .output_gradient = t[0],
                                                           .table_gradient.tensor = t[1]));
    if (op == TRAIN_LOSS) {
        ENSURE(vka_tensor_create(device, VKA_F32, 1, &one, &t[3]));
        return vka_plan_add_cross_entropy(plan,
                                          VKA_INFO(vka_cross_entropy_op, .logits = t[0],
                                                   .labels = t[2], .loss = t[3], .gradient = t[1]));
    }
    ENSURE(vka_tensor_create(device, VKA_F32, 2, rows, &t[3]));
    ENSURE(vka_tensor_create(device, VKA_I32, 1, &one, &t[4]));
    return vka_plan_add_optimiser(
        plan, VKA_INFO(vka_optimiser_op, .kind = VKA_ADAMW, .learning_rate = 1, .step = t[4],
                       .n_parameter = 1,
                       .parameters = &(const struct vka_parameter){t[0], t[1], t[2], t[3]}));
}

static bool list_model(struct vka_device *device, enum vka_dtype dtype, uint32_t m,
                       struct pipeline_list *list)
{
    bool ok = true;
    for (int i = 0; i < MODEL_OPS + TRAIN_OPS; i++) {
        const bool train = i >= MODEL_OPS;
        struct vka_plan *plan = NULL;
        struct vka_tensor *t[TENSORS] = {NULL};
        char name[64];
        snprintf(name, sizeof name, "%s %s %" PRIu32 "x%d",
                 train ? train_names[i - MODEL_OPS] : model_names[i], vka_dtype_name(dtype), m,
                 ROW_WIDTH);
        enum vka_status status =
            vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = VKA_NO_BUDGET), &plan);
        if (status == VKA_OK)
            status = train ? plan_train_op(plan, (enum train_op)(i - MODEL_OPS), dtype, m, t)
                           : plan_model_op(plan, (enum model_op)i, dtype, m, t);
        ok &= list_plan(device, plan, status, dtype, name, list);
        vka_plan_destroy(&plan);
        for (int j = 0; j < TENSORS; j++)
            vka_tensor_destroy(&t[j]);
    }
    return ok;
}

/* Layers with a state. */
enum state_op {
    STATE_CONV,
    STATE_DELTA_KEY,
    STATE_DELTA_KEY_BACKWARD,
    STATE_DELTA_BACKWARD,
    STATE_DELTA,
    STATE_GATED,
    STATE_CONV_BACKWARD,
    STATE_OPS
};
static const char *const state_names[STATE_OPS] = {
    "causal conv",          "gated delta by key", "gated delta by key backward",
    "gated delta backward", "gated delta",        "gated",
    "causal conv backward"};

static enum vka_status plan_state(struct vka_plan *plan, enum vka_dtype dtype, enum state_op op,
                                  uint32_t n)
{
    switch ((int)op) {
    case STATE_CONV:
        return plan_conv_problem(plan, dtype, n);
    case STATE_CONV_BACKWARD:
        return plan_conv_gradients(plan, dtype, n);
    case STATE_DELTA_KEY_BACKWARD:
    case STATE_DELTA_BACKWARD:
        return plan_linear_backward_problem(plan, dtype, op == STATE_DELTA_KEY_BACKWARD, n);
    default:
        return plan_linear_attention_problem(
            plan, dtype, op == STATE_GATED ? VKA_RULE_GATED : VKA_RULE_GATED_DELTA,
            op == STATE_DELTA_KEY, n);
    }
}

/* From an operation on; many rows of some go by chunks. */
static bool list_states(struct vka_device *device, enum vka_dtype dtype, enum state_op first,
                        uint32_t n, struct pipeline_list *list)
{
    bool ok = true;
    for (int i = (int)first; i < STATE_OPS; i++) {
        struct vka_plan *plan = NULL;
        char name[64];
        snprintf(name, sizeof name, "%s %s %" PRIu32, state_names[i], vka_dtype_name(dtype), n);
        enum vka_status status =
            vka_plan_create(device, VKA_INFO(vka_plan_info, .submit_budget = VKA_NO_BUDGET), &plan);
        if (status == VKA_OK)
            status = plan_state(plan, dtype, (enum state_op)i, n);
        ok &= list_plan(device, plan, status, dtype, name, list);
        vka_plan_destroy(&plan);
    }
    return ok;
}

bool pipeline_list_problems(struct vka_device *device, struct pipeline_list *list)
{
    static const enum vka_dtype dtypes[] = {VKA_F32, VKA_F16};
    static const enum vka_dtype weights[] = {VKA_Q8_0, VKA_Q4_0, VKA_Q4_K, VKA_Q6_K};
    /* All other types of blocks. */
    static const enum vka_dtype more[] = {
        VKA_Q5_K,        VKA_Q2_K,    VKA_Q3_K,   VKA_IQ4_NL,  VKA_NVFP4,      VKA_NF4_G64,
        VKA_F8_E4M3_G64, VKA_IQ3_S,   VKA_IQ2_S,  VKA_IQ1_M,   VKA_TQ1_0,      VKA_Q4_1,
        VKA_Q5_0,        VKA_Q5_1,    VKA_MXFP4,  VKA_IQ4_XS,  VKA_TQ2_0,      VKA_IQ1_S,
        VKA_IQ3_XXS,     VKA_IQ2_XXS, VKA_IQ2_XS, VKA_I4_G128, VKA_F8_E5M2_G64};
    bool ok = true;
    for (size_t t = 0; t < COUNTOF(dtypes); t++) {
        enum vka_dtype dtype = dtypes[t];
        for (uint32_t dim = 64; dim <= 256; dim *= 2)
            for (uint32_t length = 512; length <= 8192; length *= 16)
                for (int causal = 0; causal < 2; causal++)
                    ok &= list_prefill(device, dtype, dim, length, causal, list);
        for (uint32_t n_kv = 4096; n_kv <= 32768; n_kv *= 8)
            ok &= list_decode(device, dtype, 0, n_kv, list);
        ok &= list_log_sum(device, dtype, 8192, list);
        ok &= list_log_sum(device, dtype, 1, list);
        ok &= list_decode(device, dtype, VKA_Q8_0, 4096, list);
        ok &= list_decode(device, dtype, VKA_Q4_0, 4096, list);
        for (uint32_t size = 512; size <= 4096; size *= 2)
            ok &= list_linear(device, dtype, size, size, size, list);
        for (uint32_t rows = 1; rows <= 32; rows *= 2)
            ok &= list_linear(device, dtype, rows, ROW_WIDTH, ROW_WIDTH, list);
        ok &= list_exact(device, dtype, list);
        ok &= list_accumulated(device, dtype, 1, list);
        ok &= list_accumulated(device, dtype, 512, list);
        for (size_t w = 0; w < COUNTOF(weights); w++)
            ok &= list_quantised(device, dtype, weights[w], 1, list);
        ok &= list_quantised(device, dtype, VKA_Q8_0, 16, list);
        ok &= list_quantised(device, dtype, VKA_Q4_0, 512, list);
        ok &= list_model(device, dtype, 512, list);
        ok &= list_states(device, dtype, STATE_CONV, 1, list);
        ok &= list_states(device, dtype, STATE_DELTA, 512, list);
    }
    ok &= list_states(device, VKA_BF16, STATE_DELTA, 512, list); /* matrices of float16 */
    ok &= list_coop2(device, KERNEL_attention_coop2_f16, list);
    ok &= list_coop2(device, KERNEL_attention_coop2_ext_f16, list);
    ok &= list_large(device, list);
    for (size_t w = 0; w < COUNTOF(weights); w++)
        ok &= list_integers(device, weights[w], 1, list);
    ok &= list_integers(device, VKA_Q4_0, 8, list);
    for (size_t w = 0; w < COUNTOF(more); w++)
        ok &= list_quantised(device, VKA_F32, more[w], 1, list);
    return ok && list->n < MAX_PIPELINES;
}
