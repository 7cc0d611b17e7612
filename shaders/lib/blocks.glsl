// Values of quantised types, four neighbours at a time: int8, and the block types of core/block.c,
// with its bits. Only values below 2^-126 may become 0, as devices may flush subnormals; and all values of
// an mxfp4 block whose exponent is 0 or 1, as its scale is such a number.

// Four int8.
vec4 signed_bytes(uint x)
{
    return vec4(ivec4(x << 24, x << 16, x << 8, x) >> 24);
}

// Four bytes, less `bias`.
vec4 unsigned_bytes(uint x, int bias)
{
    return vec4(ivec4(uvec4(x, x >> 8, x >> 16, x >> 24) & 0xffu) - bias);
}

// Four bits to the lowest bits of four bytes.
uint spread_bits(uint x) { return (x & 15u) * 0x00204081u & 0x01010101u; }

// Four numbers of 4 bits to four bytes.
uint spread_nibbles(uint x)
{
    return (x & 15u) | (x & 0xf0u) << 4 | (x & 0xf00u) << 8 | (x & 0xf000u) << 12;
}

// Twice a number of type e2m1, from the lowest 4 bits.
float from_e2m1(uint x)
{
    uint m = x & 7u;
    float magnitude = float(m < 4u ? m : (4u | (m & 1u) << 1) << (m / 2u - 2u));
    return (x & 8u) != 0u && m != 0u ? -magnitude : magnitude;
}

// Twice the numbers of type e2m1 in the lowest 4 bits of four bytes.
vec4 four_e2m1(uint x)
{
    return vec4(from_e2m1(x), from_e2m1(x >> 8), from_e2m1(x >> 16), from_e2m1(x >> 24));
}

// Half a number of type e4m3 without a sign, from the lowest 8 bits; 0x7f is 0.
float half_e4m3(uint x)
{
    uint m = x & 0x7fu;
    float scale = m < 8u ? float(m) * 0.0009765625 : uintBitsToFloat((m << 20) + 0x3b800000u);
    return (x & 0xffu) == 0x7fu ? 0.0 : scale;
}

// Four numbers of a type that IS_F8. Those with the exponent 0 are read as if they had the hidden bit of
// the exponent 0; twice that less the hidden bit of the exponent 1 is what they are, and is
// larger than what others are, so that no device sees a subnormal.
vec4 four_f8(uint word, uint type)
{
    const bool e5 = type == TYPE_F8_E5M2_G64;
    uvec4 bits = uvec4(word, word >> 8, word >> 16, word >> 24);
    uvec4 m = bits & 0x7fu;
    vec4 x = uintBitsToFloat((m << (e5 ? 21 : 20)) + (e5 ? 0x38000000u : 0x3c000000u));
    x = min(x, fma(x, vec4(2.0), vec4(e5 ? -6.103515625e-5 : -0.015625)));
    uvec4 found = floatBitsToUint(x);
    if (e5)
        found = mix(found, m << 21 | 0x7f800000u, greaterThanEqual(m, uvec4(0x7cu)));
    else
        found = mix(found, uvec4(0x7fc00000u), equal(m, uvec4(0x7fu)));
    return uintBitsToFloat(found | (bits & 0x80u) << 24);
}

// The value of nf4_g64 of the lowest 4 bits.
float from_nf4(uint q)
{
    const vec4 a = vec4(-1.0, -0.6961928, -0.52507305, -0.3949175);
    const vec4 b = vec4(-0.28444138, -0.18477343, -0.091050036, 0.0);
    const vec4 c = vec4(0.0795803, 0.1609302, 0.2461123, 0.33791524);
    const vec4 d = vec4(0.44070983, 0.562617, 0.72295684, 1.0);
    vec4 low = (q & 8u) != 0u ? c : a, high = (q & 8u) != 0u ? d : b;
    vec4 x = (q & 4u) != 0u ? high : low;
    vec2 y = (q & 2u) != 0u ? x.zw : x.xy;
    return (q & 1u) != 0u ? y.y : y.x;
}

// The values of nf4 in the lowest 4 bits of four bytes.
vec4 four_nf4(uint x)
{
    return vec4(from_nf4(x), from_nf4(x >> 8), from_nf4(x >> 16), from_nf4(x >> 24));
}

// The values of iq4_nl and iq4_xs, of integers of 4 bits less 8: a polynomial that is nowhere 0.49
// away from them, rounded.
vec4 from_nonlinear(vec4 q)
{
    vec4 x = fma(vec4(0.00107255), q, vec4(0.0817105));
    x = fma(fma(x, q, vec4(0.0188735)), q, vec4(11.42643));
    return floor(fma(x, q, vec4(1.5)));
}

// Digit n, the highest first, of numbers of base 3 in four bytes, as tq1_0 has them: byte * 3^n mod 256,
// of which 256 are 3.
uint four_digits(uint x, uint n)
{
    uint power = ((n & 1u) != 0u ? 3u : 1u) * ((n & 2u) != 0u ? 9u : 1u) * ((n & 4u) != 0u ? 81u : 1u);
    uvec2 q = (uvec2(x, x >> 8) & 0x00ff00ffu) * power & 0x00ff00ffu;
    q = q * 3u >> 8 & 0x00030003u;
    return q.x | q.y << 8;
}

// Entry i of the grid of a type that HAS_GRID, whose values have 4 bits each, of iq1 and iq2 two: see
// lib/grids.glsl.
uint grid_entry(uint i);

// Eight signs of which seven are stored: an even number of them.
uint even_signs(uint seven) { return seven | (uint(bitCount(seven)) & 1u) << 7; }

// The four values in the lowest bits of an entry; `signs` has a bit each, of iq1 one for all.
vec4 grid_values(uint entry, uint signs, uint type)
{
    uvec4 q = uvec4(entry, entry >> 2, entry >> 4, entry >> 6) & 3u;
    if (type == TYPE_IQ1_S || type == TYPE_IQ1_M) // in eighths
        return vec4(ivec4(8u * q) - ((signs & 1u) != 0u ? 9 : 7));
    q = 17u * q + 8u + (q >> 1);
    if (type == TYPE_IQ3_S || type == TYPE_IQ3_XXS) {
        q = uvec4(entry, entry >> 4, entry >> 8, entry >> 12) & 7u;
        q = type == TYPE_IQ3_S ? 2u * q + 1u : 8u * q + 4u + (q + 1u >> 2 & 2u);
    }
    uvec4 negative = uvec4(signs << 31, signs << 30, signs << 29, signs << 28) & 0x80000000u;
    return uintBitsToFloat(floatBitsToUint(vec4(q)) ^ negative);
}

// What is to be subtracted from name_bytes().
#define BYTES_BIAS(type)                                                                           \
    ((type) == TYPE_Q6_K ? 32 : (type) == TYPE_Q3_K ? 4 : IS_TERNARY(type) ? 1 : 0)

// Values of a row of the tensor that is read.
#ifndef ROW_VALUES
#define ROW_VALUES p.k
#endif

// Makes functions of values k .. k + 3, k a multiple of 4, of the row that begins at byte `line` of a
// buffer: vec4 name(line, k, type); and what it is made of, vec4 name_integers(), exact small
// numbers, and vec2 name_scale(), a scale and an offset that hold for 16 values from a multiple of
// 16 on. Values are integers * scale + offset, rounded once, as the products are exact, or have no
// offset to add. uint name_bytes() is the integers of HAS_BYTES without their bias.
#define QUANT_READER(name, words)                                                                  \
    /* Four bytes from any byte on; reads no word beyond them. */                                  \
    uint name##_word(uint at)                                                                      \
    {                                                                                              \
        uint shift = 8u * (at & 3u);                                                               \
        return words[at >> 2] >> shift | words[(at + 3u) >> 2] << 1 << (31u - shift);              \
    }                                                                                              \
    /* Four int8 of a row, which ends at any byte: behind its end they are any. */                 \
    uint name##_int8_word(uint line, uint k)                                                       \
    {                                                                                              \
        uint at = line + k, last = line + (ROW_VALUES - 1u), shift = 8u * (at & 3u);               \
        return words[at >> 2] >> shift | words[min(at + 3u, last) >> 2] << 1 << (31u - shift);     \
    }                                                                                              \
    uint name##_byte(uint at) { return words[at >> 2] >> 8u * (at & 3u) & 0xffu; }                 \
    uint name##_short(uint at) { return words[at >> 2] >> 8u * (at & 2u) & 0xffffu; }              \
    float name##_half(uint at) { return float_from_f16(name##_short(at)); }                        \
    vec2 name##_scale_sixes(uint at, uint i)                                                       \
    {                                                                                              \
        uint sub = i / 32u, six = at + 4u + sub % 4u, scale = name##_byte(six);                    \
        uint least = name##_byte(six + 4u), more = name##_byte(six + (sub < 4u ? 0u : 8u));        \
        scale = sub < 4u ? scale & 63u : (more & 15u) | scale >> 6 << 4;                           \
        least = sub < 4u ? least & 63u : more >> 4 | least >> 6 << 4;                              \
        return vec2(name##_half(at) * float(scale), -(name##_half(at + 2u) * float(least)));       \
    }                                                                                              \
    /* Twice the scale of 16 values and one, in a block at byte `at`. */                           \
    uint name##_scale_grid(uint at, uint i, uint type)                                             \
    {                                                                                              \
        uint sub = i / 32u;                                                                        \
        if (type == TYPE_IQ3_S)                                                                    \
            return name##_byte(at + 106u + sub / 2u) >> 4u * (sub % 2u) & 15u;                     \
        if (type == TYPE_IQ3_XXS)                                                                  \
            return name##_byte(at + 69u + 4u * sub) >> 4;                                          \
        if (type == TYPE_IQ2_XXS)                                                                  \
            return name##_byte(at + 9u + 8u * sub) >> 4;                                           \
        if (type == TYPE_IQ1_S)                                                                    \
            return name##_byte(at + 35u + 2u * sub) >> 4 & 7u;                                     \
        if (type == TYPE_IQ1_M)                                                                    \
            return name##_short(at + 48u + i / 64u * 2u) >> 3u * (i / 16u % 4u) & 7u;              \
        return name##_byte(at + (type == TYPE_IQ2_S ? 74u : 66u) + sub) >> 4u * (i / 16u % 2u) & 15u; \
    }                                                                                              \
    float name##_half_iq1_m(uint at)                                                               \
    {                                                                                              \
        uint low = name##_word(at + 48u), high = name##_word(at + 52u);                            \
        return float_from_f16((low >> 12 & 15u) | (low >> 24 & 0xf0u) | (high >> 4 & 0xf00u) |     \
                              (high >> 16 & 0xf000u));                                             \
    }                                                                                              \
    vec2 name##_scale(uint line, uint k, uint type)                                                \
    {                                                                                              \
        uint i = k % BLOCK_VALUES(type), at = line + k / BLOCK_VALUES(type) * BLOCK_BYTES(type);   \
        if (type == TYPE_I8)                                                                       \
            return vec2(1.0, 0.0);                                                                 \
        if (HAS_SIXES(type))                                                                       \
            return name##_scale_sixes(at, i);                                                      \
        if (type == TYPE_Q6_K) {                                                                   \
            int scale = bitfieldExtract(int(name##_byte(at + 192u + i / 16u)), 0, 8);              \
            return vec2(name##_half(at + 208u) * float(scale), 0.0);                               \
        }                                                                                          \
        if (type == TYPE_Q2_K) {                                                                   \
            vec2 d = vec2(name##_half(at + 80u), -name##_half(at + 82u));                          \
            uint scale = name##_byte(at + i / 16u);                                                \
            return d * vec2(scale & 15u, scale >> 4);                                              \
        }                                                                                          \
        if (type == TYPE_Q3_K) {                                                                   \
            uint sub = i / 16u, low = name##_byte(at + 96u + sub % 8u) >> sub / 8u * 4u & 15u;     \
            uint high = name##_byte(at + 104u + sub % 4u) >> sub / 4u * 2u & 3u;                   \
            return vec2(name##_half(at + 108u) * float(int(low | high << 4) - 32), 0.0);           \
        }                                                                                          \
        if (HAS_GRID(type)) {                                                                      \
            float d = type == TYPE_IQ1_M ? name##_half_iq1_m(at) : name##_half(at);                \
            d *= type == TYPE_IQ3_S ? 1.0 : type == TYPE_IQ3_XXS ? 0.25 : 0.125;                   \
            return vec2(d * float(2u * name##_scale_grid(at, i, type) + 1u), 0.0);                 \
        }                                                                                          \
        if (type == TYPE_MXFP4) {                                                                  \
            uint e = name##_byte(at);                                                              \
            return vec2(uintBitsToFloat(e < 2u ? 0x200000u << e : (e - 1u) << 23), 0.0);           \
        }                                                                                          \
        if (HAS_FLOATS(type))                                                                      \
            return vec2(uintBitsToFloat(words[at >> 2]), 0.0);                                     \
        if (type == TYPE_NVFP4)                                                                    \
            return vec2(half_e4m3(words[at >> 2] >> i / 16u * 8u), 0.0);                           \
        if (type == TYPE_IQ4_XS) {                                                                 \
            uint sub = i / 32u, low = words[(at + 4u) >> 2] >> 4u * sub & 15u;                     \
            uint high = words[at >> 2] >> 16u + 2u * sub & 3u;                                     \
            return vec2(name##_half(at) * float(int(low | high << 4) - 32), 0.0);                  \
        }                                                                                          \
        uint first = type == TYPE_I4_G128 || type == TYPE_TQ2_0 ? 64u : 0u;                        \
        float scale = name##_half(at + (type == TYPE_TQ1_0 ? 52u : first));                        \
        return vec2(scale, HAS_OFFSET(type) ? name##_half(at + 2u) : 0.0);                         \
    }                                                                                              \
    uint name##_bytes(uint line, uint k, uint type)                                                \
    {                                                                                              \
        uint i = k % 256u, at = line + k / 256u * BLOCK_BYTES(type);                               \
        uint side = i / 128u, sub = i / 32u % 4u, e = i % 32u;                                     \
        if (type == TYPE_Q6_K) {                                                                   \
            uint low = name##_word(at + 64u * side + 32u * (sub % 2u) + e) >> sub / 2u * 4u;       \
            uint high = name##_word(at + 128u + 32u * side + e) >> 2u * sub;                       \
            return (low & 0x0f0f0f0fu) | (high & 0x03030303u) << 4;                                \
        }                                                                                          \
        if (type == TYPE_TQ1_0) {                                                                  \
            uint digit = i < 240u ? i / 16u - 10u : i / 4u - 60u;                                  \
            uint more = i < 240u ? 32u + i % 16u : 48u;                                            \
            uint digits = name##_word(at + (i < 160u ? e : more));                                 \
            return four_digits(digits, i < 160u ? i / 32u : digit);                                \
        }                                                                                          \
        uint first = type == TYPE_Q2_K ? 16u : type == TYPE_Q3_K ? 32u : 0u;                       \
        uint low = name##_word(at + first + 32u * side + e) >> 2u * sub & 0x03030303u;             \
        if (type != TYPE_Q3_K)                                                                     \
            return low;                                                                            \
        return low | (name##_word(at + e) >> i / 32u & 0x01010101u) << 2;                          \
    }                                                                                              \
    /* Values i .. i + 3, without the scale. */                                                    \
    vec4 name##_integers_grid(uint at, uint i, uint type)                                          \
    {                                                                                              \
        uint sub = i / 32u, eight = i / 8u, bits = 0u, number = 0u, signs;                         \
        if (type == TYPE_IQ3_S || type == TYPE_IQ3_XXS)                                            \
            number = name##_byte(at + 2u + i / 4u);                                                \
        else if (type == TYPE_IQ2_XXS)                                                             \
            number = name##_byte(at + 2u + 8u * sub + eight % 4u);                                 \
        else if (type != TYPE_IQ2_XS)                                                              \
            number = name##_byte(at + (type == TYPE_IQ1_M ? 0u : 2u) + eight);                     \
        if (type == TYPE_IQ3_S) {                                                                  \
            number |= (name##_byte(at + 66u + sub) >> i / 4u % 8u & 1u) << 8;                      \
            signs = name##_byte(at + 74u + eight);                                                 \
        } else if (type == TYPE_IQ2_S) {                                                           \
            number |= (name##_byte(at + 66u + sub) >> 2u * (eight % 4u) & 3u) << 8;                \
            signs = name##_byte(at + 34u + eight);                                                 \
        } else if (type == TYPE_IQ2_XS) {                                                          \
            bits = name##_short(at + 2u + 2u * eight);                                             \
            number = bits & 511u;                                                                  \
            signs = even_signs(bits >> 9);                                                         \
        } else if (type == TYPE_IQ1_S) {                                                           \
            bits = name##_short(at + 34u + 2u * sub);                                              \
            number |= (bits >> 3u * (eight % 4u) & 7u) << 8;                                       \
            signs = bits >> 15;                                                                    \
        } else if (type == TYPE_IQ1_M) {                                                           \
            bits = name##_byte(at + 32u + i / 16u) >> 4u * (eight % 2u);                           \
            number |= (bits & 7u) << 8;                                                            \
            signs = bits >> 3;                                                                     \
        } else {                                                                                   \
            bits = name##_word(at + (type == TYPE_IQ3_XXS ? 66u + 4u * sub : 6u + 8u * sub));      \
            signs = even_signs(bits >> 7u * (eight % 4u) & 127u);                                  \
        }                                                                                          \
        if (type == TYPE_IQ3_S || type == TYPE_IQ3_XXS)                                            \
            return grid_values(grid_entry(number), signs >> (i & 4u), type);                       \
        uint half_way = type == TYPE_IQ1_S || type == TYPE_IQ1_M ? 0u : i & 4u;                    \
        return grid_values(grid_entry(number) >> 2u * (i & 4u), signs >> half_way, type);          \
    }                                                                                              \
    vec4 name##_integers(uint line, uint k, uint type)                                             \
    {                                                                                              \
        uint i = k % BLOCK_VALUES(type), at = line + k / BLOCK_VALUES(type) * BLOCK_BYTES(type);   \
        if (type == TYPE_I8)                                                                       \
            return signed_bytes(name##_int8_word(line, k));                                        \
        if (HAS_GRID(type))                                                                        \
            return name##_integers_grid(at, i, type);                                              \
        if (type == TYPE_Q8_0)                                                                     \
            return signed_bytes(name##_word(at + 2u + i));                                         \
        if (HAS_BYTES(type))                                                                       \
            return unsigned_bytes(name##_bytes(line, k, type), BYTES_BIAS(type));                  \
        if (type == TYPE_I4_G128) {                                                                \
            uint q = words[(at + i / 2u) >> 2] >> 4u * (i % 8u);                                   \
            return unsigned_bytes(spread_nibbles(q), int(words[(at + 64u) >> 2] >> 16));           \
        }                                                                                          \
        if (HAS_SIXES(type)) {                                                                     \
            uint first = at + (type == TYPE_Q4_K ? 16u : 48u), high = 0u;                          \
            uint low = words[(first + i / 64u * 32u + i % 32u) >> 2] >> 4u * (i / 32u % 2u);       \
            if (type == TYPE_Q5_K)                                                                 \
                high = words[(at + 16u + i % 32u) >> 2] >> i / 32u & 0x01010101u;                  \
            return unsigned_bytes((low & 0x0f0f0f0fu) | high << 4, 0);                             \
        }                                                                                          \
        if (IS_F8(type))                                                                           \
            return four_f8(words[(at + 4u + i) >> 2], type);                                       \
        if (type == TYPE_NVFP4 || type == TYPE_NF4_G64) {                                          \
            uint q = words[(at + 4u + i / 16u * 8u + i % 8u) >> 2] >> i / 8u % 2u * 4u;            \
            return type == TYPE_NVFP4 ? four_e2m1(q) : four_nf4(q);                                \
        }                                                                                          \
        uint shift = i / 16u % 2u * 4u;                                                            \
        if (type == TYPE_Q4_1)                                                                     \
            return unsigned_bytes(words[(at + 4u + i % 16u) >> 2] >> shift & 0x0f0f0f0fu, 0);      \
        uint first = type == TYPE_IQ4_XS ? 8u + i / 32u * 16u : 2u;                                \
        if (type == TYPE_MXFP4)                                                                    \
            first = 1u;                                                                            \
        if (type == TYPE_Q5_0 || type == TYPE_Q5_1)                                                \
            first = type == TYPE_Q5_0 ? 6u : 8u;                                                   \
        uint q = name##_word(at + first + i % 16u) >> shift;                                       \
        if (type == TYPE_MXFP4)                                                                    \
            return four_e2m1(q);                                                                   \
        if (type == TYPE_Q4_0)                                                                     \
            return unsigned_bytes(q & 0x0f0f0f0fu, 8);                                             \
        if (IS_NONLINEAR(type))                                                                    \
            return from_nonlinear(unsigned_bytes(q & 0x0f0f0f0fu, 8));                             \
        uint fifth = spread_bits(name##_word(at + first - 4u) >> i) << 4;                          \
        return unsigned_bytes((q & 0x0f0f0f0fu) | fifth, type == TYPE_Q5_0 ? 16 : 0);              \
    }                                                                                              \
    vec4 name(uint line, uint k, uint type)                                                        \
    {                                                                                              \
        vec2 scale = name##_scale(line, k, type);                                                  \
        vec4 q = name##_integers(line, k, type);                                                   \
        return HAS_OFFSET(type) ? fma(vec4(scale.x), q, vec4(scale.y)) : scale.x * q;              \
    }

// x, rounded to a float type.
vec4 rounded_to(vec4 x, uint type)
{
    if (type == TYPE_F32)
        return x;
    uvec4 bits;
    for (uint i = 0; i < 4; i++)
        bits[i] = type == TYPE_F16 ? f16_from_float(x[i]) : bf16_from_float(x[i]);
    return decode4(uvec2(bits.x | bits.y << 16, bits.z | bits.w << 16), type);
}
