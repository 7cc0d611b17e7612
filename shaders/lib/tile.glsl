// What a workgroup of attention_tile is to do: its rows, the keys they see, the part of the keys
// and of the value features that are its own, and where the results go. The includer has ROWS rows
// a workgroup, KEYS keys a step, THREADS invocations and the constants PIECES and STATE; main sets
// the variables below, and `piece` and `slot`.
uint work_head;        // key head
uint first_row, n_row; // of the tile, and of the sequence
uint first_value4;     // of its value features
#define WORK_HEAD work_head
#include "lib/attention.glsl"
#include "lib/keys.glsl"
layout(binding = 13) readonly buffer Map { uint map_words[]; };

const uint NO_KEY = 0xffffffffu;

shared uvec2 ranges[ROWS]; // the keys that lengths, causal and window leave to each row
shared uint bounds[4];     // least first key and greatest end of them, then the other way round

// Row t of the tile: past the end, the last again, which is not stored.
uint row_of(uint t) { return min(first_row + t, n_row - 1); }

// The keys that some row sees, and those that all rows see.
uvec4 find_bounds(sequence s)
{
    if (gl_LocalInvocationIndex < 4)
        bounds[gl_LocalInvocationIndex] = gl_LocalInvocationIndex % 3 == 0 ? NO_KEY : 0;
    barrier();
    for (uint t = gl_LocalInvocationIndex; t < ROWS; t += THREADS) {
        uvec2 range = row_range(row_of(t), s);
        ranges[t] = range;
        if (range.x < range.y) {
            atomicMin(bounds[0], range.x);
            atomicMax(bounds[1], range.y);
        }
        atomicMax(bounds[2], range.x);
        atomicMin(bounds[3], range.y);
    }
    barrier();
    return uvec4(bounds[0], bounds[1], bounds[2], bounds[3]);
}

// What attention_map says of a step.
uint map_code(uint tile, uint key)
{
    if (p.map_row == 0)
        return MAP_SOME | (mask_has(MASK_TENSOR) ? MAP_TEST : 0u);
    uint word = gl_WorkGroupID.z * p.map_batch + work_head * p.map_head + tile * p.map_row;
    uint step = key / KEYS;
    return map_words[word + step / 16] >> 2 * (step % 16) & 3u;
}

// The context of a row that saw none of `keys`: what mask.flags say. before: of the keys before
// them.
vec4 dead_context(uint row, uvec2 keys, uint d, vec4 before, sequence s)
{
    uint answer = mask_field(MASK_ROW_SHIFT, 2);
    vec4 sum = vec4(answer == MASKED_NAN ? uintBitsToFloat(0x7fc00000u) : 0.0);
    if (answer != MASKED_UNIFORM)
        return sum;
    sum = before;
    for (uint key = keys.x; key < min(keys.y, s.n_kv); key++) {
        float weight = dropped(1.0 / float(s.n_kv), row, key, s);
        sum += weight * load_v(v_index(key_row(key, s), s), d);
    }
    return sum;
}

// Where the results of row t of the tile begin: in the output, or its record of this piece.
uint output_base(uint t, sequence s)
{
    uint row = first_row + t;
    if (PIECES == 0)
        return p.o_offset + s.batch * p.o_batch + head_of(row) * p.o_head +
               (s.q_first + query_of(row)) * p.o_row;
    return record_of(t, ROWS, gl_NumWorkGroups.y / (p.piece_count * p.n_chunk));
}
