/* What the operations are made of; all run on a device that stays. */
#include "../patience.h"
#include "driver.h"
#include "operations.h"

#include <example.h>
#include <op/cache/cache.h>
#include <selftest/known_problem.h>
#include <vkattn/vkattn_model.h>
#include <vkattn/vkattn_train.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TENSORS 12
#define MAX_FLOATS 80000

struct objects {
    struct vka_device *device;
    struct vka_plan *plan;
    struct vka_cache *cache;
    struct vka_tensor *tensor[MAX_TENSORS];
    size_t n_tensor;
};

static void drop(struct objects *o)
{
    vka_plan_destroy(&o->plan);
    vka_cache_destroy(&o->cache);
    while (o->n_tensor > 0)
        vka_tensor_destroy(&o->tensor[--o->n_tensor]);
}

/* A tensor of ones, or of zeros, with its last two axes as they lie or exchanged. */
static enum vka_status make(struct objects *o, float value, bool exchanged, const uint32_t shape[4],
                            struct vka_tensor **made)
{
    enum vka_status status = VKA_OK;
    const uint32_t lies[4] = {shape[0], shape[1], shape[2 + exchanged], shape[3 - exchanged]};
    static float values[MAX_FLOATS];
    size_t n = (size_t)shape[0] * shape[1] * shape[2] * shape[3];
    if (n > COUNTOF(values))
        return VKA_INTERNAL;
    for (size_t i = 0; i < n; i++)
        values[i] = value;
    TRY(vka_tensor_create(o->device, VKA_F32, 4, lies, &o->tensor[o->n_tensor]));
    *made = o->tensor[o->n_tensor++];
    TRY(vka_tensor_write(*made, values, n * sizeof *values));
    if (exchanged) {
        TRY(vka_tensor_permute(*made, (const uint32_t[]){0, 1, 3, 2}, &o->tensor[o->n_tensor]));
        *made = o->tensor[o->n_tensor++];
    }
fail:
    return status;
}

#define MAKE(value, exchanged, made, ...) \
    TRY(make(&o, value, exchanged, (const uint32_t[4]){__VA_ARGS__}, made))

/* Runs the plan; right where all of the output is 1, as the weighted mean of ones is. */
static enum vka_status run_to_ones(struct objects *o, struct vka_tensor *output, bool *right)
{
    enum vka_status status = VKA_OK;
    static float got[MAX_FLOATS];
    TRY(vka_plan_finish(o->plan));
    TRY(vka_plan_run(o->plan, PATIENCE));
    TRY(vka_tensor_read(output, got, vka_tensor_size(output)));
    *right = true;
    for (size_t i = 0; i < vka_tensor_count(output); i++)
        *right &= fabsf(got[i] - 1) < 1e-5f;
fail:
    return status;
}

static enum vka_status solve_known(struct vka_device *device, int problem, bool *right)
{
    return known_problem_solve(device, (enum known_problem)problem, NO_KERNELS, KNOWN_HEAD_DIM,
                               right);
}

/* No operand has contiguous rows, and a past joins the keys. */
static enum vka_status attend_scattered(struct vka_device *device, int path, bool *right)
{
    enum vka_status status = VKA_OK;
    struct objects o = {.device = device};
    struct vka_nonfinite_info found;
    struct vka_attention_op op = {.struct_size = sizeof op};
    MAKE(0.5f, true, &op.q, 2, 4, 3, 7);
    MAKE(0.5f, true, &op.k, 2, 2, 5, 7);
    MAKE(1, true, &op.v, 2, 2, 5, 6);
    MAKE(0.5f, false, &op.past_key, 2, 2, 4, 7);
    MAKE(1, false, &op.past_value, 2, 2, 4, 6);
    MAKE(0, true, &op.output, 2, 4, 3, 6);
    MAKE(0, false, &op.options.scores, 2, 4, 3, 9);
    TRY(vka_tensor_create(device, VKA_F32, 3, (const uint32_t[]){2, 4, 3}, &o.tensor[o.n_tensor]));
    op.options.log_sum_exp = o.tensor[o.n_tensor++];
    op.options.scores_kind = VKA_SCORES_SOFTMAX;
    TRY(vka_plan_create(device,
                        VKA_INFO(vka_plan_info, .path = (enum vka_path)path, .timestamps = true,
                                 .count_nonfinite = true),
                        &o.plan));
    TRY(vka_plan_add_attention(o.plan, &op));
    TRY(run_to_ones(&o, op.output, right));
    TRY(vka_plan_nonfinite(o.plan, 0, &found));
    *right &= found.nan == 0 && found.inf == 0;
fail:
    drop(&o);
    return status;
}

/* Two blocks of keys, with the state between them. */
static enum vka_status attend_blocks(struct vka_device *device, int unused, bool *right)
{
    enum { BLOCK = 128, MANY = 1 << 20 }; /* queries: few rows of tiles would share the keys */
    (void)unused;
    enum vka_status status = VKA_OK;
    struct objects o = {.device = device};
    struct vka_attention_op op = {.struct_size = sizeof op, .n_key = 2 * BLOCK};
    uint64_t count = 0;
    MAKE(0.5f, false, &op.q, 1, 2, 3, 8);
    MAKE(0.5f, false, &op.k, 1, 1, BLOCK, 8);
    MAKE(1, false, &op.v, 1, 1, BLOCK, 8);
    MAKE(0, false, &op.output, 1, 2, 3, 8);
    TRY(vka_plan_create(device, VKA_INFO(vka_plan_info, .path = VKA_PATH_FUSED, .whole_n_q = MANY),
                        &o.plan));
    TRY(vka_plan_attention_state(o.plan, &op, &count));
    TRY(vka_tensor_create(device, VKA_F32, 1, (const uint32_t[]){(uint32_t)count},
                          &o.tensor[o.n_tensor]));
    op.state = o.tensor[o.n_tensor++];
    TRY(vka_plan_add_attention(o.plan, &op));
    op.key_first = BLOCK;
    TRY(vka_plan_add_attention(o.plan, &op));
    TRY(run_to_ones(&o, op.output, right));
fail:
    drop(&o);
    return status;
}

/* Rows that padded pass 1 MiB: on a device with so small allocations, one batch element at a
 * time. */
static enum vka_status attend_narrow(struct vka_device *device, int unused, bool *right)
{
    enum { ROWS = 40000 };
    (void)unused;
    enum vka_status status = VKA_OK;
    struct objects o = {.device = device};
    struct vka_attention_op op = {.struct_size = sizeof op};
    MAKE(0.5f, false, &op.q, 2, 1, ROWS, 1);
    MAKE(0.5f, false, &op.k, 2, 1, 3, 1);
    MAKE(1, false, &op.v, 2, 1, 3, 1);
    MAKE(0, false, &op.output, 2, 1, ROWS, 1);
    TRY(vka_plan_create(device, VKA_INFO(vka_plan_info, .path = VKA_PATH_FUSED), &o.plan));
    TRY(vka_plan_add_attention(o.plan, &op));
    TRY(run_to_ones(&o, op.output, right));
fail:
    drop(&o);
    return status;
}

/* A sequence of 5 forked and cut on the host; page_size 0: not paged. */
static enum vka_status fork_cache(struct vka_device *device, int page_size, bool *right)
{
    enum vka_status status = VKA_OK;
    struct objects o = {.device = device};
    uint32_t lengths[2] = {0, 0};
    TRY(vka_cache_create(device,
                         VKA_INFO(vka_cache_info, .batch = 2, .n_kv_head = 2, .head_dim = 8,
                                  .capacity = 32, .page_size = (uint32_t)page_size),
                         &o.cache));
    memcpy(memory_mapped(&o.cache->state.storage->range), &(uint32_t){5}, sizeof(uint32_t));
    if (page_size)
        TRY(vka_cache_set_pages(o.cache, 1, 1, 1, (const uint32_t[]){0}));
    TRY(vka_cache_fork(o.cache, 0, 1));
    TRY(vka_cache_truncate(o.cache, 0, 3));
    for (uint32_t i = 0; i < 2; i++)
        TRY(vka_cache_length(o.cache, i, &lengths[i]));
    *right = lengths[0] == 3 && lengths[1] == 5;
fail:
    drop(&o);
    return status;
}

/* Seven elements of 16 bits that begin and end within a word. */
static enum vka_status write_few(struct vka_device *device, int unused, bool *right)
{
    (void)unused;
    enum vka_status status = VKA_OK;
    struct objects o = {.device = device};
    static const uint16_t all[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, few[7] = {8, 7, 6, 5, 4, 3, 2};
    static const uint16_t want[9] = {1, 8, 7, 6, 5, 4, 3, 2, 9};
    uint16_t got[9];
    TRY(vka_tensor_create(device, VKA_F16, 1, (const uint32_t[]){9}, &o.tensor[0]));
    o.n_tensor = 1;
    TRY(vka_tensor_write(o.tensor[0], all, sizeof all));
    TRY(vka_tensor_slice(o.tensor[0], 0, 1, 7, &o.tensor[1]));
    o.n_tensor = 2;
    TRY(vka_tensor_write(o.tensor[1], few, sizeof few));
    TRY(vka_tensor_read(o.tensor[0], got, sizeof got));
    *right = memcmp(got, want, sizeof want) == 0;
fail:
    drop(&o);
    return status;
}

/* The buffer of one tensor as another. */
static enum vka_status wrap_buffer(struct vka_device *device, int unused, bool *right)
{
    (void)unused;
    enum vka_status status = VKA_OK;
    struct objects o = {.device = device};
    struct vka_buffer buffer;
    const uint32_t shape[] = {4};
    float got[4] = {0}, want[4] = {1, 2, 3, 4};
    TRY(vka_tensor_create(device, VKA_F32, 1, shape, &o.tensor[0]));
    o.n_tensor = 1;
    TRY(vka_tensor_buffer(o.tensor[0], &buffer));
    TRY(vka_tensor_wrap(device, &buffer, VKA_F32, 1, shape, &o.tensor[1]));
    o.n_tensor = 2;
    TRY(vka_tensor_write(o.tensor[0], want, sizeof want));
    TRY(vka_tensor_read(o.tensor[1], got, sizeof got));
    *right = memcmp(got, want, sizeof want) == 0;
fail:
    drop(&o);
    return status;
}

/* Over a budget that nothing keeps, on a device whose kernels have not been measured. */
static enum vka_status measure_rates(struct vka_device *device, int path, bool *right)
{
    enum vka_status status = VKA_OK;
    struct objects o = {.device = device};
    const struct rates known = device->rates;
    struct vka_attention_op op = {.struct_size = sizeof op};
    MAKE(0.5f, false, &op.q, 1, 2, 70, 8);
    MAKE(0.5f, false, &op.k, 1, 2, 70, 8);
    MAKE(1, false, &op.v, 1, 2, 70, 8);
    MAKE(0, false, &op.output, 1, 2, 70, 8);
    TRY(vka_plan_create(
        device, VKA_INFO(vka_plan_info, .path = (enum vka_path)path, .submit_budget = 1), &o.plan));
    device->rates = (struct rates){0};
    TRY(vka_plan_add_attention(o.plan, &op));
    TRY(run_to_ones(&o, op.output, right));
fail:
    device->rates = known;
    drop(&o);
    return status;
}

enum { WEIGHTS, BIAS = 4, DBIAS, DWEIGHT, INPUT, DINPUT, RESULT, DRESULT, LEARNT };

/* Tensors of a layer from 16 to 16, of 16 rows. */
static enum vka_status make_learnt(struct objects *o)
{
    enum { WIDTH = 16 };
    static const uint32_t shape[3] = {1, WIDTH, WIDTH},
                          ranks[LEARNT] = {2, 2, 2, 2, 1, 1, 2, 3, 3, 3, 3};
    static const float begin[LEARNT] = {1.0f / WIDTH, 1.0f / WIDTH, 1.0f / WIDTH,
                                        1.0f / WIDTH, [INPUT] = 1,  [DRESULT] = 1.0f / WIDTH};
    float values[WIDTH * WIDTH];
    for (int i = 0; i < LEARNT; i++) {
        for (int j = 0; j < WIDTH * WIDTH; j++)
            values[j] = begin[i];
        ENSURE(
            vka_tensor_create(o->device, VKA_F32, ranks[i], shape + 3 - ranks[i], &o->tensor[i]));
        o->n_tensor++;
        ENSURE(vka_tensor_write(o->tensor[i], values, vka_tensor_size(o->tensor[i])));
    }
    return VKA_OK;
}

/* Weights in tensors, all 1/16, of an input of ones: the output is 1, and so is the gradient of the
 * output's bias, the sum over 16 rows of 1/16. */
static enum vka_status learn_layer(struct vka_device *device, int unused, bool *right)
{
    (void)unused;
    enum vka_status status = VKA_OK;
    struct objects o = {.device = device};
    struct vka_tensor **t = o.tensor;
    struct vka_layer *layer = NULL;
    bool result = false, bias = false;
    float got[16];
    TRY(make_learnt(&o));
    TRY(vka_layer_create(device,
                         VKA_INFO(vka_layer_info, .n_head = 2, .head_dim = 8, .query_dim = 16,
                                  .query_tensors = {t[WEIGHTS], NULL},
                                  .key_tensors = {t[WEIGHTS + 1], NULL},
                                  .value_tensors = {t[WEIGHTS + 2], t[BIAS]},
                                  .output_tensors = {t[WEIGHTS + 3], t[BIAS]}),
                         &layer));
    const struct vka_layer_op forward = {
        .struct_size = sizeof forward, .layer = layer, .query = t[INPUT], .output = t[RESULT]};
    TRY(vka_plan_create(device, NULL, &o.plan));
    TRY(vka_plan_add_layer(o.plan, &forward));
    TRY(vka_plan_add_layer_backward(o.plan, VKA_INFO(vka_layer_backward_op, .forward = &forward,
                                                     .output_gradient = t[DRESULT],
                                                     .query_gradient.tensor = t[DINPUT],
                                                     .key_weights.weight.tensor = t[DWEIGHT],
                                                     .output_weights.bias.tensor = t[DBIAS])));
    TRY(run_to_ones(&o, t[RESULT], &result));
    TRY(vka_tensor_read(t[DBIAS], got, sizeof got));
    bias = true;
    for (int i = 0; i < 16; i++)
        bias &= fabsf(got[i] - 1) < 1e-5f;
    *right = result && bias;
fail:
    vka_layer_destroy(&layer);
    drop(&o);
    return status;
}

static const struct operation operations[] = {
    {"a copy", solve_known, KNOWN_COPY, 0},
    {"a count of NaN and Inf", solve_known, KNOWN_NONFINITE, 0},
    {"a product", solve_known, KNOWN_MATMUL, 0},
    {"a product of few rows", solve_known, KNOWN_MATMUL_FEW, 0},
    {"a product of float16", solve_known, KNOWN_MATMUL_F16, 0},
    {"a product of integers", solve_known, KNOWN_MATMUL_INTEGERS, 0},
    {"a softmax", solve_known, KNOWN_SOFTMAX, 0},
    {"fused attention", solve_known, KNOWN_FUSED, 0},
    {"fused attention of float16", solve_known, KNOWN_FUSED_F16, 0},
    {"attention of one query", solve_known, KNOWN_FUSED_FEW, 0},
    {"a mask", solve_known, KNOWN_MASK, 0},
    {"rotated attention", solve_known, KNOWN_ROPE, 0},
    {"a cache", solve_known, KNOWN_CACHE, 0},
    {"a paged cache", solve_known, KNOWN_PAGES, 0},
    {"a gradient of attention", solve_known, KNOWN_ATTENTION_BACKWARD, 0},
    {"a fused gradient of attention", solve_known, KNOWN_ATTENTION_BACKWARD_FUSED, 0},
    {"a fused gradient of float16", solve_known, KNOWN_ATTENTION_BACKWARD_F16, 0},
    {"gradients of a layer", learn_layer, 0, 0},
    {"scattered operands, fused", attend_scattered, VKA_PATH_FUSED, 0},
    {"scattered operands", attend_scattered, VKA_PATH_UNFUSED, 0},
    {"blocks of keys", attend_blocks, 0, 0},
    {"narrow rows", attend_narrow, 0, 0},
    {"a fork", fork_cache, 0, 0},
    {"a fork of pages", fork_cache, 16, 0},
    {"some of the words", write_few, 0, 0},
    {"a buffer wrapped", wrap_buffer, 0, 0},
    {"rates of fused attention", measure_rates, VKA_PATH_FUSED, 80},
    {"rates of attention", measure_rates, VKA_PATH_UNFUSED, 80},
};

static enum vka_status run_example(struct vka_device *device, int index, bool *right)
{
    const struct field *wrong = NULL;
    const enum vka_status status = example_run(device, &examples[index], NULL, &wrong, NULL);
    *right = status == VKA_OK && !wrong;
    return status;
}

/* Those of the list, then the example of each public function. */
const struct operation *operation_get(size_t index)
{
    static struct operation of_examples[N_EXAMPLE];
    if (index < COUNTOF(operations))
        return &operations[index];
    const size_t at = index - COUNTOF(operations);
    if (at >= N_EXAMPLE)
        return NULL;
    of_examples[at] =
        (struct operation){.name = examples[at].name, .run = run_example, .argument = (int)at};
    return &of_examples[at];
}

enum vka_status operation_run(const struct operation *operation, struct vka_device *device,
                              bool *right)
{
    enum vka_status status = operation->run(device, operation->argument, right);
    *right |= status == VKA_OK && !driver_computes();
    return status;
}
