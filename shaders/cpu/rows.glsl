// Shared by the attention kernels whose lanes hold whole rows of q and of the context: bindings,
// masks, the loop over keys, storing rows. The includer defines load_q(r, s), which fills
// q[r * HEAD4 ..] padded with 0; load_v(base, d), vec4 d of a value; and step(key, s, edge), which
// takes STEP_KEYS keys from `key` on; `edge`: some row may not see some of them, or they are past
// the end.
//
// Steps start at multiples of STEP_KEYS, whatever the other rows of the tile see: the bits of a row
// depend on that row alone.
//
// Loops over the vec4 d of a row: COLD for statements done once a row, EACH once a step, BLOCK once
// a block of keys. BLOCK is COLD, or EACH where that is faster and compiles as fast. With ROLLED,
// COLD is a real loop: drivers keep these arrays in memory anyway. Without, indexing at run time
// would move them from registers to memory. LOOP is a real loop. With BARE_LOADS it tests after
// its body, see matmul_address; else it tests before, and loads its bound before it begins, because
// validation layers cannot check a load in the block that begins a loop.
#ifndef BARE_LOADS
#define LOOP(hint, dim, statement)                                                                 \
    {                                                                                              \
        uint end_ = dim;                                                                           \
        hint for (uint d = 0; 4 * d < end_; d++) statement;                                        \
    }
#else
#define LOOP(hint, dim, statement)                                                                 \
    {                                                                                              \
        uint d = 0, end_ = dim;                                                                    \
        hint do statement;                                                                         \
        while (4 * ++d < end_);                                                                    \
    }
#endif
#ifdef ROLLED
#define COLD(count, dim, statement)                                                                \
    {                                                                                              \
        uint end_ = dim;                                                                           \
        for (uint d = 0; 4 * d < end_; d++)                                                        \
            statement;                                                                             \
    }
#else
#define COLD(count, dim, statement)                                                                \
    [[unroll]] for (uint d = 0; d < count; d++)                                                    \
        statement;
#endif
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"
#include "lib/philox.glsl"

layout(constant_id = ATTENTION_LANES) const uint LANES = 8;
layout(constant_id = ATTENTION_ROWS) const uint ROWS = 2;
layout(constant_id = ATTENTION_HEAD4) const uint HEAD4 = 16;
layout(constant_id = ATTENTION_VALUE4) const uint VALUE4 = 16;
layout(constant_id = ATTENTION_Q_TYPE) const uint Q_TYPE = 0;
layout(constant_id = ATTENTION_K_TYPE) const uint K_TYPE = 0;
layout(constant_id = ATTENTION_V_TYPE) const uint V_TYPE = 0;
layout(constant_id = ATTENTION_O_TYPE) const uint O_TYPE = 0;
layout(constant_id = ATTENTION_K_VEC) const uint K_VEC = 1;
layout(constant_id = ATTENTION_V_VEC) const uint V_VEC = 1;
layout(constant_id = ATTENTION_GENERAL) const uint GENERAL = 0;
layout(constant_id = ATTENTION_STATE) const uint STATE = 0;
layout(constant_id = ATTENTION_SPLITS) const uint SPLITS = 0;
layout(constant_id = ATTENTION_LOG_SUM) const uint LOG_SUM = 0;

layout(local_size_x_id = ATTENTION_LANES) in;
uint work_head; // key head of this workgroup
#define WORK_HEAD work_head
#include "lib/attention.glsl"

// Unrolled up to LARGE_VEC4 vec4 of q and context a row: beyond, drivers would compile for minutes.
const bool LARGE = HEAD4 + VALUE4 > LARGE_VEC4;
#define EACH(count, dim, statement)                                                                \
    if (LARGE)                                                                                     \
        LOOP([[dont_unroll]], dim, statement)                                                      \
    else                                                                                           \
        [[unroll]] for (uint d = 0; d < count; d++)                                                \
            statement;

// Per row of this lane: sums of the current block of keys, of all keys before and after the loop.
vec4 q[ROWS * HEAD4], context[ROWS * VALUE4];
float row_max[ROWS], row_sum[ROWS];
bool seen[ROWS];
uvec2 range[ROWS]; // first and end key, see row_range

// Row r of this lane. Past the end it is the last row, which is not stored again.
uint tile_row, first_row, n_row; // first_row: of the lane
uint row_of(uint r) { return min(first_row + r * LANES, n_row - 1); }

// First word of the state of row r of this lane: context, row_sum, seen, row_max.
uint row_state(uint r)
{
    uint pitch = STATE_PITCH(VALUE4, 2);
    return state_of(LANES * ROWS * pitch) + (r * LANES + gl_LocalInvocationIndex) * pitch;
}

// A row that saw no key so far keeps its initial values: answer_dead made its saved context.
void load_state(uint r)
{
    uint at = row_state(r) + 4 * VALUE4;
    if (saved(at + 1) == 0.0)
        return;
    seen[r] = true;
    row_sum[r] = saved(at);
    row_max[r] = saved(at + 2);
    COLD(VALUE4, p.value_dim,
        context[r * VALUE4 + d] = saved4(row_state(r) + 4 * d))
}

void store_state(uint r)
{
    uint at = row_state(r);
    COLD(VALUE4, p.value_dim, for (uint i = 0; i < 4; i++)
        o_words[at + 4 * d + i] = floatBitsToUint(context[r * VALUE4 + d][i]))
    o_words[at + 4 * VALUE4] = floatBitsToUint(row_sum[r]);
    o_words[at + 4 * VALUE4 + 1] = floatBitsToUint(seen[r] ? 1.0 : 0.0);
    o_words[at + 4 * VALUE4 + 2] = floatBitsToUint(row_max[r]);
}

void load_q(uint r, sequence s);

void load_row(uint r, sequence s)
{
    uint row = row_of(r), head = p.head_first + head_of(row);
    load_q(r, s);
    EACH(VALUE4, p.value_dim, context[r * VALUE4 + d] = vec4(0.0))
    bool sink = mask_has(MASK_SINK);
    row_max[r] = sink ? sinks[p.sink_offset + head] : MINUS_INFINITY;
    row_sum[r] = 0.0;
    seen[r] = false;
    if ((STATE & STATE_LOAD) != 0)
        load_state(r);
    range[r] = row_range(row, s);
}

vec4 load_v(uint base, uint d);
void step(uint key, sequence s, bool edge);

// Applies masks, softcap and biases to the scores of four keys; hidden keys get -inf and a bit of
// `hidden`.
vec4 bias_scores(vec4 x, uint r, uint key, sequence s, out bvec4 hidden)
{
    hidden = bvec4(false);
    for (uint i = 0; i < 4; i++) {
        bool visible = key + i >= range[r].x && key + i < range[r].y;
        if (GENERAL != 0) {
            float biased = x[i];
            bool shown = bias_score(biased, row_of(r), key + i, visible, s);
            visible = visible && shown;
            x[i] = biased;
        }
        hidden[i] = !visible;
        x[i] = visible ? x[i] : MINUS_INFINITY;
    }
    return x;
}

// Adds one value to a fully masked row that returns the mean of n values.
void add_mean(uint r, uint key, uint n, sequence s)
{
    uint base = v_index(key_row(key, s), s);
    float weight = dropped(1.0 / float(n), row_of(r), key, s);
    LOOP(, p.value_dim,
          context[r * VALUE4 + d] = fma(vec4(weight), load_v(base, d), context[r * VALUE4 + d]))
}

// Sets the context of a fully masked row by mask.flags; where keys are cut or split, this
// workgroup's rows of it.
void answer_dead(uint r, sequence s)
{
    uint answer = mask_field(MASK_ROW_SHIFT, 2);
    float fill = answer == MASKED_NAN ? uintBitsToFloat(0x7fc00000u) : 0.0;
    COLD(VALUE4, p.value_dim, context[r * VALUE4 + d] = vec4(fill))
    row_sum[r] = 1.0;
    if (answer != MASKED_UNIFORM)
        return;
    uvec2 keys = own_keys();
    if ((STATE & STATE_LOAD) != 0)
        COLD(VALUE4, p.value_dim,
            context[r * VALUE4 + d] = saved4(row_state(r) + 4 * d))
    uint n = mean_keys(s), key = keys.x, end = min(keys.y, n);
#ifndef BARE_LOADS
    for (; key < end; key++)
        add_mean(r, key, n, s);
#else
    if (key < end)
        do
            add_mean(r, key, n, s);
        while (++key < end);
#endif
}

void store_record(uint r)
{
    uint t = r * LANES + gl_LocalInvocationIndex;
    uint base = record_of(t, LANES * ROWS, gl_NumWorkGroups.y / p.split_count);
    COLD(VALUE4, p.value_dim, for (uint i = 0; i < 4; i++)
        o_words[base + 4 * d + i] = floatBitsToUint(context[r * VALUE4 + d][i]))
    store_split(base, row_max[r], row_sum[r], seen[r], WEIGHT_UNIT);
}

void store_row4(uint r, uint d, uint base)
{
    for (uint i = 0; i < 4; i++)
        if (V_VEC != 0 || 4 * d + i < p.value_dim) {
            float x = context[r * VALUE4 + d][i] / row_sum[r];
            STORE(o_words, base + 4 * d + i, O_TYPE, one_nan(x));
        }
}

void store_row(uint r, sequence s)
{
    uint row = row_of(r);
    if (LOG_SUM != 0)
        store_log_sum(row, log_sum(seen[r], row_max[r], row_sum[r], WEIGHT_UNIT, row), s);
    if (seen[r] && mask_has(MASK_SINK)) {
        float sink = sinks[p.sink_offset + p.head_first + head_of(row)];
        row_sum[r] = fma(WEIGHT_UNIT, sink_weight(sink, row_max[r]), row_sum[r]);
    }
    uint base = p.o_offset + s.batch * p.o_batch + head_of(row) * p.o_head +
                (s.q_first + query_of(row)) * p.o_row;
    COLD(VALUE4, p.value_dim, store_row4(r, d, base))
}

#ifdef ROLLED
// Context, row_max and row_sum of the blocks before the current one.
vec4 all_context[ROWS * VALUE4];
float all_max[ROWS], all_sum[ROWS];
bool all_seen[ROWS];

void begin_block(uint r)
{
    row_max[r] = MINUS_INFINITY;
    row_sum[r] = 0.0;
    seen[r] = false;
    BLOCK(VALUE4, p.value_dim, context[r * VALUE4 + d] = vec4(0.0))
}

void begin_blocks()
{
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        all_max[r] = row_max[r];
        all_sum[r] = row_sum[r];
        all_seen[r] = seen[r];
        BLOCK(VALUE4, p.value_dim, all_context[r * VALUE4 + d] = context[r * VALUE4 + d])
        begin_block(r);
    }
}

// Merges the block into those before, in rows that saw a key of it.
void end_block()
{
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        float now = max(all_max[r], row_max[r]), shift = now == MINUS_INFINITY ? 0.0 : now;
        float before = exp_accurate(all_max[r] - shift), mine = exp_accurate(row_max[r] - shift);
        if (!seen[r])
            continue;
        before = all_max[r] == now ? 1.0 : before;
        mine = row_max[r] == now ? 1.0 : mine;
        all_max[r] = now;
        all_sum[r] = fma(row_sum[r], mine, all_sum[r] * before);
        all_seen[r] = true;
        BLOCK(VALUE4, p.value_dim,
              all_context[r * VALUE4 + d] = fma(context[r * VALUE4 + d], vec4(mine),
                                                all_context[r * VALUE4 + d] * before))
        begin_block(r);
    }
}

void end_blocks()
{
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        row_max[r] = all_max[r];
        row_sum[r] = all_sum[r];
        seen[r] = all_seen[r];
        BLOCK(VALUE4, p.value_dim, context[r * VALUE4 + d] = all_context[r * VALUE4 + d])
    }
}
#else // twice the context would not stay in registers: one chain of sums
void begin_blocks() {}
void end_block() {}
void end_blocks() {}
#endif

void block_step(uint key, uvec2 inner, sequence s)
{
    if (key % ATTENTION_BLOCK == 0)
        end_block();
    step(key, s, key < inner.x || key + STEP_KEYS > inner.y);
}

void attend()
{
    uint tile;
    split = p.split_first + gl_WorkGroupID.y % p.split_count;
    work_head = gl_WorkGroupID.y / p.split_count;
    sequence s = find_sequence(LANES * ROWS, tile);
    n_row = s.n_q * p.group;
    tile_row = tile * LANES * ROWS;
    first_row = tile_row + gl_LocalInvocationIndex;
    if (tile_row >= n_row || is_behind(s))
        return;
    set_slot(tile);
    uvec2 outer = uvec2(0xffffffffu, 0), inner = uvec2(0, 0xffffffffu);
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        load_row(r, s);
        if (range[r].x < range[r].y)
            outer = uvec2(min(outer.x, range[r].x), max(outer.y, range[r].y));
        inner = uvec2(max(inner.x, range[r].x), min(inner.y, range[r].y));
    }
    outer = uvec2(subgroupMin(outer.x), subgroupMax(outer.y));
    inner = uvec2(subgroupMax(inner.x), subgroupMin(inner.y));
    outer.x = outer.x / STEP_KEYS * STEP_KEYS;
    uvec2 own = own_keys();
    outer = uvec2(max(outer.x, own.x), min(outer.y, own.y));
    begin_blocks();
    uint key = outer.x;
#ifndef BARE_LOADS
    for (; key < outer.y; key += STEP_KEYS)
        block_step(key, inner, s);
#else
    if (key < outer.y)
        do {
            block_step(key, inner, s);
            key += STEP_KEYS;
        } while (key < outer.y);
#endif
    end_block();
    end_blocks();
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        if (!seen[r])
            answer_dead(r, s);
        if ((STATE & STATE_STORE) != 0)
            store_state(r);
        else if (first_row + r * LANES < n_row && SPLITS != 0)
            store_record(r);
        else if (first_row + r * LANES < n_row)
            store_row(r, s);
    }
}
