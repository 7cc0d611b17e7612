// Work of a workgroup of attention_tile or attention_coop: its rows, the keys they see, its split
// of the keys and tile of value features, and the place of its results. The includer has ROWS (of a
// workgroup), KEYS (of a step), THREADS (invocations), SPLITS and STATE; main sets the variables
// below, `split` and `slot`.
uint work_head;        // key head
uint first_row, n_row; // first of the tile; number in the sequence
uint first_value4;     // first vec4 of its value features
#define WORK_HEAD work_head
#include "lib/attention.glsl"
#include "lib/keys.glsl"
layout(binding = 13) readonly buffer Map { uint map_words[]; };

const uint NO_KEY = 0xffffffffu;

shared uvec2 ranges[(ROWS + 1) / 2 * 2]; // [row] whole vec4: first and end key, see row_range
shared uint bounds[4];     // least first key, greatest end, greatest first key, least end

// Row t of the tile. Past the end it is the last row, which is not stored again.
uint row_of(uint t) { return min(first_row + t, n_row - 1); }

// First and end key that some row sees (xy) and that all rows see (zw).
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

// MAP_ bits of a step.
uint map_code(uint tile, uint key)
{
    if (p.map_row == 0)
        return MAP_SOME | (mask_has(MASK_TENSOR) ? MAP_TEST : 0u);
    uint word = gl_WorkGroupID.z * p.map_batch + work_head * p.map_head + tile * p.map_row;
    uint step = key / KEYS;
    return map_words[word + step / 16] >> 2 * (step % 16) & 3u;
}

// Context of a fully masked row over `keys`, by mask.flags; `before`: its context over the keys
// before.
vec4 dead_context(uint row, uvec2 keys, uint d, vec4 before, sequence s)
{
    uint answer = mask_field(MASK_ROW_SHIFT, 2);
    vec4 sum = vec4(answer == MASKED_NAN ? uintBitsToFloat(0x7fc00000u) : 0.0);
    if (answer != MASKED_UNIFORM)
        return sum;
    sum = before;
    uint n = mean_keys(s);
    for (uint key = keys.x; key < min(keys.y, n); key++) {
        float weight = dropped(1.0 / float(n), row, key, s);
        sum = fma(vec4(weight), load_v(v_index(key_row(key, s), s), d), sum);
    }
    return sum;
}

// First element of row t of the tile in the output, or of its record for this split.
uint output_base(uint t, sequence s)
{
    uint row = first_row + t;
    if (SPLITS == 0)
        return p.o_offset + s.batch * p.o_batch + head_of(row) * p.o_head +
               (s.q_first + query_of(row)) * p.o_row;
    return record_of(t, ROWS, gl_NumWorkGroups.y / (p.split_count * p.n_feature_tile));
}
