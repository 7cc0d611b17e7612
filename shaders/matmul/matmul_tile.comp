// Matrix product for GPUs: a tile of C per workgroup, both inputs staged through shared memory as
// float32. What is whole vectors along k loads while the slice before is multiplied. See
// matmul_params. Any size and strides; results beyond the edges are not written. With MIXED_DOT both
// inputs are float16: see matmul_tile_mixed.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef MIXED_DOT
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_spirv_intrinsics : require
#define STAGED uint // two elements along k
#define STAGED_DEPTH (TILE_DEPTH / 2)
#else
#define STAGED float
#define STAGED_DEPTH TILE_DEPTH
#endif
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/vectors.glsl"

layout(constant_id = MATMUL_A_TYPE) const uint A_TYPE = 0;
layout(constant_id = MATMUL_B_TYPE) const uint B_TYPE = 0;
layout(constant_id = MATMUL_C_TYPE) const uint C_TYPE = 0;
layout(constant_id = MATMUL_BIAS_TYPE) const uint BIAS_TYPE = BIAS_NONE;
layout(constant_id = MATMUL_RELU) const uint RELU = 0;
layout(constant_id = MATMUL_HIDDEN) const uint HIDDEN = 0;
layout(constant_id = MATMUL_TILE_M) const uint TM = 4; // results of an invocation
layout(constant_id = MATMUL_TILE_N) const uint TN = 4;
layout(constant_id = MATMUL_SIDE_X) const uint SIDE = 16;
layout(constant_id = MATMUL_TILE_A_VEC) const uint A_VEC = 0;
layout(constant_id = MATMUL_TILE_B_VEC) const uint B_VEC = 0;
layout(constant_id = MATMUL_TILE_EDGE) const uint EDGE = 1;
layout(constant_id = MATMUL_TILE_HELD) const uint HELD = 0;

layout(local_size_x_id = MATMUL_SIDE_X, local_size_y_id = MATMUL_SIDE_Y) in;
layout(binding = 0) readonly buffer A { uint a_words[]; };
layout(binding = 0) readonly buffer A4 { uvec4 a_vectors[]; };
layout(binding = 1) readonly buffer B { uint b_words[]; };
layout(binding = 1) readonly buffer B4 { uvec4 b_vectors[]; };
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
layout(binding = 3) buffer C { uint c_words[]; };
layout(push_constant) uniform Push { matmul_params p; };
#include "lib/relu.glsl"
#include "lib/sums.glsl"
#include "lib/scale.glsl"
#include "lib/lost.glsl"
QUANT_READER(load_quants, b_words)
#define GRID_TYPE B_TYPE
#define GRID 6
#include "lib/grids.glsl"

const uint BM = SIDE * TM;
const uint BN = SIDE * TN;
const uint THREADS = SIDE * SIDE;
// Rows of whole vec4, which start in different banks.
const uint A_PITCH = BM + 4, B_PITCH = BN + 4;
shared STAGED a_tile[STAGED_DEPTH * A_PITCH]; // [k][m]
shared STAGED b_tile[STAGED_DEPTH * B_PITCH]; // [k][n]
// With float32 A, quantised B is integers whose chains are scaled: see matmul_few_lanes.glsl.
const bool SCALED = SCALES_CHAINS(A_TYPE, B_TYPE);
const bool OFFSETS = HAS_OFFSET(B_TYPE);
const uint N_SCALE = SCALED ? BN : 1, N_A_SUM = !SCALED ? 1 : OFFSETS ? BM : 1;
shared vec2 scales[N_SCALE]; // scale and offset of a column, in the slice
shared float a_sums[N_A_SUM];

#include "lib/infinite.glsl"

const uint A_ROW_VECTORS = TILE_DEPTH / VECTOR(A_TYPE); // of a row
const uint B_ROW_VECTORS = TILE_DEPTH / VECTOR(B_TYPE);
const uint A_VECTORS = BM * A_ROW_VECTORS, B_VECTORS = BN * B_ROW_VECTORS;
const uint A_LOADS = (A_VECTORS + THREADS - 1) / THREADS; // of an invocation
const uint B_LOADS = (B_VECTORS + THREADS - 1) / THREADS;
uvec4 a_next[A_LOADS], b_next[B_LOADS];

float relu(float x) { return RELU != 0 ? relu_of(x) : x; }

// Loads what is vectors of the slice from k0 on. A row beyond the edge is the last one.
void load_vectors(uint a_base, uint b_base, uvec2 first, uint k0)
{
    [[unroll]] for (uint i = 0; A_VEC != 0 && i < A_LOADS; i++) {
        uint vector = min(i * THREADS + gl_LocalInvocationIndex, A_VECTORS - 1);
        uint row = min(first.x + vector / A_ROW_VECTORS, p.m - 1);
        uint k = k0 + vector % A_ROW_VECTORS * VECTOR(A_TYPE);
        a_next[i] = uvec4(0);
        if (EDGE == 0 || k < p.k)
            a_next[i] = a_vectors[(a_base + row * p.a_row + k) / VECTOR(A_TYPE)];
    }
    [[unroll]] for (uint i = 0; B_VEC != 0 && i < B_LOADS; i++) {
        uint vector = min(i * THREADS + gl_LocalInvocationIndex, B_VECTORS - 1);
        uint column = min(first.y + vector / B_ROW_VECTORS, p.n - 1);
        uint k = k0 + vector % B_ROW_VECTORS * VECTOR(B_TYPE), line = b_base + column * p.b_row;
        b_next[i] = uvec4(0);
        if (EDGE != 0 && k >= p.k)
            continue;
        b_next[i] = SCALED ? floatBitsToUint(load_quants_integers(line, k, B_TYPE))
                    : IS_QUANT(B_TYPE)
                        ? floatBitsToUint(rounded_to(load_quants(line, k, B_TYPE), A_TYPE))
                        : b_vectors[(line + k) / VECTOR(B_TYPE)];
    }
}

#ifndef MIXED_DOT
void stage_vectors()
{
    vec4 low, high;
    [[unroll]] for (uint i = 0; A_VEC != 0 && i < A_LOADS; i++) {
        uint vector = i * THREADS + gl_LocalInvocationIndex;
        uint at = vector % A_ROW_VECTORS * VECTOR(A_TYPE) * A_PITCH + vector / A_ROW_VECTORS;
        if (A_VECTORS % THREADS != 0 && vector >= A_VECTORS)
            continue;
        decode_vector(a_next[i], A_TYPE, low, high);
        [[unroll]] for (uint e = 0; e < VECTOR(A_TYPE); e++)
            a_tile[at + e * A_PITCH] = relu(e < 4 ? low[e & 3] : high[e & 3]);
    }
    [[unroll]] for (uint i = 0; B_VEC != 0 && i < B_LOADS; i++) {
        uint vector = i * THREADS + gl_LocalInvocationIndex;
        uint at = vector % B_ROW_VECTORS * VECTOR(B_TYPE) * B_PITCH + vector / B_ROW_VECTORS;
        if (B_VECTORS % THREADS != 0 && vector >= B_VECTORS)
            continue;
        decode_vector(b_next[i], B_TYPE, low, high);
        [[unroll]] for (uint e = 0; e < VECTOR(B_TYPE); e++)
            b_tile[at + e * B_PITCH] = e < 4 ? low[e & 3] : high[e & 3];
    }
}

// Row and k of element e of a tile of `rows` rows: counts along k where k is contiguous, else along
// rows.
uvec2 tile_element(uint e, uint rows, bool k_first)
{
    return k_first ? uvec2(e / TILE_DEPTH, e % TILE_DEPTH) : uvec2(e % rows, e / rows);
}

// Stages what is not vectors.
void stage_elements(uint a_base, uint b_base, uvec2 first, uint k0)
{
    for (uint e = gl_LocalInvocationIndex; A_VEC == 0 && e < BM * TILE_DEPTH; e += THREADS) {
        uvec2 at = tile_element(e, BM, p.a_col == 1);
        uint row = first.x + at.x, k = k0 + at.y;
        float x = 0.0;
        if (row < p.m && k < p.k) {
            uint index = a_base + row * p.a_row + k * p.a_col;
            x = LOAD(a_words, index, A_TYPE);
        }
        a_tile[at.y * A_PITCH + at.x] = relu(x);
    }
    for (uint e = gl_LocalInvocationIndex; B_VEC == 0 && e < BN * TILE_DEPTH; e += THREADS) {
        uvec2 at = tile_element(e, BN, p.b_col == 1);
        uint column = first.y + at.x, k = k0 + at.y;
        float x = 0.0;
        if (column < p.n && k < p.k) {
            uint index = b_base + column * p.b_row + k * p.b_col;
            x = LOAD(b_words, index, B_TYPE);
        }
        b_tile[at.y * B_PITCH + at.x] = x;
    }
}
#endif

void stage_scales(uint b_base, uint first, uint k0)
{
    for (uint e = gl_LocalInvocationIndex; SCALED && e < BN; e += THREADS) {
        uint line = b_base + min(first + e, p.n - 1) * p.b_row;
        scales[e] = load_quants_scale(line, k0, B_TYPE);
    }
}

// Sums of the slices of A that are staged, by fours of k as in matmul_few_lanes.glsl.
void stage_a_sums()
{
#ifndef MIXED_DOT
    for (uint e = gl_LocalInvocationIndex; e < BM; e += THREADS) {
        float four[4];
        [[unroll]] for (uint i = 0; i < 4; i++) {
            uint at = 4 * i * A_PITCH + e;
            four[i] = (a_tile[at] + a_tile[at + A_PITCH]) +
                      (a_tile[at + 2 * A_PITCH] + a_tile[at + 3 * A_PITCH]);
        }
        a_sums[e] = (four[0] + four[1]) + (four[2] + four[3]);
    }
#endif
}

const uint CHAINS = IS_QUANT(B_TYPE) ? TM * TN : 1;

// Results of an invocation that are neighbours along an axis, so that GPUs load them at once. No
// branch chooses: SwiftShader, which has no vectors, takes twice as long with one.
const uint MOST = (A_VEC | B_VEC) != 0 ? 4 : 1;
const uint A_EACH = TM < MOST ? TM : MOST, B_EACH = TN < MOST ? TN : MOST;

// Place in the tile of result i along an axis.
uint place_of(uint local, uint i, uint each) { return (i / each * SIDE + local) * each + i % each; }

// Sums of a block, a group, all groups before it (with HELD in C, once one has ended); with quantised
// B, acc is of QUANT_CHAIN terms.
float acc[TM * TN], group[TM * TN], total[TM * TN], block[CHAINS], lost[CHAINS];
bool ended = false;

// The place of an invocation, row first. In the largest tiles 32 neighbours are 4 x 8, so that they
// load fewer values of both inputs from shared memory.
uvec2 local_place()
{
    uint i = gl_LocalInvocationIndex;
    if (TM * TN <= 32 || SIDE != 16)
        return gl_LocalInvocationID.yx;
    return uvec2(i / 64 * 4 + i % 32 / 8, i % 64 / 32 * 8 + i % 8);
}

void begin_sums(uint z, uvec2 first, uvec2 local)
{
    [[unroll]] for (uint i = 0; i < TM * TN; i++) {
        vec2 earlier = earlier_sums(z, first.x + place_of(local.x, i / TN, A_EACH),
                                    first.y + place_of(local.y, i % TN, B_EACH));
        acc[i] = 0.0;
        if (IS_QUANT(B_TYPE))
            block[i] = lost[i] = 0.0;
        group[i] = earlier.y;
        total[i] = earlier.x;
    }
}

#ifdef MIXED_DOT
#include "matmul_tile_mixed.glsl"
#else
// Adds the products with one k of the slices that are staged.
void add_products(uvec2 local, uint k)
{
    float b[TN];
    [[unroll]] for (uint j = 0; j < TN; j++)
        b[j] = b_tile[k * B_PITCH + place_of(local.y, j, B_EACH)];
    [[unroll]] for (uint i = 0; i < TM; i++) {
        float a = a_tile[k * A_PITCH + place_of(local.x, i, A_EACH)];
        bool skip = HIDDEN != 0 && floatBitsToUint(a) == HIDDEN_BITS;
        [[unroll]] for (uint j = 0; j < TN; j++)
            acc[i * TN + j] = fma(a, skip ? 0.0 : b[j], acc[i * TN + j]);
    }
    [[unroll]] for (uint i = 0; i < CHAINS; i++)
        if (IS_QUANT(B_TYPE) && !SCALED && (k + 1) % QUANT_CHAIN == 0) {
            add_exactly(block[i], lost[i], acc[i]);
            acc[i] = 0.0;
        }
}
#endif

// Adds the products of the slices that are staged.
void add_slice(uvec2 local)
{
    // Registers hold the operands of no more k; of the largest tiles those of the next one too.
#ifdef MIXED_DOT
    const uint unrolled = TM * TN == 32 ? 1 : 2; // small tiles leave room
#else
    const uint unrolled = TM * TN > 32 ? 2 : 1;
#endif
    [[dont_unroll]] for (uint k = 0; k < STAGED_DEPTH; k += unrolled)
        [[unroll]] for (uint e = 0; e < unrolled; e++)
            add_products(local, k + e);
    [[unroll]] for (uint i = 0; SCALED && i < TM * TN; i++) {
        vec2 scale = scales[place_of(local.y, i % TN, B_EACH)];
        block[i] = add_scaled(scale.x, acc[i], block[i]);
        if (OFFSETS)
            block[i] = add_scaled(scale.y, a_sums[place_of(local.x, i / TN, A_EACH)], block[i]);
        acc[i] = 0.0;
    }
}

void end_block()
{
    [[unroll]] for (uint i = 0; i < TM * TN; i++) {
        group[i] += IS_QUANT(B_TYPE) ? with_lost(block[i], lost[i]) : acc[i];
        acc[i] = 0.0;
        if (IS_QUANT(B_TYPE))
            block[i] = lost[i] = 0.0;
    }
}

uint result_row(uvec2 first, uvec2 local, uint i)
{
    return first.x + place_of(local.x, i / TN, A_EACH);
}

uint result_column(uvec2 first, uvec2 local, uint i)
{
    return first.y + place_of(local.y, i % TN, B_EACH);
}

// With HELD: the sum of the groups before this one.
float held_total(uint z, uint index, uint row, uint column)
{
    return ended ? uintBitsToFloat(c_words[index]) : earlier_sums(z, row, column).x;
}

void end_group(uint z, uint c_base, uvec2 first, uvec2 local)
{
    [[unroll]] for (uint i = 0; i < TM * TN; i++) {
        uint row = result_row(first, local, i), column = result_column(first, local, i);
        uint index = c_base + row * p.c_row + column * p.c_col;
        if (HELD == 0)
            total[i] += group[i];
        else if (row < p.m && column < p.n)
            c_words[index] = floatBitsToUint(held_total(z, index, row, column) + group[i]);
        group[i] = 0.0;
    }
    ended = true;
}

// See lib/infinite.glsl.
void mend_results(uint z, uint a_base, uint b_base, uvec2 first, uvec2 local)
{
    bool found = false;
    [[unroll]] for (uint i = 0; i < TM * TN; i++)
        found = found || !is_finite(total[i] + group[i]);
    [[dont_unroll]] for (uint i = 0; found && i < TM * TN; i++) { // no array is indexed by i
        float sum = 0.0;
        [[unroll]] for (uint j = 0; j < TM * TN; j++)
            sum = i == j ? total[j] + group[j] : sum;
        uint row = result_row(first, local, i), column = result_column(first, local, i);
        if (is_finite(sum) || row >= p.m || column >= p.n)
            continue;
        sum = with_infinite(sum, a_base + row * p.a_row, b_base + column * p.b_row,
                            earlier_sums(z, row, column));
        [[unroll]] for (uint j = 0; j < TM * TN; j++) {
            total[j] = i == j ? sum : total[j];
            group[j] = i == j ? 0.0 : group[j];
        }
    }
}

float finished(float sum, uint index, uint column)
{
    float x = p.alpha * sum * column_scale(column);
    if (BIAS_TYPE != BIAS_NONE)
        x += LOAD(bias_words, p.bias_offset + column, BIAS_TYPE);
    return result_of(x, index);
}

// 16-bit results are stored by pairs, where an invocation has neighbours of a row.
const uint STEP = C_TYPE == TYPE_F32 || B_EACH == 1 ? 1 : 2;

// Stores 16-bit results of tiles of which an invocation has one column: two neighbours as a word, by the
// one with the even column, which gets the other's by way of b_tile.
void store_columns(uint c_base, uvec2 first, uvec2 local)
{
    [[unroll]] for (uint i = 0; i < TM; i++) {
        uint row = result_row(first, local, i), column = result_column(first, local, i);
        uint index = c_base + row * p.c_row + column * p.c_col;
        bool there = row < p.m && column < p.n, odd = local.y % 2 != 0;
        float x = there ? finished(total[i], index, column) : 0.0;
        uint bits = C_TYPE == TYPE_F16 ? f16_from_float(x) : bf16_from_float(x);
        uint at = (local.x * SIDE + local.y) / 2;
        barrier(); // what was there before has been read
        if (odd)
            b_tile[at] = STAGED(bits);
        barrier();
        bool words = p.c_col == 1 && index % 2 == local.y % 2 && column - local.y % 2 + 1 < p.n;
        if (there && !words)
            STORE(c_words, index, C_TYPE, x)
        else if (there && !odd)
            c_words[index >> 1] = bits | uint(b_tile[at]) << 16;
    }
}

void store_results(uint z, uint c_base, uvec2 first, uvec2 local)
{
    [[unroll]] for (uint i = 0; i < TM * TN; i += STEP) {
        uint row = result_row(first, local, i), column = result_column(first, local, i);
        if (row >= p.m || column >= p.n)
            continue;
        uint index = c_base + row * p.c_row + column * p.c_col;
        float sum = HELD != 0 ? held_total(z, index, row, column) : total[i];
        float x = finished(sum, index, column);
        if (STEP == 2 && column + 1 < p.n) {
            float next = finished(total[i + 1], index + p.c_col, column + 1);
            STORE_PAIR(c_words, index, p.c_col, C_TYPE, vec2(x, next))
            continue;
        }
        STORE(c_words, index, C_TYPE, x)
        if ((SUMS & SUMS_KEEP) != 0)
            c_words[index + 1] = floatBitsToUint(group[i]);
    }
}

void main()
{
    uint z = gl_WorkGroupID.z;
    uint batch = z / p.n_head, head = z % p.n_head;
    uint a_base = p.a_offset + batch * p.a_batch + head * p.a_head;
    uint b_base = p.b_offset + batch * p.b_batch + head / p.group * p.b_head;
    uint c_base = p.c_offset + batch * p.c_batch + head * p.c_head;
    uvec2 first = uvec2(gl_WorkGroupID.y * BM, gl_WorkGroupID.x * BN);
    uvec2 local = local_place();

    init_grid(THREADS);
    begin_sums(z, first, local);
    load_vectors(a_base, b_base, first, 0);
    for (uint k0 = 0; k0 < p.k; k0 += TILE_DEPTH) {
        stage_vectors();
        stage_elements(a_base, b_base, first, k0);
        stage_scales(b_base, first.y, k0);
        barrier();
        if (SCALED && OFFSETS) {
            stage_a_sums();
            barrier();
        }
        if (k0 + TILE_DEPTH < p.k)
            load_vectors(a_base, b_base, first, k0 + TILE_DEPTH);
        add_slice(local);
        barrier();
        if ((k0 + TILE_DEPTH) % MATMUL_BLOCK == 0 || k0 + TILE_DEPTH >= p.k)
            end_block();
        if (ends_group(k0 + TILE_DEPTH))
            end_group(z, c_base, first, local);
    }
    if ((SUMS & SUMS_OPEN) == 0)
        end_group(z, c_base, first, local);
    if (SCALED && OFFSETS)
        mend_results(z, a_base, b_base, first, local);
    if (C_TYPE != TYPE_F32 && TN == 1)
        store_columns(c_base, first, local);
    else
        store_results(z, c_base, first, local);
}
