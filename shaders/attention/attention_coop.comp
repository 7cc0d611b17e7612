// Fused attention on the device's matrix units: 16-bit q, k and v of one type, float32 scores, sums
// and softmax. A subgroup takes M rows, LANES / M lanes a row; keys and values are staged in shared
// memory, the context stays in matrices. Rows, keys, splits and masks as in attention_tile.comp.
// See attention_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#ifdef BFLOAT16
#extension GL_EXT_bfloat16 : require
#define HALF bfloat16_t
#define HALF_TYPE TYPE_BF16
#define HALF_INFINITY 0x7f80u
#define half_from_float bf16_from_float
#define weight_of exp_weight
#define UNIT WEIGHT_UNIT
#else
#define HALF float16_t
#define HALF_TYPE TYPE_F16
#define HALF_INFINITY 0x7c00u
#define half_from_float f16_from_float
// Sums of float16 values do not overflow float32: a unit of 1 keeps the smallest weights.
#define weight_of exp_accurate
#define UNIT 1.0
#endif
#include "params.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"
#include "lib/philox.glsl"

layout(constant_id = ATTENTION_COOP_THREADS) const uint THREADS = 128;
layout(constant_id = ATTENTION_COOP_M) const uint M = 16; // a matrix is M x N, from M x K and K x N
layout(constant_id = ATTENTION_COOP_N) const uint N = 16;
layout(constant_id = ATTENTION_COOP_K) const uint K = 16;
layout(constant_id = ATTENTION_COOP_HEAD) const uint HEAD = 64;   // a multiple of K
layout(constant_id = ATTENTION_COOP_VALUE) const uint VALUE = 64; // a multiple of N
layout(constant_id = ATTENTION_COOP_KEYS) const uint KEYS = 32;   // a multiple of K and N
layout(constant_id = ATTENTION_COOP_O_TYPE) const uint O_TYPE = 0;
layout(constant_id = ATTENTION_COOP_K_VEC) const uint K_VEC = 1;
layout(constant_id = ATTENTION_COOP_V_VEC) const uint V_VEC = 1;
layout(constant_id = ATTENTION_COOP_GENERAL) const uint GENERAL = 0;
layout(constant_id = ATTENTION_COOP_PIECES) const uint PIECES = 0;
layout(constant_id = ATTENTION_COOP_STATE) const uint STATE = 0;
const uint Q_TYPE = HALF_TYPE;
const uint K_TYPE = HALF_TYPE;
const uint V_TYPE = HALF_TYPE;

layout(local_size_x_id = ATTENTION_COOP_THREADS) in;

const uint ROWS = ATTENTION_COOP_SUBGROUPS * M;
#include "lib/tile.glsl"
layout(binding = 1) readonly buffer Keys8 { uvec4 k_chunks[]; };
layout(binding = 2) readonly buffer Values8 { uvec4 v_chunks[]; };

const uint LANES = THREADS / ATTENTION_COOP_SUBGROUPS;
const uint PARTS = LANES / M;        // lanes that share a row
const uint PART_KEYS = KEYS / PARTS; // keys of a step for one lane; even, at most 32
// A chunk is 8 elements, one uvec4. Rows are padded by one chunk, so that the rows of a matrix
// start in different banks.
const uint Q_PITCH = HEAD / 8 + 1;
const uint V_PITCH = VALUE / 8 + 1;
const uint W_PITCH = KEYS / 8 + 1;
const uint S_PITCH = KEYS + 4;
shared uvec4 q_tile[ROWS * Q_PITCH];
// [key][chunk]: keys, then values
shared uvec4 stage[KEYS * (Q_PITCH > V_PITCH ? Q_PITCH : V_PITCH)];
shared uvec4 weights[ROWS * W_PITCH];
shared float scores[ROWS * S_PITCH]; // [row][key]; then weights, HIDDEN where the key is hidden
shared float matrix[(ROWS + M) * N]; // M x N floats a subgroup, then zeros
shared float exchange[THREADS > 2 * ROWS ? THREADS : 2 * ROWS]; // one a lane, later two a row
shared uint nonfinite; // not 0: the step has NaN or Inf among its values

#define HIDDEN -1.0
#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>
ACCUMULATOR context[VALUE / N];

// Of this lane's row: row_max of all its keys; row_sum and `seen` of this lane's part of them.
// `shrink` is the factor of the context so far.
float row_max, row_sum, shrink;
bool seen;

uint part() { return gl_SubgroupInvocationID / M; }
uint lane_row() { return gl_SubgroupID * M + gl_SubgroupInvocationID % M; } // of the tile

void subgroup_barrier_shared()
{
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
}

// Loads elements at .. at + 7 of a buffer of words, at most `count` of them, to x, which is 0.
#define GATHER(words, at, count, x)                                                                \
    for (uint e = 0; e < min(8, count); e++)                                                       \
        x[e >> 1] |= half_bits(words[(at + e) >> 1], at + e) << (16 * (e & 1));

void stage_q(sequence s)
{
    for (uint i = gl_LocalInvocationIndex; i < ROWS * (HEAD / 8); i += THREADS) {
        uint t = i / (HEAD / 8), d = i % (HEAD / 8) * 8, at = q_index(row_of(t), s) + d;
        uvec4 x = uvec4(0);
        if (d < p.head_dim)
            GATHER(q_words, at, p.head_dim - d, x)
        q_tile[t * Q_PITCH + d / 8] = x;
    }
}

void stage_k(uint key, sequence s)
{
    for (uint i = gl_LocalInvocationIndex; i < KEYS * (HEAD / 8); i += THREADS) {
        uint k = i / (HEAD / 8), d = i % (HEAD / 8) * 8;
        uint at = k_index(key_row(min(key + k, s.n_kv - 1), s), s) + d;
        uvec4 x = uvec4(0);
        if (d < p.head_dim && K_VEC != 0)
            x = k_chunks[at >> 3];
        else if (d < p.head_dim)
            GATHER(k_words, at, p.head_dim - d, x)
        stage[k * Q_PITCH + d / 8] = x;
    }
}

bool is_nonfinite(uint half_word) { return (half_word & HALF_INFINITY) == HALF_INFINITY; }

// Replaces NaN and Inf by 0 in both halves of a word.
uint finite(uint word)
{
    return (is_nonfinite(word & 0xffffu) ? 0u : word & 0xffffu) |
           (is_nonfinite(word >> 16) ? 0u : word & 0xffff0000u);
}

// test: some row may not see some key. NaN and Inf are then staged as 0, and add_nonfinite adds
// them to the rows that see their keys.
void stage_v(uint key, bool test, sequence s)
{
    for (uint i = gl_LocalInvocationIndex; i < KEYS * (VALUE / 8); i += THREADS) {
        uint k = i / (VALUE / 8), d = i % (VALUE / 8) * 8;
        uint at = v_index(key_row(min(key + k, s.n_kv - 1), s), s) + d;
        uvec4 x = uvec4(0);
        if (d < p.value_dim && V_VEC != 0)
            x = v_chunks[at >> 3];
        else if (d < p.value_dim)
            GATHER(v_words, at, p.value_dim - d, x)
        if (test) {
            uvec4 y = uvec4(finite(x.x), finite(x.y), finite(x.z), finite(x.w));
            if (x != y)
                atomicOr(nonfinite, 1u);
            x = y;
        }
        stage[k * V_PITCH + d / 8] = x;
    }
}

void score()
{
    uint mine = gl_SubgroupID * M;
    // Unrolling would put all loads first, into registers.
    [[dont_unroll]] for (uint n = 0; n < KEYS; n += N) {
        ACCUMULATOR sum = ACCUMULATOR(0.0);
        [[unroll]] for (uint h = 0; h < HEAD; h += K) {
            coopmat<HALF, gl_ScopeSubgroup, M, K, gl_MatrixUseA> a;
            coopmat<HALF, gl_ScopeSubgroup, K, N, gl_MatrixUseB> b;
            coopMatLoad(a, q_tile, mine * Q_PITCH + h / 8, Q_PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
            coopMatLoad(b, stage, n * Q_PITCH + h / 8, Q_PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            sum = coopMatMulAdd(a, b, sum);
        }
        coopMatStore(sum, scores, mine * S_PITCH + n, S_PITCH, gl_CooperativeMatrixLayoutRowMajor);
    }
}

// Maximum or sum of x over the lanes of a row.
float over_parts(float x, bool sum)
{
    uint mine = gl_SubgroupID * LANES;
    exchange[mine + gl_SubgroupInvocationID] = x;
    subgroup_barrier_shared();
    float y = exchange[mine + gl_SubgroupInvocationID % M];
    for (uint i = 1; i < PARTS; i++) {
        float other = exchange[mine + gl_SubgroupInvocationID % M + i * M];
        y = sum ? y + other : max(y, other);
    }
    subgroup_barrier_shared();
    return y;
}

// One step of the online softmax: turns this lane's scores into weights.
void weigh(uint key, bool test, sequence s)
{
    uint t = lane_row(), first = part() * PART_KEYS, at = t * S_PITCH + first, hidden = 0;
    float now = row_max;
    for (uint i = 0; i < PART_KEYS; i++) {
        float x = p.scale * scores[at + i];
        uint k = key + first + i;
        bool visible = !test || (k >= ranges[t].x && k < ranges[t].y);
        if (GENERAL != 0 && visible)
            visible = bias_score(x, row_of(t), k, test, s);
        scores[at + i] = x;
        hidden |= visible ? 0 : 1u << i;
        now = visible ? max(now, x) : now;
        seen = seen || visible;
    }
    now = over_parts(now, false);
    float shift = now == MINUS_INFINITY ? 0.0 : now, sum = 0.0; // no key yet: all weights are 0
    shrink = row_max == now ? 1.0 : exp_accurate(row_max - shift);
    row_max = now;
    for (uint i = 0; i < PART_KEYS; i += 2) {
        uint pair = 0;
        for (uint j = 0; j < 2; j++) {
            bool there = (hidden >> (i + j) & 1u) == 0u;
            float w = there ? weight_of(scores[at + i + j] - shift) : 0.0;
            sum += w;
            if (GENERAL != 0 && p.dropout != 0.0 && there)
                w = dropped(w, row_of(t), key + first + i + j, s);
            scores[at + i + j] = there ? w : HIDDEN;
            pair |= half_from_float(w) << (16 * j);
        }
        weights[t * W_PITCH + (first + i) / 8][(first + i) % 8 / 2] = pair;
    }
    row_sum = fma(row_sum, shrink, sum);
}

// Multiplies each row of the context by `shrink`, even if it is 1: Mesa 26's CPU driver makes
// errors in matrices that are set under a condition.
void shrink_context()
{
    for (uint n = part(); n < N; n += PARTS)
        matrix[lane_row() * N + n] = shrink;
    subgroup_barrier_shared();
    ACCUMULATOR by;
    coopMatLoad(by, matrix, gl_SubgroupID * M * N, N, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint j = 0; j < VALUE / N; j++)
        context[j] = context[j] * by;
    subgroup_barrier_shared();
}

void add_values()
{
    [[dont_unroll]] for (uint k = 0; k < KEYS; k += K) {
        coopmat<HALF, gl_ScopeSubgroup, M, K, gl_MatrixUseA> a;
        coopMatLoad(a, weights, gl_SubgroupID * M * W_PITCH + k / 8, W_PITCH,
                    gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint j = 0; j < VALUE / N; j++) {
            coopmat<HALF, gl_ScopeSubgroup, K, N, gl_MatrixUseB> b;
            coopMatLoad(b, stage, k * V_PITCH + j * N / 8, V_PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
            context[j] = coopMatMulAdd(a, b, context[j]);
        }
    }
}

// Sum of the weighted NaN and Inf values of a step, for row t of the tile at feature d.
float find_nonfinite(uint t, uint d, uint key, sequence s)
{
    float x = 0.0;
    for (uint k = 0; k < KEYS; k++) {
        float w = scores[t * S_PITCH + k];
        if (w < 0.0 || d >= p.value_dim)
            continue; // hidden
        uint at = v_index(key_row(key + k, s), s) + d, bits = half_bits(v_words[at >> 1], at);
        if (is_nonfinite(bits))
            x = fma(w, decode(v_words[at >> 1], at, V_TYPE), x);
    }
    return x;
}

// Each matrix of the context gets a matrix added, which is 0 but for one: constants index the
// context, because some compilers keep an array that a loop indexes in memory, for the whole kernel.
void add_nonfinite_values(uint key, sequence s)
{
    uint mine = gl_SubgroupID * M;
    [[dont_unroll]] for (uint j = 0; j < VALUE / N; j++) {
        for (uint e = gl_SubgroupInvocationID; e < M * N; e += LANES)
            matrix[mine * N + e] = find_nonfinite(mine + e / N, j * N + e % N, key, s);
        subgroup_barrier_shared();
        [[unroll]] for (uint i = 0; i < VALUE / N; i++) {
            ACCUMULATOR by;
            coopMatLoad(by, matrix, (i == j ? mine : ROWS) * N, N,
                        gl_CooperativeMatrixLayoutRowMajor);
            context[i] = context[i] + by;
        }
        subgroup_barrier_shared();
    }
}

void step(uint key, bool test, sequence s)
{
    barrier(); // the stage is free
    if (gl_LocalInvocationIndex == 0)
        nonfinite = 0;
    stage_k(key, s);
    barrier();
    score();
    barrier(); // all have read the keys
    stage_v(key, test, s);
    weigh(key, test, s);
    barrier();
    shrink_context();
    add_values();
    if (test && nonfinite != 0)
        add_nonfinite_values(key, s);
}

// First word of the state of row t: context, row_sum or HIDDEN of each part, row_max.
uint row_state(uint t)
{
    uint pitch = STATE_PITCH(VALUE / 4, PARTS);
    return state_of(ROWS * pitch) + t * pitch;
}

bool saw_key(uint t)
{
    bool any = false;
    for (uint i = 0; i < PARTS; i++)
        any = any || saved(row_state(t) + VALUE + i) != HIDDEN;
    return any;
}

// A row that saw no key so far keeps its initial values: dead_context made its saved context.
void load_state()
{
    uint t = lane_row(), sums = row_state(t) + VALUE, mine = gl_SubgroupID * M;
    if (saw_key(t)) {
        float sum = saved(sums + part());
        seen = sum != HIDDEN;
        row_sum = seen ? sum : 0.0;
        row_max = saved(sums + PARTS);
    }
    [[unroll]] for (uint j = 0; j < VALUE / N; j++) {
        for (uint e = gl_SubgroupInvocationID; e < M * N; e += LANES) {
            uint row = mine + e / N;
            matrix[mine * N + e] = saw_key(row) ? saved(row_state(row) + j * N + e % N) : 0.0;
        }
        subgroup_barrier_shared();
        coopMatLoad(context[j], matrix, mine * N, N, gl_CooperativeMatrixLayoutRowMajor);
        subgroup_barrier_shared();
    }
}

// Stores row_sum of each part and row_max, before the parts of a row are added.
void store_sums(uint t)
{
    uint sums = row_state(t) + VALUE;
    o_words[sums + part()] = floatBitsToUint(seen ? row_sum : HIDDEN);
    if (part() == 0)
        o_words[sums + PARTS] = floatBitsToUint(row_max);
}

// Stores x, the context of row t of the tile at feature d.
void store(float x, uint t, uint d, uvec2 keys, sequence s)
{
    bool dead = exchange[2 * t + 1] == 0.0, keep = (STATE & STATE_STORE) != 0;
    if (!keep && (first_row + t >= n_row || d >= p.value_dim))
        return;
    if (dead) {
        vec4 before = (STATE & STATE_LOAD) != 0 ? saved4(row_state(t) + d / 4 * 4) : vec4(0.0);
        x = dead_context(row_of(t), keys, d / 4, before, s)[d % 4];
    } else if (PIECES == 0 && !keep) {
        x /= exchange[2 * t];
    }
    if (keep) {
        o_words[row_state(t) + d] = floatBitsToUint(x);
        return;
    }
    uint at = output_base(t, s) + d;
    if (PIECES != 0)
        o_words[at] = floatBitsToUint(x);
    else
        STORE(o_words, at, O_TYPE, one_nan(x))
}

void store_record(uint t, sequence s)
{
    if (PIECES == 0 || (STATE & STATE_STORE) != 0 || part() != 0 || first_row + t >= n_row)
        return;
    store_piece(output_base(t, s), row_max, row_sum, seen, UNIT);
}

void store_rows(uvec2 keys, sequence s)
{
    uint t = lane_row(), mine = gl_SubgroupID * M;
    if ((STATE & STATE_STORE) != 0)
        store_sums(t);
    row_sum = over_parts(row_sum, true);
    seen = over_parts(seen ? 1.0 : 0.0, true) != 0.0;
    if (seen && PIECES == 0 && mask_has(MASK_SINK)) {
        float sink = sinks[p.sink_offset + p.head_first + head_of(row_of(t))];
        row_sum += UNIT * sink_weight(sink, row_max);
    }
    store_record(t, s);
    barrier(); // exchange is free for row_sum and `seen` of each row
    if (part() == 0) {
        exchange[2 * t] = row_sum;
        exchange[2 * t + 1] = seen ? 1.0 : 0.0;
    }
    barrier();
    [[dont_unroll]] for (uint j = 0; j < VALUE / N; j++) {
        [[unroll]] for (uint i = 0; i < VALUE / N; i++)
            if (i == j)
                coopMatStore(context[i], matrix, mine * N, N, gl_CooperativeMatrixLayoutRowMajor);
        subgroup_barrier_shared();
        for (uint e = gl_SubgroupInvocationID; e < M * N; e += LANES)
            store(matrix[mine * N + e], mine + e / N, j * N + e % N, keys, s);
        subgroup_barrier_shared();
    }
}

void main()
{
    uint tile;
    uint y = gl_WorkGroupID.y;
    first_value4 = 0;
    piece = p.piece_first + y % p.piece_count;
    work_head = y / p.piece_count;
    sequence s = find_sequence(ROWS, tile);
    n_row = s.n_q * p.group;
    first_row = tile * ROWS;
    if (first_row >= n_row)
        return;
    set_slot(tile);
    row_max = MINUS_INFINITY; // no sink: weights are 16-bit, and the largest has to be 1
    row_sum = 0.0;
    seen = false;
    [[unroll]] for (uint j = 0; j < VALUE / N; j++)
        context[j] = ACCUMULATOR(0.0);
    if ((STATE & STATE_LOAD) != 0)
        load_state();
    for (uint e = gl_LocalInvocationIndex; e < M * N; e += THREADS)
        matrix[ROWS * N + e] = 0.0;
    stage_q(s);
    uvec4 bound = find_bounds(s);
    uvec2 keys = own_keys();
    uint end = min(bound.y, keys.y);
    for (uint key = max(bound.x / KEYS * KEYS, keys.x); key < end; key += KEYS) {
        uint code = map_code(tile, key);
        bool test = key < bound.z || key + KEYS > bound.w || (code & MAP_TEST) != 0u;
        if ((code & MAP_SOME) != 0u)
            step(key, test, s);
    }
    store_rows(keys, s);
}
