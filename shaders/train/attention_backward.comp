// Gradients of attention without a buffer of scores, for GPUs. A workgroup owns a tile of rows, of
// queries or of keys, and walks the other side; shared memory holds parts of the rows of both sides,
// then the gradients of the scores of a step. See attention_backward_params.
//
// Every score is one chain of fma over the features, and every gradient one over the rows of a unit
// of the other side, so that its bits depend on the problem alone.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params.h"
#include "model.h"
#include "train.h"
#define UNPACK_HALF
#include "lib/dtype.glsl"
#include "lib/math.glsl"
#include "lib/philox.glsl"

layout(constant_id = BACKWARD_STAGE) const uint STAGE = BACKWARD_SUMS;
layout(constant_id = BACKWARD_LANES_X) const uint LANES_X = 8;
layout(constant_id = BACKWARD_LANES_Y) const uint LANES_Y = 16;
layout(constant_id = BACKWARD_ROWS) const uint TR = 4;
layout(constant_id = BACKWARD_HEAD4) const uint HEAD4 = 16;
layout(constant_id = BACKWARD_VALUE4) const uint VALUE4 = 16;
layout(constant_id = BACKWARD_DEPTH4) const uint DEPTH4 = 4;
layout(constant_id = BACKWARD_A4) const uint A4 = 16;
layout(constant_id = BACKWARD_B4) const uint B4 = 16;
layout(constant_id = BACKWARD_PART) const uint PART = 8;
layout(constant_id = BACKWARD_Q_TYPE) const uint Q_TYPE = 0;
layout(constant_id = BACKWARD_K_TYPE) const uint K_TYPE = 0;
layout(constant_id = BACKWARD_V_TYPE) const uint V_TYPE = 0;
layout(constant_id = BACKWARD_DY_TYPE) const uint DY_TYPE = 0;
layout(constant_id = BACKWARD_VECS) const uint VECS = 0;
layout(constant_id = BACKWARD_GENERAL) const bool GENERAL = true;
layout(constant_id = BACKWARD_BATCH) const uint BATCH = 2;

layout(local_size_x_id = BACKWARD_LANES_X, local_size_y_id = BACKWARD_LANES_Y) in;
layout(binding = 0) readonly buffer Q { uint q_words[]; };
layout(binding = 0) readonly buffer Q2 { uvec2 q_words2[]; };
layout(binding = 0) readonly buffer Q4 { vec4 q_vec4[]; };
layout(binding = 1) readonly buffer Keys { uint k_words[]; };
layout(binding = 1) readonly buffer Keys2 { uvec2 k_words2[]; };
layout(binding = 1) readonly buffer Keys4 { vec4 k_vec4[]; };
layout(binding = 2) readonly buffer Values { uint v_words[]; };
layout(binding = 2) readonly buffer Values2 { uvec2 v_words2[]; };
layout(binding = 2) readonly buffer Values4 { vec4 v_vec4[]; };
layout(binding = 3) readonly buffer Dy { uint dy_words[]; };
layout(binding = 3) readonly buffer Dy2 { uvec2 dy_words2[]; };
layout(binding = 3) readonly buffer Dy4 { vec4 dy_vec4[]; };
layout(binding = 4) readonly buffer Mask { uint mask_words[]; };
layout(binding = 5) readonly buffer Length { uint length_words[]; };
layout(binding = 6) readonly buffer QueryOffset { uint query_offset_words[]; };
layout(binding = 7) readonly buffer Sink { float sinks[]; };
layout(binding = 8) readonly buffer Alibi { float slopes[]; };
layout(binding = 9) buffer Rows { float rows[]; };
layout(binding = 10) buffer A { float a_sums[]; };
layout(binding = 11) buffer B { float b_sums[]; };
layout(binding = 12) readonly buffer Params { attention_backward_params p; };
#include "lib/mask.glsl"

const bool OWNS_KEYS = STAGE == BACKWARD_KEYS;
const uint OWN = LANES_Y * TR, OTHERS = 4 * LANES_X, THREADS = LANES_X * LANES_Y;
const uint QUERIES = OWNS_KEYS ? OTHERS : OWN;
const uint PITCH = TILE_PITCH(DEPTH4), W_PITCH = TILE_WEIGHT_PITCH(LANES_X);
const uint TA = STAGE == BACKWARD_SUMS ? 0 : (A4 + LANES_X - 1) / LANES_X; // vec4 of a lane
const uint TB = OWNS_KEYS ? (B4 + LANES_X - 1) / LANES_X : 0;
const uint T = TA + TB;
const uint WIDE4 = OWNS_KEYS && B4 > A4 ? B4 : A4;
const uint OPERANDS = (OWN + OTHERS) * PITCH;
// Loads in flight of an invocation: no more than it has.
#define BATCH_OF(n) (BATCH < ((n) + THREADS - 1) / THREADS ? BATCH : ((n) + THREADS - 1) / THREADS)
const uint OWN_BATCH = BATCH_OF(OWN * DEPTH4), OTHER_BATCH = BATCH_OF(OTHERS * DEPTH4);
const uint STAGE4 = OPERANDS > PART * WIDE4 ? OPERANDS : PART * WIDE4;

// Vec4 d of own rows, then of others: other k is in row (k % 4) * LANES_X + k / 4, so that lane x
// reads others 4 x .. 4 x + 3, and neighbouring lanes different banks. Then rows of others.
shared vec4 stage[STAGE4];
// [own][lane]: of four others, scores and then their gradients; from WEIGHTS on gradients of weights and
// then weights.
const uint WEIGHTS = OWN * W_PITCH;
shared vec4 tiles[2 * WEIGHTS];
shared vec2 lane_sums[STAGE == BACKWARD_SUMS ? OWN * LANES_X : 1];
shared uvec2 ranges[QUERIES]; // of visible keys, but for the mask
shared vec4 infos[QUERIES];   // log-sum-exp, 1 / Z, Z, Y, see BACKWARD_ROW_
shared uint bounds[5]; // least first key, greatest end, greatest first, least end, a row sees no key

vec4 sums[TR * T > 0 ? TR * T : 1];
uint key_head, head;        // of this pass; head: the query head of the unit
uint own_first, a_first4, b_first4;
float alibi;
bool tested; // some weight of the step may be hidden

uint tile_row(uint r) { return r * LANES_Y + gl_LocalInvocationID.y; }

#include "train/backward_rows.glsl"

vec4 load_own(bool second, uint row, uint d)
{
    return OWNS_KEYS ? load_key(second, row, d) : load_query(second, row, d);
}

vec4 load_other(bool second, uint row, uint d)
{
    return OWNS_KEYS ? load_query(second, row, d) : load_key(second, row, d);
}

// ---- Queries of a tile: what they see, and the sums of their rows -------------------------------

uint row_index(uint query)
{
    return p.rows_offset + gl_WorkGroupID.z * p.rows_batch + head * p.rows_head +
           query * BACKWARD_ROW;
}

uint batch_of() { return p.batch_first + gl_WorkGroupID.z; }
uint head_of() { return p.head_first + head; }

// Sets ranges, infos and bounds. A row that sees no key gives weights to all keys, but where masked_row
// says 0; rows past the end see none and give none.
void find_queries(uint first)
{
    uint lane = gl_LocalInvocationIndex;
    barrier(); // all have read the last ones
    if (lane < 5)
        bounds[lane] = lane % 3 == 0 && lane < 4 ? 0xffffffffu : 0;
    barrier();
    for (uint t = lane; t < QUERIES; t += THREADS) {
        uint query = first + t, at = row_index(min(query, p.n_q - 1));
        uvec2 range = uvec2(0);
        vec4 info = vec4(0.0);
        if (query < p.n_q) {
            range = mask_range(batch_of(), mask_query_offset(batch_of()) + int(query));
            float z = STAGE == BACKWARD_SUMS ? 1.0 : rows[at + BACKWARD_ROW_SUM];
            info = vec4(rows[at + BACKWARD_ROW_LOG_SUM], 1.0 / z, z,
                        STAGE == BACKWARD_SUMS ? 0.0 : rows[at + BACKWARD_ROW_SUM + 1]);
        }
        ranges[t] = range;
        infos[t] = info;
        bool dead = query < p.n_q && floatBitsToUint(info.x) == 0xff800000u;
        if (OWNS_KEYS && dead && mask_field(MASK_ROW_SHIFT, 2) != MASKED_ZERO) {
            range = uvec2(0, p.mask.n_kv);
            atomicOr(bounds[4], 1u);
        }
        if (range.x < range.y) {
            atomicMin(bounds[0], range.x);
            atomicMax(bounds[1], range.y);
        }
        atomicMax(bounds[2], range.x);
        atomicMin(bounds[3], range.y);
    }
    barrier();
}

bool some_sees(uint first, uint end) { return first < bounds[1] && end > bounds[0]; }

bool all_see(uint first, uint end)
{
    return first >= bounds[2] && end <= bounds[3] && bounds[4] == 0 && !mask_has(MASK_TENSOR);
}

// ---- A score ------------------------------------------------------------------------------------

float kept(uint query, uint key)
{
    if (!GENERAL || p.dropout == 0.0)
        return 1.0;
    uvec4 counter = uvec4(key, p.draw_query + query, (p.draw_place & 0xffffu) + head_of(),
                          (p.draw_place >> 16) + batch_of());
    uint word = philox(counter, uvec2(p.seed_low, p.seed_high));
    return float(word >> 8) * 5.9604644775390625e-8 >= p.dropout ? 1.0 / (1.0 - p.dropout) : 0.0;
}

// Takes the score of query t of the tile to e; false where it does not see the key. slope: derivative
// of the softcap.
bool weigh(inout float s, out float slope, uint t, uint query, uint key)
{
    float bias = 0.0;
    slope = 1.0;
    if (GENERAL && p.softcap != 0.0) {
        float y = tanh_accurate(s / p.softcap);
        s = p.softcap * y;
        slope = 1.0 - y * y;
    }
    if (GENERAL && mask_has(MASK_ALIBI))
        s -= alibi * abs(float(mask_query_offset(batch_of()) + int(query) - int(key)));
    bool visible = key >= ranges[t].x && key < ranges[t].y;
    if (GENERAL && visible)
        visible = mask_tensor(mask_row_index(batch_of(), head_of(), query), key, bias);
    s = exp_accurate(s + bias - infos[t].x);
    return visible;
}

#define HIDDEN uintBitsToFloat(HIDDEN_BITS)

// Weight of a key that query t does not see.
float hidden_weight(uint t, uint query, uint key)
{
    uint answer = mask_field(MASK_ROW_SHIFT, 2);
    if (floatBitsToUint(infos[t].x) != 0xff800000u || answer == MASKED_ZERO)
        return HIDDEN;
    float weight =
        answer == MASKED_NAN ? uintBitsToFloat(0x7fc00000u) : 1.0 / float(p.mask.n_kv);
    return weight * kept(query, key);
}

// Takes a score and the gradient of its weight to the gradient of the score, times scale, and the
// weight; with BACKWARD_SUMS to e and e m g.
void differentiate(inout float s, inout float g, uint t, uint query, uint key)
{
    float slope;
    if (!weigh(s, slope, t, query, key)) {
        g = STAGE == BACKWARD_SUMS ? 0.0 : hidden_weight(t, query, key);
        s = STAGE == BACKWARD_SUMS ? 0.0 : HIDDEN;
        return;
    }
    float m = kept(query, key);
    vec4 info = infos[t];
    if (STAGE == BACKWARD_SUMS) {
        precise float product = m * g * s;
        g = product;
        return;
    }
    float weight = s * info.y;
    precise float of_all = m * g * info.z, gap = of_all - info.w;
    s = weight * (gap * info.y) * slope * p.scale;
    g = weight * m;
}

// ---- A step -------------------------------------------------------------------------------------

// Stores n vec4 into the stage: for each i below n `from` at `to`. `batch` loads are in flight before a
// store.
#define FILL(n, batch, to, from)                                                                   \
    [[dont_unroll]] for (uint first_ = gl_LocalInvocationIndex; first_ < (n);                      \
                         first_ += THREADS * batch) {                                              \
        vec4 loaded_[batch];                                                                       \
        [[unroll]] for (uint b_ = 0; b_ < batch; b_++) {                                           \
            uint i = min(first_ + b_ * THREADS, (n)-1);                                            \
            loaded_[b_] = from;                                                                    \
        }                                                                                          \
        [[unroll]] for (uint b_ = 0; b_ < batch; b_++) {                                           \
            uint i = first_ + b_ * THREADS;                                                        \
            if (i < (n))                                                                           \
                stage[to] = loaded_[b_];                                                           \
        }                                                                                          \
    }

// Sets the scores of own rows with this lane's four others, or (second) the gradients of their weights.
void multiply(bool second, uint other)
{
    vec4 x[TR];
    uint column = OWN * PITCH + gl_LocalInvocationID.x * PITCH, depth = second ? VALUE4 : HEAD4;
    [[unroll]] for (uint r = 0; r < TR; r++)
        x[r] = vec4(0.0);
    for (uint first = 0; first < depth; first += DEPTH4) {
        barrier(); // the stage is free
        FILL(OWN * DEPTH4, OWN_BATCH, i / DEPTH4 * PITCH + i % DEPTH4,
             load_own(second, own_first + i / DEPTH4, first + i % DEPTH4))
        FILL(OTHERS * DEPTH4, OTHER_BATCH,
             (OWN + i / DEPTH4 % 4 * LANES_X + i / DEPTH4 / 4) * PITCH + i % DEPTH4,
             load_other(second, other + i / DEPTH4, first + i % DEPTH4))
        barrier();
        for (uint d = 0; d < DEPTH4; d++) {
            vec4 y[4];
            [[unroll]] for (uint i = 0; i < 4; i++)
                y[i] = stage[column + i * LANES_X * PITCH + d];
            [[unroll]] for (uint r = 0; r < TR; r++) {
                vec4 o = stage[tile_row(r) * PITCH + d];
                [[unroll]] for (uint i = 0; i < 4; i++)
                    x[r][i] = fma(o.w, y[i].w,
                                  fma(o.z, y[i].z, fma(o.y, y[i].y, fma(o.x, y[i].x, x[r][i]))));
            }
        }
    }
    uint tile = (second ? WEIGHTS : 0) + gl_LocalInvocationID.x;
    [[unroll]] for (uint r = 0; r < TR; r++)
        tiles[tile + tile_row(r) * W_PITCH] = x[r];
}

// Turns the tiles of scores and of gradients of weights into what differentiate makes of them. The
// tiles are in shared memory so that loops that are not unrolled can index them.
void differentiate_tile(uint other)
{
    [[dont_unroll]] for (uint r = 0; r < TR; r++) {
        uint own = tile_row(r), at = own * W_PITCH + gl_LocalInvocationID.x;
        vec4 s = p.scale * tiles[at], g = tiles[WEIGHTS + at];
        [[dont_unroll]] for (uint i = 0; i < 4; i++) {
            uint column = 4 * gl_LocalInvocationID.x + i, t = OWNS_KEYS ? column : own;
            uint query = OWNS_KEYS ? other + column : own_first + own;
            uint key = OWNS_KEYS ? own_first + own : other + column;
            differentiate(s.x, g.x, t, query, key);
            s = s.yzwx; // by constants: some compilers keep a vector that a loop indexes in memory
            g = g.yzwx;
        }
        tiles[at] = s;
        tiles[WEIGHTS + at] = g;
        if (STAGE == BACKWARD_SUMS)
            lane_sums[own * LANES_X + gl_LocalInvocationID.x] +=
                vec2((s.x + s.y) + (s.z + s.w), (g.x + g.y) + (g.z + g.w));
    }
}

// Vec4 j of this lane of a staged row of width4. Past the end it is the last one, whose sum is not
// stored.
vec4 staged(uint row, uint width4, uint j)
{
    return stage[row * width4 + min(gl_LocalInvocationID.x + j * LANES_X, width4 - 1)];
}

// Adds the staged rows of others, times their numbers in the tile at `tile`, to the sums from `sum` on,
// of which a lane has n vec4. No number is hidden.
void add_plain(uint tile, uint width4, uint sum, uint n)
{
    [[dont_unroll]] for (uint k = 0; k < PART; k += 4) {
        vec4 w[TR];
        [[unroll]] for (uint r = 0; r < TR; r++)
            w[r] = tiles[tile + tile_row(r) * W_PITCH + k / 4];
        [[unroll]] for (uint i = 0; i < 4; i++)
            [[unroll]] for (uint j = 0; j < n; j++) {
                vec4 y = staged(k + i, width4, j);
                [[unroll]] for (uint r = 0; r < TR; r++)
                    sums[r * T + sum + j] = fma(vec4(w[r][i]), y, sums[r * T + sum + j]);
            }
    }
}

// add_plain where numbers may be hidden: what they belong to may be NaN.
void add_tested(uint tile, uint width4, uint sum, uint n)
{
    [[dont_unroll]] for (uint k = 0; k < PART; k++)
        [[unroll]] for (uint r = 0; r < TR; r++) {
            float w = tiles[tile + tile_row(r) * W_PITCH + k / 4][k % 4];
            if (floatBitsToUint(w) != HIDDEN_BITS)
                [[unroll]] for (uint j = 0; j < n; j++)
                    sums[r * T + sum + j] =
                        fma(vec4(w), staged(k, width4, j), sums[r * T + sum + j]);
        }
}

// Adds the rows of others from vec4 first4 on.
void add_others(bool second, uint other, uint first4, uint width4, uint sum, uint n)
{
    [[dont_unroll]] for (uint first = 0; first < OTHERS; first += PART) {
        barrier(); // the stage is free, the tiles are written
        FILL(PART * width4, BATCH, i,
             load_other(second, other + first + i / width4, first4 + i % width4))
        barrier();
        uint tile = (second ? WEIGHTS : 0) + first / 4;
        if (tested)
            add_tested(tile, width4, sum, n);
        else
            add_plain(tile, width4, sum, n);
    }
}

void step(uint other)
{
    multiply(false, other);
    multiply(true, other);
    differentiate_tile(other);
    if (TA > 0)
        add_others(false, other, a_first4, A4, 0, TA);
    if (TB > 0)
        add_others(true, other, b_first4, B4, TA, TB);
}

// ---- Results ------------------------------------------------------------------------------------

// Adds the sums of a unit to Z and Y of each row; with the last unit, the sink.
void store_row_sums(uint unit)
{
    barrier();
    for (uint t = gl_LocalInvocationIndex; t < OWN; t += THREADS) {
        uint query = own_first + t;
        if (query >= p.own_end)
            continue;
        uint at = row_index(query);
        vec2 all = unit == 0 ? vec2(0.0)
                             : vec2(rows[at + BACKWARD_ROW_SUM], rows[at + BACKWARD_ROW_SUM + 1]);
        vec2 here = vec2(0.0);
        for (uint lane = 0; lane < LANES_X; lane++) {
            here += lane_sums[t * LANES_X + lane];
            lane_sums[t * LANES_X + lane] = vec2(0.0);
        }
        all += here;
        if (unit + 1 == p.n_unit && mask_has(MASK_SINK)) {
            float sink = sinks[p.sink_offset + head_of()], log_sum = rows[at + BACKWARD_ROW_LOG_SUM];
            bool dead = floatBitsToUint(log_sum) == 0xff800000u;
            float weight = sink == log_sum ? 1.0 : exp_accurate(sink - log_sum);
            all.x += weight;
            rows[at + BACKWARD_ROW_SINK] = dead ? 0.0 : -(weight / all.x * (all.y / all.x));
        }
        rows[at + BACKWARD_ROW_SUM] = all.x;
        rows[at + BACKWARD_ROW_SUM + 1] = all.y;
    }
    barrier();
}

// Vec4 j of row r, which constants select: some compilers keep an array that a loop indexes in memory.
vec4 take_sum(uint r, uint j)
{
    vec4 y = vec4(0.0);
    [[unroll]] for (uint i = 0; i < TR * T; i++)
        if (i == r * T + j) {
            y = sums[i];
            sums[i] = vec4(0.0);
        }
    return y;
}

void store_sums(uint unit)
{
    uint of_head = OWNS_KEYS ? key_head : head;
    [[dont_unroll]] for (uint e = 0; e < TR * T; e++) {
        uint own = own_first + tile_row(e / T), j = e % T;
        bool b = j >= TA;
        vec4 y = take_sum(e / T, j);
        uint column = gl_LocalInvocationID.x + (b ? j - TA : j) * LANES_X;
        uint d = 4 * ((b ? b_first4 : a_first4) + column), dim = b ? p.value_dim : p.head_dim;
        uint at = b ? p.b_offset + gl_WorkGroupID.z * p.b_batch + of_head * p.b_head + own * p.b_row
                    : p.a_offset + gl_WorkGroupID.z * p.a_batch + of_head * p.a_head + own * p.a_row;
        if (own < p.own_end && column < (b ? B4 : A4))
            [[dont_unroll]] for (uint end = min(d + 4, dim); d < end; d++) {
                if (b)
                    b_sums[at + d] = unit == 0 ? y.x : b_sums[at + d] + y.x;
                else
                    a_sums[at + d] = unit == 0 ? y.x : a_sums[at + d] + y.x;
                y = y.yzwx;
            }
    }
}

// Adds a unit: BACKWARD_UNIT of the other side, and of the queries of one head.
void add_unit(uint unit)
{
    uint n_other = OWNS_KEYS ? p.n_q : p.mask.n_kv;
    uint n_part = (n_other - 1) / BACKWARD_UNIT + 1;
    uint first = unit % n_part * BACKWARD_UNIT, end = min(first + BACKWARD_UNIT, n_other);
    uint own_end = min(own_first + OWN, p.own_end);
    if (OWNS_KEYS) {
        head = key_head * p.group + unit / n_part;
        alibi = GENERAL && mask_has(MASK_ALIBI) ? slopes[p.alibi_offset + head_of()] : 0.0;
    }
    for (uint other = first; other < end; other += OTHERS) {
        if (OWNS_KEYS)
            find_queries(other);
        uint key = OWNS_KEYS ? own_first : other;
        uint key_end = OWNS_KEYS ? own_end : other + OTHERS;
        if (!some_sees(key, key_end))
            continue;
        tested = !all_see(key, key_end);
        step(other);
    }
    if (STAGE == BACKWARD_SUMS)
        store_row_sums(unit);
    else
        store_sums(unit);
}

void main()
{
    uint chunk = gl_WorkGroupID.y % p.n_chunk, y = gl_WorkGroupID.y / p.n_chunk;
    a_first4 = chunk * A4;
    b_first4 = chunk * B4;
    own_first = p.own_first + gl_WorkGroupID.x * OWN;
    key_head = OWNS_KEYS ? y : (p.head_first + y) / p.group - p.head_first / p.group;
    head = y;
    alibi = GENERAL && mask_has(MASK_ALIBI) ? slopes[p.alibi_offset + p.head_first + y] : 0.0;
    [[unroll]] for (uint i = 0; i < TR * T; i++)
        sums[i] = vec4(0.0);
    if (STAGE == BACKWARD_SUMS)
        [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < OWN * LANES_X; i += THREADS)
            lane_sums[i] = vec2(0.0);
    if (!OWNS_KEYS)
        find_queries(own_first);
    // No condition of a loop loads, see tests/unit/module.sh, and no register keeps the end.
    bool more = true;
    for (uint unit = p.unit_first; more; unit++) {
        add_unit(unit);
        more = unit + 1 < p.unit_end;
    }
}
