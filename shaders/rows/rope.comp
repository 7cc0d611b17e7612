// RMS norm over head_dim, then rotary embedding, of each row of q or k; either is optional. One
// invocation per row: the work is small beside the projections. See rope_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"
#include "lib/row_power.glsl"

layout(constant_id = ROPE_FROM_TYPE) const uint FROM_TYPE = 0;
layout(constant_id = ROPE_TO_TYPE) const uint TO_TYPE = 0;
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer From { uint from_words[]; };
layout(binding = 1) buffer To { uint to_words[]; };
layout(binding = 2) readonly buffer Norm { float norm_weights[]; };
layout(binding = 3) readonly buffer QueryOffset { int query_offsets[]; };
// [dim / 2] turns a position in units of 2^-64, then the attention factor.
layout(binding = 4) readonly buffer Frequencies { uvec2 frequencies[]; };
layout(binding = 5) readonly buffer QStart { uint q_start[]; };
layout(push_constant) uniform Push { rope_params p; };
#include "lib/packed.glsl"
#include "lib/rotation.glsl"

uint from_base, to_base;
float inverse_rms, power; // of the row times power, see lib/row_power.glsl

float load_normed(uint d)
{
    float x = LOAD(from_words, from_base + d * p.from_col, FROM_TYPE);
    if ((p.flags & ROPE_NORM) != 0u)
        x = x * power * inverse_rms * norm_weights[p.norm_offset + d];
    return x;
}

void store(uint d, float x)
{
    uint index = to_base + d * p.to_col;
    STORE(to_words, index, TO_TYPE, x);
}

// Features d and d + 1, which are a word.
void store_word(uint d, vec2 x) { to_words[(to_base + d) >> 1] = pair_word(x, TO_TYPE); }

vec2 turned(uvec2 at, int position, uint pair, float factor)
{
    vec2 x = vec2(load_normed(at.x), load_normed(at.y));
    return rotated_pair(x, position, frequencies[pair], factor);
}

float mean_square()
{
    float sum = 0.0;
    for (uint d = 0; d < p.head_dim; d++) {
        float x = LOAD(from_words, from_base + d * p.from_col, FROM_TYPE) * power;
        sum = fma(x, x, sum);
    }
    return sum / float(p.head_dim);
}

void set_norm()
{
    power = 1.0;
    float squares = mean_square();
    if (squares_leave_range(squares, p.epsilon)) {
        power = row_power(squares, 0.0);
        squares = mean_square();
    }
    inverse_rms = 1.0 / sqrt(squares + scaled_epsilon(p.epsilon, power));
}

void main()
{
    uint e = gl_GlobalInvocationID.x;
    if (e >= p.n_head * p.n_row)
        return;
    uint batch = gl_WorkGroupID.y, head = e / p.n_row, row = e % p.n_row;
    from_base = p.from_offset + batch * p.from_batch + head * p.from_head + row * p.from_row;
    to_base = p.to_offset + batch * p.to_batch + head * p.to_head + row * p.to_row;
    uint sequence = batch, place_row = row;
    if (p.n_sequence != 0 && !find_packed(p.row_first + row, sequence, place_row))
        return;
    int position = p.first_position;
    if ((p.flags & ROPE_OFFSET) != 0u) {
        bool per_batch = (p.flags & ROPE_OFFSET_PER_BATCH) != 0u;
        position += clamp(query_offsets[p.position_offset + (per_batch ? sequence : 0u)], -(1 << 30),
                          1 << 30);
    }
    position += int(place_row);

    if ((p.flags & ROPE_NORM) != 0u)
        set_norm();
    bool interleaved = (p.flags & ROPE_INTERLEAVED) != 0u;
    float factor = uintBitsToFloat(frequencies[p.dim / 2].x);
    if (TO_TYPE != TYPE_F32 && p.to_col == 1 && ((to_base | p.dim >> 1 | p.head_dim) & 1u) == 0) {
        for (uint i = 0; i < p.dim / 2; i += 2) { // two pairs are two words
            uvec2 at = pair_features(i, p.dim, interleaved);
            uvec2 next = pair_features(i + 1, p.dim, interleaved);
            vec2 x = turned(at, position, i, factor), y = turned(next, position, i + 1, factor);
            store_word(at.x, interleaved ? x : vec2(x.x, y.x));
            store_word(interleaved ? next.x : at.y, interleaved ? y : vec2(x.y, y.y));
        }
        for (uint d = p.dim; d < p.head_dim; d += 2)
            store_word(d, vec2(load_normed(d), load_normed(d + 1)));
        return;
    }
    for (uint i = 0; i < p.dim / 2; i++) {
        uvec2 at = pair_features(i, p.dim, interleaved);
        vec2 x = turned(at, position, i, factor);
        store(at.x, x.x);
        store(at.y, x.y);
    }
    for (uint d = p.dim; d < p.head_dim; d++)
        store(d, load_normed(d));
}
