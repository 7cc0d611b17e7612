// What the attention kernels share whose lanes hold whole rows of q and of the context: the
// bindings, storing rows, and all that masks do. They define load_q(r, s), which fills
// q[r * HEAD4 ..] padded with 0; load_v(base, d), four elements of a value's row; and
// step(key, s, edge), STEP_KEYS keys from `key` on; `edge`: some row may not see some of them, or
// they are past the end.
//
// Steps are at multiples of STEP_KEYS from key 0, so that a row meets its keys in the same steps
// whatever the other rows of its tile are: its bits depend on itself alone.
//
// COLD: for vec4 d of a row, a statement that is done once a row or block. ROLLED: arrays of
// registers may be indexed at run time, as they lie in memory anyway, so that it is compiled once;
// elsewhere that would bring them there. BLOCK: the same for what is done once a block of keys,
// which the includer defines as COLD, or as EACH where that is faster and compiles as fast.
// TURNS: of bare loads alone, whose loops test after their bodies, see matmul_address. All others
// test before, and read the buffer of parameters before they begin: validation layers cannot check
// a load in the block that begins a loop.
#ifndef BARE_LOADS
#define TURNS(hint, dim, statement)                                                                \
    {                                                                                              \
        uint end_ = dim;                                                                           \
        hint for (uint d = 0; 4 * d < end_; d++) statement;                                        \
    }
#else
#define TURNS(hint, dim, statement)                                                                \
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
#include "params.h"
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
layout(constant_id = ATTENTION_PIECES) const uint PIECES = 0;

layout(local_size_x_id = ATTENTION_LANES) in;
uint work_head; // key head of this workgroup
#define WORK_HEAD work_head
#include "lib/attention.glsl"

// For vec4 d of a head, statement: unrolled, but of heads so large that drivers would compile for
// minutes. LARGE_VEC4: vec4 of q and context of a row up to which they are not.
const bool LARGE = HEAD4 + VALUE4 > LARGE_VEC4;
#define EACH(count, dim, statement)                                                                \
    if (LARGE)                                                                                     \
        TURNS([[dont_unroll]], dim, statement)                                                     \
    else                                                                                           \
        [[unroll]] for (uint d = 0; d < count; d++)                                                \
            statement;

// Per row of this lane: of one block of keys, and before and after the blocks of all.
vec4 q[ROWS * HEAD4], context[ROWS * VALUE4];
float most[ROWS], total[ROWS];
bool seen[ROWS];
uvec2 range[ROWS]; // keys that lengths, causal and window leave

// Row r of this lane: past the end, the last again, which is not stored.
uint tile_row, first_row, n_row; // first_row: of the lane
uint row_of(uint r) { return min(first_row + r * LANES, n_row - 1); }

// Where the state of row r of this lane begins: the context, total, seen, most.
uint row_state(uint r)
{
    uint pitch = STATE_PITCH(VALUE4, 2);
    return state_of(LANES * ROWS * pitch) + (r * LANES + gl_LocalInvocationIndex) * pitch;
}

// A row that saw no key so far begins anew: its context is of answer_dead.
void load_state(uint r)
{
    uint at = row_state(r) + 4 * VALUE4;
    if (saved(at + 1) == 0.0)
        return;
    seen[r] = true;
    total[r] = saved(at);
    most[r] = saved(at + 2);
    COLD(VALUE4, p.value_dim,
        context[r * VALUE4 + d] = saved4(row_state(r) + 4 * d))
}

void store_state(uint r)
{
    uint at = row_state(r);
    COLD(VALUE4, p.value_dim, for (uint i = 0; i < 4; i++)
        o_words[at + 4 * d + i] = floatBitsToUint(context[r * VALUE4 + d][i]))
    o_words[at + 4 * VALUE4] = floatBitsToUint(total[r]);
    o_words[at + 4 * VALUE4 + 1] = floatBitsToUint(seen[r] ? 1.0 : 0.0);
    o_words[at + 4 * VALUE4 + 2] = floatBitsToUint(most[r]);
}

void load_q(uint r, sequence s);

void load_row(uint r, sequence s)
{
    uint row = row_of(r), head = p.head_first + head_of(row);
    load_q(r, s);
    EACH(VALUE4, p.value_dim, context[r * VALUE4 + d] = vec4(0.0))
    bool sink = mask_has(MASK_SINK);
    most[r] = sink ? sinks[p.sink_offset + head] : MINUS_INFINITY;
    total[r] = 0.0;
    seen[r] = false;
    if ((STATE & STATE_LOAD) != 0)
        load_state(r);
    range[r] = row_range(row, s);
}

vec4 load_v(uint base, uint d);
void step(uint key, sequence s, bool edge);

// The scores of four keys before them: mask, softcap and biases; -inf, and a bit of `hidden`, where
// a row does not see the key.
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

// Adds a key of a row that saw none, whose answer is the mean of all.
void add_mean(uint r, uint key, sequence s)
{
    uint base = v_index(key_row(key, s), s);
    float weight = dropped(1.0 / float(s.n_kv), row_of(r), key, s);
    TURNS(, p.value_dim, context[r * VALUE4 + d] += weight * load_v(base, d))
}

// A row that saw no key: what mask.flags say. With the keys cut or in pieces, the part of it that
// this workgroup's are.
void answer_dead(uint r, sequence s)
{
    uint answer = mask_field(MASK_ROW_SHIFT, 2);
    float fill = answer == MASKED_NAN ? uintBitsToFloat(0x7fc00000u) : 0.0;
    COLD(VALUE4, p.value_dim, context[r * VALUE4 + d] = vec4(fill))
    total[r] = 1.0;
    if (answer != MASKED_UNIFORM)
        return;
    uvec2 keys = own_keys();
    if ((STATE & STATE_LOAD) != 0)
        COLD(VALUE4, p.value_dim,
            context[r * VALUE4 + d] = saved4(row_state(r) + 4 * d))
    uint key = keys.x, end = min(keys.y, s.n_kv);
#ifndef BARE_LOADS
    for (; key < end; key++)
        add_mean(r, key, s);
#else
    if (key < end)
        do
            add_mean(r, key, s);
        while (++key < end);
#endif
}

void store_record(uint r)
{
    uint t = r * LANES + gl_LocalInvocationIndex;
    uint base = record_of(t, LANES * ROWS, gl_NumWorkGroups.y / p.piece_count);
    COLD(VALUE4, p.value_dim, for (uint i = 0; i < 4; i++)
        o_words[base + 4 * d + i] = floatBitsToUint(context[r * VALUE4 + d][i]))
    store_piece(base, most[r], total[r], seen[r], WEIGHT_UNIT);
}

void store_row4(uint r, uint d, uint base)
{
    for (uint i = 0; i < 4; i++)
        if (V_VEC != 0 || 4 * d + i < p.value_dim) {
            float x = context[r * VALUE4 + d][i] / total[r];
            STORE(o_words, base + 4 * d + i, O_TYPE, one_nan(x));
        }
}

void store_row(uint r, sequence s)
{
    uint row = row_of(r);
    if (seen[r] && mask_has(MASK_SINK)) {
        float sink = sinks[p.sink_offset + p.head_first + head_of(row)];
        total[r] += WEIGHT_UNIT * sink_weight(sink, most[r]);
    }
    uint base = p.o_offset + s.batch * p.o_batch + head_of(row) * p.o_head +
                (s.q_first + query_of(row)) * p.o_row;
    COLD(VALUE4, p.value_dim, store_row4(r, d, base))
}

#ifdef ROLLED
// The same of the blocks so far.
vec4 all_context[ROWS * VALUE4];
float all_most[ROWS], all_total[ROWS];
bool all_seen[ROWS];

void begin_block(uint r)
{
    most[r] = MINUS_INFINITY;
    total[r] = 0.0;
    seen[r] = false;
    BLOCK(VALUE4, p.value_dim, context[r * VALUE4 + d] = vec4(0.0))
}

void begin_blocks()
{
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        all_most[r] = most[r];
        all_total[r] = total[r];
        all_seen[r] = seen[r];
        BLOCK(VALUE4, p.value_dim, all_context[r * VALUE4 + d] = context[r * VALUE4 + d])
        begin_block(r);
    }
}

// Adds the block to those before; one of which a row saw no key changes nothing.
void end_block()
{
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        float now = max(all_most[r], most[r]), shift = now == MINUS_INFINITY ? 0.0 : now;
        float before = exp_accurate(all_most[r] - shift), mine = exp_accurate(most[r] - shift);
        if (!seen[r])
            continue;
        before = all_most[r] == now ? 1.0 : before;
        mine = most[r] == now ? 1.0 : mine;
        all_most[r] = now;
        all_total[r] = fma(total[r], mine, all_total[r] * before);
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
        most[r] = all_most[r];
        total[r] = all_total[r];
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
    piece = p.piece_first + gl_WorkGroupID.y % p.piece_count;
    work_head = gl_WorkGroupID.y / p.piece_count;
    sequence s = find_sequence(LANES * ROWS, tile);
    n_row = s.n_q * p.group;
    tile_row = tile * LANES * ROWS;
    first_row = tile_row + gl_LocalInvocationIndex;
    if (tile_row >= n_row)
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
        else if (first_row + r * LANES < n_row && PIECES != 0)
            store_record(r);
        else if (first_row + r * LANES < n_row)
            store_row(r, s);
    }
}
