// Copies a strided 4-D tensor to another, converting the element type. See copy_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "lib/dtype.glsl"

layout(constant_id = COPY_FROM_TYPE) const uint FROM_TYPE = 0;
layout(constant_id = COPY_TO_TYPE) const uint TO_TYPE = 0;
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer From { uint from_words[]; };
layout(binding = 1) buffer To { uint to_words[]; };
layout(push_constant) uniform Push { copy_params p; };

void main()
{
    // Workgroup x counts 64 elements of the inner two axes, y and z the outer two.
    uint e = gl_GlobalInvocationID.x;
    if (e >= p.shape2 * p.shape3)
        return;
    uvec4 at = uvec4(gl_WorkGroupID.zy, e / p.shape3, e % p.shape3);
    uint from = p.from_offset + at.x * p.from0 + at.y * p.from1 + at.z * p.from2 + at.w * p.from3;
    uint to = p.to_offset + at.x * p.to0 + at.y * p.to1 + at.z * p.to2 + at.w * p.to3;
    float x = LOAD(from_words, from, FROM_TYPE);
    STORE(to_words, to, TO_TYPE, x);
}
