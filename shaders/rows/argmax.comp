// Index of the largest element of a row per workgroup; of equal ones the first. See argmax_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "params/model.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"

layout(constant_id = ARGMAX_LANES) const uint LANES = 32;
layout(constant_id = ARGMAX_TYPE) const uint TYPE = 0;
layout(constant_id = ARGMAX_NUMBERS) const bool NUMBERS = false;
layout(local_size_x_id = ARGMAX_LANES) in;
layout(binding = 0) readonly buffer X { uint x_words[]; };
layout(binding = 1) buffer Y { uint indices[]; };
layout(push_constant) uniform Push { argmax_params p; };

const uint KEY_MINUS_INFINITY = 0x007fffffu, KEY_NAN = 0xffffffffu;

shared uvec2 best[LANES]; // key, index

// Whether a goes before b.
bool beats(uvec2 a, uvec2 b) { return a.x > b.x || (a.x == b.x && a.y < b.y); }

void main()
{
    uint row = gl_WorkGroupID.y * NORM_GRID + gl_WorkGroupID.x, lane = gl_LocalInvocationIndex;
    if (row >= p.size0 * p.size1 * p.size2)
        return;
    uvec4 at = uvec4(row / p.size2 / p.size1, row / p.size2 % p.size1, row % p.size2, 0);
    uint first = place(p.x, at);
    uvec2 mine = uvec2(0, 0xffffffffu);
    for (uint i = lane; i < p.size3; i += LANES) {
        uint key = order_key(LOAD(x_words, first + i * p.x.stride3, TYPE));
        if (NUMBERS && (key <= KEY_MINUS_INFINITY || key == KEY_NAN))
            continue;
        mine = key > mine.x ? uvec2(key, i) : mine;
    }
    best[lane] = mine;
    for (uint step = LANES / 2; step > 0; step /= 2) {
        barrier();
        if (lane < step && beats(best[lane + step], best[lane]))
            best[lane] = best[lane + step];
    }
    if (lane == 0)
        indices[place(p.y, at)] = best[0].y;
}
