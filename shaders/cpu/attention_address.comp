// Fused attention for CPU drivers whose compilers keep uniform values scalar (Mesa 26): a lane
// holds whole rows of q and of the context, and each element of a key or value, read by address, is
// one broadcast from memory to all lanes. See attention_params and matmul_address.comp.
//
// A step is eight keys, because these compilers blend what a loop carries, here the context, with
// the execution mask once an iteration. Uniform branches are real branches, so that steps without
// hidden keys do not pay for masks.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#define STEP_KEYS 8
#define ROLLED
#define BARE_LOADS
#define BLOCK EACH
#define LARGE_VEC4 160
#include "cpu/rows.glsl"
#include "cpu/pick.glsl"

layout(buffer_reference, buffer_reference_align = 4) readonly buffer Fours { vec4 at[]; };
layout(buffer_reference, buffer_reference_align = 4) readonly buffer Words { uint at[]; };
layout(push_constant) uniform Push { uvec2 q_address, k_address, v_address; };

// Address of the row of q, k or v that starts at element `base`.
uint64_t row_at(uvec2 address, uint base, uint type)
{
    return packUint2x32(address) + 4ul * word_index(base, type);
}

// Elements 4 d .. 4 d + 3 of a row.
vec4 load(uint64_t row, uint d, uint type)
{
    if (type == TYPE_F32)
        return Fours(row).at[d];
    Words w = Words(row);
    return decode4(uvec2(w.at[2 * d], w.at[2 * d + 1]), type);
}

// Loads vec4 d of eight rows, one a lane. One load with an address per lane would be eight
// branches.
void load_q4(uint r, uint d, uint64_t rows[8])
{
    vec4 x[8];
    [[unroll]] for (uint lane = 0; lane < 8; lane++)
        x[lane] = load(rows[lane], d, Q_TYPE);
    [[unroll]] for (uint i = 0; i < 4; i++)
        q[r * HEAD4 + d][i] = pick(vec4(x[0][i], x[1][i], x[2][i], x[3][i]),
                                   vec4(x[4][i], x[5][i], x[6][i], x[7][i]));
}

void load_q(uint r, sequence s)
{
    uint64_t rows[8];
    [[unroll]] for (uint lane = 0; lane < 8; lane++) {
        uint row = tile_row + lane + r * 8;
        rows[lane] = row_at(q_address, q_index(min(row, n_row - 1), s), Q_TYPE);
    }
    EACH(HEAD4, p.head_dim, load_q4(r, d, rows))
}

vec4 load_v(uint base, uint d) { return load(row_at(v_address, base, V_TYPE), d, V_TYPE); }

vec4 x[2 * ROWS];       // [four][row]: scores of the keys of a step, then their weights
bvec4 hidden[2 * ROWS]; // [four][row]
float shrink[ROWS];     // factor of the context so far

// Adds the products of vec4 d of q and of four keys to their scores.
void add_scores(uint four, uint d, uint64_t k[8])
{
    vec4 k0 = load(k[4 * four], d, K_TYPE), k1 = load(k[4 * four + 1], d, K_TYPE);
    vec4 k2 = load(k[4 * four + 2], d, K_TYPE), k3 = load(k[4 * four + 3], d, K_TYPE);
    [[unroll]] for (uint i = 0; i < 4; i++)
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            x[four * ROWS + r] = fma(vec4(q[r * HEAD4 + d][i]), vec4(k0[i], k1[i], k2[i], k3[i]),
                                     x[four * ROWS + r]);
}

// One step of the online softmax: turns the scores x of row r into weights.
void weigh(uint r, uint key, sequence s, bool masked)
{
    vec4 a = x[r], b = x[ROWS + r], m = max(a, b);
    float old = row_max[r];
    float now = max(max(old, max(m.x, m.y)), max(m.z, m.w));
    float shift = now == MINUS_INFINITY ? 0.0 : now; // no key yet: all weights are exp(-inf) = 0
    [[unroll]] for (uint i = 0; i < 4; i++) {
        a[i] = exp_weight(a[i] - shift);
        b[i] = exp_weight(b[i] - shift);
    }
    if (masked) {
        a = mix(a, vec4(0.0), hidden[r]);
        b = mix(b, vec4(0.0), hidden[ROWS + r]);
    }
    shrink[r] = old == now ? 1.0 : exp_accurate(old - shift);
    vec4 sum = a + b;
    row_sum[r] = fma(row_sum[r], shrink[r], (sum.x + sum.y) + (sum.z + sum.w));
    row_max[r] = now;
    seen[r] = seen[r] || !masked || !all(hidden[r]) || !all(hidden[ROWS + r]);
    if (GENERAL != 0 && p.dropout != 0.0)
        for (uint i = 0; i < 4; i++) {
            a[i] = dropped(a[i], row_of(r), key + i, s);
            b[i] = dropped(b[i], row_of(r), key + 4 + i, s);
        }
    x[r] = a;
    x[ROWS + r] = b;
}

// Adds vec4 d of eight values, weighted, to the context.
void add_value4(uint d, uint64_t v[8])
{
    vec4 sum[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        sum[r] = vec4(0.0);
    [[unroll]] for (uint j = 0; j < 8; j++) {
        vec4 value = load(v[j], d, V_TYPE);
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            sum[r] = fma(vec4(x[j / 4 * ROWS + r][j % 4]), value, sum[r]);
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        context[r * VALUE4 + d] = fma(context[r * VALUE4 + d], vec4(shrink[r]), sum[r]);
}

void add_values(uint key, sequence s)
{
    uint64_t v[8];
    [[unroll]] for (uint j = 0; j < 8; j++)
        v[j] = row_at(v_address, v_index(key_row(key + j, s), s), V_TYPE);
    EACH(VALUE4, p.value_dim, add_value4(d, v))
}

// add_value4 where keys may be hidden: adds nothing of their values, which may be NaN or Inf.
void add_seen4(uint d, uint64_t v[8])
{
    vec4 sum[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        sum[r] = vec4(0.0);
    [[unroll]] for (uint j = 0; j < 8; j++) {
        vec4 value = load(v[j], d, V_TYPE);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            bool skip = hidden[j / 4 * ROWS + r][j % 4];
            sum[r] = fma(vec4(x[j / 4 * ROWS + r][j % 4]), skip ? vec4(0.0) : value, sum[r]);
        }
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        context[r * VALUE4 + d] = fma(context[r * VALUE4 + d], vec4(shrink[r]), sum[r]);
}

void add_seen_values(uint key, sequence s)
{
    uint64_t v[8];
    [[unroll]] for (uint j = 0; j < 8; j++)
        v[j] = row_at(v_address, v_index(key_row(min(key + j, s.n_kv - 1), s), s), V_TYPE);
    LOOP(, p.value_dim, add_seen4(d, v))
}

void step(uint key, sequence s, bool edge)
{
    bool masked = edge || GENERAL != 0, hides = false;
    uint64_t k[8]; // all before the first sum: a branch would separate loads and sums
    [[unroll]] for (uint j = 0; j < 8; j++)
        k[j] = row_at(k_address, k_index(key_row(min(key + j, s.n_kv - 1), s), s), K_TYPE);
    [[unroll]] for (uint i = 0; i < 2 * ROWS; i++)
        x[i] = vec4(0.0);
    [[unroll]] for (uint four = 0; four < 2; four++)
        EACH(HEAD4, p.head_dim, add_scores(four, d, k))
    [[unroll]] for (uint i = 0; i < 2 * ROWS; i++) {
        x[i] *= p.scale; // not q: products with unscaled q are exact more often
        hidden[i] = bvec4(false);
        if (masked) {
            x[i] = bias_scores(x[i], i % ROWS, key + i / ROWS * 4, s, hidden[i]);
            hides = hides || any(hidden[i]);
        }
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        weigh(r, key, s, masked);
    if (masked && subgroupMax(uint(hides)) != 0)
        add_seen_values(key, s);
    else
        add_values(key, s);
}

void main() { attend(); }
