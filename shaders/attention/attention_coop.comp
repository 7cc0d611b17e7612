// Fused attention with the device's matrix units: 16-bit q, k and v of one type, float32 scores,
// sums and softmax. Each subgroup takes M rows, a row LANES / M lanes; keys and values go through
// shared memory, the context stays in matrices. Rows, keys, pieces and masks as in
// attention_tile.comp. See attention_params.
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
// No sum of float16 values passes float32, and the least weights count.
#define weight_of exp_accurate
#define UNIT 1.0
#endif
#include "params.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"
#include "lib/philox.glsl"

layout(constant_id = ATTENTION_COOP_THREADS) const uint THREADS = 128;
layout(constant_id = ATTENTION_COOP_M) const uint M = 16; // of one matrix
layout(constant_id = ATTENTION_COOP_N) const uint N = 16;
layout(constant_id = ATTENTION_COOP_K) const uint K = 16;
layout(constant_id = ATTENTION_COOP_HEAD) const uint HEAD = 64;   // a multiple of K
layout(constant_id = ATTENTION_COOP_VALUE) const uint VALUE = 64; // and of N
layout(constant_id = ATTENTION_COOP_KEYS) const uint KEYS = 32;   // and of both
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
const uint PART_KEYS = KEYS / PARTS; // of a step that a lane weighs; even, at most 32
// A chunk is 8 elements, one uvec4; rows have one more than they hold, so that those of a matrix
// begin in different banks.
const uint Q_PITCH = HEAD / 8 + 1;
const uint V_PITCH = VALUE / 8 + 1;
const uint W_PITCH = KEYS / 8 + 1;
const uint S_PITCH = KEYS + 4;
shared uvec4 q_tile[ROWS * Q_PITCH];
shared uvec4 stage[KEYS * (Q_PITCH > V_PITCH ? Q_PITCH : V_PITCH)]; // keys, then values
shared uvec4 weights[ROWS * W_PITCH];
shared float scores[ROWS * S_PITCH]; // then weights in float32; HIDDEN where a row sees no key
shared float matrix[ROWS * N];       // one a subgroup
shared float exchange[THREADS > 2 * ROWS ? THREADS : 2 * ROWS]; // a number a lane, two a row
shared uint odd; // some value of the step is not finite

#define HIDDEN -1.0
#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>
ACCUMULATOR context[VALUE / N];

// Of this lane's row, as its part of the keys makes them; `most` is the row's.
float most, total, shrink;
bool seen;

uint part() { return gl_SubgroupInvocationID / M; }
uint lane_row() { return gl_SubgroupID * M + gl_SubgroupInvocationID % M; } // of the tile

void subgroup_barrier_shared()
{
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
}

// Eight elements from element `at` of a buffer's words, of which `count` are there; 0 beyond.
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

bool is_odd(uint half_word) { return (half_word & HALF_INFINITY) == HALF_INFINITY; }

// The word with 0 for what is not finite.
uint sane(uint word)
{
    return (is_odd(word & 0xffffu) ? 0u : word & 0xffffu) |
           (is_odd(word >> 16) ? 0u : word & 0xffff0000u);
}

// test: some row may not see some key, whose value may be NaN or Inf; add_odd then adds those that
// are seen.
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
            uvec4 y = uvec4(sane(x.x), sane(x.y), sane(x.z), sane(x.w));
            if (x != y)
                atomicOr(odd, 1u);
            x = y;
        }
        stage[k * V_PITCH + d / 8] = x;
    }
}

void score()
{
    uint mine = gl_SubgroupID * M;
    // Unrolled, all loads would come first, into registers.
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

// The greatest of the parts of a row, or their sum.
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

// One step of the online softmax for this lane's part: scores to weights.
void weigh(uint key, bool test, sequence s)
{
    uint t = lane_row(), first = part() * PART_KEYS, at = t * S_PITCH + first, hidden = 0;
    float now = most;
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
    shrink = most == now ? 1.0 : exp_accurate(most - shift);
    most = now;
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
    total = fma(total, shrink, sum);
}

// The context times `shrink`, row by row. Always, though it is often 1: matrices that are set under
// a condition have come out wrong on a driver (Mesa 26's for CPUs).
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

// Adds to element (row t of the tile, feature d) what values that are not finite give.
float add_odd(float x, uint t, uint d, uint key, sequence s)
{
    for (uint k = 0; k < KEYS; k++) {
        float w = scores[t * S_PITCH + k];
        if (w < 0.0 || d >= p.value_dim)
            continue; // hidden
        uint at = v_index(key_row(key + k, s), s) + d, bits = half_bits(v_words[at >> 1], at);
        if (is_odd(bits))
            x = fma(w, decode(v_words[at >> 1], at, V_TYPE), x);
    }
    return x;
}

void add_odd_values(uint key, sequence s)
{
    uint mine = gl_SubgroupID * M;
    [[unroll]] for (uint j = 0; j < VALUE / N; j++) {
        coopMatStore(context[j], matrix, mine * N, N, gl_CooperativeMatrixLayoutRowMajor);
        subgroup_barrier_shared();
        for (uint e = gl_SubgroupInvocationID; e < M * N; e += LANES)
            matrix[mine * N + e] =
                add_odd(matrix[mine * N + e], mine + e / N, j * N + e % N, key, s);
        subgroup_barrier_shared();
        coopMatLoad(context[j], matrix, mine * N, N, gl_CooperativeMatrixLayoutRowMajor);
        subgroup_barrier_shared();
    }
}

void step(uint key, bool test, sequence s)
{
    barrier(); // the stage is free
    if (gl_LocalInvocationIndex == 0)
        odd = 0;
    stage_k(key, s);
    barrier();
    score();
    barrier(); // all have read the keys
    stage_v(key, test, s);
    weigh(key, test, s);
    barrier();
    shrink_context();
    add_values();
    if (test && odd != 0)
        add_odd_values(key, s);
}

// Where the state of row t begins: the context, the sum or HIDDEN of each part, the maximum.
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

// A row that saw no key so far begins anew: its context is of dead_context.
void load_state()
{
    uint t = lane_row(), sums = row_state(t) + VALUE, mine = gl_SubgroupID * M;
    if (saw_key(t)) {
        float sum = saved(sums + part());
        seen = sum != HIDDEN;
        total = seen ? sum : 0.0;
        most = saved(sums + PARTS);
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

// The sums and the maximum, before those of a row's parts are added.
void store_sums(uint t)
{
    uint sums = row_state(t) + VALUE;
    o_words[sums + part()] = floatBitsToUint(seen ? total : HIDDEN);
    if (part() == 0)
        o_words[sums + PARTS] = floatBitsToUint(most);
}

// Feature d of row t of the tile, whose context is x.
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
    store_piece(output_base(t, s), most, total, seen, UNIT);
}

void store_rows(uvec2 keys, sequence s)
{
    uint t = lane_row(), mine = gl_SubgroupID * M;
    if ((STATE & STATE_STORE) != 0)
        store_sums(t);
    total = over_parts(total, true);
    seen = over_parts(seen ? 1.0 : 0.0, true) != 0.0;
    if (seen && PIECES == 0 && mask_has(MASK_SINK)) {
        float sink = sinks[p.sink_offset + p.head_first + head_of(row_of(t))];
        total += UNIT * sink_weight(sink, most);
    }
    store_record(t, s);
    barrier(); // `exchange` now holds the sum of each row, and whether it saw a key
    if (part() == 0) {
        exchange[2 * t] = total;
        exchange[2 * t + 1] = seen ? 1.0 : 0.0;
    }
    barrier();
    [[unroll]] for (uint j = 0; j < VALUE / N; j++) {
        coopMatStore(context[j], matrix, mine * N, N, gl_CooperativeMatrixLayoutRowMajor);
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
    most = MINUS_INFINITY; // not the sink's score: weights are 16-bit, and the largest has to be 1
    total = 0.0;
    seen = false;
    [[unroll]] for (uint j = 0; j < VALUE / N; j++)
        context[j] = ACCUMULATOR(0.0);
    if ((STATE & STATE_LOAD) != 0)
        load_state();
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
