// Adds n_row to the length of each sequence with room, and with pages, for the rows appended next.
// Between changes by the host lengths never fall: once a run of a plan has no room, its later runs
// have none, so that the first such ticket is enough. See cache_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params.h"

layout(local_size_x = 32) in;
layout(binding = 0) buffer State { uint state[]; };
layout(binding = 1) readonly buffer Table { uint table[]; };
layout(binding = 2) readonly buffer Running { uint running[]; };
layout(binding = 3) buffer Full { uint full[]; };
layout(push_constant) uniform Push { cache_params p; };

void main()
{
    uint b = gl_GlobalInvocationID.x;
    if (b >= p.batch)
        return;
    uint at = p.state_offset + b;
    uint old = min(state[at], p.capacity);
    bool fits = p.n_row <= p.capacity - old;
    if (fits && p.page_size != 0)
        for (uint i = old / p.page_size; i <= (old + p.n_row - 1) / p.page_size; i++)
            fits = fits && table[p.table_offset + b * p.table_row + i] < p.n_page;
    state[at] = fits ? old + p.n_row : old;
    state[at + p.batch] = old;
    if (fits || running[0] == 0 || full[2 * b] != 0)
        return;
    full[2 * b] = running[0];
    full[2 * b + 1] = running[1];
}
