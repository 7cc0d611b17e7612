// Appends new keys and values to a cache, the keys rotated, and rotates the queries beside them: one
// invocation per two features of `each` rows. A full sequence gets no rows; a page number past the
// pool reads as the last page. See append_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"

layout(constant_id = APPEND_KEY_TYPE) const uint KEY_TYPE = 0;
layout(constant_id = APPEND_VALUE_TYPE) const uint VALUE_TYPE = 0;
layout(constant_id = APPEND_QUERY_TYPE) const uint QUERY_TYPE = 0;
layout(constant_id = APPEND_TO_KEY_TYPE) const uint TO_KEY_TYPE = 0;
layout(constant_id = APPEND_TO_VALUE_TYPE) const uint TO_VALUE_TYPE = 0;
layout(constant_id = APPEND_TO_QUERY_TYPE) const uint TO_QUERY_TYPE = 0;
layout(constant_id = APPEND_KIND) const uint ONLY_KIND = APPEND_KINDS;
layout(local_size_x_id = APPEND_LANES) in;
layout(binding = 0) readonly buffer Queries { uint query_words[]; };
layout(binding = 1) readonly buffer Keys { uint key_words[]; };
layout(binding = 2) readonly buffer Values { uint value_words[]; };
layout(binding = 3) buffer ToQueries { uint to_query_words[]; };
layout(binding = 4) buffer ToKeys { uint to_key_words[]; };
layout(binding = 5) buffer ToValues { uint to_value_words[]; };
// State, and where its binding has a page table that too.
layout(binding = 6) readonly buffer State { uint state[]; };
// The words of frequencies are those of a pair, then of the attention factor: see rope_params.
layout(binding = 7) readonly buffer Parameters
{
    append_params p;
    uint frequencies[];
};

#define Q_START(i) state[p.state_offset + 3 * p.batch + (i)]
#define table state
#include "lib/packed.glsl"
#include "lib/place.glsl"
#include "lib/rotation.glsl"

uint kind; // APPEND_KEY, APPEND_VALUE or APPEND_QUERY, of the whole workgroup

float load(uint index)
{
    if (kind == APPEND_KEY)
        return LOAD(key_words, index, KEY_TYPE);
    if (kind == APPEND_VALUE)
        return LOAD(value_words, index, VALUE_TYPE);
    return LOAD(query_words, index, QUERY_TYPE);
}

void store(uint index, float x)
{
    if (kind == APPEND_KEY) {
        STORE(to_key_words, index, TO_KEY_TYPE, x);
    } else if (kind == APPEND_VALUE) {
        STORE(to_value_words, index, TO_VALUE_TYPE, x);
    } else {
        STORE(to_query_words, index, TO_QUERY_TYPE, x);
    }
}

// Sets the kind of the workgroup, and the head among those of its kind.
void find_kind(out uint head)
{
    uint y = gl_WorkGroupID.y;
    head = y;
    kind = ONLY_KIND;
    if (ONLY_KIND != APPEND_KINDS)
        return;
    kind = y < p.n_key ? APPEND_KEY : y < p.n_key + p.n_value ? APPEND_VALUE : APPEND_QUERY;
    head = y - (kind == APPEND_KEY ? 0 : kind == APPEND_VALUE ? p.n_key : p.n_key + p.n_value);
}

void main()
{
    uint head, batch = gl_WorkGroupID.z;
    find_kind(head);
    uint n_feature = kind == APPEND_VALUE ? p.value_dim : p.head_dim;
    uint dim = kind == APPEND_VALUE ? 0 : p.dim, n_pair = dim / 2;
    uint n_other = (n_feature - dim + 1) / 2; // items that do not rotate
    uint item = gl_GlobalInvocationID.x % (n_pair + n_other);
    uint row = gl_GlobalInvocationID.x / (n_pair + n_other) * p.each;
    uint end = min(row + p.each, p.n_row);

    bool rotates = item < n_pair;
    uint other = dim + item - n_pair; // wraps where the item rotates
    uvec2 at = rotates ? pair_features(item, dim, p.interleaved != 0)
                       : uvec2(other, other + n_other);
    bool both = at.y < n_feature;
    uvec2 frequency = uvec2(0);
    float factor = 0.0;
    if (rotates) {
        frequency = uvec2(frequencies[2 * item], frequencies[2 * item + 1]);
        factor = uintBitsToFloat(frequencies[2 * n_pair]);
    }

    // Read once: a CPU driver reads each for each lane.
    append_rows r = p.rows[kind];
    uint row_first = p.row_first, n_sequence = p.n_sequence, capacity = p.capacity;
    uint lengths = p.state_offset, old_lengths = p.state_offset + p.batch;
    r.from_offset += batch * r.from_batch + head * r.from_head;
    r.to_offset += head * r.to_head;
    for (; row < end; row++) {
        uint sequence = batch, place_row = row_first + row;
        if (n_sequence != 0 && !find_packed(place_row, sequence, place_row))
            continue;
        uint first = state[old_lengths + sequence]; // position before this run
        if (kind != APPEND_QUERY && place_row >= state[lengths + sequence] - first)
            continue; // not kept, or no room, see cache_advance
        uvec2 to_at = uvec2(batch, row);
        if (kind != APPEND_QUERY)
            to_at = place(sequence, min(first + place_row, capacity - 1));
        uint from = r.from_offset + row * r.from_row;
        uint to = r.to_offset + to_at.x * r.to_batch + to_at.y * r.to_row;
        vec2 x = vec2(load(from + at.x * r.from_col), both ? load(from + at.y * r.from_col) : 0.0);
        if (rotates) {
            int position = int(min(first, 1u << 30)) + int(place_row); // no cache is longer
            x = rotated_pair(x, position, frequency, factor);
        }
        store(to + at.x, x.x);
        if (both)
            store(to + at.y, x.y);
    }
}
