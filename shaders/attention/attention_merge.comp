// Merges the splits of each row after fused attention, always in the same order. See RECORD_PITCH
// and attention_merge in params/attention.h.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"

layout(constant_id = MERGE_LANES) const uint LANES = 64;
layout(constant_id = MERGE_O_TYPE) const uint O_TYPE = 0;
layout(constant_id = MERGE_ROWS) const uint ROWS = 16;
layout(constant_id = MERGE_LOG_SUM) const uint LOG_SUM = 0;
layout(constant_id = MERGE_AHEAD) const uint AHEAD = 8; // a divisor of LANES
layout(local_size_x_id = MERGE_LANES) in;
layout(binding = 0) readonly buffer Records { float records[]; };
layout(binding = 1) buffer O { uint o_words[]; };
layout(binding = 2) readonly buffer Sink { float sinks[]; };
layout(binding = 3) readonly buffer QStart { uint q_start[]; };
layout(binding = 4) readonly buffer Params { attention_params p; };
layout(binding = 5) buffer LogSums { float log_sums[]; };
layout(binding = 6) readonly buffer Length { uint length_words[]; };
#include "lib/ragged.glsl"

#define MINUS_INFINITY uintBitsToFloat(0xff800000u)
#define LARGEST 3e38 // in place of the row_max of an infinite sink: the difference of two is 0

uint n_split;      // splits before the length of the row's sequence, at least one
uint pitch, first; // floats of a record; first float of the row's records
float row_max;     // of all splits
float power;        // power of two so small that no sum over the splits overflows
bool seen;

// Weights and sums of LANES splits at a time, see load_splits.
shared float weights[LANES]; // -1: not in the sum
shared float sums[LANES];

uint state_of(uint i) { return first + (i + 1) * pitch - 4; }

// The sum of eight terms as a tree.
#define TREE(t, i)                                                                                 \
    (((t[i] + t[i + 1]) + (t[i + 2] + t[i + 3])) + ((t[i + 4] + t[i + 5]) + (t[i + 6] + t[i + 7])))

// The sum of term(0) .. term(n - 1), n at most LANES, where term(i) is 0 for i >= n: each eight
// terms as a tree, which one after the other are added. AHEAD terms are read before the first is
// added, which changes no bit: those past the end add 0.
#define SUM(n, term, sum)                                                                          \
    for (uint i = 0; i < n; i += AHEAD) {                                                          \
        float terms_[AHEAD];                                                                       \
        [[unroll]] for (uint j = 0; j < AHEAD; j++)                                                \
            terms_[j] = term(i + j);                                                               \
        [[unroll]] for (uint j = 0; j < AHEAD; j += 8)                                             \
            sum += TREE(terms_, j);                                                                \
    }

// Each lane reads the states of one of LANES splits, all of which every lane then sees.
void find_max()
{
    uint lane = gl_LocalInvocationIndex;
    row_max = MINUS_INFINITY;
    seen = false;
    for (uint from = 0; from < n_split; from += LANES) {
        uint at = state_of(min(from + lane, n_split - 1)), n = min(n_split - from, LANES);
        bool saw = records[at + 2] != 0.0;
        barrier(); // all have read those before
        weights[lane] = saw ? 1.0 : 0.0;
        sums[lane] = saw ? records[at] : MINUS_INFINITY;
        barrier();
        for (uint i = 0; i < n; i += 8)
            [[unroll]] for (uint j = 0; j < 8; j++) { // lanes past the last split have its state
                row_max = max(row_max, sums[i + j]);
                seen = seen || weights[i + j] != 0.0;
            }
    }
    row_max = row_max == MINUS_INFINITY ? 0.0 : min(row_max, LARGEST);
}

// Each lane finds the weight of one split. The splits of a fully masked row add up to what
// mask.flags ask.
void load_splits(uint from)
{
    uint lane = gl_LocalInvocationIndex, at = state_of(min(from + lane, n_split - 1));
    bool saw = records[at + 2] != 0.0;
    float weight = seen ? exp_accurate(min(records[at], LARGEST) - row_max) * power : 1.0;
    bool hidden = from + lane >= n_split || (seen && !saw);
    barrier();
    weights[lane] = hidden ? -1.0 : weight;
    sums[lane] = hidden ? 0.0 : records[at + 1] * weight;
    barrier();
}

#define SPLIT_SUM(i) sums[i]
float find_sum()
{
    float all = 0.0;
    for (uint from = 0; from < n_split; from += LANES) {
        uint n = min(n_split - from, LANES);
        float sum = 0.0;
        load_splits(from);
        SUM(n, SPLIT_SUM, sum)
        all += sum;
    }
    return all;
}

float context_term(uint from, uint i, uint feature)
{
    float x = records[first + min(from + i, n_split - 1) * pitch + feature];
    return weights[i] < 0.0 ? 0.0 : x * weights[i];
}

// The weights of LANES splits or fewer are still those of find_sum.
#define SPLIT_CONTEXT(i) context_term(from, i, feature)
float find_context(uint feature)
{
    float all = 0.0;
    if (n_split == 1) // bit for bit as a kernel of which the keys are not split
        return records[first + feature];
    for (uint from = 0; from < n_split; from += LANES) {
        uint n = min(n_split - from, LANES);
        float sum = 0.0;
        if (n_split > LANES)
            load_splits(from);
        SUM(n, SPLIT_CONTEXT, sum)
        all += sum;
    }
    return all;
}

// Stores the log-sum-exp of a row. Its row_sum is without the sink, though row_max may be the sink.
void store_log_sum(uint head, uint query, float row_sum)
{
    float x = row_max + log_accurate(row_sum / (records[state_of(0) + 3] * power));
    if (!seen || floatBitsToUint(row_sum) == 0u)
        x = MINUS_INFINITY;
    if (seen && (p.mask.flags & MASK_SINK) != 0u)
        x = log_add(x, sinks[p.sink_offset + p.head_first + head]);
    if (gl_LocalInvocationIndex == 0)
        log_sums[p.log_sum_offset + gl_WorkGroupID.z * p.log_sum_batch + head * p.log_sum_head +
                 query * p.log_sum_row] = one_nan(x);
}

// Leaves out splits that begin at or behind the length of a batch element or sequence, so that the
// number of those that a capacity would hold changes no bit.
void count_splits(uint index)
{
    n_split = p.n_split;
    if ((p.mask.flags & MASK_LENGTH) == 0u)
        return;
    uint at = p.mask.length_offset + ((p.mask.flags & MASK_LENGTH_PER_BATCH) != 0u ? index : 0u);
    uint length = uint(clamp(int(length_words[at]), 1, int(p.mask.n_kv)));
    n_split = min(n_split, (length - 1) / p.split_keys + 1);
}

// Stores feature `feature` of a row at `at`; of 16-bit ones, a lane stores its neighbour's, too. All
// lanes come here.
void store_feature(uint at, uint feature, float x)
{
    if (O_TYPE == TYPE_F32) {
        if (feature < p.value_dim)
            o_words[at] = floatBitsToUint(x);
        return;
    }
    barrier(); // the neighbour of before has been read
    sums[gl_LocalInvocationIndex] = x;
    barrier();
    if (feature % 2 != 0 || feature >= p.value_dim)
        return;
    if (feature + 1 < p.value_dim)
        STORE_PAIR(o_words, at, 1u, O_TYPE, vec2(x, sums[gl_LocalInvocationIndex + 1]))
    else
        STORE(o_words, at, O_TYPE, x)
}

// Merges row `row` of the sequence at query q_first; x: its index among the rows of all tiles.
void merge(uint x, uint row, uint q_first)
{
    uint z = gl_WorkGroupID.z, head = gl_WorkGroupID.y * p.group + row % p.group;
    pitch = RECORD_PITCH(p.value_dim);
    first = ((z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * p.n_tile * ROWS + x) * p.n_split *
            pitch;
    power = 1.0;
    for (uint n = 1; n < n_split; n *= 2)
        power *= 0.5;
    find_max();
    float row_sum = find_sum();
    if (LOG_SUM != 0)
        store_log_sum(head, q_first + row / p.group, row_sum);
    if ((p.mask.flags & MASK_SINK) != 0u)
        row_sum += sink_weight(sinks[p.sink_offset + p.head_first + head], row_max) *
                 (records[state_of(0) + 3] * power);
    uint base = p.o_offset + z * p.o_batch + head * p.o_head + (q_first + row / p.group) * p.o_row;
    uint value_dim = p.value_dim;
    for (uint block = 0; block < value_dim; block += LANES) {
        uint feature = block + gl_LocalInvocationIndex;
        float x = find_context(min(feature, value_dim - 1));
        x = seen ? x / row_sum : x;
        store_feature(base + feature, feature, one_nan(x));
    }
}

// Merges the rows of a tile of a ragged batch.
void merge_tile(uint slot)
{
    uint tile = p.tile_first + slot * p.tile_step, i = sequence_of_tile(tile, ROWS);
    uint begin = q_begin(i), n_row = (max(q_begin(i + 1), begin) - begin) * p.group;
    uint first_row = (tile - first_tile(i, ROWS)) * ROWS;
    if (tile < first_tile(i, ROWS))
        return;
    count_splits(i);
    for (uint row = first_row; row < min(first_row + ROWS, n_row); row++)
        merge(slot * ROWS + row - first_row, row, begin);
}

void main()
{
    if (p.n_sequence != 0) {
        merge_tile(gl_WorkGroupID.x);
        return;
    }
    count_splits(p.batch_first + gl_WorkGroupID.z);
    uint n_row = p.n_q * p.group;
    for (uint row = gl_WorkGroupID.x; row < n_row; row += gl_NumWorkGroups.x)
        merge(row, row, 0);
}
