// Bundles: 64 neighbours along k of a row of B, of a block type whose bundles begin at whole words.
// The includer has their words in shared memory, see raw_word(); a lane decodes a bundle in
// registers, to the values of lib/blocks.glsl. BUNDLE_TYPE is the type.

uint raw_word(uint i);

// Words `word` .. `word` + 3 of a row, the first at `at` of B; 0 from `count` on. `whole`: there
// are as many. Where B_VEC is 2 they are an aligned vector.
uvec4 load_raw_vector(uint at, uint word, uint count, bool whole)
{
    uvec4 x = uvec4(0);
    if (B_VEC == 2 && (whole || word < count))
        x = b_vectors[at / 4];
    [[unroll]] for (uint e = 0; e < 4; e++)
        if (B_VEC != 2 && (whole || word + e < count))
            x[e] = b_words[at + e];
    return x;
}

// Words of a row from k0 on, a multiple of 128.
uint raw_words_left(uint k0)
{
    return p.k / 64 * BUNDLE_PAIR_WORDS(BUNDLE_TYPE) / 2 -
           k0 / 128 * BUNDLE_PAIR_WORDS(BUNDLE_TYPE);
}

// Blocks of q6_K are 105 half words: a row's words begin at any half word. A bundle of it is not 64
// neighbours but sixteen of each 32 values in half a block, whose bits lie together.
const bool RAW_HALVES = BUNDLE_TYPE == TYPE_Q6_K;
const uint BLOCK_HALVES = BLOCK_BYTES(TYPE_Q6_K) / 2;
// Vectors that hold the half words of a tile's row; the first begins at most 7 before them.
#define RAW_HALF_VECTORS(depth) (((depth) / 256 * BLOCK_HALVES + 14) / 8)
// Whether a tile's row reaches into the last of them, wherever in the first one it begins.
#define RAW_HALF_WHOLE(depth) \
    (RAW_HALF_VECTORS(depth) == ((depth) / 256 * BLOCK_HALVES + 7) / 8)

// Half words that are loaded in front of k0 of a row; `first`: where row 0 begins.
uint half_skew(uint first, uint row, uint k0)
{
    uint at = first + k0 / 256 * BLOCK_HALVES;
    return B_VEC == 2 ? at % 8 : (at + row * (p.b_row / 2)) % 2;
}

// Vector `vector` from k0 on of a row that begins at half word `line`; 0 beyond its end. `whole`: there
// are as many.
uvec4 load_half_vector(uint line, uint k0, uint vector, bool whole)
{
    uint at = line + k0 / 256 * BLOCK_HALVES, end = line + p.k / 256 * BLOCK_HALVES;
    uvec4 x = uvec4(0);
    if (B_VEC == 2 && (whole || (at / 8 + vector) * 8 < end))
        x = b_vectors[at / 8 + vector];
    [[unroll]] for (uint e = 0; e < 4; e++)
        if (B_VEC != 2 && (at / 2 + vector * 4 + e) * 2 < end)
            x[e] = b_words[at / 2 + vector * 4 + e];
    return x;
}

struct bundle {
    // The words of its blocks; for HAS_SIXES, iq4_xs and i4_g128 integers, then what load_bundle() says.
    uint words[17];
    float scale[2], offset[2]; // of each 32 values, which are scale * (integer - bias) + offset; of
                               // nvfp4 and q6_K the scales of each 16
    uint zero;                 // the bias of i4_g128
};

// Bits of a float16 at a half word of the bundle.
uint bundle_half(bundle r, uint i) { return r.words[i / 2] >> 16 * (i % 2) & 0xffffu; }

// Where the half word of the scale of 32 values is.
uint bundle_scale_at(uint sub) { return sub * (BUNDLE_PAIR_WORDS(BUNDLE_TYPE) / 2); }
const uint BUNDLE_SCALES = HAS_OFFSET(BUNDLE_TYPE) ? 2 : 1; // half words of scale and offset

// The header of a block of HAS_SIXES whose words are `x`; c is the bundle in it.
void read_sixes(inout bundle r, uvec4 x, uint c)
{
    uint shift = 16u * (c & 1u), low = x.y >> shift, least = x.z >> shift, more = x.w >> shift;
    uint six = c < 2u ? low & 0x3f3fu : (more & 0x0f0fu) | (low >> 2 & 0x3030u);
    uint min6 = c < 2u ? least & 0x3f3fu : (more >> 4 & 0x0f0fu) | (least >> 2 & 0x3030u);
    vec2 d = vec2(float_from_f16(x.x & 0xffffu), float_from_f16(x.x >> 16));
    [[unroll]] for (uint sub = 0; sub < 2; sub++) {
        r.scale[sub] = d.x * float(six >> 8 * sub & 0xffu);
        r.offset[sub] = -(d.y * float(min6 >> 8 * sub & 0xffu));
    }
}

// `count` words from half word `at` on, to r.words[to ..].
void read_halves(inout bundle r, uint to, uint at, uint count)
{
    bool odd = at % 2 != 0;
    uint low = raw_word(at / 2);
    [[unroll]] for (uint w = 0; w < count; w++) {
        uint high = raw_word(at / 2 + w + 1);
        r.words[to + w] = odd ? low >> 16 | high << 16 : low;
        low = high;
    }
}

// Bundle `i` of q6_K, whose row begins at half word `first`: low bits of 16 values and of those 32 on,
// high bits, scales.
bundle load_bundle_q6_k(uint first, uint i)
{
    bundle r;
    uint at = first + i / 4 * BLOCK_HALVES, side = i / 2 % 2, sub = i % 2;
    read_halves(r, 0, at + 32 * side + 8 * sub, 4);
    read_halves(r, 4, at + 16 + 32 * side + 8 * sub, 4);
    read_halves(r, 8, at + 64 + 16 * side + 8 * sub, 4);
    read_halves(r, 12, at + 96 + 4 * side, 2);
    uint d_at = at + 104;
    float d = float_from_f16(raw_word(d_at / 2) >> 16 * (d_at % 2) & 0xffffu);
    [[unroll]] for (uint n = 0; n < 4; n++) {
        int scale = bitfieldExtract(int(r.words[12 + n / 2] >> 8 * sub), int(16 * (n % 2)), 8);
        if (n < 2)
            r.scale[n] = d * float(scale);
        else
            r.offset[n - 2] = d * float(scale);
    }
    r.zero = 0;
    return r;
}

// The scale of values 4 * i and on of half a bundle of q6_K.
float bundle_scale_q6_k(bundle r, uint sub, uint i)
{
    return sub == 0 ? r.scale[i / 4] : r.offset[i / 4];
}

// Bundle `i` of those whose words begin at raw_word(first).
bundle load_bundle(uint first, uint i)
{
    bundle r;
    r.zero = 0;
    [[unroll]] for (uint sub = 0; sub < 2; sub++)
        r.offset[sub] = 0.0;
    if (HAS_SIXES(BUNDLE_TYPE)) {
        const uint head = BUNDLE_TYPE == TYPE_Q4_K ? 4 : 12;
        first += i / 4u * (2 * BUNDLE_PAIR_WORDS(BUNDLE_TYPE));
        [[unroll]] for (uint w = 0; w < 8; w++) {
            r.words[w] = raw_word(first + head + i % 4u * 8u + w);
            r.words[8 + w] = BUNDLE_TYPE == TYPE_Q4_K ? 0 : raw_word(first + 4 + w) >> i % 4u * 2u;
        }
        read_sixes(r, uvec4(raw_word(first), raw_word(first + 1), raw_word(first + 2),
                            raw_word(first + 3)), i % 4u);
    } else if (BUNDLE_TYPE == TYPE_IQ4_XS) {
        first += i / 4u * 34u;
        [[unroll]] for (uint w = 0; w < 8; w++)
            r.words[w] = raw_word(first + 2 + i % 4u * 8u + w);
        uint head = raw_word(first), low = raw_word(first + 1) >> 8 * (i % 4u);
        uint high = head >> 16 + 4 * (i % 4u);
        [[unroll]] for (uint sub = 0; sub < 2; sub++) {
            uint six = (low >> 4 * sub & 15u) | (high >> 2 * sub & 3u) << 4;
            r.scale[sub] = float_from_f16(head & 0xffffu) * float(int(six) - 32);
        }
    } else if (BUNDLE_TYPE == TYPE_I4_G128) {
        first += i / 2u * 17u;
        [[unroll]] for (uint w = 0; w < 8; w++)
            r.words[w] = raw_word(first + i % 2u * 8u + w);
        uint last = raw_word(first + 16);
        r.zero = last >> 16;
        r.scale[0] = r.scale[1] = float_from_f16(last & 0xffffu);
    } else {
        const uint n_word = BUNDLE_PAIR_WORDS(BUNDLE_TYPE) / 2;
        [[unroll]] for (uint w = 0; w < n_word; w++)
            r.words[w] = raw_word(first + i * n_word + w);
        [[unroll]] for (uint sub = 0; sub < 2; sub++) {
            if (HAS_FLOATS(BUNDLE_TYPE)) {
                r.scale[sub] = uintBitsToFloat(r.words[0]);
                continue;
            }
            if (BUNDLE_TYPE == TYPE_NVFP4) {
                r.scale[sub] = half_e4m3(r.words[0] >> 16 * sub);
                r.offset[sub] = half_e4m3(r.words[0] >> 16 * sub + 8);
                continue;
            }
            r.scale[sub] = float_from_f16(bundle_half(r, bundle_scale_at(sub)));
            if (HAS_OFFSET(BUNDLE_TYPE))
                r.offset[sub] = float_from_f16(bundle_half(r, bundle_scale_at(sub) + 1));
        }
    }
    return r;
}

// The word at half word `i`.
uint bundle_word(bundle r, uint i)
{
    return i % 2 == 0 ? r.words[i / 2] : r.words[i / 2] >> 16 | r.words[i / 2 + 1] << 16;
}

// The integers of values 32 * sub + 4 * i and on, without the bias, of byte types and nibbles in
// the lowest bits of four bytes, beside other bits.
uint bundle_integers(bundle r, uint sub, uint i)
{
    uint at = bundle_scale_at(sub) + BUNDLE_SCALES, shift = i / 4 * 4;
    if (BUNDLE_TYPE == TYPE_Q8_0)
        return bundle_word(r, at + 2 * i) ^ 0x80808080u;
    if (BUNDLE_TYPE == TYPE_Q4_0 || BUNDLE_TYPE == TYPE_Q4_1 || BUNDLE_TYPE == TYPE_IQ4_NL)
        return bundle_word(r, at + 2 * (i % 4)) >> shift;
    if (BUNDLE_TYPE == TYPE_Q5_0 || BUNDLE_TYPE == TYPE_Q5_1)
        return (bundle_word(r, at + 2 + 2 * (i % 4)) >> shift & 0x0f0f0f0fu) |
               spread_bits(bundle_word(r, at) >> 4 * i) << 4;
    if (IS_F8(BUNDLE_TYPE))
        return r.words[1 + 8 * sub + i];
    if (BUNDLE_TYPE == TYPE_NVFP4 || BUNDLE_TYPE == TYPE_NF4_G64)
        return r.words[1 + 4 * sub + i / 4 * 2 + i % 2] >> i % 4 / 2 * 4;
    if (BUNDLE_TYPE == TYPE_IQ4_XS)
        return r.words[4 * sub + i % 4] >> shift;
    if (BUNDLE_TYPE == TYPE_Q6_K) { // of 32 values `n` in half a block
        uint n = 2 * sub + i / 4, high = r.words[8 + i % 4];
        uint low = r.words[n % 2 * 4 + i % 4] >> n / 2 * 4;
        high = n < 2 ? high << 4 - 2 * n : high >> 2 * n - 4;
        return (low & 0x0f0f0f0fu) | (high & 0x30303030u);
    }
    if (BUNDLE_TYPE == TYPE_Q4_K)
        return r.words[i] >> 4 * sub;
    if (BUNDLE_TYPE == TYPE_Q5_K)
        return (r.words[i] >> 4 * sub & 0x0f0f0f0fu) | r.words[8 + i] << 4 - sub & 0x10101010u;
    return spread_nibbles(r.words[4 * sub + i / 2] >> 16 * (i % 2));
}

#define BUNDLE_HAS_FIFTHS                                                                          \
    (BUNDLE_TYPE == TYPE_Q5_0 || BUNDLE_TYPE == TYPE_Q5_1 || BUNDLE_TYPE == TYPE_Q5_K)
#define BUNDLE_MASK                                                                                \
    (BUNDLE_TYPE == TYPE_Q8_0   ? 0xffu                                                            \
     : BUNDLE_TYPE == TYPE_Q6_K ? 0x3fu                                                            \
     : BUNDLE_HAS_FIFTHS        ? 0x1fu                                                            \
                                : 0xfu)

// The integers of a bundle in the halves of words: 0 and 2, 1 and 3.
uvec2 bundle_bytes(bundle r, uint sub, uint i)
{
    uint x = bundle_integers(r, sub, i);
    return uvec2(x, x >> 8) & (BUNDLE_MASK << 16 | BUNDLE_MASK);
}

// What is subtracted from the integers; of i4_g128 it is the block's.
#define BUNDLE_BIAS                                                                                \
    (BUNDLE_TYPE == TYPE_Q8_0   ? 128.0                                                            \
     : BUNDLE_TYPE == TYPE_Q6_K ? 32.0                                                             \
     : BUNDLE_TYPE == TYPE_Q4_0 ? 8.0                                                              \
     : BUNDLE_TYPE == TYPE_Q5_0 ? 16.0                                                             \
                                : 0.0)

// Values 32 * sub + 4 * i and on.
vec4 bundle_values(bundle r, uint sub, uint i)
{
    uint x = bundle_integers(r, sub, i) & BUNDLE_MASK * 0x01010101u;
    if (IS_F8(BUNDLE_TYPE))
        return r.scale[sub] * four_f8(bundle_integers(r, sub, i), BUNDLE_TYPE);
    if (BUNDLE_TYPE == TYPE_NF4_G64)
        return r.scale[sub] * four_nf4(x);
    if (BUNDLE_TYPE == TYPE_NVFP4)
        return (i < 4 ? r.scale[sub] : r.offset[sub]) * four_e2m1(x);
    vec4 q = vec4(uvec4(x, x >> 8, x >> 16, x >> 24) & 0xffu);
    if (BUNDLE_TYPE == TYPE_Q6_K)
        return bundle_scale_q6_k(r, sub, i) * (q - BUNDLE_BIAS);
    if (BUNDLE_TYPE == TYPE_I4_G128)
        return r.scale[sub] * (q - float(r.zero));
    if (IS_NONLINEAR(BUNDLE_TYPE))
        return r.scale[sub] * from_nonlinear(q - 8.0);
    // One rounding, as in lib/blocks.glsl: the products are exact.
    return fma(vec4(r.scale[sub]), q, vec4(fma(-BUNDLE_BIAS, r.scale[sub], r.offset[sub])));
}
