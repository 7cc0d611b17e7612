// Appends new rows to a cache; with GATHER, copies rows of a paged cache to a dense tensor. A full
// sequence gets no rows; a page number past the pool reads as the last page. See cache_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "lib/dtype.glsl"

layout(constant_id = CACHE_FROM_TYPE) const uint FROM_TYPE = 0;
layout(constant_id = CACHE_TO_TYPE) const uint TO_TYPE = 0;
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer From { uint from_words[]; };
layout(binding = 1) buffer To { uint to_words[]; };
layout(binding = 2) readonly buffer State { uint state[]; };
layout(binding = 3) readonly buffer Table { uint table[]; };
layout(binding = 4) readonly buffer QStart { uint q_start[]; };
layout(push_constant) uniform Push { cache_params p; };

#include "lib/packed.glsl"
#include "lib/place.glsl"

void main()
{
    uint e = gl_GlobalInvocationID.x, head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z;
    if (e >= p.n_row * p.dim)
        return;
    uint row = e / p.dim, col = e % p.dim, place_row = p.row_first + row;
#ifdef GATHER
    uint length = min(state[p.state_offset + batch], p.capacity);
    if (place_row >= length) // past the length: never read, and may have no page
        return;
    uvec2 from_at = place(batch, place_row), to_at = uvec2(batch, row);
#else
    uvec2 from_at = uvec2(batch, row);
    if (p.n_sequence != 0 && !find_packed(place_row, batch, place_row))
        return;
    uint first = state[p.state_offset + p.batch + batch]; // position before this run
    if (place_row >= state[p.state_offset + batch] - first)
        return; // not kept, or no room, see cache_advance
    uvec2 to_at = place(batch, min(first + place_row, p.capacity - 1));
#endif
    uint from = p.from_offset + from_at.x * p.from_batch + head * p.from_head +
                from_at.y * p.from_row + col * p.from_col;
    uint to = p.to_offset + to_at.x * p.to_batch + head * p.to_head + to_at.y * p.to_row +
              col * p.to_col;
    float x = LOAD(from_words, from, FROM_TYPE);
    STORE(to_words, to, TO_TYPE, x);
}
