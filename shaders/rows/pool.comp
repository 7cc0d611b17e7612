// Means of the rows that count, one column an invocation. See pool_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params/params.h"
#include "params/model.h"
#include "params/each.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"

layout(constant_id = POOL_X_TYPE) const uint X_TYPE = 0;
layout(constant_id = POOL_MASK_TYPE) const uint MASK_TYPE = TYPE_NONE;
layout(constant_id = POOL_LENGTHS) const bool LENGTHS = false;
layout(constant_id = POOL_Y_TYPE) const uint Y_TYPE = 0;
layout(local_size_x = ITEM_LANES) in;
layout(binding = 0) readonly buffer X { uint x_words[]; };
layout(binding = 1) readonly buffer Mask { uint mask_words[]; };
layout(binding = 2) readonly buffer Lengths { int lengths[]; };
layout(binding = 3) buffer Y { uint y_words[]; };
layout(push_constant) uniform Push { pool_params p; };

float row_weight(uint batch, uint row)
{
    if (MASK_TYPE == TYPE_NONE)
        return 1.0;
    uint i = p.mask_offset + batch * p.mask_batch + row * p.mask_row;
    uint word = mask_words[word_index(i, MASK_TYPE)];
    if (MASK_TYPE == TYPE_BOOL)
        return (word >> 8u * (i & 3u) & 0xffu) != 0u ? 1.0 : 0.0;
    return decode(word, i, MASK_TYPE);
}

void main()
{
    uint n = p.width * p.batch;
    for (uint nth = 0; nth < ITEMS_EACH; nth++) {
        uint item = item_at(nth);
        if (item >= n)
            return;
        uint batch = item / p.width, column = item % p.width;
        uint rows = p.n;
        if (LENGTHS)
            rows = uint(clamp(lengths[p.length_offset + batch * p.length_step], 0, int(p.n)));
        uint from = p.x_offset + batch * p.x_batch + column * p.x_col;
        vec2 total = vec2(0.0); // weighted sum, weights
        for (uint first = 0; first < rows; first += POOL_BLOCK) {
            vec2 chain = vec2(0.0);
            uint end = min(first + POOL_BLOCK, rows);
            for (uint next = first; next < end; next += POOL_EACH)
                [[unroll]] for (uint i = 0; i < POOL_EACH; i++) {
                    uint row = min(next + i, end - 1);
                    float w = row_weight(batch, row);
                    float x = LOAD(x_words, from + row * p.x_row, X_TYPE);
                    // What does not count may be NaN.
                    chain += w == 0.0 || next + i >= end ? vec2(0.0) : vec2(w * x, w);
                }
            total += chain;
        }
        uint to = p.y_offset + batch * p.y_batch + column * p.y_col;
        float y = total.y == 0.0 ? 0.0 : total.x / total.y;
        STORE(y_words, to, Y_TYPE, one_nan(y));
    }
}
