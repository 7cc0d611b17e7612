// Values of quantised types, four neighbours at a time: int8, and the block types of core/block.c,
// with its bits. Only values below 2^-126 may become 0, as devices may flush subnormals.

#define IS_QUANT(type) ((type) >= TYPE_I8)

// Four int8.
vec4 signed_bytes(uint x)
{
    return vec4(bitfieldExtract(int(x), 0, 8), bitfieldExtract(int(x), 8, 8),
                bitfieldExtract(int(x), 16, 8), int(x) >> 24);
}

// Four bytes, less `bias`.
vec4 unsigned_bytes(uint x, int bias)
{
    return vec4(ivec4(uvec4(x, x >> 8, x >> 16, x >> 24) & 0xffu) - bias);
}

// Four bits to the lowest bits of four bytes.
uint spread_bits(uint x) { return (x & 1u) | (x & 2u) << 7 | (x & 4u) << 14 | (x & 8u) << 21; }

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

// Makes vec4 name(line, k, type): values k .. k + 3, k a multiple of 4, of the row that begins at
// byte `line` of a buffer.
#define QUANT_READER(name, words)                                                                  \
    /* Four bytes from any byte on; reads no word beyond them. */                                  \
    uint name##_word(uint at)                                                                      \
    {                                                                                              \
        uint shift = 8u * (at & 3u);                                                               \
        return words[at >> 2] >> shift | words[(at + 3u) >> 2] << 1 << (31u - shift);              \
    }                                                                                              \
    uint name##_byte(uint at) { return words[at >> 2] >> 8u * (at & 3u) & 0xffu; }                 \
    float name##_half(uint at)                                                                     \
    {                                                                                              \
        return float_from_f16(words[at >> 2] >> 8u * (at & 2u) & 0xffffu);                         \
    }                                                                                              \
    vec4 name##_q4_k(uint at, uint i)                                                              \
    {                                                                                              \
        uint part = i / 32u, six = at + 4u + part % 4u, scale = name##_byte(six);                  \
        uint least = name##_byte(six + 4u), more = name##_byte(six + (part < 4u ? 0u : 8u));       \
        scale = part < 4u ? scale & 63u : (more & 15u) | scale >> 6 << 4;                          \
        least = part < 4u ? least & 63u : more >> 4 | least >> 6 << 4;                             \
        uint q = words[(at + 16u + i / 64u * 32u + i % 32u) >> 2] >> 4u * (part % 2u);             \
        return name##_half(at) * float(scale) * unsigned_bytes(q & 0x0f0f0f0fu, 0) -               \
               name##_half(at + 2u) * float(least);                                                \
    }                                                                                              \
    vec4 name##_q6_k(uint at, uint i)                                                              \
    {                                                                                              \
        uint side = i / 128u, part = i / 32u % 4u;                                                 \
        uint low = name##_word(at + 64u * side + 32u * (part % 2u) + i % 32u) >> part / 2u * 4u;   \
        uint high = name##_word(at + 128u + 32u * side + i % 32u) >> 2u * part;                    \
        uint q = (low & 0x0f0f0f0fu) | (high & 0x03030303u) << 4;                                  \
        int scale = bitfieldExtract(int(name##_byte(at + 192u + i / 16u)), 0, 8);                  \
        return name##_half(at + 208u) * float(scale) * unsigned_bytes(q, 32);                      \
    }                                                                                              \
    vec4 name##_mxfp4(uint at, uint i)                                                             \
    {                                                                                              \
        uint e = name##_byte(at), q = name##_word(at + 1u + i % 16u) >> i / 16u * 4u;              \
        float half_unit = uintBitsToFloat(e < 2u ? 0x200000u << e : (e - 1u) << 23);               \
        return half_unit * vec4(from_e2m1(q), from_e2m1(q >> 8), from_e2m1(q >> 16),               \
                                from_e2m1(q >> 24));                                               \
    }                                                                                              \
    vec4 name##_q5_0(uint at, uint i)                                                              \
    {                                                                                              \
        uint q = name##_word(at + 6u + i % 16u) >> i / 16u * 4u & 0x0f0f0f0fu;                     \
        q |= spread_bits(name##_word(at + 2u) >> i) << 4;                                          \
        return name##_half(at) * unsigned_bytes(q, 16);                                            \
    }                                                                                              \
    vec4 name(uint line, uint k, uint type)                                                        \
    {                                                                                              \
        uint i = k % BLOCK_VALUES(type), at = line + k / BLOCK_VALUES(type) * BLOCK_BYTES(type);   \
        if (type == TYPE_I8)                                                                       \
            return signed_bytes(name##_word(at));                                                  \
        if (type == TYPE_Q8_0)                                                                     \
            return name##_half(at) * signed_bytes(name##_word(at + 2u + i));                       \
        uint shift = i / 16u * 4u;                                                                 \
        if (type == TYPE_Q4_0)                                                                     \
            return name##_half(at) *                                                               \
                   unsigned_bytes(name##_word(at + 2u + i % 16u) >> shift & 0x0f0f0f0fu, 8);       \
        if (type == TYPE_Q4_1)                                                                     \
            return name##_half(at) * unsigned_bytes(words[(at + 4u + i % 16u) >> 2] >> shift &     \
                                                        0x0f0f0f0fu,                               \
                                                    0) +                                           \
                   name##_half(at + 2u);                                                           \
        if (type == TYPE_Q5_0)                                                                     \
            return name##_q5_0(at, i);                                                             \
        if (type == TYPE_Q4_K)                                                                     \
            return name##_q4_k(at, i);                                                             \
        if (type == TYPE_Q6_K)                                                                     \
            return name##_q6_k(at, i);                                                             \
        if (type == TYPE_MXFP4)                                                                    \
            return name##_mxfp4(at, i);                                                            \
        uint zero = words[(at + 64u) >> 2] >> 16;                                                  \
        uint q = words[(at + i / 2u) >> 2] >> 4u * (i % 8u);                                       \
        return name##_half(at + 64u) * unsigned_bytes(spread_nibbles(q), int(zero));               \
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
