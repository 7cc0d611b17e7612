// Matrix product for GPUs: a tile of C per workgroup, both inputs staged through shared memory.
// See matmul_params. Any size and strides; results beyond the edges are not written.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "lib/dtype.glsl"

layout(constant_id = MATMUL_A_TYPE) const uint A_TYPE = 0;
layout(constant_id = MATMUL_B_TYPE) const uint B_TYPE = 0;
layout(constant_id = MATMUL_C_TYPE) const uint C_TYPE = 0;
layout(constant_id = MATMUL_BIAS_TYPE) const uint BIAS_TYPE = BIAS_NONE;
layout(constant_id = MATMUL_RELU) const uint RELU = 0;
layout(constant_id = MATMUL_HIDDEN) const uint HIDDEN = 0;
layout(constant_id = MATMUL_TILE_M) const uint TM = 4; // results of an invocation
layout(constant_id = MATMUL_TILE_N) const uint TN = 4;

layout(constant_id = MATMUL_SIDE_X) const uint SIDE = 16;

layout(local_size_x_id = MATMUL_SIDE_X, local_size_y_id = MATMUL_SIDE_Y) in;
layout(binding = 0) readonly buffer A { uint a_words[]; };
layout(binding = 1) readonly buffer B { uint b_words[]; };
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
layout(binding = 3) buffer C { uint c_words[]; };
layout(push_constant) uniform Push { matmul_params p; };
#include "lib/sums.glsl"

const uint BM = SIDE * TM;
const uint BN = SIDE * TN;
const uint THREADS = SIDE * SIDE;
shared float a_tile[TILE_DEPTH * (BM + 1)]; // [k][m]
shared float b_tile[TILE_DEPTH * (BN + 1)]; // [k][n]

// Row and k of element e of a tile of `rows` rows: counts along k where k is contiguous, else along
// rows.
uvec2 tile_element(uint e, uint rows, bool k_first)
{
    return k_first ? uvec2(e / TILE_DEPTH, e % TILE_DEPTH) : uvec2(e % rows, e / rows);
}

void load_tiles(uint a_base, uint b_base, uvec2 first, uint k0)
{
    for (uint e = gl_LocalInvocationIndex; e < BM * TILE_DEPTH; e += THREADS) {
        uvec2 at = tile_element(e, BM, p.a_col == 1);
        uint row = first.x + at.x, k = k0 + at.y;
        float x = 0.0;
        if (row < p.m && k < p.k) {
            uint index = a_base + row * p.a_row + k * p.a_col;
            x = LOAD(a_words, index, A_TYPE);
        }
        a_tile[at.y * (BM + 1) + at.x] = RELU != 0 && x < 0.0 ? 0.0 : x;
    }
    for (uint e = gl_LocalInvocationIndex; e < BN * TILE_DEPTH; e += THREADS) {
        uvec2 at = tile_element(e, BN, p.b_col == 1);
        uint column = first.y + at.x, k = k0 + at.y;
        float x = 0.0;
        if (column < p.n && k < p.k) {
            uint index = b_base + column * p.b_row + k * p.b_col;
            x = LOAD(b_words, index, B_TYPE);
        }
        b_tile[at.y * (BN + 1) + at.x] = x;
    }
}

void main()
{
    uint z = gl_WorkGroupID.z;
    uint batch = z / p.n_head, head = z % p.n_head;
    uint a_base = p.a_offset + batch * p.a_batch + head * p.a_head;
    uint b_base = p.b_offset + batch * p.b_batch + head / p.group * p.b_head;
    uint c_base = p.c_offset + batch * p.c_batch + head * p.c_head;
    uvec2 first = uvec2(gl_WorkGroupID.y * BM, gl_WorkGroupID.x * BN);
    uvec2 local = gl_LocalInvocationID.yx;

    float acc[TM * TN], group[TM * TN], total[TM * TN]; // of a block, a group, all before it
    for (uint i = 0; i < TM * TN; i++) {
        vec2 earlier =
            earlier_sums(z, first.x + local.x + i / TN * SIDE, first.y + local.y + i % TN * SIDE);
        acc[i] = 0.0;
        group[i] = earlier.y;
        total[i] = earlier.x;
    }
    for (uint k0 = 0; k0 < p.k; k0 += TILE_DEPTH) {
        load_tiles(a_base, b_base, first, k0);
        barrier();
        for (uint k = 0; k < TILE_DEPTH; k++) {
            float b[TN];
            for (uint j = 0; j < TN; j++)
                b[j] = b_tile[k * (BN + 1) + local.y + j * SIDE];
            for (uint i = 0; i < TM; i++) {
                float a = a_tile[k * (BM + 1) + local.x + i * SIDE];
                bool skip = HIDDEN != 0 && floatBitsToUint(a) == HIDDEN_BITS;
                for (uint j = 0; j < TN; j++)
                    acc[i * TN + j] = fma(a, skip ? 0.0 : b[j], acc[i * TN + j]);
            }
        }
        barrier();
        if ((k0 + TILE_DEPTH) % MATMUL_BLOCK == 0 || k0 + TILE_DEPTH >= p.k)
            for (uint i = 0; i < TM * TN; i++) {
                group[i] += acc[i];
                acc[i] = 0.0;
            }
        if (ends_group(k0 + TILE_DEPTH))
            for (uint i = 0; i < TM * TN; i++) {
                total[i] += group[i];
                group[i] = 0.0;
            }
    }
    if ((SUMS & SUMS_OPEN) == 0)
        for (uint i = 0; i < TM * TN; i++) {
            total[i] += group[i];
            group[i] = 0.0;
        }
    for (uint i = 0; i < TM; i++) {
        uint row = first.x + local.x + i * SIDE;
        for (uint j = 0; j < TN; j++) {
            uint column = first.y + local.y + j * SIDE;
            if (row >= p.m || column >= p.n)
                continue;
            float x = p.alpha * total[i * TN + j];
            if (BIAS_TYPE != BIAS_NONE)
                x += LOAD(bias_words, p.bias_offset + column, BIAS_TYPE);
            uint index = c_base + row * p.c_row + column * p.c_col;
            STORE(c_words, index, C_TYPE, one_nan(x));
            if ((SUMS & SUMS_KEEP) != 0)
                c_words[index + 1] = floatBitsToUint(group[i * TN + j]);
        }
    }
}
