// Merges results of attention over slices of the keys by their log-sum-exps: up to two slices, and what
// a pass before made of others. See slices_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "params/model.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"
#include "lib/math.glsl"

layout(constant_id = SLICES_COUNT) const uint COUNT = 2;
layout(constant_id = SLICES_X0_TYPE) const uint X0_TYPE = 0;
layout(constant_id = SLICES_X1_TYPE) const uint X1_TYPE = 0;
layout(constant_id = SLICES_Y_TYPE) const uint Y_TYPE = 0;
layout(constant_id = SLICES_STATE) const uint STATE = 0;
layout(constant_id = SLICES_LOG_SUM) const uint LOG_SUM = 0;
layout(constant_id = SLICES_PAIRS) const bool PAIRS = false;
layout(local_size_x = ITEM_LANES) in;
layout(binding = 0) readonly buffer X0 { uint x0_words[]; };
layout(binding = 1) readonly buffer X1 { uint x1_words[]; };
layout(binding = 2) readonly buffer LogSums0 { float log_sums0[]; };
layout(binding = 3) readonly buffer LogSums1 { float log_sums1[]; };
layout(binding = 4) readonly buffer State { float state[]; };
layout(binding = 5) buffer Y { uint y_words[]; };
layout(binding = 6) buffer LogSums { float log_sums[]; };
layout(binding = 7) readonly buffer Params { slices_params p; };

#define MINUS_INFINITY uintBitsToFloat(0xff800000u)
const float MOST_WEIGHT = STATE != 0 ? SLICES_WEIGHT : 1.0;

// By bits: compilers may turn comparisons around, which NaN does not survive.
bool same(float a, float b) { return floatBitsToUint(a) == floatBitsToUint(b); }
bool none(float l) { return same(l, MINUS_INFINITY); }

// e^(l - most), 0 for -inf. Both may be +inf.
float weight_of(float l, float most)
{
    if (is_nan(l))
        return l;
    return none(l) ? 0.0 : same(l, most) ? MOST_WEIGHT : exp_accurate(l - most) * MOST_WEIGHT;
}

float column(uint i, uvec4 at)
{
    if (i == 0)
        return LOAD(x0_words, place(p.x0, at), X0_TYPE);
    return LOAD(x1_words, place(p.x1, at), X1_TYPE);
}

// Column at.w of a row, without its division by the sum; `before`: the state of a pass before of the row.
float merged(uvec4 at, uint before, float kept, vec2 l, vec2 w)
{
    float y = 0.0;
    if ((STATE & SLICES_LOAD) != 0)
        y = state[before + at.w] * kept;
    if (!none(l.x)) // a slice without keys may hold NaN
        y = fma(w.x, column(0, at), y);
    if (COUNT > 1 && !none(l.y))
        y = fma(w.y, column(1, at), y);
    return y;
}

// A column as it is stored in the output.
float finished(float y, float sum) { return one_nan(STATE != 0 && !same(sum, 0.0) ? y / sum : y); }

void main()
{
    uint width = p.size3, items = (width + 3) / 4, n = items * p.size2 * p.size1 * p.size0;
    for (uint nth = 0; nth < ITEMS_EACH; nth++) {
        uint item = item_at(nth);
        if (item >= n)
            return;
        uvec4 at = item_coordinates(item, items, p.size2, p.size1), row = uvec4(at.xyz, 0);
        uint first = 4 * at.w, before = place(p.state, row);
        float l0 = log_sums0[place(p.l0, row)], l1 = MINUS_INFINITY, old = MINUS_INFINITY;
        if (COUNT > 1)
            l1 = log_sums1[place(p.l1, row)];
        if ((STATE & SLICES_LOAD) != 0)
            old = state[before + width];
        float most = max(is_nan(l0) ? MINUS_INFINITY : l0, is_nan(l1) ? MINUS_INFINITY : l1);
        most = max(most, old);
        float w0 = weight_of(l0, most), w1 = weight_of(l1, most), sum = w0 + w1;
        float kept = none(old) || same(old, most) ? 1.0 : exp_accurate(old - most);
        if ((STATE & SLICES_LOAD) != 0)
            sum = fma(state[before + width + 1], kept, sum);
        bool empty = same(sum, 0.0);
        if (STATE == 0 && !empty) { // so that no sum overflows
            w0 /= sum;
            w1 /= sum;
        }
        vec2 l = vec2(l0, l1), w = vec2(w0, w1);
        for (uint c = first; c < min(first + 4, width); c += PAIRS ? 2 : 1) {
            uvec4 here = uvec4(row.xyz, c);
            float y = merged(here, before, kept, l, w);
            if ((STATE & SLICES_STORE) != 0) {
                y_words[place(p.y, here)] = floatBitsToUint(y);
            } else if (PAIRS) {
                float next = merged(here + uvec4(0, 0, 0, 1), before, kept, l, w);
                y_words[place(p.y, here) >> 1] =
                    pair_word(vec2(finished(y, sum), finished(next, sum)), Y_TYPE);
            } else {
                STORE(y_words, place(p.y, here), Y_TYPE, finished(y, sum));
            }
        }
        if (first != 0)
            continue;
        if ((STATE & SLICES_STORE) != 0) {
            y_words[place(p.y, row) + width] = floatBitsToUint(most);
            y_words[place(p.y, row) + width + 1] = floatBitsToUint(sum);
        } else if (LOG_SUM != 0) {
            float l = empty ? MINUS_INFINITY : most + log_accurate(sum / MOST_WEIGHT);
            log_sums[place(p.l, row)] = one_nan(l);
        }
    }
}
