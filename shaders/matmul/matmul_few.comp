// Matrix product of few rows, for GPUs: a tile of ROWS rows and COLUMNS columns of C per workgroup.
// An invocation sums one block of k, see MATMUL_BLOCK, of one column and all rows of the tile; then
// the sums of blocks are added in order. So the bits are those of matmul_tile, and as many
// invocations as k has blocks keep reads of B in flight. Slices of the blocks pass through shared
// memory, for reads of whole cache lines, while the next ones load; quantised B does so as it is,
// see lib/bundles.glsl, where its rows are bundles. With float32 A, integers of quantised B are
// multiplied and scaled afterwards: see matmul_few_lanes.glsl. With MIXED_DOT both inputs are float16:
// see matmul_few_mixed.glsl. See matmul_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef MIXED_DOT
#extension GL_EXT_spirv_intrinsics : require
#endif
#if defined(HALF) || defined(MIXED_DOT)
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/vectors.glsl"

layout(constant_id = MATMUL_A_TYPE) const uint A_TYPE = 0;
layout(constant_id = MATMUL_B_TYPE) const uint B_TYPE = 0;
layout(constant_id = MATMUL_C_TYPE) const uint C_TYPE = 0;
layout(constant_id = MATMUL_BIAS_TYPE) const uint BIAS_TYPE = BIAS_NONE;
layout(constant_id = MATMUL_RELU) const uint RELU = 0;
layout(constant_id = MATMUL_HIDDEN) const uint HIDDEN = 0;
layout(constant_id = MATMUL_FEW_THREADS) const uint THREADS = 64;
layout(constant_id = MATMUL_FEW_ROWS) const uint ROWS = 1;
layout(constant_id = MATMUL_FEW_COLUMNS) const uint COLUMNS = 2;
layout(constant_id = MATMUL_FEW_A_VEC) const uint A_VEC = 1;
layout(constant_id = MATMUL_FEW_B_VEC) const uint B_VEC = 1;
layout(constant_id = MATMUL_FEW_EDGE) const uint EDGE = 1;
layout(constant_id = MATMUL_FEW_VECTORS) const uint VECTORS = 8;
layout(constant_id = MATMUL_FEW_OWN_COLUMNS) const uint OWN_COLUMNS = 1;
layout(constant_id = MATMUL_FEW_PAIRS) const bool PAIRS = false;

layout(local_size_x_id = MATMUL_FEW_THREADS) in;
layout(binding = 0) readonly buffer A { uint a_words[]; };
layout(binding = 0) readonly buffer A4 { uvec4 a_vectors[]; };
layout(binding = 1) readonly buffer B { uint b_words[]; };
layout(binding = 1) readonly buffer B4 { uvec4 b_vectors[]; };
layout(binding = 1) readonly buffer B2 { uvec2 b_pairs[]; };
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
layout(binding = 3) buffer C { uint c_words[]; };
layout(push_constant) uniform Push { matmul_params p; };
#include "lib/relu.glsl"
#include "lib/sums.glsl"
#include "lib/scale.glsl"
#include "lib/lost.glsl"
VECTOR_LOADER(load_a, a_words, a_vectors)
VECTOR_LOADER(load_b, b_words, b_vectors)
QUANT_READER(load_quants, b_words)
#define GRID_TYPE B_TYPE
#define GRID 6
#include "lib/grids.glsl"
#define BUNDLE_TYPE B_TYPE
#include "lib/bundles.glsl"
#include "lib/infinite.glsl"

// A line is what a slice has of a block of one row of A or one column of B.
const uint BLOCKS = THREADS * OWN_COLUMNS / COLUMNS; // of k at a time
const uint SLICE = VECTORS * VECTOR(B_TYPE);       // k of a line
const uint FOURS = VECTOR(B_TYPE) / 4;                // vec4 of a vector of B
const uint A_LINE_VECTORS = SLICE / VECTOR(A_TYPE);          // vectors of a line of A
const uint A_VECTORS = ROWS * BLOCKS * A_LINE_VECTORS;       // of a slice
const uint A_LOADS = (A_VECTORS + THREADS - 1) / THREADS;
#ifdef MIXED_DOT
#define A_STAGED uvec4 // a vector
const uint A_PITCH = FEW_PITCH(VECTORS), B_PITCH = FEW_PITCH(VECTORS);
#else
#define A_STAGED vec4
const uint A_PITCH = FEW_PITCH(SLICE / 4), B_PITCH = FEW_PITCH(VECTORS);
#endif
// Results of an invocation: some neighbours, and as many of each next EACH * THREADS.
const uint EACH = PAIRS ? 2 : 1;
const uint RESULTS = (ROWS * COLUMNS + EACH * THREADS - 1) / (EACH * THREADS) * EACH;
shared A_STAGED a_tile[ROWS * BLOCKS * A_PITCH];         // [row][block][k]
const bool LANES = IS_QUANT(B_TYPE) && A_TYPE == TYPE_F32; // see matmul_few_lanes.glsl
const bool BUNDLES = IS_QUANT(B_TYPE) && B_VEC != 0 && !LANES; // slices are blocks
const uint RAW_WORDS = BLOCKS * BUNDLE_PAIR_WORDS(B_TYPE); // of a column
const uint RAW_VECTORS = (RAW_WORDS + 3) / 4, RAW_PITCH = (RAW_VECTORS | 1) * 4;
const uint RAW_LOADS = BUNDLES ? (COLUMNS * RAW_VECTORS + THREADS - 1) / THREADS : 1;
// [block][column][k], of bundles [column][k] in words; sums of blocks
shared uint b_tile[LANES  ? ROWS * COLUMNS * BLOCKS
                   : BUNDLES ? COLUMNS * RAW_PITCH
                          : THREADS * B_PITCH * 4];

uvec4 a_next[A_LOADS], b_next[VECTORS], raw_next[RAW_LOADS];

uint raw_word(uint i) { return b_tile[i]; }

// Loads words of quantised B from k0 on; 0 beyond the end of k.
void load_raw(uint b_base, uvec2 first, uint k0)
{
    uint skip = k0 / 128 * BUNDLE_PAIR_WORDS(B_TYPE), count = min(raw_words_left(k0), RAW_WORDS);
    bool whole = EDGE == 0 && RAW_WORDS % 4 == 0;
    [[unroll]] for (uint i = 0; i < RAW_LOADS; i++) {
        uint vector = i * THREADS + gl_LocalInvocationIndex, word = vector % RAW_VECTORS * 4;
        uint column = min(first.y + min(vector / RAW_VECTORS, COLUMNS - 1), p.n - 1);
        uint at = (b_base + column * p.b_row) / 4 + skip + word;
        raw_next[i] = load_raw_vector(at, word, count, whole);
    }
}

// Loads the slice that begins with `k0` in the first block. A column or row beyond the edge is the
// last one: its results are not stored.
void load_slice(uint a_base, uint b_base, uvec2 first, uint k0)
{
    if (BUNDLES)
        load_raw(b_base, first, k0);
    [[unroll]] for (uint i = 0; !BUNDLES && i < VECTORS; i++) {
        uint vector = i * THREADS + gl_LocalInvocationIndex, line = vector / VECTORS;
        uint column = min(first.y + line % COLUMNS, p.n - 1);
        uint k = k0 + line / COLUMNS * MATMUL_BLOCK + vector % VECTORS * VECTOR(B_TYPE);
        b_next[i] = uvec4(0);
        if (EDGE != 0 && k >= p.k)
            continue;
        uint from = b_base + column * p.b_row;
        b_next[i] = IS_QUANT(B_TYPE)
                        ? floatBitsToUint(rounded_to(load_quants(from, k, B_TYPE), A_TYPE))
                        : load_b(B_VEC, from + k * p.b_col, p.b_col, p.k - k, B_TYPE);
    }
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        uint vector = i * THREADS + gl_LocalInvocationIndex, line = vector / A_LINE_VECTORS;
        uint row = min(first.x + line / BLOCKS, p.m - 1);
        uint k = k0 + line % BLOCKS * MATMUL_BLOCK + vector % A_LINE_VECTORS * VECTOR(A_TYPE);
        a_next[i] = uvec4(0);
        if (EDGE == 0 || k < p.k)
            a_next[i] = load_a(A_VEC, a_base + row * p.a_row + k * p.a_col, p.a_col, p.k - k,
                               A_TYPE);
    }
}

#ifdef MIXED_DOT
#include "matmul_few_mixed.glsl"
#else
vec4 relu(vec4 x)
{
    return RELU != 0 ? vec4(relu_of(x.x), relu_of(x.y), relu_of(x.z), relu_of(x.w)) : x;
}
#endif

void stage_slice()
{
    [[unroll]] for (uint i = 0; BUNDLES && i < RAW_LOADS; i++) {
        uint vector = i * THREADS + gl_LocalInvocationIndex;
        uint at = vector / RAW_VECTORS * RAW_PITCH + vector % RAW_VECTORS * 4;
        if (COLUMNS * RAW_VECTORS % THREADS != 0 && vector >= COLUMNS * RAW_VECTORS)
            continue;
        [[unroll]] for (uint e = 0; e < 4; e++)
            b_tile[at + e] = raw_next[i][e];
    }
    [[unroll]] for (uint i = 0; !BUNDLES && i < VECTORS; i++) {
        uint vector = i * THREADS + gl_LocalInvocationIndex;
        uint at = (vector / VECTORS * B_PITCH + vector % VECTORS) * 4;
        [[unroll]] for (uint e = 0; e < 4; e++)
            b_tile[at + e] = b_next[i][e];
    }
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        uint vector = i * THREADS + gl_LocalInvocationIndex;
#ifdef MIXED_DOT
        uint at = vector / A_LINE_VECTORS * A_PITCH + vector % A_LINE_VECTORS;
        if (A_VECTORS % THREADS == 0 || vector < A_VECTORS)
            a_tile[at] = relu_vector(a_next[i]);
#else
        uint at = vector / A_LINE_VECTORS * A_PITCH + vector % A_LINE_VECTORS * (VECTOR(A_TYPE) / 4);
        if (A_VECTORS % THREADS != 0 && vector >= A_VECTORS)
            continue;
        vec4 low, high;
        decode_vector(a_next[i], A_TYPE, low, high);
        a_tile[at] = relu(low);
        if (A_TYPE != TYPE_F32)
            a_tile[at + 1] = relu(high);
#endif
    }
}

#ifndef MIXED_DOT
float add4(vec4 a, vec4 b, float sum)
{
    if (HIDDEN != 0)
        b = mix(b, vec4(0.0), equal(floatBitsToUint(a), uvec4(HIDDEN_BITS)));
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}
#endif

// Sums of this invocation's block; with quantised B, acc has QUANT_CHAIN terms of it.
const uint CHAINS = IS_QUANT(B_TYPE) ? ROWS : 1;
float acc[ROWS], block_sum[CHAINS], lost[CHAINS];

#ifdef MIXED_DOT
void add_slice()
{
    uint column = gl_LocalInvocationIndex * B_PITCH;
    uint row = gl_LocalInvocationIndex / COLUMNS * A_PITCH;
    [[dont_unroll]] for (uint c = 0; c < VECTORS; c++) {
        uint from = (column + c) * 4;
        uvec4 b = uvec4(b_tile[from], b_tile[from + 1], b_tile[from + 2], b_tile[from + 3]);
        [[unroll]] for (uint i = 0; i < ROWS; i++)
            acc[i] = add_vector(a_tile[i * BLOCKS * A_PITCH + row + c], b, acc[i]);
    }
}
#else
void end_chain()
{
    [[unroll]] for (uint i = 0; i < CHAINS; i++) {
        add_exactly(block_sum[i], lost[i], acc[i]);
        acc[i] = 0.0;
    }
}

// Adds the products of a slice of bundles.
void add_bundles()
{
    uint block = gl_LocalInvocationIndex / COLUMNS, column = gl_LocalInvocationIndex % COLUMNS;
    [[dont_unroll]] for (uint half_block = 0; half_block < 2; half_block++) {
        bundle r = load_bundle(column * RAW_PITCH, 2 * block + half_block);
        [[unroll]] for (uint j = 0; j < 16; j++) {
            vec4 b = rounded_to(bundle_values(r, j / 8, j % 8), A_TYPE);
            [[unroll]] for (uint i = 0; i < ROWS; i++)
                acc[i] = add4(a_tile[(i * BLOCKS + block) * A_PITCH + half_block * 16 + j], b, acc[i]);
            if ((j + 1) * 4 % QUANT_CHAIN == 0)
                end_chain();
        }
    }
}

void add_slice()
{
    if (BUNDLES) {
        add_bundles();
        return;
    }
    uint column = gl_LocalInvocationIndex * B_PITCH;
    uint row = gl_LocalInvocationIndex / COLUMNS * A_PITCH;
    [[dont_unroll]] for (uint c = 0; c < VECTORS; c++) {
        vec4 b0, b1;
        uint from = (column + c) * 4;
        decode_vector(uvec4(b_tile[from], b_tile[from + 1], b_tile[from + 2], b_tile[from + 3]),
                     B_TYPE, b0, b1);
        [[unroll]] for (uint i = 0; i < ROWS; i++) {
            uint at = i * BLOCKS * A_PITCH + row + c * FOURS;
            acc[i] = add4(a_tile[at], b0, acc[i]);
            if (FOURS > 1)
                acc[i] = add4(a_tile[at + 1], b1, acc[i]);
        }
        if (IS_QUANT(B_TYPE) && (c + 1) * VECTOR(B_TYPE) % QUANT_CHAIN == 0)
            end_chain();
    }
}
#endif

float group[RESULTS], total[RESULTS]; // of the blocks of a group, of all groups before it

// The element of the tile that is result i.
uint element_of(uint i)
{
    return (i / EACH * THREADS + gl_LocalInvocationIndex) * EACH + i % EACH;
}

// So, or one that is there, where the last results are beyond the tile.
uint element_within(uint i)
{
    if (RESULTS * THREADS == ROWS * COLUMNS)
        return element_of(i);
    return min(element_of(i / EACH * EACH), ROWS * COLUMNS - EACH) + i % EACH;
}

#ifndef MIXED_DOT
#include "matmul_few_lanes.glsl"
#endif

// See lib/infinite.glsl.
void mend_results(uint z, uint a_base, uint b_base, uvec2 first)
{
    bool found = false;
    [[unroll]] for (uint i = 0; i < RESULTS; i++)
        found = found || !is_finite(total[i] + group[i]);
    [[dont_unroll]] for (uint i = 0; found && i < RESULTS; i++) { // no array is indexed by i
        float sum = 0.0;
        [[unroll]] for (uint j = 0; j < RESULTS; j++)
            sum = i == j ? total[j] + group[j] : sum;
        uint e = element_of(i);
        uint row = first.x + e / COLUMNS, column = first.y + e % COLUMNS;
        if (is_finite(sum) || e >= ROWS * COLUMNS || row >= p.m || column >= p.n)
            continue;
        sum = with_infinite(sum, a_base + row * p.a_row, b_base + column * p.b_row,
                            earlier_sums(z, row, column));
        [[unroll]] for (uint j = 0; j < RESULTS; j++) {
            total[j] = i == j ? sum : total[j];
            group[j] = i == j ? 0.0 : group[j];
        }
    }
}

// Adds the sums of the blocks that begin at k0.
void add_blocks(uint k0)
{
    [[unroll]] for (uint i = 0; i < ROWS; i++) {
        uint block = gl_LocalInvocationIndex / COLUMNS, column = gl_LocalInvocationIndex % COLUMNS;
        uint at = (block * ROWS + i) * COLUMNS + column;
        b_tile[at] = floatBitsToUint(IS_QUANT(B_TYPE) ? with_lost(block_sum[i], lost[i]) : acc[i]);
        acc[i] = 0.0;
        if (IS_QUANT(B_TYPE))
            block_sum[i] = lost[i] = 0.0;
    }
    barrier();
    for (uint block = 0; block < BLOCKS && k0 + block * MATMUL_BLOCK < p.k; block++) {
        bool ends = ends_group(k0 + (block + 1) * MATMUL_BLOCK);
        [[unroll]] for (uint i = 0; i < RESULTS; i++) {
            group[i] += uintBitsToFloat(b_tile[block * ROWS * COLUMNS + element_within(i)]);
            total[i] += ends ? group[i] : 0.0;
            group[i] = ends ? 0.0 : group[i];
        }
    }
    barrier();
}

void add_slices(uint a_base, uint b_base, uvec2 first)
{
    if (!BUNDLES)
        load_slice(a_base, b_base, first, 0);
    for (uint k0 = 0, slice = 0; k0 < p.k;) {
        if (BUNDLES) // beside a bundle there are no registers for the next slice
            load_slice(a_base, b_base, first, k0);
        stage_slice();
        barrier();
        uint step = k0;
        slice += SLICE;
        if (slice == MATMUL_BLOCK) {
            slice = 0;
            k0 += BLOCKS * MATMUL_BLOCK;
        }
        if (!BUNDLES && k0 < p.k)
            load_slice(a_base, b_base, first, k0 + slice);
        add_slice();
        barrier();
        if (slice == 0)
            add_blocks(step);
    }
}

// What is stored of result i.
float finished(uint i, uint index, uint column)
{
    float sum = (SUMS & SUMS_OPEN) == 0 ? total[i] + group[i] : total[i];
    float x = p.alpha * sum * column_scale(column);
    if (BIAS_TYPE != BIAS_NONE)
        x += LOAD(bias_words, p.bias_offset + column, BIAS_TYPE);
    return result_of(x, index);
}

void main()
{
    uint z = gl_WorkGroupID.z;
    uint batch = z / p.n_head, head = z % p.n_head;
    uint a_base = p.a_offset + batch * p.a_batch + head * p.a_head;
    uint b_base = p.b_offset + batch * p.b_batch + head / p.group * p.b_head;
    uint c_base = p.c_offset + batch * p.c_batch + head * p.c_head;
    uvec2 first = uvec2(gl_WorkGroupID.y * ROWS, gl_WorkGroupID.x * COLUMNS);
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        acc[i] = 0.0;
    [[unroll]] for (uint i = 0; i < CHAINS; i++)
        block_sum[i] = lost[i] = 0.0;
    [[unroll]] for (uint i = 0; i < RESULTS; i++) {
        uint e = element_of(i);
        vec2 earlier = earlier_sums(z, first.x + e / COLUMNS, first.y + e % COLUMNS);
        group[i] = earlier.y;
        total[i] = earlier.x;
    }
    init_grid(THREADS);
#ifdef MIXED_DOT
    add_slices(a_base, b_base, first);
#else
    if (LANES)
        add_lanes(a_base, b_base, first);
    else
        add_slices(a_base, b_base, first);
    if (LANES && SCALES && HAS_OFFSET(B_TYPE))
        mend_results(z, a_base, b_base, first);
#endif
    [[unroll]] for (uint i = 0; i < RESULTS; i += EACH) {
        uint e = element_of(i);
        uint row = first.x + e / COLUMNS, column = first.y + e % COLUMNS;
        if (e >= ROWS * COLUMNS || row >= p.m || column >= p.n)
            continue;
        uint index = c_base + row * p.c_row + column * p.c_col;
        float x = finished(i, index, column);
        if (PAIRS) {
            float next = finished(i + 1, index + 1, column + 1);
            c_words[index >> 1] = pair_word(vec2(x, next), C_TYPE);
            continue;
        }
        STORE(c_words, index, C_TYPE, x);
        if ((SUMS & SUMS_KEEP) != 0)
            c_words[index + 1] = floatBitsToUint((SUMS & SUMS_OPEN) != 0 ? group[i] : 0.0);
    }
}
