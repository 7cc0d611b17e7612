// Elements of any type in buffers of 32-bit words, so that no device needs 16-bit storage.
// Conversions are integer arithmetic, but that an addition rounds to subnormal float16, to nearest as
// everywhere here: the same bits on every driver, subnormals included. With
// UNPACK_HALF those from float16 are the device's own, which are exact too but where a driver takes
// subnormals for 0.

float float_from_f16(uint h)
{
#ifdef UNPACK_HALF
    return unpackHalf2x16(h).x;
#else
    uint magnitude = h & 0x7fffu;
    uint bits = magnitude >= 0x7c00u ? 0x7f800000u | (magnitude << 13) // Inf, NaN
                                     : (magnitude << 13) + 0x38000000u;
    if (magnitude < 0x400u) // subnormal: value is magnitude * 2^-24
        bits = floatBitsToUint(float(magnitude) * 5.9604644775390625e-8);
    return uintBitsToFloat(bits | (h & 0x8000u) << 16);
#endif
}

// To nearest, ties to even. Without a branch: drivers compile it once for each element stored.
uint f16_from_float(float x)
{
    uint bits = floatBitsToUint(x), magnitude = bits & 0x7fffffffu;
    uint h = min((magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13, 0x7c00u);
    precise float moved = uintBitsToFloat(magnitude) + 0.5; // its last bit is 2^-24
    h = magnitude < 0x38800000u ? floatBitsToUint(moved) - 0x3f000000u : h; // below 2^-14: subnormal
    h = magnitude > 0x7f800000u ? 0x7e00u : h;
    return bits >> 16 & 0x8000u | h;
}

uint bf16_from_float(float x)
{
    uint bits = floatBitsToUint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return bits >> 16 | 0x40u;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

uint word_index(uint index, uint type)
{
    return type == TYPE_F32 || type == TYPE_I32    ? index
           : type == TYPE_BOOL || type == TYPE_Q8_0 || IS_HEAD_SCALED(type) ? index >> 2
           : type == TYPE_Q4_0                      ? index >> 3
                                                    : index >> 1;
}

// The number in the lowest byte.
float float_from_f8(uint byte)
{
    uint magnitude = byte & 0x7fu;
    float x = magnitude < 8u ? float(magnitude) * 0.001953125 // subnormal: in moved of 2^-9
                             : uintBitsToFloat((magnitude << 20) + 0x3c000000u);
    uint bits = magnitude == 0x7fu ? 0x7fc00000u : floatBitsToUint(x);
    return uintBitsToFloat(bits | (byte & 0x80u) << 24);
}

// To nearest, ties to even, saturating; NaN stays NaN.
uint f8_from_float(float x)
{
    uint bits = floatBitsToUint(x), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return 0x7fu;
    if (magnitude >= 0x43e00000u) // 448
        return sign | 0x7eu;
    if (magnitude < 0x3c800000u) { // below 2^-6: subnormal
        uint shift = 141u - (magnitude >> 23); // right shift that leaves moved of 2^-9
        if (shift > 24u)
            return sign;
        uint mantissa = (magnitude & 0x7fffffu) | 0x800000u;
        return sign | (mantissa + (1u << shift - 1u) - 1u + (mantissa >> shift & 1u)) >> shift;
    }
    return sign | (magnitude + 0x7ffffu + (magnitude >> 20 & 1u) - 0x3c000000u) >> 20;
}

// Value i of a word of a cache of scaled rows, see CACHE_BLOCK, without the scale.
float stored_value(uint word, uint i, uint type)
{
    if (type == TYPE_F8_E4M3)
        return float_from_f8(word >> 8 * i);
    return type == TYPE_Q8_0 ? float(bitfieldExtract(int(word), int(8 * i), 8))
                             : float(word >> 4 * i & 15u) - 8.0;
}

// Bits of the 16-bit element at `index`, from the word that holds it.
uint half_bits(uint word, uint index)
{
    return word >> (16u * (index & 1u)) & 0xffffu;
}

// Element at `index`, from the word that holds it.
float decode(uint word, uint index, uint type)
{
    if (type == TYPE_F32)
        return uintBitsToFloat(word);
    uint h = half_bits(word, index);
    return type == TYPE_F16 ? float_from_f16(h) : uintBitsToFloat(h << 16);
}

// Four 16-bit elements in two words.
vec4 decode4(uvec2 words, uint type)
{
    if (type == TYPE_BF16)
        return uintBitsToFloat(uvec4(words.x << 16, words.x & 0xffff0000u, words.y << 16,
                                     words.y & 0xffff0000u));
#ifdef UNPACK_HALF
    return vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y));
#else
    return vec4(float_from_f16(words.x & 0xffffu), float_from_f16(words.x >> 16),
                float_from_f16(words.y & 0xffffu), float_from_f16(words.y >> 16));
#endif
}

// buffer_words is the uint array of a buffer; index counts elements.
#define LOAD(buffer_words, index, type) decode(buffer_words[word_index(index, type)], index, type)

// Changes only the element's own bits: another invocation may write the other half of the word.
#define STORE(buffer_words, index, type, x)                                                        \
    {                                                                                              \
        if (type == TYPE_F32) {                                                                    \
            buffer_words[index] = floatBitsToUint(x);                                              \
        } else {                                                                                   \
            uint store_shift = 16u * ((index) & 1u);                                               \
            uint store_half = type == TYPE_F16 ? f16_from_float(x) : bf16_from_float(x);           \
            atomicAnd(buffer_words[(index) >> 1], ~(0xffffu << store_shift));                      \
            atomicOr(buffer_words[(index) >> 1], store_half << store_shift);                       \
        }                                                                                          \
    }

// Two 16-bit elements in a word.
uint pair_word(vec2 x, uint type)
{
    return type == TYPE_F16 ? f16_from_float(x.x) | f16_from_float(x.y) << 16
                            : bf16_from_float(x.x) | bf16_from_float(x.y) << 16;
}

// Stores two at `index` and index + step: 16-bit elements without an atomic, where they are a word.
#define STORE_PAIR(buffer_words, index, step, type, two)                                           \
    {                                                                                              \
        if (type != TYPE_F32 && step == 1u && ((index) & 1u) == 0u) {                              \
            buffer_words[(index) >> 1] = pair_word(two, type);                                     \
        } else {                                                                                   \
            STORE(buffer_words, index, type, (two).x)                                              \
            STORE(buffer_words, (index) + (step), type, (two).y)                                   \
        }                                                                                          \
    }

bool is_nan(float x)
{
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u;
}

// Replaces any NaN by one bit pattern: which NaN a sum keeps depends on the order of its operands,
// which the compiler chooses for each variant of a kernel.
float one_nan(float x)
{
    return is_nan(x) ? uintBitsToFloat(0x7fc00000u) : x;
}
