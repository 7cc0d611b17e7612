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

layout(constant_id = LINEAR_LANES) const uint LANES = 64;
layout(constant_id = LINEAR_SPLITS) const uint SPLITS = 8;
layout(constant_id = LINEAR_CHUNKS) const uint CHUNKS = 4;
layout(constant_id = LINEAR_TOKENS) const uint TOKENS = 8;
layout(constant_id = LINEAR_Q_TYPE) const uint Q_TYPE = 0;
layout(constant_id = LINEAR_K_TYPE) const uint K_TYPE = 0;
layout(constant_id = LINEAR_V_TYPE) const uint V_TYPE = 0;
layout(constant_id = LINEAR_DECAY_TYPE) const uint DECAY_TYPE = 0;
layout(constant_id = LINEAR_BETA_TYPE) const uint BETA_TYPE = TYPE_NONE;
layout(constant_id = LINEAR_Y_TYPE) const uint Y_TYPE = 0;
layout(constant_id = LINEAR_DECAY) const uint DECAY = DECAY_NONE;
layout(constant_id = LINEAR_ROWS) const uint ROWS = ROWS_DENSE;
layout(constant_id = LINEAR_FLAGS) const uint FLAGS = 0;
layout(constant_id = LINEAR_LOG_TYPE) const uint LOG_TYPE = TYPE_NONE;
layout(constant_id = LINEAR_BIAS_TYPE) const uint BIAS_TYPE = TYPE_NONE;
layout(constant_id = LINEAR_SKIP_TYPE) const uint SKIP_TYPE = TYPE_NONE;
layout(local_size_x_id = LINEAR_LANES) in;
layout(binding = 0) readonly buffer Q { uint q_words[]; };
layout(binding = 1) readonly buffer K { uint k_words[]; };
layout(binding = 2) readonly buffer V { uint v_words[]; };
layout(binding = 3) readonly buffer Decay { uint decay_words[]; };
layout(binding = 4) readonly buffer Beta { uint beta_words[]; };
// The state may stay in its place: neither is readonly.
ALIASED layout(binding = 5) buffer From { float from_values[]; };
ALIASED layout(binding = 5) buffer From4 { vec4 from_chunks[]; };
ALIASED layout(binding = 6) buffer To { float to_values[]; };
ALIASED layout(binding = 6) buffer To4 { vec4 to_chunks[]; };
layout(binding = 7) buffer Y { uint y_words[]; };
layout(binding = 8) readonly buffer Starts { uint starts[]; };
layout(binding = 9) readonly buffer Log { uint log_words[]; };
layout(binding = 10) readonly buffer Bias { uint bias_words[]; };
layout(binding = 11) readonly buffer Skip { uint skip_words[]; };
layout(binding = 12) readonly buffer Params { linear_params p; };

const uint COLUMNS = LANES / SPLITS;   // of a workgroup, four values each
const uint ROW = CHUNKS * SPLITS;      // chunks of a staged row
const uint MERGED = 8;                 // splits whose sums are added at a time
const bool DELTA = BETA_TYPE != TYPE_NONE;
shared vec4 k_stage[TOKENS * ROW], q_stage[TOKENS * ROW];
shared vec4 decay_stage[TOKENS * ROW * (DECAY / DECAY_KEY) + 1]; // codes, see lib/decay.glsl
shared vec4 v_stage[TOKENS * COLUMNS];
shared vec4 gate_stage[TOKENS]; // code of the decay of a head, beta, step
shared vec4 partial_r[2 * LANES], partial_o[2 * LANES]; // of a token and the next
shared float partial_d[2 * SPLITS];
shared vec2 partial_unit[2 * SPLITS * (FLAGS / LINEAR_UNIT % 2) + 1];

uint split, column, first_value; // of this lane; value of its column
uint batch, head;                // sequence and state
vec4 state[4 * CHUNKS];          // [chunk][feature of it]
float skip;                      // of the state

bool has(uint flag) { return (FLAGS & flag) != 0u; }

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
    [[unroll]] for (uint i = 0; i < 4 * CHUNKS; i++) {
        state[i] = vec4(0.0);
        if (!has(LINEAR_LOADS) || is_outside(i))
            continue;
        uint at = first + feature_step(i) * p.from.stride2;
        if (has(LINEAR_WIDE)) {
            state[i] = from_chunks[at >> 2];
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
    [[unroll]] for (uint i = 0; i < 4 * CHUNKS; i++) {
        if (is_outside(i))
            continue;
        uint at = first + feature_step(i) * p.to.stride2;
        if (has(LINEAR_WIDE)) {
            to_chunks[at >> 2] = state[i];
            continue;
        }
        [[unroll]] for (uint j = 0; j < 4; j++)
            if (first_value + j < p.value_dim)
                to_values[at + j * p.to.stride3] = state[i][j];
    }
}

// ---- Tokens ------------------------------------------------------------------------------------

// Makes vec4 name(at, count): four features from `at` on, 0 from `count` on.
#define CHUNK_OF(name, words, stride, TYPE)                                                        \
    vec4 name(uint at, uint count)                                                                 \
    {                                                                                              \
        vec4 x = vec4(0.0);                                                                        \
        [[unroll]] for (uint j = 0; j < 4; j++)                                                    \
            if (j < count)                                                                         \
                x[j] = LOAD(words, at + j * stride, TYPE);                                         \
        return x;                                                                                  \
    }
CHUNK_OF(q_chunk, q_words, p.q.stride3, Q_TYPE)
CHUNK_OF(k_chunk, k_words, p.k.stride3, K_TYPE)
CHUNK_OF(v_chunk, v_words, p.v.stride3, V_TYPE)
CHUNK_OF(decay_chunk, decay_words, p.decay.stride3, DECAY_TYPE)

// The step of an x of this head, see linear_params.
float step_of(float x, uint feature)
{
    if (BIAS_TYPE != TYPE_NONE)
        x += LOAD(bias_words, place(p.bias, uvec4(head, feature, 0, 0)), BIAS_TYPE);
    float s = softplus(x);
    if (!has(LINEAR_STEPS) || is_nan(s))
        return s;
    // By bits, as in lib/relu.glsl: none of the three is negative.
    uint least = floatBitsToUint(abs(p.step_min)), most = floatBitsToUint(p.step_max);
    return uintBitsToFloat(min(max(floatBitsToUint(s), least), most));
}

float head_log() { return LOAD(log_words, place(p.log, uvec4(head, 0, 0, 0)), LOG_TYPE); }

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

uint features_from(uint first, uint end) { return end - min(first, end); }

uint packed_batch() { return ROWS == ROWS_RAGGED ? 0 : batch; }

// A row whose squares might overflow is shrunk, as its epsilon is, before it is divided by its length.
const float LARGE = 72057594037927936.0;    // 2^56
const float SHRINK = 8.470329472543003e-22; // 2^-70
const uint UNIT = FLAGS / LINEAR_UNIT % 2;  // 1: q and k are divided by their length
const uint LARGE_FLAGS = 2 * TOKENS + 1;    // [token][k, q], and one for all
shared uint large[2 * LARGE_FLAGS * UNIT + 1]; // of the tokens that are staged and of the next ones
uint large_first; // flag of those that are staged

void forget_large(uint first)
{
    for (uint i = gl_LocalInvocationIndex; UNIT != 0 && i < LARGE_FLAGS; i += LANES)
        large[first + i] = 0;
}

void note_large(uint flag, vec4 x)
{
    vec4 size = abs(x);
    if (UNIT == 0 || max(max(size.x, size.y), max(size.z, size.w)) <= LARGE)
        return;
    atomicOr(large[large_first + flag], 1u);
    atomicOr(large[large_first + LARGE_FLAGS - 1], 1u);
}

float shrink_of(uint flag) { return large[large_first + flag] != 0u ? SHRINK : 1.0; }

// Each lane shrinks what it staged.
void shrink_large(uint n)
{
    if (UNIT == 0 || large[large_first + LARGE_FLAGS - 1] == 0u)
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
        q_stage[i] = q_chunk(q_first + t * p.q.stride2 + feature * p.q.stride3, count);
        k_stage[i] = k_chunk(k_first + t * p.k.stride2 + feature * p.k.stride3, count);
        note_large(2 * t, k_stage[i]);
        note_large(2 * t + 1, q_stage[i]);
        if (DECAY == DECAY_KEY)
            decay_stage[i] = decay_codes(
                decay_chunk(decay_first + t * p.decay.stride2 + feature * p.decay.stride3, count),
                feature, count);
    }
}

// Code of the decay of a head, beta and step of a row.
vec4 gates_of(uvec4 at)
{
    vec4 gates = vec4(0.0);
    if (DECAY == DECAY_HEAD) {
        float g = LOAD(decay_words, place(p.decay, at), DECAY_TYPE);
        if (LOG_TYPE != TYPE_NONE) {
            gates.z = step_of(g, 0);
            g = decay_of_step(head_log(), gates.z);
        }
        gates.x = decay_code(g);
    }
    if (DELTA) {
        gates.y = LOAD(beta_words, place(p.beta, at), BETA_TYPE);
        if (has(LINEAR_SIGMOID))
            gates.y = sigmoid(gates.y);
    }
    return gates;
}

void stage_values(uint row, uint n)
{
    uint v_first = place(p.v, uvec4(packed_batch(), head, row, 0));
    for (uint i = gl_LocalInvocationIndex; i < n * COLUMNS; i += LANES) {
        uint t = i / COLUMNS, value = 4 * (gl_WorkGroupID.x * COLUMNS + i % COLUMNS);
        v_stage[i] = v_chunk(v_first + t * p.v.stride2 + value * p.v.stride3,
                             features_from(value, p.value_dim));
    }
    for (uint t = gl_LocalInvocationIndex; t < n; t += LANES)
        gate_stage[t] = gates_of(uvec4(packed_batch(), head, row + t, 0));
}

float dot_added(vec4 a, vec4 b, float to)
{
    return fma(a.x, b.x, fma(a.y, b.y, fma(a.z, b.z, fma(a.w, b.w, to))));
}

// What a token needs of the state: r = S^T (f k), o = S^T (f q), d = k . q, unit = (k . k, q . q), with f
// of key features alone.
struct products {
    vec4 r, o;
    float d;
    vec2 unit;
};

// Those over the features of the lane.
products multiply(uint t)
{
    products x = products(vec4(0.0), vec4(0.0), 0.0, vec2(0.0));
    [[unroll]] for (uint c = 0; c < CHUNKS; c++) {
        uint at = t * ROW + c * SPLITS + split;
        vec4 k = k_stage[at], q = q_stage[at];
        x.d = dot_added(k, q, x.d);
        if (has(LINEAR_UNIT)) {
            x.unit.x = dot_added(k, k, x.unit.x);
            x.unit.y = dot_added(q, q, x.unit.y);
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
    if (has(LINEAR_UNIT))
        x.unit += partial_unit[half_of * SPLITS + s];
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
        if (has(LINEAR_UNIT))
            partial_unit[half_of * SPLITS + split] = x.unit;
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
    [[unroll]] for (uint c = 0; c < CHUNKS; c++) {
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

void store_y(uint row, uint y_head, vec4 y)
{
    uint at = place(p.y, uvec4(packed_batch(), y_head, row, first_value));
    [[unroll]] for (uint j = 0; j < 4; j += 2) {
        if (first_value + j >= p.value_dim)
            break;
        if (has(LINEAR_Y_PAIRS)) {
            y_words[at + j >> 1] = pair_word(vec2(one_nan(y[j]), one_nan(y[j + 1])), Y_TYPE);
            continue;
        }
        STORE(y_words, at + j * p.y.stride3, Y_TYPE, one_nan(y[j]));
        if (first_value + j + 1 < p.value_dim)
            STORE(y_words, at + (j + 1) * p.y.stride3, Y_TYPE, one_nan(y[j + 1]));
    }
}

// Divides what was made of k and q by their lengths; returns what u is multiplied by.
float make_unit(uint t, inout products x)
{
    if (!has(LINEAR_UNIT))
        return 1.0;
    vec2 shrink = vec2(shrink_of(2 * t), shrink_of(2 * t + 1));
    vec2 unit = 1.0 / sqrt(x.unit + p.norm_epsilon * shrink * shrink);
    x.r *= unit.x;
    x.o *= unit.y;
    x.d *= unit.y; // and u by that of k
    return unit.x;
}

// What is written for v, before a delta rule corrects it.
vec4 stepped(vec4 v, float step)
{
    precise vec4 u = v * step;
    return has(LINEAR_STEPS) ? u : v;
}

void take_token(uint t, uint half_of, uint row, uint y_head)
{
    products x = multiply(t);
    merge_splits(half_of, x);
    vec4 gates = gate_stage[t], v = v_stage[t * COLUMNS + column];
    if (DECAY == DECAY_HEAD) {
        float f = decay_factor(gates.x);
        x.r *= f;
        x.o *= f;
    }
    float of_k = make_unit(t, x);
    vec4 u = stepped(v, gates.z);
    if (DELTA)
        u = gates.y * (u - x.r);
    if (has(LINEAR_UNIT))
        u *= of_k;
    update(t, u, gates.x);
    if (split != 0)
        return;
    vec4 y = p.scale * fma(vec4(x.d), u, x.o);
    if (SKIP_TYPE != TYPE_NONE)
        y = fma(vec4(skip), v, y);
    store_y(row, y_head, y);
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

// The sequence's tokens in this pass: *row is that of the first.
uint find_tokens(out uint row)
{
    row = 0;
    if (ROWS == ROWS_DENSE)
        return p.n;
    if (ROWS == ROWS_LENGTHS) {
        uint n = uint(max(int(starts[p.starts_offset + batch * p.starts_step]), 0));
        return min(n - min(n, p.first), p.n);
    }
    uint begin = start_within(starts[p.starts_offset + batch], p.n_row);
    uint end = max(start_within(starts[p.starts_offset + batch + 1], p.n_row), begin);
    row = begin + p.first;
    return min(end - min(end, row), p.n);
}

void main()
{
    uint row;
    split = gl_LocalInvocationIndex / COLUMNS;
    column = gl_LocalInvocationIndex % COLUMNS;
    first_value = 4 * (gl_WorkGroupID.x * COLUMNS + column);
    head = p.state_first + gl_WorkGroupID.y;
    batch = gl_WorkGroupID.z;
    if (SKIP_TYPE != TYPE_NONE)
        skip = LOAD(skip_words, place(p.skip, uvec4(head, 0, 0, 0)), SKIP_TYPE);
    large_first = 0;
    forget_large(0);
    uint count = find_tokens(row), n = p.n, group = p.group; // no loop's condition reads a buffer
    bool wanted = count > 0 || p.in_place == 0;
    for (uint i = 0; i < group; i++) {
        if (wanted)
            take_tokens(row, count, head * group + i);
        if (ROWS == ROWS_LENGTHS)
            for (uint behind = count + split; behind < n; behind += SPLITS)
                store_y(behind, head * group + i, vec4(0.0));
    }
    if (has(LINEAR_STORES) && wanted)
        store_state();
}
