// Runs: 64 neighbours along k of a row of B, of a block type whose runs begin at whole words. The
// includer has their words in shared memory, see raw_word(); a lane decodes a run in registers, to
// the values of lib/blocks.glsl. RUN_TYPE is the type.

uint raw_word(uint i);

// Words `word` .. `word` + 3 of a row, the first at `at` of B; 0 from `count` on. `whole`: there are
// as many. Where B_VEC is 2 they are an aligned chunk.
uvec4 load_raw_chunk(uint at, uint word, uint count, bool whole)
{
    uvec4 x = uvec4(0);
    if (B_VEC == 2 && (whole || word < count))
        x = b_chunks[at / 4];
    [[unroll]] for (uint e = 0; e < 4; e++)
        if (B_VEC != 2 && (whole || word + e < count))
            x[e] = b_words[at + e];
    return x;
}

// Words of a row from k0 on, a multiple of 128.
uint raw_words_left(uint k0)
{
    return p.k / 64 * RUN_PAIR_WORDS(RUN_TYPE) / 2 - k0 / 128 * RUN_PAIR_WORDS(RUN_TYPE);
}

struct run {
    uint words[17]; // of its blocks; HAS_SIXES, iq4_xs, i4_g128: integers, then what load_run() says
    float scale[2], offset[2]; // of each 32 values, which are scale * (integer - bias) + offset; of
                               // nvfp4 the scales of each 16
    uint zero;                 // the bias of i4_g128
};

// Bits of a float16 at a half word of the run.
uint run_half(run r, uint i) { return r.words[i / 2] >> 16 * (i % 2) & 0xffffu; }

// Where the half word of the scale of 32 values is.
uint run_scale_at(uint part) { return part * (RUN_PAIR_WORDS(RUN_TYPE) / 2); }
const uint RUN_SCALES = HAS_OFFSET(RUN_TYPE) ? 2 : 1; // half words of scale and offset

// The header of a block of HAS_SIXES whose words are `x`; c is the run in it.
void read_sixes(inout run r, uvec4 x, uint c)
{
    uint shift = 16u * (c & 1u), low = x.y >> shift, least = x.z >> shift, more = x.w >> shift;
    uint six = c < 2u ? low & 0x3f3fu : (more & 0x0f0fu) | (low >> 2 & 0x3030u);
    uint min6 = c < 2u ? least & 0x3f3fu : (more >> 4 & 0x0f0fu) | (least >> 2 & 0x3030u);
    vec2 d = vec2(float_from_f16(x.x & 0xffffu), float_from_f16(x.x >> 16));
    [[unroll]] for (uint part = 0; part < 2; part++) {
        r.scale[part] = d.x * float(six >> 8 * part & 0xffu);
        r.offset[part] = -(d.y * float(min6 >> 8 * part & 0xffu));
    }
}

// Run `i` of those whose words begin at raw_word(first).
run load_run(uint first, uint i)
{
    run r;
    r.zero = 0;
    [[unroll]] for (uint part = 0; part < 2; part++)
        r.offset[part] = 0.0;
    if (HAS_SIXES(RUN_TYPE)) {
        const uint head = RUN_TYPE == TYPE_Q4_K ? 4 : 12;
        first += i / 4u * (2 * RUN_PAIR_WORDS(RUN_TYPE));
        [[unroll]] for (uint w = 0; w < 8; w++) {
            r.words[w] = raw_word(first + head + i % 4u * 8u + w);
            r.words[8 + w] = RUN_TYPE == TYPE_Q4_K ? 0 : raw_word(first + 4 + w) >> i % 4u * 2u;
        }
        read_sixes(r, uvec4(raw_word(first), raw_word(first + 1), raw_word(first + 2),
                            raw_word(first + 3)), i % 4u);
    } else if (RUN_TYPE == TYPE_IQ4_XS) {
        first += i / 4u * 34u;
        [[unroll]] for (uint w = 0; w < 8; w++)
            r.words[w] = raw_word(first + 2 + i % 4u * 8u + w);
        uint head = raw_word(first), low = raw_word(first + 1) >> 8 * (i % 4u);
        uint high = head >> 16 + 4 * (i % 4u);
        [[unroll]] for (uint part = 0; part < 2; part++) {
            uint six = (low >> 4 * part & 15u) | (high >> 2 * part & 3u) << 4;
            r.scale[part] = float_from_f16(head & 0xffffu) * float(int(six) - 32);
        }
    } else if (RUN_TYPE == TYPE_I4_G128) {
        first += i / 2u * 17u;
        [[unroll]] for (uint w = 0; w < 8; w++)
            r.words[w] = raw_word(first + i % 2u * 8u + w);
        uint last = raw_word(first + 16);
        r.zero = last >> 16;
        r.scale[0] = r.scale[1] = float_from_f16(last & 0xffffu);
    } else {
        const uint n_word = RUN_PAIR_WORDS(RUN_TYPE) / 2;
        [[unroll]] for (uint w = 0; w < n_word; w++)
            r.words[w] = raw_word(first + i * n_word + w);
        [[unroll]] for (uint part = 0; part < 2; part++) {
            if (HAS_FLOATS(RUN_TYPE)) {
                r.scale[part] = uintBitsToFloat(r.words[0]);
                continue;
            }
            if (RUN_TYPE == TYPE_NVFP4) {
                r.scale[part] = half_e4m3(r.words[0] >> 16 * part);
                r.offset[part] = half_e4m3(r.words[0] >> 16 * part + 8);
                continue;
            }
            r.scale[part] = float_from_f16(run_half(r, run_scale_at(part)));
            if (HAS_OFFSET(RUN_TYPE))
                r.offset[part] = float_from_f16(run_half(r, run_scale_at(part) + 1));
        }
    }
    return r;
}

// The word at half word `i`.
uint run_word(run r, uint i)
{
    return i % 2 == 0 ? r.words[i / 2] : r.words[i / 2] >> 16 | r.words[i / 2 + 1] << 16;
}

// The integers of values 32 * part + 4 * i and on, without the bias, of byte types and nibbles in
// the lowest bits of four bytes, beside other bits.
uint run_integers(run r, uint part, uint i)
{
    uint at = run_scale_at(part) + RUN_SCALES, shift = i / 4 * 4;
    if (RUN_TYPE == TYPE_Q8_0)
        return run_word(r, at + 2 * i) ^ 0x80808080u;
    if (RUN_TYPE == TYPE_Q4_0 || RUN_TYPE == TYPE_Q4_1 || RUN_TYPE == TYPE_IQ4_NL)
        return run_word(r, at + 2 * (i % 4)) >> shift;
    if (RUN_TYPE == TYPE_Q5_0 || RUN_TYPE == TYPE_Q5_1)
        return (run_word(r, at + 2 + 2 * (i % 4)) >> shift & 0x0f0f0f0fu) |
               spread_bits(run_word(r, at) >> 4 * i) << 4;
    if (IS_F8(RUN_TYPE))
        return r.words[1 + 8 * part + i];
    if (RUN_TYPE == TYPE_NVFP4 || RUN_TYPE == TYPE_NF4_G64)
        return r.words[1 + 4 * part + i / 4 * 2 + i % 2] >> i % 4 / 2 * 4;
    if (RUN_TYPE == TYPE_IQ4_XS)
        return r.words[4 * part + i % 4] >> shift;
    if (RUN_TYPE == TYPE_Q4_K)
        return r.words[i] >> 4 * part;
    if (RUN_TYPE == TYPE_Q5_K)
        return (r.words[i] >> 4 * part & 0x0f0f0f0fu) | r.words[8 + i] << 4 - part & 0x10101010u;
    return spread_nibbles(r.words[4 * part + i / 2] >> 16 * (i % 2));
}

#define RUN_MASK                                                                                   \
    (RUN_TYPE == TYPE_Q8_0                                                     ? 0xffu             \
     : RUN_TYPE == TYPE_Q5_0 || RUN_TYPE == TYPE_Q5_1 || RUN_TYPE == TYPE_Q5_K ? 0x1fu             \
                                                                               : 0xfu)

// The integers of a run in the halves of words: 0 and 2, 1 and 3.
uvec2 run_bytes(run r, uint part, uint i)
{
    uint x = run_integers(r, part, i);
    return uvec2(x, x >> 8) & (RUN_MASK << 16 | RUN_MASK);
}

// What is subtracted from the integers; of i4_g128 it is the block's.
#define RUN_BIAS                                                                                   \
    (RUN_TYPE == TYPE_Q8_0 ? 128.0 : RUN_TYPE == TYPE_Q4_0 ? 8.0 : RUN_TYPE == TYPE_Q5_0 ? 16.0 : 0.0)

// Values 32 * part + 4 * i and on.
vec4 run_values(run r, uint part, uint i)
{
    uint x = run_integers(r, part, i) & RUN_MASK * 0x01010101u;
    if (IS_F8(RUN_TYPE))
        return r.scale[part] * four_f8(run_integers(r, part, i), RUN_TYPE);
    if (RUN_TYPE == TYPE_NF4_G64)
        return r.scale[part] * four_nf4(x);
    if (RUN_TYPE == TYPE_NVFP4)
        return (i < 4 ? r.scale[part] : r.offset[part]) * four_e2m1(x);
    vec4 q = vec4(uvec4(x, x >> 8, x >> 16, x >> 24) & 0xffu);
    if (RUN_TYPE == TYPE_I4_G128)
        return r.scale[part] * (q - float(r.zero));
    if (IS_NONLINEAR(RUN_TYPE))
        return r.scale[part] * from_nonlinear(q - 8.0);
    // One rounding, as in lib/blocks.glsl: the products are exact.
    return fma(vec4(r.scale[part]), q, vec4(fma(-RUN_BIAS, r.scale[part], r.offset[part])));
}
