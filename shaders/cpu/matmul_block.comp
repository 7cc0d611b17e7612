// Product of float32 A and quantised B for Mesa's CPU driver before 26: no shared memory, no barriers,
// few loads, each of which Mesa 22 compiles to a loop over the lanes. B is read as it is: a lane has a
// column and loads its words, and four of 32 k of A, which subgroupBroadcast shares. One
// subgroup of 8 makes ROWS rows by 8 columns of C. See matmul_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_ballot : require
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/blocks.glsl"
#include "lib/rounded.glsl"

layout(constant_id = MATMUL_A_TYPE) const uint A_TYPE = 0; // that B is rounded to
layout(constant_id = MATMUL_B_TYPE) const uint B_TYPE = TYPE_Q4_0;
layout(constant_id = MATMUL_C_TYPE) const uint C_TYPE = 0;
layout(constant_id = MATMUL_BIAS_TYPE) const uint BIAS_TYPE = BIAS_NONE;
layout(constant_id = MATMUL_RELU) const uint RELU = 0;
layout(constant_id = MATMUL_HIDDEN) const uint HIDDEN = 0;
layout(constant_id = MATMUL_ROWS) const uint ROWS = BLOCK_ROWS;
// Whether k is a multiple of 64 and rows begin at whole words: most shifts are then constants.
layout(constant_id = MATMUL_B_VEC) const uint B_VEC = 0;

layout(local_size_x = 8) in;
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
layout(binding = 3) buffer C { uint c_words[]; };
layout(push_constant) uniform Push { matmul_params p; };
#include "cpu/product.glsl"
#include "lib/scale.glsl"
#include "lib/lost.glsl"

layout(buffer_reference, buffer_reference_align = 4) readonly buffer Float { float x; };
layout(buffer_reference, buffer_reference_align = 4) readonly buffer Four { float x[4]; };
layout(buffer_reference, buffer_reference_align = 4) readonly buffer Words { uint x[]; };

const uint VALUES = BLOCK_VALUES(B_TYPE), BYTES = BLOCK_BYTES(B_TYPE);

// Steps of 32 k in an iteration: two where blocks begin at every other whole word.
const uint STEPS = B_VEC == 0 || VALUES != 32 ? 1 : BYTES % 4 == 2 ? 2 : 1;
// Whether the values of an iteration begin at a whole word.
const bool HALVES = B_TYPE == TYPE_Q6_K || B_TYPE == TYPE_Q3_K; // 16 values share a scale
const bool WHOLE = B_VEC != 0 ? !HALVES && B_TYPE != TYPE_MXFP4
                              : BYTES % 4 == 0 && B_TYPE != TYPE_I8;

// How 32 values lie in a block: words of integers, bytes or nibbles, and those loaded; their first
// byte, and what was added to make them unsigned; the byte of the block's scale; words of further
// bits, and bytes of scales of a subblock.
const bool NIBBLES = B_TYPE == TYPE_Q4_0 || B_TYPE == TYPE_Q4_1 || B_TYPE == TYPE_MXFP4 ||
                     B_TYPE == TYPE_I4_G128 || B_TYPE == TYPE_IQ4_NL || B_TYPE == TYPE_IQ4_XS;
const bool FIFTHS = B_TYPE == TYPE_Q5_0 || B_TYPE == TYPE_Q5_1; // a word of further bits
const uint WORDS = NIBBLES ? 4 : 8, LOADED = FIFTHS ? 4 : WORDS;
const bool AFTER_SCALE = B_TYPE == TYPE_Q8_0 || B_TYPE == TYPE_Q4_0 || B_TYPE == TYPE_IQ4_NL;
const uint FIRST = B_TYPE == TYPE_MXFP4                           ? 1
                   : AFTER_SCALE                                  ? 2
                   : B_TYPE == TYPE_Q4_1                          ? 4
                   : B_TYPE == TYPE_Q5_0                          ? 6
                   : B_TYPE == TYPE_Q5_1 || B_TYPE == TYPE_IQ4_XS ? 8
                   : B_TYPE == TYPE_Q4_K                          ? 16
                   : B_TYPE == TYPE_Q3_K                          ? 32
                   : B_TYPE == TYPE_Q5_K                          ? 48
                                                                  : 0;
const float ADDED = B_TYPE == TYPE_I8 || B_TYPE == TYPE_Q8_0 ? 128.0
                    : B_TYPE == TYPE_Q6_K                    ? 32.0
                    : B_TYPE == TYPE_Q5_0                    ? 16.0
                    : B_TYPE == TYPE_Q4_0                    ? 8.0
                    : B_TYPE == TYPE_Q3_K                    ? 4.0
                                                             : 0.0;
const uint SCALE = B_TYPE == TYPE_Q6_K      ? 208
                   : B_TYPE == TYPE_Q3_K    ? 108
                   : B_TYPE == TYPE_I4_G128 ? 64
                                            : 0;
const uint MORE_WORDS = HALVES || B_TYPE == TYPE_Q5_K ? 8 : FIFTHS ? 1 : 0;
const uint SCALE_BYTES = B_TYPE == TYPE_Q3_K                          ? 4
                        : HAS_SIXES(B_TYPE)                          ? 3
                        : B_TYPE == TYPE_Q6_K || B_TYPE == TYPE_IQ4_XS ? 2
                                                                     : 0;

uint64_t line; // word that this lane's column begins in
uint skew;     // bytes of it before the column
uint begin;    // byte of a column; further bytes are counted from it

uint shift_of(uint at) { return 8u * ((WHOLE ? 0u : skew + begin) + at & 3u); }

// `count` words from that which holds byte `at` on.
#define LOAD_WORDS(to, at, count)                                                                  \
    {                                                                                              \
        uint skip = WHOLE ? at / 4 : 0, byte = skew + begin + at & ~3u;                            \
        Words source = Words(line + (WHOLE ? begin : byte));                                       \
        [[unroll]] for (uint i = 0; i < count; i++)                                                \
            to[i] = source.x[skip + i];                                                            \
    }

uint word_at(uint at)
{
    uint x[1] = {0};
    LOAD_WORDS(x, at, 1)
    return x[0];
}

// Loads `count` words from any byte on; reads no word beyond them.
#define LOAD_BYTES(to, at, count)                                                                  \
    LOAD_WORDS(to, at, count)                                                                      \
    if (!WHOLE || BYTES % 4 != 0 && at % 4 != 0) {                                                 \
        uint shift = shift_of(at), last = word_at(at + 4u * count - 1u);                           \
        [[unroll]] for (uint i = 0; i < count; i++)                                                \
            to[i] = to[i] >> shift | (i + 1 < count ? to[i + 1] : last) << 1 << (31u - shift);     \
    }

// 32 values: unsigned integers times scale_of[], which 16 values share, less least[]. That of
// i4_g128 is subtracted from the integer: its product with the scale has more bits than float32.
uint words[8];
float scale_of[2], least[2];

// Loads the scales of 32 values, from value i of a block on that begins at byte `at`.
void load_scales(uint at, uint i)
{
    uint head = 0, own[4] = {0, 0, 0, 0};
    uint six = 4u + i / 32u % 4u, sixteen = i / 16u;
    uvec4 from = uvec4(192u + sixteen) + uvec4(0, 1, 0, 0);
    if (HAS_SIXES(B_TYPE))
        from.xyz = uvec3(six, six + 4u, six + (i < 128u ? 0u : 8u));
    if (B_TYPE == TYPE_Q3_K)
        from = uvec4(96u, 97u, 104u, 105u) + uvec4(uvec2(sixteen % 8u), uvec2(sixteen % 4u));
    if (B_TYPE == TYPE_IQ4_XS)
        from.xy = uvec2(4u + i / 64u, 2u + i / 128u);
    if (B_TYPE != TYPE_I8)
        head = word_at(at + SCALE) >> shift_of(at + SCALE);
    [[unroll]] for (uint e = 0; e < SCALE_BYTES; e++)
        own[e] = word_at(from[e]) >> shift_of(from[e]) & 0xffu;
    vec2 halves = unpackHalf2x16(head);
    scale_of[0] = scale_of[1] = B_TYPE == TYPE_I8 ? 1.0 : halves.x;
    if (B_TYPE == TYPE_MXFP4) {
        uint e = head & 0xffu;
        scale_of[0] = uintBitsToFloat(e < 2u ? 0x200000u << e : (e - 1u) << 23);
    } else if (B_TYPE == TYPE_IQ4_XS) {
        uint low = own[0] >> 4u * (i / 32u % 2u) & 15u, high = own[1] >> 2u * (i / 32u % 4u) & 3u;
        scale_of[0] *= float(int(low | high << 4) - 32);
    } else if (HAS_SIXES(B_TYPE)) {
        bool first = i < 128u;
        scale_of[0] *= float(first ? own[0] & 63u : (own[2] & 15u) | own[0] >> 6 << 4);
        halves.y *= -float(first ? own[1] & 63u : own[2] >> 4 | own[1] >> 6 << 4);
    }
    [[unroll]] for (uint j = 0; j < 2; j++) {
        if (B_TYPE == TYPE_Q6_K)
            scale_of[j] *= float(bitfieldExtract(int(own[j]), 0, 8));
        if (B_TYPE == TYPE_Q3_K)
            scale_of[j] *= float(int(own[j] >> sixteen / 8u * 4u & 15u |
                                     (own[j + 2] >> sixteen / 4u * 2u & 3u) << 4) - 32);
        least[j] = B_TYPE == TYPE_I4_G128 ? float(head >> 16) : scale_of[j] * ADDED;
        if (HAS_OFFSET(B_TYPE))
            least[j] = -halves.y;
    }
}

// Loads 32 values from k + 32 * s on. `k`: a multiple of 32 * STEPS. Each of two steps has a block.
void load_values(uint k, uint s)
{
    uint at = s * BYTES, more[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    begin = k / VALUES * BYTES;
    uint i = k % VALUES, sub = i / 32u % 4u, first = at + FIRST;
    uint rest = at + (B_TYPE == TYPE_Q5_0 ? 2u : B_TYPE == TYPE_Q5_1 ? 4u : 0u);
    if (HAS_SIXES(B_TYPE))
        first += i / 64u * 32u;
    if (B_TYPE == TYPE_I4_G128 || B_TYPE == TYPE_IQ4_XS)
        first += i / 2u;
    if (B_TYPE == TYPE_Q5_K)
        rest = 16u;
    if (B_TYPE == TYPE_Q3_K)
        first += 32u * (i / 128u);
    if (B_TYPE == TYPE_Q6_K) {
        first = 64u * (i / 128u) + 32u * (sub % 2u);
        rest = 128u + 32u * (i / 128u);
    }
    [[unroll]] for (uint w = 0; w < 8; w++)
        words[w] = 0;
    load_scales(at, i);
    LOAD_BYTES(words, first, LOADED)
    if (MORE_WORDS != 0) {
        LOAD_BYTES(more, rest, MORE_WORDS)
    }
    if (FIFTHS) {
        [[unroll]] for (uint w = 0; w < 4; w++) {
            words[w + 4] = words[w] >> 4 & 0x0f0f0f0fu | spread_bits(more[0] >> 4 * w + 16) << 4;
            words[w] = words[w] & 0x0f0f0f0fu | spread_bits(more[0] >> 4 * w) << 4;
        }
    }
    [[unroll]] for (uint w = 0; w < 8; w++) {
        if (B_TYPE == TYPE_Q4_K)
            words[w] >>= 4u * (sub % 2u);
        if (B_TYPE == TYPE_Q5_K)
            words[w] = words[w] >> 4u * (sub % 2u) & 0x0f0f0f0fu |
                       (more[w] >> i / 32u & 0x01010101u) << 4;
        if (B_TYPE == TYPE_Q3_K)
            words[w] = words[w] >> 2u * sub & 0x03030303u |
                       (more[w] >> i / 32u & 0x01010101u) << 2;
        if (B_TYPE == TYPE_Q6_K)
            words[w] = words[w] >> sub / 2u * 4u & 0x0f0f0f0fu |
                       (more[w] >> 2u * sub & 0x03030303u) << 4;
        if (B_TYPE == TYPE_I8 || B_TYPE == TYPE_Q8_0) // signed bytes become unsigned ones
            words[w] ^= 0x80808080u;
    }
}

// The value whose integer byte e of `word` begins with; scale_of[h] is its scale. The integer stays
// where it is in the word, so 2^shift times larger, and the scale is as much smaller, which is exact:
// fewer shifts.
float value(uint word, uint e, uint h)
{
    uint shift = e * 8, most = NIBBLES || B_TYPE == TYPE_Q4_K ? 15 : 255;
    if (B_TYPE == TYPE_MXFP4)
        return scale_of[0] * from_e2m1(word >> shift & 15u);
    if (IS_NONLINEAR(B_TYPE))
        return scale_of[0] * from_nonlinear(vec4(float(int(word >> shift & 15u) - 8))).x;
    if (most == 255 && shift == 24) { // else the integer would be negative
        word >>= 24;
        shift = 0;
    }
    float lowest = uintBitsToFloat(127u - shift << 23), scale = scale_of[h] * lowest;
    if (B_TYPE == TYPE_I4_G128)
        return scale_of[h] * fma(float(int(word & most << shift)), lowest, -least[h]);
    return fma(scale, float(int(word & most << shift)), -least[h]);
}

float b[32]; // values, rounded to A_TYPE

// Nibbles of a byte are neighbours, or 16 values apart.
void round_values()
{
    [[unroll]] for (uint w = 0; w < WORDS; w++)
        [[unroll]] for (uint nibble = 0; nibble < 32 / WORDS / 4; nibble++)
            [[unroll]] for (uint e = 0; e < 4; e++) {
                uint j = B_TYPE == TYPE_I4_G128 ? 8 * w + 2 * e + nibble : 16 * nibble + 4 * w + e;
                uint h = HALVES ? w / 4 : 0;
                b[j] = rounded(value(words[w] >> 4 * nibble, e, h), A_TYPE);
            }
}

float acc[BLOCK_ROWS]; // of a chain, see QUANT_CHAIN
// Sums of a group and what rounding took from it, of all groups before it. Chains are added to a
// group, not to a block, and a pass ends with a group: that rounds less.
float group[BLOCK_ROWS], lost[BLOCK_ROWS], total[BLOCK_ROWS];
vec4 a_four[BLOCK_ROWS]; // four of 32 k of each row

// Adds the four k that lane l has of A to all rows; subgroupBroadcast takes a constant lane.
#define ADD_FOUR(l)                                                                                \
    [[unroll]] for (uint r = 0; r < ROWS; r++)                                                     \
        add_four(r, subgroupBroadcast(a_four[r], l), 4 * l);

void add_four(uint r, vec4 a, uint j)
{
    [[unroll]] for (uint i = 0; i < 4; i++)
        acc[r] = (j + i) % QUANT_CHAIN == 0 ? a[i] * b[j + i] : fma(a[i], b[j + i], acc[r]);
    if ((j + 4) % QUANT_CHAIN == 0)
        add_exactly(group[r], lost[r], acc[r]);
}

// Adds 32 k to all rows.
void add_values(Float a[BLOCK_ROWS], uint k)
{
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        Four source = Four(uint64_t(a[r] + (k + 4 * gl_SubgroupInvocationID)));
        [[unroll]] for (uint i = 0; i < 4; i++)
            a_four[r][i] = relu(source.x[i]);
    }
    round_values();
    ADD_FOUR(0) ADD_FOUR(1) ADD_FOUR(2) ADD_FOUR(3)
    ADD_FOUR(4) ADD_FOUR(5) ADD_FOUR(6) ADD_FOUR(7)
}

void main()
{
    uint first_row = gl_WorkGroupID.y * ROWS;
    uint column = gl_WorkGroupID.x * 8 + gl_SubgroupInvocationID;
    Float a[BLOCK_ROWS]; // rows and columns past the end repeat the last
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        a[r] = Float(uvec2(p.a_low, p.a_high)) +
               (product_a() + min(first_row + r, p.m - 1) * p.a_row);
    uint b_base = p.b_offset + product_batch() * p.b_batch + product_head() / p.group * p.b_head;
    uint64_t begin = packUint2x32(uvec2(p.b_low, p.b_high)) + b_base +
                     min(column, p.n - 1) * p.b_row;
    skew = B_VEC != 0 ? 0 : uint(begin) & 3u;
    line = begin - skew;
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
            total[r] += with_lost(group[r], lost[r]);
    } while (k < p.k);
    float bias = product_bias(column), scale = column_scale(min(column, p.n - 1));
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        store_product(first_row + r, column, total[r] * scale, 0.0, bias);
}
