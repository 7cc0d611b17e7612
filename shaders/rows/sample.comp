// Draws an index from a row of logits per workgroup: temperature, top-k, top-p and min-p, without
// sorting. A bound is a key of order_key, found bit by bit: the largest one that leaves enough
// elements, or enough of their weight. See sample_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params/params.h"
#include "params/model.h"
#include "params/each.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"
#include "lib/math.glsl"
#include "lib/philox.glsl"

layout(constant_id = SAMPLE_TYPE) const uint TYPE = 0;
layout(constant_id = SAMPLE_STEP) const bool STEP = false;
layout(constant_id = SAMPLE_ADVANCE) const bool ADVANCE = false;
layout(constant_id = SAMPLE_SEEDS) const bool SEEDS = false;
layout(local_size_x = SAMPLE_LANES) in;
layout(binding = 0) readonly buffer X { uint x_words[]; };
layout(binding = 1) buffer Steps { uint steps[]; };
layout(binding = 2) buffer Y { uint indices[]; };
layout(binding = 3) readonly buffer Seeds { uint seeds[]; };
layout(push_constant) uniform Push { sample_params p; };

const uint KEY_MINUS_INFINITY = 0x007fffffu;
uint first; // element 0 of the row
float row_max;

shared float partial[SAMPLE_LANES];
shared uint chosen_lane;
shared float chosen_base;

float reduce(float x, bool add)
{
    uint lane = gl_LocalInvocationIndex;
    barrier(); // what was reduced before has been read
    partial[lane] = x;
    for (uint step = SAMPLE_LANES / 2; step > 0; step /= 2) {
        barrier();
        if (lane < step)
            partial[lane] = add ? partial[lane] + partial[lane + step]
                                : max(partial[lane], partial[lane + step]);
    }
    barrier();
    return partial[0];
}

float load(uint i)
{
    float x = LOAD(x_words, first + i * p.x_col, TYPE);
    return is_nan(x) ? uintBitsToFloat(0xff800000u) : x; // NaN is never drawn
}

// Weight relative to the largest; 0 below the bound.
float weight(float x, uint bound)
{
    if (order_key(x) < bound || order_key(x) <= KEY_MINUS_INFINITY)
        return 0.0;
    return x == row_max ? 1.0 : exp_accurate((x - row_max) / p.temperature);
}

// Elements from the bound on; below 2^24 exact as floats, and above it no k asks for so many.
float count(uint bound)
{
    float n = 0.0;
    for (uint i = gl_LocalInvocationIndex; i < p.n; i += SAMPLE_EACH * SAMPLE_LANES)
        [[unroll]] for (uint j = 0; j < SAMPLE_EACH; j++) {
            uint at = i + j * SAMPLE_LANES;
            bool counts = order_key(load(min(at, p.n - 1))) >= bound;
            n += counts && at < p.n ? 1.0 : 0.0;
        }
    return reduce(n, true);
}

float mass(uint bound)
{
    float sum = 0.0;
    for (uint i = gl_LocalInvocationIndex; i < p.n; i += SAMPLE_EACH * SAMPLE_LANES)
        [[unroll]] for (uint j = 0; j < SAMPLE_EACH; j++) {
            uint at = i + j * SAMPLE_LANES;
            float w = weight(load(min(at, p.n - 1)), bound);
            sum += at < p.n ? w : 0.0;
        }
    return reduce(sum, true);
}

// Passes over the row are left out where the answer is known: above the largest element there is
// nothing, and a bound that leaves exactly top_k is good enough.
uint find_bound()
{
    uint bound = 0, most = order_key(row_max);
    if (p.top_k > 0 && p.top_k < p.n)
        for (uint bit = 1u << 31; bit > 0; bit >>= 1) {
            float n = (bound | bit) > most ? 0.0 : count(bound | bit);
            bound |= n >= float(p.top_k) ? bit : 0;
            if (n == float(p.top_k))
                break;
        }
    if (p.top_p <= 0.0 || p.top_p >= 1.0)
        return bound;
    float enough = p.top_p * mass(bound);
    uint kept = 0;
    for (uint bit = 1u << 31; bit > 0; bit >>= 1)
        if ((kept | bit) <= bound || ((kept | bit) <= most && mass(kept | bit) >= enough))
            kept |= bit;
    return max(kept, bound);
}

float kept_weight(uint i, uint bound)
{
    float w = weight(load(i), bound);
    return w < p.min_p ? 0.0 : w;
}

// A lane has neighbours here, so that sums are in the order of the indices. Returns the index, in the
// lane that has it; else the largest number.
uint draw(uint bound, float u)
{
    uint lane = gl_LocalInvocationIndex, per_lane = p.n / SAMPLE_LANES + 1;
    uint begin = min(lane * per_lane, p.n), end = min(begin + per_lane, p.n);
    float sum = 0.0;
    for (uint i = begin; i < end; i += SAMPLE_EACH)
        [[unroll]] for (uint j = 0; j < SAMPLE_EACH; j++)
            sum += i + j < end ? kept_weight(min(i + j, p.n - 1), bound) : 0.0;
    barrier();
    partial[lane] = sum;
    barrier();
    if (lane == 0) {
        float all = 0.0, base = 0.0;
        for (uint l = 0; l < SAMPLE_LANES; l++)
            all += partial[l];
        chosen_lane = SAMPLE_LANES;
        for (uint l = 0; l < SAMPLE_LANES; l++) {
            if (chosen_lane == SAMPLE_LANES && base + partial[l] > u * all) {
                chosen_lane = l;
                chosen_base = base;
            }
            base += partial[l];
        }
        partial[0] = u * all;
    }
    barrier();
    float target = partial[0], base = chosen_base;
    if (lane != chosen_lane)
        return 0xffffffffu;
    uint found = 0xffffffffu;
    sum = 0.0;
    for (uint i = begin; i < end && found == 0xffffffffu; i += SAMPLE_EACH)
        [[unroll]] for (uint j = 0; j < SAMPLE_EACH; j++) {
            sum += i + j < end ? kept_weight(min(i + j, p.n - 1), bound) : 0.0;
            found = found == 0xffffffffu && base + sum > target ? i + j : found;
        }
    return found; // there is one: the sum is the one above
}

void main()
{
    uint lane = gl_LocalInvocationIndex, row = gl_WorkGroupID.x;
    if (ADVANCE) {
        for (uint i = lane; i < p.n_step; i += SAMPLE_LANES)
            steps[p.step_offset + i]++;
        return;
    }
    first = p.x_offset + row * p.x_row;
    float lane_max = uintBitsToFloat(0xff800000u);
    for (uint i = lane; i < p.n; i += SAMPLE_EACH * SAMPLE_LANES)
        [[unroll]] for (uint j = 0; j < SAMPLE_EACH; j++)
            lane_max = max(lane_max, load(min(i + j * SAMPLE_LANES, p.n - 1)));
    row_max = reduce(lane_max, false);
    if (order_key(row_max) <= KEY_MINUS_INFINITY) {
        if (lane == 0)
            indices[p.y_offset + row * p.y_row] = 0xffffffffu; // -1: nothing can be drawn
        return;
    }
    uint all_row = p.row_first + row;
    uvec4 counter = uvec4(0, all_row, 0, 0);
    if (STEP && p.n_step == 1)
        counter.x = steps[p.step_offset];
    else if (STEP)
        counter.xy = uvec2(steps[p.step_offset + all_row], 0);
    uvec2 seed = uvec2(p.seed_low, p.seed_high);
    if (SEEDS) {
        uint at = p.seeds_offset + all_row * p.seeds_row;
        seed = uvec2(seeds[at], seeds[at + p.seeds_col]);
    }
    uint word = philox(counter, seed);
    uint index = draw(find_bound(), float(word >> 8) * 5.9604644775390625e-8);
    if (index != 0xffffffffu)
        indices[p.y_offset + row * p.y_row] = index;
}
