// Counts NaN and Inf in a strided 4-D tensor. Invocations take elements in turn, and each writes
// its own two counts, which the host adds. See nonfinite_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "lib/dtype.glsl"

layout(constant_id = NONFINITE_TYPE) const uint TYPE = 0;
layout(local_size_x = NONFINITE_LANES) in;
layout(binding = 0) readonly buffer From { uint from_words[]; };
layout(binding = 1) buffer Counts { uvec2 counts[]; };
layout(push_constant) uniform Push { nonfinite_params p; };

void main()
{
    uint n = p.shape0 * p.shape1 * p.shape2 * p.shape3, invocation = gl_GlobalInvocationID.x;
    uint step = gl_NumWorkGroups.x * NONFINITE_LANES;
    uvec2 found = uvec2(0); // NaN, Inf
    for (uint e = invocation; e < n; e += step) {
        uint rest = e / p.shape3;
        uint from = p.from_offset + e % p.shape3 * p.from3 + rest % p.shape2 * p.from2;
        rest /= p.shape2;
        from += rest % p.shape1 * p.from1 + rest / p.shape1 * p.from0;
        float x = LOAD(from_words, from, TYPE);
        uint magnitude = floatBitsToUint(x) & 0x7fffffffu;
        found.x += magnitude > 0x7f800000u ? 1 : 0;
        found.y += magnitude == 0x7f800000u ? 1 : 0;
        if (step > n - e) // e + step may pass 2^32
            break;
    }
    counts[p.first + invocation] = found;
}
