// Fused attention of few query rows for CPU drivers whose compilers keep uniform values scalar
// (Mesa 26): a lane holds every eighth feature of q and of the context, so that eight neighbours of
// a key or value, each picked by one lane, are one vector load. Scores and weights lie in lanes by
// key. A workgroup is one subgroup of 8. See attention_params, matmul_address.comp and rows.glsl.
//
// 32 bytes of a row are a vector: a lane has one word of it, of 16-bit types two features, of
// quantised ones four or eight.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"
#include "lib/philox.glsl"
#include "cpu/pick.glsl"

layout(constant_id = ATTENTION_ROWS) const uint ROWS = 1;
layout(constant_id = ATTENTION_HEAD4) const uint HEAD4 = 16;
layout(constant_id = ATTENTION_VALUE4) const uint VALUE4 = 16;
layout(constant_id = ATTENTION_Q_TYPE) const uint Q_TYPE = 0;
layout(constant_id = ATTENTION_K_TYPE) const uint K_TYPE = 0;
layout(constant_id = ATTENTION_V_TYPE) const uint V_TYPE = 0;
layout(constant_id = ATTENTION_O_TYPE) const uint O_TYPE = 0;
layout(constant_id = ATTENTION_GENERAL) const uint GENERAL = 0;
layout(constant_id = ATTENTION_STATE) const uint STATE = 0;
layout(constant_id = ATTENTION_SPLITS) const uint SPLITS = 0;
layout(constant_id = ATTENTION_LOG_SUM) const uint LOG_SUM = 0;
// Not 0: a lane loads its own words alone, and groups of keys are iterations of a loop. For drivers
// that compile a load to a loop over the lanes, and many such loops for minutes. The bits are the
// same.
layout(constant_id = ATTENTION_K_VEC) const uint OWN_WORDS = 0;

layout(local_size_x = 8) in;
uint work_head; // key head of this workgroup
#define WORK_HEAD work_head
#include "lib/attention.glsl"

layout(buffer_reference, buffer_reference_align = 4) readonly buffer Fours { vec4 at[]; };
layout(buffer_reference, buffer_reference_align = 4) readonly buffer Word { uint at[]; };
layout(push_constant) uniform Push { uvec2 q_address, k_address, v_address; };

#define GROUPS 2 // of eight keys in a step
#define STEP_KEYS (8 * GROUPS)
const uint K_VALUES = WORD_VALUES(K_TYPE); // features of a lane in a vector
const uint V_VALUES = WORD_VALUES(V_TYPE);
const bool K_BLOCKS = IS_SCALED(K_TYPE), V_BLOCKS = IS_SCALED(V_TYPE);
const bool V_HAS_NAN = IS_HEAD_SCALED(V_TYPE) || !V_BLOCKS; // integers have none
const uint MOST_VALUES = V_VALUES > 2 ? V_VALUES : 2;
const uint HEAD8 = HEAD4 / 2, VALUE8 = VALUE4 / 2;

// Per row: sums of the current block of keys, and of all blocks before.
float q[ROWS * HEAD8], context[ROWS * VALUE8], all_context[ROWS * VALUE8];
float row_max[ROWS], row_sum[ROWS], all_max[ROWS], all_sum[ROWS]; // row_sum: of a lane's keys
uint seen, all_seen;                                              // bit r: row r saw a key
uvec2 range[ROWS];                                                // see row_range

float x[GROUPS * ROWS]; // [group][row]: scores of the keys of a step, then their weights
uint hidden;            // bit group * ROWS + row: this lane's key of the group is hidden
float shrink[ROWS];     // factor of the context so far

uint lane() { return gl_SubgroupInvocationID; }

uint first_row, n_row;
uint row_of(uint r) { return min(first_row + r, n_row - 1); }

// Feature of this lane that is the i-th of those it has.
uint feature(uint i, uint values) { return i / values * 8 * values + lane() * values + i % values; }

#include "cpu/feature_words.glsl"

// Scores of the eight keys of group g. Takes as many keys at a time as leave eight sums.
void score(uint g, uint at[8])
{
    uint64_t k[8], scales = scales_at(k_address, p.k_scales, K_TYPE);
    float sum[ROWS * 8];
    [[unroll]] for (uint j = 0; j < 8; j++)
        k[j] = row_at(k_address, at[j], K_TYPE);
    [[unroll]] for (uint i = 0; i < ROWS * 8; i++)
        sum[i] = 0.0;
    [[unroll]] for (uint first = 0; first < ROWS; first++)
        [[unroll]] for (uint c = 0; c < HEAD8 / K_VALUES; c++) {
            float scale[8];
            if (K_BLOCKS)
                scales_of(scales, at, c, K_TYPE, scale);
            [[unroll]] for (uint j = 0; j < 8 / ROWS; j++) {
                uint key = first * (8 / ROWS) + j;
                float word = word_of(k[key], c);
                float term[ROWS]; // of quantised keys, without the scale
                [[unroll]] for (uint i = 0; i < K_VALUES; i++) {
                    float value = value_of(word, i, K_TYPE);
                    [[unroll]] for (uint r = 0; r < ROWS; r++) {
                        float x = q[r * HEAD8 + c * K_VALUES + i];
                        if (K_BLOCKS)
                            term[r] = i == 0 ? x * value : fma(x, value, term[r]);
                        else
                            sum[r * 8 + key] = fma(x, value, sum[r * 8 + key]);
                    }
                }
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    if (K_BLOCKS)
                        sum[r * 8 + key] = fma(term[r], scale[key], sum[r * 8 + key]);
            }
        }
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        float v[8];
        [[unroll]] for (uint j = 0; j < 8; j++)
            v[j] = sum[r * 8 + j];
        float scaled = transpose_sum(v) * p.scale;
        [[unroll]] for (uint h = 0; h < GROUPS; h++)
            x[h * ROWS + r] = h == g ? scaled : x[h * ROWS + r];
    }
}

// x of this lane's key of group g.
float of_group(uint g, uint r)
{
    float mine = x[r];
    [[unroll]] for (uint h = 1; h < GROUPS; h++)
        mine = h == g ? x[h * ROWS + r] : mine;
    return mine;
}

// Applies masks, softcap and biases to the scores of this lane's keys; true where any is hidden.
bool bias(uint key, sequence s)
{
    uint shown = 0;
    hidden = 0;
    [[unroll]] for (uint i = 0; i < GROUPS * ROWS; i++) {
        uint r = i % ROWS, mine = key + i / ROWS * 8 + lane();
        bool visible = mine >= range[r].x && mine < range[r].y;
        if (GENERAL != 0) {
            float biased = x[i];
            bool shown = bias_score(biased, row_of(r), mine, visible, s);
            visible = visible && shown;
            x[i] = biased;
        }
        x[i] = visible ? x[i] : MINUS_INFINITY;
        hidden |= visible ? 0u : 1u << i;
        shown |= visible ? 1u << r : 0u;
    }
    uint any = subgroupOr(hidden | shown << 16);
    seen |= any >> 16;
    return (any & 0xffffu) != 0;
}

// One step of the online softmax: turns the scores of row r into weights.
void weigh(uint r, uint key, sequence s, bool masked)
{
    float old = row_max[r], now = x[r], sum = 0.0;
    [[unroll]] for (uint g = 1; g < GROUPS; g++)
        now = max(now, x[g * ROWS + r]);
    now = max(old, lanes_max(now));
    float shift = now == MINUS_INFINITY ? 0.0 : now; // no key yet: all weights are exp(-inf) = 0
    shrink[r] = old == now ? 1.0 : exp_accurate(old - shift);
    row_max[r] = now;
    [[unroll]] for (uint g = 0; g < GROUPS; g++) {
        float w = exp_weight(x[g * ROWS + r] - shift);
        if (masked)
            w = (hidden >> (g * ROWS + r) & 1u) != 0 ? 0.0 : w;
        sum += w;
        x[g * ROWS + r] = dropped(w, row_of(r), key + 8 * g + lane(), s);
    }
    row_sum[r] = fma(row_sum[r], shrink[r], sum);
}

// Adds eight weighted values. masked: adds nothing of those of hidden keys, which may be NaN or
// Inf.
void add_values(uint g, uint at[8], bool masked)
{
    uint64_t v[8], scales = scales_at(v_address, p.v_scales, V_TYPE);
    [[unroll]] for (uint j = 0; j < 8; j++)
        v[j] = row_at(v_address, at[j], V_TYPE);
    float w[ROWS * 8];
    bool skip[ROWS * 8];
    [[unroll]] for (uint j = 0; j < 8; j++) {
        uint bits = masked ? subgroupShuffle(hidden, j) >> g * ROWS : 0;
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            w[r * 8 + j] = subgroupShuffle(of_group(g, r), j);
            skip[r * 8 + j] = (bits >> r & 1u) != 0;
        }
    }
    [[unroll]] for (uint c = 0; c < VALUE8 / V_VALUES; c++) {
        float sum[ROWS * MOST_VALUES];
        [[unroll]] for (uint i = 0; i < ROWS * MOST_VALUES; i++)
            sum[i] = 0.0;
        float scale[8];
        if (V_BLOCKS)
            scales_of(scales, at, c, V_TYPE, scale);
        [[unroll]] for (uint j = 0; j < 8; j++) {
            float word = word_of(v[j], c);
            float weight[ROWS];
            [[unroll]] for (uint r = 0; r < ROWS; r++) {
                weight[r] = w[r * 8 + j];
                if (V_BLOCKS)
                    weight[r] = masked && skip[r * 8 + j] ? 0.0 : weight[r] * scale[j];
            }
            [[unroll]] for (uint i = 0; i < V_VALUES; i++) {
                float value = value_of(word, i, V_TYPE);
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    sum[r * MOST_VALUES + i] =
                        fma(weight[r], masked && V_HAS_NAN && skip[r * 8 + j] ? 0.0 : value,
                            sum[r * MOST_VALUES + i]);
            }
        }
        [[unroll]] for (uint i = 0; i < V_VALUES; i++)
            [[unroll]] for (uint r = 0; r < ROWS; r++) {
                uint feature = r * VALUE8 + c * V_VALUES + i;
                float more = sum[r * MOST_VALUES + i];
                context[feature] = g == 0 ? fma(context[feature], shrink[r], more)
                                          : context[feature] + more;
            }
    }
}

void score_group(uint g, uint base, uint row, uint last)
{
    uint at[8];
    rows_at(base, row, g, last, at);
    score(g, at);
}

// hides: there are hidden keys. Each way has code of its own but where lanes load alone.
void add_group(uint g, uint base, uint row, uint last, bool hides)
{
    uint at[8];
    rows_at(base, row, g, last, at);
    if (OWN_WORDS != 0)
        add_values(g, at, hides);
    else if (hides)
        add_values(g, at, true);
    else
        add_values(g, at, false);
}

void step(uint key, sequence s, bool edge)
{
    bool masked = edge || GENERAL != 0, hides = false;
    uint row = key_row(key, s), last = s.n_kv - 1 - key;
    uint k_base = k_index(row, s), v_base = v_index(row, s), k_row = p.k_row, v_row = p.v_row;
    if (OWN_WORDS != 0)
        [[dont_unroll]] for (uint g = 0; g < GROUPS; g++)
            score_group(g, k_base, k_row, last);
    else
        [[unroll]] for (uint g = 0; g < GROUPS; g++)
            score_group(g, k_base, k_row, last);
    if (masked)
        hides = bias(key, s);
    else
        seen = (1u << ROWS) - 1;
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        weigh(r, key, s, masked);
    if (OWN_WORDS != 0)
        [[dont_unroll]] for (uint g = 0; g < GROUPS; g++)
            add_group(g, v_base, v_row, last, hides);
    else
        [[unroll]] for (uint g = 0; g < GROUPS; g++)
            add_group(g, v_base, v_row, last, hides);
}

void begin_block()
{
    seen = 0;
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        row_max[r] = MINUS_INFINITY;
        row_sum[r] = 0.0;
        [[unroll]] for (uint i = 0; i < VALUE8; i++)
            context[r * VALUE8 + i] = 0.0;
    }
}

// Merges the block into those before, in rows that saw a key of it.
void end_block()
{
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        if ((seen >> r & 1u) == 0)
            continue;
        float now = max(all_max[r], row_max[r]), shift = now == MINUS_INFINITY ? 0.0 : now;
        float before = all_max[r] == now ? 1.0 : exp_accurate(all_max[r] - shift);
        float mine = row_max[r] == now ? 1.0 : exp_accurate(row_max[r] - shift);
        all_max[r] = now;
        all_sum[r] = fma(lanes_sum(row_sum[r]), mine, all_sum[r] * before);
        [[unroll]] for (uint i = r * VALUE8; i < (r + 1) * VALUE8; i++)
            all_context[i] = fma(context[i], mine, all_context[i] * before);
    }
    all_seen |= seen;
    begin_block();
}

// First word of the state of row r: context, row_sum, seen, row_max.
uint row_state(uint r)
{
    uint pitch = STATE_PITCH(VALUE4, 2);
    return state_of(ROWS * pitch) + r * pitch;
}

// A row that saw no key so far keeps its initial values: answer_dead made its saved context.
void load_state(uint r)
{
    uint at = row_state(r) + 4 * VALUE4;
    if (saved(at + 1) == 0.0)
        return;
    all_seen |= 1u << r;
    all_sum[r] = saved(at);
    all_max[r] = saved(at + 2);
    [[unroll]] for (uint i = 0; i < VALUE8; i++)
        all_context[r * VALUE8 + i] = saved(row_state(r) + feature(i, V_VALUES));
}

void load_row(uint r, sequence s)
{
    uint base = q_index(row_of(r), s);
    bool sink = mask_has(MASK_SINK);
    [[unroll]] for (uint i = 0; i < HEAD8; i++)
        q[r * HEAD8 + i] = LOAD(q_words, base + feature(i, K_VALUES), Q_TYPE);
    all_max[r] = sink ? sinks[p.sink_offset + p.head_first + head_of(row_of(r))] : MINUS_INFINITY;
    all_sum[r] = 0.0;
    [[unroll]] for (uint i = 0; i < VALUE8; i++)
        all_context[r * VALUE8 + i] = 0.0;
    range[r] = row_range(row_of(r), s);
    if ((STATE & STATE_LOAD) != 0)
        load_state(r);
}

// Adds one value to a fully masked row that returns the mean of n values.
void add_mean(uint r, uint key, uint n, sequence s)
{
    uint base = v_index(key_row(key, s), s);
    uint64_t v = row_at(v_address, base, V_TYPE);
    uint64_t scales = scales_at(v_address, p.v_scales, V_TYPE);
    float weight = dropped(1.0 / float(n), row_of(r), key, s);
    [[unroll]] for (uint i = 0; i < VALUE8; i++) {
        float scale = V_BLOCKS ? scale_of(scales, base, i / V_VALUES, V_TYPE) : 1.0;
        float x = value_of(word_of(v, i / V_VALUES), i % V_VALUES, V_TYPE);
        all_context[r * VALUE8 + i] += weight * (V_BLOCKS ? scale * x : x);
    }
}

// Sets the context of a fully masked row by mask.flags; where keys are cut or split, this
// workgroup's rows of it.
void answer_dead(uint r, sequence s)
{
    uint answer = mask_field(MASK_ROW_SHIFT, 2);
    float fill = answer == MASKED_NAN ? uintBitsToFloat(0x7fc00000u) : 0.0;
    bool load = answer == MASKED_UNIFORM && (STATE & STATE_LOAD) != 0;
    [[unroll]] for (uint i = 0; i < VALUE8; i++)
        all_context[r * VALUE8 + i] = load ? saved(row_state(r) + feature(i, V_VALUES)) : fill;
    all_sum[r] = 1.0;
    uvec2 keys = own_keys();
    uint n = mean_keys(s), key = keys.x, end = min(keys.y, n);
    if (answer == MASKED_UNIFORM && key < end)
        do
            add_mean(r, key, n, s);
        while (++key < end);
}

// Stores a row's state, its record or its result.
void store_row(uint r, sequence s)
{
    uint row = first_row + r, base = row_state(r);
    bool there = (all_seen >> r & 1u) != 0;
    if ((STATE & STATE_STORE) != 0) {
        o_words[base + 4 * VALUE4] = floatBitsToUint(all_sum[r]);
        o_words[base + 4 * VALUE4 + 1] = floatBitsToUint(there ? 1.0 : 0.0);
        o_words[base + 4 * VALUE4 + 2] = floatBitsToUint(all_max[r]);
    } else if (row >= n_row) {
        return;
    } else if (SPLITS != 0) {
        base = record_of(r, ROWS, gl_NumWorkGroups.y / p.split_count);
        store_split(base, all_max[r], all_sum[r], there, WEIGHT_UNIT);
    } else {
        if (LOG_SUM != 0 && lane() == 0)
            store_log_sum(row, log_sum(there, all_max[r], all_sum[r], WEIGHT_UNIT, row), s);
        if (there && mask_has(MASK_SINK)) {
            float sink = sinks[p.sink_offset + p.head_first + head_of(row)];
            all_sum[r] = fma(WEIGHT_UNIT, sink_weight(sink, all_max[r]), all_sum[r]);
        }
        base = p.o_offset + s.batch * p.o_batch + head_of(row) * p.o_head +
               (s.q_first + query_of(row)) * p.o_row;
    }
    bool sums = (STATE & STATE_STORE) != 0 || SPLITS != 0;
    [[unroll]] for (uint i = 0; i < VALUE8; i++) {
        float c = all_context[r * VALUE8 + i];
        uint at = base + feature(i, V_VALUES);
        if (sums)
            o_words[at] = floatBitsToUint(c);
        else
            STORE(o_words, at, O_TYPE, one_nan(c / all_sum[r]));
    }
}

void main()
{
    uint tile;
    split = p.split_first + gl_WorkGroupID.y % p.split_count;
    work_head = gl_WorkGroupID.y / p.split_count;
    sequence s = find_sequence(ROWS, tile);
    n_row = s.n_q * p.group;
    first_row = tile * ROWS;
    if (first_row >= n_row || is_behind(s))
        return;
    set_slot(tile);
    uvec2 outer = uvec2(0xffffffffu, 0), inner = uvec2(0, 0xffffffffu), own = own_keys();
    all_seen = 0;
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        load_row(r, s);
        if (range[r].x < range[r].y)
            outer = uvec2(min(outer.x, range[r].x), max(outer.y, range[r].y));
        inner = uvec2(max(inner.x, range[r].x), min(inner.y, range[r].y));
    }
    begin_block();
    uint key = max(outer.x / STEP_KEYS * STEP_KEYS, own.x), end = min(outer.y, own.y);
    if (key < end)
        do {
            if (key % ATTENTION_BLOCK == 0)
                end_block();
            step(key, s, key < inner.x || key + STEP_KEYS > inner.y);
            key += STEP_KEYS;
        } while (key < end);
    end_block();
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        if ((all_seen >> r & 1u) == 0)
            answer_dead(r, s);
        store_row(r, s);
    }
}
