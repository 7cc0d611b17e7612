// RMS norm or layer norm of a row per workgroup, with a residual added before it or a gate. A lane takes pairs
// of neighbours, strided over the lanes, so that it reads only what it wrote, and 16-bit results are
// whole words where they may be. See norm_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "params/model.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"
#include "lib/row_power.glsl"
#include "lib/math.glsl"
#include "lib/activation.glsl"

layout(constant_id = NORM_LANES) const uint LANES = 32;
layout(constant_id = NORM_X_TYPE) const uint X_TYPE = 0;
layout(constant_id = NORM_OTHER_TYPE) const uint OTHER_TYPE = TYPE_NONE;
layout(constant_id = NORM_WEIGHT_TYPE) const uint WEIGHT_TYPE = TYPE_NONE;
layout(constant_id = NORM_BIAS_TYPE) const uint BIAS_TYPE = TYPE_NONE;
layout(constant_id = NORM_SUM_TYPE) const uint SUM_TYPE = TYPE_NONE;
layout(constant_id = NORM_Y_TYPE) const uint Y_TYPE = 0;
layout(constant_id = NORM_CENTER) const bool CENTER = false;
layout(constant_id = NORM_INNER) const uint INNER = 1;
layout(constant_id = NORM_SUM_PAIRS) const bool SUM_PAIRS = false;
layout(constant_id = NORM_Y_PAIRS) const bool Y_PAIRS = false;
layout(constant_id = NORM_GATE) const uint GATE = GATE_NONE;
layout(constant_id = NORM_FUNCTION) const uint FUNCTION = 0;
layout(constant_id = NORM_GROUPS) const bool GROUPS = false;
layout(local_size_x_id = NORM_LANES) in;
// The sum may lie in place of x or of the residual: none of them is readonly.
ALIASED layout(binding = 0) buffer X { uint x_words[]; };
ALIASED layout(binding = 1) buffer Other { uint other_words[]; };
layout(binding = 2) readonly buffer Weight { uint weight_words[]; };
layout(binding = 3) readonly buffer Bias { uint bias_words[]; };
ALIASED layout(binding = 4) buffer Sum { uint sum_words[]; };
ALIASED layout(binding = 5) buffer Y { uint y_words[]; };
layout(push_constant) uniform Push { norm_params p; };

uvec4 row_at;    // of element 0
uint n, n_pair;  // elements and pairs of the row
float power = 1.0; // what is normalised is a value times power, see lib/row_power.glsl
float mean;       // times power

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

float gate_at(uvec4 at)
{
    return activate(LOAD(other_words, place(p.other, at), OTHER_TYPE), FUNCTION, 1.0);
}

float load_input(uint e)
{
    uvec4 at = at_element(e);
    float x = LOAD(x_words, place(p.x, at), X_TYPE);
    if (OTHER_TYPE != TYPE_NONE && GATE == GATE_NONE)
        x += LOAD(other_words, place(p.other, at), OTHER_TYPE);
    if (GATE == GATE_FIRST) {
        precise float gated = x * gate_at(at); // no sum takes the product as an operand
        return gated;
    }
    return x;
}

// Elements 2 pair and the next; 0 behind the end of the row.
vec2 load_pair(uint pair)
{
    return vec2(load_input(2 * pair), 2 * pair + 1 < n ? load_input(2 * pair + 1) : 0.0);
}

void store_sum(uint e, float x)
{
    uint index = place(p.sum, at_element(e));
    STORE(sum_words, index, SUM_TYPE, x);
}

// The values to be normalised: with a sum, as its type holds them.
vec2 first_pair(uint pair)
{
    vec2 v = load_pair(pair);
    if (SUM_TYPE == TYPE_NONE)
        return v;
    v = vec2(one_nan(v.x), one_nan(v.y));
    if (SUM_PAIRS) {
        sum_words[place(p.sum, at_element(2 * pair)) >> 1] = pair_word(v, SUM_TYPE);
    } else {
        store_sum(2 * pair, v.x);
        if (2 * pair + 1 < n)
            store_sum(2 * pair + 1, v.y);
    }
    return vec2(rounded(v.x, SUM_TYPE), rounded(v.y, SUM_TYPE));
}

// The values of a pair that first_pair was called for.
vec2 next_pair(uint pair)
{
    if (SUM_TYPE == TYPE_NONE)
        return load_pair(pair);
    uint first = place(p.sum, at_element(2 * pair));
    float x = LOAD(sum_words, first, SUM_TYPE);
    if (2 * pair + 1 >= n)
        return vec2(x, 0.0);
    uint second = place(p.sum, at_element(2 * pair + 1));
    return vec2(x, LOAD(sum_words, second, SUM_TYPE));
}

float add_squares(vec2 v, float sum) { return fma(v.x, v.x, fma(v.y, v.y, sum)); }

float square_term(uint pair, float sum) { return add_squares(first_pair(pair), sum); }

float mean_term(uint pair, float sum)
{
    vec2 v = first_pair(pair);
    return sum + (v.x + v.y);
}

float scaled_term(uint pair, float sum)
{
    precise vec2 v = next_pair(pair) * power;
    return sum + (v.x + v.y);
}

float power_term(uint pair, float sum) { return add_squares(next_pair(pair) * power, sum); }

// Adds values less the mean, and their squares.
vec2 centered_term(uint pair, vec2 sum)
{
    vec2 v = fma(next_pair(pair), vec2(power), vec2(-mean));
    if (2 * pair + 1 >= n)
        v.y = 0.0;
    return vec2(sum.x + (v.x + v.y), add_squares(v, sum.y));
}

// Sums a term over the row: chains of NORM_BLOCK, then those, then the lanes as a tree.
#define ROW_SUM(type, name, term, reduce)                                                          \
    type name()                                                                                    \
    {                                                                                              \
        type total = type(0.0);                                                                    \
        for (uint first = gl_LocalInvocationIndex; first < n_pair; first += LANES * NORM_BLOCK) {  \
            type chain = type(0.0);                                                                \
            uint end = min(first + LANES * NORM_BLOCK, n_pair);                                    \
            for (uint pair = first; pair < end; pair += LANES)                                     \
                chain = term(pair, chain);                                                         \
            total += chain;                                                                        \
        }                                                                                          \
        return reduce(total);                                                                      \
    }
ROW_SUM(float, sum_squares, square_term, reduce_add)
ROW_SUM(float, sum_values, mean_term, reduce_add)
ROW_SUM(float, sum_scaled, scaled_term, reduce_add)
ROW_SUM(float, sum_powers, power_term, reduce_add)
ROW_SUM(vec2, sum_centered, centered_term, reduce_both)

float finish(uint e, float v, float scale)
{
    float y = fma(v, power, -mean) * scale, weight = 1.0;
    uint of_whole = GROUPS ? row_at.z * n + e : e;
    if (WEIGHT_TYPE != TYPE_NONE)
        weight = LOAD(weight_words, p.weight_offset + of_whole * p.weight_step, WEIGHT_TYPE);
    if (BIAS_TYPE == TYPE_NONE)
        y *= weight;
    else
        y = fma(y, weight, LOAD(bias_words, p.bias_offset + of_whole * p.bias_step, BIAS_TYPE));
    if (GATE == GATE_BEHIND)
        y *= gate_at(at_element(e));
    return one_nan(y);
}

void store_y(uint e, float y)
{
    uint index = place(p.y, at_element(e));
    STORE(y_words, index, Y_TYPE, y);
}

void main()
{
    uint row = gl_WorkGroupID.y * NORM_GRID + gl_WorkGroupID.x;
    uvec4 outer = uvec4(INNER < 4 ? p.size0 : 1, INNER < 3 ? p.size1 : 1, INNER < 2 ? p.size2 : 1, 1);
    if (row >= outer.x * outer.y * outer.z)
        return;
    row_at = uvec4(row / outer.z / outer.y, row / outer.z % outer.y, row % outer.z, 0);
    n = p.size3 * (INNER > 1 ? p.size2 : 1) * (INNER > 2 ? p.size1 : 1) * (INNER > 3 ? p.size0 : 1);
    n_pair = n / 2 + n % 2;
    mean = 0.0;
    float squares;
    if (CENTER) {
        mean = sum_values() / float(n);
        squares = settle_mean(sum_centered() / float(n), mean);
    } else {
        squares = sum_squares() / float(n);
    }
    if (squares_leave_range(squares, p.epsilon)) {
        power = row_power(squares, mean);
        if (CENTER) {
            mean = sum_scaled() / float(n);
            squares = settle_mean(sum_centered() / float(n), mean);
        } else {
            squares = sum_powers() / float(n);
        }
    }
    float scale = 1.0 / sqrt(squares + scaled_epsilon(p.epsilon, power));
    for (uint pair = gl_LocalInvocationIndex; pair < n_pair; pair += LANES) {
        vec2 v = next_pair(pair);
        v.x = finish(2 * pair, v.x, scale);
        if (2 * pair + 1 < n)
            v.y = finish(2 * pair + 1, v.y, scale);
        if (Y_PAIRS) {
            y_words[place(p.y, at_element(2 * pair)) >> 1] = pair_word(v, Y_TYPE);
            continue;
        }
        store_y(2 * pair, v.x);
        if (2 * pair + 1 < n)
            store_y(2 * pair + 1, v.y);
    }
}
