// Copies rows of a paged cache to a dense tensor. A page number past the pool reads as the last page.
// With PAIRS an invocation copies two neighbours, and 16-bit results are whole words. See cache_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "lib/dtype.glsl"

layout(constant_id = CACHE_FROM_TYPE) const uint FROM_TYPE = 0;
layout(constant_id = CACHE_TO_TYPE) const uint TO_TYPE = 0;
layout(constant_id = CACHE_PAIRS) const bool PAIRS = false;
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer From { uint from_words[]; };
layout(binding = 1) buffer To { uint to_words[]; };
layout(binding = 2) readonly buffer State { uint state[]; };
layout(binding = 3) readonly buffer Table { uint table[]; };
layout(push_constant) uniform Push { cache_params p; };

#include "lib/place.glsl"

void main()
{
    uint e = gl_GlobalInvocationID.x, head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z;
    const uint each = PAIRS ? 2 : 1;
    uint items = p.dim / each;
    if (e >= p.n_row * items)
        return;
    uint row = e / items, col = e % items * each, place_row = p.row_first + row;
    uint length = min(state[p.state_offset + batch], p.capacity);
    if (place_row >= length) // past the length: never read, and may have no page
        return;
    uvec2 at = place(batch, place_row);
    uint from = p.from_offset + at.x * p.from_batch + head * p.from_head + at.y * p.from_row +
                col * p.from_col;
    uint to = p.to_offset + batch * p.to_batch + head * p.to_head + row * p.to_row + col * p.to_col;
    float x = LOAD(from_words, from, FROM_TYPE);
    if (PAIRS)
        to_words[to >> 1] = pair_word(vec2(x, LOAD(from_words, from + p.from_col, FROM_TYPE)), TO_TYPE);
    else
        STORE(to_words, to, TO_TYPE, x)
}
