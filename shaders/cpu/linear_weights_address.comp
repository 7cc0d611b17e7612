// linear_weights for CPU drivers whose compilers keep uniform values scalar (Mesa 26): rows of keys and
// queries, what the tokens of a chunk do to one another, and their decays, for linear_chunked_address. A
// workgroup is one subgroup of 8, lanes are features, or tokens.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params/params.h"
#include "params/model.h"
#include "params/state.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"
#include "lib/math.glsl"
#include "lib/activation.glsl"
#include "lib/decay.glsl"
#include "lib/start.glsl"
#include "state/linear.glsl"
#include "state/chunk.glsl"
#include "cpu/linear_address.glsl"
#include "cpu/lanes.glsl"

// ---- Gates: lanes are tokens --------------------------------------------------------------------

void make_gates(uint row, uint n, uint64_t base)
{
    [[dont_unroll]] for (uint first = 0; first < C; first += 8) {
        uint t = first + lane();
        vec4 gates = t < n ? gates_of(row + t) : vec4(0.0); // others change nothing
        store_eight(base, DECAYS + first, gates.x);
        store_eight(base, BETAS + first, gates.y);
        store_eight(base, STEPS + first, gates.z);
    }
}

// What a row's read of the state is multiplied by, and what is written by a key: each sum for itself, as in
// linear_weights.
void make_factors(uint64_t base)
{
    [[dont_unroll]] for (uint first = 0; first < C; first += 8) {
        uint t = first + lane();
        float sum = 0.0, rest = 0.0;
        [[dont_unroll]] for (uint i = 0; i < C; i++) {
            float g = load_one(base, DECAYS + i);
            sum += i <= t ? g : 0.0;
            rest += i > t ? g : 0.0;
        }
        bool none = DECAY == DECAY_NONE;
        store_eight(base, FACTORS + first, none ? 1.0 : decay_factor(decay_code(sum)));
        store_eight(base, LASTS + first, none ? 1.0 : decay_factor(decay_code(rest)));
        if (first + 8 == C)
            store_eight(base, CODES, decay_code(subgroupShuffle(sum, 7)));
    }
}

// ---- Rows: lanes are features -------------------------------------------------------------------

// The lane's feature of vector c of a row at `at`.
float feature_of(bool of_key, uint at, uint c)
{
    uint feature = 8 * c + lane();
    if (has(LINEAR_VECTORS))
        return load_eight(address_of(of_key ? 1 : 0), at + 8 * c);
    if (feature >= p.head_dim)
        return 0.0;
    return of_key ? LOAD(k_words, at + feature * p.k.stride3, K_TYPE)
                  : LOAD(q_words, at + feature * p.q.stride3, Q_TYPE);
}

// What a row is shrunk by, and then multiplied by.
vec2 length_of(bool of_key, uint at)
{
    float top = 0.0, sum = 0.0;
    [[dont_unroll]] for (uint c = 0; c < VECTORS; c++)
        top = max(top, abs(feature_of(of_key, at, c)));
    float shrink = shrink_of_size(lanes_max(top));
    [[dont_unroll]] for (uint c = 0; c < VECTORS; c++) {
        float x = feature_of(of_key, at, c) * shrink;
        sum = fma(x, x, sum);
    }
    precise float epsilon = p.norm_epsilon * shrink * shrink;
    return vec2(shrink, 1.0 / sqrt(lanes_sum(sum) + epsilon));
}

// Rows are divided by their length; those behind n, of the last 16, are 0.
void make_rows(bool of_key, uint row, uint n, uint64_t base)
{
    uint first = of_key ? place(p.k, uvec4(packed_batch(), head / p.k_ratio, row, 0))
                        : place(p.q, uvec4(packed_batch(), head / p.q_ratio, row, 0));
    uint step = of_key ? p.k.stride2 : p.q.stride2;
    [[dont_unroll]] for (uint t = 0; t < n; t++) {
        uint at = first + t * step, to = (of_key ? KEYS : QUERIES) + t * ROW_PITCH;
        vec2 by = has(LINEAR_NORMED) ? length_of(of_key, at) : vec2(1.0);
        [[dont_unroll]] for (uint c = 0; c < VECTORS; c++) {
            float x = feature_of(of_key, at, c);
            store_eight(base, to + 8 * c, has(LINEAR_NORMED) ? x * by.x * by.y : x);
        }
    }
    [[dont_unroll]] for (uint t = n; t % 16 != 0; t++)
        [[dont_unroll]] for (uint c = 0; c < VECTORS; c++)
            store_eight(base, (of_key ? KEYS : QUERIES) + t * ROW_PITCH + 8 * c, 0.0);
}

// ---- Products -----------------------------------------------------------------------------------

// Lane j gets the products of query i, and of key i, with key first + j. Later keys are read too: their
// products are left out.
void make_products(uint64_t base, uint first, uint i, out float of_query, out float of_key)
{
    float queries[8], keys[8];
    [[unroll]] for (uint j = 0; j < 8; j++)
        queries[j] = keys[j] = 0.0;
    uint64_t rows = at_float(base, KEYS + first * ROW_PITCH), query = at_float(base, QUERIES + i * ROW_PITCH);
    uint64_t key = at_float(base, KEYS + i * ROW_PITCH);
    uint c = 0;
    do {
        [[unroll]] for (uint f = 0; f < STEP; f += 8) {
            float q = load_eight(query, c + f), k = load_eight(key, c + f);
            [[unroll]] for (uint j = 0; j < 8; j++) {
                float x = load_eight(rows, j * ROW_PITCH + c + f);
                queries[j] = fma(q, x, queries[j]);
                if (DELTA)
                    keys[j] = fma(k, x, keys[j]);
            }
        }
        c += STEP;
    } while (c < D);
    of_query = transpose_sum(queries);
    of_key = DELTA ? transpose_sum(keys) : 0.0;
}

// L and A of keys first .. first + 7.
void weigh(uint64_t base, uint first, uint n)
{
    uint j = first + lane(), i = first;
    float sum = 0.0;
    do {
        float of_query, of_key;
        sum += i > j ? load_one(base, DECAYS + i) : 0.0;
        float f = DECAY == DECAY_NONE ? 1.0 : decay_factor(decay_code(sum));
        make_products(base, first, i, of_query, of_key);
        store_eight(base, OF_QUERIES + i * C + first, j <= i ? of_query * f : 0.0);
        if (DELTA)
            store_eight(base, OF_KEYS + i * C + first,
                        j < i ? of_key * f * load_one(base, BETAS + i) : 0.0);
        i++;
    } while (i < n);
}

void main()
{
    uint row, count, had;
    find_lane();
    head = p.state_first + gl_WorkGroupID.y;
    batch = gl_WorkGroupID.z;
    uint chunk = C * gl_WorkGroupID.x;
    if (!find_tokens(row, count, had) || chunk >= count)
        return;
    uint64_t base = chunk_at(row, gl_WorkGroupID.x);
    uint n = min(count - chunk, C);
    make_gates(row + chunk, n, base);
    make_rows(true, row + chunk, n, base);
    make_rows(false, row + chunk, n, base);
    subgroupMemoryBarrierBuffer();
    make_factors(base);
    uint first = 0;
    do {
        weigh(base, first, n);
        first += 8;
    } while (first < n);
}
