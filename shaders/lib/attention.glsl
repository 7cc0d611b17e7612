// Shared by all fused attention kernels: buffers except keys and values (keys.glsl), rows of
// queries, softcap and biases of a score, dropout of a weight. The includer has the constants
// Q_TYPE, GENERAL (mask, softcap, ALiBi or dropout are used), SPLITS, STATE and LOG_SUM, and defines
// WORK_HEAD. See attention_params.

layout(binding = 0) readonly buffer Q { uint q_words[]; };
layout(binding = 3) buffer O { uint o_words[]; };
layout(binding = 4) readonly buffer Mask { uint mask_words[]; };
layout(binding = 5) readonly buffer Length { uint length_words[]; };
layout(binding = 6) readonly buffer QueryOffset { uint query_offset_words[]; };
layout(binding = 7) readonly buffer Sink { float sinks[]; };
layout(binding = 8) readonly buffer Alibi { float slopes[]; };
layout(binding = 9) readonly buffer Table { uint table[]; };
layout(binding = 10) readonly buffer QStart { uint q_start[]; };
layout(binding = 11) readonly buffer KvStart { uint kv_start[]; };
layout(binding = 12) readonly buffer Params { attention_params p; };
layout(binding = 11) buffer LogSums { float log_sums[]; };
layout(binding = 4) buffer PackedLogSums { float packed_log_sums[]; }; // where kv_start is bound
#include "lib/mask.glsl"
#include "lib/sequence.glsl"

#define MINUS_INFINITY uintBitsToFloat(0xff800000u)

// Word i of the state that the pass before stored, see STATE_PITCH.
float saved(uint i)
{
    if (p.n_sequence == 0)
        return uintBitsToFloat(q_start[i]);
    return uintBitsToFloat(p.kv_packed != 0 ? table[i] : length_words[i]);
}
vec4 saved4(uint i) { return vec4(saved(i), saved(i + 1), saved(i + 2), saved(i + 3)); }
uint state_of(uint pitch)
{
    uint group = (gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * gl_NumWorkGroups.x +
                 gl_WorkGroupID.x;
    return group * pitch;
}

uint split; // split of the keys that this workgroup takes
uint slot;  // place of its tile among the records: the tile, in a ragged batch the workgroup

void set_slot(uint tile) { slot = p.n_sequence == 0 ? tile : gl_WorkGroupID.x; }

// First and end key of this pass or split.
uvec2 own_keys()
{
    if (STATE != 0)
        return uvec2(p.key_first, p.key_end);
    return SPLITS != 0 ? split * p.split_keys + uvec2(0, p.split_keys) : uvec2(0, 0xffffffffu);
}

// First element of the record of row t of a tile of `rows` rows; n_head: key heads of this pass.
uint record_of(uint t, uint rows, uint n_head)
{
    uint tile = (gl_WorkGroupID.z * n_head + WORK_HEAD) * p.n_tile + slot;
    return p.o_offset + ((tile * rows + t) * p.n_split + split) * RECORD_PITCH(p.value_dim);
}

// Stores the last four floats of a record, see RECORD_PITCH.
void store_split(uint record, float row_max, float row_sum, bool seen, float weight_unit)
{
    uint at = record + RECORD_PITCH(p.value_dim) - 4;
    o_words[at] = floatBitsToUint(row_max);
    o_words[at + 1] = floatBitsToUint(row_sum);
    o_words[at + 2] = floatBitsToUint(seen ? 1.0 : 0.0);
    o_words[at + 3] = floatBitsToUint(weight_unit);
}

// Query and head of a row, counted from the first of this pass.
uint query_of(uint row) { return row / p.group; }
uint head_of(uint row) { return WORK_HEAD * p.group + row % p.group; }

// First element of a row of q.
uint q_index(uint row, sequence s)
{
    return p.q_offset + s.batch * p.q_batch + head_of(row) * p.q_head +
           (s.q_first + query_of(row)) * p.q_row;
}

// ln of the sum of a row's weights and its sink's. Relative to row_max the weights add up to
// row_sum / weight_unit, without the sink, though row_max may be the sink. As attention_merge has
// it, bit for bit.
float log_sum(bool seen, float row_max, float row_sum, float weight_unit, uint row)
{
    float x = row_max + log_accurate(row_sum / weight_unit);
    if (!seen || floatBitsToUint(row_sum) == 0u)
        x = MINUS_INFINITY;
    if (seen && mask_has(MASK_SINK))
        x = log_add(x, sinks[p.sink_offset + p.head_first + head_of(row)]);
    return x;
}

// Stores the log-sum-exp of a row.
void store_log_sum(uint row, float x, sequence s)
{
    uint at = p.log_sum_offset + s.batch * p.log_sum_batch + head_of(row) * p.log_sum_head +
              (s.q_first + query_of(row)) * p.log_sum_row;
    if (p.kv_packed == 0)
        log_sums[at] = one_nan(x);
    else
        packed_log_sums[at] = one_nan(x);
}

// Vec4 d of a row of q; 0 past head_dim.
vec4 load_q(uint row, uint d, sequence s)
{
    vec4 x = vec4(0.0);
    uint base = q_index(row, s);
    for (uint i = 0; i < 4; i++)
        if (4 * d + i < p.head_dim)
            x[i] = LOAD(q_words, base + 4 * d + i, Q_TYPE);
    return x;
}

// First and end key of a row, by length, causal mask and window.
uvec2 row_range(uint row, sequence s)
{
    return min(mask_range(s.index, s.position + int(query_of(row))), uvec2(s.n_kv));
}

// Keys of which a fully masked row may give the mean: those before the sequence's length.
uint mean_keys(sequence s) { return min(mask_end(s.index), s.n_kv); }

// Whether the workgroup's split lies behind the sequence's length: attention_merge does not read its
// records then. The first split is never behind.
bool is_behind(sequence s)
{
    return SPLITS != 0 && split > 0 && mask_has(MASK_LENGTH) &&
           split * p.split_keys >= mask_end(s.index);
}

// First element of the mask's row of a row: of its batch element, or of all packed rows.
uint mask_row(uint row, uint head, sequence s)
{
    uint batch = p.n_sequence == 0 ? s.index : 0;
    return mask_row_index(batch, head, p.query_first + s.q_first + query_of(row));
}

// Applies softcap, ALiBi and, where `test`, the mask tensor to a score; false where the mask hides
// the key.
bool bias_score(inout float x, uint row, uint key, bool test, sequence s)
{
    float bias = 0.0;
    uint head = p.head_first + head_of(row);
    if (p.softcap != 0.0)
        x = p.softcap * tanh_accurate(x / p.softcap);
    if (mask_has(MASK_ALIBI)) {
        precise float away = slopes[p.alibi_offset + head] *
                             abs(float(s.position + int(query_of(row)) - int(key)));
        x -= away; // never one fma: every variant of a kernel gives the same bits
    }
    if (test && !mask_tensor(mask_row(row, head, s), key, bias))
        return false;
    x += bias;
    return true;
}

// Applies dropout to a weight.
float dropped(float weight, uint row, uint key, sequence s)
{
    if (GENERAL == 0 || p.dropout == 0.0)
        return weight;
    uvec4 counter = uvec4(key, p.draw_query + p.query_first + query_of(row),
                          (p.draw_place & 0xffffu) + p.head_first + head_of(row),
                          (p.draw_place >> 16) + s.index);
    uint word = philox(counter, uvec2(p.seed_low, p.seed_high));
    bool kept = float(word >> 8) * 5.9604644775390625e-8 >= p.dropout;
    return kept ? weight / (1.0 - p.dropout) : 0.0;
}
