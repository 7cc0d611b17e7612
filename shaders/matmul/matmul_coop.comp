// Matrix product with the device's matrix units: 16-bit inputs, float32 sums. A workgroup of
// COOP_ROWS x COOP_COLUMNS subgroups takes a tile of C; a subgroup holds MATS_M x MATS_N matrices
// of it. Tiles of both inputs are in shared memory while the next ones load into registers. Any
// size and strides; both inputs have type A_TYPE. See matmul_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#ifdef BFLOAT16
#extension GL_EXT_bfloat16 : require
#define HALF bfloat16_t
#define HALF_INFINITY 0x7f80u
#else
#define HALF float16_t
#define HALF_INFINITY 0x7c00u
#endif
#include "params.h"
#include "lib/dtype.glsl"

layout(constant_id = MATMUL_A_TYPE) const uint A_TYPE = TYPE_F16;
layout(constant_id = MATMUL_C_TYPE) const uint C_TYPE = 0;
layout(constant_id = MATMUL_BIAS_TYPE) const uint BIAS_TYPE = BIAS_NONE;
layout(constant_id = MATMUL_RELU) const uint RELU = 0;
layout(constant_id = MATMUL_COOP_THREADS) const uint THREADS = 256;
layout(constant_id = MATMUL_COOP_M) const uint M = 16; // of one matrix
layout(constant_id = MATMUL_COOP_N) const uint N = 16;
layout(constant_id = MATMUL_COOP_K) const uint K = 16;
layout(constant_id = MATMUL_COOP_MATS_M) const uint MATS_M = 2;
layout(constant_id = MATMUL_COOP_MATS_N) const uint MATS_N = 4;
layout(constant_id = MATMUL_COOP_A_VEC) const uint A_VEC = 1;
layout(constant_id = MATMUL_COOP_B_VEC) const uint B_VEC = 1;

layout(local_size_x_id = MATMUL_COOP_THREADS) in;
layout(binding = 0) readonly buffer A { uint a_words[]; };
layout(binding = 0) readonly buffer A8 { uvec4 a_chunks[]; };
layout(binding = 1) readonly buffer B { uint b_words[]; };
layout(binding = 1) readonly buffer B8 { uvec4 b_chunks[]; };
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
layout(binding = 3) buffer C { uint c_words[]; };
layout(push_constant) uniform Push { matmul_params p; };
#include "lib/sums.glsl"

const uint LANES = THREADS / COOP_SUBGROUPS; // of a subgroup
const uint BM = COOP_ROWS * MATS_M * M;
const uint BN = COOP_COLUMNS * MATS_N * N;
// A chunk is 8 elements along k, one uvec4. Rows are padded by one chunk, so that the rows of a
// matrix start in different banks.
const uint ROW_CHUNKS = COOP_DEPTH / 8;
const uint PITCH = ROW_CHUNKS + 1;
const uint A_LOADS = (BM * ROW_CHUNKS + THREADS - 1) / THREADS; // chunks of an invocation
const uint B_LOADS = (BN * ROW_CHUNKS + THREADS - 1) / THREADS;
shared uvec4 a_tile[BM * PITCH]; // [m][k]
shared uvec4 b_tile[BN * PITCH]; // [n][k]
shared float results[COOP_ROWS * COOP_COLUMNS * M * N]; // M x N floats a subgroup

uvec4 a_next[A_LOADS], b_next[B_LOADS];

// max(x, 0) of two elements; keeps NaN of either sign.
uint relu2(uint pair)
{
    uint low = pair & 0xffffu, high = pair >> 16;
    low = low > 0x8000u && low <= (0x8000u | HALF_INFINITY) ? 0u : low;
    high = high > 0x8000u && high <= (0x8000u | HALF_INFINITY) ? 0u : high;
    return high << 16 | low;
}

// Elements k .. k + 7 of a row of A; 0 beyond the edges.
uvec4 load_a(uint base, uint row, uint k)
{
    uvec4 x = uvec4(0);
    if (row >= p.m || k >= p.k)
        return x;
    uint index = base + row * p.a_row + k * p.a_col;
    if (A_VEC != 0) {
        x = a_chunks[index >> 3];
    } else {
        for (uint i = 0; i < min(8, p.k - k); i++, index += p.a_col)
            x[i >> 1] |= half_bits(a_words[index >> 1], index) << (16 * (i & 1));
    }
    if (RELU != 0)
        x = uvec4(relu2(x.x), relu2(x.y), relu2(x.z), relu2(x.w));
    return x;
}

uvec4 load_b(uint base, uint column, uint k)
{
    uvec4 x = uvec4(0);
    if (column >= p.n || k >= p.k)
        return x;
    uint index = base + column * p.b_row + k * p.b_col;
    if (B_VEC != 0)
        return b_chunks[index >> 3];
    for (uint i = 0; i < min(8, p.k - k); i++, index += p.b_col)
        x[i >> 1] |= half_bits(b_words[index >> 1], index) << (16 * (i & 1));
    return x;
}

void load_tiles(uint a_base, uint b_base, uvec2 first, uint k0)
{
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        uint chunk = gl_LocalInvocationIndex + i * THREADS;
        if (chunk < BM * ROW_CHUNKS)
            a_next[i] =
                load_a(a_base, first.x + chunk / ROW_CHUNKS, k0 + chunk % ROW_CHUNKS * 8);
    }
    [[unroll]] for (uint i = 0; i < B_LOADS; i++) {
        uint chunk = gl_LocalInvocationIndex + i * THREADS;
        if (chunk < BN * ROW_CHUNKS)
            b_next[i] =
                load_b(b_base, first.y + chunk / ROW_CHUNKS, k0 + chunk % ROW_CHUNKS * 8);
    }
}

void share_tiles()
{
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        uint chunk = gl_LocalInvocationIndex + i * THREADS;
        if (chunk < BM * ROW_CHUNKS)
            a_tile[chunk / ROW_CHUNKS * PITCH + chunk % ROW_CHUNKS] = a_next[i];
    }
    [[unroll]] for (uint i = 0; i < B_LOADS; i++) {
        uint chunk = gl_LocalInvocationIndex + i * THREADS;
        if (chunk < BN * ROW_CHUNKS)
            b_tile[chunk / ROW_CHUNKS * PITCH + chunk % ROW_CHUNKS] = b_next[i];
    }
}

// Stores columns `column` and `column` + 1 of a row of C.
void store_pair(uint c_base, uint row, uint column, vec2 x)
{
    if (row >= p.m || column >= p.n)
        return;
    bool both = column + 1 < p.n;
    x *= p.alpha;
    if (BIAS_TYPE != BIAS_NONE) {
        x.x += LOAD(bias_words, p.bias_offset + column, BIAS_TYPE);
        x.y += LOAD(bias_words, p.bias_offset + column + (both ? 1 : 0), BIAS_TYPE);
    }
    x = vec2(one_nan(x.x), one_nan(x.y));
    uint index = c_base + row * p.c_row + column * p.c_col;
    if (C_TYPE != TYPE_F32 && both && p.c_col == 1 && (index & 1u) == 0) { // a whole word
        c_words[index >> 1] = C_TYPE == TYPE_F16
                                  ? f16_from_float(x.x) | f16_from_float(x.y) << 16
                                  : bf16_from_float(x.x) | bf16_from_float(x.y) << 16;
        return;
    }
    STORE(c_words, index, C_TYPE, x.x);
    index += p.c_col;
    if (both)
        STORE(c_words, index, C_TYPE, x.y);
}

// Stores the matrix in results[mine ..] to C; `at`: row and column of its first element.
void store_matrix(uint c_base, uvec2 at, uint mine)
{
    [[unroll]] for (uint i = 0; i < M * N; i += 2 * LANES) { // else acc would not be unrolled
        uint e = i + 2 * gl_SubgroupInvocationID;
        if (e < M * N)
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

void share_results()
{
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
}

void main()
{
    uint z = gl_WorkGroupID.z;
    uint batch = z / p.n_head, head = z % p.n_head;
    uint a_base = p.a_offset + batch * p.a_batch + head * p.a_head;
    uint b_base = p.b_offset + batch * p.b_batch + head / p.group * p.b_head;
    uint c_base = p.c_offset + batch * p.c_batch + head * p.c_head;
    uvec2 first = uvec2(gl_WorkGroupID.y * BM, gl_WorkGroupID.x * BN);
    uvec2 own = uvec2(gl_SubgroupID % COOP_ROWS * MATS_M * M,
                      gl_SubgroupID / COOP_ROWS * MATS_N * N); // place in the tile
    uint mine = gl_SubgroupID * M * N;                         // its matrix in results

    coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> acc[MATS_M * MATS_N];
    [[unroll]] for (uint i = 0; i < MATS_M * MATS_N; i++) {
        acc[i] = coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(0.0);
        if ((SUMS & SUMS_LOAD) != 0) {
            fetch_matrix(first + own + uvec2(i / MATS_N * M, i % MATS_N * N), mine);
            share_results();
            coopMatLoad(acc[i], results, mine, N, gl_CooperativeMatrixLayoutRowMajor);
            share_results();
        }
    }
    load_tiles(a_base, b_base, first, 0);
    for (uint k0 = 0; k0 < p.k; k0 += COOP_DEPTH) {
        share_tiles();
        barrier();
        if (k0 + COOP_DEPTH < p.k)
            load_tiles(a_base, b_base, first, k0 + COOP_DEPTH);
        [[unroll]] for (uint k = 0; k < COOP_DEPTH; k += K) {
            coopmat<HALF, gl_ScopeSubgroup, M, K, gl_MatrixUseA> a[MATS_M];
            [[unroll]] for (uint i = 0; i < MATS_M; i++)
                coopMatLoad(a[i], a_tile, (own.x + i * M) * PITCH + k / 8, PITCH,
                            gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint j = 0; j < MATS_N; j++) {
                coopmat<HALF, gl_ScopeSubgroup, K, N, gl_MatrixUseB> b;
                coopMatLoad(b, b_tile, (own.y + j * N) * PITCH + k / 8, PITCH,
                            gl_CooperativeMatrixLayoutColumnMajor);
                [[unroll]] for (uint i = 0; i < MATS_M; i++)
                    acc[i * MATS_N + j] = coopMatMulAdd(a[i], b, acc[i * MATS_N + j]);
            }
        }
        barrier();
    }

    [[unroll]] for (uint i = 0; i < MATS_M; i++)
        [[unroll]] for (uint j = 0; j < MATS_N; j++) {
            coopMatStore(acc[i * MATS_N + j], results, mine, N,
                         gl_CooperativeMatrixLayoutRowMajor);
            share_results();
            store_matrix(c_base, first + own + uvec2(i * M, j * N), mine);
            share_results();
        }
}
