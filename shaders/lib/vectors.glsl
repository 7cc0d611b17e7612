// Reads of 16 bytes along k from matrices of float32 or 16-bit elements.

#include "lib/blocks.glsl"

// Elements; quantised ones are decoded to float32 when they are read.
#define VECTOR(type) ((type) == TYPE_F32 || IS_QUANT(type) ? 4u : 8u)

// Makes uvec4 name(whole, index, step, count, type): elements `index`, `index` + `step`, ... of a
// buffer, 0 beyond `count`. Where `whole` is not 0, they are an aligned vector.
#define VECTOR_LOADER(name, words, vectors)                                                        \
    uvec4 name(uint whole, uint index, uint step, uint count, uint type)                           \
    {                                                                                              \
        if (whole != 0)                                                                            \
            return vectors[index / VECTOR(type)];                                                  \
        uvec4 x = uvec4(0);                                                                        \
        [[unroll]] for (uint i = 0; i < 8; i++, index += step) {                                   \
            if (i >= VECTOR(type) || i >= count)                                                   \
                continue;                                                                          \
            uint word = words[word_index(index, type)];                                            \
            if (type == TYPE_F32)                                                                  \
                x[i & 3] = word;                                                                   \
            else                                                                                   \
                x[i >> 1] |= half_bits(word, index) << (16 * (i & 1));                             \
        }                                                                                          \
        return x;                                                                                  \
    }

// x, the float16 of a word as the device converts them, with subnormals as they are.
vec2 with_subnormals(uint word, vec2 x)
{
    uvec2 h = uvec2(word & 0xffffu, word >> 16);
    vec2 small = vec2(h & 0x3ffu) * 5.9604644775390625e-8; // 2^-24
    small = uintBitsToFloat(floatBitsToUint(small) | (h & 0x8000u) << 16);
    return mix(x, small, equal(h & 0x7c00u, uvec2(0)));
}

// The elements of a vector; float32 has no high half. Devices convert float16 themselves but may
// flush subnormals: few elements are any, or 0.
void decode_vector(uvec4 x, uint type, out vec4 low, out vec4 high)
{
    low = uintBitsToFloat(x);
    high = vec4(0.0);
    if (type == TYPE_BF16) {
        low = decode4(x.xy, type);
        high = decode4(x.zw, type);
    }
    if (type != TYPE_F16)
        return;
    low = vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y));
    high = vec4(unpackHalf2x16(x.z), unpackHalf2x16(x.w));
    uvec4 normal = (x & 0x7fff7fffu) + 0x7c007c00u; // from 2^-14 on, bit 15 of a half is set
    if ((normal.x & normal.y & normal.z & normal.w & 0x80008000u) != 0x80008000u) {
        low = vec4(with_subnormals(x.x, low.xy), with_subnormals(x.y, low.zw));
        high = vec4(with_subnormals(x.z, high.xy), with_subnormals(x.w, high.zw));
    }
}
