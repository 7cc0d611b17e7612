/* Activations, their derivatives, and what is stored as and loaded from 16 bits. */
#include "functions.h"

#include <math.h>
#include <stddef.h>

#include <reference/model.h>

#define TANH_GELU 1.5957691216057308 /* 2 sqrt(2 / pi) */
#define ROOT 0.70710678118654752440
#define MOST_EXPONENT 90 /* beyond it functions of e^-x are 0 or 1 in float32 */

static enum vka_status add_activation(struct job *job)
{
    const struct function *f = job->function;
    struct vka_activation_op op = {
        .struct_size = sizeof op, .kind = (enum vka_activation)f->kind, .alpha = (float)f->alpha};
    enum vka_status status = job_tensor(job, f->from, 1, &job->n, &job->input);
    if (status == VKA_OK)
        status = job_output(job, f->to, 1, &job->n, 1, 1, &op.output);
    op.input = job->input;
    return status == VKA_OK ? vka_plan_add_activation(job->plan, &op) : status;
}

static enum vka_status add_slope(struct job *job)
{
    const struct function *f = job->function;
    const float one = 1;
    struct vka_activation_backward_op op = {
        .struct_size = sizeof op, .kind = (enum vka_activation)f->kind, .alpha = (float)f->alpha};
    enum vka_status status = job_tensor(job, VKA_F32, 1, &job->n, &job->input);
    if (status == VKA_OK)
        status = job_constant(job, 1, &job->n, &one, 1, &op.output_gradient);
    if (status == VKA_OK)
        status = job_output(job, VKA_F32, 1, &job->n, 1, 1, &op.input_gradient.tensor);
    op.input = job->input;
    return status == VKA_OK ? vka_plan_add_activation_backward(job->plan, &op) : status;
}

static double alpha_of(const struct function *f)
{
    return f->alpha != 0 ? (double)(float)f->alpha : 1;
}

static struct wanted exactly(double x)
{
    return (struct wanted){x, fabs(x)};
}

static struct wanted want_activation(const struct function *f, float x, uint32_t result)
{
    (void)result;
    return exactly(ref_activation((enum vka_activation)f->kind, alpha_of(f), (double)x));
}

/* The derivative of 1 / (1 + e^-u). */
static double falling(double u)
{
    double e = exp(-fabs(u));
    return e / ((1 + e) * (1 + e));
}

/* The sum of two terms, of which the second is 0 at infinity. */
static struct wanted terms(double a, double b, double x)
{
    b = isinf(x) ? 0 : b;
    return (struct wanted){a + b, fabs(a) + fabs(b)};
}

static struct wanted want_slope(const struct function *f, float argument, uint32_t result)
{
    const double x = (double)argument, a = alpha_of(f);
    const double u = TANH_GELU * (x + 0.044715 * x * x * x);
    (void)result;
    switch ((enum vka_activation)f->kind) {
    case VKA_GELU:
        return terms(erfc(-x * ROOT) / 2, x * exp(-x * x / 2) * 0.39894228040143267794, x);
    case VKA_GELU_TANH:
        return terms(1 / (1 + exp(-u)),
                     fabs(x) > 100 ? 0 : x * falling(u) * TANH_GELU * (1 + 0.134145 * x * x), x);
    case VKA_SILU:
        return terms(1 / (1 + exp(-a * x)), a * x * falling(a * x), x);
    case VKA_RELU:
        return exactly(x <= 0 ? 0 : 1);
    case VKA_TANH:
        return exactly(4 * falling(2 * x));
    case VKA_SIGMOID:
        return exactly(falling(x));
    case VKA_IDENTITY:
    case VKA_ACTIVATION_COUNT:
        break;
    }
    return exactly(1);
}

static struct wanted want_number(const struct function *f, float x, uint32_t result)
{
    (void)result;
    return exactly(number_near(f->to, (double)x));
}

static double gelu_exponent(double a, double x)
{
    return a * x * x;
}

static double gelu_tanh_exponent(double a, double x)
{
    return a * (x + 0.044715 * x * x * x);
}

/* GELU squares its argument's first 12 bits: all of those from 1/2 on, up to where its tail is 0. */
static void gelu_points(struct points *p)
{
    for (int e = -1; e < 4; e++)
        for (int i = 0; i < 2048; i++)
            points_near(p, ldexp(1 + i / 2048.0, e));
    points_inverse(p, gelu_exponent, 0.5, LN2 / 2, MOST_EXPONENT);
}

/* Multiples of ln 2 / 2 of what exp() has for an argument, and where results become 0 or Inf. */
static void activation_points(const struct function *f, struct points *p)
{
    switch ((enum vka_activation)f->kind) {
    case VKA_GELU:
        gelu_points(p);
        break;
    case VKA_GELU_TANH:
        points_inverse(p, gelu_tanh_exponent, TANH_GELU, LN2 / 2, MOST_EXPONENT);
        points_inverse(p, gelu_tanh_exponent, TANH_GELU, 87.3, 88);
        break;
    case VKA_SILU:
    case VKA_SIGMOID:
        points_inverse(p, points_linear, fabs(alpha_of(f)), LN2 / 2, MOST_EXPONENT);
        points_inverse(p, points_linear, fabs(alpha_of(f)), 87.3, 88);
        points_inverse(p, points_linear, fabs(alpha_of(f)), 100, 100);
        break;
    case VKA_TANH:
        points_inverse(p, points_linear, 2, LN2 / 2, MOST_EXPONENT);
        points_near(p, 0.625);
        break;
    case VKA_IDENTITY:
    case VKA_RELU:
    case VKA_ACTIVATION_COUNT:
        break;
    }
}

/* All halves between neighbours of the type, and its numbers. */
static void tie_points(const struct function *f, struct points *p)
{
    for (uint32_t bits = 0; bits < 0x8000; bits++) {
        double x = number_of(f->to, (uint16_t)bits), next = number_of(f->to, (uint16_t)(bits + 1));
        if (!isfinite(x))
            break;
        if (isinf(next)) /* the half between the largest number and what would follow it */
            next = 2 * x - number_of(f->to, (uint16_t)(bits - 1));
        points_near(p, (x + next) / 2);
        points_near(p, x);
    }
}

#define ACTIVATION(NAME, KIND, LIMIT, ...)                                                         \
    {                                                                                              \
        .name = NAME, .add = add_activation, .want = want_activation, .points = activation_points, \
        .limit = LIMIT, .kind = KIND, __VA_ARGS__                                                  \
    }
#define SLOPE(NAME, KIND, LIMIT, ...)                                                    \
    {                                                                                    \
        .name = NAME, .add = add_slope, .want = want_slope, .points = activation_points, \
        .limit = LIMIT, .kind = KIND, __VA_ARGS__                                        \
    }
#define CONVERSION(NAME, FROM, TO, POINTS)                                                        \
    {                                                                                             \
        .name = NAME, .add = add_activation, .want = want_number, .points = POINTS, .from = FROM, \
        .to = TO                                                                                  \
    }

/* Limits of functions are those of vkattn_model.h, of derivatives those of vkattn_train.h. */
const struct function map_functions[] = {
    ACTIVATION("gelu", VKA_GELU, 1e-6, .alpha = 0),
    ACTIVATION("gelu_tanh", VKA_GELU_TANH, 2e-5, .alpha = 0),
    ACTIVATION("silu", VKA_SILU, 1e-6, .alpha = 0),
    ACTIVATION("silu_1.702", VKA_SILU, 1e-6, .alpha = 1.702),
    ACTIVATION("silu_-0.3", VKA_SILU, 1e-6, .alpha = -0.3),
    ACTIVATION("silu_2e-6", VKA_SILU, 1e-6, .alpha = 2e-6),
    ACTIVATION("silu_50", VKA_SILU, 1e-6, .alpha = 50),
    ACTIVATION("relu", VKA_RELU, 0, .alpha = 0),
    ACTIVATION("tanh", VKA_TANH, 1e-6, .alpha = 0),
    ACTIVATION("sigmoid", VKA_SIGMOID, 1e-6, .alpha = 0),
    SLOPE("gelu_slope", VKA_GELU, 1e-6, .alpha = 0),
    SLOPE("gelu_tanh_slope", VKA_GELU_TANH, 2e-5, .alpha = 0),
    SLOPE("silu_slope", VKA_SILU, 1e-6, .alpha = 0),
    SLOPE("silu_1.702_slope", VKA_SILU, 1e-6, .alpha = 1.702),
    SLOPE("silu_50_slope", VKA_SILU, 1e-6, .alpha = 50),
    SLOPE("relu_slope", VKA_RELU, 0, .alpha = 0),
    SLOPE("tanh_slope", VKA_TANH, 1e-6, .alpha = 0),
    SLOPE("sigmoid_slope", VKA_SIGMOID, 1e-6, .alpha = 0),
    CONVERSION("store_f16", VKA_F32, VKA_F16, tie_points),
    CONVERSION("store_bf16", VKA_F32, VKA_BF16, tie_points),
    CONVERSION("load_f16", VKA_F16, VKA_F32, NULL),
    CONVERSION("load_bf16", VKA_BF16, VKA_F32, NULL),
    {.name = NULL},
};
