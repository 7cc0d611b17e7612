// matmul_tile with float16 inputs, of which none is hidden: words of two elements along k are staged as
// they are, and an instruction adds the products of both.
#include "lib/mixed_dot.glsl"

uint relu_pair(uint x) { return RELU != 0 ? relu_of_pair(x) : x; }

void stage_vectors()
{
    [[unroll]] for (uint i = 0; A_VEC != 0 && i < A_LOADS; i++) {
        uint vector = i * THREADS + gl_LocalInvocationIndex;
        uint at = vector % A_ROW_VECTORS * 4 * A_PITCH + vector / A_ROW_VECTORS;
        if (A_VECTORS % THREADS != 0 && vector >= A_VECTORS)
            continue;
        [[unroll]] for (uint e = 0; e < 4; e++)
            a_tile[at + e * A_PITCH] = relu_pair(a_next[i][e]);
    }
    [[unroll]] for (uint i = 0; B_VEC != 0 && i < B_LOADS; i++) {
        uint vector = i * THREADS + gl_LocalInvocationIndex;
        uint at = vector % B_ROW_VECTORS * 4 * B_PITCH + vector / B_ROW_VECTORS;
        if (B_VECTORS % THREADS != 0 && vector >= B_VECTORS)
            continue;
        [[unroll]] for (uint e = 0; e < 4; e++)
            b_tile[at + e * B_PITCH] = b_next[i][e];
    }
}

// Row and pair of k of element e of a tile of `rows` rows, in the order of tile_element().
uvec2 tile_pair(uint e, uint rows, bool k_first)
{
    return k_first ? uvec2(e / STAGED_DEPTH, e % STAGED_DEPTH) : uvec2(e % rows, e / rows);
}

// Stages what is not vectors. Behind the end of k an element is 0.
void stage_elements(uint a_base, uint b_base, uvec2 first, uint k0)
{
    for (uint e = gl_LocalInvocationIndex; A_VEC == 0 && e < BM * STAGED_DEPTH; e += THREADS) {
        uvec2 at = tile_pair(e, BM, p.a_col == 1);
        uint row = first.x + at.x, k = k0 + 2 * at.y, x = 0;
        uint index = a_base + row * p.a_row + k * p.a_col;
        if (row < p.m && k < p.k)
            x = half_bits(a_words[index >> 1], index);
        index += p.a_col;
        if (row < p.m && k + 1 < p.k)
            x |= half_bits(a_words[index >> 1], index) << 16;
        a_tile[at.y * A_PITCH + at.x] = relu_pair(x);
    }
    for (uint e = gl_LocalInvocationIndex; B_VEC == 0 && e < BN * STAGED_DEPTH; e += THREADS) {
        uvec2 at = tile_pair(e, BN, p.b_col == 1);
        uint column = first.y + at.x, k = k0 + 2 * at.y, x = 0;
        uint index = b_base + column * p.b_row + k * p.b_col;
        if (column < p.n && k < p.k)
            x = half_bits(b_words[index >> 1], index);
        index += p.b_col;
        if (column < p.n && k + 1 < p.k)
            x |= half_bits(b_words[index >> 1], index) << 16;
        b_tile[at.y * B_PITCH + at.x] = x;
    }
}

// Adds the products with one pair of k of the slices that are staged.
void add_products(uvec2 local, uint pair)
{
    uint b[TN];
    [[unroll]] for (uint j = 0; j < TN; j++)
        b[j] = b_tile[pair * B_PITCH + place_of(local.y, j, B_EACH)];
    [[unroll]] for (uint i = 0; i < TM; i++) {
        uint a = a_tile[pair * A_PITCH + place_of(local.x, i, A_EACH)];
        [[unroll]] for (uint j = 0; j < TN; j++)
            acc[i * TN + j] = add_pair(a, b[j], acc[i * TN + j]);
    }
}
