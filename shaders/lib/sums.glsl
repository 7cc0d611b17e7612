// Sums of a matrix product over blocks and groups of k, see MATMUL_BLOCK, and those that a pass has
// from the pass before where the product is cut along k. The includer has matmul_params as `p`, c_words and C_TYPE.
//
// A pass begins with a group, or continues one and ends with it or before. So blocks are counted
// from the first k of the pass.

layout(constant_id = MATMUL_SUMS) const uint SUMS = 0;
layout(binding = 4) readonly buffer Sums { float sums[]; };

uint sums_index(uint z, uint row, uint column, uint column_step)
{
    return p.sums_offset + z / p.n_head * p.sums_batch + z % p.n_head * p.sums_head +
           row * p.sums_row + column * column_step;
}

// For kernels that keep one sum.
float earlier_sum(uint z, uint row, uint column)
{
    if ((SUMS & SUMS_LOAD) == 0 || row >= p.m || column >= p.n)
        return 0.0;
    return sums[sums_index(z, row, column, 1)];
}

// Sums of the groups, and of the blocks of the last one.
vec2 earlier_sums(uint z, uint row, uint column)
{
    if ((SUMS & SUMS_LOAD) == 0 || row >= p.m || column >= p.n)
        return vec2(0.0);
    uint at = sums_index(z, row, column, 2);
    return vec2(sums[at], sums[at + 1]);
}

// Adds x to a sum, and to `lost` what rounding took from it.
void add_exactly(inout float sum, inout float lost, float x)
{
    precise float now = sum + x, added = now - sum;
    precise float error = (sum - (now - added)) + (x - added);
    sum = now;
    lost += error;
}

// sum + scale * x; two with one scale are never made one, as compilers may without `precise`, which
// old ones lose of fma().
float add_scaled(float scale, float x, float sum)
{
    precise float added = scale * x, now = sum + added;
    return now;
}

// What is stored of a result x at `index` of C. The addition rounds by itself, so that the bits are
// those of a product that is stored as float32 and added by another kernel.
float result_of(float x, uint index)
{
    precise float sum = one_nan(x);
    if ((SUMS & SUMS_ADD) != 0)
        sum = one_nan(sum + LOAD(c_words, index, C_TYPE));
    return sum;
}

// Whether the block that ends at `k` ends a group that another follows.
bool ends_group(uint k) { return (SUMS & SUMS_GROUPS) != 0 && k % MATMUL_GROUP == 0; }
