// Adds n_append, or the new rows, to the length of each sequence with room, and with pages, for the
// rows appended next: n_row for each, or in a ragged batch those that q_start gives it; that is copied
// to the state, starts below 0 as 0.
// Once a run had no room, later runs append nothing until the host changes the sequence, so that the
// first such ticket of a plan is enough. See cache_params; behind the state that it names stand the rows
// that this run keeps, u32 [batch], and the ticket of the run.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"

layout(local_size_x = 32) in;
layout(binding = 0) buffer State { uint state[]; };
layout(binding = 1) readonly buffer Table { uint table[]; };
layout(binding = 2) readonly buffer Running { uint running[]; };
layout(binding = 3) buffer Full { uint full[]; };
layout(binding = 4) readonly buffer Append { int n_append[]; };
layout(binding = 5) readonly buffer QStart { uint q_start[]; };
layout(push_constant) uniform Push { cache_params p; };

void main()
{
    uint b = gl_GlobalInvocationID.x;
    if (b >= p.batch)
        return;
    uint at = p.state_offset + b;
    uint old = min(state[at], p.capacity);
    uint n = p.n_row;
    if (p.n_sequence != 0) {
        uint start = uint(max(int(q_start[p.q_start_offset + b]), 0));
        uint end = uint(max(int(q_start[p.q_start_offset + b + 1]), 0));
        state[at + 3 * p.batch] = start;
        if (b == p.batch - 1)
            state[at + 3 * p.batch + 1] = end;
        uint first = min(start, p.n_row);
        n = clamp(end, first, p.n_row) - first;
    }
    if (p.append != APPEND_ALL)
        n = clamp(n_append[p.from_offset + (p.append == APPEND_EACH ? b * p.from_row : 0)], 0,
                  int(n));
    bool fits = n <= p.capacity - old && state[at + 2 * p.batch] == 0;
    if (fits && n != 0 && p.page_size != 0)
        for (uint i = old / p.page_size; i <= (old + n - 1) / p.page_size; i++)
            fits = fits && table[p.table_offset + b * p.table_row + i] < p.n_page;
    state[at] = fits ? old + n : old;
    state[at + p.batch] = old;
    state[at + 2 * p.batch] = fits ? 0 : 1;
    state[at + 4 * p.batch + 1] = fits ? n : 0;
    if (b == 0) {
        state[at + 5 * p.batch + 1] = running[0];
        state[at + 5 * p.batch + 2] = running[1];
    }
    if (fits || running[0] == 0 || full[2 * b] != 0)
        return;
    full[2 * b] = running[0];
    full[2 * b + 1] = running[1];
}
