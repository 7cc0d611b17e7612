// Numbers that training needs once a step. See scalars_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "params/model.h"
#include "params/train.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"

layout(constant_id = SCALARS_KIND) const uint KIND = 0;
layout(constant_id = SCALARS_FACTOR) const bool FACTOR = false;
layout(local_size_x = 1) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) buffer Y { float y[]; }; // a step is an int in the bits of a float
layout(binding = 2) buffer Z { float z[]; };
layout(push_constant) uniform Push { scalars_params p; };

// 1 - e^(-n * (high + low)): of small products by a series, which loses no digits.
float correction(float n, float high, float low)
{
    float t = n * high, rest = fma(n, high, -t) + n * low;
    float u = t + rest;
    if (u > 0.5)
        return u > 87.0 ? 1.0 : 1.0 - exp_accurate(-u);
    float series = 1.0;
    for (uint i = 10; i > 1; i--)
        series = fma(-u / float(i), series, 1.0);
    return u * series;
}

void main()
{
    float rate = p.rate * (FACTOR ? x[p.x_offset] : 1.0);
    if (KIND == SCALARS_MEAN) {
        y[p.y_offset] = one_nan(x[p.x_offset] / x[p.x_offset + 1]);
    } else if (KIND == SCALARS_CLIP) {
        float norm = sqrt(x[p.x_offset]), factor = p.max_norm / (norm + SCALARS_CLIP_EPSILON);
        y[p.y_offset] = one_nan(norm);
        z[p.z_offset] = factor > 1.0 ? 1.0 : one_nan(factor);
    } else if (KIND == SCALARS_ADAM) {
        int step = floatBitsToInt(y[p.y_offset]);
        step = step < 0x7fffffff ? step + 1 : step;
        y[p.y_offset] = intBitsToFloat(step);
        z[p.z_offset] = rate;
        z[p.z_offset + 1] = rate / correction(float(step), p.first_high, p.first_low);
        z[p.z_offset + 2] = sqrt(correction(float(step), p.second_high, p.second_low));
    } else {
        z[p.z_offset] = rate;
    }
}
