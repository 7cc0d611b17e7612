#include <reference/model.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ref_norm(const double *x, size_t rows, size_t n, enum vka_norm kind, const double *weight,
              const double *bias, double epsilon, double *y)
{
    for (size_t r = 0; r < rows; r++, x += n, y += n) {
        double mean = 0, squares = 0;
        for (size_t i = 0; i < n && kind == VKA_LAYER_NORM; i++)
            mean += x[i] / (double)n;
        for (size_t i = 0; i < n; i++)
            squares += (x[i] - mean) * (x[i] - mean) / (double)n;
        for (size_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) / sqrt(squares + epsilon) * (weight ? weight[i] : 1) +
                   (bias ? bias[i] : 0);
    }
}

void ref_conv1d(const struct ref_conv1d *c, const double *x, const double *w, const double *bias,
                double *y)
{
    for (size_t i = 0; i < c->batch * c->rows * c->out; i++) {
        size_t o = i % c->out, t = i / c->out % c->rows, b = i / c->out / c->rows;
        double sum = bias ? bias[o] : 0;
        for (size_t j = 0; j < c->width; j++) {
            size_t row = t * c->stride + j; /* of the padded input */
            if (row < c->before || row >= c->before + c->length)
                continue;
            for (size_t f = 0; f < c->in; f++)
                sum += x[(b * c->length + row - c->before) * c->in + f] *
                       w[(o * c->width + j) * c->in + f];
        }
        y[i] = ref_activation(c->activation, 1, sum);
    }
}

void ref_merge(const double *const *slices, const double *const *l, size_t n_slice, size_t rows,
               size_t n, double *y, double *log_sum)
{
    for (size_t r = 0; r < rows; r++) {
        double most = -INFINITY, sum = 0;
        for (size_t i = 0; i < n_slice; i++)
            most = l[i][r] > most ? l[i][r] : most;
        for (size_t c = 0; c < n; c++)
            y[r * n + c] = 0;
        for (size_t i = 0; i < n_slice; i++) {
            if (l[i][r] == -INFINITY)
                continue;
            double weight = l[i][r] == most ? 1 : exp(l[i][r] - most); /* both may be +inf */
            sum += weight;
            for (size_t c = 0; c < n; c++)
                y[r * n + c] += weight * slices[i][r * n + c];
        }
        log_sum[r] = sum == 0 ? -INFINITY : most + log(sum);
        for (size_t c = 0; c < n && sum != 0; c++)
            y[r * n + c] /= sum;
    }
}

double ref_activation(enum vka_activation kind, double alpha, double x)
{
    const double root = sqrt(0.5), tanh_scale = 0.79788456080286535588; /* sqrt(2 / pi) */
    switch (kind) {
    case VKA_GELU:
        return x * 0.5 * erfc(-x * root);
    case VKA_GELU_TANH:
        return x / (1 + exp(-2 * tanh_scale * (x + 0.044715 * x * x * x)));
    case VKA_SILU:
        return x / (1 + exp(-alpha * x));
    case VKA_RELU:
        return x < 0 ? 0 : x;
    case VKA_TANH:
        return tanh(x);
    case VKA_SIGMOID:
        return 1 / (1 + exp(-x));
    case VKA_IDENTITY:
    case VKA_ACTIVATION_COUNT:
        break;
    }
    return x;
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Sets what is below the bound to 0. */
static void leave_out(double *w, size_t n, double bound)
{
    for (size_t i = 0; i < n; i++)
        w[i] = w[i] < bound ? 0 : w[i];
}

enum vka_status ref_sample(const double *logits, size_t n, const struct vka_sample_op *op,
                           double *w)
{
    double largest = -INFINITY, sum = 0, enough = 0;
    double *sorted = calloc(n, sizeof *sorted);
    if (!sorted)
        return VKA_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; i < n; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    for (size_t i = 0; i < n; i++) {
        double x = logits[i] == largest ? 0 : (logits[i] - largest) / (double)op->temperature;
        w[i] = isnan(logits[i]) || largest == -INFINITY ? 0 : exp(x);
    }
    memcpy(sorted, w, n * sizeof *w);
    qsort(sorted, n, sizeof *sorted, descending);
    if (op->top_k && op->top_k < n)
        leave_out(w, n, sorted[op->top_k - 1]);
    for (size_t i = 0; i < n; i++)
        sum += w[i];
    if (op->top_p > 0 && op->top_p < 1)
        for (size_t i = 0; i < n; i++) {
            enough += sorted[i];
            if (enough >= (double)op->top_p * sum) {
                leave_out(w, n, sorted[i]);
                break;
            }
        }
    leave_out(w, n, (double)op->min_p);
    sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += w[i];
    for (size_t i = 0; i < n && sum > 0; i++)
        w[i] /= sum;
    free(sorted);
    return VKA_OK;
}
