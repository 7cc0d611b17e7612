// Sums over some axes of a tensor, of products or squares too: gradients of what was broadcast,
// biases, losses, norms of gradients. See sum_axes_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "params/model.h"
#include "params/train.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"

layout(constant_id = AXES_A_TYPE) const uint A_TYPE = 0;
layout(constant_id = AXES_B_TYPE) const uint B_TYPE = 0;
layout(constant_id = AXES_Y_TYPE) const uint Y_TYPE = 0;
layout(constant_id = AXES_TERM) const uint TERM = 0;
layout(constant_id = AXES_INNER) const uint INNER = 1;
layout(constant_id = AXES_RESULT_LANES) const uint RESULT_LANES = 1;
layout(constant_id = AXES_COLUMNS) const bool COLUMNS = false;
layout(constant_id = AXES_ADD) const bool ADD = false;
layout(constant_id = AXES_PAIRS) const bool PAIRS = false;
layout(local_size_x = AXES_LANES) in;
layout(binding = 0) readonly buffer A { uint a_words[]; };
layout(binding = 1) readonly buffer B { uint b_words[]; };
layout(binding = 2) readonly buffer Stats { float stats[]; };
layout(binding = 3) buffer Y { uint y_words[]; };
layout(push_constant) uniform Push { sum_axes_params p; };

uvec4 kept_at; // coordinates of the result on the kept axes

// Those of reduced element e.
uvec4 at_element(uint e)
{
    uvec4 at = kept_at;
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

float term(uint e)
{
    uvec4 at = at_element(e);
    float a = LOAD(a_words, place(p.a, at), A_TYPE);
    if (TERM == TERM_VALUE)
        return a;
    float b = LOAD(b_words, place(p.b, at), B_TYPE);
    precise float product = a * b; // rounded by itself, whatever the compiler makes of the sum
    if (TERM == TERM_DIFFERENCE)
        product = (a - b) * (a - b);
    if (TERM == TERM_PRODUCT || TERM == TERM_DIFFERENCE)
        return product;
    uint s = p.stats_offset + NORM_STATS * e;
    product = a * (fma(b, stats[s + 2], -stats[s]) * stats[s + 1]);
    return product;
}

shared float partial[AXES_LANES];

float result_at(uint lane, uint index)
{
    return one_nan(ADD ? fma(partial[lane], p.scale, LOAD(y_words, index, Y_TYPE))
                       : partial[lane] * p.scale);
}

void main()
{
    uint lane = gl_LocalInvocationIndex, results = AXES_LANES / RESULT_LANES;
    uint own = COLUMNS ? lane % results : lane / RESULT_LANES;
    uint own_term = COLUMNS ? lane / results : lane % RESULT_LANES;
    uint result = (gl_WorkGroupID.y * ITEM_GRID + gl_WorkGroupID.x) * results + own;
    uvec3 outer = uvec3(INNER < 4 ? p.size0 : 1, INNER < 3 ? p.size1 : 1, INNER < 2 ? p.size2 : 1);
    bool there = result < outer.x * outer.y * outer.z;
    kept_at = uvec4(result / outer.z / outer.y, result / outer.z % outer.y, result % outer.z, 0);
    float sum = 0.0;
    if (there) {
        uint start = gl_WorkGroupID.z * AXES_SPLIT;
        uint end = min(start + AXES_SPLIT, p.n);
        for (uint e = start + own_term; e < end; e += RESULT_LANES)
            sum += term(p.first + e);
    }
    partial[lane] = sum;
    uint step_size = COLUMNS ? results : 1;
    for (uint step = RESULT_LANES / 2; step > 0; step /= 2) {
        barrier();
        if (own_term < step)
            partial[lane] += partial[lane + step * step_size];
    }
    if (PAIRS)
        barrier();
    if (!there || own_term > 0 || (PAIRS && own % 2 > 0))
        return;
    kept_at.w = gl_WorkGroupID.z; // no kept axis: of the last one y has the splits
    uint index = place(p.y, kept_at);
    float y = result_at(lane, index);
    if (PAIRS) {
        float next = result_at(lane + (COLUMNS ? 1 : RESULT_LANES), index + 1);
        y_words[index >> 1] = pair_word(vec2(y, next), Y_TYPE);
    } else {
        STORE(y_words, index, Y_TYPE, y);
    }
}
