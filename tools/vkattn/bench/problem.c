/* Makes the tensors that vkattn bench uses, and counts operations and bytes.
 * SPDX-License-Identifier: MIT */
#include "problem.h"

#include "case/numbers.h"
#include "core/os.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Elements that are made on the host at a time: 0.5 MiB of doubles, whatever the tensor's size. */
#define SCRATCH 65536

/* xorshift64*, the same numbers on every run and machine. */
static double random_normal(uint64_t *state)
{
    double sum = 0; /* of four uniforms in [-1, 1): nearly normal, never beyond 3.5 sigma */
    for (int i = 0; i < 4; i++) {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        sum += (double)(int32_t)(*state * UINT64_C(0x2545f4914f6cdd1d) >> 32) * 0x1p-31;
    }
    return sum * sqrt(0.75);
}

/* Makes count elements of dtype with the given standard deviation; scratch holds SCRATCH doubles. */
static void fill(enum vka_dtype dtype, double deviation, size_t count, uint64_t *state,
                 double *scratch, void *out)
{
    for (size_t done = 0; done < count;) {
        size_t n = count - done < SCRATCH ? count - done : SCRATCH;
        for (size_t i = 0; i < n; i++)
            scratch[i] = deviation * random_normal(state);
        case_narrow(scratch, n, dtype, (char *)out + done * vka_dtype_size(dtype));
        done += n;
    }
}

/* Makes a filled tensor, written in slices so that the host never holds all of it. */
static enum vka_status make_input(struct tool_device *d, enum vka_dtype dtype, uint32_t rank,
                                  const uint32_t *shape, uint64_t seed, struct vka_tensor **tensor)
{
    const uint32_t slice_max = 64 * SCRATCH;
    const uint64_t stride = 1;
    double *scratch = NULL;
    void *slice = NULL;
    enum vka_status status = vka_tensor_create(d->device, dtype, rank, shape, tensor);
    if (status != VKA_OK)
        return status;
    uint64_t count = vka_tensor_count(*tensor);
    uint32_t room = count < slice_max ? (uint32_t)count : slice_max;
    scratch = malloc(SCRATCH * sizeof *scratch);
    slice = malloc(room * vka_dtype_size(dtype));
    if (!scratch || !slice)
        status = VKA_OUT_OF_HOST_MEMORY;
    for (uint64_t done = 0; status == VKA_OK && done < count;) {
        uint32_t n = count - done < room ? (uint32_t)(count - done) : room;
        struct vka_tensor *view = NULL;
        fill(dtype, 1, n, &seed, scratch, slice);
        status = vka_tensor_strided(*tensor, done, 1, &n, &stride, &view);
        if (status == VKA_OK)
            status = vka_tensor_write(view, slice, n * vka_dtype_size(dtype));
        vka_tensor_destroy(&view);
        done += n;
    }
    free(slice);
    free(scratch);
    return status;
}

/* Makes q, k, v and the output, and counts flops and bytes of attention alone. */
static enum vka_status make_attention(struct tool_device *d, struct bench_problem *p)
{
    const struct bench_options *o = p->options;
    enum vka_dtype dtype = (enum vka_dtype)o->dtype;
    const uint32_t q[] = {o->batch, o->n_head, o->n_q, o->head_dim};
    const uint32_t k[] = {o->batch, o->n_kv_head, o->n_kv, o->head_dim};
    const uint32_t v[] = {o->batch, o->n_kv_head, o->n_kv, o->value_dim};
    const uint32_t out[] = {o->batch, o->n_head, o->n_q, o->value_dim};
    enum vka_status status = make_input(d, dtype, 4, q, 11, &p->input[0]);
    if (status == VKA_OK)
        status = make_input(d, dtype, 4, k, 22, &p->input[1]);
    if (status == VKA_OK)
        status = make_input(d, dtype, 4, v, 33, &p->input[2]);
    if (status == VKA_OK)
        status = vka_tensor_create(d->device, dtype, 4, out, &p->output);
    return status;
}

static enum vka_status make_matmul(struct tool_device *d, struct bench_problem *p)
{
    const struct bench_options *o = p->options;
    enum vka_dtype dtype = (enum vka_dtype)o->dtype;
    enum vka_status status =
        make_input(d, dtype, 2, (const uint32_t[]){o->m, o->k}, 11, &p->input[0]);
    if (status == VKA_OK)
        status = make_input(d, dtype, 2, (const uint32_t[]){o->n, o->k}, 22, &p->input[1]);
    if (status == VKA_OK)
        status = vka_tensor_create(d->device, dtype, 2, (const uint32_t[]){o->m, o->n}, &p->output);
    return status;
}

/* Random weights of any type; those of block types have scales of about 2^-7. */
static enum vka_status make_weights(struct tool_device *d, struct bench_problem *p)
{
    const struct bench_options *o = p->options;
    const enum vka_dtype dtype = (enum vka_dtype)o->weights;
    const uint32_t shape[] = {o->n, o->k};
    uint32_t values;
    vka_dtype_block(dtype, &values, NULL);
    if (values == 1 && dtype != VKA_I8)
        return make_input(d, dtype, 2, shape, 22, &p->input[1]);
    enum vka_status status = vka_tensor_create(d->device, dtype, 2, shape, &p->input[1]);
    size_t size = vka_tensor_size(p->input[1]);
    uint8_t *bytes = status == VKA_OK ? malloc(size) : NULL;
    uint64_t state = 22;
    for (size_t i = 0; bytes && i < size; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        bytes[i] = (uint8_t)(0x20 | (state >> 60));
    }
    if (status == VKA_OK)
        status = bytes ? vka_tensor_write(p->input[1], bytes, size) : VKA_OUT_OF_HOST_MEMORY;
    free(bytes);
    if (status == VKA_OK && dtype == VKA_I8)
        status = make_input(d, VKA_F32, 1, &o->n, 33, &p->input[2]);
    return status;
}

static enum vka_status make_linear(struct tool_device *d, struct bench_problem *p)
{
    const struct bench_options *o = p->options;
    const enum vka_dtype dtype = (enum vka_dtype)o->dtype;
    enum vka_status status =
        make_input(d, dtype, 2, (const uint32_t[]){o->m, o->k}, 11, &p->input[0]);
    if (status == VKA_OK)
        status = make_weights(d, p);
    if (status == VKA_OK)
        status = vka_tensor_create(d->device, dtype, 2, (const uint32_t[]){o->m, o->n}, &p->output);
    return status;
}

/* The weights are at most model_dim by model_dim. All four use the same random numbers, which makes
 * no difference to a kernel. */
static enum vka_status make_layer(struct tool_device *d, struct bench_problem *p)
{
    const struct bench_options *o = p->options;
    enum vka_dtype dtype = (enum vka_dtype)o->dtype;
    size_t width = o->model_dim, count = width * width;
    double *scratch = malloc(SCRATCH * sizeof *scratch);
    void *numbers = malloc(count * vka_dtype_size(dtype));
    uint64_t seed = 44;
    enum vka_status status = VKA_OUT_OF_HOST_MEMORY;
    if (scratch && numbers) {
        const struct vka_linear_weights weights = {.weight = numbers, .bias = numbers};
        fill(dtype, 1 / sqrt((double)width), count, &seed, scratch, numbers);
        const double begin = os_now_ms();
        status = vka_layer_create(d->device,
                                  VKA_INFO(vka_layer_info, .n_head = o->n_head,
                                           .n_kv_head = o->n_kv_head, .head_dim = o->head_dim,
                                           .query_dim = o->model_dim, .output_dim = o->model_dim,
                                           .dtype = dtype, .query = weights, .key = weights,
                                           .value = weights, .output = weights),
                                  &p->layer);
        p->made = os_now_ms() - begin;
    }
    free(numbers);
    free(scratch);
    return status;
}

static enum vka_status make_layer_tensors(struct tool_device *d, struct bench_problem *p)
{
    const struct bench_options *o = p->options;
    enum vka_dtype dtype = (enum vka_dtype)o->dtype;
    const uint32_t q[] = {o->batch, o->n_q, o->model_dim};
    const uint32_t k[] = {o->batch, o->n_kv, o->model_dim};
    enum vka_status status = make_input(d, dtype, 3, q, 11, &p->input[0]);
    if (status == VKA_OK && o->cross)
        status = make_input(d, dtype, 3, k, 22, &p->input[1]);
    if (status == VKA_OK)
        status = vka_tensor_create(d->device, dtype, 3, q, &p->output);
    if (status == VKA_OK)
        status = make_layer(d, p);
    return status;
}

/* Fills all positions of the cache but one, by an operation with one query and all these keys. What
 * tests and compiles the kernels of decoding too: p->made is its time. */
static enum vka_status fill_cache(struct tool_device *d, struct bench_problem *p)
{
    const struct bench_options *o = p->options;
    enum vka_dtype dtype = (enum vka_dtype)o->dtype;
    const uint32_t past[] = {o->batch, o->n_kv_head, o->n_kv - 1, o->head_dim};
    struct vka_tensor *k = NULL;
    struct vka_plan *plan = NULL;
    if (o->n_kv == 1)
        return VKA_OK;
    enum vka_status status = make_input(d, dtype, 4, past, 55, &k);
    const double begin = os_now_ms();
    if (status == VKA_OK)
        status = vka_plan_create(d->device, NULL, &plan);
    if (status == VKA_OK)
        status =
            vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = p->input[0], .k = k,
                                                  .v = k, .output = p->output, .cache = p->cache));
    if (status == VKA_OK)
        status = vka_plan_finish(plan);
    p->made = os_now_ms() - begin;
    if (status == VKA_OK)
        status = vka_plan_run(plan, d->timeout);
    vka_plan_destroy(&plan);
    vka_tensor_destroy(&k);
    return status;
}

static enum vka_status make_decode(struct tool_device *d, struct bench_problem *p)
{
    const struct bench_options *o = p->options;
    enum vka_dtype dtype = (enum vka_dtype)o->dtype;
    const uint32_t q[] = {o->batch, o->n_head, 1, o->head_dim};
    const uint32_t k[] = {o->batch, o->n_kv_head, 1, o->head_dim};
    enum vka_status status = make_input(d, dtype, 4, q, 11, &p->input[0]);
    if (status == VKA_OK)
        status = make_input(d, dtype, 4, k, 22, &p->input[1]);
    if (status == VKA_OK)
        status = make_input(d, dtype, 4, k, 33, &p->input[2]);
    if (status == VKA_OK)
        status = vka_tensor_create(d->device, dtype, 4, q, &p->output);
    if (status == VKA_OK)
        status = vka_cache_create(
            d->device,
            VKA_INFO(vka_cache_info, .batch = o->batch, .n_kv_head = o->n_kv_head,
                     .head_dim = o->head_dim, .capacity = o->n_kv, .key_dtype = bench_key_dtype(o),
                     .value_dtype = bench_value_dtype(o), .no_hadamard = o->head_dim % 16 != 0),
            &p->cache);
    if (status == VKA_OK)
        status = fill_cache(d, p);
    return status;
}

enum vka_status bench_problem_rewind(const struct bench_problem *p)
{
    enum vka_status status = VKA_OK;
    for (uint32_t b = 0; p->cache && status == VKA_OK && b < p->options->batch; b++)
        status = vka_cache_truncate(p->cache, b, p->options->n_kv - 1);
    return status;
}

/* Bytes of a cached value, what it takes of the scales included. */
static double bytes_of(enum vka_dtype dtype)
{
    uint32_t values, bytes;
    vka_dtype_block(dtype, &values, &bytes);
    return (double)bytes / values;
}

static void count_work(struct bench_problem *p)
{
    const struct bench_options *o = p->options;
    double batch = o->batch, n_q = o->n_q, n_kv = o->n_kv, elements = 0;
    double q_width = (double)o->n_head * o->head_dim;
    double kv_width = (double)o->n_kv_head * o->head_dim;
    if (o->op == BENCH_MATMUL || o->op == BENCH_LINEAR) {
        p->flops = 2.0 * o->m * o->n * o->k;
    } else {
        p->flops = 2 * batch * o->n_head * n_q * n_kv * ((double)o->head_dim + o->value_dim);
        if (o->causal)
            p->flops /= 2;
    }
    if (o->op == BENCH_LAYER) {
        /* query and output; then key and value, whose heads have the same width here */
        p->flops += 2 * batch * o->model_dim * 2 * (n_q * q_width + n_kv * kv_width);
        elements = 2.0 * o->model_dim * (q_width + kv_width);
    }
    p->bytes = elements * (double)vka_dtype_size((enum vka_dtype)o->dtype);
    if (o->op == BENCH_DECODE) /* every key and value in the cache */
        p->bytes = batch * n_kv * kv_width *
                   (bytes_of(bench_key_dtype(o)) + bytes_of(bench_value_dtype(o)));
    for (int i = 0; i < 3; i++)
        p->bytes += (double)vka_tensor_size(p->input[i]);
    p->bytes += (double)vka_tensor_size(p->output);
}

enum tool_exit bench_problem_create(struct tool_device *d, const struct bench_options *options,
                                    struct bench_problem *problem)
{
    enum vka_status status = VKA_INTERNAL;
    uint64_t most = vka_device_properties(d->device)->max_allocation;
    uint64_t weights = (uint64_t)options->model_dim * options->model_dim *
                       vka_dtype_size((enum vka_dtype)options->dtype);
    *problem = (struct bench_problem){.options = options};
    if (weights > most) {
        tool_error("--model-dim: the query weights take %" PRIu64
                   " bytes, the device allocates %" PRIu64 " at most",
                   weights, most);
        return TOOL_USAGE;
    }
    switch (options->op) {
    case BENCH_LAYER:
        status = make_layer_tensors(d, problem);
        break;
    case BENCH_ATTENTION:
        status = make_attention(d, problem);
        break;
    case BENCH_MATMUL:
        status = make_matmul(d, problem);
        break;
    case BENCH_DECODE:
        status = make_decode(d, problem);
        break;
    case BENCH_LINEAR:
        status = make_linear(d, problem);
        break;
    case BENCH_OP_COUNT:
        break;
    }
    if (status != VKA_OK)
        return tool_device_fail(d, status);
    count_work(problem);
    return TOOL_OK;
}

enum vka_status bench_problem_add(const struct bench_problem *p, struct vka_plan *plan)
{
    bool causal = p->options->causal;
    switch (p->options->op) {
    case BENCH_LAYER:
        return vka_plan_add_layer(plan, VKA_INFO(vka_layer_op, .layer = p->layer,
                                                 .query = p->input[0], .key = p->input[1],
                                                 .output = p->output, .attention.causal = causal));
    case BENCH_ATTENTION:
        return vka_plan_add_attention(
            plan, VKA_INFO(vka_attention_op, .q = p->input[0], .k = p->input[1], .v = p->input[2],
                           .output = p->output, .options.causal = causal));
    case BENCH_MATMUL:
    case BENCH_LINEAR:
        return vka_plan_add_linear(
            plan, VKA_INFO(vka_linear_op, .input = p->input[0], .weight = p->input[1],
                           .output = p->output, .weight_scale = p->input[2],
                           .activations = p->options->activations ? VKA_I8 : VKA_F32));
    case BENCH_DECODE:
        return vka_plan_add_attention(plan, VKA_INFO(vka_attention_op, .q = p->input[0],
                                                     .k = p->input[1], .v = p->input[2],
                                                     .output = p->output, .cache = p->cache));
    case BENCH_OP_COUNT:
        break;
    }
    return VKA_INVALID;
}

void bench_problem_destroy(struct bench_problem *p)
{
    for (int i = 0; i < 3; i++)
        vka_tensor_destroy(&p->input[i]);
    vka_tensor_destroy(&p->output);
    vka_layer_destroy(&p->layer);
    vka_cache_destroy(&p->cache);
}
