/* What a quantised cache keeps. SPDX-License-Identifier: MIT */
#include <reference/reference.h>

#include <math.h>

void ref_cache_block(enum vka_dtype dtype, const float x[32], double y[32])
{
    double most = dtype == VKA_Q8_0 ? 127 : 7, least = dtype == VKA_Q8_0 ? -127 : -8;
    float peak = 0;
    for (int i = 0; i < 32 && !isnan(peak); i++)
        if (isnan(x[i]) || fabsf(x[i]) > fabsf(peak))
            peak = x[i];
    float scale = dtype == VKA_Q8_0 ? fabsf(peak) * (1.0f / 127) : peak * -0.125f;
    double d = ref_from_f16(ref_to_f16(scale));
    for (int i = 0; i < 32; i++) {
        double q = d == 0 ? 0 : round(x[i] / d);
        y[i] = isfinite(d) ? d * fmin(fmax(q, least), most) : NAN;
    }
}

double ref_cache_f8(float x, float scale)
{
    const float y = x * (1 / scale);
    const double most = 448;
    if (isnan(y))
        return NAN;
    if (fabs((double)y) >= most)
        return copysign(most, (double)y) * scale;
    int exponent = y == 0 ? -6 : ilogb((double)y);
    double unit = ldexp(1, (exponent < -6 ? -6 : exponent) - 3); /* between neighbours */
    return rint((double)y / unit) * unit * scale;
}

void ref_hadamard(const float *x, size_t dim, size_t block, float *y)
{
    for (size_t i = 0; i < dim; i++) {
        float sum = 0;
        for (size_t j = 0; j < block; j++) {
            size_t shared = i % block & j;
            int odd = 0;
            for (; shared; shared &= shared - 1)
                odd ^= 1;
            float term = x[i / block * block + j];
            sum += odd ? -term : term;
        }
        y[i] = sum * (1 / sqrtf((float)block));
    }
}
