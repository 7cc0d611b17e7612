// Product of float32 A and quantised B for CPU drivers, whose compilers best keep uniform values
// scalar (Mesa 26), see matmul_address.comp: no shared memory, no barriers, bare loads. B is read
// as it is: a lane has a column, and words of eight columns, each loaded by a scalar, become a
// vector. One subgroup of 8 makes ROWS rows by 8 columns of C. See matmul_params.
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
// 0: 32 k in an iteration. 1: 64, of which k is a multiple: the loop's counter, which the compiler
// keeps in memory, is then waited for half as often. 2: and rows begin at whole words, so that most
// shifts are known when this is compiled.
layout(constant_id = MATMUL_B_VEC) const uint B_VEC = 0;

layout(local_size_x = 8) in;
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
layout(binding = 3) buffer C { uint c_words[]; };
layout(push_constant) uniform Push { matmul_params p; };
#include "cpu/product.glsl"
#include "lib/scale.glsl"

layout(buffer_reference, buffer_reference_align = 4) readonly buffer Float { float x; };
layout(buffer_reference, buffer_reference_align = 4) readonly buffer Row { float at[32]; };
layout(buffer_reference, buffer_reference_align = 4) readonly buffer Words { uint x[]; };

// Sums of a chain, see QUANT_CHAIN, of a group and what rounding took from it, of all groups before
// it. Chains are added to a group, not to a block, and a pass ends with a group: that rounds less.
float acc[BLOCK_ROWS], group[BLOCK_ROWS], lost[BLOCK_ROWS], total[BLOCK_ROWS];

#define STEPS (B_VEC == 0 ? 1 : 2)

// Whether the blocks of two steps, or each, begin at whole words of a row that does.
#define WHOLE                                                                                      \
    (B_VEC == 2 ? B_TYPE != TYPE_Q6_K && B_TYPE != TYPE_MXFP4                                      \
                : BLOCK_BYTES(B_TYPE) % 4 == 0 && B_TYPE != TYPE_I8)

uint64_t line[8]; // words that the columns begin in
uint skew[8];     // bytes of them before the columns
uint my_skew;     // of this lane's column
uint run;         // byte of a column; further bytes are counted from it

uint shift_of(uint at) { return 8u * ((WHOLE ? 0u : my_skew + run) + at & 3u); }

// Words of eight columns, each in its lane: `count` from that which holds byte `at` on.
#define LOAD_WORDS(to, at, count)                                                                  \
    [[unroll]] for (uint l = 0; l < 8; l++) {                                                      \
        Words source = Words(line[l] + (WHOLE ? run : (skew[l] + run + at & ~3u)));                \
        [[unroll]] for (uint i = 0; i < count; i++)                                                \
            to[i] = mix(to[i], source.x[(WHOLE ? at / 4 : 0) + i], gl_SubgroupInvocationID == l);  \
    }

uint word_at(uint at)
{
    uint x[1] = {0};
    LOAD_WORDS(x, at, 1)
    return x[0];
}

// A float16 at an even byte.
float half_at(uint at) { return unpackHalf2x16(word_at(at) >> shift_of(at)).x; }

uint byte_at(uint at) { return word_at(at) >> shift_of(at) & 0xffu; }

// Loads `count` words from any byte on; reads no word beyond them. `aligned`: it begins a word.
#define LOAD_BYTES(to, at, count, aligned)                                                         \
    LOAD_WORDS(to, at, count)                                                                      \
    if (!(aligned)) {                                                                              \
        uint shift = shift_of(at), last = word_at(at + 4u * count - 1u);                           \
        [[unroll]] for (uint i = 0; i < count; i++)                                                \
            to[i] = to[i] >> shift | (i + 1 < count ? to[i + 1] : last) << 1 << (31u - shift);     \
    }

// 32 values: unsigned integers, bytes of 8 words or nibbles of 4, times scale_of[], which 16 values
// share, less least[].
uint words[8];
float scale_of[2], least[2];

void load_integers(uint at, uint count, float scale, float subtracted)
{
    bool aligned = WHOLE && (BLOCK_BYTES(B_TYPE) % 4 == 0 || at % 4 == 0);
    LOAD_BYTES(words, at, count, aligned)
    scale_of[0] = scale;
    least[0] = subtracted;
}

void load_q4_k(uint i)
{
    uint part = i / 32u, six = 4u + part % 4u, s = byte_at(six), m = byte_at(six + 4u);
    uint more = byte_at(six + (part < 4u ? 0u : 8u));
    vec2 scales = unpackHalf2x16(word_at(0));
    s = part < 4u ? s & 63u : (more & 15u) | s >> 6 << 4;
    m = part < 4u ? m & 63u : more >> 4 | m >> 6 << 4;
    load_integers(16u + i / 64u * 32u, 8, scales.x * float(s), scales.y * float(m));
    [[unroll]] for (uint w = 0; w < 8; w++)
        words[w] >>= 4u * (part % 2u);
}

void load_q5_0(uint at)
{
    float scale = half_at(at);
    uint fifth[1] = {0}, from = at + 2u;
    LOAD_BYTES(fifth, from, 1, WHOLE && from % 4 == 0)
    load_integers(at + 6u, 4, scale, 16.0 * scale);
    [[unroll]] for (uint w = 0; w < 4; w++) {
        words[w + 4] = words[w] >> 4 & 0x0f0f0f0fu | spread_bits(fifth[0] >> 4 * w + 16) << 4;
        words[w] = words[w] & 0x0f0f0f0fu | spread_bits(fifth[0] >> 4 * w) << 4;
    }
}

void load_q6_k(uint i)
{
    uint side = i / 128u, part = i / 32u % 4u, high[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    uint from = 128u + 32u * side;
    float scale = half_at(208u);
    load_integers(64u * side + 32u * (part % 2u), 8, 0.0, 0.0);
    LOAD_BYTES(high, from, 8, false)
    [[unroll]] for (uint w = 0; w < 8; w++)
        words[w] = words[w] >> part / 2u * 4u & 0x0f0f0f0fu |
                   (high[w] >> 2u * part & 0x03030303u) << 4;
    [[unroll]] for (uint j = 0; j < 2; j++) {
        scale_of[j] = scale * float(bitfieldExtract(int(byte_at(192u + i / 16u + j)), 0, 8));
        least[j] = 32.0 * scale_of[j];
    }
}

// Loads 32 values from k + 32 * s on. `k`: a multiple of 32 * STEPS.
void load_values(uint k, uint s)
{
    bool pair = B_VEC == 2 && BLOCK_VALUES(B_TYPE) == 32; // of blocks, which begins at a whole word
    uint at = pair ? s * BLOCK_BYTES(B_TYPE) : 0;
    k += pair ? 0 : 32 * s;
    run = k / BLOCK_VALUES(B_TYPE) * BLOCK_BYTES(B_TYPE);
    uint i = k % BLOCK_VALUES(B_TYPE);
    [[unroll]] for (uint w = 0; w < 8; w++)
        words[w] = 0;
    if (B_TYPE == TYPE_I8) {
        load_integers(at, 8, 1.0, 128.0);
    } else if (B_TYPE == TYPE_Q8_0) {
        float scale = half_at(at);
        load_integers(at + 2u, 8, scale, 128.0 * scale);
    } else if (B_TYPE == TYPE_Q4_0) {
        float scale = half_at(at);
        load_integers(at + 2u, 4, scale, 8.0 * scale);
    } else if (B_TYPE == TYPE_Q4_1) {
        vec2 scales = unpackHalf2x16(word_at(at));
        load_integers(at + 4u, 4, scales.x, -scales.y);
    } else if (B_TYPE == TYPE_Q4_K) {
        load_q4_k(i);
    } else if (B_TYPE == TYPE_Q5_0) {
        load_q5_0(at);
    } else if (B_TYPE == TYPE_Q6_K) {
        load_q6_k(i);
    } else if (B_TYPE == TYPE_MXFP4) {
        uint e = byte_at(at);
        load_integers(at + 1u, 4, uintBitsToFloat(e < 2u ? 0x200000u << e : (e - 1u) << 23), 0.0);
    } else {
        uint both = word_at(64u);
        float scale = unpackHalf2x16(both).x;
        load_integers(i / 2u, 4, scale, scale * float(both >> 16));
    }
    [[unroll]] for (uint w = 0; w < 8; w++) // signed bytes become unsigned ones
        words[w] ^= B_TYPE == TYPE_I8 || B_TYPE == TYPE_Q8_0 ? 0x80808080u : 0;
}

// Value j of those that were loaded. Its integer stays where it is in the word, so 2^shift times
// larger, and the scale is as much smaller, which is exact: fewer shifts.
float value(uint j)
{
    bool close = B_TYPE == TYPE_I4_G128; // neighbours share a byte, else values 16 apart do
    bool nibbles =
        close || B_TYPE == TYPE_Q4_0 || B_TYPE == TYPE_Q4_1 || B_TYPE == TYPE_MXFP4;
    uint byte = !nibbles ? j : close ? j / 2 : j % 16, shift = byte % 4 * 8;
    uint part = !nibbles ? 0 : close ? j % 2 : j / 16, h = B_TYPE == TYPE_Q6_K ? j / 16 : 0;
    uint most = nibbles || B_TYPE == TYPE_Q4_K ? 15 : 255, word = words[byte / 4] >> 4 * part;
    if (B_TYPE == TYPE_MXFP4)
        return rounded_to(vec4(scale_of[0] * from_e2m1(word >> shift & 15u)), A_TYPE).x;
    if (most == 255 && shift == 24) { // else the integer would be negative
        word >>= 24;
        shift = 0;
    }
    float scale = scale_of[h] * uintBitsToFloat(127u - shift << 23);
    return rounded_to(vec4(fma(scale, float(int(word & most << shift)), -least[h])), A_TYPE).x;
}

// Adds 32 k to all rows.
void add_values(Float a[BLOCK_ROWS], uint k)
{
    [[unroll]] for (uint j = 0; j < 32; j++) {
        float b = value(j);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            float x = relu(Row(a[r] + k).at[j]);
            acc[r] = j % QUANT_CHAIN == 0 ? x * b : fma(x, b, acc[r]);
            if ((j + 1) % QUANT_CHAIN == 0)
                add_exactly(group[r], lost[r], acc[r]);
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
    [[unroll]] for (uint l = 0; l < 8; l++) {
        uint64_t begin = packUint2x32(uvec2(p.b_low, p.b_high)) + b_base +
                         min(first_column + l, p.n - 1) * p.b_row;
        skew[l] = B_VEC == 2 ? 0 : uint(begin) & 3u;
        line[l] = begin - skew[l];
    }
    my_skew = B_VEC == 2 ? 0 : p.b_low + b_base + min(column, p.n - 1) * p.b_row & 3u;
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        total[r] = earlier_sums(product_z(), first_row + r, column).x;
    uint k = 0;
    do {
        uint end = min(k + MATMUL_GROUP, p.k);
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            group[r] = lost[r] = 0.0;
        do {
            [[unroll]] for (uint s = 0; s < STEPS; s++) {
                load_values(k, s);
                add_values(a, k + 32 * s);
            }
            k += 32 * STEPS;
        } while (k < end);
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            total[r] += group[r] + lost[r];
    } while (k < p.k);
    float bias = product_bias(column), scale = column_scale(min(column, p.n - 1));
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        store_product(first_row + r, column, total[r] * scale, 0.0, bias);
}
