// Gradients of element-wise functions, products and differences. An invocation takes pairs of
// neighbours, as in map.comp. See map_backward_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "params/model.h"
#include "params/train.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"
#include "lib/math.glsl"
#include "lib/activation.glsl"
#include "lib/derivative.glsl"

layout(constant_id = SLOPE_DY_TYPE) const uint DY_TYPE = 0;
layout(constant_id = SLOPE_X_TYPE) const uint X_TYPE = 0;
layout(constant_id = SLOPE_B_TYPE) const uint B_TYPE = TYPE_NONE;
layout(constant_id = SLOPE_Y_TYPE) const uint Y_TYPE = 0;
layout(constant_id = SLOPE_FUNCTION) const uint FUNCTION = 0;
layout(constant_id = SLOPE_KIND) const uint KIND = 0;
layout(constant_id = SLOPE_ADD) const bool ADD = false;
layout(constant_id = SLOPE_PAIRS) const bool PAIRS = false;
layout(local_size_x = ITEM_LANES) in;
// y may lie in place of dy: it is not readonly.
ALIASED layout(binding = 0) buffer DY { uint dy_words[]; };
layout(binding = 1) readonly buffer X { uint x_words[]; };
layout(binding = 2) readonly buffer B { uint b_words[]; };
ALIASED layout(binding = 3) buffer Y { uint y_words[]; };
layout(push_constant) uniform Push { map_backward_params p; };

float element(uvec4 at)
{
    float dy = LOAD(dy_words, place(p.dy, at), DY_TYPE);
    float x = LOAD(x_words, place(p.x, at), X_TYPE);
    float y;
    if (KIND == SLOPE_DIFFERENCE)
        y = p.scale * (dy - x);
    else if (KIND == SLOPE_VALUE)
        y = dy * activate(x, FUNCTION, p.alpha);
    else
        y = back(B_TYPE == TYPE_NONE ? dy : dy * LOAD(b_words, place(p.b, at), B_TYPE), x, FUNCTION,
                 p.alpha);
    if (ADD)
        y += LOAD(y_words, place(p.y, at), Y_TYPE);
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
