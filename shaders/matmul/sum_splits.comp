// Adds the splits of a product whose k was cut, then applies alpha and bias. One invocation per
// element of C, or with PAIRS two neighbours, which are a whole word. See sum_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/pairwise.glsl"

layout(constant_id = SUM_C_TYPE) const uint C_TYPE = 0;
layout(constant_id = SUM_BIAS_TYPE) const uint BIAS_TYPE = BIAS_NONE;
layout(constant_id = SUM_ADD) const uint ADD = 0;
layout(constant_id = SUM_C_PAIRS) const bool PAIRS = false;

layout(local_size_x = SUM_LANES) in;
layout(binding = 0) readonly buffer Splits { float splits[]; };
layout(binding = 1) readonly buffer Bias { uint bias_words[]; };
layout(binding = 2) buffer C { uint c_words[]; };
layout(push_constant) uniform Push { sum_params p; };

uint first; // the element in split 0
float split(uint i) { return i < p.n_split ? splits[first + i * p.split] : 0.0; }
PAIRWISE(sum_splits, split)

// The element of C at `index`, whose splits are at `from` of theirs.
float finished(uint from, uint column, uint index)
{
    first = from;
    float x = p.alpha * sum_splits(p.n_split);
    if (BIAS_TYPE != BIAS_NONE)
        x += LOAD(bias_words, p.bias_offset + column, BIAS_TYPE);
    precise float sum = one_nan(x); // the addition rounds by itself, see result_of in lib/sums.glsl
    if (ADD != 0)
        sum = one_nan(sum + LOAD(c_words, index, C_TYPE));
    return sum;
}

void main()
{
    uint column = gl_GlobalInvocationID.x * (PAIRS ? 2 : 1);
    uint row = gl_WorkGroupID.y, z = gl_WorkGroupID.z;
    if (column >= p.n)
        return;
    uint from = p.offset + z / p.n_head * p.batch + z % p.n_head * p.head + row * p.row + column;
    uint index = p.c_offset + z / p.n_head * p.c_batch + z % p.n_head * p.c_head + row * p.c_row +
                 column * p.c_col;
    float x = finished(from, column, index);
    if (PAIRS)
        c_words[index >> 1] = pair_word(vec2(x, finished(from + 1, column + 1, index + 1)), C_TYPE);
    else
        STORE(c_words, index, C_TYPE, x)
}
