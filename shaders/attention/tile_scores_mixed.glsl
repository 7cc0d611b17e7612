// attention_tile with q and keys of float16: words of two elements are staged as they are, an
// instruction adds the products of both, and sums are scaled.
#include "lib/mixed_dot.glsl"

// Elements 4 d .. 4 d + 3 of those at `base` of a buffer of words; 0 past head_dim.
#define GATHER_HALVES(words, base, d)                                                              \
    {                                                                                              \
        for (uint i = 0; i < 4; i++)                                                               \
            if (4 * d + i < p.head_dim) {                                                          \
                uint at = base + 4 * d + i;                                                        \
                x[i >> 1] |= half_bits(words[at >> 1], at) << 16 * (i & 1);                        \
            }                                                                                      \
    }

#define READ_Q(row, d, s) load_q_halves(row, d, s)
#define LOAD_K(base, d) load_k_halves(base, d)
#define WHOLE_K(at) k_words2[at]
#define ADD_FOUR(q, k, sum) add_pair(q.y, k.y, add_pair(q.x, k.x, sum))

uvec2 load_q_halves(uint row, uint d, sequence s)
{
    uvec2 x = uvec2(0);
    uint base = q_index(row, s);
    GATHER_HALVES(q_words, base, d)
    return x;
}

uvec2 load_k_halves(uint base, uint d)
{
    uvec2 x = uvec2(0);
    if (K_VEC != 0) {
        if (4 * d < p.head_dim)
            x = k_words2[(base >> 2) + d];
        return x;
    }
    GATHER_HALVES(k_words, base, d)
    return x;
}

// What is subtracted from a score may not become one operation with the product.
void scale_scores()
{
    [[unroll]] for (uint r = 0; r < TR; r++) {
        precise vec4 scaled = p.scale * x[r];
        x[r] = scaled;
    }
}
