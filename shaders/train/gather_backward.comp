// Sums of the rows that have an id, for each row of a table. A workgroup looks at 64 ids at a time,
// and adds the rows of those that are its own in their order. See gather_backward_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "params/model.h"
#include "params/train.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"

layout(constant_id = ROWS_DY_TYPE) const uint DY_TYPE = 0;
layout(constant_id = ROWS_Y_TYPE) const uint Y_TYPE = 0;
layout(constant_id = ROWS_ADD) const bool ADD = false;
layout(constant_id = ROWS_PAIRS) const bool PAIRS = false;
layout(local_size_x = ROWS_LANES) in;
layout(binding = 0) readonly buffer Ids { int ids[]; };
layout(binding = 1) readonly buffer DY { uint dy_words[]; };
layout(binding = 2) buffer Y { uint y_words[]; };
layout(push_constant) uniform Push { gather_backward_params p; };

shared uint found[2]; // of the 64 ids, a bit each
float total[4], chain[4];
uint n_chain;

// Column i of this invocation, whose first is `column`.
uint column_at(uint column, uint i)
{
    return column + (PAIRS ? i / 2 * (2 * ROWS_LANES) + i % 2 : i * ROWS_LANES);
}

void add_row(uint element, uint column)
{
    uvec4 at = uvec4(element / p.size2 / p.size1, element / p.size2 % p.size1, element % p.size2, 0);
    for (uint i = 0; i < 4; i++) {
        at.w = column_at(column, i);
        if (at.w < p.width)
            chain[i] += LOAD(dy_words, place(p.dy, at), DY_TYPE);
    }
    if (++n_chain < ROWS_BLOCK)
        return;
    for (uint i = 0; i < 4; i++) {
        total[i] += chain[i];
        chain[i] = 0.0;
    }
    n_chain = 0;
}

bool is_own(uint element, int row)
{
    if (element >= p.n)
        return false;
    element += p.first;
    uvec4 at = uvec4(element / p.size2 / p.size1, element / p.size2 % p.size1, element % p.size2, 0);
    return ids[place(p.ids, at)] == row;
}

float result_at(uint i, uint index)
{
    float y = p.scale * (total[i] + chain[i]);
    if (ADD)
        y += LOAD(y_words, index, Y_TYPE);
    return one_nan(y);
}

void main()
{
    uint own = gl_WorkGroupID.y * ITEM_GRID + gl_WorkGroupID.x, lane = gl_LocalInvocationIndex;
    uint column = gl_WorkGroupID.z * ROWS_COLUMNS + (PAIRS ? 2 * lane : lane);
    if (own >= p.n_row)
        return;
    for (uint i = 0; i < 4; i++)
        total[i] = chain[i] = 0.0;
    n_chain = 0;
    for (uint base = 0; base < p.n; base += ROWS_LANES) {
        barrier(); // what was found before has been read
        if (lane < 2)
            found[lane] = 0;
        barrier();
        if (is_own(base + lane, int(p.row_first + own)))
            atomicOr(found[lane / 32], 1u << lane % 32);
        barrier();
        for (uint word = 0; word < 2; word++)
            for (uint bits = found[word]; bits != 0; bits &= bits - 1)
                add_row(p.first + base + 32 * word + uint(findLSB(bits)), column);
    }
    for (uint i = 0; i < 4; i++) {
        if (column_at(column, i) >= p.width)
            return;
        uint index = p.y_offset + own * p.y_row + column_at(column, i) * p.y_col;
        float y = result_at(i, index);
        if (PAIRS) {
            y_words[index >> 1] = pair_word(vec2(y, result_at(i + 1, index + 1)), Y_TYPE);
            i++;
        } else {
            STORE(y_words, index, Y_TYPE, y);
        }
    }
}
