// Fused attention on matrices of a size that the kernel chooses, with reductions over their rows:
// 16-bit q, k and v of one type, float32 scores, sums and softmax. A subgroup takes M rows. Their
// q, scores, weights and context stay in its matrices: only keys and values go through shared
// memory, which all subgroups of the workgroup share. Rows, keys, splits and masks as in
// attention_tile.comp; loads run ahead as in attention_coop.comp. See attention_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
// Two extensions have the same functions, the one of all vendors for Vulkan 1.1 too.
#ifdef MATRIX_EXT
#extension GL_EXT_cooperative_matrix_maintenance1 : require
#define coopMatPerElement coopMatPerElementEXT
#define coopMatReduce coopMatReduceEXT
#define REDUCE_ROW gl_CooperativeMatrixReduceRowEXT
#else
#extension GL_NV_cooperative_matrix2 : require
#define coopMatPerElement coopMatPerElementNV
#define coopMatReduce coopMatReduceNV
#define REDUCE_ROW gl_CooperativeMatrixReduceRowNV
#endif
#include "attention/coop_type.glsl"
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"
#include "lib/philox.glsl"

layout(constant_id = COOP2_THREADS) const uint THREADS = 128;
layout(constant_id = COOP2_SUBGROUPS) const uint SUBGROUPS = 4;
layout(constant_id = COOP2_M) const uint M = 16; // rows of a matrix; at most 32, see seen_bits
layout(constant_id = COOP2_N) const uint N = 16; // keys or features of one
layout(constant_id = COOP2_HEAD) const uint HEAD = 64;   // a multiple of N
layout(constant_id = COOP2_VALUE) const uint VALUE = 64; // a multiple of N
layout(constant_id = COOP2_KEYS) const uint KEYS = 32;   // a multiple of N
layout(constant_id = COOP2_AHEAD) const uint AHEAD = AHEAD_VALUES;
layout(constant_id = COOP2_O_TYPE) const uint O_TYPE = 0;
layout(constant_id = COOP2_K_VEC) const uint K_VEC = 1;
layout(constant_id = COOP2_V_VEC) const uint V_VEC = 1;
layout(constant_id = COOP2_GENERAL) const uint GENERAL = 0;
layout(constant_id = COOP2_PAGED) const uint IS_PAGED = 0;
layout(constant_id = COOP2_SPLITS) const uint SPLITS = 0;
layout(constant_id = COOP2_STATE) const uint STATE = 0;
layout(constant_id = COOP2_LOG_SUM) const uint LOG_SUM = 0;
const uint Q_TYPE = HALF_TYPE;
const uint K_TYPE = HALF_TYPE;
const uint V_TYPE = HALF_TYPE;
#define PAGED (IS_PAGED != 0)
const bool KEYS_AHEAD = (AHEAD & AHEAD_KEYS) != 0, VALUES_AHEAD = (AHEAD & AHEAD_VALUES) != 0;

layout(local_size_x_id = COOP2_THREADS) in;

const uint ROWS = SUBGROUPS * M;
#include "lib/tile.glsl"
layout(binding = 0) readonly buffer Q8 { uvec4 q_vectors[]; };
layout(binding = 1) readonly buffer Keys8 { uvec4 k_vectors[]; };
layout(binding = 2) readonly buffer Values8 { uvec4 v_vectors[]; };

const uint LANES = THREADS / SUBGROUPS;
// What attention/coop_stage.glsl and coop_store.glsl ask of their includers: each lane of a row has
// the keys of a column of the matrices of scores, and each subgroup all features.
#define K N
const uint ROW_LANES = N;
const uint VALUE_MATRICES = VALUE / N;
const bool Q_MATRICES = true;
uint column() { return 0; }
uint first_lane_row() { return gl_SubgroupID * M; } // of the tile
// A vector is 8 elements, one uvec4. Rows are padded by one vector, so that the rows of a matrix
// start in different banks.
const uint HEAD8 = HEAD / 8;
const uint VALUE8 = VALUE / 8;
const uint K_PITCH = HEAD8 + 1;
const uint V_PITCH = VALUE8 + 1;
const uint S_PITCH = N / 4 + 1;
const uint ZEROS_AT = ROWS * S_PITCH;
// The stage has keys [key][vector] and values [key][vector]; before them, q [row][vector].
#define VALUES_BY_KEY
const uint Q_STAGE = 0;
const uint V_STAGE = KEYS * K_PITCH;
const uint KV_STAGE = V_STAGE + KEYS * V_PITCH;
const uint X_PITCH = KEYS / 4 + 1; // GENERAL: of scores or weights, in the place of keys and values
const uint Q_END = ROWS * K_PITCH, X_END = GENERAL != 0 ? ROWS * X_PITCH : 0;
const uint LOADS_END = Q_END > KV_STAGE ? Q_END : KV_STAGE;
const uint FILLED = LOADS_END > X_END ? LOADS_END : X_END;
shared uvec4 stage[FILLED > ZEROS_AT + N / 4 ? FILLED : ZEROS_AT + N / 4];
// Before and after the keys, for coop_store.glsl: a matrix [row][N floats] of each subgroup; N zeros.
#define scores stage
const uint S_AT = 0;
shared float factors[ROWS]; // row_sum of each row at the end
shared uint nonfinite[2];   // first and end key of the steps that had NaN or Inf among their values
shared uint seen_rows[SUBGROUPS]; // GENERAL: a bit for each row of a subgroup that saw a key

#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>
#define LEFT coopmat<HALF, gl_ScopeSubgroup, M, K, gl_MatrixUseA>
#define RIGHT coopmat<HALF, gl_ScopeSubgroup, K, N, gl_MatrixUseB>
LEFT q_matrices[HEAD / N], weights[KEYS / N];
ACCUMULATOR context[VALUE_MATRICES], x[KEYS / N]; // x: scores of a step, then weights
// row_max: see coop_type.glsl, the same in all columns, NO_MAX at least. row_sum: of the keys in a column.
ACCUMULATOR row_max, row_sum;
// The maximum of a row without a key so far, whose scores are all -Inf: finite, so that weights are 0.
#define NO_MAX uintBitsToFloat(0xff7fffffu)
float scale; // of a step's scores, times log2(e)
uint seen_bits; // GENERAL: a bit for each row of which this lane had an element that is seen

void subgroup_barrier_shared()
{
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
}

#include "attention/coop_stage.glsl"

void score()
{
    [[unroll]] for (uint n = 0; n < KEYS / N; n++)
        x[n] = ACCUMULATOR(0.0);
    [[unroll]] for (uint i = 0; i < HEAD / N * (KEYS / N); i++) { // one loop: see the array x
        uint h = i / (KEYS / N), n = i % (KEYS / N);
        RIGHT b;
        coopMatLoad(b, stage, n * N * K_PITCH + h * (N / 8), K_PITCH,
                    gl_CooperativeMatrixLayoutColumnMajor);
        x[n] = coopMatMulAdd(q_matrices[h], b, x[n]);
    }
}

// Functions of elements, with their rows and columns in a matrix.

#define AT const in uint row, const in uint col

// A score, -Inf where its key is hidden. key: of column 0.
float masked_element(AT, const in float score, const in uint key)
{
    uvec2 range = ranges[first_lane_row() + row];
    return key + col >= range.x && key + col < range.y ? score : MINUS_INFINITY;
}

float larger(const in float a, const in float b) { return max(a, b); }
float larger_element(AT, const in float a, const in float b) { return max(a, b); }

float factor_element(AT, const in float before, const in float now, const in float scale)
{
    return exp2(GENERAL != 0 ? (before - now) * scale : before - now);
}

float weight_element(AT, const in float y, const in float top, const in float scale)
{
    return exp2(GENERAL != 0 ? fma(y - top, scale, COOP_LOG2) : fma(y, scale, COOP_LOG2 - top));
}

void mask_scores(uint key)
{
    [[unroll]] for (uint n = 0; n < KEYS / N; n++)
        coopMatPerElement(x[n], x[n], masked_element, key + n * N);
}

#include "attention/coop2_general.glsl"

// One step of the online softmax: makes 16-bit weights of the scores, and makes the context and
// row_sum relative to the new row_max. No more matrices of a row's values live at a time than must:
// with context, q and scores they fill the registers. The factor multiplies even where it is 1: Mesa
// 26's CPU driver makes errors in matrices that are set under a condition.
void weigh(uint key, sequence s)
{
    ACCUMULATOR now = x[0];
    [[unroll]] for (uint n = 1; n < KEYS / N; n++)
        coopMatPerElement(now, now, larger_element, x[n]);
    coopMatReduce(now, now, REDUCE_ROW, larger);
    if (GENERAL == 0)
        now = now * scale;
    coopMatPerElement(now, now, larger_element, row_max);
    coopMatPerElement(row_max, row_max, factor_element, now, scale); // the factor
    precise ACCUMULATOR kept_sum = row_sum * row_max; // key chunks give the bits of all at once
    row_sum = kept_sum;
    [[unroll]] for (uint j = 0; j < VALUE_MATRICES; j++)
        context[j] = context[j] * row_max;
    row_max = now;
    [[unroll]] for (uint n = 0; n < KEYS / N; n++) {
        coopMatPerElement(x[n], x[n], weight_element, row_max, scale);
        row_sum = row_sum + x[n];
    }
    if (GENERAL != 0 && p.dropout != 0.0)
        drop_weights(key, s);
    [[unroll]] for (uint n = 0; n < KEYS / N; n++)
        weights[n] = LEFT(x[n]);
}

// All products of one matrix of weights in turn, as none needs the sum of the one before.
void add_values()
{
    [[unroll]] for (uint i = 0; i < KEYS / N * VALUE_MATRICES; i++) {
        uint k = i / VALUE_MATRICES, j = i % VALUE_MATRICES;
        RIGHT b;
        coopMatLoad(b, stage, V_STAGE + k * N * V_PITCH + j * (N / 8), V_PITCH,
                    gl_CooperativeMatrixLayoutRowMajor);
        context[j] = coopMatMulAdd(weights[k], b, context[j]);
    }
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
    if (GENERAL != 0) {
        barrier(); // all have read the keys
        bias_scores(key, test, s);
    } else if (test)
        mask_scores(key);
    weigh(key, s);
    if (!VALUES_AHEAD)
        load_values(key, s);
    if (GENERAL != 0)
        barrier(); // all have taken their elements
    store_values();
    if (test)
        clean_values(key);
    begin_next(next, s);
    barrier(); // values are there; all have read the keys
    add_values();
}

#include "attention/coop_store.glsl"
#include "attention/coop2_sums.glsl"

void start(sequence s)
{
    row_max = ACCUMULATOR(NO_MAX); // no sink: as in attention_coop.comp
    row_sum = ACCUMULATOR(0.0);
    scale = 1.44269504 * (GENERAL != 0 ? 1.0 : abs(p.scale)); // once: barriers keep it in the loop
    seen_bits = 0;
    [[unroll]] for (uint j = 0; j < VALUE_MATRICES; j++)
        context[j] = ACCUMULATOR(0.0);
    if (gl_LocalInvocationIndex < 2)
        nonfinite[gl_LocalInvocationIndex] = gl_LocalInvocationIndex == 0 ? NO_KEY : 0;
    if (gl_SubgroupInvocationID == 0)
        seen_rows[gl_SubgroupID] = 0;
    stage_q(s);
    if ((STATE & STATE_LOAD) != 0) {
        if (gl_LocalInvocationIndex < N / 4)
            scores[ZEROS_AT + gl_LocalInvocationIndex] = uvec4(0);
        barrier();
        load_state();
        barrier(); // the stage is free for keys and values
    }
}

void main()
{
    uint tile, y = gl_WorkGroupID.y;
    first_value4 = y % p.n_feature_tile * (VALUE / 4);
    split = p.split_first + y / p.n_feature_tile % p.split_count;
    work_head = y / p.n_feature_tile / p.split_count;
    sequence s = find_sequence(ROWS, tile);
    n_row = s.n_q * p.group;
    first_row = tile * ROWS;
    if (first_row >= n_row || is_behind(s))
        return;
    set_slot(tile);
    start(s);
    uvec4 bound = find_bounds(s);
    uvec2 keys = own_keys();
    uint end = min(bound.y, keys.y), begin = max(bound.x / KEYS * KEYS, keys.x);
    begin_loads(begin, s);
    if (KEYS_AHEAD && begin < end)
        load_keys(begin, s);
    [[dont_unroll]] for (uint key = begin; key < end; key += KEYS) {
        uint code = GENERAL != 0 ? map_code(tile, key) : MAP_SOME;
        bool test = key < bound.z || key + KEYS > bound.w || (code & MAP_TEST) != 0u;
        if ((code & MAP_SOME) != 0u)
            step(key, key + KEYS, test, s);
        else
            begin_next(key + KEYS, s);
    }
    barrier(); // the stage is free for scores
    store_rows(keys, s);
}
