// Matrix product for CPU drivers whose compilers keep uniform values scalar (Mesa 26): no shared
// memory, no barriers, and bare loads: buffers are read by address, without a check against a
// descriptor. An element of A is then one broadcast from memory, and eight neighbours of B, each
// picked by one lane, are one vector load.
//
// One subgroup of 8 makes ROWS rows by ADDRESS_COLUMNS columns of C: 12 accumulators, two vectors
// of B and a broadcast fill the 16 registers of AVX2. Loop bodies are long, because these drivers
// blend what a loop carries with the execution mask once an iteration. Loops test after their
// bodies: a loop that tests first runs its body once more for no lane, and bare loads would read
// past the operand. See matmul_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_ballot : require
#include "params/params.h"
#include "lib/dtype.glsl"

layout(constant_id = MATMUL_A_TYPE) const uint A_TYPE = 0;
layout(constant_id = MATMUL_B_TYPE) const uint B_TYPE = 0;
layout(constant_id = MATMUL_C_TYPE) const uint C_TYPE = 0;
layout(constant_id = MATMUL_BIAS_TYPE) const uint BIAS_TYPE = BIAS_NONE;
layout(constant_id = MATMUL_RELU) const uint RELU = 0;
layout(constant_id = MATMUL_HIDDEN) const uint HIDDEN = 0;
layout(constant_id = MATMUL_ROWS) const uint ROWS = ADDRESS_ROWS;

layout(local_size_x = 8) in;
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
layout(binding = 3) buffer C { uint c_words[]; };
layout(push_constant) uniform Push { matmul_params p; };
#include "cpu/product.glsl"
#include "cpu/pick.glsl"

#define VECTORS (ADDRESS_COLUMNS / 8)
#define DEPTH 32 // k of one iteration

layout(buffer_reference, buffer_reference_align = 4) readonly buffer Float { float x; };
layout(buffer_reference, buffer_reference_align = 4) readonly buffer Row { float at[DEPTH]; };
layout(buffer_reference, buffer_reference_align = 4) readonly buffer Fours { vec4 at[DEPTH / 4]; };
layout(buffer_reference, buffer_reference_align = 4) readonly buffer Tile {
    vec4 at[DEPTH * ADDRESS_COLUMNS / 4];
};

float acc[ADDRESS_ROWS * VECTORS];   // [row][vector], of one block of k
float group[ADDRESS_ROWS * VECTORS]; // of the blocks of one group
float total[ADDRESS_ROWS * VECTORS]; // of the groups before

// tests: a may be hidden.
void accumulate(uint r, float a, float b[VECTORS], bool tests)
{
    a = relu(a);
    bool hidden = tests && floatBitsToUint(a) == HIDDEN_BITS;
    [[unroll]] for (uint v = 0; v < VECTORS; v++)
        acc[r * VECTORS + v] = fma(a, hidden ? 0.0 : b[v], acc[r * VECTORS + v]);
}

// Adds k .. k + depth - 1 to all rows. tests: some elements may be hidden.
#define STEP(depth, k, tests)                                                                      \
    [[unroll]] for (uint j = 0; j < depth; j++) {                                                  \
        float b[VECTORS];                                                                          \
        [[unroll]] for (uint v = 0; v < VECTORS; v++)                                              \
            b[v] = pick(tile.at[j * (ADDRESS_COLUMNS / 4) + 2 * v],                               \
                        tile.at[j * (ADDRESS_COLUMNS / 4) + 2 * v + 1]);                          \
        [[unroll]] for (uint r = 0; r < ADDRESS_ROWS; r++)                                         \
            if (r < ROWS)                                                                          \
                accumulate(r, Row(a[r] + k).at[j], b, tests);                                      \
    }

// Whether some, and whether all, of DEPTH elements of the rows are hidden: a lane has every eighth.
bvec2 find_hidden(Float a[ADDRESS_ROWS], uint k)
{
    bool some = false, all = true;
    [[unroll]] for (uint r = 0; r < ADDRESS_ROWS; r++)
        if (r < ROWS)
            [[unroll]] for (uint i = 0; i < DEPTH / 4; i += 2) {
                Fours fours = Fours(a[r] + k);
                bool hidden =
                    floatBitsToUint(pick(fours.at[i], fours.at[i + 1])) == HIDDEN_BITS;
                some = some || hidden;
                all = all && hidden;
            }
    return bvec2(subgroupBallot(some).x != 0u, subgroupBallot(!all).x == 0u);
}

void end_group()
{
    [[unroll]] for (uint i = 0; i < ADDRESS_ROWS * VECTORS; i++) {
        total[i] += group[i];
        group[i] = 0.0;
    }
}

// Column of this lane in vector v.
uint column_of(uint v)
{
    return gl_WorkGroupID.y * ADDRESS_COLUMNS + gl_SubgroupInvocationID + 8 * v;
}

void main()
{
    uint first_row = product_first_row(ROWS);
    if (first_row >= p.m)
        return;
    Float a[ADDRESS_ROWS]; // rows past the end repeat the last
    [[unroll]] for (uint r = 0; r < ADDRESS_ROWS; r++)
        a[r] = Float(uvec2(p.a_low, p.a_high)) +
               (product_a() + min(first_row + r, p.m - 1) * p.a_row);
    Float b = Float(uvec2(p.b_low, p.b_high)) + product_b();
    [[unroll]] for (uint i = 0; i < ADDRESS_ROWS * VECTORS; i++) {
        vec2 earlier = vec2(0.0);
        if (i / VECTORS < ROWS)
            earlier = earlier_sums(product_z(), first_row + i / VECTORS, column_of(i % VECTORS));
        total[i] = earlier.x;
        group[i] = earlier.y;
    }
    uint k = 0;
    do {
        uint end = min(k + MATMUL_BLOCK, p.k);
        [[unroll]] for (uint i = 0; i < ADDRESS_ROWS * VECTORS; i++)
            acc[i] = 0.0;
        if (k + DEPTH <= end)
            do {
                Tile tile = Tile(b + k * ADDRESS_COLUMNS);
                bvec2 hidden = HIDDEN != 0 ? find_hidden(a, k) : bvec2(false);
                if (HIDDEN != 0 && hidden.x && !hidden.y)
                    STEP(DEPTH, k, true)
                else if (!hidden.y)
                    STEP(DEPTH, k, false)
                k += DEPTH;
            } while (k + DEPTH <= end);
        if (k < end)
            do {
                Tile tile = Tile(b + k * ADDRESS_COLUMNS);
                STEP(1, k, HIDDEN != 0)
                k++;
            } while (k < end);
        [[unroll]] for (uint i = 0; i < ADDRESS_ROWS * VECTORS; i++)
            group[i] += acc[i];
        if (ends_group(k))
            end_group();
    } while (k < p.k);
    if ((SUMS & SUMS_OPEN) == 0)
        end_group();
    [[unroll]] for (uint v = 0; v < VECTORS; v++) {
        float bias = product_bias(column_of(v));
        [[unroll]] for (uint r = 0; r < ADDRESS_ROWS; r++)
            if (r < ROWS)
                store_product(first_row + r, column_of(v), total[r * VECTORS + v],
                              group[r * VECTORS + v], bias);
    }
}
