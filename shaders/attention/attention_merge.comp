// Merges the splits of each row after fused attention, always in the same order. See RECORD_PITCH
// and attention_merge in params.h.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"
#include "lib/pairwise.glsl"

layout(constant_id = MERGE_LANES) const uint LANES = 64;
layout(constant_id = MERGE_O_TYPE) const uint O_TYPE = 0;
layout(constant_id = MERGE_ROWS) const uint ROWS = 16;
layout(local_size_x_id = MERGE_LANES) in;
layout(binding = 0) readonly buffer Records { float records[]; };
layout(binding = 1) buffer O { uint o_words[]; };
layout(binding = 2) readonly buffer Sink { float sinks[]; };
layout(binding = 3) readonly buffer QStart { uint q_start[]; };
layout(binding = 4) readonly buffer Params { attention_params p; };
#include "lib/ragged.glsl"

#define MINUS_INFINITY uintBitsToFloat(0xff800000u)

uint n_piece;      // p.n_piece
uint pitch, first; // floats of a record; first float of the row's records
float row_max;     // of all splits
float unit;        // power of two so small that no sum over the splits overflows
bool seen;
uint feature;

uint state_of(uint i) { return first + (i + 1) * pitch - 4; }
bool saw(uint i) { return records[state_of(i) + 2] != 0.0; }
float weight_of(uint i) { return exp_accurate(records[state_of(i)] - row_max) * unit; }

float row_sum_term(uint i)
{
    return i < n_piece && saw(i) ? records[state_of(i) + 1] * weight_of(i) : 0.0;
}
PAIRWISE(sum_row_sums, row_sum_term)

// The splits of a fully masked row add up to what mask.flags ask.
float context_term(uint i)
{
    if (i >= n_piece || (seen && !saw(i)))
        return 0.0;
    float x = records[first + i * pitch + feature];
    return seen ? x * weight_of(i) : x;
}
PAIRWISE(sum_contexts, context_term)

void find_max()
{
    row_max = MINUS_INFINITY;
    seen = false;
    for (uint i = 0; i < n_piece; i++)
        if (saw(i)) {
            row_max = max(row_max, records[state_of(i)]);
            seen = true;
        }
    row_max = row_max == MINUS_INFINITY ? 0.0 : row_max;
}

// Merges row `row` of the sequence at query q_first; x: its index among the rows of all tiles.
void merge(uint x, uint row, uint q_first)
{
    uint z = gl_WorkGroupID.z, head = gl_WorkGroupID.y * p.group + row % p.group;
    pitch = RECORD_PITCH(p.value_dim);
    first = ((z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * p.n_tile * ROWS + x) * n_piece * pitch;
    unit = 1.0;
    for (uint n = 1; n < n_piece; n *= 2)
        unit *= 0.5;
    find_max();
    float row_sum = sum_row_sums(n_piece);
    if ((p.mask.flags & MASK_SINK) != 0u)
        row_sum += sink_weight(sinks[p.sink_offset + p.head_first + head], row_max) *
                 (records[state_of(0) + 3] * unit);
    uint base = p.o_offset + z * p.o_batch + head * p.o_head + (q_first + row / p.group) * p.o_row;
    uint value_dim = p.value_dim;
    for (feature = gl_LocalInvocationIndex; feature < value_dim; feature += LANES) {
        float x = sum_contexts(n_piece);
        x = seen ? x / row_sum : x;
        STORE(o_words, base + feature, O_TYPE, one_nan(x));
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
    for (uint row = first_row; row < min(first_row + ROWS, n_row); row++)
        merge(slot * ROWS + row - first_row, row, begin);
}

void main()
{
    n_piece = p.n_piece;
    if (p.n_sequence != 0) {
        merge_tile(gl_WorkGroupID.x);
        return;
    }
    uint n_row = p.n_q * p.group;
    for (uint row = gl_WorkGroupID.x; row < n_row; row += gl_NumWorkGroups.x)
        merge(row, row, 0);
}
