// Fused attention on the device's matrix units: 16-bit q, k and v of one type, float32 scores, sums
// and softmax. COLUMNS subgroups take M rows: each scores some of the keys of a step, weighs
// some, and adds some of the value features. The context stays in matrices, and q too where
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
#include "attention/coop_type.glsl"
#include "params/params.h"
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
layout(constant_id = ATTENTION_COOP_SPLITS) const uint SPLITS = 0;
layout(constant_id = ATTENTION_COOP_STATE) const uint STATE = 0;
layout(constant_id = ATTENTION_COOP_LOG_SUM) const uint LOG_SUM = 0;
const uint Q_TYPE = HALF_TYPE;
const uint K_TYPE = HALF_TYPE;
const uint V_TYPE = HALF_TYPE;
#define PAGED (IS_PAGED != 0)
const bool Q_MATRICES = (AHEAD & AHEAD_Q) != 0, KEYS_AHEAD = (AHEAD & AHEAD_KEYS) != 0;
const bool VALUES_AHEAD = (AHEAD & AHEAD_VALUES) != 0, ONE_STAGE = (AHEAD & AHEAD_ONE_STAGE) != 0;

layout(local_size_x_id = ATTENTION_COOP_THREADS) in;

const uint ROWS = SUBGROUPS / COLUMNS * M;
#include "lib/tile.glsl"
layout(binding = 0) readonly buffer Q8 { uvec4 q_vectors[]; };
layout(binding = 1) readonly buffer Keys8 { uvec4 k_vectors[]; };
layout(binding = 2) readonly buffer Values8 { uvec4 v_vectors[]; };

const uint LANES = THREADS / SUBGROUPS;
const uint LINES = LANES / M;                    // lanes of a subgroup that share a row
const uint ROW_LANES = LINES * COLUMNS;              // lanes that do
const uint LANE_KEYS = KEYS / ROW_LANES;             // keys of a step for one lane: 8, 16, 24 or 32
const uint KEY_MATRICES = KEYS / N / COLUMNS;    // matrices of scores of a subgroup
const uint VALUE_MATRICES = VALUE / N / COLUMNS; // matrices of its context
// A vector is 8 elements, one uvec4. Rows are padded by one vector, so that the rows of a matrix
// start in different banks.
const uint HEAD8 = HEAD / 8;
const uint VALUE8 = VALUE / 8;
const uint K_PITCH = HEAD8 + 1;
const uint V_PITCH = KEYS / 8 + 1;
const uint S_PITCH = KEYS / 4 + 1;
// Shared memory holds keys [key][vector], values [feature][vector of 8 keys], q [row][vector], which
// lies over both where it moves on to registers, scores [row][4 keys], weights [row][8 keys] and N
// zeros; at the end, over the scores, the context [row][N features] of a matrix. In ONE_STAGE scores
// lie over the keys, and values over both. Weights lie over the scores, unless other subgroups may
// still read those.
const bool WEIGHTS_APART = COLUMNS > 1 || ONE_STAGE;
const uint W_PITCH = WEIGHTS_APART ? KEYS / 8 + 1 : S_PITCH;
const uint K_END = KEYS * K_PITCH, S_VECTORS = ROWS * S_PITCH;
const uint V_STAGE = ONE_STAGE ? 0 : K_END;
const uint V_END = V_STAGE + VALUE * V_PITCH;
const uint KV_END = V_END > K_END ? V_END : K_END;
const uint STEP_END = ONE_STAGE && S_VECTORS > KV_END ? S_VECTORS : KV_END;
const uint Q_STAGE = Q_MATRICES ? 0 : STEP_END;
const uint Q_END = Q_STAGE + ROWS * K_PITCH > STEP_END ? Q_STAGE + ROWS * K_PITCH : STEP_END;
const uint S_AT = ONE_STAGE ? 0 : Q_END;
const uint W_AT = ONE_STAGE ? Q_END : WEIGHTS_APART ? S_AT + S_VECTORS : S_AT;
const uint ZEROS_AT = WEIGHTS_APART ? W_AT + ROWS * W_PITCH : S_AT + S_VECTORS;
shared uvec4 stage[ZEROS_AT + N / 4];
#define scores stage
shared vec4 factors[ROWS / 4]; // of the context of each row; its row_sum at the end
#define FACTOR(t) factors[(t) / 4][(t) % 4] // matrices are loaded from multiples of 16 bytes
shared sequence kept; // ONE_STAGE: what is wanted after the last step, for it takes registers
shared uint nonfinite[2]; // first and end key of the steps that had NaN or Inf among their values

#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>
#define LEFT coopmat<HALF, gl_ScopeSubgroup, M, K, gl_MatrixUseA>
#define RIGHT coopmat<HALF, gl_ScopeSubgroup, K, N, gl_MatrixUseB>
LEFT q_matrices[Q_MATRICES ? HEAD / K : 1];
ACCUMULATOR context[VALUE_MATRICES];

// What this lane's row has: row_max of all its keys, see coop_type.glsl; row_sum and `seen` of the keys
// that this lane takes.
float row_max, row_sum;
bool seen;

uint column() { return gl_SubgroupID % COLUMNS; }
uint first_lane_row() { return gl_SubgroupID / COLUMNS * M; } // of the tile
uint lane_row() { return first_lane_row() + gl_SubgroupInvocationID % M; }
uint row_lane() { return column() * LINES + gl_SubgroupInvocationID / M; }

void subgroup_barrier_shared()
{
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
}

// Few rows read keys and values once, from memory; tiles of many share them in a cache.
#define VALUE_BESIDE (ROWS <= 16 ? 4u : 1u)
#include "attention/coop_lane_q.glsl"
#include "attention/coop_stage.glsl"

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
            a = staged_q(h);
        sum[n] = coopMatMulAdd(a, b, sum[n]);
    }
    if (ONE_STAGE)
        barrier(); // all have read the keys
    [[unroll]] for (uint n = 0; n < KEY_MATRICES; n++)
        coopMatStore(sum[n], scores, S_AT + first_lane_row() * S_PITCH + (mine + n * N) / 4,
                     S_PITCH, gl_CooperativeMatrixLayoutRowMajor);
}

// Applies biases to this lane's scores of a step, and makes them -Inf where keys are hidden.
void mask_scores(uint key, bool test, sequence s)
{
    uint t = lane_row(), first = row_lane() * LANE_KEYS, at = S_AT + t * S_PITCH + first / 4;
    uvec2 range = ranges[t];
    subgroup_barrier_shared(); // the scores are there
    [[dont_unroll]] for (uint i = 0; i < LANE_KEYS; i++) {
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
    [[dont_unroll]] for (uint i = 0; i < LANE_KEYS; i++)
        if (dropped(1.0, row_of(lane_row()), key + row_lane() * LANE_KEYS + i, s) != 0.0)
            kept |= 1u << i;
    return kept;
}

// Largest score of this lane's row in a step, in the units of shared memory.
float find_max()
{
    uint at = S_AT + lane_row() * S_PITCH + gl_SubgroupInvocationID / M * (COLUMNS * LANE_KEYS / 4);
    vec4 top = vec4(MINUS_INFINITY);
    [[unroll]] for (uint i = 0; i < COLUMNS * LANE_KEYS / 4; i++)
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
    uint t = lane_row(), at = S_AT + t * S_PITCH + row_lane() * (LANE_KEYS / 4);
    float now = max(row_max, GENERAL != 0 ? find_max() : scale * find_max());
    float shift = now == MINUS_INFINITY ? 0.0 : now; // no key yet: all weights are 0
    float factor = exp2(GENERAL != 0 ? (row_max - shift) * scale : row_max - shift);
    vec4 x[LANE_KEYS / 4], sum = vec4(0.0);
    row_max = now;
    [[unroll]] for (uint i = 0; i < LANE_KEYS / 4; i++) {
        vec4 y = uintBitsToFloat(scores[at + i]);
        x[i] = exp2(GENERAL != 0 ? fma(y - shift, vec4(scale), vec4(COOP_LOG2))
                                 : fma(y, vec4(scale), vec4(COOP_LOG2 - shift)));
        sum += x[i];
    }
    row_sum = fma(row_sum, factor, sum.x + sum.y + (sum.z + sum.w));
    if (GENERAL != 0 && p.dropout != 0.0) {
        uint kept = kept_keys(key, s);
        [[unroll]] for (uint i = 0; i < LANE_KEYS / 4; i++)
            x[i] *= mix(vec4(0.0), vec4(1.0 / (1.0 - p.dropout)),
                        notEqual(uvec4(kept) & uvec4(1, 2, 4, 8) << 4 * i, uvec4(0)));
    }
    if (row_lane() == 0)
        FACTOR(t) = factor;
    if (COLUMNS == 1)
        subgroup_barrier_shared(); // the scores of the row have been read
    [[unroll]] for (uint i = 0; i < LANE_KEYS / 8; i++)
        scores[W_AT + t * W_PITCH + row_lane() * (LANE_KEYS / 8) + i] =
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
    coopMatLoad(factor, factors, rows / 4, 0, gl_CooperativeMatrixLayoutColumnMajor);
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

// One step; the keys after it begin at `next`.
void step(uint key, uint next, bool test, sequence s)
{
    if (!KEYS_AHEAD)
        load_keys(key, s);
    if (ONE_STAGE)
        barrier(); // all have read the values before
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
    if (ONE_STAGE)
        barrier(); // all have read the scores
    store_values();
    if (test)
        clean_values(key);
    begin_next(next, s);
    barrier(); // values are there; all have read the keys
    add_values();
}

#include "attention/coop_store.glsl"
#include "attention/coop_sums.glsl"

// Sets what of the grid's place does not depend on the device's memory.
void find_place()
{
    uint y = gl_WorkGroupID.y;
    first_value4 = y % p.n_feature_tile * (VALUE / 4);
    split = p.split_first + y / p.n_feature_tile % p.split_count;
    work_head = y / p.n_feature_tile / p.split_count;
}

void main()
{
    uint tile;
    find_place();
    sequence s = find_sequence(ROWS, tile);
    n_row = s.n_q * p.group;
    first_row = tile * ROWS;
    if (first_row >= n_row || is_behind(s))
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
    if (ONE_STAGE && gl_LocalInvocationIndex == 0)
        kept = s;
    stage_q(s);
    spread_q();
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
    if (ONE_STAGE)
        s = kept;
    store_rows(keys, s);
}
