#include <reference/train.h>

#include <math.h>
#include <string.h>

void ref_linear_backward(const double *x, const double *w, const double *dy, size_t rows, size_t in,
                         size_t out, bool relu, double *dx, double *dw, double *db)
{
    if (dw)
        memset(dw, 0, out * in * sizeof *dw);
    if (db)
        memset(db, 0, out * sizeof *db);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < in; i++) {
            double value = x ? x[r * in + i] : 0, sum = 0;
            for (size_t o = 0; o < out; o++) {
                sum += dx ? dy[r * out + o] * w[o * in + i] : 0;
                if (dw)
                    dw[o * in + i] += (relu && value < 0 ? 0 : value) * dy[r * out + o];
            }
            if (dx)
                dx[r * in + i] = relu && value <= 0 ? 0 : sum;
        }
    for (size_t r = 0; r < rows && db; r++)
        for (size_t o = 0; o < out; o++)
            db[o] += dy[r * out + o];
}

double ref_activation_slope(enum vka_activation kind, double alpha, double x)
{
    const double root = sqrt(0.5), density = 0.39894228040143267794; /* 1 / sqrt(2 pi) */
    const double scale = 1.59576912160573071176;                     /* 2 sqrt(2 / pi) */
    double s = 0;
    switch (kind) {
    case VKA_GELU:
        return 0.5 * erfc(-x * root) + x * density * exp(-x * x / 2);
    case VKA_GELU_TANH:
        s = 1 / (1 + exp(-scale * (x + 0.044715 * x * x * x)));
        return s + x * s * (1 - s) * scale * (1 + 3 * 0.044715 * x * x);
    case VKA_SILU:
        s = 1 / (1 + exp(-alpha * x));
        return s + alpha * x * s * (1 - s);
    case VKA_RELU:
        return x <= 0 ? 0 : 1;
    case VKA_TANH:
        return 1 / (cosh(x) * cosh(x));
    case VKA_SIGMOID:
        s = exp(-fabs(x));
        return s / ((1 + s) * (1 + s));
    case VKA_IDENTITY:
    case VKA_ACTIVATION_COUNT:
        break;
    }
    return 1;
}

/* The loss of a row, and its gradient of `scale`, which may be NULL. */
static double row_entropy(const double *x, size_t n, int32_t label, double smoothing, double scale,
                          double *gradient)
{
    bool known = label >= 0 && (size_t)label < n;
    double most = -INFINITY, sum = 0, mean = 0;
    for (size_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < n; i++) {
        sum += exp(x[i] - most);
        mean += (x[i] - most) / (double)n;
    }
    double below = known ? x[label] - most : 0;
    for (size_t i = 0; i < n && gradient; i++) {
        double target = smoothing / (double)n + (i == (size_t)label ? 1 - smoothing : 0);
        gradient[i] = known ? scale * (exp(x[i] - most) / sum - target) : (double)NAN;
    }
    mean = smoothing > 0 ? smoothing * mean : 0;
    return known ? log(sum) - (1 - smoothing) * below - mean : (double)NAN;
}

double ref_cross_entropy(const double *logits, const int32_t *labels, size_t rows, size_t n,
                         double smoothing, double scale, double *gradient)
{
    double count = 0, loss = 0;
    for (size_t r = 0; r < rows; r++)
        count += labels[r] != -100;
    for (size_t r = 0; r < rows; r++) {
        double *own = gradient ? gradient + r * n : NULL;
        if (labels[r] != -100)
            loss += row_entropy(logits + r * n, n, labels[r], smoothing, scale / count, own);
        else if (own)
            memset(own, 0, n * sizeof *own);
    }
    return loss / count;
}

double ref_square_error(const double *x, const double *target, size_t n, double scale,
                        double *gradient)
{
    double loss = 0;
    for (size_t i = 0; i < n; i++) {
        double d = x[i] - target[i];
        loss += d * d / (double)n;
        if (gradient)
            gradient[i] = 2 * scale * d / (double)n;
    }
    return loss;
}

void ref_optimiser(const struct vka_optimiser_op *op, size_t n, int64_t step, double *w,
                   const double *g, double *m, double *v)
{
    double beta1 = op->beta1 != 0 || op->given & VKA_GIVEN_BETA1 ? op->beta1 : 0.9;
    double beta2 = op->beta2 != 0 || op->given & VKA_GIVEN_BETA2 ? op->beta2 : 0.999;
    double epsilon = op->epsilon != 0 || op->given & VKA_GIVEN_EPSILON ? op->epsilon : 1e-8;
    double rate = op->learning_rate;
    double first = 1 - pow(beta1, (double)step), second = 1 - pow(beta2, (double)step);
    for (size_t i = 0; i < n; i++) {
        const double decay = op->weight_decay != 0 ? op->weight_decay * w[i] : 0; /* of Inf by 0 */
        double d = g[i] + (op->kind == VKA_ADAMW ? 0 : decay);
        if (op->kind == VKA_ADAMW)
            w[i] -= rate * decay;
        if (op->kind == VKA_SGD) {
            if (op->momentum > 0) {
                m[i] = op->momentum * m[i] + d;
                d = op->nesterov ? d + op->momentum * m[i] : m[i];
            }
            w[i] -= rate * d;
            continue;
        }
        m[i] = beta1 * m[i] + (1 - beta1) * d;
        v[i] = beta2 * v[i] + (1 - beta2) * d * d;
        w[i] -= rate * (m[i] / first) / (sqrt(v[i] / second) + epsilon);
    }
}

double ref_clip(const double *g, size_t n, double max_norm, double *factor)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += g[i] * g[i];
    *factor = max_norm / (sqrt(sum) + 1e-6);
    *factor = *factor < 1 ? *factor : 1;
    return sqrt(sum);
}

void ref_norm_backward(const double *x, const double *dy, size_t rows, size_t n, enum vka_norm kind,
                       const double *weight, double epsilon, double *dx, double *dw, double *db)
{
    const bool layer = kind == VKA_LAYER_NORM;
    for (size_t i = 0; i < n; i++) {
        if (dw)
            dw[i] = 0;
        if (db)
            db[i] = 0;
    }
    for (size_t r = 0; r < rows; r++, x += n, dy += n) {
        double mean = 0, square = 0, slope = 0, product = 0;
        for (size_t i = 0; i < n && layer; i++)
            mean += x[i] / (double)n;
        for (size_t i = 0; i < n; i++)
            square += (x[i] - mean) * (x[i] - mean) / (double)n;
        const double root = sqrt(square + epsilon);
        for (size_t i = 0; i < n; i++) {
            double g = dy[i] * (weight ? weight[i] : 1), v = (x[i] - mean) / root;
            slope += layer ? g / (double)n : 0;
            product += g * v / (double)n;
            if (dw)
                dw[i] += dy[i] * v;
            if (db)
                db[i] += dy[i];
        }
        for (size_t i = 0; i < n && dx; i++)
            dx[r * n + i] =
                (dy[i] * (weight ? weight[i] : 1) - slope - (x[i] - mean) / root * product) / root;
    }
}
