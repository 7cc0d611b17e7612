// 16-bit elements two a word, of the type that coop_type.glsl names.

uint half_pair(float x, float y)
{
#ifdef BFLOAT16
    return bf16_from_float(x) | bf16_from_float(y) << 16;
#else
    return packFloat2x16(f16vec2(x, y));
#endif
}

// Elements e and e + 1 of those at `at` of a buffer of words, those past `count` as 0.
#define GATHER_HALF(words, at, count, e)                                                           \
    ((e) < (count) ? half_bits(words[(at) + (e) >> 1], (at) + (e)) << 16 * ((e)&1) : 0u)
#define GATHER_PAIR(words, at, count, e)                                                           \
    (GATHER_HALF(words, at, count, e) | GATHER_HALF(words, at, count, e + 1))

uint low_halves(uint a, uint b)
{
    return packFloat2x16(f16vec2(unpackFloat2x16(a).x, unpackFloat2x16(b).x));
}

uint high_halves(uint a, uint b)
{
    return packFloat2x16(f16vec2(unpackFloat2x16(a).y, unpackFloat2x16(b).y));
}

bool is_nonfinite(uint half_word) { return (half_word & HALF_INFINITY) == HALF_INFINITY; }

// Replaces NaN and Inf by 0 in both halves of a word.
uint finite(uint word)
{
    return (is_nonfinite(word & 0xffffu) ? 0u : word & 0xffffu) |
           (is_nonfinite(word >> 16) ? 0u : word & 0xffff0000u);
}
