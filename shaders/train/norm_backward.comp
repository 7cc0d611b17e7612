// Gradients of RMS norm and layer norm, a row per workgroup, and the statistics of the row. See
// norm_backward_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params/params.h"
#include "params/model.h"
#include "params/train.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"
#include "lib/row_power.glsl"
#include "lib/relu.glsl"

layout(constant_id = BACK_LANES) const uint LANES = 32;
layout(constant_id = BACK_X_TYPE) const uint X_TYPE = 0;
layout(constant_id = BACK_WEIGHT_TYPE) const uint WEIGHT_TYPE = TYPE_NONE;
layout(constant_id = BACK_DY_TYPE) const uint DY_TYPE = 0;
layout(constant_id = BACK_DX_TYPE) const uint DX_TYPE = TYPE_NONE;
layout(constant_id = BACK_CENTER) const bool CENTER = false;
layout(constant_id = BACK_INNER) const uint INNER = 1;
layout(constant_id = BACK_ADD) const bool ADD = false;
layout(local_size_x_id = BACK_LANES) in;
layout(binding = 0) readonly buffer X { uint x_words[]; };
layout(binding = 1) readonly buffer Weight { uint weight_words[]; };
layout(binding = 2) readonly buffer DY { uint dy_words[]; };
layout(binding = 3) buffer DX { uint dx_words[]; };
layout(binding = 4) writeonly buffer Stats { float stats[]; };
layout(push_constant) uniform Push { norm_backward_params p; };

uvec4 row_at; // of element 0
uint n;       // elements of the row
float power = 1.0;   // what was normalised is a value times power, see lib/row_power.glsl
float mean, scale;  // of those

#include "lib/row_sums.glsl"

// Coordinates of element e of the row.
uvec4 at_element(uint e)
{
    uvec4 at = row_at;
    if (INNER == 1) {
        at.w = e;
        return at;
    }
    at.w = e % p.size3;
    e /= p.size3;
    at.z = INNER == 2 ? e : e % p.size2;
    if (INNER >= 3) {
        e /= p.size2;
        at.y = INNER == 3 ? e : e % p.size1;
    }
    if (INNER == 4)
        at.x = e / p.size1;
    return at;
}

float input_at(uint e) { return LOAD(x_words, place(p.x, at_element(e)), X_TYPE); }

float centered(uint e) { return input_at(e) * power - mean; }

// The gradient of the normalised element.
float slope(uint e)
{
    precise float g = LOAD(dy_words, place(p.dy, at_element(e)), DY_TYPE); // a sum's operand, or another's
    if (WEIGHT_TYPE != TYPE_NONE)
        g *= LOAD(weight_words, p.weight_offset + e * p.weight_step, WEIGHT_TYPE);
    return g;
}

float square(uint e)
{
    float v = centered(e);
    return v * v;
}

// A value less the mean, and its square.
vec2 left_and_square(uint e)
{
    float v = centered(e);
    precise float squared = v * v;
    return vec2(v, squared);
}

float slope_product(uint e) { return slope(e) * (centered(e) * scale); }

// Sums a term over the row: chains of BACK_BLOCK, then those, then the lanes as a tree.
#define ROW_SUM(type, name, term, reduce)                                                          \
    type name()                                                                                    \
    {                                                                                              \
        type total = type(0.0);                                                                    \
        for (uint first = gl_LocalInvocationIndex; first < n; first += LANES * BACK_BLOCK) {       \
            type chain = type(0.0);                                                                \
            uint end = min(first + LANES * BACK_BLOCK, n);                                         \
            for (uint e = first; e < end; e += LANES)                                              \
                chain += term(e);                                                                  \
            total += chain;                                                                        \
        }                                                                                          \
        return reduce(total);                                                                      \
    }
ROW_SUM(float, sum_values, centered, reduce_add)
ROW_SUM(float, sum_squares, square, reduce_add)
ROW_SUM(vec2, sum_both, left_and_square, reduce_both)
ROW_SUM(float, sum_slopes, slope, reduce_add)
ROW_SUM(float, sum_products, slope_product, reduce_add)

// Sets the mean; returns the mean square, or the variance.
float spread()
{
    mean = 0.0;
    if (!CENTER)
        return sum_squares() / float(n);
    mean = sum_values() / float(n);
    return settle_mean(sum_both() / float(n), mean);
}

void main()
{
    uint row = gl_WorkGroupID.y * NORM_GRID + gl_WorkGroupID.x;
    uvec4 outer = uvec4(INNER < 4 ? p.size0 : 1, INNER < 3 ? p.size1 : 1, INNER < 2 ? p.size2 : 1, 1);
    if (row >= outer.x * outer.y * outer.z)
        return;
    row_at = uvec4(row / outer.z / outer.y, row / outer.z % outer.y, row % outer.z, 0);
    n = p.size3 * (INNER > 1 ? p.size2 : 1) * (INNER > 2 ? p.size1 : 1) * (INNER > 3 ? p.size0 : 1);
    float squares = spread();
    if (squares_leave_range(squares, p.epsilon)) {
        power = row_power(squares, mean);
        squares = spread();
    }
    scale = 1.0 / sqrt(squares + scaled_epsilon(p.epsilon, power));
    if (gl_LocalInvocationIndex == 0) {
        uint at = p.stats_offset + row_at.x * p.stats0 + row_at.y * p.stats1 + row_at.z * p.stats2;
        stats[at] = mean;
        stats[at + 1] = scale;
        stats[at + 2] = power;
    }
    if (DX_TYPE == TYPE_NONE)
        return;
    float slopes = CENTER ? sum_slopes() / float(n) : 0.0, products = sum_products() / float(n);
    const uint STEP = DX_TYPE == TYPE_F32 ? 1 : 2; // elements that a lane stores
    for (uint e = STEP * gl_LocalInvocationIndex; e < n; e += STEP * LANES) {
        uint index = place(p.dx, at_element(e)), count = min(n - e, STEP);
        vec2 y = vec2(0.0);
        [[unroll]] for (uint i = 0; i < STEP; i++) {
            if (i == count)
                break;
            y[i] = scale * (slope(e + i) - slopes - centered(e + i) * scale * products) * power;
            if (ADD)
                y[i] += LOAD(dx_words, place(p.dx, at_element(e + i)), DX_TYPE);
            y[i] = one_nan(y[i]);
        }
        if (count == 2)
            STORE_PAIR(dx_words, index, place(p.dx, at_element(e + 1)) - index, DX_TYPE, y)
        else
            STORE(dx_words, index, DX_TYPE, y.x)
    }
}
