// Matrix product of quantised A, see ACTIVATION_VALUES, and quantised B, for any number of rows. An
// invocation sums one block of k, see MATMUL_BLOCK, of OWN_COLUMNS columns and ROWS rows: it
// unpacks 32 integers of B to int8, multiplies them with those of each row, and adds the sums of
// 16, which are exact, times both scales. Then the sums of blocks are added in order, as in
// matmul_few. Nothing depends on ROWS, so a row has the same bits among any other rows. With
// PACKED_DOT, four int8 are one instruction; without, they are multiplied as float32, which holds
// their sums exactly: the same bits. See matmul_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef PACKED_DOT
#extension GL_EXT_spirv_intrinsics : require
#endif
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/vectors.glsl"

layout(constant_id = MATMUL_B_TYPE) const uint B_TYPE = TYPE_Q8_0;
layout(constant_id = MATMUL_C_TYPE) const uint C_TYPE = 0;
layout(constant_id = MATMUL_BIAS_TYPE) const uint BIAS_TYPE = BIAS_NONE;
layout(constant_id = MATMUL_DOT_THREADS) const uint THREADS = 64;
layout(constant_id = MATMUL_DOT_ROWS) const uint ROWS = 1;
layout(constant_id = MATMUL_DOT_COLUMNS) const uint COLUMNS = 4;
layout(constant_id = MATMUL_DOT_B_VEC) const uint B_VEC = 1;
layout(constant_id = MATMUL_DOT_EDGE) const uint EDGE = 1;
layout(constant_id = MATMUL_DOT_OWN_COLUMNS) const uint OWN_COLUMNS = 1;
layout(constant_id = MATMUL_DOT_PAIRS) const bool PAIRS = false;

layout(local_size_x_id = MATMUL_DOT_THREADS) in;
layout(binding = 0) readonly buffer A4 { uvec4 a_vectors[]; };
layout(binding = 1) readonly buffer B { uint b_words[]; };
layout(binding = 1) readonly buffer B4 { uvec4 b_vectors[]; };
layout(binding = 1) readonly buffer B2 { uvec2 b_pairs[]; };
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
layout(binding = 3) buffer C { uint c_words[]; };
layout(push_constant) uniform Push { matmul_params p; };
#include "lib/sums.glsl"
#include "lib/scale.glsl"
QUANT_READER(load_quants, b_words)
#define GRID_TYPE B_TYPE
#define GRID 6
#include "lib/grids.glsl"
#define LANE_BYTES
#include "lib/lane_blocks.glsl"

const uint BLOCKS = THREADS * OWN_COLUMNS / COLUMNS; // of k at a time
const uint SETS = THREADS / BLOCKS;                  // of invocations with a block of k each
// Results of an invocation: some neighbours, and as many of each next EACH * THREADS.
const uint EACH = PAIRS ? 2 : 1;
const uint RESULTS = (ROWS * COLUMNS + EACH * THREADS - 1) / (EACH * THREADS) * EACH;
const uint A_VECTORS = ACTIVATION_BYTES / 16;         // of a block of A
const uint SUBS = 4 / LANE_READS;                  // 32 values, of what a lane holds of a block
// Rows of B are whole bundles: lanes hold a block, or a half, in registers.
const bool BUNDLES = B_VEC != 0;
// Integers are unpacked without their bias, which counts times the sum of those of A; but not where
// lib/blocks.glsl has them.
const int BIAS = HAS_BYTES(B_TYPE) ? BYTES_BIAS(B_TYPE) : !BUNDLES ? 0 : LANE_BIAS;
shared float block_sums[BLOCKS > 1 ? ROWS * COLUMNS * BLOCKS : 1]; // [block][row][column]

float lane_sum[ROWS * OWN_COLUMNS]; // of a block
float group[RESULTS], total[RESULTS]; // of the blocks of a group, of all groups before it

// The element of the tile that is result i.
uint element_of(uint i)
{
    return (i / EACH * THREADS + gl_LocalInvocationIndex) * EACH + i % EACH;
}

// So, or one that is there, where the last results are beyond the tile.
uint element_within(uint i)
{
    if (RESULTS * THREADS == ROWS * COLUMNS)
        return element_of(i);
    return min(element_of(i / EACH * EACH), ROWS * COLUMNS - EACH) + i % EACH;
}

#ifdef PACKED_DOT
// OpSDot of PackedVectorFormat4x8Bit, whose GLSL extension Debian's glslang lacks.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019],
                  id = 4450)
int packed_dot(int x, int y, spirv_literal int format);
#endif

// Integers k and on of the row of B that begins at byte `line`, wherever it lies.
uint line_bytes(uint line, uint k)
{
    if (B_TYPE == TYPE_I8)
        return load_quants_int8_word(line, k);
    if (HAS_BYTES(B_TYPE))
        return load_quants_bytes(line, k, B_TYPE);
    return pack_bytes(load_quants_integers(line, k, B_TYPE));
}

// 32 values of each own column: integers, what is to be subtracted from them, and scale and offset
// of each 16.
uint sub_bytes[OWN_COLUMNS * 8];
int sub_bias[OWN_COLUMNS];
vec2 sub_scales[OWN_COLUMNS * 2];

// sum + 16 products of `a` and the bytes from `first` on.
int add_products(uvec4 a, uint first, int sum)
{
#ifdef PACKED_DOT
    [[unroll]] for (uint j = 0; j < 4; j++)
        sum += packed_dot(int(a[j]), int(sub_bytes[first + j]), 0); // of four int8 each
    return sum;
#else
    float exact = 0.0;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        vec4 x = signed_bytes(a[j]), y = signed_bytes(sub_bytes[first + j]);
        exact = fma(x.x, y.x, fma(x.y, y.y, fma(x.z, y.z, fma(x.w, y.w, exact))));
    }
    return sum + int(exact);
#endif
}

// Adds subblock `sub` of a block to the sums of all rows; `a` is the first vector of the block in
// each.
void add_sub(uint a[ROWS], uint sub)
{
    [[unroll]] for (uint i = 0; i < ROWS; i++) {
        uvec4 low = a_vectors[a[i] + 2 * sub], high = a_vectors[a[i] + 2 * sub + 1];
        uvec4 bits = a_vectors[a[i] + ACTIVATION_SCALE / 4 + sub / 2];
        uvec4 sums = a_vectors[a[i] + ACTIVATION_SUM / 4 + sub / 2];
        vec2 scale = uintBitsToFloat(sub % 2 == 0 ? bits.xy : bits.zw);
        ivec2 whole = ivec2(sub % 2 == 0 ? sums.xy : sums.zw);
        float shift = fma(scale.y, float(whole.y), scale.x * float(whole.x));
        [[unroll]] for (uint c = 0; c < OWN_COLUMNS; c++) {
            float x = float(add_products(low, 8 * c, -sub_bias[c] * whole.x));
            float y = float(add_products(high, 8 * c + 4, -sub_bias[c] * whole.y));
            float sum = lane_sum[i * OWN_COLUMNS + c];
            vec2 first = sub_scales[2 * c];
            if (HAS_SIXTEENS(B_TYPE) || B_TYPE == TYPE_NVFP4) {
                vec2 second = sub_scales[2 * c + 1];
                sum = add_scaled(first.x, scale.x * x, sum);
                sum = add_scaled(second.x, scale.y * y, sum);
                if (HAS_OFFSET(B_TYPE)) {
                    sum = add_scaled(first.y, scale.x * float(whole.x), sum);
                    sum = add_scaled(second.y, scale.y * float(whole.y), sum);
                }
            } else {
                sum = add_scaled(first.x, fma(scale.y, y, scale.x * x), sum);
                if (HAS_OFFSET(B_TYPE))
                    sum = add_scaled(first.y, shift, sum);
            }
            lane_sum[i * OWN_COLUMNS + c] = sum;
        }
    }
}

// Own columns of an invocation are SETS apart; one beyond the edge is the last, and is not stored.
uint column_of(uvec2 first, uint c)
{
    return min(first.y + c * SETS + gl_LocalInvocationIndex / BLOCKS, p.n - 1);
}

// Adds the block from k on, of rows of B that lie anywhere.
void add_lines(uint b_base, uvec2 first, uint a[ROWS], uint k)
{
    [[dont_unroll]] for (uint sub = 0; sub < 4 && k + 32 * sub < p.k; sub++) {
        uint from = k + 32 * sub;
        [[unroll]] for (uint c = 0; c < OWN_COLUMNS; c++) {
            uint line = b_base + column_of(first, c) * p.b_row;
            [[unroll]] for (uint i = 0; i < 2; i++)
                sub_scales[2 * c + i] = load_quants_scale(line, from + 16 * i, B_TYPE);
            [[unroll]] for (uint i = 0; i < 8; i++) {
                sub_bytes[8 * c + i] = 0;
                if (EDGE == 0 || from + 4 * i < p.k)
                    sub_bytes[8 * c + i] = line_bytes(line, from + 4 * i);
            }
        }
        add_sub(a, sub);
    }
}

// Adds the block from k on, or half `half` of it, of rows of B that are bundles.
void add_bundles(uint b_base, uvec2 first, uint a[ROWS], uint k, uint half_block)
{
    uint left = p.k - k; // of which a row has whole bundles
    uint count = left >= MATMUL_BLOCK ? LANE_WORDS
                 : half_block > 0     ? 0
                                      : BUNDLE_PAIR_WORDS(B_TYPE) / 2;
    [[unroll]] for (uint c = 0; c < OWN_COLUMNS; c++) {
        uint line = b_base + column_of(first, c) * p.b_row;
        load_lane_words(c, line, k / MATMUL_BLOCK, half_block, count);
    }
    [[unroll]] for (uint c = 0; c < OWN_COLUMNS; c++) {
        unpack_lane_scales(c, k / MATMUL_BLOCK, half_block);
        if (B_TYPE == TYPE_I4_G128)
            sub_bias[c] = int(lane_words[c * LANE_WORDS + LANE_WORDS - 1] >> 16);
    }
    [[unroll]] for (uint sub = 0; sub < SUBS; sub++) {
        [[unroll]] for (uint c = 0; c < OWN_COLUMNS; c++) {
            sub_scales[2 * c] = lane_scales[4 * c + sub];
            if (B_TYPE == TYPE_NVFP4)
                sub_scales[2 * c + 1].x = sub_scales[2 * c].y;
            [[unroll]] for (uint i = 0; i < 8; i++)
                sub_bytes[8 * c + i] = lane_bytes(c, sub, i);
        }
        add_sub(a, half_block * SUBS + sub);
    }
}

void add_block(uint a_base, uint b_base, uvec2 first, uint k)
{
    uint a[ROWS];
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        a[i] = (a_base + min(first.x + i, p.m - 1) * p.a_row) / 16 + k / MATMUL_BLOCK * A_VECTORS;
    if (!BUNDLES) {
        add_lines(b_base, first, a, k);
    } else if (LANE_READS == 1) {
        add_bundles(b_base, first, a, k, 0);
    } else {
        [[dont_unroll]] for (uint i = 0; i < LANE_READS; i++)
            add_bundles(b_base, first, a, k, i);
    }
}

void end_group(uint i, bool ends)
{
    total[i] += ends ? group[i] : 0.0;
    group[i] = ends ? 0.0 : group[i];
}

// Adds the sums of the blocks from k0 on, in order, to the results.
void add_blocks(uint k0)
{
    uint lane = gl_LocalInvocationIndex, block = lane % BLOCKS, end = k0 + BLOCKS * MATMUL_BLOCK;
    bool ends = end <= p.k && ends_group(end); // a group is whole such steps
    if (BLOCKS == 1) { // they are the lane's own, as it has no PAIRS
        [[unroll]] for (uint i = 0; i < RESULTS; i++) {
            group[i] += lane_sum[i];
            end_group(i, ends);
        }
        return;
    }
    [[unroll]] for (uint i = 0; i < ROWS * OWN_COLUMNS; i++) {
        uint column = i % OWN_COLUMNS * SETS + lane / BLOCKS;
        block_sums[(block * ROWS + i / OWN_COLUMNS) * COLUMNS + column] = lane_sum[i];
    }
    barrier();
    [[unroll]] for (uint i = 0; i < RESULTS; i++) {
        uint at = element_within(i);
        [[unroll]] for (uint j = 0; j < BLOCKS; j++) // beyond k they are 0
            group[i] += block_sums[j * ROWS * COLUMNS + at];
        end_group(i, ends);
    }
    barrier();
}

// What is stored of result i.
float finished(uint i, uint index, uint column)
{
    float sum = (SUMS & SUMS_OPEN) == 0 ? total[i] + group[i] : total[i];
    float x = p.alpha * sum * column_scale(column);
    if (BIAS_TYPE != BIAS_NONE)
        x += LOAD(bias_words, p.bias_offset + column, BIAS_TYPE);
    return result_of(x, index);
}

void main()
{
    uint z = gl_WorkGroupID.z;
    uint batch = z / p.n_head, head = z % p.n_head;
    uint a_base = p.a_offset + batch * p.a_batch + head * p.a_head;
    uint b_base = p.b_offset + batch * p.b_batch + head / p.group * p.b_head;
    uint c_base = p.c_offset + batch * p.c_batch + head * p.c_head;
    uvec2 first = uvec2(gl_WorkGroupID.y * ROWS, gl_WorkGroupID.x * COLUMNS);
    [[unroll]] for (uint i = 0; i < OWN_COLUMNS; i++)
        sub_bias[i] = BIAS;
    [[unroll]] for (uint i = 0; i < RESULTS; i++) {
        uint e = element_of(i);
        vec2 earlier = earlier_sums(z, first.x + e / COLUMNS, first.y + e % COLUMNS);
        group[i] = earlier.y;
        total[i] = earlier.x;
    }
    init_grid(THREADS);
    init_table();
    if (HAS_TABLE(B_TYPE))
        barrier();
    for (uint k0 = 0; k0 < p.k; k0 += BLOCKS * MATMUL_BLOCK) {
        uint k = k0 + gl_LocalInvocationIndex % BLOCKS * MATMUL_BLOCK;
        [[unroll]] for (uint i = 0; i < ROWS * OWN_COLUMNS; i++)
            lane_sum[i] = 0.0;
        if (EDGE == 0 || k < p.k)
            add_block(a_base, b_base, first, k);
        add_blocks(k0);
    }
    [[unroll]] for (uint i = 0; i < RESULTS; i += EACH) {
        uint e = element_of(i);
        uint row = first.x + e / COLUMNS, column = first.y + e % COLUMNS;
        if (e >= ROWS * COLUMNS || row >= p.m || column >= p.n)
            continue;
        uint index = c_base + row * p.c_row + column * p.c_col;
        float x = finished(i, index, column);
        if (PAIRS) {
            float next = finished(i + 1, index + 1, column + 1);
            c_words[index >> 1] = pair_word(vec2(x, next), C_TYPE);
            continue;
        }
        STORE(c_words, index, C_TYPE, x);
        if ((SUMS & SUMS_KEEP) != 0)
            c_words[index + 1] = floatBitsToUint((SUMS & SUMS_OPEN) != 0 ? group[i] : 0.0);
    }
}
