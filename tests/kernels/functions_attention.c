/* Softmax, log-sum-exp, softcap, sinks and norms of each attention kernel. A query of x against the keys
 * 0 and 1, whose values are the first two unit vectors, gives the weights 1 / (1 + e^x) and
 * e^x / (1 + e^x). */
#include "functions.h"
#include "gpu/device.h"
#include "plan/plan.h"

#include <math.h>
#include <string.h>

#define WIDTH 16u   /* features of a head: whole vectors of every kernel */
#define FEW_N 8192u /* arguments of a run of kernels for few rows: a batch element each */
#define SPLIT_N 256u
#define SPLIT_KEYS 128u /* of each half of the keys, as the rules split them */
#define SINK_N 4096u
#define LOADS_N 65536u
#define SOFTCAP 30
#define WEIGHT 6e-7        /* errors, see weight() */
#define CAPPED_WEIGHT 3e-6 /* of e^s, the error of s itself times s included */

/* Bits of `kind`. */
enum {
    FEW = 1,
    SPLIT = 2,
    UNFUSED = 4,
    EXACT = 8,
    CAPPED = 16,
    SCORES = 32,
    SINK = 64,
    NORM = 128
};

/* Leaves of the forced kernel's family that kernel alone. */
static void force(struct job *job)
{
    const enum kernel kernel = job->function->kernel;
    for (int k = 0; k < KERNEL_COUNT && job->function->forced; k++)
        if (k != (int)kernel && kernel_table[k].family == kernel_table[kernel].family)
            set_add(&job->device->caps.without, k);
}

bool function_is_used(const struct job *job)
{
    for (size_t i = 0; i < job->plan->n_pass; i++)
        if (job->plan->passes[i].key.kernel == job->function->kernel)
            return true;
    return !job->function->forced;
}

static enum vka_status plan_on_path(struct job *job, enum vka_path path)
{
    vka_plan_destroy(&job->plan);
    force(job);
    return vka_plan_create(job->device, VKA_INFO(vka_plan_info, .path = path), &job->plan);
}

/* Keys of which the first half is 0 and the other begins with 1, and the values of each half. */
static enum vka_status make_keys(struct job *job, uint32_t batch, uint32_t heads, uint32_t half,
                                 struct vka_attention_op *op)
{
    const uint32_t size[4] = {batch, heads, 2 * half, WIDTH};
    float keys[2 * SPLIT_KEYS * WIDTH] = {0}, values[2 * SPLIT_KEYS * WIDTH] = {0};
    for (uint32_t i = 0; i < half; i++) {
        keys[(half + i) * WIDTH] = 1;
        values[i * WIDTH] = 1;
        values[(half + i) * WIDTH + 1] = 1;
    }
    const size_t period = (size_t)2 * half * WIDTH;
    enum vka_status status = job_constant(job, 4, size, keys, period, &op->k);
    return status == VKA_OK ? job_constant(job, 4, size, values, period, &op->v) : status;
}

static enum vka_status make_norm(struct job *job, struct vka_attention_op *op)
{
    const uint32_t size = WIDTH;
    const float one = 1;
    if (!(job->function->kind & NORM))
        return VKA_OK;
    return job_constant(job, 1, &size, &one, 1, &op->options.q_norm);
}

static enum vka_status add_attention(struct job *job)
{
    const int kind = job->function->kind;
    const uint32_t batch = kind & FEW ? job->n : 1, n_q = kind & FEW ? 1 : job->n;
    const uint32_t half = kind & SPLIT ? SPLIT_KEYS : 1;
    const uint32_t rows[4] = {batch, 1, n_q, WIDTH}, scores[4] = {batch, 1, n_q, 2 * half};
    struct vka_attention_op op = {.struct_size = sizeof op,
                                  .options = {.scale = 1,
                                              .exact_softmax = kind & EXACT,
                                              .softcap = kind & CAPPED ? SOFTCAP : 0}};
    enum vka_status status = plan_on_path(job, kind & UNFUSED ? VKA_PATH_UNFUSED : VKA_PATH_FUSED);
    if (status == VKA_OK)
        status = job_tensor(job, VKA_F32, 4, rows, &job->input);
    if (status == VKA_OK)
        status = make_keys(job, batch, 1, half, &op);
    if (status == VKA_OK)
        status = make_norm(job, &op);
    if (status == VKA_OK && kind & SCORES)
        status = job_tensor(job, VKA_F32, 4, rows, &op.output);
    else if (status == VKA_OK)
        status = job_output(job, VKA_F32, 4, rows, WIDTH, 2, &op.output);
    op.options.scores_kind = VKA_SCORES_NONE;
    if (status == VKA_OK && kind & SCORES) {
        op.options.scores_kind = kind & CAPPED ? VKA_SCORES_SOFTCAP : VKA_SCORES_RAW;
        status = job_output(job, VKA_F32, 4, scores, 2, 2, &op.options.scores);
    } else if (status == VKA_OK) {
        status = job_output(job, VKA_F32, 3, rows, 1, 1, &op.options.log_sum_exp);
    }
    op.q = job->input;
    job->input_width = WIDTH;
    return status == VKA_OK ? vka_plan_add_attention(job->plan, &op) : status;
}

/* A head an argument, which is its sink; one key of score 0. */
static enum vka_status add_sinks(struct job *job)
{
    const uint32_t rows[4] = {1, job->n, 1, WIDTH};
    const float zero = 0, unit_vector[WIDTH] = {1};
    struct vka_attention_op op = {.struct_size = sizeof op, .options = {.scale = 1}};
    enum vka_status status =
        plan_on_path(job, job->function->kind & UNFUSED ? VKA_PATH_UNFUSED : VKA_PATH_FUSED);
    if (status == VKA_OK)
        status = job_tensor(job, VKA_F32, 1, &job->n, &job->input);
    if (status == VKA_OK)
        status = job_constant(job, 4, rows, &zero, 1, &op.q);
    if (status == VKA_OK)
        status = job_constant(job, 4, rows, unit_vector, WIDTH, &op.v);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 4, rows, WIDTH, 1, &op.output);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 3, rows, 1, 1, &op.options.log_sum_exp);
    op.k = op.q;
    op.options.sink = job->input;
    return status == VKA_OK ? vka_plan_add_attention(job->plan, &op) : status;
}

/* Rows of values of 16 bits, each of the one key that its query sees. */
static enum vka_status add_loads(struct job *job)
{
    const bool few = job->function->kind & FEW;
    const uint32_t n = job->n / WIDTH, rows[4] = {few ? n : 1, 1, few ? 1 : n, WIDTH};
    const float zero = 0;
    static const uint16_t zeros[LOADS_N];
    struct vka_attention_op op = {.struct_size = sizeof op,
                                  .options = {.scale = 1, .window = true}};
    enum vka_status status = plan_on_path(job, VKA_PATH_FUSED);
    if (status == VKA_OK)
        status = job_constant(job, 4, rows, &zero, 1, &op.q);
    if (status == VKA_OK)
        status = job_tensor(job, job->function->from, 4, rows, &op.k);
    if (status == VKA_OK)
        status = vka_tensor_write(op.k, zeros, sizeof zeros);
    if (status == VKA_OK)
        status = job_tensor(job, job->function->from, 4, rows, &job->input);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 4, rows, 1, 1, &op.output);
    op.v = job->input;
    return status == VKA_OK ? vka_plan_add_attention(job->plan, &op) : status;
}

static struct wanted want_number(const struct function *f, float x, uint32_t result)
{
    (void)f;
    (void)result;
    return (struct wanted){(double)x, fabs((double)x)};
}

/* With an output gradient of the first unit vector, that of the query is less the weights' product. */
static enum vka_status add_backward(struct job *job)
{
    const uint32_t rows[4] = {1, 1, job->n, WIDTH};
    const float unit_vector[WIDTH] = {1};
    struct vka_attention_op forward = {.struct_size = sizeof forward, .options = {.scale = 1}};
    struct vka_attention_backward_op op = {.struct_size = sizeof op, .forward = &forward};
    enum vka_status status =
        plan_on_path(job, job->function->kind & UNFUSED ? VKA_PATH_UNFUSED : VKA_PATH_FUSED);
    if (status == VKA_OK)
        status = job_tensor(job, VKA_F32, 4, rows, &job->input);
    if (status == VKA_OK)
        status = job_tensor(job, VKA_F32, 4, rows, &forward.output);
    if (status == VKA_OK)
        status = job_tensor(job, VKA_F32, 3, rows, &forward.options.log_sum_exp);
    if (status == VKA_OK)
        status = make_keys(job, 1, 1, 1, &forward);
    if (status == VKA_OK)
        status = job_constant(job, 4, rows, unit_vector, WIDTH, &op.output_gradient);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 4, rows, WIDTH, 1, &op.q_gradient.tensor);
    forward.q = job->input;
    job->input_width = WIDTH;
    if (status == VKA_OK)
        status = vka_plan_add_attention(job->plan, &forward);
    return status == VKA_OK ? vka_plan_add_attention_backward(job->plan, &op) : status;
}

/* 1 / (1 + e^u). */
static double below(double u)
{
    return u > 0 ? exp(-u) / (1 + exp(-u)) : 1 / (1 + exp(u));
}

/* ln(1 + e^u), in float32 relative to the larger term's: what is stored is a sum of it and the rest. */
static struct wanted log_sum(double u, double keys)
{
    double value = (u > 0 ? u + log1p(exp(-u)) : log1p(exp(u))) + log(keys);
    return (struct wanted){value, fmax(fabs(value), 1)};
}

/* A weight, e^-|u| of which has the error that two numbers of ln 2 have where a compiler joins them, as
 * that of Mesa 22 does: it grows with u, and is nothing beside the weights' sum. */
static struct wanted weight(double value, double u)
{
    return (struct wanted){value, value * (1 + fabs(u) / 8)};
}

static double capped(const struct function *f, double x)
{
    return f->kind & CAPPED ? SOFTCAP * tanh(x / SOFTCAP) : x;
}

static struct wanted want_weights(const struct function *f, float argument, uint32_t result)
{
    const double x = capped(f, (double)argument);
    if (!isfinite(argument)) /* its product with the key 0 is NaN */
        return (struct wanted){NAN, 1};
    if (result == 2)
        return log_sum(x, f->kind & SPLIT ? SPLIT_KEYS : 1);
    return weight(below(result ? -x : x), x);
}

static struct wanted want_scores(const struct function *f, float argument, uint32_t result)
{
    const double x = (double)argument;
    double value = f->kind & NORM ? x / sqrt(x * x / WIDTH + 1e-6) : capped(f, x);
    if (!isfinite(argument))
        return (struct wanted){NAN, 1};
    return (struct wanted){result ? value : 0, fabs(value)};
}

static struct wanted want_sink(const struct function *f, float argument, uint32_t result)
{
    const double x = (double)argument;
    (void)f;
    if (isinf(x)) {
        return (struct wanted){result ? fmax(x, 0) : x < 0, 1};
    }
    return result ? log_sum(x, 1) : weight(below(x), x);
}

static struct wanted want_backward(const struct function *f, float argument, uint32_t result)
{
    const double x = (double)argument;
    (void)f;
    (void)result;
    if (!isfinite(argument))
        return (struct wanted){NAN, 1};
    struct wanted w = weight(below(x) * below(-x), x);
    w.value = -w.value;
    return w;
}

/* Half multiples of ln 2, where weights become 0, and where sums reach the middle of log's range. */
static void weight_points(const struct function *f, struct points *p)
{
    const double ends[] = {76.9, 87, 87.3, 0.625, log(sqrt(2) - 1), 103.9};
    points_inverse(p, points_linear, 1, LN2 / 2, f->kind & SPLIT ? 30 : 90);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        points_near(p, ends[i]);
    if (f->kind & CAPPED) {
        points_inverse(p, points_linear, 2.0 / SOFTCAP, LN2 / 2, 90);
        points_near(p, 0.625 * SOFTCAP);
    }
}

#define WEIGHTS(NAME, KERNEL, KIND, LIMIT, ...)                                              \
    {                                                                                        \
        .name = NAME, .add = add_attention, .want = want_weights, .points = weight_points,   \
        .limit = LIMIT, .kind = KIND, .forced = true, .kernel = KERNEL_##KERNEL, __VA_ARGS__ \
    }
#define SINKS(NAME, KERNEL, KIND)                                                              \
    {                                                                                          \
        .name = NAME, .add = add_sinks, .want = want_sink, .points = weight_points,            \
        .limit = WEIGHT, .kind = KIND, .forced = true, .kernel = KERNEL_##KERNEL, .n = SINK_N, \
        .every = 64                                                                            \
    }
#define MADE(NAME, ADD, WANT, LIMIT, KIND, N, ...)                                       \
    {                                                                                    \
        .name = NAME, .add = ADD, .want = WANT, .points = weight_points, .limit = LIMIT, \
        .kind = KIND, .n = N, __VA_ARGS__                                                \
    }

#define LOADS(NAME, KERNEL, KIND, FROM)                                                   \
    {                                                                                     \
        .name = NAME, .add = add_loads, .want = want_number, .limit = 3e-7, .kind = KIND, \
        .from = FROM, .forced = true, .kernel = KERNEL_##KERNEL, .n = LOADS_N             \
    }

/* Kernels whose workgroups have few arguments each try one in so many of the common points. */
const struct function attention_functions[] = {
    WEIGHTS("softmax_shared", softmax_shared, UNFUSED, WEIGHT, .every = 8),
    WEIGHTS("softmax_subgroup", softmax_subgroup, UNFUSED, WEIGHT, .every = 8),
    WEIGHTS("softmax_exact", softmax_shared, UNFUSED | EXACT, WEIGHT, .every = 8),
    WEIGHTS("attention_row", attention_row, 0, WEIGHT, .every = 8),
    WEIGHTS("attention_texel", attention_texel, 0, WEIGHT, .every = 8),
    WEIGHTS("attention_address", attention_address, 0, WEIGHT, .every = 8),
    WEIGHTS("attention_feature", attention_feature, FEW, WEIGHT, .n = FEW_N, .every = 32),
    WEIGHTS("attention_tile", attention_tile, 0, WEIGHT, .every = 8),
    WEIGHTS("attention_decode", attention_decode, FEW, WEIGHT, .n = FEW_N, .every = 32),
    WEIGHTS("attention_merge", attention_tile, SPLIT, WEIGHT, .n = SPLIT_N, .every = 256,
            .most = 2.9e38),
    WEIGHTS("softmax_capped", softmax_shared, UNFUSED | CAPPED, CAPPED_WEIGHT, .every = 8),
    WEIGHTS("attention_tile_capped", attention_tile, CAPPED, CAPPED_WEIGHT, .every = 8),
    SINKS("softmax_sink", softmax_shared, UNFUSED),
    SINKS("attention_row_sink", attention_row, 0),
    SINKS("attention_tile_sink", attention_tile, 0),
    MADE("softcap", add_attention, want_scores, 1e-6, UNFUSED | CAPPED | SCORES, 0, .every = 8),
    MADE("q_norm", add_attention, want_scores, 1e-6, UNFUSED | NORM | SCORES, 0, .every = 1),
    MADE("softmax_backward", add_backward, want_backward, 2e-6, UNFUSED, FEW_N, .every = 32),
    MADE("attention_backward", add_backward, want_backward, 2e-6, 0, FEW_N, .every = 32),
    LOADS("attention_row_f16", attention_row, 0, VKA_F16),
    LOADS("attention_texel_f16", attention_texel, 0, VKA_F16),
    LOADS("attention_address_f16", attention_address, 0, VKA_F16),
    LOADS("attention_feature_f16", attention_feature, FEW, VKA_F16),
    LOADS("attention_feature_bf16", attention_feature, FEW, VKA_BF16),
    LOADS("attention_tile_f16", attention_tile, 0, VKA_F16),
    LOADS("attention_tile_bf16", attention_tile, 0, VKA_BF16),
    LOADS("attention_decode_f16", attention_decode, FEW, VKA_F16),
    {.name = NULL},
};
