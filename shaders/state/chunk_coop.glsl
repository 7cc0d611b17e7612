// What both kernels of chunks on matrix units share: sizes, matrices, pairs of float16 values, and where
// linear_weights_coop leaves what. See LINEAR_M.

layout(constant_id = LINEAR_M) const uint SIZE_M = 16; // C is a multiple of each
layout(constant_id = LINEAR_N) const uint SIZE_N = 16;
layout(constant_id = LINEAR_K) const uint SIZE_K = 16;

#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, SIZE_M, SIZE_N, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, SIZE_M, SIZE_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, SIZE_K, SIZE_N, gl_MatrixUseB>

const uint D = 4 * FOURS;         // features, padded to a multiple of C
const uint D8 = D / 8, C8 = C / 8; // vectors of them, and of tokens

// In vectors: A and T [high, low][i][8 j], rows [token][8 features], turned keys [feature][8 tokens].
const uint MATRIX = C * C8, ROWS8 = C * D8;
const uint WEIGHTS_A_PAIRS = 0, WEIGHTS_T_PAIRS = 2 * MATRIX;
const uint WEIGHTS_Q_ROWS = 4 * MATRIX, WEIGHTS_K_ROWS = WEIGHTS_Q_ROWS + ROWS8;
const uint WEIGHTS_TURNED = WEIGHTS_K_ROWS + ROWS8, WEIGHTS_LISTS = WEIGHTS_TURNED + ROWS8;
const uint EACH = LINEAR_COOP_WEIGHTS(FOURS);

// Behind them lists of a float for each token: what sums of the state with a row of keys, and with one of
// queries, are multiplied by; sums with a row of A, and of T; what is written by a key; the step. Then the
// code of the decay of the chunk.
const uint LIST_K = 0, LIST_Q = 1, LIST_A = 2, LIST_T = 3, LIST_WRITTEN = 4, LIST_STEP = 5;

// The power of two by which numbers are multiplied, of which these are the bits of the greatest, so that
// they become less than 2^15; by which products are then multiplied. That of NaN is one, too.
float reduced_by(uint bits)
{
    return uintBitsToFloat(127 + 127 + 14 - clamp(bits >> 23, 15u, 254u) << 23);
}

float grown_by(uint bits) { return uintBitsToFloat(clamp(bits >> 23, 15u, 254u) - 14 << 23); }

uint bits_of(float x) { return floatBitsToUint(x) & 0x7fffffffu; }

// Two numbers, by a power of two, as a sum of two pairs of float16. The high ones are cut, not rounded: some
// compilers take a number that went through float16 for what it was before.
uint high_pair(vec2 x, float by, out uint low)
{
    vec2 high = uintBitsToFloat(floatBitsToUint(x * by) & 0xffffe000u);
    low = packFloat2x16(f16vec2(fma(x, vec2(by), -high)));
    return packFloat2x16(f16vec2(high));
}

uvec4 high_vector(vec4 x, vec4 y, float by, out uvec4 low)
{
    uvec4 high;
    high.x = high_pair(x.xy, by, low.x);
    high.y = high_pair(x.zw, by, low.y);
    high.z = high_pair(y.xy, by, low.z);
    high.w = high_pair(y.zw, by, low.w);
    return high;
}
