// attention_backward on the device's matrix spans: 16-bit q, k, v and dy of one type, float32 scores,
// softmax and sums. COLUMNS subgroups take M own rows: each scores some of the others of a step,
// and adds some of the features. Operands of both products go through shared memory, but for own rows
// in the forms of backward_direct.glsl; the results stay in matrices. Weights and gradients of scores
// are rounded to 16 bits; float16 ones are those of an own row times the power of two that uses the
// range of the type. Sums are those of a step, then of a span.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "attention/coop_type.glsl"
#include "params/params.h"
#include "params/train.h"
#include "lib/dtype.glsl"
#include "attention/halves.glsl"
#include "lib/math.glsl"
#include "lib/philox.glsl"

layout(constant_id = BACKWARD_COOP_STAGE) const uint STAGE = BACKWARD_SUMS;
layout(constant_id = BACKWARD_COOP_THREADS) const uint THREADS = 256; // OWN * OTHERS / 8
layout(constant_id = BACKWARD_COOP_SUBGROUPS) const uint SUBGROUPS = 8;
layout(constant_id = BACKWARD_COOP_M) const uint M = 16; // a matrix is M x N, from M x K and K x N
layout(constant_id = BACKWARD_COOP_N) const uint N = 16;
layout(constant_id = BACKWARD_COOP_K) const uint K = 16;
layout(constant_id = BACKWARD_COOP_OWN) const uint OWN = 64;       // a multiple of M
layout(constant_id = BACKWARD_COOP_OTHERS) const uint OTHERS = 32; // of K, and of N * COLUMNS
layout(constant_id = BACKWARD_COOP_HEAD) const uint HEAD = 64;     // of K
layout(constant_id = BACKWARD_COOP_VALUE) const uint VALUE = 64;
layout(constant_id = BACKWARD_COOP_DEPTH) const uint DEPTH = 64;
layout(constant_id = BACKWARD_COOP_A) const uint A = 64; // features, of N * COLUMNS
layout(constant_id = BACKWARD_COOP_B) const uint B = 64;
layout(constant_id = BACKWARD_COOP_VECS) const uint VECS = 0;
layout(constant_id = BACKWARD_COOP_GENERAL) const bool GENERAL = true;
layout(constant_id = BACKWARD_COOP_BATCH) const uint BATCH = 2;
layout(constant_id = BACKWARD_COOP_FORM) const uint FORM = BACKWARD_BY_DEPTH;

layout(local_size_x_id = BACKWARD_COOP_THREADS) in;
layout(binding = 0) readonly buffer Q { uint q_words[]; };
layout(binding = 0) readonly buffer Q8 { uvec4 q_vectors[]; };
layout(binding = 1) readonly buffer Keys { uint k_words[]; };
layout(binding = 1) readonly buffer Keys8 { uvec4 k_vectors[]; };
layout(binding = 2) readonly buffer Values { uint v_words[]; };
layout(binding = 2) readonly buffer Values8 { uvec4 v_vectors[]; };
layout(binding = 3) readonly buffer Dy { uint dy_words[]; };
layout(binding = 3) readonly buffer Dy8 { uvec4 dy_vectors[]; };
layout(binding = 4) readonly buffer Mask { uint mask_words[]; };
layout(binding = 5) readonly buffer Length { uint length_words[]; };
layout(binding = 6) readonly buffer QueryOffset { uint query_offset_words[]; };
layout(binding = 7) readonly buffer Sink { float sinks[]; };
layout(binding = 8) readonly buffer Alibi { float slopes[]; };
layout(binding = 9) buffer Rows { float rows[]; };
layout(binding = 10) buffer Results { float a_sums[]; };
layout(binding = 11) buffer Results2 { float b_sums[]; };
layout(binding = 12) readonly buffer Params { attention_backward_params p; };
#include "lib/mask.glsl"

const bool FEW_REGISTERS = BATCH == 1; // Intel's compiler spills where more is unrolled
const bool OWNS_KEYS = STAGE == BACKWARD_KEYS;
const uint QUERIES = OWNS_KEYS ? OTHERS : OWN;
const uint LANES = THREADS / SUBGROUPS, LANES_X = OTHERS / 8; // of a subgroup; that share a row
const uint COLUMNS = SUBGROUPS * M / OWN;
const uint SCORES = OTHERS / N / COLUMNS; // matrices of a subgroup
const uint TA = STAGE == BACKWARD_SUMS ? 0 : A / N / COLUMNS;
const uint TB = OWNS_KEYS ? B / N / COLUMNS : 0;
const uint T = TA + TB;
// A subgroup adds to results of ROWS row groups of M. Where SPLIT is set it adds to one of both, A or B.
const uint PAIRED = FORM == BACKWARD_BY_DEPTH ? 1 : 2 - OWN / M % 2;
const bool SPLIT = (TB == 0 ? 0 : TA == TB ? PAIRED : 1) == 2; // no &&: glslang takes it for a branch
const uint ROWS = SPLIT ? 2 : STAGE == BACKWARD_QUERIES ? (TA % 2 == 0 ? PAIRED : 1) : 1;
const uint TILES_A = SPLIT ? T / ROWS : TA / ROWS; // matrices along the features, of each row group

// A vector is 8 elements, one uvec4. Rows are padded by one vector, so that the rows of a matrix
// start in different banks. The stage holds rows of own, then of others [row][vector of DEPTH]; or
// others turned, [feature][vector of others].
const uint DEPTH8 = DEPTH / 8, PITCH = DEPTH8 + 1, TURNED_PITCH = OTHERS / 8 + 1;
const uint OPERANDS = (OWN + OTHERS) * PITCH;
const uint TURNED = (OWNS_KEYS && B > A ? B : A) * TURNED_PITCH;
const uint DEPTH_SIZE = OPERANDS > TURNED ? OPERANDS : TURNED;
// The tile: scores or gradients of weights, then matrices of results. With OWN_TILES those of a
// subgroup lie beside those of the next one, and only that subgroup reads them. Weights: 16-bit
// gradients of scores [own][8 others], then weights.
const bool OWN_TILES = (FEW_REGISTERS ? LANES : 16) > 8; // else the compiler for DG2 spills
const uint W_PITCH = OTHERS / 8 + 1, WEIGHTS = OWN * W_PITCH, TILE = OWN * (OTHERS / 4 + (OWN_TILES ? 0 : 1));
const uint SCORED = TILE > 2 * WEIGHTS ? TILE : 2 * WEIGHTS;
// Where DIRECT is set, in one place after another: all features of others, as rows; both sides' others
// turned. Beside them the tile, then the weights. With APART the others turned are beside the tile, and
// the weights lie where the rows were. Where there are no results the tile lies there.
const bool DIRECT = FORM != BACKWARD_BY_DEPTH, APART = FORM == BACKWARD_APART;
const uint HEAD_PITCH = HEAD / 8 + 1, VALUE_PITCH = VALUE / 8 + 1;
const uint ROWS_SIZE = OTHERS * (HEAD_PITCH + VALUE_PITCH);
const uint BOTH_TURNED = STAGE == BACKWARD_SUMS ? 0 : (OWNS_KEYS ? A + B : A) * TURNED_PITCH;
const uint KEPT = STAGE == BACKWARD_SUMS ? 0 : (OWNS_KEYS ? 2 : 1) * WEIGHTS;
const uint BESIDE = T == 0 ? TILE : APART ? KEPT : BOTH_TURNED;
const uint POOL = ROWS_SIZE > BESIDE ? ROWS_SIZE : BESIDE;
const uint TILE_AT = DIRECT ? (T == 0 ? 0 : POOL) : DEPTH_SIZE, WEIGHTS_AT = APART ? 0 : TILE_AT;
const uint TURNED_AT = APART ? POOL + TILE : 0;
const uint AFTER_POOL = T == 0 ? 0 : APART ? TILE + BOTH_TURNED : TILE > KEPT ? TILE : KEPT;
shared uvec4 stage[DIRECT ? POOL + AFTER_POOL : DEPTH_SIZE + SCORED];
#ifndef BFLOAT16
shared uint tops[2 * OWN]; // bits of the largest of each row: gradients of scores, then weights
shared vec4 factors[2 * OWN / 4]; // matrices are loaded from multiples of 16 bytes
#endif
shared vec2 lane_sums[STAGE == BACKWARD_SUMS ? OWN * LANES_X : 1];
shared uvec2 ranges[QUERIES]; // of visible keys, but for the mask
shared vec4 infos[QUERIES];   // log-sum-exp, 1 / Z, Z, Y, see BACKWARD_ROW_
// Their sizes are multiples of 16 bytes, as what some compilers lay after them needs.
shared uint bounds[8]; // least first key, greatest end, greatest first, least end, a row sees no key
shared uint nonfinite[4]; // first and end of the others of steps that had NaN or Inf, dead_steps
#define dead_steps nonfinite[2] // bits of the steps with rows that see no key

#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>
#define LEFT coopmat<HALF, gl_ScopeSubgroup, M, K, gl_MatrixUseA>
#define RIGHT coopmat<HALF, gl_ScopeSubgroup, K, N, gl_MatrixUseB>
ACCUMULATOR sums[T > 0 ? T : 1];
uint key_head, head; // of this pass; head: the query head of the span
uint own_first, a_first, b_first;
// Rows of a tile that are another workgroup's, see place_own, or past the end.
#define OF_OTHERS(own) ((own) < p.own_first + gl_WorkGroupID.x * OWN || (own) >= p.own_end)
float alibi, scale;
float dead_weight; // of keys before dead_end, in a row that sees none
uint dead_end;
bool tested; // some weight of the step may be hidden

uint column() { return gl_SubgroupID % COLUMNS; }
uint first_lane_row() { return gl_SubgroupID / COLUMNS * M; } // of the tile
// A lane has eight scores of a row; where OWN_TILES is set one of its subgroup's own.
const uint LANES_ROW = OWN_TILES ? N * SCORES / 8 : LANES_X;
uint lane_of_rows() { return OWN_TILES ? gl_SubgroupInvocationID : gl_LocalInvocationIndex; }
uint lane_row() { return (OWN_TILES ? first_lane_row() : 0) + lane_of_rows() / LANES_ROW; }
uint lane_others()
{
    return (OWN_TILES ? column() * SCORES * N : 0) + lane_of_rows() % LANES_ROW * 8;
}
uint lane_place() { return TILE_AT + gl_SubgroupID * (M * N * SCORES / 4); } // of the subgroup's tile

void subgroup_barrier_shared()
{
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
}

#define KEEPS_MASK !FEW_REGISTERS
#define BOUNDS_BY_ENDS (!FEW_REGISTERS)
#define LANE_A_QUERY // QUERIES are not more than THREADS
#include "train/backward_scores.glsl"

#include "train/backward_staged.glsl"

// ---- A step -------------------------------------------------------------------------------------

const uint TILE_PITCH = OWN_TILES ? 2 * LANES_ROW : OTHERS / 4 + 1;
uint tile_place() // of the subgroup's matrices
{
    return OWN_TILES ? lane_place()
                     : TILE_AT + first_lane_row() * TILE_PITCH + column() * SCORES * (N / 4);
}

// Stores a subgroup's matrices, SCORES of them, into the tile and sets what this lane has of them.
#define TAKE_SCORES(x, x0, x1)                                                                     \
    [[unroll]] for (uint n = 0; n < SCORES; n++)                                                   \
        coopMatStore(x[n], stage, tile_place() + n * (N / 4), TILE_PITCH,                          \
                     gl_CooperativeMatrixLayoutRowMajor);                                          \
    if (OWN_TILES)                                                                                 \
        subgroup_barrier_shared();                                                                 \
    else                                                                                           \
        barrier();                                                                                 \
    uint at_ = OWN_TILES ? lane_place() + 2 * gl_SubgroupInvocationID                              \
                         : TILE_AT + lane_row() * TILE_PITCH + lane_others() / 4;                  \
    x0 = uintBitsToFloat(stage[at_]);                                                              \
    x1 = uintBitsToFloat(stage[at_ + 1]);

// Sets this lane's scores of own rows with the others, or (second) the gradients of their weights.
void multiply(bool second, uint other, out vec4 x0, out vec4 x1)
{
    uint depth = second ? VALUE : HEAD;
    ACCUMULATOR x[SCORES];
    [[unroll]] for (uint n = 0; n < SCORES; n++)
        x[n] = ACCUMULATOR(0.0);
    [[dont_unroll]] for (uint first = 0; first < depth; first += DEPTH) {
        barrier(); // the stage is free
        STAGE_ROWS(OWN, 0, load_own, second, own_first, first)
        STAGE_ROWS(OTHERS, OWN * PITCH, load_other, second, other, first)
        barrier();
        [[unroll]] for (uint i = 0; i < DEPTH / K * SCORES; i++) {
            uint n = i % SCORES, d = i / SCORES * (K / 8);
            LEFT a;
            RIGHT b;
            coopMatLoad(a, stage, first_lane_row() * PITCH + d, PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
            coopMatLoad(b, stage, (OWN + (column() * SCORES + n) * N) * PITCH + d, PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            x[n] = coopMatMulAdd(a, b, x[n]);
        }
    }
    TAKE_SCORES(x, x0, x1)
}

float greatest(vec4 x, vec4 y)
{
    vec4 z = max(abs(x), abs(y));
    return max(max(z.x, z.y), max(z.z, z.w));
}

uvec4 pack(vec4 x, vec4 y)
{
    return uvec4(half_pair(x.x, x.y), half_pair(x.z, x.w), half_pair(y.x, y.y), half_pair(y.z, y.w));
}

// The factor of a row whose largest number has these bits: its numbers by it are below 2^15.
float factor_of(uint bits)
{
    return uintBitsToFloat(clamp(bits >> 23, 15u, 253u) - 14u << 23);
}

// Stores this lane's eight gradients of scores, or (second) weights, in 16 bits.
void store_weights(bool second, vec4 x, vec4 y)
{
    uint row = (second ? OWN : 0) + lane_row();
#ifndef BFLOAT16
    float by = 1.0 / factor_of(tops[row]);
    x *= by;
    y *= by;
#endif
    stage[WEIGHTS_AT + row * W_PITCH + lane_others() / 8] = pack(x, y);
}

// Where a subgroup's results are: the first row of the first row group, whether they are those of B where
// SPLIT is set, and its column of n matrices.
uint first_sum_row() { return gl_SubgroupID / (COLUMNS * ROWS) * ROWS * M; }
bool adds_second() { return SPLIT && gl_SubgroupID % (COLUMNS * ROWS) >= COLUMNS; }
uint sum_column() { return gl_SubgroupID % (SPLIT ? COLUMNS : COLUMNS * ROWS); }

// Adds others that lie turned at `turned` to the matrices from `sum` on: n of each row group of a subgroup.
void add_turned(bool second, uint turned, uint sum, uint n)
{
    uint row = (second ? OWN : 0) + first_sum_row();
    uint mine = turned + sum_column() * n * N * TURNED_PITCH;
    LEFT a[2 * (OTHERS / K)];
    [[unroll]] for (uint i = 0; i < ROWS * (OTHERS / K); i++)
        coopMatLoad(a[i], stage,
                    WEIGHTS_AT + (row + i % ROWS * M) * W_PITCH + i / ROWS * (K / 8), W_PITCH,
                    gl_CooperativeMatrixLayoutRowMajor);
#ifndef BFLOAT16
    ACCUMULATOR factor[2];
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        coopMatLoad(factor[r], factors, (row + r * M) / 4, 0,
                    gl_CooperativeMatrixLayoutColumnMajor);
#endif
    [[unroll]] for (uint j = 0; j < n; j++) {
        ACCUMULATOR x[2];
        [[unroll]] for (uint r = 0; r < ROWS; r++)
#ifdef BFLOAT16
            x[r] = sums[sum + j * ROWS + r];
#else
            x[r] = ACCUMULATOR(0.0);
#endif
        [[unroll]] for (uint k = 0; k < OTHERS / K; k++) {
            RIGHT b;
            coopMatLoad(b, stage, mine + j * N * TURNED_PITCH + k * (K / 8), TURNED_PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            [[unroll]] for (uint r = 0; r < ROWS; r++)
                x[r] = coopMatMulAdd(a[k * ROWS + r], b, x[r]);
        }
        [[unroll]] for (uint r = 0; r < ROWS; r++)
#ifdef BFLOAT16
            sums[sum + j * ROWS + r] = x[r];
#else
            sums[sum + j * ROWS + r] = sums[sum + j * ROWS + r] + factor[r] * x[r];
#endif
    }
}

void clear_tops()
{
#ifndef BFLOAT16
    if (gl_LocalInvocationIndex < 2 * OWN) // which are not more than THREADS
        tops[gl_LocalInvocationIndex] = 0;
#endif
}

// Adds the others from feature `first` on.
void add_others(bool second, uint other, uint first, uint width, uint sum, uint n)
{
    barrier(); // the stage is free, the weights are stored
    stage_turned(second, other, first, width);
    barrier();
    add_turned(second, 0, sum, n);
}

#include "train/backward_eight.glsl"
#include "train/backward_direct.glsl"

void step(uint other)
{
    vec4 s0, s1, g0, g1;
    if (DIRECT) {
        multiply_both(other, s0, s1, g0, g1);
    } else {
        clear_tops();
        multiply(false, other, s0, s1);
        multiply(true, other, g0, g1); // waits before it writes
    }
    s0 *= scale;
    s1 *= scale;
    differentiate_all(s0, s1, g0, g1, other);
    if (STAGE == BACKWARD_SUMS) {
        vec4 s = s0 + s1, g = g0 + g1;
        lane_sums[lane_row() * LANES_X + lane_others() / 8] +=
            vec2((s.x + s.y) + (s.z + s.w), (g.x + g.y) + (g.z + g.w));
        return;
    }
#ifndef BFLOAT16
    atomicMax(tops[lane_row()], floatBitsToUint(greatest(s0, s1)));
    if (TB > 0)
        atomicMax(tops[OWN + lane_row()], floatBitsToUint(greatest(g0, g1)));
#endif
    barrier(); // all have read their tile, and DIRECT rows
#ifndef BFLOAT16
    if (gl_LocalInvocationIndex < (TB > 0 ? 2 : 1) * OWN)
        factors[gl_LocalInvocationIndex / 4][gl_LocalInvocationIndex % 4] =
            factor_of(tops[gl_LocalInvocationIndex]);
#endif
    store_weights(false, s0, s1);
    if (TB > 0)
        store_weights(true, g0, g1);
    if (DIRECT) {
        if (!APART)
            store_both_turned(other);
        barrier();
        if (SPLIT) {
            add_turned(adds_second(), TURNED_AT + (adds_second() ? A * TURNED_PITCH : 0), 0,
                       TILES_A);
        } else {
            if (TA > 0)
                add_turned(false, TURNED_AT, 0, TILES_A);
            if (TB > 0)
                add_turned(true, TURNED_AT + A * TURNED_PITCH, TA, TB);
        }
    } else {
        if (TA > 0)
            add_others(false, other, a_first, A, 0, TA);
        if (TB > 0)
            add_others(true, other, b_first, B, TA, TB);
    }
}

// ---- Results ------------------------------------------------------------------------------------

// What the NaN and Inf of others at feature d, which `clean` took out, add to the result of an own row:
// a score with one is no number, and so its gradient; a weight is positive unless dropout makes it 0.
float find_nonfinite(bool second, uint own, uint d)
{
    float x = 0.0, bias;
    uint end = min(nonfinite[1], OWNS_KEYS ? p.n_q : p.mask.n_kv);
    [[dont_unroll]] for (uint other = nonfinite[0]; other < end; other++) {
        uint query = OWNS_KEYS ? other : own, key = OWNS_KEYS ? own : other;
        bool dead = floatBitsToUint(rows[row_at(query) + BACKWARD_ROW_LOG_SUM]) == 0xff800000u;
        uvec2 range = range_of(query);
        bool weighs = key >= range.x && key < range.y;
        if (GENERAL && weighs)
            weighs = mask_tensor(mask_row_index(batch_of(), head_of(), query), key, bias);
        if (dead)
            weighs = second && key < (FEW_REGISTERS ? find_dead_end() : dead_end);
        if (!weighs)
            continue;
        uint word = DIRECT ? other_word(second, other, d)
                           : load_other(second, other, d / 8 * 8)[d % 8 / 2];
        uint bits = half_bits(word, d);
        if (is_nonfinite(bits))
            x = second ? fma(kept(query, key), decode(word, d, HALF_TYPE), x)
                       : uintBitsToFloat(0x7fc00000u);
    }
    return x;
}

// Adds x, feature d of own row `own`, to the result, or stores it there.
void finish_result(bool second, float x, uint own, uint d, uint span)
{
    uint head_dim = DIRECT ? HEAD : p.head_dim, value_dim = DIRECT ? VALUE : p.value_dim;
    if (OF_OTHERS(own) || d >= (second ? value_dim : head_dim))
        return;
    x += find_nonfinite(second, own, d);
    uint of_head = OWNS_KEYS ? key_head : head;
    if (second) {
        uint at =
            p.b_offset + gl_WorkGroupID.z * p.b_batch + of_head * p.b_head + own * p.b_row + d;
        b_sums[at] = span == 0 ? x : b_sums[at] + x;
    } else {
        uint at =
            p.a_offset + gl_WorkGroupID.z * p.a_batch + of_head * p.a_head + own * p.a_row + d;
        a_sums[at] = span == 0 ? x : a_sums[at] + x;
    }
}

// Each matrix goes over the tile. Constants alone index them: they move up, which would spill on Intel's
// GPUs, or one of them is chosen.
void store_sums(uint span)
{
    uint mine = lane_place();
    barrier(); // the tile is free
    [[dont_unroll]] for (uint j = 0; j < T; j++) {
        [[unroll]] for (uint i = 0; i < (FEW_REGISTERS ? T : 1); i++)
            if (!FEW_REGISTERS || i == j)
                coopMatStore(sums[i], stage, mine, N / 4, gl_CooperativeMatrixLayoutRowMajor);
        if (!FEW_REGISTERS) {
            [[unroll]] for (uint i = 1; i < T; i++)
                sums[i - 1] = sums[i];
            sums[T > 0 ? T - 1 : 0] = ACCUMULATOR(0.0);
        }
        subgroup_barrier_shared();
        bool second = SPLIT ? adds_second() : j >= TA;
        uint i = !SPLIT && second ? j - TA : j;
        uint first = (second ? b_first : a_first) +
                     (sum_column() * (!SPLIT && second ? TB : TILES_A) + i / ROWS) * N;
        uint row = own_first + first_sum_row() + i % ROWS * M;
        [[dont_unroll]] for (uint e = gl_SubgroupInvocationID; e < M * N; e += LANES) {
            float x = uintBitsToFloat(stage[mine + e / 4][e % 4]);
            finish_result(second, x, row + e / N, first + e % N, span);
        }
        subgroup_barrier_shared();
    }
    if (FEW_REGISTERS)
        [[unroll]] for (uint i = 0; i < T; i++)
            sums[i] = ACCUMULATOR(0.0);
    barrier();
    if (gl_LocalInvocationIndex < 2)
        nonfinite[gl_LocalInvocationIndex] = gl_LocalInvocationIndex == 0 ? 0xffffffffu : 0;
}

#include "train/backward_spans.glsl"

void main()
{
    uint feature_tile = find_place();
    place_own();
    a_first = feature_tile * A;
    b_first = feature_tile * B;
    [[unroll]] for (uint i = 0; i < T; i++)
        sums[i] = ACCUMULATOR(0.0);
    if (STAGE == BACKWARD_SUMS)
        lane_sums[gl_LocalInvocationIndex] = vec2(0.0);
    if (gl_LocalInvocationIndex < 2)
        nonfinite[gl_LocalInvocationIndex] = gl_LocalInvocationIndex == 0 ? 0xffffffffu : 0;
    add_spans();
}
