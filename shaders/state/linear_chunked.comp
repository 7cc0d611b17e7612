// Linear attention, a chunk of tokens at a time, with the state in shared memory. For GPUs, and for many
// tokens: linear_weights has made, of all chunks at once, what does not need the state. See linear_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
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

layout(binding = 13) readonly buffer Weights { vec4 weights[]; };

const uint COLUMNS = LANES / 32;       // of a workgroup, four values each
const uint ROOM = 2 * C * PITCH;       // fours that are staged
const uint STEP = ROOM / FOURS;       // tokens whose keys are staged whole
shared vec4 state[4 * FOURS * COLUMNS]; // [feature][column]
shared vec4 rows[ROOM];                  // [k, q][token][four features], or [token][four features]
shared vec4 u_stage[C * COLUMNS];        // [token][column]
shared vec4 partial[C * COLUMNS];        // sums over half of the tokens
shared vec4 gates[2 * C];                // see write_gates of linear_weights

// In products with the state a lane has four tokens and four values, of keys or of queries.
uint lane, column, quad, side;

uint first_value() { return 4 * (gl_WorkGroupID.x * COLUMNS + column); }

// ---- The state: a lane has the fours of features lane / COLUMNS and every 32nd from there ------------

bool is_outside(uint feature)
{
    return !has(LINEAR_WHOLE) && (feature >= p.head_dim || first_value() >= p.value_dim);
}

vec4 load_row(uint feature)
{
    uint at = place(p.from, uvec4(batch, head, feature, first_value()));
    vec4 x = vec4(0.0);
    if (!has(LINEAR_LOADS) || is_outside(feature))
        return x;
    if (has(LINEAR_WIDE))
        return from_fours[at >> 2];
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (first_value() + j < p.value_dim)
            x[j] = from_values[at + j * p.from.stride3];
    return x;
}

void store_row(uint feature, vec4 x)
{
    uint at = place(p.to, uvec4(batch, head, feature, first_value()));
    if (is_outside(feature))
        return;
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (is_broken(x[j]))
            note_broken(batch);
    if (has(LINEAR_WIDE)) {
        to_fours[at >> 2] = x;
        return;
    }
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (first_value() + j < p.value_dim)
            to_values[at + j * p.to.stride3] = x[j];
}

// ---- A chunk of tokens --------------------------------------------------------------------------

void stage_tile(uint row, uint n, uint first_four)
{
    uint k_first = place(p.k, uvec4(packed_batch(), head / p.k_ratio, row, 0));
    uint q_first = place(p.q, uvec4(packed_batch(), head / p.q_ratio, row, 0));
    [[dont_unroll]] for (uint i = lane; i < C * TILE; i += LANES) {
        uint t = i / TILE, feature = 4 * (first_four + i % TILE);
        uint count = t < n ? features_from(feature, p.head_dim) : 0, at = t * PITCH + i % TILE;
        if (DELTA)
            rows[at] = k_four(k_first + t * p.k.stride2 + feature * p.k.stride3, count) *
                       gates[2 * t + 1].x;
        rows[C * PITCH + at] = q_four(q_first + t * p.q.stride2 + feature * p.q.stride3, count) *
                               gates[2 * t + 1].y;
    }
}

// S^T k or S^T q of the lane's tokens.
void read_state(uint row, uint n, out vec4 sums[4])
{
    [[unroll]] for (uint t = 0; t < 4; t++)
        sums[t] = vec4(0.0);
    [[dont_unroll]] for (uint first = 0; first < FOURS; first += TILE) {
        barrier(); // the tile before has been read
        stage_tile(row, n, first);
        barrier();
        [[dont_unroll]] for (uint c = first; c < min(first + TILE, FOURS); c++) {
            if (side == OF_K && !DELTA)
                break;
            uint at = 4 * c * COLUMNS + column, from = (side * C + 4 * quad) * PITCH + c - first;
            vec4 s0 = state[at], s1 = state[at + COLUMNS];
            vec4 s2 = state[at + 2 * COLUMNS], s3 = state[at + 3 * COLUMNS];
            [[unroll]] for (uint t = 0; t < 4; t++) {
                vec4 x = rows[from + t * PITCH];
                sums[t] = fma(vec4(x.x), s0, sums[t]);
                sums[t] = fma(vec4(x.y), s1, sums[t]);
                sums[t] = fma(vec4(x.z), s2, sums[t]);
                sums[t] = fma(vec4(x.w), s3, sums[t]);
            }
        }
    }
}

// Adds what tokens first .. end - 1 of the chunk give the lane's, by weights [j][four i].
void add_tokens(uint base, uint first, uint end, inout vec4 sums[4])
{
    [[dont_unroll]] for (uint j = first; j < min(end, 4 * quad + 4); j++) {
        vec4 a = weights[base + j * QUADS + quad], u = u_stage[j * COLUMNS + column];
        [[unroll]] for (uint i = 0; i < 4; i++) // NaN of a later token is none of an earlier one
            if (j <= 4 * quad + i)
                sums[i] = fma(vec4(a[i]), u, sums[i]);
    }
}

vec4 value_of(uint row, uint n, uint t)
{
    uint count = t < n ? features_from(first_value(), p.value_dim) : 0;
    return v_four(place(p.v, uvec4(packed_batch(), head, row + t, first_value())), count);
}

void stage_values(uint row, uint n)
{
    [[dont_unroll]] for (uint t = lane / COLUMNS; t < C; t += 32)
        u_stage[t * COLUMNS + column] = stepped(value_of(row, n, t), gates[2 * t].w);
}

// Takes off what the state says of the keys, and what tokens of the chunk wrote: lanes of keys add one half
// of these, those of queries the other.
void correct(uint base, vec4 told[4])
{
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint t = 4 * quad + i, at = t * COLUMNS + column;
        if (side == OF_K)
            u_stage[at] = fma(told[i], vec4(-gates[2 * t].x), u_stage[at]);
    }
    barrier();
    vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    uint first = side * (C / 2);
    add_tokens(base + WEIGHTS_T, first, first + C / 2, sums);
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (side == OF_Q)
            partial[(4 * quad + i) * COLUMNS + column] = sums[i];
    barrier();
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint at = (4 * quad + i) * COLUMNS + column;
        if (side == OF_K)
            u_stage[at] = sums[i] + partial[at];
    }
    barrier();
}

void write_rows(uint row, uint n, uint base, vec4 sums[4])
{
    if (side == OF_Q) {
        [[unroll]] for (uint i = 0; i < 4; i++)
            sums[i] *= gates[2 * (4 * quad + i)].y;
        add_tokens(base + WEIGHTS_A, 0, C, sums);
        [[unroll]] for (uint i = 0; i < 4; i++)
            partial[(4 * quad + i) * COLUMNS + column] = p.scale * sums[i];
    }
    barrier();
    [[dont_unroll]] for (uint t = lane / COLUMNS; t < n; t += 32) {
        vec4 y = partial[t * COLUMNS + column];
        if (SKIP_TYPE != TYPE_NONE)
            y = with_skip(y, value_of(row, n, t));
        store_y(row + t, head, first_value(), y);
    }
}

// S = f S + sum of k u^T, STEP tokens at a time.
void update_state(uint row, uint n)
{
    float code = gates[1].z;
    uint k_first = place(p.k, uvec4(packed_batch(), head / p.k_ratio, row, 0));
    [[dont_unroll]] for (uint first = 0; first < n; first += STEP) {
        uint count = min(n - first, STEP);
        barrier(); // what was staged before has been read
        [[dont_unroll]] for (uint i = lane; i < count * FOURS; i += LANES) {
            uint t = first + i / FOURS, feature = 4 * (i % FOURS);
            rows[i] = k_four(k_first + t * p.k.stride2 + feature * p.k.stride3,
                              features_from(feature, p.head_dim)) *
                      (gates[2 * t].z * gates[2 * t + 1].x);
        }
        barrier();
        [[dont_unroll]] for (uint c = lane / COLUMNS; c < FOURS; c += 32) {
            uint at = 4 * c * COLUMNS + column;
            vec4 s[4];
            [[unroll]] for (uint f = 0; f < 4; f++) {
                s[f] = state[at + f * COLUMNS];
                if (DECAY != DECAY_NONE && first == 0)
                    s[f] = decayed(s[f], code);
            }
            [[dont_unroll]] for (uint t = 0; t < count; t++) {
                vec4 k = rows[t * FOURS + c], u = u_stage[(first + t) * COLUMNS + column];
                [[unroll]] for (uint f = 0; f < 4; f++)
                    s[f] = fma(vec4(k[f]), u, s[f]);
            }
            [[unroll]] for (uint f = 0; f < 4; f++)
                state[at + f * COLUMNS] = s[f];
        }
    }
}

// n tokens from a row on.
void take_chunk(uint row, uint n, uint base)
{
    vec4 sums[4];
    barrier(); // the chunk before has been read
    [[dont_unroll]] for (uint i = lane; i < 2 * C; i += LANES)
        gates[i] = weights[base + WEIGHTS_GATES + i];
    barrier();
    stage_values(row, n);
    read_state(row, n, sums);
    if (DELTA)
        correct(base, sums);
    write_rows(row, n, base, sums);
    update_state(row, n);
}

void main()
{
    uint row, count, had;
    lane = gl_LocalInvocationIndex;
    column = lane % COLUMNS;
    quad = lane / COLUMNS % QUADS;
    side = lane / COLUMNS / QUADS;
    head = p.state_first + gl_WorkGroupID.y;
    batch = gl_WorkGroupID.z;
    load_skip();
    if (!find_tokens(row, count, had))
        return;
    bool wanted = count > 0 || p.in_place == 0;
    [[dont_unroll]] for (uint i = lane / COLUMNS; i < 4 * FOURS && wanted; i += 32)
        state[i * COLUMNS + column] = load_row(i);
    [[dont_unroll]] for (uint first = 0; first < count; first += C)
        take_chunk(row + first, min(count - first, C), weights_at(row, first / C, LINEAR_WEIGHTS));
    if (ROWS == ROWS_LENGTHS || ROWS == ROWS_KEPT)
        [[dont_unroll]] for (uint behind = count + lane / COLUMNS; behind < had; behind += 32)
            store_y(row + behind, head, first_value(), vec4(0.0));
    barrier(); // lanes have other rows here than where they change them
    [[dont_unroll]] for (uint i = lane / COLUMNS; i < 4 * FOURS && wanted; i += 32)
        if (has(LINEAR_STORES))
            store_row(i, state[i * COLUMNS + column]);
}
