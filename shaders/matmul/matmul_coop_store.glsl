// How matmul_coop stores its sums, and takes those of an earlier span of k: matrices of float32 in
// results[], which lanes read by 16 bytes or more where C lies so.
// What is stored of a sum at `index` of C.
float finished(float sum, uint column, uint index)
{
    precise float x = sum * p.alpha; // the bias is added by itself, as the other kernels add it
    if ((SUMS & SUMS_SCALE) != 0)
        x *= column_scale(column);
    if (BIAS_TYPE != BIAS_NONE)
        x += LOAD(bias_words, p.bias_offset + column, BIAS_TYPE);
    return result_of(x, index);
}

// Stores columns `column` to `column` + 7 of a row of C from results[from ..].
void store_vector(uint c_base, uint row, uint column, uint from)
{
    if ((EDGE & COOP_EDGE_MN) != 0 && (row >= p.m || column >= p.n))
        return;
    uint index = c_base + row * p.c_row + column;
    float x[8];
    [[unroll]] for (uint e = 0; e < 8; e++)
        x[e] = finished(results[from + e], column + e, index + e);
    if (C_TYPE == TYPE_F32) {
        c_vectors[index / 4] = floatBitsToUint(vec4(x[0], x[1], x[2], x[3]));
        c_vectors[index / 4 + 1] = floatBitsToUint(vec4(x[4], x[5], x[6], x[7]));
        return;
    }
    uvec4 vector;
    [[unroll]] for (uint e = 0; e < 4; e++)
        vector[e] = pair_word(vec2(x[2 * e], x[2 * e + 1]), C_TYPE);
    c_vectors[index / 8] = vector;
}

// Stores columns `column` and `column` + 1 of a row of C.
void store_pair(uint c_base, uint row, uint column, vec2 sums)
{
    bool edge = (EDGE & COOP_EDGE_MN) != 0;
    if (edge && (row >= p.m || column >= p.n))
        return;
    uint index = c_base + row * p.c_row + column * p.c_col;
    float low = finished(sums.x, column, index);
    if (edge && column + 1 >= p.n) {
        STORE(c_words, index, C_TYPE, low);
        return;
    }
    float high = finished(sums.y, column + 1, index + p.c_col);
    STORE_PAIR(c_words, index, p.c_col, C_TYPE, vec2(low, high))
}

// Stores the matrix in results[mine ..] to C; `at`: row and column of its first element. A lane
// stores 16 bytes or more where it can: code of one element costs as much as many k of the product.
void store_matrix(uint c_base, uvec2 at, uint mine)
{
    const uint each = C_VEC != 0 ? 8 : 2;
    [[unroll]] for (uint i = 0; i < M * N; i += each * LANES) { // else acc would not be unrolled
        uint e = i + each * gl_SubgroupInvocationID;
        if (M * N % (each * LANES) != 0 && e >= M * N)
            continue;
        if (C_VEC != 0)
            store_vector(c_base, at.x + e / N, at.y + e % N, mine + e);
        else
            store_pair(c_base, at.x + e / N, at.y + e % N,
                       vec2(results[mine + e], results[mine + e + 1]));
    }
}

// Loads a matrix of earlier sums to results[mine ..]; `at`: row and column of its first element.
void fetch_matrix(uvec2 at, uint mine)
{
    [[unroll]] for (uint i = 0; i < M * N; i += LANES) {
        uint e = i + gl_SubgroupInvocationID;
        if (e < M * N)
            results[mine + e] = earlier_sum(gl_WorkGroupID.z, at.x + e / N, at.y + e % N);
    }
}
