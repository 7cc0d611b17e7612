// Fused attention without shared memory or barriers: a lane holds whole rows of q and of the
// context, and a key or value is one load for all lanes. See attention_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#define STEP_KEYS 4
#define LARGE_VEC4 64
#ifdef TEXELS
#define ROLLED
#define BLOCK COLD
#define MASKED true // these compilers run both sides of a branch
#else
#define MASKED (edge || GENERAL != 0)
#endif
#include "cpu/rows.glsl"

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
    COLD(HEAD4, p.head_dim, q[r * HEAD4 + d] = load_q(row, d, s))
}

vec4 x[ROWS]; // scores, then weights, of the four keys of a step
bvec4 hidden[ROWS];
float shrink[ROWS]; // factor of the context so far

// Adds the products of vec4 d of q and of four keys to their scores.
void add_scores(uint d, uint base[4])
{
    vec4 k0 = load_k(base[0], d), k1 = load_k(base[1], d);
    vec4 k2 = load_k(base[2], d), k3 = load_k(base[3], d);
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

// Adds vec4 d of four values, weighted, to the context. A hidden value may be NaN or Inf.
void add_values(uint d, uint base[4], bool masked)
{
    vec4 v0 = load_v(base[0], d), v1 = load_v(base[1], d);
    vec4 v2 = load_v(base[2], d), v3 = load_v(base[3], d);
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        vec4 sum = x[r].x * (masked && hidden[r].x ? vec4(0.0) : v0);
        sum = fma(vec4(x[r].y), masked && hidden[r].y ? vec4(0.0) : v1, sum);
        sum = fma(vec4(x[r].z), masked && hidden[r].z ? vec4(0.0) : v2, sum);
        sum = fma(vec4(x[r].w), masked && hidden[r].w ? vec4(0.0) : v3, sum);
        context[r * VALUE4 + d] = fma(context[r * VALUE4 + d], vec4(shrink[r]), sum);
    }
}

// One step of the online softmax: turns the scores x of row r into weights.
void weigh(uint r, uint key, sequence s, bool masked)
{
    float old = row_max[r];
    float now = max(max(old, max(x[r].x, x[r].y)), max(x[r].z, x[r].w));
    float shift = now == MINUS_INFINITY ? 0.0 : now; // no key yet: all weights are exp(-inf) = 0
    vec4 w;
    for (uint i = 0; i < 4; i++)
        w[i] = exp_weight(x[r][i] - shift);
    shrink[r] = old == now ? 1.0 : exp_accurate(old - shift);
    if (masked)
        w = mix(w, vec4(0.0), hidden[r]);
    seen[r] = seen[r] || !masked || !all(hidden[r]);
    row_sum[r] = fma(row_sum[r], shrink[r], (w.x + w.y) + (w.z + w.w));
    row_max[r] = now;
    for (uint i = 0; i < 4; i++)
        w[i] = dropped(w[i], row_of(r), key + i, s);
    x[r] = w;
}

// See rows.glsl.
void step(uint key, sequence s, bool edge)
{
    uint k_base[4], v_base[4];
    for (uint i = 0; i < 4; i++) {
        uint at = key_row(min(key + i, s.n_kv - 1), s);
        k_base[i] = k_index(at, s);
        v_base[i] = v_index(at, s);
    }
    for (uint r = 0; r < ROWS; r++)
        x[r] = vec4(0.0);
    EACH(HEAD4, p.head_dim, add_scores(d, k_base))
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        x[r] *= p.scale; // as in attention_address
        hidden[r] = bvec4(false);
        if (MASKED)
            x[r] = bias_scores(x[r], r, key, s, hidden[r]);
        weigh(r, key, s, MASKED);
    }
    EACH(VALUE4, p.value_dim, add_values(d, v_base, MASKED))
}

void main() { attend(); }
