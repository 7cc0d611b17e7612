// Matrix product for CPU drivers: no shared memory and no barriers. One subgroup makes ROWS rows by
// LANES * LANE_COLUMNS columns of C in registers. For four k at a time, lane l loads four elements
// of A of rows l, l + HOLDERS, ..., which subgroupBroadcast shares, and a vec4 of neighbouring
// columns of B for each k. HOLDERS (4 or 8, at most the subgroup's size) is a define because GLSL
// wants the lane of a broadcast as a literal constant.
//
// For operands of any strides and type, and for few rows, where packing B (matmul_address,
// matmul_texel) does not pay. These compilers move nothing out of loops: the loop over k computes
// only what changes, and the last k % 4 have their own loop. All products add the k in the same
// order, by blocks and groups (MATMUL_BLOCK), so that a row's bits do not depend on the kernel that
// the number of rows selects. See matmul_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_ballot : require
#include "params/params.h"
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
layout(constant_id = MATMUL_ROWS) const uint ROWS = LANE_ROWS;

layout(local_size_x_id = MATMUL_LANES) in;
layout(binding = 0) readonly buffer A { uint a_words[]; };
layout(binding = 0) readonly buffer A4 { vec4 a_fours[]; };
layout(binding = 1) readonly buffer B { uint b_words[]; };
layout(binding = 1) readonly buffer B4 { vec4 b_fours[]; };
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
layout(binding = 3) buffer C { uint c_words[]; };
layout(push_constant) uniform Push { matmul_params p; };
#include "lib/relu.glsl"
#include "lib/sums.glsl"

const uint LOADS = (ROWS + HOLDERS - 1) / HOLDERS; // rows of A that a lane loads

float relu(float x) { return RELU != 0 ? relu_of(x) : x; }

float load_a(uint at) { return relu(LOAD(a_words, at, A_TYPE)); }

// Four elements of a row of A, `col` apart.
vec4 load_a4(uint at, uint col)
{
    if (A_VEC == 0)
        return vec4(load_a(at), load_a(at + col), load_a(at + 2 * col), load_a(at + 3 * col));
    vec4 x = a_fours[at >> 2];
    return vec4(relu(x.x), relu(x.y), relu(x.z), relu(x.w));
}

// Four columns of B at one k; `at`: the first, `step`: distances of the others.
vec4 load_b(uint at, uvec3 step)
{
    if (B_VEC != 0)
        return b_fours[at >> 2];
    return vec4(LOAD(b_words, at, B_TYPE), LOAD(b_words, at + step.x, B_TYPE),
                LOAD(b_words, at + step.y, B_TYPE), LOAD(b_words, at + step.z, B_TYPE));
}

vec4 accumulate(float a, vec4 b, vec4 acc)
{
    if (HIDDEN != 0)
        b = floatBitsToUint(a) == HIDDEN_BITS ? vec4(0.0) : b;
    return fma(vec4(a), b, acc);
}

vec4 acc[LANE_ROWS];   // [row], this lane's columns, of one block of k
vec4 group[LANE_ROWS]; // of the blocks of one group
vec4 total[LANE_ROWS]; // of the groups before

// Sums of earlier passes, and results: loops over the rows, as in matmul_texel.
void begin_sums(uint z, uint first_row, uint column)
{
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        total[r] = group[r] = vec4(0.0);
    if ((SUMS & SUMS_LOAD) == 0)
        return;
    [[dont_unroll]] for (uint row = 0; row < ROWS; row++)
        [[unroll]] for (uint i = 0; i < LANE_COLUMNS; i++) {
            vec2 earlier = earlier_sums(z, first_row + row, column + i);
            [[unroll]] for (uint r = 0; r < ROWS; r++)
                if (r == row) {
                    total[r][i] = earlier.x;
                    group[r][i] = earlier.y;
                }
        }
}

void store_row(vec4 sum, vec4 next, uint z, uint row, uint column)
{
    uint index = p.c_offset + z / p.n_head * p.c_batch + z % p.n_head * p.c_head + row * p.c_row +
                 column * p.c_col;
    [[unroll]] for (uint i = 0; i < LANE_COLUMNS; i++)
        if (row < p.m && column + i < p.n) {
            float x = p.alpha * sum[i];
            if (BIAS_TYPE != BIAS_NONE)
                x += LOAD(bias_words, p.bias_offset + column + i, BIAS_TYPE);
            uint at = index + i * p.c_col;
            STORE(c_words, at, C_TYPE, result_of(x, at));
            if ((SUMS & SUMS_KEEP) != 0)
                c_words[at + 1] = floatBitsToUint(next[i]);
        }
}

void store_rows(uint z, uint first_row, uint column)
{
    [[dont_unroll]] for (uint row = 0; row < ROWS; row++) {
        vec4 sum = total[0], next = group[0];
        [[unroll]] for (uint r = 1; r < ROWS; r++) {
            sum = mix(sum, total[r], bvec4(r == row));
            next = mix(next, group[r], bvec4(r == row));
        }
        store_row(sum, next, z, first_row + row, column);
    }
}

void end_group()
{
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        total[r] += group[r];
        group[r] = vec4(0.0);
    }
}

// Adds four k to row r, with elements of A from the lane that loaded them.
#define FOUR_K(r)                                                                                  \
    if (r < ROWS) {                                                                                \
        vec4 x = subgroupBroadcast(a[r / HOLDERS], r % HOLDERS);                                   \
        acc[r] = accumulate(x.x, b0, acc[r]);                                                      \
        acc[r] = accumulate(x.y, b1, acc[r]);                                                      \
        acc[r] = accumulate(x.z, b2, acc[r]);                                                      \
        acc[r] = accumulate(x.w, b3, acc[r]);                                                      \
    }
#define ONE_K(r)                                                                                   \
    if (r < ROWS)                                                                                  \
        acc[r] = accumulate(subgroupBroadcast(a[r / HOLDERS], r % HOLDERS).x, b, acc[r]);
#define EACH_ROW(DO)                                                                               \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)                                                \
    DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)

void main()
{
    uint z = gl_WorkGroupID.z, lane = gl_SubgroupInvocationID;
    uint batch = z / p.n_head, head = z % p.n_head;
    uint first_row = gl_WorkGroupID.y * ROWS;
    uint column = (gl_WorkGroupID.x * LANES + lane) * LANE_COLUMNS;
    // Rows and columns past the end repeat others.
    uint a_base = p.a_offset + batch * p.a_batch + head * p.a_head;
    uint a_at[LANE_ROWS / HOLDERS];
    [[unroll]] for (uint i = 0; i < LOADS; i++)
        a_at[i] = a_base + min(first_row + i * HOLDERS + lane % HOLDERS, p.m - 1) * p.a_row;
    uint b_column = column < p.n ? column : 0, last = p.n - 1 - b_column;
    uint b_at = p.b_offset + batch * p.b_batch + head / p.group * p.b_head + b_column * p.b_row;
    uvec3 b_step = min(uvec3(1, 2, 3), uvec3(last)) * p.b_row;
    uint a_col = p.a_col, b_col = p.b_col;

    vec4 a[LANE_ROWS / HOLDERS];
    begin_sums(z, first_row, column);
    for (uint k = 0; k < p.k; k += MATMUL_BLOCK) {
        uint whole = min(p.k - k, MATMUL_BLOCK) / 4, rest = min(p.k - k, MATMUL_BLOCK) % 4;
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            acc[r] = vec4(0.0);
        for (uint i = 0; i < whole; i++) {
            [[unroll]] for (uint j = 0; j < LOADS; j++) {
                a[j] = load_a4(a_at[j], a_col);
                a_at[j] += 4 * a_col;
            }
            vec4 b0 = load_b(b_at, b_step), b1 = load_b(b_at + b_col, b_step);
            b_at += 2 * b_col;
            vec4 b2 = load_b(b_at, b_step), b3 = load_b(b_at + b_col, b_step);
            b_at += 2 * b_col;
            EACH_ROW(FOUR_K)
        }
        for (uint i = 0; i < rest; i++) {
            [[unroll]] for (uint j = 0; j < LOADS; j++) {
                a[j].x = load_a(a_at[j]);
                a_at[j] += a_col;
            }
            vec4 b = load_b(b_at, b_step);
            b_at += b_col;
            EACH_ROW(ONE_K)
        }
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            group[r] += acc[r];
        if (ends_group(k + MATMUL_BLOCK))
            end_group();
    }
    if ((SUMS & SUMS_OPEN) == 0)
        end_group();
    store_rows(z, first_row, column);
}
