#include <reference/model.h>

#include <math.h>

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
            y[i] = (x[i] - mean) / sqrt(squares + (epsilon != 0 ? epsilon : 1e-5)) *
                       (weight ? weight[i] : 1) +
                   (bias ? bias[i] : 0);
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
