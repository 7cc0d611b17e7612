/* Everything around attention: projections, norms, rotation, the random generator, storage types
 * and the measure of error. SPDX-License-Identifier: MIT */
#include <reference/numbers.h>

#include <math.h>
#include <string.h>

void ref_linear(const double *x, const double *w, const double *bias, size_t rows, size_t in,
                size_t out, bool relu, double *y)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t o = 0; o < out; o++) {
            double sum = 0;
            for (size_t i = 0; i < in; i++) {
                double value = x[r * in + i];
                /* This order lets NaN pass. */
                sum += (relu && value < 0 ? 0 : value) * w[o * in + i];
            }
            y[r * out + o] = bias ? sum + bias[o] : sum;
        }
}

void ref_rms_norm(double *x, size_t rows, size_t dim, const double *weight, double epsilon)
{
    for (size_t r = 0; r < rows; r++, x += dim) {
        double square = 0;
        for (size_t d = 0; d < dim; d++)
            square += x[d] * x[d];
        double root = sqrt(square / (double)dim + epsilon);
        for (size_t d = 0; d < dim; d++)
            x[d] = x[d] / root * weight[d];
    }
}

void ref_rope(double *x, size_t rows, size_t dim, const struct vka_rope *rope, int64_t first)
{
    double base = rope->base != 0 ? (double)rope->base : 10000;
    double factor = rope->attention_factor != 0 ? (double)rope->attention_factor : 1;
    size_t half = rope->dim / 2;
    for (size_t r = 0; r < rows; r++, x += dim)
        for (size_t i = 0; i < half; i++) {
            double position = (double)(first + (int64_t)r);
            double angle = position * (rope->frequencies ? rope->frequencies[i]
                                                         : pow(base, -2 * (double)i / rope->dim));
            double *even = x + (rope->interleaved ? 2 * i : i);
            double *odd = x + (rope->interleaved ? 2 * i + 1 : i + half);
            double a = *even, b = *odd;
            *even = factor * (a * cos(angle) - b * sin(angle));
            *odd = factor * (a * sin(angle) + b * cos(angle));
        }
}

void ref_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    memcpy(out, counter, 4 * sizeof *out);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)out[0] * 0xD2511F53u;
        uint64_t p1 = (uint64_t)out[2] * 0xCD9E8D57u;
        uint32_t c1 = out[1], c3 = out[3];
        out[0] = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        out[1] = (uint32_t)p1;
        out[2] = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        out[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* The normalised squared error of a row; infinite if a non-finite value does not match. */
static double row_error(const double *got, const double *want, size_t width)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < width; i++) {
        if (isfinite(got[i]) && isfinite(want[i])) {
            error += (got[i] - want[i]) * (got[i] - want[i]);
            norm += want[i] * want[i];
        } else if (!(isnan(got[i]) && isnan(want[i])) && got[i] != want[i]) {
            return INFINITY;
        }
    }
    return error / fmax(norm, 1e-60);
}

double ref_row_nmse(const double *got, const double *want, size_t rows, size_t width,
                    size_t *worst_row)
{
    double worst = 0;
    if (worst_row)
        *worst_row = 0;
    for (size_t r = 0; r < rows; r++) {
        double error = row_error(got + r * width, want + r * width, width);
        if (error > worst) {
            worst = error;
            if (worst_row)
                *worst_row = r;
        }
    }
    return worst;
}

double ref_from_f16(uint16_t h)
{
    int exponent = h >> 10 & 31;
    double fraction = h & 1023;
    double x;
    if (exponent == 31)
        x = fraction != 0 ? NAN : INFINITY;
    else if (exponent == 0)
        x = ldexp(fraction, -24); /* subnormal: no implicit bit */
    else
        x = ldexp(fraction + 1024, exponent - 25);
    return h & 0x8000 ? -x : x;
}

double ref_from_bf16(uint16_t b)
{
    uint32_t bits = (uint32_t)b << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* Rounds |x| to a type with `bits` fraction bits and normal exponents `least` to 1 - least, and
 * returns its bits without the sign. A carry out of the fraction increases the exponent, which is
 * right, up to infinity. rint rounds to even in the default mode. */
static uint16_t narrow(double x, int bits, int least)
{
    uint32_t infinity = (uint32_t)(2 - 2 * least + 1) << bits;
    int exponent;
    x = fabs(x);
    if (isnan(x))
        return (uint16_t)(infinity | 1u << (bits - 1));
    if (isinf(x))
        return (uint16_t)infinity;
    if (x == 0)
        return 0;
    frexp(x, &exponent);
    exponent = exponent - 1 < least ? least : exponent - 1;
    if (exponent > 1 - least)
        return (uint16_t)infinity;
    /* In units of the last place: below 2^bits for subnormals, at least 2^bits for normals. */
    double rounded = rint(ldexp(x, bits - exponent));
    uint32_t result = ((uint32_t)(exponent - least) << bits) + (uint32_t)rounded;
    return (uint16_t)(result < infinity ? result : infinity);
}

uint16_t ref_to_f16(double x)
{
    return (uint16_t)(narrow(x, 10, -14) | (signbit(x) ? 0x8000 : 0));
}

uint16_t ref_to_bf16(double x)
{
    return (uint16_t)(narrow(x, 7, -126) | (signbit(x) ? 0x8000 : 0));
}
