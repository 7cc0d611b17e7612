// Copies a strided 4-D tensor to another, converting the element type. An invocation copies
// COPY_EACH elements along axis 2, so that it divides once for all of them; with PAIRS neighbours
// along axis 3 too, which are whole words. See copy_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "lib/dtype.glsl"

layout(constant_id = COPY_FROM_TYPE) const uint FROM_TYPE = 0;
layout(constant_id = COPY_TO_TYPE) const uint TO_TYPE = 0;
layout(constant_id = COPY_PAIRS) const bool PAIRS = false;
layout(local_size_x = COPY_LANES) in;
layout(binding = 0) readonly buffer From { uint from_words[]; };
layout(binding = 1) buffer To { uint to_words[]; };
layout(push_constant) uniform Push { copy_params p; };

void main()
{
    uvec4 at = uvec4(gl_WorkGroupID.z / p.shape1, gl_WorkGroupID.z % p.shape1,
                     gl_WorkGroupID.y * COPY_EACH, gl_GlobalInvocationID.x * (PAIRS ? 2 : 1));
    if (at.w >= p.shape3)
        return;
    uint from = p.from_offset + at.x * p.from0 + at.y * p.from1 + at.z * p.from2 + at.w * p.from3;
    uint to = p.to_offset + at.x * p.to0 + at.y * p.to1 + at.z / p.tile * p.to_tile +
              at.z % p.tile * p.to2 + at.w * p.to3;
    uint count = min(COPY_EACH, p.shape2 - at.z);
    for (uint i = 0; i < count; i++) { // all lie within one tile
        float x = LOAD(from_words, from, FROM_TYPE);
        if (PAIRS)
            to_words[to >> 1] = pair_word(vec2(x, LOAD(from_words, from + p.from3, FROM_TYPE)), TO_TYPE);
        else
            STORE(to_words, to, TO_TYPE, x)
        from += p.from2;
        to += p.to2;
    }
}
