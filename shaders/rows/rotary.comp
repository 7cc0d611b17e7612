// Rotary embedding of rows of heads, by positions or by tables. With PAIRS an item is two of those
// without, and 16-bit results are whole words. See rotary_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "params/model.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"
#include "lib/math.glsl"
#include "lib/rotation.glsl"

layout(constant_id = ROTARY_X_TYPE) const uint X_TYPE = 0;
layout(constant_id = ROTARY_Y_TYPE) const uint Y_TYPE = 0;
layout(constant_id = ROTARY_COS_TYPE) const uint COS_TYPE = TYPE_NONE;
layout(constant_id = ROTARY_SIN_TYPE) const uint SIN_TYPE = TYPE_NONE;
layout(constant_id = ROTARY_POSITIONS) const bool POSITIONS = false;
layout(constant_id = ROTARY_INTERLEAVED) const bool INTERLEAVED = false;
layout(constant_id = ROTARY_PAIRS) const bool PAIRS = false;
layout(local_size_x = ITEM_LANES) in;
ALIASED layout(binding = 0) buffer X { uint x_words[]; }; // y may lie in its place
layout(binding = 1) readonly buffer Positions { int positions[]; };
layout(binding = 2) readonly buffer Cos { uint cos_words[]; };
layout(binding = 3) readonly buffer Sin { uint sin_words[]; };
layout(binding = 4) readonly buffer Frequencies { uvec2 frequencies[]; };
ALIASED layout(binding = 5) buffer Y { uint y_words[]; };
layout(push_constant) uniform Push { rotary_params p; };

float load(uvec4 at) { return LOAD(x_words, place(p.x, at), X_TYPE); }

void store(uvec4 at, float y)
{
    uint index = place(p.y, at);
    STORE(y_words, index, Y_TYPE, one_nan(y));
}

// Stores feature at.w and the next.
void store_word(uvec4 at, vec2 y)
{
    y_words[place(p.y, at) >> 1] = pair_word(vec2(one_nan(y.x), one_nan(y.y)), Y_TYPE);
}

vec2 cos_sin(uvec4 at, uint pair)
{
    int position = int(p.first + at.z);
    if (POSITIONS)
        position = positions[p.position_offset + at.x * p.position_batch + at.z * p.position_row];
    if (COS_TYPE == TYPE_NONE)
        return cos_sin_of(angle_of(position, frequencies[pair]));
    uint batch = POSITIONS ? 0 : at.x, row = POSITIONS ? uint(position) : at.z;
    if (POSITIONS && row >= p.n_table)
        return vec2(uintBitsToFloat(0x7fc00000u));
    uint c = p.cos_offset + batch * p.cos_batch + row * p.cos_row + pair * p.cos_col;
    uint s = p.sin_offset + batch * p.sin_batch + row * p.sin_row + pair * p.sin_col;
    return vec2(LOAD(cos_words, c, COS_TYPE), LOAD(sin_words, s, SIN_TYPE));
}

// The features of a pair of the row at `at`, rotated.
vec2 rotate(uvec4 at, uint pair)
{
    uvec2 features = pair_features(pair, p.dim, INTERLEAVED);
    uvec4 other = at;
    at.w = features.x;
    other.w = features.y;
    vec2 cs = cos_sin(at, pair) * vec2(p.factor, p.factor * p.sign);
    return rotated_by(vec2(load(at), load(other)), cs);
}

// Rotates two pairs, which are four neighbours or two and two.
void store_rotated(uvec4 at, uint pair)
{
    vec2 y = rotate(at, pair), next = rotate(at, pair + 1);
    at.w = pair_features(pair, p.dim, INTERLEAVED).x;
    store_word(at, INTERLEAVED ? y : vec2(y.x, next.x));
    at.w += INTERLEAVED ? 2 : p.dim / 2;
    store_word(at, INTERLEAVED ? next : vec2(y.y, next.y));
}

void main()
{
    const uint each = PAIRS ? 2 : 1;
    uint half_dim = p.dim / 2, width = (half_dim + (p.head_dim - p.dim)) / each;
    uint n = width * p.n * p.n_head * p.batch;
    for (uint nth = 0; nth < ITEMS_EACH; nth++) {
        uint item = item_at(nth);
        if (item >= n)
            return;
        uvec4 at = item_coordinates(item, width, p.n, p.n_head), other = at;
        uint pair = at.w * each;
        if (pair >= half_dim) {
            at.w = p.dim + (pair - half_dim);
            if (PAIRS)
                store_word(at, vec2(load(at), load(at + uvec4(0, 0, 0, 1))));
            else
                store(at, load(at));
            continue;
        }
        if (PAIRS) {
            store_rotated(at, pair);
            continue;
        }
        uvec2 features = pair_features(pair, p.dim, INTERLEAVED);
        vec2 rotated = rotate(at, pair);
        at.w = features.x;
        other.w = features.y;
        store(at, rotated.x);
        store(other, rotated.y);
    }
}
