// linear_chunked for CPU drivers whose compilers keep uniform values scalar (Mesa 26): a workgroup is one
// subgroup of 8, and a lane has one of eight values of a state. Eight neighbours, each picked by one lane,
// are one vector load; elements of keys, queries and weights are scalars from memory. Stores are loops over
// the lanes, so that the state is stored once a chunk. Four tokens share what is loaded of the state. Loops
// test after their bodies, as in matmul_address. See LINEAR_ADDRESS_WEIGHTS.
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

layout(buffer_reference, buffer_reference_align = 4) buffer Vectors { vec4 at[32]; };
layout(buffer_reference, buffer_reference_align = 4) buffer Row { float at[16]; };

#define TOGETHER 4 // tokens

uint64_t states; // of this workgroup: [feature][lane], behind them what tokens write, [token][lane]

uint value() { return 8 * gl_WorkGroupID.x + lane(); }

bool is_value() { return value() < p.value_dim; }

uint64_t written_at() { return at_float(states, 8 * D); }

// ---- The state ----------------------------------------------------------------------------------

void load_states()
{
    uint first = place(p.from, uvec4(batch, head, 0, value()));
    [[dont_unroll]] for (uint f = 0; f < D; f++) {
        float x = 0.0;
        if (has(LINEAR_LOADS) && f < p.head_dim && is_value())
            x = from_values[first + f * p.from.stride2];
        store_eight(states, 8 * f, x);
    }
    subgroupMemoryBarrierBuffer();
}

void store_states()
{
    uint first = place(p.to, uvec4(batch, head, 0, value())), count = p.head_dim;
    bool broken = false;
    [[dont_unroll]] for (uint f = 0; f < count; f++) {
        float x = load_eight(states, 8 * f);
        if (is_value())
            to_values[first + f * p.to.stride2] = x;
        broken = broken || is_broken(x);
    }
    if (broken && is_value())
        note_broken(batch);
}

// ---- Four tokens --------------------------------------------------------------------------------

// S^T k and S^T q of tokens t .. t + 3.
void read_states(uint64_t base, uint t, out float told[TOGETHER], out float read[TOGETHER])
{
    float of_keys[TOGETHER], of_queries[TOGETHER];
    [[unroll]] for (uint i = 0; i < TOGETHER; i++)
        of_keys[i] = of_queries[i] = 0.0;
    uint64_t keys = at_float(base, KEYS + t * D), queries = at_float(base, QUERIES + t * D);
    uint c = 0;
    do {
        Vectors rows = Vectors(at_float(states, 8 * c));
        [[unroll]] for (uint f = 0; f < 16; f++) {
            float s = own_of(rows.at[2 * f], rows.at[2 * f + 1]);
            [[unroll]] for (uint i = 0; i < TOGETHER; i++) {
                if (DELTA)
                    of_keys[i] = fma(Row(at_float(keys, i * D + c)).at[f], s, of_keys[i]);
                of_queries[i] = fma(Row(at_float(queries, i * D + c)).at[f], s, of_queries[i]);
            }
        }
        c += 16;
    } while (c < D);
    told = of_keys;
    read = of_queries;
}

// What tokens before t, whose number is a multiple of four, give tokens t .. t + 3: sums of L u and A u.
void read_tokens(uint64_t base, uint t, out float written[TOGETHER], out float seen[TOGETHER])
{
    float of_keys[TOGETHER], of_queries[TOGETHER];
    [[unroll]] for (uint i = 0; i < TOGETHER; i++)
        of_keys[i] = of_queries[i] = 0.0;
    uint64_t keys = at_float(base, OF_KEYS + t * C), queries = at_float(base, OF_QUERIES + t * C);
    uint64_t us = written_at();
    uint j = 0;
    if (t > 0)
        do {
            Vectors rows = Vectors(at_float(us, 8 * j));
            [[unroll]] for (uint f = 0; f < 4; f++) {
                float u = own_of(rows.at[2 * f], rows.at[2 * f + 1]);
                [[unroll]] for (uint i = 0; i < TOGETHER; i++) {
                    if (DELTA)
                        of_keys[i] = fma(Row(at_float(keys, i * C + j)).at[f], u, of_keys[i]);
                    of_queries[i] = fma(Row(at_float(queries, i * C + j)).at[f], u, of_queries[i]);
                }
            }
            j += 4;
        } while (j < t);
    written = of_keys;
    seen = of_queries;
}

void store_value(uint row, float y)
{
    y = one_nan(y);
    uint at = place(p.y, uvec4(packed_batch(), head, row, value()));
    if (has(LINEAR_Y_PAIRS)) {
        float next = subgroupShuffleXor(y, 1);
        if (lane() % 2 == 0 && is_value())
            y_words[at >> 1] = pair_word(vec2(y, next), Y_TYPE);
    } else if (is_value()) {
        STORE(y_words, at, Y_TYPE, y);
    }
}

// Tokens t .. t + 3 of a chunk of n, the first of which is of a row. Those from n on write 0. Loops in a
// loop have constant bounds, without which these drivers unroll neither.
void take_tokens(uint64_t base, uint row, uint t, uint n)
{
    float u[TOGETHER], told[TOGETHER], read[TOGETHER], written[TOGETHER], seen[TOGETHER];
    float v[TOGETHER], y[TOGETHER];
    uint v_first = place(p.v, uvec4(packed_batch(), head, row, value()));
    [[unroll]] for (uint i = 0; i < TOGETHER; i++) {
        v[i] = 0.0;
        if (is_value())
            v[i] = LOAD(v_words, v_first + min(t + i, n - 1) * p.v.stride2, V_TYPE);
    }
    read_states(base, t, told, read);
    read_tokens(base, t, written, seen);
    [[unroll]] for (uint i = 0; i < TOGETHER; i++) {
        float f = load_one(base, FACTORS + t + i);
        u[i] = stepped(vec4(v[i]), load_one(base, STEPS + t + i)).x;
        if (DELTA) {
            precise float of_state = told[i] * f;
            u[i] = fma(load_one(base, BETAS + t + i), u[i] - of_state, -written[i]);
        }
        y[i] = fma(read[i], f, seen[i]);
        [[unroll]] for (uint j = 0; j < TOGETHER; j++)
            if (DELTA && j < i)
                u[i] = fma(-load_one(base, OF_KEYS + (t + i) * C + t + j), u[j], u[i]);
        u[i] = t + i < n ? u[i] : 0.0;
        store_eight(written_at(), 8 * (t + i), u[i]);
        [[unroll]] for (uint j = 0; j < TOGETHER; j++)
            if (j <= i)
                y[i] = fma(load_one(base, OF_QUERIES + (t + i) * C + t + j), u[j], y[i]);
        precise float scaled = p.scale * y[i];
        y[i] = SKIP_TYPE != TYPE_NONE ? fma(skip, v[i], scaled) : scaled;
    }
    [[unroll]] for (uint i = 0; i < TOGETHER; i++)
        if (t + i < n)
            store_value(row + t + i, y[i]);
    subgroupMemoryBarrierBuffer();
}

// ---- A chunk ------------------------------------------------------------------------------------

// S = f S + sum of k u^T, of eight features at a time. The tokens of a chunk are summed for themselves, as
// they would else be rounded to the size of the state one by one.
void update_states(uint64_t base, uint n)
{
    float code = load_one(base, CODES);
    uint64_t keys = at_float(base, KEYS), us = written_at();
    uint c = 0;
    do {
        float s[8];
        [[unroll]] for (uint f = 0; f < 8; f++)
            s[f] = 0.0;
        uint t = 0;
        do {
            Vectors rows = Vectors(at_float(us, 8 * t));
            [[unroll]] for (uint i = 0; i < 8; i++) {
                precise float u =
                    own_of(rows.at[2 * i], rows.at[2 * i + 1]) * load_one(base, LASTS + t + i);
                [[unroll]] for (uint f = 0; f < 8; f++)
                    s[f] = fma(Row(at_float(keys, (t + i) * D + 8 * c)).at[f], u, s[f]);
            }
            t += 8;
        } while (t < n);
        [[unroll]] for (uint f = 0; f < 8; f++) {
            float old = load_eight(states, 8 * (8 * c + f));
            if (DECAY != DECAY_NONE)
                old = decayed(vec4(old), code).x;
            if (8 * c + f < p.head_dim) // the others stay 0
                store_eight(states, 8 * (8 * c + f), old + s[f]);
        }
        c++;
    } while (c < VECTORS);
    subgroupMemoryBarrierBuffer();
}

void take_chunk(uint64_t base, uint row, uint n)
{
    uint t = 0;
    do {
        take_tokens(base, row, t, n);
        t += TOGETHER;
    } while (t < (n + 7 & ~7));
    update_states(base, n);
}

void main()
{
    uint row, count, had;
    find_lane();
    head = p.state_first + gl_WorkGroupID.y;
    batch = gl_WorkGroupID.z;
    load_skip();
    if (!find_tokens(row, count, had))
        return;
    uint group = (batch * gl_NumWorkGroups.y + gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    states = own_memory() + 16ul * (group * STATES);
    bool wanted = count > 0 || p.in_place == 0;
    if (wanted)
        load_states();
    uint first = 0;
    if (count > 0)
        do {
            take_chunk(chunk_at(row, first / C), row + first, min(count - first, C));
            first += C;
        } while (first < count);
    if (ROWS == ROWS_LENGTHS || ROWS == ROWS_KEPT)
        [[dont_unroll]] for (uint behind = count; behind < had; behind++)
            store_value(row + behind, 0.0);
    if (has(LINEAR_STORES) && wanted)
        store_states();
}
