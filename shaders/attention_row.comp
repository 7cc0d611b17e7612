// Fused attention without shared memory or barriers: a lane holds whole rows of q and of the
// context, and every key and value is one load that all lanes share. See attention_params.
//
// Keys are taken ATTENTION_KEYS at a time, at multiples of that from key 0, so that a row meets
// them in the same steps whatever the other rows of its tile are: its bits depend on itself alone.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "params.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"
#include "lib/philox.glsl"

layout(constant_id = ATTENTION_LANES) const uint LANES = 8;
layout(constant_id = ATTENTION_ROWS) const uint ROWS = 2;
layout(constant_id = ATTENTION_HEAD4) const uint HEAD4 = 16;
layout(constant_id = ATTENTION_VALUE4) const uint VALUE4 = 16;
layout(constant_id = ATTENTION_Q_TYPE) const uint Q_TYPE = 0;
layout(constant_id = ATTENTION_K_TYPE) const uint K_TYPE = 0;
layout(constant_id = ATTENTION_V_TYPE) const uint V_TYPE = 0;
layout(constant_id = ATTENTION_O_TYPE) const uint O_TYPE = 0;
layout(constant_id = ATTENTION_K_VEC) const uint K_VEC = 1;
layout(constant_id = ATTENTION_V_VEC) const uint V_VEC = 1;
layout(constant_id = ATTENTION_GENERAL) const uint GENERAL = 0;

layout(local_size_x_id = ATTENTION_LANES) in;
layout(binding = 0) readonly buffer Q { uint q_words[]; };
layout(binding = 1) readonly buffer K { uint k_words[]; };
layout(binding = 1) readonly buffer K2 { uvec2 k_words2[]; };
layout(binding = 1) readonly buffer K4 { vec4 k_vec4[]; };
layout(binding = 2) readonly buffer V { uint v_words[]; };
layout(binding = 2) readonly buffer V2 { uvec2 v_words2[]; };
layout(binding = 2) readonly buffer V4 { vec4 v_vec4[]; };
layout(binding = 3) buffer O { uint o_words[]; };
layout(binding = 4) readonly buffer Mask { uint mask_words[]; };
layout(binding = 5) readonly buffer Length { uint length_words[]; };
layout(binding = 6) readonly buffer QueryOffset { uint query_offset_words[]; };
layout(binding = 7) readonly buffer Sink { float sinks[]; };
layout(binding = 8) readonly buffer Alibi { float slopes[]; };
layout(binding = 9) readonly buffer Table { uint table[]; };
layout(binding = 10) readonly buffer QStart { uint q_start[]; };
layout(binding = 11) readonly buffer KvStart { uint kv_start[]; };
layout(binding = 12) readonly buffer Params { attention_params p; };
#include "lib/mask.glsl"
#include "lib/sequence.glsl"

#define MINUS_INFINITY uintBitsToFloat(0xff800000u)

// Per row of this lane.
vec4 q[ROWS * HEAD4], context[ROWS * VALUE4];
float most[ROWS], total[ROWS];
bool seen[ROWS];
uvec2 range[ROWS]; // keys that lengths, causal and window leave

// Row r of this lane: past the end, the last again, which is not stored.
uint first_row, n_row;
uint row_of(uint r) { return min(first_row + r * LANES, n_row - 1); }

// Query and head of a row, counted from this pass's first.
uint query_of(uint row) { return row / p.group; }
uint head_of(uint row) { return gl_WorkGroupID.y * p.group + row % p.group; }

vec4 load_k(uint base, uint d)
{
    if (K_VEC != 0)
        return K_TYPE == TYPE_F32 ? k_vec4[(base >> 2) + d]
                                  : decode4(k_words2[(base >> 2) + d], K_TYPE);
    vec4 x = vec4(0.0);
    for (uint i = 0; i < 4; i++)
        if (4 * d + i < p.head_dim)
            x[i] = LOAD(k_words, base + 4 * d + i, K_TYPE);
    return x;
}

vec4 load_v(uint base, uint d)
{
    if (V_VEC != 0)
        return V_TYPE == TYPE_F32 ? v_vec4[(base >> 2) + d]
                                  : decode4(v_words2[(base >> 2) + d], V_TYPE);
    vec4 x = vec4(0.0);
    for (uint i = 0; i < 4; i++)
        if (4 * d + i < p.value_dim)
            x[i] = LOAD(v_words, base + 4 * d + i, V_TYPE);
    return x;
}

void load_row(uint r, sequence s)
{
    uint row = row_of(r), head = p.head_first + head_of(row);
    uint base = p.q_offset + s.batch * p.q_batch + head_of(row) * p.q_head +
                (s.q_first + query_of(row)) * p.q_row;
    [[unroll]] for (uint d = 0; d < HEAD4; d++)
        for (uint i = 0; i < 4; i++)
            q[r * HEAD4 + d][i] = 4 * d + i < p.head_dim
                                      ? p.scale * LOAD(q_words, base + 4 * d + i, Q_TYPE)
                                      : 0.0;
    [[unroll]] for (uint d = 0; d < VALUE4; d++)
        context[r * VALUE4 + d] = vec4(0.0);
    bool sink = mask_has(MASK_SINK);
    most[r] = sink ? sinks[p.sink_offset + head] : MINUS_INFINITY;
    total[r] = sink ? 1.0 : 0.0;
    seen[r] = false;
    range[r] = mask_range(s.index, s.position + int(query_of(row)));
    range[r] = min(range[r], uvec2(s.n_kv));
}

// The scores of four keys before them: mask, softcap and biases; -inf, and a bit of `hidden`, where
// a row does not see the key.
vec4 bias_scores(vec4 x, uint r, uint key, sequence s, out bvec4 hidden)
{
    hidden = bvec4(false);
    uint row = row_of(r), head = p.head_first + head_of(row);
    uint mask_row = mask_row_index(s.index, head, p.query_first + query_of(row));
    for (uint i = 0; i < 4; i++) {
        bool visible = key + i >= range[r].x && key + i < range[r].y;
        float bias = 0.0;
        if (GENERAL != 0) {
            if (p.softcap != 0.0)
                x[i] = p.softcap * tanh_accurate(x[i] / p.softcap);
            if (mask_has(MASK_ALIBI))
                x[i] -= slopes[p.alibi_offset + head] *
                        abs(float(s.position + int(query_of(row)) - int(key + i)));
            if (visible)
                visible = mask_tensor(mask_row, key + i, bias);
            x[i] += bias;
        }
        hidden[i] = !visible;
        x[i] = visible ? x[i] : MINUS_INFINITY;
    }
    return x;
}

float dropped(float weight, uint r, uint key, sequence s)
{
    if (GENERAL == 0 || p.dropout == 0.0)
        return weight;
    uint row = row_of(r);
    uvec4 counter =
        uvec4(key, p.query_first + query_of(row), p.head_first + head_of(row), s.index);
    uint word = philox(counter, uvec2(p.seed_low, p.seed_high));
    bool kept = float(word >> 8) * 5.9604644775390625e-8 >= p.dropout;
    return kept ? weight / (1.0 - p.dropout) : 0.0;
}

// One step of the online softmax for a row; returns the weights of the four keys.
vec4 weigh(vec4 x, uint r, uint key, sequence s, bvec4 hidden, bool edge)
{
    float old = most[r];
    float now = max(max(old, max(x.x, x.y)), max(x.z, x.w));
    float shift = now == MINUS_INFINITY ? 0.0 : now; // no key yet: all weights are exp(-inf) = 0
    vec4 w;
    for (uint i = 0; i < 4; i++)
        w[i] = exp_accurate(x[i] - shift);
    float shrink = old == now ? 1.0 : exp_accurate(old - shift);
    if (edge)
        w = mix(w, vec4(0.0), hidden);
    seen[r] = seen[r] || !edge || !all(hidden);
    total[r] = fma(total[r], shrink, (w.x + w.y) + (w.z + w.w));
    most[r] = now;
    [[unroll]] for (uint d = 0; d < VALUE4; d++)
        context[r * VALUE4 + d] *= shrink;
    for (uint i = 0; i < 4; i++)
        w[i] = dropped(w[i], r, key + i, s);
    return w;
}

// Four keys from `key` on; `edge`: some row may not see some of them, or they are past the end.
void step(uint key, sequence s, bool edge)
{
    uint k_base[4], v_base[4];
    for (uint i = 0; i < 4; i++) {
        uint at = key_row(min(key + i, s.n_kv - 1), s);
        k_base[i] = k_index(at, s);
        v_base[i] = v_index(at, s);
    }
    vec4 x[ROWS];
    for (uint r = 0; r < ROWS; r++)
        x[r] = vec4(0.0);
    [[unroll]] for (uint d = 0; d < HEAD4; d++) {
        vec4 k0 = load_k(k_base[0], d), k1 = load_k(k_base[1], d);
        vec4 k2 = load_k(k_base[2], d), k3 = load_k(k_base[3], d);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            vec4 a = q[r * HEAD4 + d];
            for (uint i = 0; i < 4; i++) {
                x[r].x = fma(a[i], k0[i], x[r].x);
                x[r].y = fma(a[i], k1[i], x[r].y);
                x[r].z = fma(a[i], k2[i], x[r].z);
                x[r].w = fma(a[i], k3[i], x[r].w);
            }
        }
    }
    bvec4 hidden[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        hidden[r] = bvec4(false);
        if (edge || GENERAL != 0)
            x[r] = bias_scores(x[r], r, key, s, hidden[r]);
        x[r] = weigh(x[r], r, key, s, hidden[r], edge || GENERAL != 0);
    }
    [[unroll]] for (uint d = 0; d < VALUE4; d++) {
        vec4 v0 = load_v(v_base[0], d), v1 = load_v(v_base[1], d);
        vec4 v2 = load_v(v_base[2], d), v3 = load_v(v_base[3], d);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            vec4 c = context[r * VALUE4 + d];
            if (edge || GENERAL != 0) { // a hidden value may be NaN or Inf
                c = fma(vec4(x[r].x), hidden[r].x ? vec4(0.0) : v0, c);
                c = fma(vec4(x[r].y), hidden[r].y ? vec4(0.0) : v1, c);
                c = fma(vec4(x[r].z), hidden[r].z ? vec4(0.0) : v2, c);
                c = fma(vec4(x[r].w), hidden[r].w ? vec4(0.0) : v3, c);
            } else {
                c = fma(vec4(x[r].x), v0, c);
                c = fma(vec4(x[r].y), v1, c);
                c = fma(vec4(x[r].z), v2, c);
                c = fma(vec4(x[r].w), v3, c);
            }
            context[r * VALUE4 + d] = c;
        }
    }
}

// A row that saw no key: what mask.flags say.
void answer_dead(uint r, sequence s)
{
    uint answer = mask_field(MASK_ROW_SHIFT, 2);
    float fill = answer == MASKED_NAN ? uintBitsToFloat(0x7fc00000u) : 0.0;
    [[unroll]] for (uint d = 0; d < VALUE4; d++)
        context[r * VALUE4 + d] = vec4(fill);
    total[r] = 1.0;
    if (answer != MASKED_UNIFORM)
        return;
    for (uint key = 0; key < s.n_kv; key++) {
        uint base = v_index(key_row(key, s), s);
        float weight = dropped(1.0 / float(s.n_kv), r, key, s);
        [[unroll]] for (uint d = 0; d < VALUE4; d++)
            context[r * VALUE4 + d] += weight * load_v(base, d);
    }
}

void store_row(uint r, sequence s)
{
    uint row = row_of(r);
    uint base = p.o_offset + s.batch * p.o_batch + head_of(row) * p.o_head +
                (s.q_first + query_of(row)) * p.o_row;
    [[unroll]] for (uint d = 0; d < VALUE4; d++)
        for (uint i = 0; i < 4; i++)
            if (4 * d + i < p.value_dim) {
                float x = context[r * VALUE4 + d][i] / total[r];
                STORE(o_words, base + 4 * d + i, O_TYPE, x);
            }
}

void main()
{
    uint tile;
    sequence s = find_sequence(LANES * ROWS, tile);
    n_row = s.n_q * p.group;
    first_row = tile * LANES * ROWS + gl_LocalInvocationIndex;
    if (tile * LANES * ROWS >= n_row)
        return;
    uvec2 outer = uvec2(0xffffffffu, 0), inner = uvec2(0, 0xffffffffu);
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        load_row(r, s);
        if (range[r].x < range[r].y)
            outer = uvec2(min(outer.x, range[r].x), max(outer.y, range[r].y));
        inner = uvec2(max(inner.x, range[r].x), min(inner.y, range[r].y));
    }
    outer = uvec2(subgroupMin(outer.x), subgroupMax(outer.y));
    inner = uvec2(subgroupMax(inner.x), subgroupMin(inner.y));
    for (uint key = outer.x / ATTENTION_KEYS * ATTENTION_KEYS; key < outer.y;
         key += ATTENTION_KEYS) {
        bool edge = key < inner.x || key + ATTENTION_KEYS > inner.y;
        step(key, s, edge);
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        if (!seen[r])
            answer_dead(r, s);
        if (first_row + r * LANES < n_row)
            store_row(r, s);
    }
}
