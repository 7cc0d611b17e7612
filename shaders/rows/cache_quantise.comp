// Appends new rows to a quantised cache, CACHE_BLOCK values an invocation. The scale is rounded to
// float16 first, and each value then to the nearest multiple of it, halves away from 0: products of
// a float16 and so few bits are exact in float32, and so is every comparison. Types whose heads have
// scales are given these. A full sequence gets no rows. See cache_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params/params.h"
#include "lib/dtype.glsl"

layout(constant_id = CACHE_FROM_TYPE) const uint FROM_TYPE = 0;
layout(constant_id = CACHE_TO_TYPE) const uint TO_TYPE = TYPE_Q8_0;
layout(constant_id = CACHE_PAIRS) const bool PAIRS = false;
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer From { uint from_words[]; };
layout(binding = 1) buffer To { uint to_words[]; };
layout(binding = 2) readonly buffer State { uint state[]; };
layout(binding = 3) readonly buffer Table { uint table[]; };
layout(binding = 4) readonly buffer QStart { uint q_start[]; };
layout(push_constant) uniform Push { cache_params p; };

#include "lib/packed.glsl"
#include "lib/place.glsl"

const uint BITS = TO_TYPE == TYPE_Q4_0 ? 4 : 8;
const uint WORD_VALUES = 32 / BITS;
const float MOST = TO_TYPE == TYPE_Q8_0 ? 127.0 : 8.0; // of |x| / scale

// The nearest multiple of d to x, as a number of them. guess: near it.
float nearest(float x, float d, float guess)
{
    precise float a = abs(x), size = abs(d), q = min(floor(abs(guess) + 0.5), MOST);
    q += a >= (q + 0.5) * size ? 1.0 : 0.0;
    q -= a < (q - 0.5) * size ? 1.0 : 0.0;
    return min(q, MOST) * ((x < 0.0) == (d < 0.0) ? 1.0 : -1.0);
}

float load(uint from, uint col)
{
    return col < p.dim ? LOAD(from_words, from + col * p.from_col, FROM_TYPE) : 0.0;
}

// Writes the block at value `to`, of the row at element `from` and feature `col` on, whose scale is the
// head's.
void append_f8(uint from, uint col, uint to, float inverse)
{
    [[dont_unroll]] for (uint w = 0; w < CACHE_BLOCK / 4; w++) {
        uint word = 0;
        for (uint i = 0; i < 4; i++) {
            precise float x = load(from, col + 4 * w + i) * inverse;
            word |= f8_from_float(x) << 8 * i;
        }
        to_words[to / 4 + w] = word;
    }
}

const uint NOWHERE = 0xffffffffu;    // no block has its scale there
shared uvec2 scales[PAIRS ? 64 : 1]; // place and bits of the scale of each invocation's block

// Stores scales, with PAIRS two neighbours as a word where invocations after each other have them.
void store_scale(uvec2 own)
{
    uint lane = gl_LocalInvocationIndex;
    bool first = (own.x & 1) == 0;
    uvec2 other = uvec2(NOWHERE, 0);
    if (PAIRS) {
        scales[lane] = own;
        barrier();
        other = scales[first ? min(lane + 1, 63) : max(lane, 1) - 1];
    }
    if (own.x == NOWHERE)
        return;
    if (other.x != (own.x ^ 1)) {
        atomicAnd(to_words[own.x >> 1], ~(0xffffu << 16 * (own.x & 1)));
        atomicOr(to_words[own.x >> 1], own.y << 16 * (own.x & 1));
    } else if (first) {
        to_words[own.x >> 1] = own.y | other.y << 16;
    }
}

// Writes the invocation's block, and returns place and bits of its scale.
uvec2 append()
{
    uint n_block = (p.dim + CACHE_BLOCK - 1) / CACHE_BLOCK;
    uint e = gl_GlobalInvocationID.x, head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z;
    if (e >= p.n_row * n_block)
        return uvec2(NOWHERE, 0);
    uint row = e / n_block, block = e % n_block, place_row = p.row_first + row;
    uint from = p.from_offset + batch * p.from_batch + head * p.from_head + row * p.from_row;
    if (p.n_sequence != 0 && !find_packed(place_row, batch, place_row))
        return uvec2(NOWHERE, 0);
    uint first = state[p.state_offset + p.batch + batch]; // position before this run
    if (place_row >= state[p.state_offset + batch] - first)
        return uvec2(NOWHERE, 0); // not kept, or no room, see cache_advance
    uvec2 at = place(batch, min(first + place_row, p.capacity - 1));
    uint to = p.to_offset + at.x * p.to_batch + head * p.to_head + at.y * p.to_row +
              block * CACHE_BLOCK; // in values
    uint col = block * CACHE_BLOCK;
    if (IS_HEAD_SCALED(TO_TYPE)) {
        append_f8(from, col, to, uintBitsToFloat(to_words[p.scale_offset + head]));
        return uvec2(NOWHERE, 0);
    }
    float peak = 0.0; // the first value of largest magnitude; NaN where there is one
    for (uint i = 0; i < CACHE_BLOCK; i++) {
        float x = load(from, col + i);
        peak = abs(x) > abs(peak) || is_nan(x) ? x : peak;
        if (is_nan(x))
            break;
    }
    precise float scale = TO_TYPE == TYPE_Q8_0 ? abs(peak) * CACHE_Q8_STEP : peak * -0.125;
    uint half_scale = f16_from_float(scale);
    bool none = (half_scale & 0x7fffu) == 0 || (half_scale & 0x7c00u) == 0x7c00u; // 0, Inf, NaN
    float d = float_from_f16(half_scale), inverse = none ? 0.0 : 1.0 / d;
    [[dont_unroll]] for (uint w = 0; w < CACHE_BLOCK / WORD_VALUES; w++) {
        uint word = 0;
        for (uint i = 0; i < WORD_VALUES; i++) {
            float x = load(from, col + w * WORD_VALUES + i);
            float q = nearest(x, d, x * inverse);
            q = none ? 0.0 : q;
            int bits = int(TO_TYPE == TYPE_Q8_0 ? q : min(q, 7.0) + 8.0);
            word |= (uint(bits) & (1u << BITS) - 1u) << BITS * i;
        }
        to_words[to / WORD_VALUES + w] = word;
    }
    return uvec2(p.scale_offset + to / CACHE_BLOCK, half_scale);
}

void main()
{
    uvec2 scale = append();
    if (!IS_HEAD_SCALED(TO_TYPE))
        store_scale(scale);
}
