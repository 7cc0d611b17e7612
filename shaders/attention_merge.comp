// After attention_tile: the pieces of a row's keys put together, always in the same order. See
// attention_merge_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"

layout(constant_id = MERGE_LANES) const uint LANES = 64;
layout(constant_id = MERGE_O_TYPE) const uint O_TYPE = 0;
layout(local_size_x_id = MERGE_LANES) in;
layout(binding = 0) readonly buffer Partial { float parts[]; };
layout(binding = 1) buffer O { uint o_words[]; };
layout(binding = 2) readonly buffer Sink { float sinks[]; };
layout(push_constant) uniform Push { attention_merge_params p; };

#define MINUS_INFINITY uintBitsToFloat(0xff800000u)

uint state_of(uint record) { return (record + 1) * p.pitch - 4; }

void main()
{
    uint row = gl_WorkGroupID.x, head = gl_WorkGroupID.y * p.group + row % p.group;
    uint record =
        ((gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * p.n_row + row) * p.n_piece;
    bool sink = (p.flags & MASK_SINK) != 0u, seen = false;
    float logit = sink ? sinks[p.sink_offset + p.head_first + head] : MINUS_INFINITY;
    float most = logit;
    for (uint i = 0; i < p.n_piece; i++)
        if (parts[state_of(record + i) + 2] != 0.0) {
            most = max(most, parts[state_of(record + i)]);
            seen = true;
        }
    float shift = most == MINUS_INFINITY ? 0.0 : most;
    float total = sink ? exp_accurate(logit - shift) : 0.0;
    for (uint i = 0; i < p.n_piece; i++) {
        uint at = state_of(record + i);
        if (parts[at + 2] != 0.0)
            total = fma(parts[at + 1], exp_accurate(parts[at] - shift), total);
    }
    uint base =
        p.o_offset + gl_WorkGroupID.z * p.o_batch + head * p.o_head + row / p.group * p.o_row;
    for (uint c = gl_LocalInvocationIndex; c < p.value_dim; c += LANES) {
        float sum = 0.0; // of a row that saw no key: its pieces hold what mask.flags say
        for (uint i = 0; i < p.n_piece; i++) {
            uint at = state_of(record + i);
            float weight = seen ? exp_accurate(parts[at] - shift) : 1.0;
            if (parts[at + 2] != 0.0 || !seen)
                sum = fma(parts[(record + i) * p.pitch + c], weight, sum);
        }
        float x = seen ? sum / total : sum;
        STORE(o_words, base + c, O_TYPE, one_nan(x));
    }
}
