// Fused attention without shared memory or barriers: a lane holds whole rows of q and of the
// context, and every key and value is one load that all lanes share. See attention_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#define STEP_KEYS 4
#ifdef TEXELS
#define ROLLED
#define MASKED true // those compilers run both sides of a branch: one that is always right
#else
#define MASKED (edge || GENERAL != 0)
#endif
#include "lib/rows.glsl"

#ifdef TEXELS
// For CPU drivers with older compilers, see matmul_texel.comp. Rows are padded to whole vec4.
layout(binding = 1) uniform textureBuffer k_texels;
layout(binding = 2) uniform textureBuffer v_texels;

// Elements past the end of a row are 0.
vec4 within(vec4 x, uint d, uint dim)
{
    if (4 * d + 4 <= dim)
        return x;
    return mix(x, vec4(0.0), greaterThanEqual(4 * d + uvec4(0, 1, 2, 3), uvec4(dim)));
}

vec4 load_k(uint base, uint d)
{
    vec4 x = texelFetch(k_texels, int(base / 4 + d));
    return K_VEC != 0 ? x : within(x, d, p.head_dim);
}

vec4 load_v(uint base, uint d)
{
    vec4 x = texelFetch(v_texels, int(base / 4 + d));
    return V_VEC != 0 ? x : within(x, d, p.value_dim);
}
#else
#include "lib/keys.glsl"
#endif

void load_q(uint r, sequence s)
{
    uint row = row_of(r);
    COLD_LOOP(d, HEAD4, p.head_dim)
        q[r * HEAD4 + d] = load_q(row, d, s);
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
        w[i] = dropped(w[i], row_of(r), key + i, s);
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
        if (MASKED)
            x[r] = bias_scores(x[r], r, key, s, hidden[r]);
        x[r] = weigh(x[r], r, key, s, hidden[r], MASKED);
    }
    [[unroll]] for (uint d = 0; d < VALUE4; d++) {
        vec4 v0 = load_v(v_base[0], d), v1 = load_v(v_base[1], d);
        vec4 v2 = load_v(v_base[2], d), v3 = load_v(v_base[3], d);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            vec4 c = context[r * VALUE4 + d];
            if (MASKED) { // a hidden value may be NaN or Inf
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

void main() { attend(); }
