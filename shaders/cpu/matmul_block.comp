// Product of float32 A and quantised B for CPU drivers, whose compilers best keep uniform values scalar
// (Mesa 26), see matmul_address.comp: no shared memory, no barriers, bare loads. B is read as it
// is: a lane has a column, and words of eight columns, each loaded by a scalar, become a vector. One
// subgroup of 8 makes ROWS rows by 8 columns of C, 32 k at a time, in the order of sums of
// matmul_tile. See matmul_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_shader_subgroup_basic : require
#include "params.h"
#include "lib/dtype.glsl"
#include "lib/blocks.glsl"

layout(constant_id = MATMUL_A_TYPE) const uint A_TYPE = 0; // that B is rounded to
layout(constant_id = MATMUL_B_TYPE) const uint B_TYPE = TYPE_Q4_0;
layout(constant_id = MATMUL_C_TYPE) const uint C_TYPE = 0;
layout(constant_id = MATMUL_BIAS_TYPE) const uint BIAS_TYPE = BIAS_NONE;
layout(constant_id = MATMUL_RELU) const uint RELU = 0;
layout(constant_id = MATMUL_HIDDEN) const uint HIDDEN = 0;
layout(constant_id = MATMUL_ROWS) const uint ROWS = BLOCK_ROWS;

layout(local_size_x = 8) in;
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
layout(binding = 3) buffer C { uint c_words[]; };
layout(push_constant) uniform Push { matmul_params p; };
#include "cpu/product.glsl"
#include "lib/scale.glsl"

layout(buffer_reference, buffer_reference_align = 4) readonly buffer Float { float x; };
layout(buffer_reference, buffer_reference_align = 4) readonly buffer Row { float at[32]; };
layout(buffer_reference, buffer_reference_align = 4) readonly buffer Word { uint x; };

// Sums of a chain, see QUANT_CHAIN, of a block and what rounding took from it, of a group, of all
// groups before it.
float acc[BLOCK_ROWS], block[BLOCK_ROWS], lost[BLOCK_ROWS], group[BLOCK_ROWS], total[BLOCK_ROWS];

uint64_t line[8]; // addresses of the columns
uint skew;        // lowest bits of that of this lane's column

// The aligned word that holds byte `at` of each column.
uint aligned_word(uint at)
{
    uint x = 0;
    [[unroll]] for (uint l = 0; l < 8; l++)
        x = mix(x, Word((line[l] + at) & ~3ul).x, gl_SubgroupInvocationID == l);
    return x;
}

// The half word at an even byte.
uint half_at(uint at) { return aligned_word(at) >> 8u * (skew + at & 2u) & 0xffffu; }

uint byte_at(uint at) { return aligned_word(at) >> 8u * (skew + at & 3u) & 0xffu; }

uint low[8], high[8]; // words of the stored integers of 32 values
float scale_of[2];    // of each 16 values
float least;          // is subtracted

// Loads `count` words from any byte on; reads no word beyond them.
#define LOAD_WORDS(to, from, count, right)                                                         \
    {                                                                                              \
        uint at_ = from, shift = 8u * (skew + at_ & 3u), word = aligned_word(at_);                 \
        [[unroll]] for (uint i_ = 0; i_ < count; i_++) {                                           \
            uint next = aligned_word(at_ + 4 * i_ + (i_ + 1 < count ? 4 : 3));     \
            to[i_] = (word >> shift | next << 1 << (31u - shift)) >> (right);                      \
            word = next;                                                                           \
        }                                                                                          \
    }

void load_q4_k(uint at, uint i)
{
    uint part = i / 32u, six = at + 4u + part % 4u, s = byte_at(six), m = byte_at(six + 4u);
    uint more = byte_at(six + (part < 4u ? 0u : 8u));
    s = part < 4u ? s & 63u : (more & 15u) | s >> 6 << 4;
    m = part < 4u ? m & 63u : more >> 4 | m >> 6 << 4;
    scale_of[0] = float_from_f16(half_at(at)) * float(s);
    least = float_from_f16(half_at(at + 2u)) * float(m);
    LOAD_WORDS(low, at + 16u + i / 64u * 32u, 8, 4u * (part % 2u))
}

void load_q6_k(uint at, uint i)
{
    uint side = i / 128u, part = i / 32u % 4u;
    float scale = float_from_f16(half_at(at + 208u));
    [[unroll]] for (uint j = 0; j < 2; j++)
        scale_of[j] = scale * float(bitfieldExtract(int(byte_at(at + 192u + i / 16u + j)), 0, 8));
    LOAD_WORDS(low, at + 64u * side + 32u * (part % 2u), 8, part / 2u * 4u)
    LOAD_WORDS(high, at + 128u + 32u * side, 8, 2u * part)
}

// Loads 32 values from k on, a multiple of 32.
void load_values(uint k)
{
    uint i = k % BLOCK_VALUES(B_TYPE), at = k / BLOCK_VALUES(B_TYPE) * BLOCK_BYTES(B_TYPE);
    least = 0.0;
    if (B_TYPE == TYPE_I8) {
        LOAD_WORDS(low, at, 8, 0)
        scale_of[0] = 1.0;
    } else if (B_TYPE == TYPE_Q8_0) {
        LOAD_WORDS(low, at + 2u, 8, 0)
        scale_of[0] = float_from_f16(half_at(at));
    } else if (B_TYPE == TYPE_Q4_0 || B_TYPE == TYPE_Q5_0) {
        LOAD_WORDS(low, at + (B_TYPE == TYPE_Q4_0 ? 2u : 6u), 4, 0)
        scale_of[0] = float_from_f16(half_at(at));
        if (B_TYPE == TYPE_Q5_0)
            LOAD_WORDS(high, at + 2u, 1, 0)
    } else if (B_TYPE == TYPE_Q4_1) {
        LOAD_WORDS(low, at + 4u, 4, 0)
        scale_of[0] = float_from_f16(half_at(at));
        least = -float_from_f16(half_at(at + 2u));
    } else if (B_TYPE == TYPE_Q4_K) {
        load_q4_k(at, i);
    } else if (B_TYPE == TYPE_Q6_K) {
        load_q6_k(at, i);
    } else if (B_TYPE == TYPE_MXFP4) {
        uint e = byte_at(at);
        LOAD_WORDS(low, at + 1u, 4, 0)
        scale_of[0] = uintBitsToFloat(e < 2u ? 0x200000u << e : (e - 1u) << 23);
    } else {
        LOAD_WORDS(low, at + i / 2u, 4, 0)
        scale_of[0] = float_from_f16(half_at(at + 64u));
        high[0] = half_at(at + 66u);
    }
}

// Value j of those that were loaded.
float value(uint j)
{
    uint half_byte = low[j % 16 / 4] >> 8 * (j % 4) + j / 16 * 4 & 15u, byte = low[j / 4] >> 8 * (j % 4);
    int q = bitfieldExtract(int(byte), 0, 8);
    if (B_TYPE == TYPE_Q4_0)
        q = int(half_byte) - 8;
    else if (B_TYPE == TYPE_Q4_1)
        q = int(half_byte);
    else if (B_TYPE == TYPE_Q5_0)
        q = int(half_byte | (high[0] >> j & 1u) << 4) - 16;
    else if (B_TYPE == TYPE_Q4_K)
        q = int(byte & 15u);
    else if (B_TYPE == TYPE_Q6_K)
        q = int((byte & 15u) | (high[j / 4] >> 8 * (j % 4) & 3u) << 4) - 32;
    else if (B_TYPE == TYPE_I4_G128)
        q = int(low[j / 8] >> 4 * (j % 8) & 15u) - int(high[0]);
    float x = B_TYPE == TYPE_MXFP4 ? from_e2m1(half_byte) : float(q);
    x = scale_of[B_TYPE == TYPE_Q6_K ? j / 16 : 0] * x - least;
    return rounded_to(vec4(x), A_TYPE).x;
}

void end_group()
{
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        total[r] += group[r];
        group[r] = 0.0;
    }
}

// Adds 32 k to all rows.
void add_values(Float a[BLOCK_ROWS], uint k)
{
    [[unroll]] for (uint j = 0; j < 32; j++) {
        float b = value(j);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            acc[r] = fma(relu(Row(a[r] + k).at[j]), b, acc[r]);
            if ((j + 1) % QUANT_CHAIN == 0) {
                add_exactly(block[r], lost[r], acc[r]);
                acc[r] = 0.0;
            }
        }
    }
}

void main()
{
    uint first_row = gl_WorkGroupID.y * ROWS, first_column = gl_WorkGroupID.x * 8;
    uint column = first_column + gl_SubgroupInvocationID;
    Float a[BLOCK_ROWS]; // rows and columns past the end repeat the last
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        a[r] = Float(uvec2(p.a_low, p.a_high)) +
               (product_a() + min(first_row + r, p.m - 1) * p.a_row);
    uint b_base = p.b_offset + product_batch() * p.b_batch + product_head() / p.group * p.b_head;
    [[unroll]] for (uint l = 0; l < 8; l++)
        line[l] = packUint2x32(uvec2(p.b_low, p.b_high)) + b_base +
                  min(first_column + l, p.n - 1) * p.b_row;
    skew = p.b_low + b_base + min(column, p.n - 1) * p.b_row & 3u;
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        vec2 earlier = earlier_sums(product_z(), first_row + r, column);
        total[r] = earlier.x;
        group[r] = earlier.y;
        acc[r] = 0.0;
    }
    uint k = 0;
    do {
        uint end = min(k + MATMUL_BLOCK, p.k);
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            block[r] = lost[r] = 0.0;
        do {
            load_values(k);
            add_values(a, k);
            k += 32;
        } while (k < end);
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            group[r] += block[r] + lost[r];
        if (ends_group(k))
            end_group();
    } while (k < p.k);
    if ((SUMS & SUMS_OPEN) == 0)
        end_group();
    float bias = product_bias(column), scale = column_scale(min(column, p.n - 1));
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        store_product(first_row + r, column, total[r] * scale, group[r], bias);
}
