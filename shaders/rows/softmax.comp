// Softmax of a row of scores, or of a split of one, per workgroup, in place: softcap, biases,
// masks, softmax, dropout. Hidden keys become HIDDEN_BITS. Keys are strided over the lanes, so that
// a lane reads only what it wrote. With SUBGROUP a workgroup is one subgroup, and reductions need
// no shared memory. See softmax_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"
#include "lib/pairwise.glsl"
#include "lib/philox.glsl"

layout(constant_id = SOFTMAX_LANES) const uint LANES = 32;
layout(constant_id = SOFTMAX_STAGE) const uint STAGE = SOFTMAX_WHOLE;
layout(constant_id = SOFTMAX_SPLIT) const uint SPLIT = 0;
layout(constant_id = SOFTMAX_LOG_SUM) const uint LOG_SUM = 0;
layout(constant_id = SOFTMAX_EXACT) const uint EXACT = 0;
layout(constant_id = SOFTMAX_PAIRS) const bool PAIRS = false;
layout(local_size_x_id = SOFTMAX_LANES) in;
layout(binding = 0) buffer Slice { uint slice_words[]; };
layout(binding = 1) readonly buffer Mask { uint mask_words[]; };
layout(binding = 2) readonly buffer Length { uint length_words[]; };
layout(binding = 3) readonly buffer QueryOffset { uint query_offset_words[]; };
layout(binding = 4) readonly buffer Sink { float sinks[]; };
layout(binding = 5) readonly buffer Alibi { float slopes[]; };
layout(binding = 6) buffer Scores { uint scores_words[]; };
layout(binding = 7) buffer Splits { vec2 splits[]; }; // row_max; row_sum, -1: no key
layout(push_constant) uniform Push { softmax_params p; };
#include "lib/mask.glsl"

const uint HIDDEN_MARK = 0xffffffffu; // until finish(): a NaN that no visible score has
const uint MINUS_INFINITY = 0xff800000u;
const uint QUIET_NAN = 0x7fc00000u;

#ifdef SUBGROUP
float reduce_max(float x) { return subgroupMax(x); }
float reduce_add(float x) { return subgroupAdd(x); }
#else
shared float partial[LANES];
float reduce(float x, bool add)
{
    uint lane = gl_LocalInvocationIndex;
    barrier();
    partial[lane] = x;
    for (uint step = LANES / 2; step > 0; step /= 2) {
        barrier();
        if (lane < step)
            partial[lane] = add ? partial[lane] + partial[lane + step]
                                : max(partial[lane], partial[lane + step]);
    }
    barrier();
    return partial[0];
}
float reduce_max(float x) { return reduce(x, false); }
float reduce_add(float x) { return reduce(x, true); }
#endif

uint scores_row; // first element of the returned row
uvec2 keys;      // first and end key of this workgroup
uint n_key;      // keys before the length: what is behind them may be anything

// Steps of a lane, of LANES keys each. With PAIRS all lanes take the same steps, as return_score() waits
// for all of them, and in the last one some have no key.
uint first_step(uint lane) { return PAIRS ? keys.x : keys.x + lane; }
uint key_at(uint step, uint lane) { return PAIRS ? step + lane : step; }
bool is_there(uint key) { return !PAIRS || key < keys.y; }
uint there(uint key) { return PAIRS ? min(key, keys.y - 1) : key; } // what is read in its place

shared uint exchange[PAIRS ? LANES : 1];

// With PAIRS an even lane stores its neighbour's, too.
void return_score(uint kind, uint key, float x)
{
    if (mask_field(MASK_SCORES_SHIFT, 3) != kind)
        return;
    uint type = mask_field(MASK_SCORES_TYPE_SHIFT, 3);
    uint index = scores_row + key * p.scores_col;
    if (PAIRS) {
        uint lane = gl_LocalInvocationIndex;
        barrier(); // the neighbour of before has been read
        uint bits = type == TYPE_F16 ? f16_from_float(x) : bf16_from_float(x);
        exchange[lane] = bits;
        barrier();
        if (is_there(key) && lane % 2 == 0)
            scores_words[index >> 1] = bits | exchange[lane + 1] << 16;
    } else {
        STORE(scores_words, index, type, x);
    }
}

// Applies softcap and biases to the scores, and marks hidden keys. Returns the lane's maximum;
// `any`: it saw a key.
float bias_scores(uint row, uvec3 at, int position, uint lane, out bool any)
{
    uvec2 range = mask_range(at.x, position);
    uint mask_row = mask_row_index(at.x, at.y, at.z);
    float slope = mask_has(MASK_ALIBI) ? slopes[p.alibi_offset + at.y] : 0.0;
    float lane_max = uintBitsToFloat(MINUS_INFINITY);
    any = false;
    for (uint step = first_step(lane); step < keys.y; step += LANES) {
        uint key = key_at(step, lane);
        float x = uintBitsToFloat(slice_words[row + there(key)]);
        if (key >= n_key)
            x = uintBitsToFloat(MINUS_INFINITY);
        return_score(SCORES_RAW, key, x);
        if (p.softcap != 0.0 && key < n_key)
            x = p.softcap * tanh_accurate(x / p.softcap);
        return_score(SCORES_SOFTCAP, key, x);
        float bias = 0.0;
        bool visible = key >= range.x && key < range.y && mask_tensor(mask_row, key, bias);
        if (mask_has(MASK_ALIBI)) {
            precise float away = slope * abs(float(position - int(key)));
            x -= away;
        }
        x += bias;
        return_score(SCORES_BIAS, key, visible ? x : uintBitsToFloat(MINUS_INFINITY));
        uint bits = is_nan(x) ? QUIET_NAN : floatBitsToUint(x);
        if (is_there(key))
            slice_words[row + key] = visible ? bits : HIDDEN_MARK;
        if (visible) {
            any = true;
            lane_max = max(lane_max, x);
        }
    }
    return lane_max;
}

float dropped(float weight, uvec3 at, uint key)
{
    if (p.dropout == 0.0)
        return weight;
    uvec4 counter = uvec4(key, p.draw_query + at.z, (p.draw_place & 0xffffu) + at.y,
                          (p.draw_place >> 16) + at.x);
    uint word = philox(counter, uvec2(p.seed_low, p.seed_high));
    if (float(word >> 8) * 5.9604644775390625e-8 >= p.dropout)
        return weight / (1.0 - p.dropout);
    return is_nan(weight) ? weight : 0.0; // dropout must not hide NaN
}

// A lane adds SUM_BLOCK weights, then SUM_BLOCK of these sums, and so on: see MATMUL_BLOCK. The
// last level takes what is left of a chain of 16,384.
#define SUM_BLOCK 16u
#define SUM_LEVELS 4

// Replaces scores by weights relative to row_max; returns the sum of the weights.
float weigh(uint row, float row_max, uint lane)
{
    float sums[SUM_LEVELS];
    [[unroll]] for (uint i = 0; i < SUM_LEVELS; i++)
        sums[i] = 0.0;
    uint n_added = 0;
    for (uint key = keys.x + lane; key < keys.y; key += LANES) {
        uint bits = slice_words[row + key];
        bool hidden = bits == HIDDEN_MARK;
        float e = exp_accurate(uintBitsToFloat(bits) - row_max);
        if (!hidden)
            slice_words[row + key] = floatBitsToUint(e);
        sums[0] += hidden ? 0.0 : e;
        n_added++;
        if (n_added % SUM_BLOCK == 0)
            [[unroll]] for (uint i = 1, terms = SUM_BLOCK; i < SUM_LEVELS; i++, terms *= SUM_BLOCK) {
                bool ends = n_added % terms == 0;
                sums[i] += ends ? sums[i - 1] : 0.0;
                sums[i - 1] = ends ? 0.0 : sums[i - 1];
            }
    }
    [[unroll]] for (uint i = 1; i < SUM_LEVELS; i++)
        sums[i] += sums[i - 1];
    return reduce_add(sums[SUM_LEVELS - 1]);
}

#include "lib/exact.glsl"

// Multiplies weights by scale / row_sum; a fully masked row (`dead`) follows mask.flags.
void finish(uint row, uvec3 at, float scale, float row_sum, bool dead, uint lane)
{
    uint answer = mask_field(MASK_ROW_SHIFT, 2);
    for (uint step = first_step(lane); step < keys.y; step += LANES) {
        uint key = key_at(step, lane);
        uint bits = slice_words[row + there(key)];
        float x = uintBitsToFloat(bits);
        float weight = EXACT != 0 ? exact_weight(x) : x * scale / row_sum;
        if (dead)
            weight = answer == MASKED_NAN ? uintBitsToFloat(QUIET_NAN) : 1.0 / float(n_key);
        bool hidden = bits == HIDDEN_MARK;
        if (dead) // a context of NaN has to be one where there are no keys, too
            hidden = answer == MASKED_ZERO || (answer == MASKED_UNIFORM && key >= n_key);
        return_score(SCORES_SOFTMAX, key, hidden || key >= n_key ? 0.0 : weight);
        bits = floatBitsToUint(dropped(weight, at, key));
        if (is_there(key))
            slice_words[row + key] = hidden ? HIDDEN_BITS : bits;
    }
}

// Stores the log-sum-exp of the row: weights relative to row_max, and the sink's, are row_sum.
void store_log_sum(uint row, float row_max, float row_sum, bool dead)
{
    float x = dead ? uintBitsToFloat(MINUS_INFINITY) : row_max + log_accurate(row_sum);
    if (gl_LocalInvocationIndex == 0 && gl_WorkGroupID.z == 0)
        slice_words[row + p.pitch - 1] = floatBitsToUint(one_nan(x));
}

// Splits of the row: index of the first, number, and row_max of all of them and the sink.
uint first_split, n_split;
float whole_max;

// The weights of a split are relative to its own row_max.
float split_weight(float row_max)
{
    return exp_accurate(row_max == whole_max ? 0.0 : row_max - whole_max); // both may be infinite
}

float split_sum(uint i)
{
    if (i >= n_split)
        return 0.0;
    vec2 split = splits[first_split + i];
    return split.y < 0.0 ? 0.0 : split.y * split_weight(split.x);
}
PAIRWISE(sum_splits, split_sum)

void finish_splits(uint row, uvec3 at, uint lane)
{
    float row_max = uintBitsToFloat(MINUS_INFINITY);
    bool any = false;
    for (uint i = lane; i < n_split; i += LANES) {
        vec2 split = splits[first_split + i];
        bool seen = !(split.y < 0.0);
        row_max = seen ? max(row_max, split.x) : row_max;
        any = any || seen;
    }
    row_max = reduce_max(row_max);
    bool dead = reduce_max(any ? 1.0 : 0.0) == 0.0;
    float sink = mask_has(MASK_SINK) ? sinks[p.sink_offset + at.y] : 0.0;
    if (mask_has(MASK_SINK))
        row_max = max(row_max, sink);
    whole_max = row_max == uintBitsToFloat(MINUS_INFINITY) ? 0.0 : row_max;
    float row_sum = sum_splits(n_split);
    if (mask_has(MASK_SINK))
        row_sum += sink_weight(sink, whole_max);
    if (LOG_SUM != 0)
        store_log_sum(row, row_max, row_sum, dead);
    float mine = splits[first_split + gl_WorkGroupID.z].x;
    finish(row, at, split_weight(mine), row_sum, dead, lane);
}

void main()
{
    uint z = p.z_first + gl_WorkGroupID.y;
    uint query = p.q_first + gl_WorkGroupID.x;
    uvec3 at = uvec3(z / p.n_head, z % p.n_head, query); // batch, head, query
    uint row = p.slice_offset + (gl_WorkGroupID.y * p.n_row + gl_WorkGroupID.x) * p.pitch;
    scores_row = p.scores_offset + at.x * p.scores_batch + at.y * p.scores_head +
                 query * p.scores_row;
    int position = mask_query_offset(at.x) + int(query);
    uint lane = gl_LocalInvocationIndex;
    keys = uvec2(0, p.mask.n_kv);
    n_key = mask_end(at.x);
    if (STAGE != SOFTMAX_WHOLE) {
        keys.x = gl_WorkGroupID.z * SPLIT;
        keys.y = min(keys.x + SPLIT, p.mask.n_kv);
        n_split = gl_NumWorkGroups.z;
        first_split = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * n_split;
    }
    if (STAGE == SOFTMAX_FINISH) {
        finish_splits(row, at, lane);
        return;
    }
    bool any;
    float row_max = reduce_max(bias_scores(row, at, position, lane, any));
    bool dead = reduce_max(any ? 1.0 : 0.0) == 0.0;
    float sink = mask_has(MASK_SINK) ? sinks[p.sink_offset + at.y] : 0.0;
    if (mask_has(MASK_SINK)) // of a split too, so that one with all keys has the bits of a whole row
        row_max = max(row_max, sink);
    bool none = (STAGE == SOFTMAX_WEIGH || LOG_SUM != 0) && row_max == uintBitsToFloat(MINUS_INFINITY);
    if (EXACT != 0)
        sum_exactly(row, none ? 0.0 : row_max, at.y, lane);
    float row_sum = EXACT != 0 ? exact_sum.x : weigh(row, none ? 0.0 : row_max, lane);
    if (STAGE == SOFTMAX_WEIGH) {
        if (lane == 0)
            splits[first_split + gl_WorkGroupID.z] = vec2(row_max, dead ? -1.0 : row_sum);
        return;
    }
    if (mask_has(MASK_SINK) && EXACT == 0)
        row_sum += sink_weight(sink, none ? 0.0 : row_max);
    if (LOG_SUM != 0)
        store_log_sum(row, row_max, row_sum, dead);
    finish(row, at, 1.0, row_sum, dead, lane);
}
