/* Norms, merged slices, losses, angles, and loads of 16 bits by kernels with loads of their own. */
#include "functions.h"
#include "gpu/device.h"
#include "kernel/matmul.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include <vkattn/vkattn_model.h>

#define LOSSES 128u       /* arguments of a run: an operation each */
#define TURN 4294967296.0 /* of angles: units of a turn */
#define WIDTH 16u
#define ROWS 32u

/* Rows (x, 0), of which a layer norm's mean is x / 2. */
static enum vka_status add_norm(struct job *job)
{
    const uint32_t size[2] = {job->n, 2};
    struct vka_norm_op op = {.struct_size = sizeof op, .kind = (enum vka_norm)job->function->kind};
    enum vka_status status = job_tensor(job, VKA_F32, 2, size, &job->input);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 2, size, 2, 2, &op.output);
    op.input = job->input;
    job->input_width = 2;
    return status == VKA_OK ? vka_plan_add_norm(job->plan, &op) : status;
}

/* Its gradient, of an output gradient (0, 1) that is orthogonal to the output. */
static enum vka_status add_norm_backward(struct job *job)
{
    const uint32_t size[2] = {job->n, 2};
    const float second[2] = {0, 1};
    struct vka_norm_backward_op op = {.struct_size = sizeof op, .kind = VKA_RMS_NORM};
    enum vka_status status = job_tensor(job, VKA_F32, 2, size, &job->input);
    if (status == VKA_OK)
        status = job_constant(job, 2, size, second, 2, &op.output_gradient);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 2, size, 2, 2, &op.input_gradient.tensor);
    op.input = job->input;
    job->input_width = 2;
    return status == VKA_OK ? vka_plan_add_norm_backward(job->plan, &op) : status;
}

/* Slices whose log-sum-exps are 0 and x, and which are the two unit vectors. */
static enum vka_status add_merge(struct job *job)
{
    const uint32_t size[2] = {job->n, 2};
    const float zero = 0, unit_vector[2][2] = {{1, 0}, {0, 1}};
    struct vka_tensor *slices[2] = {NULL}, *l[2] = {NULL};
    struct vka_merge_op op = {
        .struct_size = sizeof op, .n_slice = 2, .slices = slices, .log_sum_exps = l};
    enum vka_status status = job_tensor(job, VKA_F32, 1, size, &job->input);
    for (int i = 0; i < 2 && status == VKA_OK; i++)
        status = job_constant(job, 2, size, unit_vector[i], 2, &slices[i]);
    if (status == VKA_OK)
        status = job_constant(job, 1, size, &zero, 1, &l[0]);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 2, size, 2, 2, &op.output);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 1, size, 1, 1, &op.log_sum_exp);
    l[1] = job->input;
    return status == VKA_OK ? vka_plan_add_merge(job->plan, &op) : status;
}

static enum vka_status make_labels(struct job *job, uint32_t count, int32_t label,
                                   struct vka_tensor **labels)
{
    int32_t all[65536];
    enum vka_status status = job_tensor(job, VKA_I32, 1, &count, labels);
    for (uint32_t i = 0; i < count && i < 65536; i++)
        all[i] = label;
    return status == VKA_OK ? vka_tensor_write(*labels, all, count * sizeof *all) : status;
}

/* Logits (x, 0), of which the second is the label. The mean over the rows is undone. */
static enum vka_status add_entropy_gradient(struct job *job)
{
    const uint32_t size[2] = {job->n, 2}, one = 1;
    struct vka_cross_entropy_op op = {.struct_size = sizeof op, .gradient_scale = (float)job->n};
    enum vka_status status = job_tensor(job, VKA_F32, 2, size, &job->input);
    if (status == VKA_OK)
        status = make_labels(job, job->n, 1, &op.labels);
    if (status == VKA_OK)
        status = job_tensor(job, VKA_F32, 1, &one, &op.loss);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 2, size, 2, 2, &op.gradient);
    op.logits = job->input;
    job->input_width = 2;
    return status == VKA_OK ? vka_plan_add_cross_entropy(job->plan, &op) : status;
}

/* The losses of such rows, each by an operation of its own. */
static enum vka_status add_entropy(struct job *job)
{
    const uint32_t size[2] = {job->n, 2};
    struct vka_tensor *labels = NULL, *losses = NULL, *loss = NULL, *row = NULL;
    struct vka_cross_entropy_op op = {.struct_size = sizeof op};
    enum vka_status status = job_tensor(job, VKA_F32, 2, size, &job->input);
    if (status == VKA_OK)
        status = make_labels(job, 1, 1, &labels);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 1, size, 1, 1, &losses);
    for (uint32_t i = 0; i < job->n && status == VKA_OK; i++) {
        status = vka_tensor_slice(losses, 0, i, 1, &loss);
        if (status == VKA_OK)
            status = vka_tensor_slice(job->input, 0, i, 1, &row);
        op.labels = labels;
        op.logits = row;
        op.loss = loss;
        if (status == VKA_OK)
            status = vka_plan_add_cross_entropy(job->plan, &op);
        vka_tensor_destroy(&row);
        vka_tensor_destroy(&loss);
    }
    job->input_width = 2;
    return status;
}

/* The unit vector, turned by an argument whose bits are a position: one 2^32nd of a turn each. */
static enum vka_status add_rotary(struct job *job)
{
    const uint32_t positions[2] = {1, job->n}, size[4] = {1, 1, job->n, 2};
    const float unit_vector[2] = {1, 0};
    const double frequency = 6.283185307179586476925 / TURN;
    struct vka_rotary_op op = {.struct_size = sizeof op, .frequencies = &frequency};
    enum vka_status status = job_tensor(job, VKA_I32, 2, positions, &job->input);
    if (status == VKA_OK)
        status = job_constant(job, 4, size, unit_vector, 2, &op.input);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 4, size, 2, 2, &op.output);
    op.positions = job->input;
    return status == VKA_OK ? vka_plan_add_rotary(job->plan, &op) : status;
}

static enum vka_status add_gather(struct job *job)
{
    const uint32_t size[2] = {job->n, 2};
    int32_t ids[65536];
    struct vka_gather_op op = {.struct_size = sizeof op};
    enum vka_status status = job_tensor(job, job->function->from, 2, size, &job->input);
    for (uint32_t i = 0; i < job->n && i < 65536; i++)
        ids[i] = (int32_t)i;
    if (status == VKA_OK)
        status = job_tensor(job, VKA_I32, 1, size, &op.ids);
    if (status == VKA_OK)
        status = vka_tensor_write(op.ids, ids, job->n * sizeof *ids);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 2, size, 2, 1, &op.output);
    op.table = job->input;
    job->input_width = 2;
    return status == VKA_OK ? vka_plan_add_gather(job->plan, &op) : status;
}

/* Weights (x, 0, ...) times the first unit vector, `kind` rows of it. */
static enum vka_status add_product(struct job *job)
{
    const uint32_t rows = (uint32_t)job->function->kind, in[2] = {rows, WIDTH};
    const uint32_t size[2] = {job->n, WIDTH}, out[2] = {job->n, rows}, turned[2] = {1, 0};
    const float unit_vector[WIDTH] = {1};
    struct vka_tensor *columns = NULL;
    struct vka_linear_op op = {.struct_size = sizeof op};
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (k != (int)job->function->kernel && kernel_table[k].family == FAMILY_PRODUCT)
            set_add(&job->device->caps.without, k);
    enum vka_status status = job_tensor(job, job->function->from, 2, size, &job->input);
    if (status == VKA_OK)
        status = job_constant(job, 2, in, unit_vector, WIDTH, &op.input);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 2, out, rows, 1, &columns);
    if (status == VKA_OK)
        status = vka_tensor_permute(columns, turned, &op.output);
    if (status == VKA_OK)
        job->tensors[job->n_tensor++] = op.output;
    op.weight = job->input;
    job->input_width = WIDTH;
    return status == VKA_OK ? vka_plan_add_linear(job->plan, &op) : status;
}

static struct wanted exactly(double x)
{
    return (struct wanted){x, fabs(x)};
}

static struct wanted want_norm(const struct function *f, float argument, uint32_t result)
{
    const double x = (double)argument, share = f->kind == VKA_LAYER_NORM ? 4 : 2;
    const double root = sqrt(x * x / share + 1e-5);
    if (!isfinite(argument)) /* 0 of a row with Inf has no mean to lose */
        return exactly(f->kind == VKA_RMS_NORM && result && isinf(argument) ? 0 : NAN);
    if (f->kind == VKA_LAYER_NORM)
        return exactly((result ? -x : x) / 2 / root);
    return exactly(result ? 0 : x / root);
}

/* 1 / the root mean square; the first element's gradient is 0. */
static struct wanted want_norm_backward(const struct function *f, float argument, uint32_t result)
{
    const double x = (double)argument;
    (void)f;
    if (!isfinite(argument))
        return (struct wanted){NAN, 1};
    return (struct wanted){result ? 1 / sqrt(x * x / 2 + 1e-5) : 0, 1 / sqrt(x * x / 2 + 1e-5)};
}

/* e^u / (1 + e^u), with the error of a weight: see functions_attention.c. */
static struct wanted weight(double u)
{
    double value = u < 0 ? exp(u) / (1 + exp(u)) : 1 / (1 + exp(-u));
    return (struct wanted){value, value * (isinf(u) ? 1 : 1 + fabs(u) / 8)};
}

static struct wanted want_merge(const struct function *f, float argument, uint32_t result)
{
    const double x = (double)argument;
    (void)f;
    if (isnan(x))
        return exactly(x);
    if (result < 2)
        return weight(result ? x : -x);
    double value = x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    return (struct wanted){value, fmax(1, fabs(value))};
}

static struct wanted want_entropy_gradient(const struct function *f, float argument,
                                           uint32_t result)
{
    const double x = (double)argument;
    (void)f;
    if (isnan(x) || x == INFINITY)
        return (struct wanted){NAN, 1};
    struct wanted w = weight(x);
    w.value = result ? -w.value : w.value;
    return w;
}

static struct wanted want_entropy(const struct function *f, float argument, uint32_t result)
{
    const double x = (double)argument;
    (void)f;
    (void)result;
    if (isnan(x) || x == INFINITY)
        return (struct wanted){NAN, 1};
    double value = x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    return (struct wanted){value, value * (x > 0 ? 1 : 1 + fabs(fmax(x, -1e3)) / 8)};
}

static struct wanted want_rotary(const struct function *f, float argument, uint32_t result)
{
    int32_t position;
    (void)f;
    memcpy(&position, &argument, sizeof position);
    double angle = 6.283185307179586476925 * (position / TURN);
    return (struct wanted){result ? sin(angle) : cos(angle), 1};
}

static struct wanted want_number(const struct function *f, float x, uint32_t result)
{
    (void)f;
    (void)result;
    return exactly((double)x);
}

/* Points near those of weights, and where the loss leaves its series, ln(1 + x) from 0.4 on. */
static void loss_points(const struct function *f, struct points *p)
{
    (void)f;
    points_inverse(p, points_linear, 1, LN2 / 2, f->n == LOSSES ? 12 : 90);
    points_near(p, 87.3);
    points_near(p, log(0.4));
    points_near(p, log(sqrt(2) - 1));
}

/* Where squares, and sums of two halves of rows, leave float32. */
static void square_points(const struct function *f, struct points *p)
{
    const double most = 0x1p64;
    (void)f;
    for (int i = -2; i <= 2; i++)
        points_near(p, most * pow(2, i / 2.0));
}

/* Eighths of a turn. */
static void angle_points(const struct function *f, struct points *p)
{
    (void)f;
    for (uint32_t eighth = 0; eighth < 8; eighth++)
        for (int i = -8; i <= 8; i++)
            points_push(p, (eighth << 29) + (uint32_t)i);
}

#define FUNCTION(NAME, ADD, WANT, POINTS, LIMIT, ...)                                         \
    {                                                                                         \
        .name = NAME, .add = ADD, .want = WANT, .points = POINTS, .limit = LIMIT, __VA_ARGS__ \
    }
#define PRODUCT(NAME, KERNEL, FROM, N_ROW)                                                  \
    {                                                                                       \
        .name = NAME, .add = add_product, .want = want_number, .kind = N_ROW, .from = FROM, \
        .forced = true, .kernel = KERNEL_##KERNEL                                           \
    }

const struct function row_functions[] = {
    FUNCTION("rms_norm", add_norm, want_norm, square_points, 5e-7, .kind = VKA_RMS_NORM),
    FUNCTION("layer_norm", add_norm, want_norm, square_points, 5e-7, .kind = VKA_LAYER_NORM),
    FUNCTION("norm_backward", add_norm_backward, want_norm_backward, square_points, 1e-6, .n = 0),
    FUNCTION("merge", add_merge, want_merge, loss_points, 6e-7, .n = 0),
    FUNCTION("entropy", add_entropy, want_entropy, loss_points, 6e-7, .n = LOSSES, .every = 128),
    FUNCTION("entropy_gradient", add_entropy_gradient, want_entropy_gradient, loss_points, 6e-7,
             .every = 8),
    FUNCTION("rotary", add_rotary, want_rotary, angle_points, 3e-7, .n = 0),
    FUNCTION("gather_f16", add_gather, want_number, NULL, 0, .from = VKA_F16),
    FUNCTION("gather_bf16", add_gather, want_number, NULL, 0, .from = VKA_BF16),
    PRODUCT("matmul_tile_f16", matmul_tile, VKA_F16, ROWS),
    PRODUCT("matmul_few_f16", matmul_few, VKA_F16, 1),
    PRODUCT("matmul_lane8_f16", matmul_lane8, VKA_F16, ROWS),
    PRODUCT("matmul_texel_f16", matmul_texel, VKA_F16, ROWS),
    PRODUCT("matmul_address_f16", matmul_address, VKA_F16, ROWS),
    PRODUCT("matmul_tile_bf16", matmul_tile, VKA_BF16, ROWS),
    PRODUCT("matmul_few_bf16", matmul_few, VKA_BF16, 1),
    {.name = NULL},
};
