/* Large products: what a row and a column give is a sum that all share, times a factor of each. */
#include "large_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PLANTED_PERIOD 97 /* rows; NaN in one of them, Inf in another */
#define PLANTED_NAN 13
#define PLANTED_INF 17

struct product {
    const struct large_linear *l;
    uint64_t m;
    struct large_tensor input, weight, bias, output;
    double *inputs, *weights; /* [k], what all rows have before their factor */
    double shared;            /* sum of their products, relu included */
};

static double factor(uint64_t i)
{
    static const double factors[] = {1, -1, 0.5, 1, -0.5};
    return factors[i % 5];
}

static double bias_of(const struct large_linear *l, uint64_t column)
{
    return l->has_bias ? (double)(column % 7) - 3 : 0;
}

/* Where row m has one more in its input. */
static uint64_t spike(const struct large_linear *l, uint64_t row)
{
    return (row * 2654435761u + l->k - 1) % l->k;
}

/* Where the weights of a column are 1: often near ends and near multiples of powers of two. */
static uint64_t hot(const struct large_linear *l, uint64_t column)
{
    uint32_t x = large_mix((uint32_t)column, 3);
    uint64_t near = (uint64_t)(x >> 8 & 255) * 16384 + (x >> 16 & 3);
    return x % 4 == 0   ? l->k - 1 - x / 4 % (l->k < 8 ? l->k : 8)
           : x % 4 == 1 ? near % l->k
                        : x / 4 % l->k;
}

/* Small integers, with which every sum of a product of 2^22 is exact; or a ramp whose sum is about
 * 1, in 32 steps for types that have no more. */
static void fill_shared(struct product *p)
{
    const struct large_linear *l = p->l;
    bool steps = l->input != VKA_F32;
    int shift = 0, in, weight; /* no float16 below 2^-14 */
    while (1ull << shift < l->k)
        shift++;
    in = shift < 8 ? shift : 8;
    weight = shift - in < 12 ? shift - in : 12;
    for (uint64_t i = 0; i < l->k; i++) {
        uint32_t x = l->pattern == LARGE_HASH ? large_mix((uint32_t)i, 1) : (uint32_t)i;
        double ramp = steps ? (double)(1 + i * 32 / l->k) / 32 : (double)(i + 1) / (double)l->k;
        if (l->kind == LARGE_RAMP) {
            p->inputs[i] = ldexp(ramp, -in);
            p->weights[i] = ldexp(i % 3 ? 1 : 0.5, -weight);
        } else {
            p->inputs[i] =
                l->kind == LARGE_ONE_HOT ? (double)(x % 33) / 16 - 1 : (double)(x % 4) - 1;
            p->weights[i] =
                l->pattern == LARGE_STEP ? (i < l->k / 2 ? 1 : -1) : (x >> 2 & 1 ? 1 : -1);
        }
        p->inputs[i] = large_round(l->input, p->inputs[i]);
        p->weights[i] = large_round(l->weight, p->weights[i]);
    }
}

/* What the input of a row is at i; planted rows apart. */
static double input_at(const struct product *p, uint64_t row, uint64_t i)
{
    const struct large_linear *l = p->l;
    double x = factor(row) * p->inputs[i];
    return l->kind == LARGE_EXACT && i == spike(l, row) ? x + 1 : x;
}

static double relu(const struct large_linear *l, double x)
{
    return l->relu && x < 0 ? 0 : x;
}

static bool fill(struct product *p)
{
    const struct large_linear *l = p->l;
    if (!large_host(&p->input) || !large_host(&p->weight) || (l->has_bias && !large_host(&p->bias)))
        return false;
    for (uint64_t row = 0; row < p->m; row++) {
        for (uint64_t i = 0; i < l->k; i++)
            large_store(&p->input, row * l->k + i, large_encode(l->input, input_at(p, row, i)));
        uint64_t place = row % PLANTED_PERIOD;
        if (l->planted && (place == PLANTED_NAN || place == PLANTED_INF))
            large_store(&p->input, row * l->k + spike(l, row),
                        large_encode(l->input, place == PLANTED_NAN ? (double)NAN : INFINITY));
    }
    for (uint64_t column = 0; column < l->n; column++) {
        for (uint64_t i = 0; i < l->k; i++) {
            double w = factor(column + 2) * p->weights[i];
            if (l->kind == LARGE_ONE_HOT)
                w = i == hot(l, column);
            large_store(&p->weight, column * l->k + i, large_encode(l->weight, w));
        }
        if (l->has_bias)
            large_store(&p->bias, column, large_encode(l->bias, bias_of(l, column)));
    }
    return true;
}

/* The sum over inputs whose factor has this sign, as relu tells them apart. */
static double shared_sum(const struct product *p, double sign)
{
    long double sum = 0;
    for (uint64_t i = 0; i < p->l->k; i++)
        sum += (long double)(relu(p->l, sign * p->inputs[i]) * p->weights[i]);
    return (double)sum;
}

/* Row [n] of the output. */
static void want_row(const struct product *p, uint64_t row, const double sums[2], double *want)
{
    const struct large_linear *l = p->l;
    uint64_t place = row % PLANTED_PERIOD, at = spike(l, row);
    double f = factor(row), sum = fabs(f) * (f < 0 ? sums[1] : sums[0]);
    if (l->kind == LARGE_EXACT) /* the spike's own share replaces what was summed there */
        sum += (relu(l, f * p->inputs[at] + 1) - relu(l, f * p->inputs[at])) * p->weights[at];
    for (uint64_t column = 0; column < l->n; column++) {
        double y = factor(column + 2) * sum;
        if (l->kind == LARGE_ONE_HOT)
            y = relu(l, input_at(p, row, hot(l, column)));
        y += bias_of(l, column);
        if (l->planted && place == PLANTED_NAN)
            y = (double)NAN;
        if (l->planted && place == PLANTED_INF)
            y = factor(column + 2) * p->weights[at] > 0 ? (double)INFINITY : -(double)INFINITY;
        want[column] = l->kind == LARGE_RAMP ? y : large_round(l->output, y);
    }
}

static bool judge(struct product *p, struct vka_plan *plan, struct large_result *result)
{
    const struct large_linear *l = p->l;
    struct large_verdict v = large_verdict("output", l->output, result->kernels);
    struct vka_nonfinite_info info = {0};
    const double sums[2] = {shared_sum(p, 1), shared_sum(p, -1)};
    double *want = malloc(l->n * sizeof *want);
    uint64_t nan = 0, inf = 0;
    if (!want)
        return false;
    for (uint64_t row = 0; row < p->m; row++) {
        want_row(p, row, sums, want);
        large_judge(&v, &p->output, row * l->n, l->n, want, l->kind != LARGE_RAMP);
        nan += l->planted && row % PLANTED_PERIOD == PLANTED_NAN ? l->n : 0;
        inf += l->planted && row % PLANTED_PERIOD == PLANTED_INF ? l->n : 0;
    }
    free(want);
    if (!large_judged(&v, result))
        return false;
    if (!l->nonfinite)
        return true;
    bool ok = vka_plan_nonfinite(plan, 0, &info) == VKA_OK && info.nan == nan && info.inf == inf;
    if (!ok)
        snprintf(result->why, LARGE_WHY, "%llu NaN and %llu Inf counted, not %llu and %llu",
                 (unsigned long long)info.nan, (unsigned long long)info.inf,
                 (unsigned long long)nan, (unsigned long long)inf);
    return ok;
}

static enum vka_status create(struct vka_device *device, struct product *p)
{
    const struct large_linear *l = p->l;
    uint32_t in[4], out[4];
    p->m = 1;
    for (uint32_t i = 0; i + 1 < l->rank; i++) {
        in[i] = out[i] = l->m[i];
        p->m *= l->m[i];
    }
    in[l->rank - 1] = l->k;
    out[l->rank - 1] = l->n;
    enum vka_status status = large_tensor_create(device, l->input, l->rank, in, 0, &p->input);
    if (status == VKA_OK)
        status = large_tensor_create(device, l->weight, 2, (const uint32_t[]){l->n, l->k}, 0,
                                     &p->weight);
    if (status == VKA_OK && l->has_bias)
        status = large_tensor_create(device, l->bias, 1, &l->n, 0, &p->bias);
    if (status == VKA_OK)
        status = large_tensor_create(device, l->output, l->rank, out, 0, &p->output);
    return status;
}

static enum vka_status upload(struct product *p)
{
    if (!fill(p))
        return VKA_OUT_OF_HOST_MEMORY;
    enum vka_status status = large_upload(&p->input);
    if (status == VKA_OK)
        status = large_upload(&p->weight);
    if (status == VKA_OK && p->bias.view)
        status = large_upload(&p->bias);
    if (status == VKA_OK)
        status = large_blank(&p->output);
    return status;
}

bool large_check_linear(struct vka_device *device, const struct large_problem *p,
                        struct large_result *result)
{
    const struct large_linear *l = &p->l;
    struct product x = {.l = l};
    struct vka_plan *plan = NULL;
    enum vka_status status = create(device, &x);
    struct vka_linear_op op = {.struct_size = sizeof op,
                               .input = x.input.view,
                               .weight = x.weight.view,
                               .bias = x.bias.view,
                               .output = x.output.view,
                               .relu_input = l->relu};
    if (status == VKA_OK)
        status = large_finish(device, p, l->nonfinite, &(struct large_add){.linear = &op}, &plan,
                              result);
    if (p->judge) {
        if (status == VKA_OK)
            status = large_run(plan);
        goto end;
    }
    x.inputs = malloc(l->k * sizeof *x.inputs);
    x.weights = malloc(l->k * sizeof *x.weights);
    if (status == VKA_OK && (!x.inputs || !x.weights))
        status = VKA_OUT_OF_HOST_MEMORY;
    if (status == VKA_OK) {
        fill_shared(&x);
        status = upload(&x);
    }
    if (status == VKA_OK)
        status = large_run(plan);
    if (status == VKA_OK)
        status = large_download(&x.output);
    bool ok;
end:
    ok = status == VKA_OK ? p->judge || judge(&x, plan, result)
                          : large_failed(device, status, result);
    vka_plan_destroy(&plan);
    large_tensor_destroy(&x.input);
    large_tensor_destroy(&x.weight);
    large_tensor_destroy(&x.bias);
    large_tensor_destroy(&x.output);
    free(x.inputs);
    free(x.weights);
    return ok;
}
