// Sums of the pass before, where a matrix product is cut along k. The includer has matmul_params as
// `p`.

layout(constant_id = MATMUL_SUMS) const uint SUMS = 0;
layout(binding = 4) readonly buffer Sums { float sums[]; };

float earlier_sum(uint z, uint row, uint column)
{
    if (SUMS == 0 || row >= p.m || column >= p.n)
        return 0.0;
    return sums[p.sums_offset + z / p.n_head * p.sums_batch + z % p.n_head * p.sums_head +
                row * p.sums_row + column];
}
