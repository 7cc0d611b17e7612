// Multiplies rows by a Hadamard matrix on each block of `block` features, a power of two: feature i
// becomes the sum over j of (-1)^(bits that i and j share) x[j], times 1 / sqrt(block). It is its own
// inverse. One invocation a feature, or with PAIRS two neighbours, which are a whole word; sums in order of
// j. Blocks of one feature copy. See hadamard_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "lib/dtype.glsl"

layout(constant_id = HADAMARD_FROM_TYPE) const uint FROM_TYPE = 0;
layout(constant_id = HADAMARD_TO_TYPE) const uint TO_TYPE = 0;
layout(constant_id = HADAMARD_PAIRS) const bool PAIRS = false;
layout(local_size_x = HADAMARD_LANES) in;
layout(binding = 0) readonly buffer From { uint from_words[]; };
layout(binding = 1) buffer To { uint to_words[]; };
layout(binding = 2) readonly buffer QStart { uint q_start[]; };
layout(push_constant) uniform Push { hadamard_params p; };

// A feature of the row at `from`, which is even with PAIRS, and the next. Both are sums of the same
// block, but for blocks of one.
vec2 transformed(uint from, uint feature)
{
    uint block = p.block, place = feature % block, first = feature - place;
    float x = LOAD(from_words, from + first * p.from_col, FROM_TYPE);
    precise vec2 sum = vec2(x);
    if (PAIRS && block == 1)
        sum.y = LOAD(from_words, from + (first + 1) * p.from_col, FROM_TYPE);
    for (uint j = 1; j < block; j++) {
        x = LOAD(from_words, from + (first + j) * p.from_col, FROM_TYPE);
        sum.x += (bitCount(place & j) & 1) != 0 ? -x : x;
        if (PAIRS)
            sum.y += (bitCount(place + 1 & j) & 1) != 0 ? -x : x;
    }
    precise vec2 y = sum * p.factor;
    return y;
}

void main()
{
    uint e = gl_GlobalInvocationID.x * (PAIRS ? 2 : 1);
    if (e >= p.n_row * p.head_dim)
        return;
    uvec4 at = uvec4(gl_WorkGroupID.z, gl_WorkGroupID.y, e / p.head_dim, e % p.head_dim);
    uint row = p.row_first + at.z;
    if (p.n_sequence != 0 && (int(row) < int(q_start[p.q_start_offset]) ||
                              int(row) >= int(q_start[p.q_start_offset + p.n_sequence])))
        return;
    uint from = p.from_offset + at.x * p.from_batch + at.y * p.from_head + at.z * p.from_row;
    uint to = p.to_offset + at.x * p.to_batch + at.y * p.to_head + at.z * p.to_row + at.w * p.to_col;
    vec2 y = transformed(from, at.w);
    if (PAIRS)
        to_words[to >> 1] = pair_word(y, TO_TYPE);
    else
        STORE(to_words, to, TO_TYPE, y.x)
}
