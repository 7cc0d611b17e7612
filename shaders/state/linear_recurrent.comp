// Linear attention, one token after the other, with the state in registers. For GPUs: all lanes of a
// workgroup work on each token, and one barrier a token merges their sums. See linear_params.
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

const uint COLUMNS = LANES / SPLITS;   // of a workgroup, four values each
const uint ROW = FOURS * SPLITS;      // fours of a staged row
const uint MERGED = 8;                 // splits whose sums are added at a time
shared vec4 k_stage[TOKENS * ROW], q_stage[TOKENS * ROW];
shared vec4 decay_stage[TOKENS * ROW * (DECAY / DECAY_KEY) + 1]; // codes, see lib/decay.glsl
shared vec4 v_stage[TOKENS * COLUMNS];
shared vec4 gate_stage[TOKENS]; // code of the decay of a head, beta, step
shared vec4 partial_r[2 * LANES], partial_o[2 * LANES]; // of a token and the next
shared float partial_d[2 * SPLITS];
shared vec2 partial_squares[2 * SPLITS * (FLAGS / LINEAR_NORMED % 2) + 1];

uint split, column, first_value; // of this lane; value of its column
vec4 state[4 * FOURS];          // [four][feature of it]

// ---- The state ---------------------------------------------------------------------------------

// Feature i of the lane, behind its first.
uint feature_step(uint i) { return i / 4 * 4 * SPLITS + i % 4; }

bool is_outside(uint i)
{
    return !has(LINEAR_WHOLE) &&
           (4 * split + feature_step(i) >= p.head_dim || first_value >= p.value_dim);
}

uint state_index(strided_params s)
{
    return place(s, uvec4(batch, head, 4 * split, first_value));
}

void load_state()
{
    uint first = state_index(p.from);
    [[unroll]] for (uint i = 0; i < 4 * FOURS; i++) {
        state[i] = vec4(0.0);
        if (!has(LINEAR_LOADS) || is_outside(i))
            continue;
        uint at = first + feature_step(i) * p.from.stride2;
        if (has(LINEAR_WIDE)) {
            state[i] = from_fours[at >> 2];
            continue;
        }
        [[unroll]] for (uint j = 0; j < 4; j++)
            if (first_value + j < p.value_dim)
                state[i][j] = from_values[at + j * p.from.stride3];
    }
}

void store_state()
{
    uint first = state_index(p.to);
    bool broken = false;
    [[unroll]] for (uint i = 0; i < 4 * FOURS; i++) {
        if (is_outside(i))
            continue;
        uint at = first + feature_step(i) * p.to.stride2;
        [[unroll]] for (uint j = 0; j < 4; j++)
            broken = broken || is_broken(state[i][j]);
        if (has(LINEAR_WIDE)) {
            to_fours[at >> 2] = state[i];
            continue;
        }
        [[unroll]] for (uint j = 0; j < 4; j++)
            if (first_value + j < p.value_dim)
                to_values[at + j * p.to.stride3] = state[i][j];
    }
    if (broken)
        note_broken(batch);
}

// ---- Tokens ------------------------------------------------------------------------------------

// Codes of four features of `count` that there are.
vec4 decay_codes(vec4 g, uint feature, uint count)
{
    [[unroll]] for (uint j = 0; j < 4; j++) {
        if (LOG_TYPE != TYPE_NONE && j < count)
            g[j] = decay_of_step(head_log(), step_of(g[j], feature + j));
        g[j] = decay_code(g[j]);
    }
    return g;
}

// Rows that are shrunk before they are divided by their length: 0, 1 of large features, 2 of huge ones.
const uint NORMED = FLAGS / LINEAR_NORMED % 2; // 1: q and k are divided by their length
const uint LARGE_FLAGS = 2 * TOKENS + 1;    // [token][k, q], and one for all
shared uint large[2 * LARGE_FLAGS * NORMED + 1]; // of the tokens that are staged, and the next
uint large_first; // flag of those that are staged

void forget_large(uint first)
{
    for (uint i = gl_LocalInvocationIndex; NORMED != 0 && i < LARGE_FLAGS; i += LANES)
        large[first + i] = 0;
}

void note_large(uint flag, vec4 x)
{
    vec4 size = abs(x);
    float most = max(max(size.x, size.y), max(size.z, size.w));
    if (NORMED == 0 || most <= LARGE)
        return;
    atomicMax(large[large_first + flag], most <= HUGE ? 1u : 2u);
    atomicMax(large[large_first + LARGE_FLAGS - 1], 1u);
}

float shrink_of(uint flag)
{
    uint size = large[large_first + flag];
    return size == 0u ? 1.0 : size == 1u ? SHRINK : SHRINK_HUGE;
}

// Each lane shrinks what it staged.
void shrink_large(uint n)
{
    if (NORMED == 0 || large[large_first + LARGE_FLAGS - 1] == 0u)
        return;
    for (uint i = gl_LocalInvocationIndex; i < n * ROW; i += LANES) {
        k_stage[i] *= shrink_of(2 * (i / ROW));
        q_stage[i] *= shrink_of(2 * (i / ROW) + 1);
    }
    barrier();
}

// Stages queries, keys and decays of rows row .. row + n - 1.
void stage_keys(uint row, uint n, uint q_head)
{
    uint q_first = place(p.q, uvec4(packed_batch(), q_head, row, 0));
    uint k_first = place(p.k, uvec4(packed_batch(), head / p.k_ratio, row, 0));
    uint decay_first = place(p.decay, uvec4(packed_batch(), head, row, 0));
    for (uint i = gl_LocalInvocationIndex; i < n * ROW; i += LANES) {
        uint t = i / ROW, feature = 4 * (i % ROW), count = features_from(feature, p.head_dim);
        q_stage[i] = q_four(q_first + t * p.q.stride2 + feature * p.q.stride3, count);
        k_stage[i] = k_four(k_first + t * p.k.stride2 + feature * p.k.stride3, count);
        note_large(2 * t, k_stage[i]);
        note_large(2 * t + 1, q_stage[i]);
        if (DECAY == DECAY_KEY)
            decay_stage[i] = decay_codes(
                decay_four(decay_first + t * p.decay.stride2 + feature * p.decay.stride3, count),
                feature, count);
    }
}

void stage_values(uint row, uint n)
{
    uint v_first = place(p.v, uvec4(packed_batch(), head, row, 0));
    for (uint i = gl_LocalInvocationIndex; i < n * COLUMNS; i += LANES) {
        uint t = i / COLUMNS, value = 4 * (gl_WorkGroupID.x * COLUMNS + i % COLUMNS);
        v_stage[i] = v_four(v_first + t * p.v.stride2 + value * p.v.stride3,
                             features_from(value, p.value_dim));
    }
    for (uint t = gl_LocalInvocationIndex; t < n; t += LANES) {
        vec4 gates = gates_of(row + t);
        gates.x = DECAY == DECAY_HEAD ? decay_code(gates.x) : 0.0;
        gate_stage[t] = gates;
    }
}

// What a token needs of the state: r = S^T (f k), o = S^T (f q), d = k . q, squares = (k . k, q .
// q), with f of key features alone.
struct products {
    vec4 r, o;
    float d;
    vec2 squares;
};

// Those over the features of the lane.
products multiply(uint t)
{
    products x = products(vec4(0.0), vec4(0.0), 0.0, vec2(0.0));
    [[unroll]] for (uint c = 0; c < FOURS; c++) {
        uint at = t * ROW + c * SPLITS + split;
        vec4 k = k_stage[at], q = q_stage[at];
        x.d = dot_added(k, q, x.d);
        if (has(LINEAR_NORMED)) {
            x.squares.x = dot_added(k, k, x.squares.x);
            x.squares.y = dot_added(q, q, x.squares.y);
        }
        if (DECAY == DECAY_KEY) {
            vec4 f = decay_factors(decay_stage[at]);
            k *= f;
            q *= f;
        }
        [[unroll]] for (uint i = 0; i < 4; i++) {
            if (DELTA)
                x.r = fma(vec4(k[i]), state[4 * c + i], x.r);
            x.o = fma(vec4(q[i]), state[4 * c + i], x.o);
        }
    }
    return x;
}

// Adds the sums of a split; `half_of` as in merge_splits.
void add_split(uint half_of, uint s, inout products x)
{
    uint at = half_of * LANES + s * COLUMNS + column;
    if (DELTA)
        x.r += partial_r[at];
    x.o += partial_o[at];
    x.d += partial_d[half_of * SPLITS + s];
    if (has(LINEAR_NORMED))
        x.squares += partial_squares[half_of * SPLITS + s];
}

// Adds the sums of all splits, a few at a time, as compilers load all of an unrolled loop first. The
// halves of the memory alternate from token to token, so that one barrier a token is enough.
void merge_splits(uint half_of, inout products x)
{
    if (SPLITS == 1)
        return;
    uint at = half_of * LANES + gl_LocalInvocationIndex;
    if (DELTA)
        partial_r[at] = x.r;
    partial_o[at] = x.o;
    if (column == 0) {
        partial_d[half_of * SPLITS + split] = x.d;
        if (has(LINEAR_NORMED))
            partial_squares[half_of * SPLITS + split] = x.squares;
    }
    barrier();
    x = products(vec4(0.0), vec4(0.0), 0.0, vec2(0.0));
    [[dont_unroll]] for (uint first = 0; first < SPLITS; first += MERGED)
        [[unroll]] for (uint s = 0; s < MERGED; s++)
            if (first + s < SPLITS)
                add_split(half_of, first + s, x);
}

// S = f S + k u^T. weak: whether f is near 1, in which form the code is.
void update_by(uint t, vec4 u, float code, bool weak)
{
    [[unroll]] for (uint c = 0; c < FOURS; c++) {
        uint at = t * ROW + c * SPLITS + split;
        vec4 k = k_stage[at], codes = vec4(0.0);
        if (DECAY == DECAY_KEY)
            codes = decay_stage[at];
        [[unroll]] for (uint i = 0; i < 4; i++) {
            vec4 old = state[4 * c + i];
            if (DECAY == DECAY_KEY)
                old = decayed(old, codes[i]);
            else if (DECAY == DECAY_HEAD)
                old = weak ? fma(old, vec4(code), old) : old * code;
            state[4 * c + i] = fma(vec4(k[i]), u, old);
        }
    }
}

void update(uint t, vec4 u, float code)
{
    if (DECAY != DECAY_HEAD || decay_is_weak(code))
        update_by(t, u, code, true);
    else
        update_by(t, u, code, false);
}

// Divides what was made of k and q by their lengths; returns what u is multiplied by.
float norm_products(uint t, inout products x)
{
    if (!has(LINEAR_NORMED))
        return 1.0;
    vec2 shrink = vec2(shrink_of(2 * t), shrink_of(2 * t + 1));
    precise vec2 epsilon = p.norm_epsilon * shrink * shrink;
    vec2 inverse = 1.0 / sqrt(x.squares + epsilon);
    precise vec4 r = x.r * inverse.x; // no sum takes the product as an operand
    x.r = r;
    x.o *= inverse.y;
    x.d *= inverse.y; // and u by that of k
    return inverse.x;
}

void take_token(uint t, uint half_of, uint row, uint y_head)
{
    products x = multiply(t);
    merge_splits(half_of, x);
    vec4 gates = gate_stage[t], v = v_stage[t * COLUMNS + column];
    if (DECAY == DECAY_HEAD) {
        float f = decay_factor(gates.x);
        precise vec4 r = x.r * f; // no sum takes the product as an operand
        x.r = r;
        x.o *= f;
    }
    float of_k = norm_products(t, x);
    vec4 u = stepped(v, gates.z);
    if (DELTA)
        u = gates.y * (u - x.r);
    if (has(LINEAR_NORMED))
        u *= of_k;
    update(t, u, gates.x);
    if (split != 0)
        return;
    vec4 y = p.scale * fma(vec4(x.d), u, x.o);
    store_y(row, y_head, first_value, with_skip(y, v));
}

// All tokens, for one of the outputs that read the state.
void take_tokens(uint row, uint count, uint y_head)
{
    uint q_head = p.group > 1 ? y_head : y_head / p.q_ratio;
    load_state();
    for (uint first = 0; first < count; first += TOKENS) {
        uint n = min(count - first, TOKENS);
        barrier(); // what was staged before has been read
        stage_keys(row + first, n, q_head);
        stage_values(row + first, n);
        forget_large(LARGE_FLAGS - large_first);
        barrier();
        shrink_large(n);
        for (uint t = 0; t < n; t++)
            take_token(t, t & 1u, row + first + t, y_head);
        large_first = LARGE_FLAGS - large_first;
    }
}

void main()
{
    uint row, count, had;
    split = gl_LocalInvocationIndex / COLUMNS;
    column = gl_LocalInvocationIndex % COLUMNS;
    first_value = 4 * (gl_WorkGroupID.x * COLUMNS + column);
    head = p.state_first + gl_WorkGroupID.y;
    batch = gl_WorkGroupID.z;
    load_skip();
    if (!find_tokens(row, count, had))
        return;
    large_first = 0;
    forget_large(0);
    uint group = p.group; // no loop's condition reads a buffer
    bool wanted = count > 0 || p.in_place == 0;
    for (uint i = 0; i < group; i++) {
        if (wanted)
            take_tokens(row, count, head * group + i);
        if (ROWS == ROWS_LENGTHS || ROWS == ROWS_KEPT)
            for (uint behind = count + split; behind < had; behind += SPLITS)
                store_y(row + behind, head * group + i, first_value, vec4(0.0));
    }
    if (has(LINEAR_STORES) && wanted)
        store_state();
}
