// Means of the rows that count, one column an invocation, or with PAIRS two neighbours, of which 16-bit
// results are a whole word. See pool_params.
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
layout(constant_id = POOL_PAIRS) const bool PAIRS = false;
layout(constant_id = POOL_X_PAIRS) const bool X_PAIRS = false;
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

// Element `at` of x, and with PAIRS its neighbour.
vec2 load(uint at)
{
    if (X_PAIRS) {
        uint word = x_words[at >> 1];
        return vec2(decode(word, 0, X_TYPE), decode(word, 1, X_TYPE));
    }
    return vec2(LOAD(x_words, at, X_TYPE), PAIRS ? LOAD(x_words, at + p.x_col, X_TYPE) : 0.0);
}

float mean_of(float total, float weights) { return one_nan(weights == 0.0 ? 0.0 : total / weights); }

void main()
{
    const uint each = PAIRS ? 2 : 1;
    uint items = p.width / each, n = items * p.batch;
    for (uint nth = 0; nth < ITEMS_EACH; nth++) {
        uint item = item_at(nth);
        if (item >= n)
            return;
        uint batch = item / items, column = item % items * each;
        uint rows = p.n;
        if (LENGTHS)
            rows = uint(clamp(lengths[p.length_offset + batch * p.length_step], 0, int(p.n)));
        uint from = p.x_offset + batch * p.x_batch + column * p.x_col;
        vec2 total = vec2(0.0); // weighted sum, weights
        float neighbour = 0.0;  // weighted sum of the next column
        for (uint first = 0; first < rows; first += POOL_BLOCK) {
            vec2 chain = vec2(0.0);
            float next_chain = 0.0;
            uint end = min(first + POOL_BLOCK, rows);
            for (uint next = first; next < end; next += POOL_EACH)
                [[unroll]] for (uint i = 0; i < POOL_EACH; i++) {
                    uint row = min(next + i, end - 1);
                    float w = row_weight(batch, row);
                    vec2 x = load(from + row * p.x_row);
                    bool counts = w != 0.0 && next + i < end; // what does not may be NaN
                    chain += counts ? vec2(w * x.x, w) : vec2(0.0);
                    if (PAIRS)
                        next_chain += counts ? w * x.y : 0.0;
                }
            total += chain;
            neighbour += next_chain;
        }
        uint to = p.y_offset + batch * p.y_batch + column * p.y_col;
        float y = mean_of(total.x, total.y);
        if (PAIRS)
            y_words[to >> 1] = pair_word(vec2(y, mean_of(neighbour, total.y)), Y_TYPE);
        else
            STORE(y_words, to, Y_TYPE, y)
    }
}
