// Rows into a tensor, at a position of each batch element. With PAIRS an item is two neighbours, and 16-bit
// results are whole words. See scatter_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "params/model.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"

layout(constant_id = SCATTER_X_TYPE) const uint X_TYPE = 0;
layout(constant_id = SCATTER_Y_TYPE) const uint Y_TYPE = 0;
layout(constant_id = SCATTER_POSITIONS) const bool POSITIONS = false;
layout(constant_id = SCATTER_CIRCULAR) const bool CIRCULAR = false;
layout(constant_id = SCATTER_PAIRS) const uint PAIRS = 0;
layout(local_size_x = ITEM_LANES) in;
layout(binding = 0) readonly buffer X { uint x_words[]; };
layout(binding = 1) readonly buffer Positions { int positions[]; };
layout(binding = 2) buffer Y { uint y_words[]; };
layout(push_constant) uniform Push { scatter_params p; };

// Row of y at `row` behind the position; extent or more: outside.
uint target(int position, uint row)
{
    if (!CIRCULAR) // a sum that wraps comes from a negative position, or lies far outside
        return position < 0 && row < uint(-position) ? p.extent : uint(position) + row;
    uint start = position < 0 ? p.extent - 1 - uint(-(position + 1)) % p.extent
                              : uint(position) % p.extent;
    row %= p.extent;
    return row < p.extent - start ? start + row : row - (p.extent - start);
}

// Stores two neighbours of x along the axis of the positions, each if its place is inside: as a word where
// they are one.
void store_both(uvec4 at, uvec2 places, vec2 x)
{
    at.w = places.x;
    uint index = place(p.y, at);
    if (places.x % 2 == 0 && places.y == places.x + 1 && places.y < p.extent) {
        y_words[index >> 1] = pair_word(x, Y_TYPE);
        return;
    }
    if (places.x < p.extent)
        STORE(y_words, index, Y_TYPE, x.x)
    at.w = places.y;
    index = place(p.y, at);
    if (places.y < p.extent)
        STORE(y_words, index, Y_TYPE, x.y)
}

void main()
{
    uint items = PAIRS != 0 ? p.size3 / 2 : p.size3, n = items * p.size2 * p.size1 * p.size0;
    for (uint nth = 0; nth < ITEMS_EACH; nth++) {
        uint item = item_at(nth);
        if (item >= n)
            return;
        uvec4 at = item_coordinates(item, items, p.size2, p.size1);
        at.w *= PAIRS != 0 ? 2 : 1;
        int position = POSITIONS ? positions[p.position_offset + at.x * p.position_step] : 0;
        uint from = place(p.x, at);
        float x = one_nan(LOAD(x_words, from, X_TYPE));
        float next = PAIRS != 0 ? one_nan(LOAD(x_words, from + p.x.stride3, X_TYPE)) : 0.0;
        uint row = p.axis == 1 ? at.y : p.axis == 2 ? at.z : at.w;
        if (PAIRS == SCATTER_PLACES) {
            uvec2 places = uvec2(target(position, p.first + row), target(position, p.first + row + 1));
            store_both(at, places, vec2(x, next));
            continue;
        }
        row = target(position, p.first + row);
        if (row >= p.extent)
            continue;
        at.y = p.axis == 1 ? row : at.y;
        at.z = p.axis == 2 ? row : at.z;
        at.w = p.axis == 3 ? row : at.w;
        uint index = place(p.y, at);
        if (PAIRS == SCATTER_WORDS)
            y_words[index >> 1] = pair_word(vec2(x, next), Y_TYPE);
        else
            STORE(y_words, index, Y_TYPE, x)
    }
}
