// Fused attention for GPUs. Shared memory holds a tile of q, keys and values in turn, and the
// weights of a step; registers of an invocation hold TR rows of scores by four keys, and of context
// by a few vec4. Needs no subgroup operations. See attention_params.
//
// Steps start at multiples of KEYS, and each lane sums its own keys, whatever the other rows of the
// tile see: the bits of a row depend on that row alone. With MIXED_DOT q and keys are float16: see
// tile_scores_mixed.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef MIXED_DOT
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_spirv_intrinsics : require
#endif
#include "params/params.h"
#define UNPACK_HALF
#include "lib/dtype.glsl"
#include "lib/math.glsl"
#include "lib/philox.glsl"

layout(constant_id = TILE_LANES_X) const uint LANES_X = 8;
layout(constant_id = TILE_LANES_Y) const uint LANES_Y = 16;
layout(constant_id = TILE_ROWS) const uint TR = 4;
layout(constant_id = TILE_HEAD4) const uint HEAD4 = 16; // a multiple of DEPTH4
layout(constant_id = TILE_DEPTH4) const uint DEPTH4 = 16;
layout(constant_id = TILE_VALUE4) const uint VALUE4 = 16;
layout(constant_id = TILE_V_KEYS) const uint V_KEYS = 32;
layout(constant_id = TILE_Q_TYPE) const uint Q_TYPE = 0;
layout(constant_id = TILE_K_TYPE) const uint K_TYPE = 0;
layout(constant_id = TILE_V_TYPE) const uint V_TYPE = 0;
layout(constant_id = TILE_O_TYPE) const uint O_TYPE = 0;
layout(constant_id = TILE_K_VEC) const uint K_VEC = 1;
layout(constant_id = TILE_V_VEC) const uint V_VEC = 1;
layout(constant_id = TILE_GENERAL) const uint GENERAL = 0;
layout(constant_id = TILE_Q_WHOLE) const uint Q_WHOLE = 1;
layout(constant_id = TILE_SPLITS) const uint SPLITS = 0;
layout(constant_id = TILE_STATE) const uint STATE = 0;
layout(constant_id = TILE_LOG_SUM) const uint LOG_SUM = 0;
layout(constant_id = TILE_PAGED) const uint IS_PAGED = 0;
layout(constant_id = TILE_LOADS) const uint LOADS = 1;
#define PAGED (IS_PAGED != 0)

layout(local_size_x_id = TILE_LANES_X, local_size_y_id = TILE_LANES_Y) in;

const uint KEYS = 4 * LANES_X;
const uint ROWS = LANES_Y * TR;
const uint THREADS = LANES_X * LANES_Y;
#include "lib/tile.glsl"

const uint TV = (VALUE4 + LANES_X - 1) / LANES_X; // vec4 of a row's context in one invocation
const uint Q_PITCH = TILE_PITCH(Q_WHOLE != 0 ? HEAD4 : DEPTH4);
const uint K_PITCH = TILE_PITCH(DEPTH4);
const uint W_PITCH = TILE_WEIGHT_PITCH(LANES_X);
#ifdef MIXED_DOT
#define FOUR uvec2 // of q and keys
const uint STAGE4 = V_KEYS * VALUE4;
#else
#define FOUR vec4
#define keys_stage stage
const uint STAGE4 = KEYS * K_PITCH > V_KEYS * VALUE4 ? KEYS * K_PITCH : V_KEYS * VALUE4;
#endif

shared FOUR q_tile[ROWS * Q_PITCH];
// [key][vec4]: keys, then values. Key k of a step is in row (k % 4) * LANES_X + k / 4: lane x reads
// keys 4 x .. 4 x + 3, and neighbouring lanes different banks.
shared vec4 stage[STAGE4];
#ifdef MIXED_DOT
shared uvec2 keys_stage[KEYS * K_PITCH];
#endif
shared vec4 weights[ROWS * W_PITCH]; // [row][lane]: scores, then weights, of four keys
shared vec4 exchange[ROWS * LANES_X / 4]; // [row][lane / 4]: one number a lane

#define HIDDEN -1.0 // weight of a hidden key, whose value, maybe NaN, is not added

// Row r of this invocation is row r * LANES_Y + y of the tile. x: scores of four keys.
vec4 x[TR], context[TR * TV];
float row_max[TR], row_sum[TR];
uint k_base, v_base, k_row, v_row; // first key and value of the sequence; from row to row
uint seen, hidden; // bit r: row r saw a key; bit 4 r + i: it does not see key i

uint tile_row(uint r) { return r * LANES_Y + gl_LocalInvocationID.y; }

#ifdef MIXED_DOT
#include "tile_scores_mixed.glsl"
#else
#define READ_Q(row, d, s) p.scale * load_q(row, d, s)
#define LOAD_K(base, d) load_k(base, d)
#define WHOLE_K(at) K_TYPE == TYPE_F32 ? k_vec4[at] : decode4(k_words2[at], K_TYPE)
#define ADD_FOUR(q, k, sum) fma(q.w, k.w, fma(q.z, k.z, fma(q.y, k.y, fma(q.x, k.x, sum))))
#endif

void stage_q(uint first, uint n, sequence s)
{
    for (uint i = gl_LocalInvocationIndex; i < ROWS * n; i += THREADS)
        q_tile[i / n * Q_PITCH + i % n] = READ_Q(row_of(i / n), first + i % n, s);
}

// Vec4 d of key k of those that begin at `key`, and of a value. Past the last they are the last.
FOUR read_k(uint k, uint d, sequence s)
{
    uint row = min(k, s.n_kv - 1), base = PAGED ? k_index(key_row(row, s), s) : k_base + row * k_row;
    if (K_VEC != 2 || IS_SCALED(K_TYPE))
        return LOAD_K(base, d);
    uint at = (base >> 2) + d;
    return WHOLE_K(at);
}

vec4 read_v(uint k, uint d, sequence s)
{
    uint row = min(k, s.n_kv - 1), base = PAGED ? v_index(key_row(row, s), s) : v_base + row * v_row;
    if (V_VEC != 2 || IS_SCALED(V_TYPE))
        return load_v(base, d);
    uint at = (base >> 2) + d;
    return V_TYPE == TYPE_F32 ? v_vec4[at] : decode4(v_words2[at], V_TYPE);
}

// Vec4 `load` of this lane among `n` of a stage, row by row of `per`: its row and its column. Where
// lanes take whole rows both follow from those of load 0, without a division.
#define STAGED_ROW(load, per)                                                                      \
    (THREADS % (per) == 0 ? gl_LocalInvocationIndex / (per) + (load) * (THREADS / (per))           \
                          : ((load)*THREADS + gl_LocalInvocationIndex) / (per))
#define STAGED_COLUMN(load, per)                                                                   \
    (THREADS % (per) == 0 ? gl_LocalInvocationIndex % (per)                                        \
                          : ((load)*THREADS + gl_LocalInvocationIndex) % (per))

// Stages `n` vec4, `batch` of a lane at a time, so that their latencies overlap.
#define STAGE(type, to, n, batch, read, place)                                                     \
    for (uint begin = 0; begin < LOADS_OF(n); begin += batch) {                                    \
        type ahead[batch];                                                                         \
        [[unroll]] for (uint i = 0; i < batch; i++) {                                              \
            uint load = begin + i;                                                                 \
            ahead[i] = read;                                                                       \
        }                                                                                          \
        [[unroll]] for (uint i = 0; i < batch; i++) {                                              \
            uint load = begin + i;                                                                 \
            if ((n) % (batch * THREADS) == 0 || load * THREADS + gl_LocalInvocationIndex < (n))    \
                to[place] = ahead[i];                                                              \
        }                                                                                          \
    }
#define LOADS_OF(n) (((n) + THREADS - 1) / THREADS)
#define ROUNDS_OF(n) ((LOADS_OF(n) + LOADS - 1) / LOADS)
#define BATCH_OF(n) ((LOADS_OF(n) + ROUNDS_OF(n) - 1) / ROUNDS_OF(n))
const uint K_BATCH = BATCH_OF(KEYS * DEPTH4), V_BATCH = BATCH_OF(V_KEYS * VALUE4);

// Row of the stage that key k of a step lies in.
uint k_place(uint k) { return k % 4 * LANES_X + k / 4; }

void stage_k(uint key, uint first, sequence s)
{
    STAGE(FOUR, keys_stage, KEYS * DEPTH4, K_BATCH,
          read_k(key + STAGED_ROW(load, DEPTH4), first + STAGED_COLUMN(load, DEPTH4), s),
          k_place(STAGED_ROW(load, DEPTH4)) * K_PITCH + STAGED_COLUMN(load, DEPTH4))
}

void stage_v(uint key, sequence s)
{
    STAGE(vec4, stage, V_KEYS * VALUE4, V_BATCH,
          read_v(key + STAGED_ROW(load, VALUE4), first_value4 + STAGED_COLUMN(load, VALUE4), s),
          load * THREADS + gl_LocalInvocationIndex)
}

// Sets x to the scores of this lane's four keys for each row.
void score(uint key, sequence s)
{
    uint column = gl_LocalInvocationID.x * K_PITCH;
    [[unroll]] for (uint r = 0; r < TR; r++)
        x[r] = vec4(0.0);
    [[dont_unroll]] for (uint first = 0; first < HEAD4; first += DEPTH4) { // for code caches
        barrier(); // the stage is free
        stage_k(key, first, s);
        if (Q_WHOLE == 0)
            stage_q(first, DEPTH4, s);
        barrier();
        uint q_first = Q_WHOLE != 0 ? first : 0;
        for (uint d = 0; d < DEPTH4; d++) {
            FOUR k[4];
            [[unroll]] for (uint i = 0; i < 4; i++)
                k[i] = keys_stage[column + i * LANES_X * K_PITCH + d];
            [[unroll]] for (uint r = 0; r < TR; r++) {
                FOUR q = q_tile[tile_row(r) * Q_PITCH + q_first + d];
                [[unroll]] for (uint i = 0; i < 4; i++)
                    x[r][i] = ADD_FOUR(q, k[i], x[r][i]);
            }
        }
    }
#ifdef MIXED_DOT
    scale_scores();
#endif
}

// Applies masks, softcap and biases to the scores: hidden keys get -inf and a bit of `hidden`. The
// scores pass through shared memory, so that a loop that is not unrolled can index them.
void bias(uint key, bool test, sequence s)
{
    [[unroll]] for (uint r = 0; r < TR; r++)
        weights[tile_row(r) * W_PITCH + gl_LocalInvocationID.x] = x[r];
    [[dont_unroll]] for (uint e = 0; e < 4 * TR; e++) {
        uint t = tile_row(e / 4), at = t * W_PITCH + gl_LocalInvocationID.x;
        uint k = key + 4 * gl_LocalInvocationID.x + e % 4;
        float score = weights[at][e % 4];
        bool visible = k >= ranges[t].x && k < ranges[t].y;
        if (GENERAL != 0 && visible)
            visible = bias_score(score, row_of(t), k, test, s);
        hidden |= visible ? 0 : 1u << e;
        weights[at][e % 4] = visible ? score : MINUS_INFINITY;
    }
    [[unroll]] for (uint r = 0; r < TR; r++)
        x[r] = weights[tile_row(r) * W_PITCH + gl_LocalInvocationID.x];
}

void drop(uint key, sequence s)
{
    [[dont_unroll]] for (uint e = 0; e < 4 * TR; e++) {
        uint t = tile_row(e / 4), at = t * W_PITCH + gl_LocalInvocationID.x;
        uint k = key + 4 * gl_LocalInvocationID.x + e % 4;
        if ((hidden >> e & 1u) == 0u)
            weights[at][e % 4] = dropped(weights[at][e % 4], row_of(t), k, s);
    }
}

// Gives y to the other lanes of row r.
void give(uint r, float y)
{
    uint lane = gl_LocalInvocationID.x;
    exchange[tile_row(r) * (LANES_X / 4) + lane / 4][lane % 4] = y;
}

// One step of the online softmax: turns scores into weights. That of a hidden key is 0 until
// hide_keys.
void weigh()
{
    [[unroll]] for (uint r = 0; r < TR; r++)
        give(r, max(max(x[r].x, x[r].y), max(x[r].z, x[r].w)));
    barrier(); // also: all have read the keys, so the stage is free
    [[unroll]] for (uint r = 0; r < TR; r++) {
        float old = row_max[r], now = old;
        for (uint i = 0; i < LANES_X / 4; i++) {
            vec4 e = exchange[tile_row(r) * (LANES_X / 4) + i];
            now = max(now, max(max(e.x, e.y), max(e.z, e.w)));
        }
        float shift = now == MINUS_INFINITY ? 0.0 : now; // no key yet: all weights are exp(-inf)
        float shrink = exp_accurate(old - shift), sum = 0.0; // NaN where both are infinite
        shrink = old == now ? 1.0 : shrink;
        vec4 w;
        [[unroll]] for (uint i = 0; i < 4; i++) {
            w[i] = exp_weight(x[r][i] - shift);
            sum += w[i];
        }
        row_sum[r] = fma(row_sum[r], shrink, sum);
        row_max[r] = now;
        weights[tile_row(r) * W_PITCH + gl_LocalInvocationID.x] = w;
        [[unroll]] for (uint j = 0; j < TV; j++)
            context[r * TV + j] *= shrink;
    }
}

// Makes weights of hidden keys HIDDEN, and finds the rows that saw a key: apart from weigh, as few
// steps have hidden keys.
void hide_keys()
{
    [[dont_unroll]] for (uint e = 0; e < 4 * TR; e++)
        if ((hidden >> e & 1u) != 0u)
            weights[tile_row(e / 4) * W_PITCH + gl_LocalInvocationID.x][e % 4] = HIDDEN;
        else
            seen |= 1u << e / 4;
}

// Vec4 j of this invocation's features of staged value k. Past the end it is the last one, whose
// sum is not stored.
vec4 staged_v(uint k, uint j)
{
    return stage[k * VALUE4 + min(gl_LocalInvocationID.x + j * LANES_X, VALUE4 - 1)];
}

// Adds the staged values times their weights, from key `first` of the step on; none is HIDDEN.
void add_plain(uint first)
{
    for (uint k = 0; k < V_KEYS; k += 4) {
        vec4 w[TR];
        [[unroll]] for (uint r = 0; r < TR; r++)
            w[r] = weights[tile_row(r) * W_PITCH + (first + k) / 4];
        [[unroll]] for (uint i = 0; i < 4; i++)
            [[unroll]] for (uint j = 0; j < TV; j++) {
                vec4 v = staged_v(k + i, j);
                [[unroll]] for (uint r = 0; r < TR; r++)
                    context[r * TV + j] = fma(vec4(w[r][i]), v, context[r * TV + j]);
            }
    }
}

// add_plain where weights may be HIDDEN.
void add_tested(uint first)
{
    [[dont_unroll]] for (uint k = 0; k < V_KEYS; k++)
        [[unroll]] for (uint r = 0; r < TR; r++) {
            float w = weights[tile_row(r) * W_PITCH + (first + k) / 4][k % 4];
            if (!(w < 0.0))
                [[unroll]] for (uint j = 0; j < TV; j++)
                    context[r * TV + j] = fma(vec4(w), staged_v(k, j), context[r * TV + j]);
        }
}

void add_values(uint key, bool test, sequence s)
{
    [[dont_unroll]] for (uint first = 0; first < KEYS; first += V_KEYS) {
        if (first != 0)
            barrier(); // the stage is free
        stage_v(key + first, s);
        barrier();
        if (test)
            add_tested(first);
        else
            add_plain(first);
    }
}

void step(uint key, bool test, sequence s)
{
    score(key, s);
    hidden = 0;
    if (test || GENERAL != 0)
        bias(key, test, s);
    weigh();
    if (test)
        hide_keys();
    else
        seen = (1u << TR) - 1u;
    if (GENERAL != 0 && p.dropout != 0.0)
        drop(key, s);
    add_values(key, test, s);
}

#include "tile_store.glsl"

void main()
{
    uint tile;
    uint y = gl_WorkGroupID.y;
    first_value4 = y % p.n_feature_tile * VALUE4;
    split = p.split_first + y / p.n_feature_tile % p.split_count;
    work_head = y / p.n_feature_tile / p.split_count;
    sequence s = find_sequence(ROWS, tile);
    n_row = s.n_q * p.group;
    first_row = tile * ROWS;
    if (first_row >= n_row || is_behind(s))
        return;
    set_slot(tile);
    if (!PAGED) {
        k_base = k_index(s.kv_first, s);
        v_base = v_index(s.kv_first, s);
        k_row = p.k_row;
        v_row = p.v_row;
    }
    bool sink = mask_has(MASK_SINK);
    seen = 0;
    [[unroll]] for (uint r = 0; r < TR; r++) {
        uint head = p.head_first + head_of(row_of(tile_row(r)));
        row_max[r] = sink ? sinks[p.sink_offset + head] : MINUS_INFINITY;
        row_sum[r] = 0.0;
        [[unroll]] for (uint j = 0; j < TV; j++)
            context[r * TV + j] = vec4(0.0);
    }
    if ((STATE & STATE_LOAD) != 0)
        load_state();
    if (Q_WHOLE != 0)
        stage_q(0, HEAD4, s);
    uvec4 bound = find_bounds(s);
    uvec2 keys = own_keys();
    uint end = min(bound.y, keys.y);
    for (uint key = max(bound.x / KEYS * KEYS, keys.x); key < end; key += KEYS) {
        uint code = map_code(tile, key);
        bool test = key < bound.z || key + KEYS > bound.w || (code & MAP_TEST) != 0u;
        if ((code & MAP_SOME) != 0u)
            step(key, test, s);
    }
    if ((STATE & STATE_STORE) != 0)
        store_sums();
    add_lanes();
    [[dont_unroll]] for (uint r = 0; r < TR; r++)
        if ((STATE & STATE_STORE) != 0)
            store_context(r, keys, s);
        else if (first_row + tile_row(r) < n_row)
            store_row(r, keys, s);
}
