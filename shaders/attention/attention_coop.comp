// Fused attention on the device's matrix units: 16-bit q, k and v of one type, float32 scores, sums
// and softmax. COLUMNS subgroups take M rows: each scores a share of the keys of a step, weighs a
// share, and adds a share of the value features. The context stays in matrices, and q too where
// registers allow; keys, values and scores go through shared memory. Where registers allow, loads run
// ahead: values while scores are computed, the next keys while values are added. Rows, keys, splits
// and masks as in attention_tile.comp. See attention_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#ifdef BFLOAT16
#extension GL_EXT_bfloat16 : require
#define HALF bfloat16_t
#define HALF_TYPE TYPE_BF16
#define HALF_INFINITY 0x7f80u
#define UNIT_LOG2 -15.0 // of WEIGHT_UNIT
#define UNIT WEIGHT_UNIT
#else
#define HALF float16_t
#define HALF_TYPE TYPE_F16
#define HALF_INFINITY 0x7c00u
// Sums of float16 values do not overflow float32: a unit of 1 keeps the smallest weights.
#define UNIT_LOG2 0.0
#define UNIT 1.0
#endif
#include "params.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"
#include "lib/philox.glsl"

layout(constant_id = ATTENTION_COOP_THREADS) const uint THREADS = 128;
layout(constant_id = ATTENTION_COOP_SUBGROUPS) const uint SUBGROUPS = 4;
layout(constant_id = ATTENTION_COOP_COLUMNS) const uint COLUMNS = 1;
layout(constant_id = ATTENTION_COOP_M) const uint M = 16; // a matrix is M x N, from M x K and K x N
layout(constant_id = ATTENTION_COOP_N) const uint N = 16;
layout(constant_id = ATTENTION_COOP_K) const uint K = 16;
layout(constant_id = ATTENTION_COOP_HEAD) const uint HEAD = 64;   // a multiple of K
layout(constant_id = ATTENTION_COOP_VALUE) const uint VALUE = 64; // a multiple of N
layout(constant_id = ATTENTION_COOP_KEYS) const uint KEYS = 32;   // a multiple of K and N
layout(constant_id = ATTENTION_COOP_AHEAD) const uint AHEAD = AHEAD_VALUES;
layout(constant_id = ATTENTION_COOP_O_TYPE) const uint O_TYPE = 0;
layout(constant_id = ATTENTION_COOP_K_VEC) const uint K_VEC = 1;
layout(constant_id = ATTENTION_COOP_V_VEC) const uint V_VEC = 1;
layout(constant_id = ATTENTION_COOP_GENERAL) const uint GENERAL = 0;
layout(constant_id = ATTENTION_COOP_PAGED) const uint IS_PAGED = 0;
layout(constant_id = ATTENTION_COOP_PIECES) const uint PIECES = 0;
layout(constant_id = ATTENTION_COOP_STATE) const uint STATE = 0;
const uint Q_TYPE = HALF_TYPE;
const uint K_TYPE = HALF_TYPE;
const uint V_TYPE = HALF_TYPE;
#define PAGED (IS_PAGED != 0)
const bool Q_MATRICES = (AHEAD & AHEAD_Q) != 0, KEYS_AHEAD = (AHEAD & AHEAD_KEYS) != 0;
const bool VALUES_AHEAD = (AHEAD & AHEAD_VALUES) != 0;

layout(local_size_x_id = ATTENTION_COOP_THREADS) in;

const uint ROWS = SUBGROUPS / COLUMNS * M;
#include "lib/tile.glsl"
layout(binding = 0) readonly buffer Q8 { uvec4 q_chunks[]; };
layout(binding = 1) readonly buffer Keys8 { uvec4 k_chunks[]; };
layout(binding = 2) readonly buffer Values8 { uvec4 v_chunks[]; };

const uint LANES = THREADS / SUBGROUPS;
const uint LINES = LANES / M;                    // lanes of a subgroup that share a row
const uint PARTS = LINES * COLUMNS;              // lanes that do
const uint PART_KEYS = KEYS / PARTS;             // keys of a step for one lane: 8, 16, 24 or 32
const uint KEY_MATRICES = KEYS / N / COLUMNS;    // matrices of scores of a subgroup
const uint VALUE_MATRICES = VALUE / N / COLUMNS; // matrices of its context
// A chunk is 8 elements, one uvec4. Rows are padded by one chunk, so that the rows of a matrix
// start in different banks.
const uint HEAD8 = HEAD / 8;
const uint VALUE8 = VALUE / 8;
const uint K_PITCH = HEAD8 + 1;
const uint V_PITCH = KEYS / 8 + 1;
const uint S_PITCH = KEYS / 4 + 1;
// Weights [row][8 keys] lie over the scores, unless other subgroups may still read those.
const uint W_AT = COLUMNS == 1 ? 0 : ROWS * S_PITCH;
const uint W_PITCH = COLUMNS == 1 ? S_PITCH : KEYS / 8 + 1;
const uint ZEROS_AT = ROWS * (COLUMNS == 1 ? S_PITCH : S_PITCH + W_PITCH);
// Of the stage: keys [key][chunk], values [feature][chunk of 8 keys], and q [row][chunk], which
// lies over both where it moves on to registers.
const uint V_STAGE = KEYS * K_PITCH;
const uint KV_STAGE = V_STAGE + VALUE * V_PITCH;
const uint Q_STAGE = Q_MATRICES ? 0 : KV_STAGE;
shared uvec4 stage[Q_STAGE + ROWS * K_PITCH > KV_STAGE ? Q_STAGE + ROWS * K_PITCH : KV_STAGE];
// Scores [row][4 keys]; weights; N zeros. At the end, the context [row][N features] of a matrix.
shared uvec4 scores[ZEROS_AT + N / 4];
shared float factors[ROWS]; // of the context of each row; its row_sum at the end
shared uint nonfinite[2]; // first and end key of the steps that had NaN or Inf among their values

#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>
#define LEFT coopmat<HALF, gl_ScopeSubgroup, M, K, gl_MatrixUseA>
#define RIGHT coopmat<HALF, gl_ScopeSubgroup, K, N, gl_MatrixUseB>
LEFT q_matrices[Q_MATRICES ? HEAD / K : 1];
ACCUMULATOR context[VALUE_MATRICES];

// Chunks of keys and values on their way to shared memory: constants alone index them. A lane takes
// one chunk of keys a turn, or one of VALUE_KEYS values each.
const uint VALUE_KEYS = KEYS / 4 * VALUE8 >= THREADS ? 4 : 2;
const uint VALUE_GROUPS = KEYS / VALUE_KEYS;
const uint K_TURNS = (KEYS * HEAD8 + THREADS - 1) / THREADS;
const uint V_TURNS = (VALUE_GROUPS * VALUE8 + THREADS - 1) / THREADS;
uvec4 k_ahead[K_TURNS], v_ahead[V_TURNS * VALUE_KEYS];

// Of this lane's row: row_max of all its keys, times log2(e); row_sum and `seen` of this lane's
// part of them.
float row_max, row_sum;
bool seen;

uint column() { return gl_SubgroupID % COLUMNS; }
uint first_lane_row() { return gl_SubgroupID / COLUMNS * M; } // of the tile
uint lane_row() { return first_lane_row() + gl_SubgroupInvocationID % M; }
uint part() { return column() * LINES + gl_SubgroupInvocationID / M; }

void subgroup_barrier_shared()
{
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
}

// Elements at .. at + 7 of a buffer of words, those past `count` as 0. No loop: see k_ahead.
#define GATHER_HALF(words, at, count, e)                                                           \
    ((e) < (count) ? half_bits(words[(at) + (e) >> 1], (at) + (e)) << 16 * ((e)&1) : 0u)
#define GATHER_PAIR(words, at, count, e)                                                           \
    (GATHER_HALF(words, at, count, e) | GATHER_HALF(words, at, count, e + 1))
#define GATHER(words, at, count)                                                                   \
    uvec4(GATHER_PAIR(words, at, count, 0), GATHER_PAIR(words, at, count, 2),                      \
          GATHER_PAIR(words, at, count, 4), GATHER_PAIR(words, at, count, 6))

// Stages q, with its sign changed where the scale is negative, by chunks where all rows begin and end at whole ones, else element by element.
void stage_q(sequence s)
{
    bool chunks = ((p.head_dim | p.q_offset | p.q_batch | p.q_head | p.q_row) & 7u) == 0;
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < ROWS * HEAD8; i += THREADS) {
        uint t = i / HEAD8, d = i % HEAD8 * 8, at = q_index(row_of(t), s) + d;
        uint end = min(p.head_dim - min(d, p.head_dim), 8);
        uvec4 x = uvec4(0);
        if (chunks && end != 0)
            x = q_chunks[at >> 3];
        else
            [[dont_unroll]] for (uint e = 0; e < end; e++)
                x[e >> 1] |= half_bits(q_words[at + e >> 1], at + e) << 16 * (e & 1);
        stage[Q_STAGE + t * K_PITCH + d / 8] = x ^ (p.scale < 0.0 ? 0x80008000u : 0u);
    }
    barrier();
    if (Q_MATRICES) {
        [[unroll]] for (uint h = 0; h < HEAD / K; h++)
            coopMatLoad(q_matrices[h], stage, first_lane_row() * K_PITCH + h * (K / 8), K_PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
        barrier(); // the stage is free for keys and values
    }
}

// Chunk of 8 elements at d of the row that begins at `at`; 0 past `dim`.
#define LOAD_CHUNK(x, chunks, words, at, d, dim, vec)                                              \
    if (vec == 2) {                                                                                \
        x = chunks[(at) + (d) >> 3];                                                               \
    } else {                                                                                       \
        uint first = (at) + (d), count = dim - min(d, dim);                                        \
        x = uvec4(0);                                                                              \
        if (vec == 0)                                                                              \
            x = GATHER(words, first, count);                                                       \
        else if (count != 0)                                                                       \
            x = chunks[first >> 3];                                                                \
    }

// Whether a turn takes whole rows of `per` chunks, so that a lane's chunks differ by their rows.
#define WHOLE_TURNS(per) (THREADS % (per) == 0 && !PAGED)

// Chunks of this lane's next turn: of keys, of values; those of the last row; from row to row.
uint k_at, v_at, k_last, v_last, k_step, v_step;

void begin_loads(uint key, sequence s)
{
    uint k = k_index(s.kv_first, s) >> 3, v = v_index(s.kv_first, s) >> 3;
    k_step = p.k_row >> 3;
    v_step = p.v_row >> 3;
    k += gl_LocalInvocationIndex % HEAD8;
    v += gl_LocalInvocationIndex / VALUE_GROUPS + first_value4 / 2;
    k_at = k + (key + gl_LocalInvocationIndex / HEAD8) * k_step;
    v_at = v + (key + gl_LocalInvocationIndex % VALUE_GROUPS * VALUE_KEYS) * v_step;
    k_last = k + (s.n_kv - 1) * k_step;
    v_last = v + (s.n_kv - 1) * v_step;
}

// Keys past the last are read as the last.
void load_keys(uint key, sequence s)
{
    uint i = gl_LocalInvocationIndex;
    if (K_VEC == 2 && WHOLE_TURNS(HEAD8)) {
        [[unroll]] for (uint j = 0; j < K_TURNS; j++)
            k_ahead[j] = k_chunks[min(k_at + j * (THREADS / HEAD8) * k_step, k_last)];
        return;
    }
    [[unroll]] for (uint j = 0; j < K_TURNS; j++) {
        uint x = min(j * THREADS + i, KEYS * HEAD8 - 1);
        uint k = min(key + x / HEAD8, s.n_kv - 1), d = x % HEAD8 * 8;
        LOAD_CHUNK(k_ahead[j], k_chunks, k_words, k_index(key_row(k, s), s), d, p.head_dim, K_VEC)
    }
}

void load_values(uint key, sequence s)
{
    uint i = gl_LocalInvocationIndex;
    if (V_VEC == 2 && WHOLE_TURNS(VALUE_GROUPS)) {
        [[unroll]] for (uint j = 0; j < V_TURNS * VALUE_KEYS; j++) {
            uint turn = j / VALUE_KEYS * (THREADS / VALUE_GROUPS);
            if (VALUE_GROUPS * VALUE8 % THREADS == 0 || i / VALUE_GROUPS + turn < VALUE8)
                v_ahead[j] = v_chunks[min(v_at + j % VALUE_KEYS * v_step, v_last) + turn];
        }
        return;
    }
    [[unroll]] for (uint j = 0; j < V_TURNS * VALUE_KEYS; j++) {
        uint x = j / VALUE_KEYS * THREADS + i;
        uint d = min(x / VALUE_GROUPS, VALUE8 - 1) * 8 + 4 * first_value4;
        uint k = min(key + x % VALUE_GROUPS * VALUE_KEYS + j % VALUE_KEYS, s.n_kv - 1);
        LOAD_CHUNK(v_ahead[j], v_chunks, v_words, v_index(key_row(k, s), s), d, p.value_dim, V_VEC)
    }
}

// Goes on to the step that begins at `key`.
void begin_next(uint key, sequence s)
{
    k_at += KEYS * k_step;
    v_at += KEYS * v_step;
    if (KEYS_AHEAD)
        load_keys(key, s);
}

void store_keys()
{
    [[unroll]] for (uint j = 0; j < K_TURNS; j++) {
        uint i = j * THREADS + gl_LocalInvocationIndex;
        if (KEYS * HEAD8 % THREADS == 0 || i < KEYS * HEAD8)
            stage[i / HEAD8 * K_PITCH + i % HEAD8] = k_ahead[j];
    }
}

uint low_halves(uint a, uint b)
{
    return packFloat2x16(f16vec2(unpackFloat2x16(a).x, unpackFloat2x16(b).x));
}

uint high_halves(uint a, uint b)
{
    return packFloat2x16(f16vec2(unpackFloat2x16(a).y, unpackFloat2x16(b).y));
}

// Writes word w of a chunk, features 2 w and 2 w + 1, of VALUE_KEYS values from v_ahead[j].
#define STORE_FEATURES(w)                                                                          \
    stage[at + 2 * w * V_PITCH][place] = low_halves(v_ahead[j][w], v_ahead[j + 1][w]);             \
    stage[at + (2 * w + 1) * V_PITCH][place] = high_halves(v_ahead[j][w], v_ahead[j + 1][w]);

// Pair of keys of v_ahead[j] and [j + 1], and the chunk of the stage that its first features go to.
uint value_pair(uint j)
{
    return gl_LocalInvocationIndex % VALUE_GROUPS * (VALUE_KEYS / 2) + j % VALUE_KEYS / 2;
}
uint value_place(uint j)
{
    uint i = j / VALUE_KEYS * THREADS + gl_LocalInvocationIndex;
    return V_STAGE + i / VALUE_GROUPS * 8 * V_PITCH + value_pair(j) / 4;
}

void store_values()
{
    [[unroll]] for (uint j = 0; j < V_TURNS * VALUE_KEYS; j += 2) {
        uint at = value_place(j), place = value_pair(j) % 4;
        if (VALUE_GROUPS * VALUE8 % THREADS == 0 || at < KV_STAGE) {
            STORE_FEATURES(0)
            STORE_FEATURES(1)
            STORE_FEATURES(2)
            STORE_FEATURES(3)
        }
    }
}

bool is_nonfinite(uint half_word) { return (half_word & HALF_INFINITY) == HALF_INFINITY; }

// Replaces NaN and Inf by 0 in both halves of a word.
uint finite(uint word)
{
    return (is_nonfinite(word & 0xffffu) ? 0u : word & 0xffffu) |
           (is_nonfinite(word >> 16) ? 0u : word & 0xffff0000u);
}

// For a step in which some row may not see some key: in what store_values of this lane wrote, NaN
// and Inf become 0, and `store` adds them to the rows that see their keys.
void clean_values(uint key)
{
    [[dont_unroll]] for (uint x = 0; x < V_TURNS * VALUE_KEYS * 4; x++) {
        uint pair = value_pair(x / 8 * 2), at = value_place(x / 8 * 2) + x % 8 * V_PITCH;
        if (at >= KV_STAGE)
            break;
        uint word = stage[at][pair % 4], y = finite(word);
        if (word != y) {
            atomicMin(nonfinite[0], key);
            atomicMax(nonfinite[1], key + KEYS);
            stage[at][pair % 4] = y;
        }
    }
}

// Waits for the subgroups that share rows.
void row_barrier()
{
    if (COLUMNS == 1)
        subgroup_barrier_shared();
    else
        barrier();
}

void score()
{
    uint mine = column() * KEY_MATRICES * N; // first key
    ACCUMULATOR sum[KEY_MATRICES];
    [[unroll]] for (uint n = 0; n < KEY_MATRICES; n++)
        sum[n] = ACCUMULATOR(0.0);
    [[unroll]] for (uint i = 0; i < HEAD / K * KEY_MATRICES; i++) { // one loop: see the array sum
        uint h = i / KEY_MATRICES, n = i % KEY_MATRICES;
        RIGHT b;
        coopMatLoad(b, stage, (mine + n * N) * K_PITCH + h * (K / 8), K_PITCH,
                    gl_CooperativeMatrixLayoutColumnMajor);
        LEFT a = q_matrices[Q_MATRICES ? h : 0];
        if (!Q_MATRICES)
            coopMatLoad(a, stage, Q_STAGE + first_lane_row() * K_PITCH + h * (K / 8), K_PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
        sum[n] = coopMatMulAdd(a, b, sum[n]);
    }
    [[unroll]] for (uint n = 0; n < KEY_MATRICES; n++)
        coopMatStore(sum[n], scores, first_lane_row() * S_PITCH + (mine + n * N) / 4, S_PITCH,
                     gl_CooperativeMatrixLayoutRowMajor);
}

// Applies biases to this lane's scores of a step, and makes them -Inf where keys are hidden.
void mask_scores(uint key, bool test, sequence s)
{
    uint t = lane_row(), first = part() * PART_KEYS, at = t * S_PITCH + first / 4;
    uvec2 range = ranges[t];
    subgroup_barrier_shared(); // the scores are there
    [[dont_unroll]] for (uint i = 0; i < PART_KEYS; i++) {
        uint k = key + first + i;
        bool visible = !test || (k >= range.x && k < range.y);
        float x = uintBitsToFloat(scores[at + i / 4][i % 4]);
        if (GENERAL != 0) {
            x *= abs(p.scale);
            if (visible)
                visible = bias_score(x, row_of(t), k, test, s);
        }
        scores[at + i / 4][i % 4] = floatBitsToUint(visible ? x : MINUS_INFINITY);
        seen = seen || visible;
    }
}

// Bits of this lane's keys whose weights dropout keeps.
uint kept_keys(uint key, sequence s)
{
    uint kept = 0;
    [[dont_unroll]] for (uint i = 0; i < PART_KEYS; i++)
        if (dropped(1.0, row_of(lane_row()), key + part() * PART_KEYS + i, s) != 0.0)
            kept |= 1u << i;
    return kept;
}

uint half_pair(float x, float y)
{
#ifdef BFLOAT16
    return bf16_from_float(x) | bf16_from_float(y) << 16;
#else
    return packFloat2x16(f16vec2(x, y));
#endif
}

// Largest score of this lane's row in a step, in the units of shared memory.
float find_max()
{
    uint at = lane_row() * S_PITCH + gl_SubgroupInvocationID / M * (COLUMNS * PART_KEYS / 4);
    vec4 top = vec4(MINUS_INFINITY);
    [[unroll]] for (uint i = 0; i < COLUMNS * PART_KEYS / 4; i++)
        top = max(top, uintBitsToFloat(scores[at + i]));
    float now = max(max(top.x, top.y), max(top.z, top.w));
    [[unroll]] for (uint lanes = M; lanes < LANES; lanes *= 2)
        now = max(now, subgroupShuffleXor(now, lanes));
    return now;
}

// One step of the online softmax: makes 16-bit weights of this lane's scores.
void weigh(uint key, sequence s)
{
    float scale = 1.44269504 * (GENERAL != 0 ? 1.0 : abs(p.scale)); // times log2(e)
    uint t = lane_row(), at = t * S_PITCH + part() * (PART_KEYS / 4);
    float now = max(row_max, scale * find_max());
    float shift = now == MINUS_INFINITY ? 0.0 : now; // no key yet: all weights are 0
    float factor = exp2(row_max - shift);
    vec4 x[PART_KEYS / 4], sum = vec4(0.0);
    row_max = now;
    [[unroll]] for (uint i = 0; i < PART_KEYS / 4; i++) {
        x[i] = exp2(fma(uintBitsToFloat(scores[at + i]), vec4(scale), vec4(UNIT_LOG2 - shift)));
        sum += x[i];
    }
    row_sum = fma(row_sum, factor, sum.x + sum.y + (sum.z + sum.w));
    if (GENERAL != 0 && p.dropout != 0.0) {
        uint kept = kept_keys(key, s);
        [[unroll]] for (uint i = 0; i < PART_KEYS / 4; i++)
            x[i] *= mix(vec4(0.0), vec4(1.0 / (1.0 - p.dropout)),
                        notEqual(uvec4(kept) & uvec4(1, 2, 4, 8) << 4 * i, uvec4(0)));
    }
    if (part() == 0)
        factors[t] = factor;
    if (COLUMNS == 1)
        subgroup_barrier_shared(); // the scores of the row have been read
    [[unroll]] for (uint i = 0; i < PART_KEYS / 8; i++)
        scores[W_AT + t * W_PITCH + part() * (PART_KEYS / 8) + i] =
            uvec4(half_pair(x[2 * i].x, x[2 * i].y), half_pair(x[2 * i].z, x[2 * i].w),
                  half_pair(x[2 * i + 1].x, x[2 * i + 1].y),
                  half_pair(x[2 * i + 1].z, x[2 * i + 1].w));
}

// The factor multiplies even where it is 1: Mesa 26's CPU driver makes errors in matrices that are
// set under a condition.
void add_values()
{
    uint rows = first_lane_row(), mine = column() * VALUE_MATRICES * N; // first feature
    ACCUMULATOR factor;
    LEFT a[KEYS / K];
    coopMatLoad(factor, factors, rows, 0, gl_CooperativeMatrixLayoutColumnMajor);
    [[unroll]] for (uint k = 0; k < KEYS / K; k++)
        coopMatLoad(a[k], scores, W_AT + rows * W_PITCH + k * (K / 8), W_PITCH,
                    gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint i = 0; i < KEYS / K * VALUE_MATRICES; i++) {
        uint j = i / (KEYS / K), k = i % (KEYS / K);
        RIGHT b;
        coopMatLoad(b, stage, V_STAGE + (mine + j * N) * V_PITCH + k * (K / 8), V_PITCH,
                    gl_CooperativeMatrixLayoutColumnMajor);
        if (k == 0)
            context[j] = context[j] * factor;
        context[j] = coopMatMulAdd(a[k], b, context[j]);
    }
}

bool is_visible(uint t, uint key, sequence s)
{
    float x = 0.0;
    return key >= ranges[t].x && key < ranges[t].y &&
           (GENERAL == 0 || bias_score(x, row_of(t), key, true, s));
}

// Sum of the NaN and Inf values that row t of the tile sees at a feature, in the steps that had
// some. The weight of a key that is seen is positive, unless dropout makes it 0.
float find_nonfinite(uint t, uint feature, sequence s)
{
    float x = 0.0;
    [[dont_unroll]] for (uint k = nonfinite[0]; k < nonfinite[1]; k++) {
        if (!is_visible(t, k, s))
            continue;
        uint at = v_index(key_row(k, s), s) + feature, bits = half_bits(v_words[at >> 1], at);
        if (is_nonfinite(bits))
            x = fma(dropped(1.0, row_of(t), k, s), decode(v_words[at >> 1], at, V_TYPE), x);
    }
    return x;
}

#define HIDDEN -1.0 // row_sum of a row that saw no key

// Chunk of 4 floats at which a matrix lies over the scores of this subgroup, and its element e.
uint matrix_at() { return first_lane_row() * S_PITCH + column() * (N / 4); }
#define MATRIX(e) scores[matrix_at() + (e) / N * S_PITCH + (e) % N / 4][(e) % 4]

// Feature of this workgroup at column c of this subgroup's matrix j.
uint feature_of(uint j, uint c) { return (column() * VALUE_MATRICES + j) * N + c; }

// Adds the matrix over the scores of this subgroup to matrix j of the context. Each matrix gets one
// added, which is 0 but for one: constants index the context, because some compilers keep an array
// that a loop indexes in memory, for the whole kernel.
void add_matrix(uint j)
{
    subgroup_barrier_shared();
    [[unroll]] for (uint i = 0; i < VALUE_MATRICES; i++) {
        ACCUMULATOR by;
        coopMatLoad(by, scores, i == j ? matrix_at() : ZEROS_AT, i == j ? S_PITCH : 0,
                    gl_CooperativeMatrixLayoutRowMajor);
        context[i] = context[i] + by;
    }
    subgroup_barrier_shared();
}

// One step; the keys after it begin at `next`.
void step(uint key, uint next, bool test, sequence s)
{
    if (!KEYS_AHEAD)
        load_keys(key, s);
    store_keys();
    barrier(); // keys are there; all have read the values before
    if (VALUES_AHEAD)
        load_values(key, s);
    score();
    seen = seen || (GENERAL == 0 && !test);
    if (GENERAL != 0 || test)
        mask_scores(key, test, s);
    row_barrier();
    weigh(key, s);
    if (!VALUES_AHEAD)
        load_values(key, s);
    store_values();
    if (test)
        clean_values(key);
    begin_next(next, s);
    barrier(); // values are there; all have read the keys
    add_values();
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
    uint t = lane_row(), sums = row_state(t) + VALUE;
    if (saw_key(t)) {
        float sum = saved(sums + part());
        seen = sum != HIDDEN;
        row_sum = seen ? sum : 0.0;
        row_max = saved(sums + PARTS);
    }
    [[dont_unroll]] for (uint j = 0; j < VALUE_MATRICES; j++) {
        for (uint e = gl_SubgroupInvocationID; e < M * N; e += LANES) {
            uint row = first_lane_row() + e / N, at = row_state(row) + feature_of(j, e % N);
            MATRIX(e) = saw_key(row) ? floatBitsToUint(saved(at)) : 0u;
        }
        add_matrix(j);
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

// Stores x, the context of row t of the tile at feature d of this workgroup.
void store(float x, uint t, uint d, uvec2 keys, sequence s)
{
    bool dead = factors[t] == HIDDEN, keep = (STATE & STATE_STORE) != 0;
    uint feature = 4 * first_value4 + d;
    if (feature < p.value_dim)
        x += find_nonfinite(t, feature, s);
    if (!keep && (first_row + t >= n_row || feature >= p.value_dim))
        return;
    if (dead) {
        vec4 before = (STATE & STATE_LOAD) != 0 ? saved4(row_state(t) + d / 4 * 4) : vec4(0.0);
        x = dead_context(row_of(t), keys, feature / 4, before, s)[d % 4];
    } else if (PIECES == 0 && !keep) {
        x /= factors[t];
    }
    if (keep) {
        o_words[row_state(t) + d] = floatBitsToUint(x);
        return;
    }
    uint at = output_base(t, s) + feature;
    if (PIECES != 0)
        o_words[at] = floatBitsToUint(x);
    else
        STORE(o_words, at, O_TYPE, one_nan(x))
}

// Adds row_sum over the parts of the row, and the sink; stores what a record has of a row.
void finish_row(uint t, sequence s)
{
    float natural_max = row_max * 0.69314718, sum = 0.0; // ln 2
    barrier(); // the scores are free
    scores[t * S_PITCH + part() / 4][part() % 4] = floatBitsToUint(seen ? row_sum : HIDDEN);
    barrier();
    seen = false;
    for (uint i = 0; i < PARTS; i++) {
        float x = uintBitsToFloat(scores[t * S_PITCH + i / 4][i % 4]);
        seen = seen || x != HIDDEN;
        sum += x == HIDDEN ? 0.0 : x;
    }
    if (seen && PIECES == 0 && mask_has(MASK_SINK))
        sum += UNIT * sink_weight(sinks[p.sink_offset + p.head_first + head_of(row_of(t))],
                                  natural_max);
    if (part() == 0)
        factors[t] = seen ? sum : HIDDEN;
    if (PIECES != 0 && (STATE & STATE_STORE) == 0 && first_row + t < n_row && part() == 0 &&
        first_value4 == 0)
        store_piece(output_base(t, s), natural_max, sum, seen, UNIT);
    barrier();
}

void store_rows(uvec2 keys, sequence s)
{
    if ((STATE & STATE_STORE) != 0)
        store_sums(lane_row());
    finish_row(lane_row(), s);
    [[dont_unroll]] for (uint j = 0; j < VALUE_MATRICES; j++) {
        [[unroll]] for (uint i = 0; i < VALUE_MATRICES; i++)
            if (i == j)
                coopMatStore(context[i], scores, matrix_at(), S_PITCH,
                             gl_CooperativeMatrixLayoutRowMajor);
        subgroup_barrier_shared();
        for (uint e = gl_SubgroupInvocationID; e < M * N; e += LANES)
            store(uintBitsToFloat(MATRIX(e)), first_lane_row() + e / N, feature_of(j, e % N), keys,
                  s);
        subgroup_barrier_shared();
    }
}

// Sets what of the grid's place does not depend on the device's memory.
void find_place()
{
    uint y = gl_WorkGroupID.y;
    first_value4 = y % p.n_chunk * (VALUE / 4);
    piece = p.piece_first + y / p.n_chunk % p.piece_count;
    work_head = y / p.n_chunk / p.piece_count;
}

void main()
{
    uint tile;
    find_place();
    sequence s = find_sequence(ROWS, tile);
    n_row = s.n_q * p.group;
    first_row = tile * ROWS;
    if (first_row >= n_row)
        return;
    set_slot(tile);
    row_max = MINUS_INFINITY; // no sink: weights are 16-bit, and the largest has to be 1
    row_sum = 0.0;
    seen = false;
    [[unroll]] for (uint j = 0; j < VALUE_MATRICES; j++)
        context[j] = ACCUMULATOR(0.0);
    if (gl_LocalInvocationIndex < 2)
        nonfinite[gl_LocalInvocationIndex] = gl_LocalInvocationIndex == 0 ? NO_KEY : 0;
    if (gl_LocalInvocationIndex < N / 4)
        scores[ZEROS_AT + gl_LocalInvocationIndex] = uvec4(0);
    stage_q(s);
    if ((STATE & STATE_LOAD) != 0)
        load_state();
    uvec4 bound = find_bounds(s);
    uvec2 keys = own_keys();
    uint end = min(bound.y, keys.y), begin = max(bound.x / KEYS * KEYS, keys.x);
    begin_loads(begin, s);
    if (KEYS_AHEAD && begin < end)
        load_keys(begin, s);
    for (uint key = begin; key < end; key += KEYS) {
        uint code = GENERAL != 0 ? map_code(tile, key) : MAP_SOME;
        bool test = key < bound.z || key + KEYS > bound.w || (code & MAP_TEST) != 0u;
        if ((code & MAP_SOME) != 0u)
            step(key, key + KEYS, test, s);
        else
            begin_next(key + KEYS, s);
    }
    store_rows(keys, s);
}
