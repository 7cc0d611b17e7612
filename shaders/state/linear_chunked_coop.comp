// linear_chunked on the device's matrix units, with what linear_weights_coop has left. See LINEAR_M.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
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
#include "state/chunk_coop.glsl"

layout(constant_id = LINEAR_WIDTH) const uint WIDTH = 32; // values, a multiple of SIZE_N
layout(binding = 13) readonly buffer Weights { uvec4 weights[]; };

// Pitches lie in other banks.
const uint W4 = WIDTH / 4, MATS = WIDTH / SIZE_N;
const uint STATE_PITCH = D / 4 + 1, VALUE_PITCH = D8 + 1, TOKEN_PITCH = C8 + 1, TILE_PITCH = W4 + 1;
const uint OF_FEATURES = WIDTH * VALUE_PITCH, OF_TOKENS = WIDTH * TOKEN_PITCH;
shared vec4 state[WIDTH * STATE_PITCH]; // [value][four features]
// [high, low][value][8 features] of the state; then [read, written][high, low][value][8 tokens] of u
shared uvec4 halves[2 * OF_FEATURES > 4 * OF_TOKENS ? 2 * OF_FEATURES : 4 * OF_TOKENS];
shared vec4 tile[C * TILE_PITCH]; // [token][four values]: what the state says of keys, u, then y
shared uvec4 lists[LINEAR_GATES]; // see LIST_K
// For each value: bits of the greatest, and what products are multiplied by, as matrices are loaded from
// multiples of 16 bytes; the first token whose u is no number.
const uint OF_STATE = 0, OF_VALUE = 1, OF_READ = 2, OF_WRITTEN = 3;
shared uint tops[4 * WIDTH];
shared vec4 grown[4 * W4];
shared uint broken[WIDTH];

// A subgroup has a row of matrices of tokens, and every C-th of features from there on.
const uint STEPS = D / C, AT_ONCE = STEPS % 2 == 0 ? 2 : 1;
ACCUMULATOR told[MATS], sums[MATS * AT_ONCE];
uint lane;

uint own_token() { return gl_SubgroupID * SIZE_M; }

uint first_value() { return gl_WorkGroupID.x * WIDTH; }

float list_value(uint list, uint t)
{
    return uintBitsToFloat(lists[(list * C + t) / 4][t % 4]);
}

// ---- The state ----------------------------------------------------------------------------------

bool is_outside(uint feature, uint value)
{
    return !has(LINEAR_WHOLE) && (feature >= p.head_dim || value >= p.value_dim);
}

void load_state()
{
    [[dont_unroll]] for (uint i = lane; i < D * W4; i += LANES) {
        uint feature = i / W4, value = first_value() + 4 * (i % W4);
        uint at = place(p.from, uvec4(batch, head, feature, value));
        uint to = 4 * (i % W4) * STATE_PITCH + feature / 4;
        vec4 x = vec4(0.0);
        if (has(LINEAR_LOADS) && !is_outside(feature, value)) {
            if (has(LINEAR_WIDE)) {
                x = from_fours[at >> 2];
            } else {
                [[unroll]] for (uint j = 0; j < 4; j++)
                    if (value + j < p.value_dim)
                        x[j] = from_values[at + j * p.from.stride3];
            }
        }
        [[unroll]] for (uint j = 0; j < 4; j++)
            state[to + j * STATE_PITCH][feature % 4] = x[j];
    }
}

void store_state()
{
    [[dont_unroll]] for (uint i = lane; i < D * W4; i += LANES) {
        uint feature = i / W4, value = first_value() + 4 * (i % W4);
        uint at = place(p.to, uvec4(batch, head, feature, value));
        uint from = 4 * (i % W4) * STATE_PITCH + feature / 4;
        vec4 x;
        if (is_outside(feature, value))
            continue;
        [[unroll]] for (uint j = 0; j < 4; j++) {
            x[j] = state[from + j * STATE_PITCH][feature % 4];
            if (is_broken(x[j]))
                note_broken(batch);
        }
        if (has(LINEAR_WIDE)) {
            to_fours[at >> 2] = x;
            continue;
        }
        [[unroll]] for (uint j = 0; j < 4; j++)
            if (value + j < p.value_dim)
                to_values[at + j * p.to.stride3] = x[j];
    }
}

// ---- Pairs of float16 values --------------------------------------------------------------------

uint top_of(vec4 x)
{
    return max(max(bits_of(x.x), bits_of(x.y)), max(bits_of(x.z), bits_of(x.w)));
}

// Sets what products with the operand of these tops are multiplied by.
void set_grown(uint which)
{
    if (lane < WIDTH)
        grown[which * W4 + lane / 4][lane % 4] = grown_by(tops[which * WIDTH + lane]);
}

// Makes the state's halves; the state then decays. A lane has every EACH_LANES-th vector of a value.
void split_state()
{
    uint value = lane % WIDTH, first = lane / WIDTH, top = 0;
    const uint EACH_LANES = LANES / WIDTH;
    [[dont_unroll]] for (uint i = first; i < D / 4 && first < EACH_LANES; i += EACH_LANES)
        top = max(top, top_of(state[value * STATE_PITCH + i]));
    if (first < EACH_LANES)
        atomicMax(tops[OF_STATE * WIDTH + value], top);
    barrier();
    set_grown(OF_STATE);
    float by = reduced_by(tops[OF_STATE * WIDTH + value]);
    float code = uintBitsToFloat(lists[LINEAR_GATES - 1].x);
    [[dont_unroll]] for (uint i = first; i < D8 && first < EACH_LANES; i += EACH_LANES) {
        uint at = value * STATE_PITCH + 2 * i;
        vec4 x = state[at], y = state[at + 1];
        uvec4 low, high = high_vector(x, y, by, low);
        halves[value * VALUE_PITCH + i] = high;
        halves[OF_FEATURES + value * VALUE_PITCH + i] = low;
        if (DECAY != DECAY_NONE) {
            state[at] = decayed(x, code);
            state[at + 1] = decayed(y, code);
        }
    }
    barrier();
}

// Makes halves of the tile; `written`: each token's by what is written by its key.
void split_tile(uint which, bool written)
{
    uint to = written ? 2 * OF_TOKENS : 0;
    [[dont_unroll]] for (uint i = lane; i < WIDTH * C8; i += LANES) {
        uint value = i % WIDTH, t = i / WIDTH * 8, at = t * TILE_PITCH + value / 4;
        vec4 x, y;
        [[unroll]] for (uint j = 0; j < 4; j++) {
            x[j] = tile[at + j * TILE_PITCH][value % 4];
            y[j] = tile[at + (4 + j) * TILE_PITCH][value % 4];
        }
        if (written) {
            x *= uintBitsToFloat(lists[(LIST_WRITTEN * C + t) / 4]);
            y *= uintBitsToFloat(lists[(LIST_WRITTEN * C + t) / 4 + 1]);
        }
        uvec4 low, high = high_vector(x, y, reduced_by(tops[which * WIDTH + value]), low);
        halves[to + value * TOKEN_PITCH + t / 8] = high;
        halves[to + OF_TOKENS + value * TOKEN_PITCH + t / 8] = low;
    }
}

// ---- Products -----------------------------------------------------------------------------------

// Sets x to it times what tokens of a list, and values of an operand, are multiplied by.
#define GROW(x, list, which, mat)                                                                  \
    {                                                                                              \
        ACCUMULATOR of_row, of_column;                                                             \
        coopMatLoad(of_row, lists, ((list) * C + own_token()) / 4, 0,                              \
                    gl_CooperativeMatrixLayoutColumnMajor);                                        \
        coopMatLoad(of_column, grown, (which) * W4 + (mat) * (SIZE_N / 4), 0,                           \
                    gl_CooperativeMatrixLayoutRowMajor);                                           \
        precise ACCUMULATOR grown_ = x * (of_row * of_column);                                     \
        x = grown_;                                                                                \
    }

// What the state says of the subgroup's keys, into the tile, and of its queries, into `told`.
void read_state(uint base)
{
    uint q_rows = base + WEIGHTS_Q_ROWS + own_token() * D8;
    uint k_rows = base + WEIGHTS_K_ROWS + own_token() * D8;
    [[unroll]] for (uint n = 0; n < MATS; n++)
        told[n] = sums[n] = ACCUMULATOR(0.0);
    [[dont_unroll]] for (uint d = 0; d < D8; d += SIZE_K / 8) {
        LEFT q, k;
        coopMatLoad(q, weights, q_rows + d, D8, gl_CooperativeMatrixLayoutRowMajor);
        if (DELTA)
            coopMatLoad(k, weights, k_rows + d, D8, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint n = 0; n < MATS; n++)
            [[unroll]] for (uint low = 0; low < 2; low++) {
                RIGHT b;
                coopMatLoad(b, halves, low * OF_FEATURES + n * SIZE_N * VALUE_PITCH + d, VALUE_PITCH,
                            gl_CooperativeMatrixLayoutColumnMajor);
                told[n] = coopMatMulAdd(q, b, told[n]);
                if (DELTA)
                    sums[n] = coopMatMulAdd(k, b, sums[n]);
            }
    }
    [[unroll]] for (uint n = 0; n < MATS; n++) {
        GROW(told[n], LIST_Q, OF_STATE, n)
        if (DELTA) {
            GROW(sums[n], LIST_K, OF_STATE, n)
            coopMatStore(sums[n], tile, own_token() * TILE_PITCH + n * (SIZE_N / 4), TILE_PITCH,
                         gl_CooperativeMatrixLayoutRowMajor);
        }
    }
}

// Sets `sums` to rows of A or T, from `from` on, times the halves that are read: of the subgroup's
// tokens, by those that are not later.
void weigh_tokens(uint from)
{
    [[unroll]] for (uint n = 0; n < MATS; n++)
        sums[n] = ACCUMULATOR(0.0);
    [[dont_unroll]] for (uint t = 0; t < own_token() + SIZE_M; t += SIZE_K) {
        LEFT high, low;
        uint at = from + own_token() * C8 + t / 8;
        coopMatLoad(high, weights, at, C8, gl_CooperativeMatrixLayoutRowMajor);
        coopMatLoad(low, weights, at + MATRIX, C8, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint n = 0; n < MATS; n++) {
            RIGHT b, c;
            uint column = n * SIZE_N * TOKEN_PITCH + t / 8;
            coopMatLoad(b, halves, column, TOKEN_PITCH, gl_CooperativeMatrixLayoutColumnMajor);
            coopMatLoad(c, halves, OF_TOKENS + column, TOKEN_PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            sums[n] = coopMatMulAdd(high, b, sums[n]);
            sums[n] = coopMatMulAdd(low, b, sums[n]);
            sums[n] = coopMatMulAdd(high, c, sums[n]);
        }
    }
}

// Where the i-th matrix of state is that a subgroup updates from a step on.
uint state_place(uint step, uint i)
{
    uint row = (step + i / MATS) * C + own_token();
    return i % MATS * SIZE_N * STATE_PITCH + row / 4;
}

// Adds keys times what is written to the state, which has decayed.
void update_state(uint base)
{
    [[dont_unroll]] for (uint step = 0; step < STEPS; step += AT_ONCE) {
        [[unroll]] for (uint i = 0; i < MATS * AT_ONCE; i++)
            sums[i] = ACCUMULATOR(0.0);
        [[dont_unroll]] for (uint t = 0; t < C8; t += SIZE_K / 8) {
            LEFT keys[AT_ONCE];
            [[unroll]] for (uint i = 0; i < AT_ONCE; i++)
                coopMatLoad(keys[i], weights,
                            base + WEIGHTS_TURNED + ((step + i) * C + own_token()) * C8 + t, C8,
                            gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint n = 0; n < MATS; n++)
                [[unroll]] for (uint low = 0; low < 2; low++) {
                    RIGHT b;
                    coopMatLoad(b, halves, (2 + low) * OF_TOKENS + n * SIZE_N * TOKEN_PITCH + t,
                                TOKEN_PITCH, gl_CooperativeMatrixLayoutColumnMajor);
                    [[unroll]] for (uint i = 0; i < AT_ONCE; i++)
                        sums[i * MATS + n] = coopMatMulAdd(keys[i], b, sums[i * MATS + n]);
                }
        }
        [[unroll]] for (uint i = 0; i < MATS * AT_ONCE; i++) {
            ACCUMULATOR x, of_column;
            coopMatLoad(x, state, state_place(step, i), STATE_PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            coopMatLoad(of_column, grown, OF_WRITTEN * W4 + i % MATS * (SIZE_N / 4), 0,
                        gl_CooperativeMatrixLayoutRowMajor);
            precise ACCUMULATOR added = of_column * sums[i];
            sums[i] = x + added;
        }
        // Which lane loads an element and which stores it is the driver's.
        controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared,
                       gl_SemanticsAcquireRelease);
        [[unroll]] for (uint i = 0; i < MATS * AT_ONCE; i++)
            coopMatStore(sums[i], state, state_place(step, i), STATE_PITCH,
                         gl_CooperativeMatrixLayoutColumnMajor);
    }
}

// ---- A chunk of tokens --------------------------------------------------------------------------

vec4 value_of(uint row, uint n, uint t, uint value)
{
    uint count = t < n ? features_from(value, p.value_dim) : 0;
    return v_four(place(p.v, uvec4(packed_batch(), head, row + t, value)), count);
}

// What is no number is noted, and is 0 in the tile: it would else reach earlier tokens.
void note_values(uint t, uint column, inout vec4 u)
{
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (is_broken(u[j])) {
            atomicMin(broken[4 * column + j], t);
            u[j] = 0.0;
        }
}

// u of a rule without delta; else what T is to be multiplied by.
void stage_values(uint row, uint n)
{
    [[dont_unroll]] for (uint i = lane; i < C * W4; i += LANES) {
        uint t = i / W4, column = i % W4, at = t * TILE_PITCH + column;
        vec4 u = stepped(value_of(row, n, t, first_value() + 4 * column), list_value(LIST_STEP, t));
        if (DELTA)
            u -= tile[at];
        note_values(t, column, u);
        tile[at] = u;
        [[unroll]] for (uint j = 0; j < 4 && DELTA; j++)
            atomicMax(tops[OF_VALUE * WIDTH + 4 * column + j], bits_of(u[j]));
    }
    barrier();
}

// T times the tile, in its place.
void correct(uint base)
{
    split_tile(OF_VALUE, false);
    set_grown(OF_VALUE);
    barrier();
    weigh_tokens(base + WEIGHTS_T_PAIRS);
    [[unroll]] for (uint n = 0; n < MATS; n++) {
        GROW(sums[n], LIST_T, OF_VALUE, n)
        coopMatStore(sums[n], tile, own_token() * TILE_PITCH + n * (SIZE_N / 4), TILE_PITCH,
                     gl_CooperativeMatrixLayoutRowMajor);
    }
    barrier();
}

// Both operands of u. What is written by no number is none, whatever the key.
void split_values()
{
    [[dont_unroll]] for (uint i = lane; i < C * W4; i += LANES) {
        uint t = i / W4, column = i % W4, at = t * TILE_PITCH + column;
        vec4 u = tile[at], w = u * list_value(LIST_WRITTEN, t);
        if (DELTA) {
            note_values(t, column, u);
            tile[at] = u;
        }
        [[unroll]] for (uint j = 0; j < 4; j++) {
            atomicMax(tops[OF_READ * WIDTH + 4 * column + j], bits_of(u[j]));
            atomicMax(tops[OF_WRITTEN * WIDTH + 4 * column + j], bits_of(w[j]));
        }
    }
    barrier();
    split_tile(OF_READ, false);
    split_tile(OF_WRITTEN, true);
    set_grown(OF_READ);
    if (lane < WIDTH)
        grown[OF_WRITTEN * W4 + lane / 4][lane % 4] =
            broken[lane] < C ? uintBitsToFloat(0x7fc00000u)
                             : grown_by(tops[OF_WRITTEN * WIDTH + lane]);
    barrier();
}

void write_rows(uint row, uint n)
{
    [[dont_unroll]] for (uint i = lane; i < n * W4; i += LANES) {
        uint t = i / W4, column = i % W4, value = first_value() + 4 * column;
        vec4 y = p.scale * tile[t * TILE_PITCH + column];
        [[unroll]] for (uint j = 0; j < 4; j++)
            if (t >= broken[4 * column + j])
                y[j] = uintBitsToFloat(0x7fc00000u);
        if (SKIP_TYPE != TYPE_NONE)
            y = with_skip(y, value_of(row, n, t, value));
        store_y(row + t, head, value, y);
    }
}

// n tokens from a row on.
void take_chunk(uint row, uint n, uint base)
{
    barrier(); // the chunk before has been read
    [[dont_unroll]] for (uint i = lane; i < LINEAR_GATES; i += LANES)
        lists[i] = weights[base + WEIGHTS_LISTS + i];
    [[dont_unroll]] for (uint i = lane; i < 4 * WIDTH; i += LANES)
        tops[i] = 0;
    if (lane < WIDTH)
        broken[lane] = C;
    barrier();
    split_state();
    read_state(base);
    barrier();
    stage_values(row, n);
    if (DELTA)
        correct(base);
    split_values();
    weigh_tokens(base + WEIGHTS_A_PAIRS);
    [[unroll]] for (uint m = 0; m < MATS; m++) {
        GROW(sums[m], LIST_A, OF_READ, m)
        sums[m] = sums[m] + told[m];
        coopMatStore(sums[m], tile, own_token() * TILE_PITCH + m * (SIZE_N / 4), TILE_PITCH,
                     gl_CooperativeMatrixLayoutRowMajor);
    }
    update_state(base);
    barrier();
    write_rows(row, n);
}

void main()
{
    uint row, count, had;
    lane = gl_LocalInvocationIndex;
    head = p.state_first + gl_WorkGroupID.y;
    batch = gl_WorkGroupID.z;
    load_skip();
    if (!find_tokens(row, count, had))
        return;
    bool wanted = count > 0 || p.in_place == 0;
    if (wanted)
        load_state();
    [[dont_unroll]] for (uint first = 0; first < count; first += C)
        take_chunk(row + first, min(count - first, C), weights_at(row, first / C, EACH));
    if (ROWS == ROWS_LENGTHS || ROWS == ROWS_KEPT)
        [[dont_unroll]] for (uint i = count * W4 + lane; i < had * W4; i += LANES)
            store_y(row + i / W4, head, first_value() + 4 * (i % W4), vec4(0.0));
    barrier(); // lanes have other values here than where they change them
    if (wanted && has(LINEAR_STORES))
        store_state();
}
