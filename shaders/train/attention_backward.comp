// Gradients of attention without a buffer of scores, for GPUs. A workgroup owns a tile of rows, of
// queries or of keys, and walks the other side; shared memory holds some features of the rows of
// both sides, then the gradients of the scores of a step. See attention_backward_params.
//
// Every score is one chain of fma over the features, or chains of FEATURES, and every gradient one over
// the rows of a span of the other side, so that its bits depend on the problem alone.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params/params.h"
#include "params/train.h"
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
layout(constant_id = BACKWARD_AT_ONCE) const uint AT_ONCE = 8;
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
const uint FEATURES = 64; // of a chain, in heads of more than 128: else errors grow with the head
const bool LONG = HEAD4 > 32 || VALUE4 > 32;
const uint STAGE4 = OPERANDS > AT_ONCE * WIDE4 ? OPERANDS : AT_ONCE * WIDE4;

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
uint key_head, head;        // of this pass; head: the query head of the span
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

#include "train/backward_scores.glsl"

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
    vec4 x[TR], earlier[LONG ? TR : 1]; // of this chain, of those before it
    uint column = OWN * PITCH + gl_LocalInvocationID.x * PITCH, depth = second ? VALUE4 : HEAD4;
    [[unroll]] for (uint r = 0; r < TR; r++)
        x[r] = vec4(0.0);
    [[unroll]] for (uint r = 0; LONG && r < TR; r++)
        earlier[r] = vec4(0.0);
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
        if (LONG && (first + DEPTH4) % (FEATURES / 4) == 0)
            [[unroll]] for (uint r = 0; r < TR; r++) {
                earlier[r] += x[r];
                x[r] = vec4(0.0);
            }
    }
    [[unroll]] for (uint r = 0; LONG && r < TR; r++)
        x[r] += earlier[r];
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
    [[dont_unroll]] for (uint k = 0; k < AT_ONCE; k += 4) {
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
    [[dont_unroll]] for (uint k = 0; k < AT_ONCE; k++)
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
    [[dont_unroll]] for (uint first = 0; first < OTHERS; first += AT_ONCE) {
        barrier(); // the stage is free, the tiles are written
        FILL(AT_ONCE * width4, BATCH, i,
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

void store_sums(uint span)
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
                    b_sums[at + d] = span == 0 ? y.x : b_sums[at + d] + y.x;
                else
                    a_sums[at + d] = span == 0 ? y.x : a_sums[at + d] + y.x;
                y = y.yzwx;
            }
    }
}

#include "train/backward_spans.glsl"

void main()
{
    uint tile = find_place();
    a_first4 = tile * A4;
    b_first4 = tile * B4;
    [[unroll]] for (uint i = 0; i < TR * T; i++)
        sums[i] = vec4(0.0);
    if (STAGE == BACKWARD_SUMS)
        [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < OWN * LANES_X; i += THREADS)
            lane_sums[i] = vec2(0.0);
    add_spans();
}
