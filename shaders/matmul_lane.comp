// Matrix product for CPU drivers: no shared memory and no barriers. One subgroup makes LANE_ROWS
// rows by LANES * LANE_COLUMNS columns of C in registers. For four k at a time, lane l loads four
// elements of A of rows l, l + HOLDERS, ..., which subgroupBroadcast hands round, and a vec4 of
// neighbouring columns of B for each k. HOLDERS (4 or 8, at most the subgroup's size) is a define
// because GLSL wants the lane of a broadcast as a literal constant. See matmul_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_ballot : require
#include "params.h"
#include "lib/dtype.glsl"

layout(constant_id = MATMUL_A_TYPE) const uint A_TYPE = 0;
layout(constant_id = MATMUL_B_TYPE) const uint B_TYPE = 0;
layout(constant_id = MATMUL_C_TYPE) const uint C_TYPE = 0;
layout(constant_id = MATMUL_BIAS_TYPE) const uint BIAS_TYPE = BIAS_NONE;
layout(constant_id = MATMUL_RELU) const uint RELU = 0;
layout(constant_id = MATMUL_HIDDEN) const uint HIDDEN = 0;
layout(constant_id = MATMUL_LANES) const uint LANES = 8;
layout(constant_id = MATMUL_A_VEC) const uint A_VEC = 0;
layout(constant_id = MATMUL_B_VEC) const uint B_VEC = 0;

layout(local_size_x_id = MATMUL_LANES) in;
layout(binding = 0) readonly buffer A { uint a_words[]; };
layout(binding = 0) readonly buffer A4 { vec4 a_vec4[]; };
layout(binding = 1) readonly buffer B { uint b_words[]; };
layout(binding = 1) readonly buffer B4 { vec4 b_vec4[]; };
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
layout(binding = 3) buffer C { uint c_words[]; };
layout(push_constant) uniform Push { matmul_params p; };

// Elements k .. k + 3 of a row of A, 0 past the end where `tail`.
vec4 load_a(uint base, uint k, bool tail)
{
    vec4 x = vec4(0.0);
    if (A_VEC != 0 && !tail) {
        x = a_vec4[(base + k) >> 2];
    } else {
        for (uint i = 0; i < 4; i++)
            if (!tail || k + i < p.k)
                x[i] = LOAD(a_words, base + (k + i) * p.a_col, A_TYPE);
    }
    if (RELU != 0)
        x = mix(x, vec4(0.0), lessThan(x, vec4(0.0)));
    return x;
}

// Columns column .. column + 3 of B at depth k, 0 for a depth past the end; columns past the end are
// 0 or repeat others.
vec4 load_b(uint base, uint column, uint k)
{
    if (k >= p.k)
        return vec4(0.0);
    if (B_VEC != 0)
        return b_vec4[(base + (column < p.n ? column : 0u) + k * p.b_col) >> 2];
    vec4 x = vec4(0.0);
    for (uint i = 0; i < LANE_COLUMNS; i++)
        if (column + i < p.n)
            x[i] = LOAD(b_words, base + (column + i) * p.b_row + k * p.b_col, B_TYPE);
    return x;
}

vec4 accumulate(float a, vec4 b, vec4 acc)
{
    if (HIDDEN != 0 && floatBitsToUint(a) == HIDDEN_BITS)
        return acc;
    return fma(vec4(a), b, acc);
}

// Row r's four elements of A, from the lane that loaded them. The lane must be a constant.
#define ROW(r) subgroupBroadcast(a[r / HOLDERS], r % HOLDERS)
#define STEP(r)                                                                                    \
    {                                                                                              \
        vec4 x = ROW(r);                                                                           \
        acc[r] = accumulate(x.x, b0, acc[r]);                                                      \
        acc[r] = accumulate(x.y, b1, acc[r]);                                                      \
        acc[r] = accumulate(x.z, b2, acc[r]);                                                      \
        acc[r] = accumulate(x.w, b3, acc[r]);                                                      \
    }

const uint LOADS = LANE_ROWS / HOLDERS; // rows of A a lane loads

void main()
{
    uint z = gl_WorkGroupID.z;
    uint batch = z / p.n_head, head = z % p.n_head;
    uint b_base = p.b_offset + batch * p.b_batch + head / p.group * p.b_head;
    uint c_base = p.c_offset + batch * p.c_batch + head * p.c_head;
    uint first_row = gl_WorkGroupID.y * LANE_ROWS;
    uint lane = gl_SubgroupInvocationID;
    uint column = (gl_WorkGroupID.x * LANES + lane) * LANE_COLUMNS;

    uint a_base[LOADS]; // rows past the end repeat the last
    for (uint i = 0; i < LOADS; i++)
        a_base[i] = p.a_offset + batch * p.a_batch + head * p.a_head +
                    min(first_row + i * HOLDERS + lane % HOLDERS, p.m - 1) * p.a_row;

    vec4 acc[LANE_ROWS];
    for (uint r = 0; r < LANE_ROWS; r++)
        acc[r] = vec4(0.0);
    for (uint k = 0; k < p.k; k += 4) {
        bool tail = k + 4 > p.k;
        vec4 a[LOADS];
        for (uint i = 0; i < LOADS; i++)
            a[i] = load_a(a_base[i], k, tail);
        vec4 b0 = load_b(b_base, column, k);
        vec4 b1 = load_b(b_base, column, k + 1);
        vec4 b2 = load_b(b_base, column, k + 2);
        vec4 b3 = load_b(b_base, column, k + 3);
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
    }

    for (uint r = 0; r < LANE_ROWS; r++)
        for (uint i = 0; i < LANE_COLUMNS; i++) {
            if (first_row + r >= p.m || column + i >= p.n)
                continue;
            float x = p.alpha * acc[r][i];
            if (BIAS_TYPE != BIAS_NONE)
                x += LOAD(bias_words, p.bias_offset + column + i, BIAS_TYPE);
            uint index = c_base + (first_row + r) * p.c_row + (column + i) * p.c_col;
            STORE(c_words, index, C_TYPE, x);
        }
}
