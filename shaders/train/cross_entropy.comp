// Cross-entropy of rows of logits and labels, and its gradient. See cross_entropy_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params/params.h"
#include "params/model.h"
#include "params/train.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"
#include "lib/math.glsl"

layout(constant_id = LOSS_LANES) const uint LANES = 32;
layout(constant_id = LOSS_X_TYPE) const uint X_TYPE = 0;
layout(constant_id = LOSS_Y_TYPE) const uint Y_TYPE = 0;
layout(constant_id = LOSS_GRADIENT) const bool GRADIENT = false;
layout(local_size_x_id = LOSS_LANES) in;
ALIASED layout(binding = 0) buffer X { uint x_words[]; }; // the gradient may lie in its place
layout(binding = 1) readonly buffer Labels { int labels[]; };
layout(binding = 2) buffer Stats { float stats[]; };
layout(binding = 3) readonly buffer Totals { float totals[]; };
ALIASED layout(binding = 4) buffer Y { uint y_words[]; };
layout(push_constant) uniform Push { cross_entropy_params p; };

uvec4 row_at; // of element 0
int label;

shared float partial[LANES];
float reduce(float x, bool add)
{
    uint lane = gl_LocalInvocationIndex;
    barrier(); // what was reduced before has been read
    partial[lane] = x;
    for (uint step = LANES / 2; step > 0; step /= 2) {
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
    return LOAD(x_words, place(p.x, uvec4(row_at.xyz, i)), X_TYPE);
}

// The largest element but NaN, which the sums keep.
float largest()
{
    float most = uintBitsToFloat(0xff800000u);
    for (uint i = gl_LocalInvocationIndex; i < p.size3; i += LANES) {
        float x = load(i);
        most = is_nan(x) ? most : max(most, x);
    }
    return reduce(most, false);
}

// The sum of the weights without the label's, and with smoothing that of the distances below the
// largest.
vec2 sums(float most)
{
    vec2 total = vec2(0.0);
    for (uint first = gl_LocalInvocationIndex; first < p.size3; first += LANES * LOSS_BLOCK) {
        vec2 chain = vec2(0.0);
        uint end = min(first + LANES * LOSS_BLOCK, p.size3);
        for (uint i = first; i < end; i += LANES) {
            float below = load(i) - most;
            chain += vec2(int(i) == label ? 0.0 : exp_accurate(below), below);
        }
        total += chain;
    }
    return vec2(reduce(total.x, true), p.smoothing > 0.0 ? reduce(total.y, true) : 0.0);
}

void write_stats(uint at)
{
    const float nan = uintBitsToFloat(0x7fc00000u);
    float most = largest();
    vec2 rest = sums(most);
    if (gl_LocalInvocationIndex > 0)
        return;
    bool known = label >= 0 && uint(label) < p.size3, ignored = label == LOSS_IGNORED;
    float below = known ? load(uint(label)) - most : nan, own = exp_accurate(below);
    float sum = own + rest.x;
    // Where the label's is the largest, the loss may be far below 1.
    float loss = own == 1.0 ? log_plus_one(rest.x) : log_accurate(sum) - below;
    if (p.smoothing > 0.0) {
        float mean = log_accurate(sum) - rest.y / float(p.size3);
        loss = (1.0 - p.smoothing) * loss + p.smoothing * mean;
    }
    stats[at] = ignored ? 0.0 : one_nan(loss);
    stats[at + 1] = ignored ? 0.0 : 1.0;
    stats[at + 2] = most;
    stats[at + 3] = one_nan(sum);
    stats[at + 4] = rest.x;
}

void write_gradient(uint at)
{
    float count = totals[p.totals_offset + 1], most = stats[at + 2], sum = stats[at + 3];
    float scale = p.scale / count, smoothed = p.smoothing / float(p.size3);
    const uint STEP = Y_TYPE == TYPE_F32 ? 1 : 2; // elements that a lane stores
    uint n = p.size3;
    for (uint first = STEP * gl_LocalInvocationIndex; first < n; first += STEP * LANES) {
        uint index = place(p.y, uvec4(row_at.xyz, first));
        vec2 y = vec2(0.0);
        [[unroll]] for (uint j = 0; j < STEP; j++) {
            uint i = min(first + j, n - 1);
            y[j] = int(i) == label ? p.smoothing - stats[at + 4] / sum
                                   : exp_accurate(load(i) - most) / sum;
            y[j] = label == LOSS_IGNORED ? 0.0 : one_nan((y[j] - smoothed) * scale);
        }
        if (STEP == 2 && first + 1 < n)
            STORE_PAIR(y_words, index, p.y.stride3, Y_TYPE, y)
        else
            STORE(y_words, index, Y_TYPE, y.x)
    }
}

void main()
{
    uint row = gl_WorkGroupID.y * NORM_GRID + gl_WorkGroupID.x;
    if (row >= p.size0 * p.size1 * p.size2)
        return;
    row_at = uvec4(row / p.size2 / p.size1, row / p.size2 % p.size1, row % p.size2, 0);
    label = labels[place(p.labels, row_at)];
    uint at = p.stats_offset + row_at.x * p.stats0 + row_at.y * p.stats1 + row_at.z * p.stats2;
    if (GRADIENT)
        write_gradient(at);
    else
        write_stats(at);
}
