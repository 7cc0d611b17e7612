// Fused attention of few query rows, for GPUs. Every key and value is read once for all rows, 16
// bytes a load and BATCH loads at a time, straight to registers. An invocation scores two keys of a
// step for every row, so that a read of q serves both; then it adds one vector of features of every
// GROUPS-th value of the step.
//
// Rows, keys, splits and masks as in attention_tile.comp: the bits of a row depend on that row
// alone. See attention_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "params/params.h"
#define UNPACK_HALF
#include "lib/dtype.glsl"
#include "lib/math.glsl"
#include "lib/philox.glsl"

layout(constant_id = DECODE_ROWS) const uint ROWS = 4;
layout(constant_id = DECODE_K_VECTORS) const uint K_VECTORS = 16;
layout(constant_id = DECODE_V_VECTORS) const uint V_VECTORS = 16;
layout(constant_id = DECODE_Q_TYPE) const uint Q_TYPE = 0;
layout(constant_id = DECODE_K_TYPE) const uint K_TYPE = 0;
layout(constant_id = DECODE_V_TYPE) const uint V_TYPE = 0;
layout(constant_id = DECODE_O_TYPE) const uint O_TYPE = 0;
layout(constant_id = DECODE_K_VEC) const uint K_VEC = 1;
layout(constant_id = DECODE_V_VEC) const uint V_VEC = 1;
layout(constant_id = DECODE_GENERAL) const uint GENERAL = 0;
layout(constant_id = DECODE_PAGED) const uint IS_PAGED = 0;
layout(constant_id = DECODE_SPLITS) const uint SPLITS = 0;
layout(constant_id = DECODE_STATE) const uint STATE = 0;
layout(constant_id = DECODE_BATCH) const uint BATCH = 8; // loads at a time: even
layout(constant_id = DECODE_LOG_SUM) const uint LOG_SUM = 0;
#define PAGED (IS_PAGED != 0)

layout(local_size_x = DECODE_THREADS) in;

const uint THREADS = DECODE_THREADS;
const uint KEYS = DECODE_KEYS; // lane i scores keys i and i + THREADS of a step
#include "lib/tile.glsl"
layout(binding = 1) readonly buffer KeyVectors { uvec4 k_vectors[]; };
layout(binding = 2) readonly buffer ValueVectors { uvec4 v_vectors[]; };

#define HIDDEN -1.0 // weight of a hidden key, whose value, maybe NaN, is not added
const uint K_FOURS = WORD_VALUES(K_TYPE); // vec4 of a vector
const uint V_FOURS = V_TYPE == TYPE_F32 ? 1 : 2; // more would need more registers for the context
const bool K_BLOCKS = IS_SCALED(K_TYPE), V_BLOCKS = IS_SCALED(V_TYPE);
const uint WEIGHTS4 = (ROWS + 3) / 4;        // vec4 of the weights of a key
const uint GROUPS = THREADS / V_VECTORS;      // lanes V_VECTORS * g .. are group g
const bool EXACT = THREADS % V_VECTORS == 0 && KEYS % GROUPS == 0; // every lane has its values
const uint OWN_VALUES = (KEYS + GROUPS - 1) / GROUPS; // values of a step for one lane
const uint VALUE = 4 * V_VECTORS * V_FOURS;

shared vec4 q_tile[K_VECTORS * K_FOURS * ROWS]; // [vec4][row]
shared vec4 weights[KEYS * WEIGHTS4];          // [key][row]
shared uint v_rows[PAGED ? KEYS : 4];          // first element of each value of a step
shared float subgroups[ROWS * DECODE_SUBGROUPS]; // [row][subgroup]: a maximum; then sums
shared float contexts[THREADS * 4 * V_FOURS];    // [lane][feature] of one row

// Float32 results need sums of two levels, for the reason at MATMUL_BLOCK: `context` is that of a
// step, and `before` of the steps before. Else `context` is that of all steps.
const bool STEP_SUMS = O_TYPE == TYPE_F32;
vec4 context[ROWS * V_FOURS], before[ROWS * V_FOURS];
float x[2 * ROWS], row_max[ROWS], row_sum[ROWS]; // x: [key][row] scores of this lane's keys
float shrink[ROWS];                          // factor of the context of the steps before
uint seen, hidden; // bit r: row r saw a key of this lane; bit e * ROWS + r: it does not see key e

uint lane() { return gl_LocalInvocationIndex; }
uint vector() { return lane() % V_VECTORS; }
uint group() { return lane() / V_VECTORS; }

// Vec4 i of a vector, of a quantised one without the scale.
vec4 four_of(uvec4 words, uint i, uint type)
{
    if (type == TYPE_F32)
        return uintBitsToFloat(words);
    if (IS_SCALED(type)) {
        uint word = words[4 * i / WORD_VALUES(type)], first = 4 * i % WORD_VALUES(type);
        return vec4(stored_value(word, first, type), stored_value(word, first + 1, type),
                    stored_value(word, first + 2, type), stored_value(word, first + 3, type));
    }
    return decode4(i == 0 ? words.xy : words.zw, type);
}

// Vector c of a row that begins at element `base` and has `dim`, where vectors are not aligned.
#define GATHER(words, base, c, dim, type, vector_words)                                            \
    [[unroll]] for (uint e = 0; e < (type == TYPE_F32 ? 4 : 8); e++) {                             \
        uint feature_ = c * (type == TYPE_F32 ? 4 : 8) + e, at_ = base + feature_;                 \
        if (feature_ < dim && type == TYPE_F32)                                                    \
            vector_words[e] = words[at_];                                                          \
        else if (feature_ < dim)                                                                   \
            vector_words[e / 2] |= half_bits(words[at_ >> 1], at_) << (16 * (e & 1));              \
    }

uvec4 k_vector(uint base, uint c)
{
    if (K_VEC != 0 || IS_SCALED(K_TYPE))
        return k_vectors[base / (4 * K_FOURS) + c];
    uvec4 words = uvec4(0);
    GATHER(k_words, base, c, p.head_dim, K_TYPE, words)
    return words;
}

uvec4 v_vector(uint base, uint c)
{
    if (V_TYPE == TYPE_Q8_0 || IS_HEAD_SCALED(V_TYPE))
        return uvec4(v_words2[base / 8 + c], 0, 0);
    if (V_TYPE == TYPE_Q4_0)
        return uvec4(v_words[base / 8 + c], 0, 0, 0);
    if (V_VEC != 0)
        return v_vectors[base / (4 * V_FOURS) + c];
    uvec4 words = uvec4(0);
    GATHER(v_words, base, c, p.value_dim, V_TYPE, words)
    return words;
}

// Scales of vector c of the quantised key or value at `base`.
float k_scale(uint base, uint c)
{
    return CACHED_SCALE(k_words, p.k_scales, (base + 4 * K_FOURS * c), K_TYPE);
}

float v_scale(uint base, uint c)
{
    return CACHED_SCALE(v_words, p.v_scales, (base + 4 * V_FOURS * c), V_TYPE);
}

void stage_q(sequence s)
{
    for (uint i = lane(); i < K_VECTORS * K_FOURS * ROWS; i += THREADS)
        q_tile[i] = load_q(row_of(i % ROWS), i / ROWS, s);
}

float add_dot(vec4 q, vec4 k, float sum)
{
    return fma(q.w, k.w, fma(q.z, k.z, fma(q.y, k.y, fma(q.x, k.x, sum))));
}

// Adds the products of vectors first .. first + n - 1 of the keys at `base`. n is a constant.
void add_vectors(uvec2 base, uint first, uint n)
{
    uvec4 words[BATCH / 2], words2[BATCH / 2];
    float scale[BATCH / 2], scale2[BATCH / 2], y[2 * ROWS]; // y: sums of a vector, without scale
    [[unroll]] for (uint i = 0; i < BATCH / 2; i++)
        if (i < n) {
            words[i] = k_vector(base.x, first + i);
            words2[i] = k_vector(base.y, first + i);
            scale[i] = K_BLOCKS ? k_scale(base.x, first + i) : 1.0;
            scale2[i] = K_BLOCKS ? k_scale(base.y, first + i) : 1.0;
        }
    [[unroll]] for (uint i = 0; i < BATCH / 2 * K_FOURS; i++)
        if (i < n * K_FOURS) {
            vec4 k = four_of(words[i / K_FOURS], i % K_FOURS, K_TYPE);
            vec4 k2 = four_of(words2[i / K_FOURS], i % K_FOURS, K_TYPE);
            [[unroll]] for (uint r = 0; r < ROWS; r++) {
                vec4 q = q_tile[(first * K_FOURS + i) * ROWS + r];
                bool begins = i % K_FOURS == 0, ends = i % K_FOURS == K_FOURS - 1;
                if (K_BLOCKS) {
                    y[r] = add_dot(q, k, begins ? 0.0 : y[r]);
                    y[ROWS + r] = add_dot(q, k2, begins ? 0.0 : y[ROWS + r]);
                } else {
                    x[r] = add_dot(q, k, x[r]);
                    x[ROWS + r] = add_dot(q, k2, x[ROWS + r]);
                }
                if (K_BLOCKS && ends) {
                    x[r] = fma(y[r], scale[i / K_FOURS], x[r]);
                    x[ROWS + r] = fma(y[ROWS + r], scale2[i / K_FOURS], x[ROWS + r]);
                }
            }
        }
}

void score(uvec2 base)
{
    const uint n = BATCH / 2;
    [[unroll]] for (uint i = 0; i < 2 * ROWS; i++)
        x[i] = 0.0;
    [[dont_unroll]] for (uint c = 0; c < K_VECTORS / n; c++)
        add_vectors(base, c * n, n);
    add_vectors(base, K_VECTORS / n * n, K_VECTORS % n);
    [[unroll]] for (uint i = 0; i < 2 * ROWS; i++)
        x[i] *= p.scale;
}

// Place of the weight of row r for key e of this lane: a vec4.
uint weight_at(uint e, uint r) { return (lane() + e * THREADS) * WEIGHTS4 + r / 4; }

// Applies masks, softcap and biases to the scores of two keys: hidden ones become -inf and a bit of
// `hidden`. They pass through shared memory, so that a loop that is not unrolled can index them.
void bias(uint key, bool test, sequence s)
{
    barrier(); // all have read the weights
    [[unroll]] for (uint i = 0; i < 2 * ROWS; i++)
        weights[weight_at(i / ROWS, i % ROWS)][i % ROWS % 4] = x[i];
    [[dont_unroll]] for (uint i = 0; i < 2 * ROWS; i++) {
        uint r = i % ROWS, at = weight_at(i / ROWS, r), k = key + i / ROWS * THREADS;
        float score = weights[at][r % 4];
        bool visible = k >= ranges[r].x && k < ranges[r].y;
        if (GENERAL != 0 && visible)
            visible = bias_score(score, row_of(r), k, test, s);
        hidden |= visible ? 0 : 1u << i;
        weights[at][r % 4] = visible ? score : MINUS_INFINITY;
    }
    [[unroll]] for (uint i = 0; i < 2 * ROWS; i++)
        x[i] = weights[weight_at(i / ROWS, i % ROWS)][i % ROWS % 4];
}

void drop(uint key, sequence s)
{
    [[dont_unroll]] for (uint i = 0; i < 2 * ROWS; i++) {
        uint r = i % ROWS, at = weight_at(i / ROWS, r), k = key + i / ROWS * THREADS;
        if ((hidden >> i & 1u) == 0u)
            weights[at][r % 4] = dropped(weights[at][r % 4], row_of(r), k, s);
    }
}

// One step of the online softmax: turns scores into weights.
void weigh()
{
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        float most = subgroupMax(max(x[r], x[ROWS + r]));
        if (gl_SubgroupInvocationID == 0)
            subgroups[r * DECODE_SUBGROUPS + gl_SubgroupID] = most;
    }
    barrier(); // also: all have read the weights of the step before
    float most[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        most[r] = row_max[r];
    for (uint i = 0; i < gl_NumSubgroups; i++) // outside: compilers unroll only innermost loops
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            most[r] = max(most[r], subgroups[r * DECODE_SUBGROUPS + i]);
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        float old = row_max[r], now = most[r];
        float shift = now == MINUS_INFINITY ? 0.0 : now; // no key yet: all weights are exp(-inf)
        shrink[r] = old == now ? 1.0 : exp_accurate(old - shift);
        bool there = (hidden >> r & 1u) == 0u, there2 = (hidden >> ROWS + r & 1u) == 0u;
        float w = there ? exp_weight(x[r] - shift) : HIDDEN;
        float w2 = there2 ? exp_weight(x[ROWS + r] - shift) : HIDDEN;
        seen |= there || there2 ? 1u << r : 0u;
        row_sum[r] = fma(row_sum[r], shrink[r], (there ? w : 0.0) + (there2 ? w2 : 0.0));
        row_max[r] = now;
        weights[weight_at(0, r)][r % 4] = w;
        weights[weight_at(1, r)][r % 4] = w2;
        [[unroll]] for (uint i = 0; i < V_FOURS && !STEP_SUMS; i++)
            context[r * V_FOURS + i] *= shrink[r];
    }
}

void begin_sums()
{
    [[unroll]] for (uint i = 0; i < ROWS * V_FOURS; i++) {
        before[i] = context[i];
        context[i] = vec4(0.0);
    }
}

void end_step()
{
    [[unroll]] for (uint i = 0; i < ROWS * V_FOURS; i++) {
        before[i] = fma(before[i], vec4(shrink[i / V_FOURS]), context[i]);
        context[i] = vec4(0.0);
    }
}

// Adds n of this lane's values, times their weights, from value `first` of the step on; test: some
// are hidden, or past the end. n and test are constants. base: first element of the first value of
// the step; last: the last value there is.
void add_values(uint base, uint last, uint first, uint n, bool test)
{
    uvec4 words[BATCH];
    float scale[BATCH];
    const bool whole = V_VEC != 0 && !PAGED && !test && !V_BLOCKS; // in steps of whole vectors
    const uint log2_vector = V_FOURS + 1;
    int stride = int(GROUPS * p.v_row) >> log2_vector;
    int at = int((base + group() * p.v_row >> log2_vector) + vector()) + int(first) * stride;
    [[unroll]] for (uint i = 0; i < BATCH; i++)
        if (i < n) {
            uint k = min(group() + (first + i) * GROUPS, last);
            uint row = PAGED ? v_rows[k] : base + k * p.v_row;
            words[i] = whole ? v_vectors[at] : v_vector(row, vector());
            scale[i] = V_BLOCKS ? v_scale(row, vector()) : 1.0;
            at += stride;
        }
    [[unroll]] for (uint i = 0; i < BATCH; i++)
        if (i < n) {
            uint k = group() + (first + i) * GROUPS;
            bool out_of_step = test && (k >= KEYS || group() >= GROUPS);
            vec4 w[WEIGHTS4];
            [[unroll]] for (uint j = 0; j < WEIGHTS4; j++)
                w[j] = weights[(test ? min(k, KEYS - 1) : k) * WEIGHTS4 + j];
            [[unroll]] for (uint j = 0; j < V_FOURS; j++) {
                vec4 v = four_of(words[i], j, V_TYPE);
                [[unroll]] for (uint r = 0; r < ROWS; r++) {
                    float weight = V_BLOCKS ? w[r / 4][r % 4] * scale[i] : w[r / 4][r % 4];
                    vec4 sum = fma(vec4(weight), v, context[r * V_FOURS + j]);
                    bool skip = test && (out_of_step || w[r / 4][r % 4] < 0.0);
                    context[r * V_FOURS + j] = skip ? context[r * V_FOURS + j] : sum;
                }
            }
        }
}

void add_values(uint key, bool test, sequence s)
{
    uint base = PAGED ? 0 : v_index(key_row(key, s), s), n = min(s.n_kv - key, KEYS);
    if (!test && EXACT) {
        [[dont_unroll]] for (uint i = 0; i < OWN_VALUES / BATCH; i++)
            add_values(base, KEYS - 1, i * BATCH, BATCH, false);
        add_values(base, KEYS - 1, OWN_VALUES / BATCH * BATCH, OWN_VALUES % BATCH, false);
        return;
    }
    [[dont_unroll]] for (uint i = 0; i * GROUPS < n; i += BATCH)
        add_values(base, n - 1, i, BATCH, true);
}

void step(uint key, bool test, sequence s)
{
    uint mine = key + lane(), last = s.n_kv - 1;
    uint row = key_row(min(mine, last), s), row2 = key_row(min(mine + THREADS, last), s);
    score(uvec2(k_index(row, s), k_index(row2, s)));
    hidden = 0;
    if (test || GENERAL != 0)
        bias(mine, test, s);
    weigh();
    if (PAGED) {
        v_rows[lane()] = v_index(row, s);
        v_rows[lane() + THREADS] = v_index(row2, s);
    }
    if (GENERAL != 0 && p.dropout != 0.0)
        drop(mine, s);
    barrier();
    add_values(key, test, s);
    if (STEP_SUMS)
        end_step();
}

#include "attention/decode_store.glsl"

void main()
{
    uint tile, y = gl_WorkGroupID.y;
    first_value4 = 0;
    split = p.split_first + y % p.split_count;
    work_head = y / p.split_count;
    sequence s = find_sequence(ROWS, tile);
    n_row = s.n_q * p.group;
    first_row = tile * ROWS;
    if (first_row >= n_row || is_behind(s))
        return;
    set_slot(tile);
    bool sink = mask_has(MASK_SINK);
    seen = 0;
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint head = p.head_first + head_of(row_of(r));
        row_max[r] = sink ? sinks[p.sink_offset + head] : MINUS_INFINITY;
        row_sum[r] = 0.0;
        [[unroll]] for (uint i = 0; i < V_FOURS; i++)
            context[r * V_FOURS + i] = vec4(0.0);
    }
    if ((STATE & STATE_LOAD) != 0)
        load_state();
    if (STEP_SUMS)
        begin_sums();
    stage_q(s);
    uvec4 bound = find_bounds(s); // and its barriers
    uvec2 keys = own_keys();
    uint end = min(bound.y, keys.y);
    for (uint key = max(bound.x / KEYS * KEYS, keys.x); key < end; key += KEYS) {
        uint code = map_code(tile, key);
        bool test = key < bound.z || key + KEYS > bound.w || (code & MAP_TEST) != 0u;
        if ((code & MAP_SOME) != 0u)
            step(key, test, s);
    }
    [[unroll]] for (uint i = 0; i < ROWS * V_FOURS && STEP_SUMS; i++)
        context[i] = before[i];
    if ((STATE & STATE_STORE) != 0)
        store_state(keys, s);
    else
        store_rows(keys, s);
}
