// Element-wise functions, alone or with a second tensor added or multiplied. An invocation takes pairs
// of neighbours, so that 16-bit results are whole words where they may be. See map_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "params/model.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"
#include "lib/math.glsl"
#include "lib/activation.glsl"

layout(constant_id = ELEMENT_X_TYPE) const uint X_TYPE = 0;
layout(constant_id = ELEMENT_B_TYPE) const uint B_TYPE = TYPE_NONE;
layout(constant_id = ELEMENT_Y_TYPE) const uint Y_TYPE = 0;
layout(constant_id = ELEMENT_FUNCTION) const uint FUNCTION = 0;
layout(constant_id = ELEMENT_MULTIPLY) const bool MULTIPLY = false;
layout(constant_id = ELEMENT_PAIRS) const bool PAIRS = false;
layout(local_size_x = ITEM_LANES) in;
// y may lie in place of x or b: neither is readonly.
ALIASED layout(binding = 0) buffer X { uint x_words[]; };
ALIASED layout(binding = 1) buffer B { uint b_words[]; };
ALIASED layout(binding = 2) buffer Y { uint y_words[]; };
layout(push_constant) uniform Push { map_params p; };

float element(uvec4 at)
{
    float y = activate(LOAD(x_words, place(p.x, at), X_TYPE), FUNCTION, p.alpha);
    if (B_TYPE != TYPE_NONE) {
        float b = LOAD(b_words, place(p.b, at), B_TYPE);
        y = MULTIPLY ? y * b : y + b;
    }
    return one_nan(y);
}

void store(uvec4 at, float y)
{
    uint index = place(p.y, at);
    STORE(y_words, index, Y_TYPE, y);
}

void main()
{
    uint width = p.size3 / 2 + p.size3 % 2;
    uint n = width * p.size2 * p.size1 * p.size0;
    for (uint nth = 0; nth < ITEMS_EACH; nth++) {
        uint item = item_at(nth);
        if (item >= n)
            return;
        uvec4 first = item_coordinates(item, width, p.size2, p.size1);
        first.w *= 2;
        uvec4 second = first + uvec4(0, 0, 0, 1);
        bool two = second.w < p.size3;
        vec2 y = vec2(element(first), two ? element(second) : 0.0);
        if (PAIRS) {
            y_words[place(p.y, first) >> 1] = pair_word(y, Y_TYPE);
            continue;
        }
        store(first, y.x);
        if (two)
            store(second, y.y);
    }
}
