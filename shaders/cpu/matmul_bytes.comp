// Product of float32 A and quantised B for CPU drivers, whose compilers best keep uniform values
// scalar (Mesa 26), see matmul_address.comp: no shared memory, no barriers, bare loads. A lane has
// every eighth k of a column, whose bytes are read in their order: eight neighbours, each picked by
// one lane, are one load that widens them. Sums over the lanes of eight columns are then put into a
// lane each, where the scales are. One subgroup of 8 makes ROWS rows by 8 columns of C. See
// matmul_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/blocks.glsl"

layout(constant_id = MATMUL_A_TYPE) const uint A_TYPE = 0; // that B is rounded to
layout(constant_id = MATMUL_B_TYPE) const uint B_TYPE = TYPE_Q4_0;
layout(constant_id = MATMUL_C_TYPE) const uint C_TYPE = 0;
layout(constant_id = MATMUL_BIAS_TYPE) const uint BIAS_TYPE = BIAS_NONE;
layout(constant_id = MATMUL_RELU) const uint RELU = 0;
layout(constant_id = MATMUL_HIDDEN) const uint HIDDEN = 0;
layout(constant_id = MATMUL_ROWS) const uint ROWS = BLOCK_ROWS;
layout(constant_id = MATMUL_B_VEC) const uint STEPS = 1; // in an iteration: 1, 2, 4

layout(local_size_x = 8) in;
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
layout(binding = 3) buffer C { uint c_words[]; };
layout(push_constant) uniform Push { matmul_params p; };
#include "cpu/product.glsl"
#include "cpu/pick.glsl"
#include "lib/scale.glsl"
#include "lib/lost.glsl"

layout(buffer_reference, buffer_reference_align = 4) readonly buffer Float { float x; };
layout(buffer_reference, buffer_reference_align = 4) readonly buffer Fours { vec4 at[32]; };
layout(buffer_reference, buffer_reference_align = 1) readonly buffer Bytes { uint8_t at[]; };

// Whether 16 values share a scale.
const bool HALVES = B_TYPE == TYPE_Q6_K || B_TYPE == TYPE_Q3_K;
const bool SCALES = SCALES_CHAINS(A_TYPE, B_TYPE) && !HALVES; // else the values are multiplied

// What each row has in the column's lane: the step before, the sum of a group and what rounding
// took from that, the sum of all groups before.
float chain[BLOCK_ROWS], group[BLOCK_ROWS], lost[BLOCK_ROWS], total[BLOCK_ROWS];

uint64_t line[8]; // first bytes of the columns
bool mine[8];     // whether this is the lane

// A step of 32 k: each row of A, with k + 8 * i + lane at i; a column's integers in the same
// places; the scales, which 16 values share, and the offset of the lane's own column.
float x[4 * BLOCK_ROWS], integer[4], scale_of[2], offset;
float lane_sum[8 * BLOCK_ROWS]; // of what a lane has: [row][column]

// Eight bytes, each in its lane.
uint8_t bytes_at(uint64_t at)
{
    uint8_t byte = uint8_t(0);
    [[unroll]] for (uint l = 0; l < 8; l++)
        byte = mix(byte, Bytes(at).at[l], mine[l]);
    return byte;
}

uint byte_at(uint64_t at) { return uint(Bytes(at).at[0]); }

uint two_bytes(uint64_t at) { return byte_at(at) | byte_at(at + 1) << 8; }
uint four_bytes(uint64_t at) { return two_bytes(at) | two_bytes(at + 2) << 16; }

// What is `at` bytes after the beginning of each column, in the column's lane.
#define EACH(name, read)                                                                           \
    uint name(uint64_t at)                                                                         \
    {                                                                                              \
        uint word = 0;                                                                             \
        [[unroll]] for (uint l = 0; l < 8; l++)                                                    \
            word = mix(word, read(line[l] + at), mine[l]);                                         \
        return word;                                                                               \
    }
EACH(each_byte, byte_at)
EACH(each_two, two_bytes)
EACH(each_four, four_bytes)

void load_signed_bytes(uint64_t at)
{
    [[unroll]] for (uint i = 0; i < 4; i++)
        integer[i] = float(int(int8_t(bytes_at(at + 8 * i))));
}

// Nibbles of 16 bytes, less `bias`.
void load_nibbles(uint64_t at, int bias)
{
    [[unroll]] for (uint i = 0; i < 2; i++) {
        uint both = uint(bytes_at(at + 8 * i));
        integer[i] = float(int(both & 15u) - bias);
        integer[i + 2] = float(int(both >> 4) - bias);
    }
}

// Nibbles that choose of a table.
void load_nonlinear(uint64_t at)
{
    load_nibbles(at, 8);
    vec4 found = from_nonlinear(vec4(integer[0], integer[1], integer[2], integer[3]));
    [[unroll]] for (uint i = 0; i < 4; i++)
        integer[i] = found[i];
}

// Integers of q5_0 and q5_1, whose fifth bits are at `at`, less `bias`.
void load_fifths(uint64_t at, int bias)
{
    uint fifth = four_bytes(at) >> gl_SubgroupInvocationID;
    [[unroll]] for (uint i = 0; i < 2; i++) {
        uint both = uint(bytes_at(at + 4 + 8 * i));
        integer[i] = float(int(both & 15u | (fifth >> 8 * i & 1u) << 4) - bias);
        integer[i + 2] = float(int(both >> 4 | (fifth >> 8 * i + 16 & 1u) << 4) - bias);
    }
}

// `sub`: the subblock of 32 values, of the block at `at`. `odd`: sub % 2.
void load_q4_k(uint64_t at, uint sub, uint odd)
{
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint both = uint(bytes_at(at + (16u + sub / 2u * 32u + 8u * i)));
        integer[i] = float(int(both >> 4u * odd & 15u));
    }
}

void load_q5_k(uint64_t at, uint sub, uint odd)
{
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint both = uint(bytes_at(at + (48u + sub / 2u * 32u + 8u * i)));
        uint fifth = uint(bytes_at(at + (16u + 8u * i))) >> sub & 1u;
        integer[i] = float(int(both >> 4u * odd & 15u | fifth << 4));
    }
}

void load_q3_k(uint64_t at, uint sub)
{
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint low = uint(bytes_at(at + (32u + 32u * (sub / 4u) + 8u * i))) >> sub % 4u * 2u & 3u;
        uint high = uint(bytes_at(at + 8u * i)) >> sub & 1u;
        integer[i] = float(int(low | high << 2) - 4);
    }
}

void load_q6_k(uint64_t at, uint sub)
{
    uint side = sub / 4u, high_shift = sub % 4u * 2u;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint low = uint(bytes_at(at + (64u * side + sub % 2u * 32u + 8u * i)));
        uint high = uint(bytes_at(at + (128u + 32u * side + 8u * i)));
        low = low >> sub % 4u / 2u * 4u & 15u;
        integer[i] = float(int(low | (high >> high_shift & 3u) << 4) - 32);
    }
}

void load_mxfp4(uint64_t at)
{
    [[unroll]] for (uint i = 0; i < 2; i++) {
        uint both = uint(bytes_at(at + 1 + 8 * i));
        integer[i] = from_e2m1(both & 15u);
        integer[i + 2] = from_e2m1(both >> 4);
    }
}

void load_i4(uint64_t at, uint k)
{
    int bias = int(two_bytes(at + 66));
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint eight = four_bytes(at + (k / 2u + 4u * i)) >> 4u * gl_SubgroupInvocationID;
        integer[i] = float(int(eight & 15u) - bias);
    }
}

// Where the block of k is in a column, and which 32 values of it k is.
uint block_of(uint k) { return k / BLOCK_VALUES(B_TYPE) * BLOCK_BYTES(B_TYPE); }
uint sub_of(uint k) { return k % BLOCK_VALUES(B_TYPE) / 32; }

int signed_byte(uint byte) { return bitfieldExtract(int(byte), 0, 8); }

void load_scales_k(uint at, uint sub)
{
    if (B_TYPE == TYPE_Q6_K) {
        float scale = unpackHalf2x16(each_two(at + 208)).x;
        [[unroll]] for (uint j = 0; j < 2; j++)
            scale_of[j] = scale * float(signed_byte(each_byte(at + 192u + 2u * sub + j)));
        return;
    }
    if (B_TYPE == TYPE_Q3_K) {
        float scale = unpackHalf2x16(each_two(at + 108)).x;
        [[unroll]] for (uint j = 0; j < 2; j++) {
            uint i = 2u * sub + j, low = each_byte(at + (96u + i % 8u)) >> i / 8u * 4u & 15u;
            uint high = each_byte(at + (104u + i % 4u)) >> i / 4u * 2u & 3u;
            scale_of[j] = scale * float(int(low | high << 4) - 32);
        }
        return;
    }
    if (B_TYPE == TYPE_IQ4_XS) {
        uint low = each_byte(at + (4u + sub / 2u)) >> sub % 2u * 4u & 15u;
        uint high = each_two(at + 2) >> 2u * sub & 3u;
        scale_of[0] = unpackHalf2x16(each_two(at)).x * float(int(low | high << 4) - 32);
        return;
    }
    uint six = at + 4u + sub % 4u;
    uint s = each_byte(six), m = each_byte(six + 4), more = each_byte(six + (sub < 4u ? 0u : 8u));
    vec2 scales = unpackHalf2x16(each_four(at));
    s = sub < 4u ? s & 63u : (more & 15u) | s >> 6 << 4;
    m = sub < 4u ? m & 63u : more >> 4 | m >> 6 << 4;
    scale_of[0] = scales.x * float(s);
    offset = -(scales.y * float(m));
}

// Scales of values k .. k + 31 of all columns.
void load_scales(uint k)
{
    uint at = block_of(k);
    offset = 0.0;
    if (B_TYPE == TYPE_I8)
        scale_of[0] = 1.0;
    else if (BLOCK_VALUES(B_TYPE) == 256)
        load_scales_k(at, sub_of(k));
    else if (B_TYPE == TYPE_Q4_1 || B_TYPE == TYPE_Q5_1) {
        vec2 scales = unpackHalf2x16(each_four(at));
        scale_of[0] = scales.x;
        offset = scales.y;
    } else if (B_TYPE == TYPE_MXFP4) {
        uint e = each_byte(at);
        scale_of[0] = uintBitsToFloat(e < 2u ? 0x200000u << e : (e - 1u) << 23);
    } else
        scale_of[0] = unpackHalf2x16(each_two(at + (B_TYPE == TYPE_I4_G128 ? 64 : 0))).x;
}

// Values k .. k + 31 of a column. `odd`: sub_of(k) % 2.
void load_integers(uint64_t begin, uint k, uint odd)
{
    uint64_t at = begin + block_of(k);
    if (B_TYPE == TYPE_I8)
        load_signed_bytes(at);
    else if (B_TYPE == TYPE_Q8_0)
        load_signed_bytes(at + 2);
    else if (B_TYPE == TYPE_Q4_0)
        load_nibbles(at + 2, 8);
    else if (B_TYPE == TYPE_Q4_1)
        load_nibbles(at + 4, 0);
    else if (B_TYPE == TYPE_Q5_0)
        load_fifths(at + 2, 16);
    else if (B_TYPE == TYPE_Q5_1)
        load_fifths(at + 4, 0);
    else if (B_TYPE == TYPE_IQ4_NL)
        load_nonlinear(at + 2);
    else if (B_TYPE == TYPE_IQ4_XS)
        load_nonlinear(at + (8u + 16u * sub_of(k)));
    else if (B_TYPE == TYPE_Q5_K)
        load_q5_k(at, sub_of(k), odd);
    else if (B_TYPE == TYPE_Q3_K)
        load_q3_k(at, sub_of(k));
    else if (B_TYPE == TYPE_Q4_K)
        load_q4_k(at, sub_of(k), odd);
    else if (B_TYPE == TYPE_Q6_K)
        load_q6_k(at, sub_of(k));
    else if (B_TYPE == TYPE_MXFP4)
        load_mxfp4(at);
    else
        load_i4(at, 32 * sub_of(k));
}

// Integer i of the 32 of a subblock of a type that has offsets.
uint integer_at(uint64_t at, uint sub, uint i)
{
    if (BLOCK_VALUES(B_TYPE) == 256) {
        uint first = B_TYPE == TYPE_Q5_K ? 48u : 16u;
        uint q = byte_at(at + (first + sub / 2u * 32u + i)) >> 4u * (sub % 2u) & 15u;
        return B_TYPE == TYPE_Q5_K ? q | (byte_at(at + (16u + i)) >> sub & 1u) << 4 : q;
    }
    uint q = byte_at(at + ((B_TYPE == TYPE_Q5_1 ? 8u : 4u) + i % 16u)) >> 4u * (i / 16u) & 15u;
    return B_TYPE == TYPE_Q5_1 ? q | (four_bytes(at + 4) >> i & 1u) << 4 : q;
}

// See lib/infinite.glsl: the sum of the products of a row's values that are not finite with a column of
// a type that has offsets, of which each lane has its own; 0 where there are none.
float infinite_products(Float a, uint64_t begin)
{
    float sum = 0.0;
    for (uint k0 = 0; k0 < p.k; k0 += 32) {
        bool found = false;
        Fours row = Fours(a + k0);
        [[unroll]] for (uint i = 0; i < 8; i++)
            [[unroll]] for (uint e = 0; e < 4; e++)
                found = found || !is_finite(row.at[i][e]);
        if (!found)
            continue;
        load_scales(k0);
        uint64_t at = begin + block_of(k0);
        uint sub = sub_of(k0);
        for (uint i = 0; i < 32; i++) {
            float x = relu(row.at[i / 4][i % 4]);
            if (!is_finite(x))
                sum += x * fma(scale_of[0], float(int(integer_at(at, sub, i))), offset);
        }
    }
    return sum;
}

void load_rows(Float a[BLOCK_ROWS], uint k, uint s)
{
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        Fours row = Fours(a[r] + k);
        [[unroll]] for (uint i = 0; i < 4; i++)
            x[4 * r + i] = relu(pick(row.at[8 * s + 2 * i], row.at[8 * s + 2 * i + 1]));
    }
}

// With A of 16 bits: the values themselves, which are rounded.
void load_values(uint column, uint k, uint odd)
{
    load_integers(line[column], k, odd);
    if (SCALES)
        return;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        float scale = subgroupShuffle(scale_of[HALVES ? i / 2 : 0], column);
        float value = fma(scale, integer[i], subgroupShuffle(offset, column));
        integer[i] = rounded_to(vec4(value), A_TYPE).x;
    }
}

// Sums of two lanes that are `far` apart, of two vectors that are each in every other `far` lanes.
float fold(float low, float high, uint far)
{
    bool upper = (gl_SubgroupInvocationID & far) != 0;
    return mix(low, high, upper) + subgroupShuffleXor(mix(high, low, upper), far);
}

// Sums over the lanes of eight vectors, each in its lane.
float fold_columns(uint at)
{
    float four[4];
    [[unroll]] for (uint j = 0; j < 4; j++)
        four[j] = fold(lane_sum[at + 2 * j], lane_sum[at + 2 * j + 1], 1);
    return fold(fold(four[0], four[1], 2), fold(four[2], four[3], 2), 4);
}

// Adds a step of a row. Where k allows it, two steps are one chain, however many an iteration has:
// so a row's bits do not change with the number of rows.
void add_lanes(uint r, uint s)
{
    float sum = fold_columns(8 * r);
    if (SCALES && B_TYPE != TYPE_I8)
        sum *= scale_of[0];
    if (SCALES && HAS_OFFSET(B_TYPE)) {
        float all = (x[4 * r] + x[4 * r + 1]) + (x[4 * r + 2] + x[4 * r + 3]);
        [[unroll]] for (uint far = 1; far < 8; far *= 2)
            all += subgroupShuffleXor(all, far);
        sum = fma(offset, all, sum);
    }
    if (SCALES && STEPS > 1 && s % 2 == 0) {
        chain[r] = sum;
        return;
    }
    if (SCALES && STEPS > 1)
        sum += chain[r];
    add_exactly(group[r], lost[r], sum);
}

void add_step(Float a[BLOCK_ROWS], uint k, uint s)
{
    load_rows(a, k, s);
    load_scales(k + 32 * s);
    [[unroll]] for (uint j = 0; j < 8; j++) {
        load_values(j, k + 32 * s, STEPS == 1 ? sub_of(k) % 2u : s % 2u);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            float sum = x[4 * r] * integer[0];
            [[unroll]] for (uint i = 1; i < 4; i++)
                sum = fma(x[4 * r + i], integer[i], sum);
            lane_sum[8 * r + j] = sum;
        }
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        add_lanes(r, s);
}

// Reads a byte of every other cache line of a column, so that the lines of all columns come from
// memory at once, not a few each iteration: half the time where B is in no cache. The result is
// true, as p.n is not 0, which the compiler cannot know.
bool touch(uint64_t begin)
{
    uint all = 0, at = 0, end = block_of(p.k);
    do {
        if (at < end) // true; old tools cannot check a loop of one block
            all |= byte_at(begin + at);
        at += 128;
    } while (at < end);
    return all != 0xffu || p.n != 0;
}

void main()
{
    uint first_row = gl_WorkGroupID.y * ROWS, first_column = gl_WorkGroupID.x * 8;
    uint column = first_column + gl_SubgroupInvocationID;
    Float a[BLOCK_ROWS]; // rows and columns past the end repeat the last
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        a[r] = Float(uvec2(p.a_low, p.a_high)) +
               (product_a() + min(first_row + r, p.m - 1) * p.a_row);
    uint64_t base = packUint2x32(uvec2(p.b_low, p.b_high)) +
                    (p.b_offset + product_batch() * p.b_batch +
                     product_head() / p.group * p.b_head);
    [[unroll]] for (uint l = 0; l < 8; l++) { // before any loop: else constants get lost in one
        mine[l] = gl_SubgroupInvocationID == l;
        line[l] = base + min(first_column + l, p.n - 1) * p.b_row;
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        total[r] = earlier_sums(product_z(), first_row + r, column).x;
    bool touched = touch(base + min(column, p.n - 1) * p.b_row);
    uint k = 0;
    do {
        uint end = min(k + MATMUL_GROUP, p.k);
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            group[r] = lost[r] = 0.0;
        do {
            [[unroll]] for (uint s = 0; s < STEPS; s++)
                add_step(a, k, s);
            k += 32 * STEPS;
        } while (k < end);
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            total[r] += with_lost(group[r], lost[r]);
    } while (k < p.k);
    if (!touched)
        return;
    [[unroll]] for (uint r = 0; SCALES && HAS_OFFSET(B_TYPE) && r < ROWS; r++)
        if (!is_finite(total[r])) {
            float sum = infinite_products(a[r], base + min(column, p.n - 1) * p.b_row);
            vec2 earlier = earlier_sums(product_z(), first_row + r, column);
            total[r] = sum == 0.0 ? total[r] : sum + earlier.x;
        }
    float bias = product_bias(column), scale = column_scale(min(column, p.n - 1));
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        store_product(first_row + r, column, total[r] * scale, 0.0, bias);
}
