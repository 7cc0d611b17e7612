// Appends new keys and values to a cache, the keys rotated, and rotates the queries beside them: one
// invocation per two features of `each` rows, or with PAIRS four that rotate, so that 16-bit ones are
// whole words. A full sequence gets no rows; a page number past the
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
layout(constant_id = APPEND_PAIRS) const bool PAIRS = false;
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

#define STORE_WORD(buffer_words, index, type, two)                                                 \
    {                                                                                              \
        if (type == TYPE_F32) {                                                                    \
            buffer_words[index] = floatBitsToUint((two).x);                                        \
            buffer_words[(index) + 1] = floatBitsToUint((two).y);                                  \
        } else {                                                                                   \
            buffer_words[(index) >> 1] = pair_word(two, type);                                     \
        }                                                                                          \
    }

// Stores two neighbours.
void store_word(uint index, vec2 x)
{
    if (kind == APPEND_KEY)
        STORE_WORD(to_key_words, index, TO_KEY_TYPE, x)
    else if (kind == APPEND_VALUE)
        STORE_WORD(to_value_words, index, TO_VALUE_TYPE, x)
    else
        STORE_WORD(to_query_words, index, TO_QUERY_TYPE, x)
}

// The features of an item of PAIRS: two pairs that rotate, or four neighbours.
uvec4 four_features(uint item, bool rotates, uint dim, uint other)
{
    if (rotates && p.interleaved == 0)
        return uvec4(pair_features(2 * item, dim, false), pair_features(2 * item + 1, dim, false));
    return (rotates ? 4 * item : dim + 4 * (other - dim)) + uvec4(0, 1, 2, 3);
}

uvec4 item_frequencies(uint item)
{
    uint at = PAIRS ? 4 * item : 2 * item;
    uvec4 x = uvec4(frequencies[at], frequencies[at + 1], 0, 0);
    if (PAIRS)
        x.zw = uvec2(frequencies[at + 2], frequencies[at + 3]);
    return x;
}

// Stores features `at` of the row at `to`: of words, which pairs in two halves share.
void store_four(uint to, uvec4 at, vec4 x)
{
    bool halves = at.z == at.x + 1;
    store_word(to + at.x, halves ? x.xz : x.xy);
    store_word(to + (halves ? at.y : at.z), halves ? x.yw : x.zw);
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
    uint dim = kind == APPEND_VALUE ? 0 : p.dim, n_pair = PAIRS ? dim / 4 : dim / 2;
    uint n_other = PAIRS ? (n_feature - dim) / 4 : (n_feature - dim + 1) / 2; // items that do not rotate
    uint item = gl_GlobalInvocationID.x % (n_pair + n_other);
    uint row = gl_GlobalInvocationID.x / (n_pair + n_other) * p.each;
    uint end = min(row + p.each, p.n_row);

    bool rotates = item < n_pair;
    uint other = dim + item - n_pair; // wraps where the item rotates
    uvec2 at = rotates ? pair_features(item, dim, p.interleaved != 0)
                       : uvec2(other, other + n_other);
    bool both = at.y < n_feature;
    uvec4 four = four_features(item, rotates, dim, other);
    uvec4 frequency = uvec4(0);
    float factor = 0.0;
    if (rotates) {
        frequency = item_frequencies(item);
        factor = uintBitsToFloat(frequencies[dim]);
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
        int position = int(min(first, 1u << 30)) + int(place_row); // no cache is longer
        if (PAIRS) {
            vec4 x = vec4(load(from + four.x * r.from_col), load(from + four.y * r.from_col),
                          load(from + four.z * r.from_col), load(from + four.w * r.from_col));
            if (rotates)
                x = vec4(rotated_pair(x.xy, position, frequency.xy, factor),
                         rotated_pair(x.zw, position, frequency.zw, factor));
            store_four(to, four, x);
            continue;
        }
        vec2 x = vec2(load(from + at.x * r.from_col), both ? load(from + at.y * r.from_col) : 0.0);
        if (rotates)
            x = rotated_pair(x, position, frequency.xy, factor);
        store(to + at.x, x.x);
        if (both)
            store(to + at.y, x.y);
    }
}
