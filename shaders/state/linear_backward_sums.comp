// Sums what the workgroups of linear_backward add to a gradient, in order. For GPUs: an item a lane, whose
// neighbours read neighbours. See linear_sums_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params/params.h"
#include "params/model.h"
#include "params/state.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"

layout(local_size_x = ITEM_LANES) in;
layout(binding = 0) readonly buffer Planes { float planes[]; };
layout(binding = 1) buffer Y { float y[]; };
layout(push_constant) uniform Push { linear_sums_params p; };

void main()
{
    for (uint nth = 0; nth < ITEMS_EACH; nth++) {
        uint u = item_at(nth);
        uvec4 at = item_coordinates(u, p.width, p.n, p.y_heads);
        if (at.x >= p.batch)
            return;
        uint head = p.y_first + at.y, first = head * p.ratio;
        uint index = place(p.y, uvec4(at.x, head, at.zw));
        uint begin = max(first, p.plane_first) - p.plane_first;
        uint end = min(first + p.ratio - p.plane_first, p.heads);
        float sum = first < p.plane_first ? y[index] : 0.0;
        for (uint h = begin; h < end; h++) {
            uint step = p.batch * p.heads * p.n * p.width;
            uint from = p.plane + ((at.x * p.heads + h) * p.n + at.z) * p.width + at.w;
            float own = planes[from];
            for (uint i = 1; i < p.blocks; i++)
                own += planes[from + i * step];
            sum += own;
        }
        y[index] = one_nan(sum);
    }
}
