// linear_chunked for CPU drivers whose compilers keep uniform values scalar (Mesa 26): a workgroup is one
// subgroup of 8, and a lane has two of 16 values of a state. Eight neighbours, each picked by one lane,
// are one vector load; elements of keys, queries and weights are scalars from memory. Stores are loops over
// the lanes, so that the state is stored once a chunk. Four tokens share what is loaded of the state.
// Loops of one block test first, as GPU-assisted layers split blocks at loads. See LINEAR_ADDRESS_WEIGHTS.
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

layout(buffer_reference, buffer_reference_align = 4) buffer Vectors { vec4 at[256]; };
layout(buffer_reference, buffer_reference_align = 4) buffer Row { float at[64]; };

#define TOGETHER 4     // tokens that share what is loaded
#define TOKENS_EACH 16 // of an iteration over those before, or over all
#define VALUES LINEAR_ADDRESS_VALUES
#define EACH (VALUES / 8)       // values of a lane, eight apart
#define SUMS (TOGETHER * EACH) // [token][value]

uint64_t states; // of this workgroup: [feature][value], behind them what tokens write, [token][value]

uint value(uint v) { return VALUES * gl_WorkGroupID.x + 8 * v + lane(); }

bool is_value(uint v) { return value(v) < p.value_dim; }

uint64_t written_at() { return at_float(states, VALUES * D); }

// ---- The state ----------------------------------------------------------------------------------

void load_states()
{
    uint first = place(p.from, uvec4(batch, head, 0, value(0)));
    [[dont_unroll]] for (uint f = 0; f < D; f++)
        [[unroll]] for (uint v = 0; v < EACH; v++) {
            float x = 0.0;
            if (has(LINEAR_LOADS) && f < p.head_dim && is_value(v))
                x = from_values[first + f * p.from.stride2 + 8 * v * p.from.stride3];
            store_eight(states, VALUES * f + 8 * v, x);
        }
    subgroupMemoryBarrierBuffer();
}

void store_states()
{
    uint first = place(p.to, uvec4(batch, head, 0, value(0))), count = p.head_dim;
    bool broken = false;
    [[dont_unroll]] for (uint f = 0; f < count; f++)
        [[unroll]] for (uint v = 0; v < EACH; v++) {
            float x = load_eight(states, VALUES * f + 8 * v);
            if (is_value(v)) {
                to_values[first + f * p.to.stride2 + 8 * v * p.to.stride3] = x;
                broken = broken || is_broken(x);
            }
        }
    if (broken)
        note_broken(batch);
}

// ---- Four tokens --------------------------------------------------------------------------------

// Adds `count` rows of values from `first` on, by a factor of each token: factors of a token are `pitch`
// from those of the next.
void add_rows(uint64_t factors, uint pitch, uint64_t rows, uint first, uint count,
              inout float sums[SUMS])
{
    Vectors values = Vectors(at_float(rows, VALUES * first));
    [[unroll]] for (uint f = 0; f < count; f++) {
        float x[EACH];
        [[unroll]] for (uint v = 0; v < EACH; v++)
            x[v] = own_of(values.at[(f * EACH + v) * 2], values.at[(f * EACH + v) * 2 + 1]);
        [[unroll]] for (uint i = 0; i < TOGETHER; i++) {
            float factor = Row(at_float(factors, i * pitch + first)).at[f];
            [[unroll]] for (uint v = 0; v < EACH; v++)
                sums[i * EACH + v] = fma(factor, x[v], sums[i * EACH + v]);
        }
    }
}

// S^T k or S^T q of four tokens, whose rows begin at `rows`.
void read_states(uint64_t rows, out float sums[SUMS])
{
    float own[SUMS];
    [[unroll]] for (uint i = 0; i < SUMS; i++)
        own[i] = 0.0;
    [[dont_unroll]] for (uint c = 0; c < D; c += STEP)
        add_rows(rows, ROW_PITCH, states, c, STEP, own);
    sums = own;
}

// Sums of L u or A u of t tokens, a multiple of four: what they give the next four, whose rows of L or A
// begin at `rows`.
void read_tokens(uint64_t rows, uint t, out float sums[SUMS])
{
    float own[SUMS];
    [[unroll]] for (uint i = 0; i < SUMS; i++)
        own[i] = 0.0;
    uint64_t us = written_at();
    uint j = 0;
    [[dont_unroll]] for (; j + TOKENS_EACH <= t; j += TOKENS_EACH)
        add_rows(rows, C, us, j, TOKENS_EACH, own);
    [[dont_unroll]] for (; j < t; j += 4)
        add_rows(rows, C, us, j, 4, own);
    sums = own;
}

void store_value(uint row, uint v, float y)
{
    y = one_nan(y);
    uint at = place(p.y, uvec4(packed_batch(), head, row, value(v)));
    if (has(LINEAR_Y_PAIRS)) {
        float next = subgroupShuffleXor(y, 1);
        if (lane() % 2 == 0 && is_value(v))
            y_words[at >> 1] = pair_word(vec2(y, next), Y_TYPE);
    } else if (is_value(v)) {
        STORE(y_words, at, Y_TYPE, y);
    }
}

void load_values(uint row, uint t, uint n, out float x[SUMS])
{
    uint first = place(p.v, uvec4(packed_batch(), head, row, VALUES * gl_WorkGroupID.x));
    [[unroll]] for (uint i = 0; i < TOGETHER; i++)
        [[unroll]] for (uint v = 0; v < EACH; v++) {
            uint at = first + min(t + i, n - 1) * p.v.stride2;
            x[i * EACH + v] = 0.0;
            if (has(LINEAR_VECTORS))
                x[i * EACH + v] = load_eight(address_of(2), at + 8 * v);
            else if (is_value(v))
                x[i * EACH + v] = LOAD(v_words, at + (8 * v + lane()) * p.v.stride3, V_TYPE);
        }
}

// u and y of value v of tokens t .. t + 3, one after the other, in place of what they have of the state.
// Those from n on write 0. Loops in a loop have constant bounds, without which these drivers unroll neither.
void solve(uint64_t base, uint t, uint n, uint v, float x[SUMS], float written[SUMS],
           float seen[SUMS], inout float told[SUMS], inout float read[SUMS])
{
    [[unroll]] for (uint i = 0; i < TOGETHER; i++) {
        uint at = i * EACH + v;
        float f = load_one(base, FACTORS + t + i);
        float u = stepped(vec4(x[at]), load_one(base, STEPS + t + i)).x;
        float y = fma(read[at], f, seen[at]);
        if (DELTA) {
            precise float of_state = told[at] * f;
            u = fma(load_one(base, BETAS + t + i), u - of_state, -written[at]);
        }
        [[unroll]] for (uint j = 0; j < TOGETHER; j++)
            if (DELTA && j < i)
                u = fma(-load_one(base, OF_KEYS + (t + i) * C + t + j), told[j * EACH + v], u);
        told[at] = t + i < n ? u : 0.0;
        [[unroll]] for (uint j = 0; j < TOGETHER; j++)
            if (j <= i)
                y = fma(load_one(base, OF_QUERIES + (t + i) * C + t + j), told[j * EACH + v], y);
        precise float scaled = p.scale * y;
        read[at] = SKIP_TYPE != TYPE_NONE ? fma(skip, x[at], scaled) : scaled;
    }
}

// Tokens t .. t + 3 of a chunk of n, the first of which is of a row.
void take_tokens(uint64_t base, uint row, uint t, uint n)
{
    float x[SUMS], told[SUMS], read[SUMS], written[SUMS], seen[SUMS];
    load_values(row, t, n, x);
    [[unroll]] for (uint i = 0; i < SUMS; i++)
        told[i] = written[i] = 0.0;
    if (DELTA) {
        read_states(at_float(base, KEYS + t * ROW_PITCH), told);
        read_tokens(at_float(base, OF_KEYS + t * C), t, written);
    }
    read_states(at_float(base, QUERIES + t * ROW_PITCH), read);
    read_tokens(at_float(base, OF_QUERIES + t * C), t, seen);
    [[unroll]] for (uint v = 0; v < EACH; v++) {
        solve(base, t, n, v, x, written, seen, told, read);
        [[unroll]] for (uint i = 0; i < TOGETHER; i++) {
            store_eight(written_at(), VALUES * (t + i) + 8 * v, told[i * EACH + v]);
            if (t + i < n)
                store_value(row + t + i, v, read[i * EACH + v]);
        }
    }
    subgroupMemoryBarrierBuffer();
}

// ---- A chunk ------------------------------------------------------------------------------------

// S = f S + sum of k u^T, of four features at a time. The tokens of a chunk are summed for themselves, as
// they would else be rounded to the size of the state one by one.
void update_states(uint64_t base, uint n)
{
    float code = load_one(base, CODES);
    uint64_t keys = at_float(base, KEYS), us = written_at();
    uint c = 0;
    do {
        float s[4 * EACH]; // [feature][value]
        [[unroll]] for (uint i = 0; i < 4 * EACH; i++)
            s[i] = 0.0;
        [[dont_unroll]] for (uint t = 0; t < n; t += TOKENS_EACH) {
            Vectors rows = Vectors(at_float(us, VALUES * t));
            [[unroll]] for (uint i = 0; i < TOKENS_EACH; i++) {
                Row key = Row(at_float(keys, (t + i) * ROW_PITCH + c));
                float last = load_one(base, LASTS + t + i);
                [[unroll]] for (uint v = 0; v < EACH; v++) {
                    uint at = (i * EACH + v) * 2;
                    precise float u = own_of(rows.at[at], rows.at[at + 1]) * last;
                    [[unroll]] for (uint f = 0; f < 4; f++)
                        s[f * EACH + v] = fma(key.at[f], u, s[f * EACH + v]);
                }
            }
        }
        [[unroll]] for (uint f = 0; f < 4; f++)
            [[unroll]] for (uint v = 0; v < EACH; v++) {
                uint at = VALUES * (c + f) + 8 * v;
                float old = load_eight(states, at);
                if (DECAY != DECAY_NONE)
                    old = decayed(vec4(old), code).x;
                if (c + f < p.head_dim) // the others stay 0
                    store_eight(states, at, old + s[f * EACH + v]);
            }
        c += 4;
    } while (c < D);
    subgroupMemoryBarrierBuffer();
}

void take_chunk(uint64_t base, uint row, uint n)
{
    uint t = 0;
    do {
        take_tokens(base, row, t, n);
        t += TOGETHER;
    } while (t < n);
    [[dont_unroll]] for (; t % TOKENS_EACH != 0; t++)
        [[unroll]] for (uint v = 0; v < EACH; v++)
            store_eight(written_at(), VALUES * t + 8 * v, 0.0);
    subgroupMemoryBarrierBuffer();
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
            [[unroll]] for (uint v = 0; v < EACH; v++)
                store_value(row + behind, v, 0.0);
    if (has(LINEAR_STORES) && wanted)
        store_states();
}
