// Quantises rows of A, 16 neighbours along k an invocation. The scale is the largest magnitude /
// 127, rounded up to 12 significant bits; each value goes to the nearest multiple of it, halves
// away from 0. Products of the scale and so few bits are exact in float32, and so is every
// comparison: the same integers on every device. Where a value is NaN or Inf, the scale is NaN and
// the integers are 0. See quantise_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/relu.glsl"

layout(constant_id = QUANTISE_FROM_TYPE) const uint FROM_TYPE = 0;
layout(constant_id = QUANTISE_RELU) const uint RELU = 0;
layout(local_size_x = QUANTISE_LANES) in;
layout(binding = 0) readonly buffer From { uint from_words[]; };
layout(binding = 1) buffer To { uint to_words[]; };
layout(push_constant) uniform Push { quantise_params p; };

// The nearest multiple of `scale` to x, as a number of them; inverse: about 1 / scale.
float nearest(float x, float scale, float inverse)
{
    precise float a = abs(x), q = floor(a * inverse + 0.5);
    q += a >= (q + 0.5) * scale ? 1.0 : 0.0;
    q -= a < (q - 0.5) * scale ? 1.0 : 0.0;
    return min(q, 127.0) * (x < 0.0 ? -1.0 : 1.0);
}

void main()
{
    uint sixteen = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y, z = gl_WorkGroupID.z;
    if (sixteen >= p.n_sixteen)
        return;
    uint batch = z / p.n_head, head = z % p.n_head, k = sixteen * QUANTISE_VALUES;
    uint from = p.from_offset + batch * p.from_batch + head * p.from_head + row * p.from_row;
    uint to = p.to_offset + batch * p.to_batch + head * p.to_head + row * p.to_row;
    float x[QUANTISE_VALUES];
    uint peak = 0; // bits of the largest magnitude; those of NaN are larger than any other
    [[unroll]] for (uint i = 0; i < QUANTISE_VALUES; i++) {
        x[i] = 0.0;
        if (k + i < p.k)
            x[i] = LOAD(from_words, from + (k + i) * p.from_col, FROM_TYPE);
        if (RELU != 0)
            x[i] = relu_of(x[i]);
        peak = max(peak, floatBitsToUint(x[i]) & 0x7fffffffu);
    }
    precise float exact = uintBitsToFloat(peak) * CACHE_Q8_STEP;
    uint bits = floatBitsToUint(exact) + 0xfffu & ~0xfffu;
    bool finite = peak < 0x7f800000u, none = !finite || bits < QUANTISE_LEAST;
    float scale = uintBitsToFloat(none ? 0x3f800000u : bits), inverse = 1.0 / scale;
    int sum = 0;
    to += sixteen / 8 * (ACTIVATION_BYTES / 4);
    sixteen %= 8;
    [[unroll]] for (uint w = 0; w < QUANTISE_VALUES / 4; w++) {
        uint word = 0;
        [[unroll]] for (uint i = 0; i < 4; i++) {
            int q = none ? 0 : int(nearest(x[4 * w + i], scale, inverse));
            sum += q;
            word |= (uint(q) & 0xffu) << 8 * i;
        }
        to_words[to + sixteen * (QUANTISE_VALUES / 4) + w] = word;
    }
    to_words[to + ACTIVATION_SCALE + sixteen] = !finite ? 0x7fc00000u : none ? 0u : bits;
    to_words[to + ACTIVATION_SUM + sixteen] = uint(sum);
}
