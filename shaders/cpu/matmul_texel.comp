// Matrix product for CPU drivers with older compilers (Mesa 22): no shared memory, no
// barriers. These compile a load from a storage buffer to a loop over the lanes with a branch each,
// but a texel fetch to straight code for all lanes: A and B are texel buffers of vec4.
//
// One subgroup of 8 makes TEXEL_ROWS rows by TEXEL_COLUMNS columns of C. For four k at a time lane
// l fetches four elements of row l of A, which subgroupBroadcast shares, and eight of a row of B for
// each k. See matmul_params.
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
layout(constant_id = MATMUL_ROWS) const uint ROWS = TEXEL_ROWS;

layout(local_size_x = 8) in;
layout(binding = 0) uniform textureBuffer a_texels;
layout(binding = 1) uniform textureBuffer b_texels;
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
layout(binding = 3) buffer C { uint c_words[]; };
layout(push_constant) uniform Push { matmul_params p; };
#include "cpu/product.glsl"

#define FOURS (TEXEL_COLUMNS / 32) // vec4 of a row of B for each lane

vec4 acc[TEXEL_ROWS * FOURS];   // [row][vec4], of one block of k
vec4 group[TEXEL_ROWS * FOURS]; // of the blocks of one group
vec4 total[TEXEL_ROWS * FOURS]; // of the groups before

void accumulate(uint r, float a, vec4 b[FOURS])
{
    bool hidden = HIDDEN != 0 && floatBitsToUint(a) == HIDDEN_BITS;
    [[unroll]] for (uint i = 0; i < FOURS; i++)
        acc[r * FOURS + i] = fma(vec4(a), hidden ? vec4(0.0) : b[i], acc[r * FOURS + i]);
}

// Adds one k, whose element of A is component `c` of each lane's vec4.
#define ROW(r, c)                                                                                  \
    if (r < ROWS)                                                                                  \
        accumulate(r, subgroupBroadcast(a, r).c, b);
#define STEP(c)                                                                                    \
    {                                                                                              \
        vec4 b[FOURS];                                                                             \
        [[unroll]] for (int i = 0; i < FOURS; i++)                                                 \
            b[i] = texelFetch(b_texels, b_at + 8 * i);                                             \
        ROW(0, c) ROW(1, c) ROW(2, c) ROW(3, c) ROW(4, c) ROW(5, c) ROW(6, c) ROW(7, c)            \
        b_at += TEXEL_COLUMNS / 4;                                                                 \
    }

void end_group()
{
    [[unroll]] for (uint i = 0; i < TEXEL_ROWS * FOURS; i++) {
        total[i] += group[i];
        group[i] = vec4(0.0);
    }
}

// Column of element i of this lane.
uint column_of(uint i)
{
    return gl_WorkGroupID.y * TEXEL_COLUMNS + 4 * gl_SubgroupInvocationID + i / 4 * 32 + i % 4;
}

// What only begins and ends a product is a loop over the rows, which picks the row's sums: written
// out for each row, it was nine tenths of what the driver compiles.
void begin_sums(uint first_row)
{
    [[unroll]] for (uint i = 0; i < TEXEL_ROWS * FOURS; i++)
        total[i] = group[i] = vec4(0.0);
    if ((SUMS & SUMS_LOAD) == 0)
        return;
    uint row = 0;
    [[dont_unroll]] do {
        [[unroll]] for (uint i = 0; i < 4 * FOURS; i++) {
            vec2 earlier = earlier_sums(product_z(), first_row + row, column_of(i));
            [[unroll]] for (uint r = 0; r < TEXEL_ROWS; r++)
                if (r == row) {
                    total[r * FOURS + i / 4][i % 4] = earlier.x;
                    group[r * FOURS + i / 4][i % 4] = earlier.y;
                }
        }
    } while (++row < ROWS);
}

void store_rows(uint first_row)
{
    float bias[4 * FOURS];
    [[unroll]] for (uint i = 0; i < 4 * FOURS; i++)
        bias[i] = product_bias(column_of(i));
    uint row = 0;
    [[dont_unroll]] do {
        vec4 x[FOURS], next[FOURS];
        [[unroll]] for (uint i = 0; i < FOURS; i++) {
            x[i] = total[i];
            next[i] = group[i];
            [[unroll]] for (uint r = 1; r < TEXEL_ROWS; r++) {
                x[i] = mix(x[i], total[r * FOURS + i], bvec4(r == row));
                next[i] = mix(next[i], group[r * FOURS + i], bvec4(r == row));
            }
        }
        [[unroll]] for (uint i = 0; i < 4 * FOURS; i++)
            store_product(first_row + row, column_of(i), x[i / 4][i % 4], next[i / 4][i % 4],
                          bias[i]);
    } while (++row < ROWS);
}

void main()
{
    uint lane = gl_SubgroupInvocationID, first_row = product_first_row(ROWS);
    if (first_row >= p.m)
        return;
    uint row = min(first_row + lane % ROWS, p.m - 1); // past the end, the last row
    int a_at = int(product_a() + row * p.a_row) / 4;
    int b_at = int(product_b()) / 4 + int(lane);
    begin_sums(first_row);
    vec4 a;
    uint block = 0;
    do { // loops test after their bodies, see matmul_address
        uint depth = min(p.k - block, MATMUL_BLOCK);
        [[unroll]] for (uint i = 0; i < TEXEL_ROWS * FOURS; i++)
            acc[i] = vec4(0.0);
        for (uint k = 0; k < depth / 4; k++) {
            a = texelFetch(a_texels, a_at++);
            a = vec4(relu(a.x), relu(a.y), relu(a.z), relu(a.w));
            STEP(x) STEP(y) STEP(z) STEP(w)
        }
        if (depth % 4 != 0)
            a = texelFetch(a_texels, a_at);
        for (uint k = depth % 4; k != 0; k--) {
            a.x = relu(a.x);
            STEP(x)
            a = a.yzww;
        }
        [[unroll]] for (uint i = 0; i < TEXEL_ROWS * FOURS; i++)
            group[i] += acc[i];
        block += MATMUL_BLOCK;
        if (ends_group(block))
            end_group();
    } while (block < p.k);
    if ((SUMS & SUMS_OPEN) == 0)
        end_group();
    store_rows(first_row);
}
