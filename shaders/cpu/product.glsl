// Shared by the kernels for packed B: place of a workgroup, bias, and storing a result. The
// includer has A_TYPE .. HIDDEN, p, c_words and bias_words.
#include "lib/relu.glsl"
#include "lib/sums.glsl"

uint product_z() { return gl_WorkGroupID.z / p.n_block; }
uint product_batch() { return product_z() / p.n_head; }
uint product_head() { return product_z() % p.n_head; }

// Grid: tiles of a block of rows along x, of columns along y, blocks and matrices along z. In that
// order the rows of a block stay in a cache while all of B is read.
uint product_first_row(uint rows)
{
    return (gl_WorkGroupID.z % p.n_block * gl_NumWorkGroups.x + gl_WorkGroupID.x) * rows;
}

uint product_a()
{
    return p.a_offset + product_batch() * p.a_batch + product_head() * p.a_head;
}

uint product_b()
{
    return p.b_offset + product_batch() * p.b_batch + product_head() / p.group * p.b_head +
           gl_WorkGroupID.y * p.b_row;
}

float relu(float x) { return RELU != 0 ? relu_of(x) : x; }

float product_bias(uint column)
{
    if (BIAS_TYPE == BIAS_NONE)
        return 0.0;
    return LOAD(bias_words, p.bias_offset + min(column, p.n - 1), BIAS_TYPE);
}

// `group`: sum of the group that the next pass continues.
void store_product(uint row, uint column, float x, float group, float bias)
{
    if (row >= p.m || column >= p.n)
        return;
    x *= p.alpha;
    if (BIAS_TYPE != BIAS_NONE)
        x += bias;
    uint index = p.c_offset + product_batch() * p.c_batch + product_head() * p.c_head +
                 row * p.c_row + column * p.c_col;
    STORE(c_words, index, C_TYPE, result_of(x, index));
    if ((SUMS & SUMS_KEEP) != 0)
        c_words[index + 1] = floatBitsToUint(group);
}
