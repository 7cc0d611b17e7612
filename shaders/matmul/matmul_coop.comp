// Matrix product with the device's matrix units: 16-bit inputs, float32 sums. A workgroup takes a
// tile of C: SUBS_M x SUBS_N subgroups hold MATS_M x MATS_N matrices of it each; others only load.
// DEPTH k of both inputs at a time are in shared memory, while the next ones load; with HALVES one
// half of them is stored while the other is multiplied. Each element is summed in steps of K,
// whatever the tile: so its bits do not depend on the number of rows. Any size and strides; both
// inputs have type A_TYPE, or B is quantised and rounded to it. See matmul_params.
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
#include "params/params.h"
#include "lib/dtype.glsl"
#include "lib/vectors.glsl"

layout(constant_id = MATMUL_A_TYPE) const uint A_TYPE = TYPE_F16;
layout(constant_id = MATMUL_B_TYPE) const uint B_TYPE = TYPE_F16; // A_TYPE or quantised
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
layout(constant_id = MATMUL_COOP_SUBS_M) const uint SUBS_M = 4;
layout(constant_id = MATMUL_COOP_SUBS_N) const uint SUBS_N = 2;
layout(constant_id = MATMUL_COOP_LANES) const uint LANES = 32;
layout(constant_id = MATMUL_COOP_DEPTH) const uint DEPTH = 32;
layout(constant_id = MATMUL_COOP_A_ROWS) const uint A_ROWS = 128;
layout(constant_id = MATMUL_COOP_EDGE) const uint EDGE = 3;
layout(constant_id = MATMUL_COOP_C_VEC) const uint C_VEC = 0;
layout(constant_id = MATMUL_COOP_HALVES) const uint HALVES = 0;

layout(local_size_x_id = MATMUL_COOP_THREADS) in;
layout(binding = 0) readonly buffer A { uint a_words[]; };
layout(binding = 0) readonly buffer A8 { uvec4 a_vectors[]; };
layout(binding = 1) readonly buffer B { uint b_words[]; };
layout(binding = 1) readonly buffer B8 { uvec4 b_vectors[]; };
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
layout(binding = 3) buffer C { uint c_words[]; };
layout(binding = 3) writeonly buffer C8 { uvec4 c_vectors[]; };
layout(push_constant) uniform Push { matmul_params p; };
#include "lib/sums.glsl"
#include "lib/scale.glsl"
VECTOR_LOADER(load_a, a_words, a_vectors)
VECTOR_LOADER(load_b, b_words, b_vectors)
QUANT_READER(load_quants, b_words)
#define GRID_TYPE B_TYPE
#define GRID 6
#include "lib/grids.glsl"
#define BUNDLE_TYPE B_TYPE
#include "lib/bundles.glsl"

const uint BM = SUBS_M * MATS_M * M;
const uint BN = SUBS_N * MATS_N * N;
const bool IDLE = THREADS > SUBS_M * SUBS_N * LANES; // some subgroups only load
// A vector is 8 elements along k, one uvec4; with quantised B each four of both inputs lie in the
// order 0, 2, 1, 3, in which bytes become halves. Rows are padded by one vector, so that the rows
// of a matrix start in different banks. Rows of A from A_ROWS on are any values: no result that is
// stored depends on them.
const uint MOST_UNROLLED = M < 16 ? 32 : 64; // k: registers hold no more operands
// A tile is stored in STAGES of STAGE_DEPTH k; place_of() and the loads of an invocation are those
// of one.
const uint STAGES = HALVES != 0 ? 2 : 1;
const uint STAGE_DEPTH = DEPTH / STAGES;
const uint ROW_VECTORS = STAGE_DEPTH / 8;
const uint UNROLLED = STAGE_DEPTH < MOST_UNROLLED ? STAGE_DEPTH : MOST_UNROLLED;
// With BUNDLES the words of quantised B pass through shared memory as they are, and a lane decodes
// bundles of 64 values. Each bundle is padded by a vector too: lanes store bundles at once.
const bool BUNDLES = IS_QUANT(B_TYPE) && B_VEC != 0;
#define PADDED(vector) (BUNDLES ? (vector) + (vector) / 8 : (vector))
const uint PITCH = BUNDLES ? DEPTH / 64 * 9 | 1 : DEPTH / 8 + 1;
const uint ROW_BUNDLES = DEPTH / 64;
const uint RAW_WORDS = DEPTH / 128 * BUNDLE_PAIR_WORDS(B_TYPE); // of a column
const uint RAW_VECTORS = RAW_HALVES ? RAW_HALF_VECTORS(DEPTH) : (RAW_WORDS + 3) / 4;
const uint RAW_LOADS = BUNDLES ? (BN * RAW_VECTORS + THREADS - 1) / THREADS : 1; // of an invocation
const uint A_LOADS = (A_ROWS * ROW_VECTORS + THREADS - 1) / THREADS; // vectors of an invocation
const uint B_LOADS = (BN * ROW_VECTORS + THREADS - 1) / THREADS;
// Rows of A, [m][k], then of B, [n][k]. Matrices of few rows of A go on into those of B.
const uint B_FIRST = A_ROWS * PITCH;
shared uvec4 tiles[(A_ROWS + BN > BM ? A_ROWS + BN : BM) * PITCH];
const uint RESULTS = SUBS_M * SUBS_N * M * N; // M x N floats a subgroup
shared float results[RESULTS + (BUNDLES ? BN * RAW_VECTORS * 4 : 0)]; // then words of B, [n][k]

// Places of vectors, where they are whole, else of elements. With A_STEPS or B_STEPS the vectors of
// an invocation are as many rows apart, and only the first place is kept: other registers hold
// matrices.
uint a_at[A_LOADS], b_at[B_LOADS];
const uint FEW = SUBS_M * MATS_M * MATS_N == 1 || IS_QUANT(B_TYPE) ? 1 : 0; // have registers as it is
const uint UNEVEN = FEW + (EDGE & COOP_EDGE_MN) + THREADS % ROW_VECTORS;
const bool A_STEPS = A_VEC != 0 && UNEVEN + A_ROWS * ROW_VECTORS % THREADS == 0;
const bool B_STEPS = B_VEC != 0 && UNEVEN + BN * ROW_VECTORS % THREADS == 0;
uvec4 a_next[STAGES * A_LOADS], b_next[STAGES * B_LOADS];
#define A_NEXT(i) a_next[stage * A_LOADS + i]
#define B_NEXT(i) b_next[stage * B_LOADS + i]
uint raw_at[RAW_LOADS]; // of words; with RAW_HALVES of the row, in half words
uint raw_first;         // with RAW_HALVES: of the tile's first row, in half words
uvec4 raw_next[RAW_LOADS];

uint raw_word(uint i) { return floatBitsToUint(results[RESULTS + i]); }
coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> acc[MATS_M * MATS_N];

// max(x, 0) of two elements; keeps NaN of either sign.
uint relu2(uint pair)
{
    uint low = pair & 0xffffu, high = pair >> 16;
    low = low > 0x8000u && low <= (0x8000u | HALF_INFINITY) ? 0u : low;
    high = high > 0x8000u && high <= (0x8000u | HALF_INFINITY) ? 0u : high;
    return high << 16 | low;
}

uint half_pair(vec2 x)
{
#ifdef BFLOAT16
    return bf16_from_float(x.x) | bf16_from_float(x.y) << 16;
#else
    return packFloat2x16(f16vec2(x));
#endif
}

// Eight quantised values of a row, rounded to 16 bits; those beyond p.k meet 0 of A.
uvec4 round_quants(uint line, uint k)
{
    vec4 low = load_quants(line, k, B_TYPE), high = vec4(0.0);
    if (B_TYPE != TYPE_I8 || k + 4 < p.k)
        high = load_quants(line, k + 4, B_TYPE);
    return uvec4(half_pair(low.xz), half_pair(low.yw), half_pair(high.xz), half_pair(high.yw));
}

// Eight halves of A, each four of them in the order 0, 2, 1, 3.
uvec4 in_order(uvec4 x)
{
    uvec2 even = (x.xz & 0xffffu) | x.yw << 16, odd = x.xz >> 16 | (x.yw & 0xffff0000u);
    return uvec4(even.x, odd.x, even.y, odd.y);
}

// Four values of a bundle, in that order. A float16 of 1,024 and more counts ones.
uvec2 bundle_halves(bundle r, uint sub, uint i)
{
#ifndef BFLOAT16
    if (B_TYPE == TYPE_Q8_0 || B_TYPE == TYPE_Q4_0 || B_TYPE == TYPE_Q5_0) {
        uint d = bundle_half(r, bundle_scale_at(sub));
        f16vec2 scale = unpackFloat2x16(d | d << 16), bias = f16vec2(1024.0 + BUNDLE_BIAS);
        uvec2 x = bundle_bytes(r, sub, i) | 0x64006400u;
        f16vec2 even = unpackFloat2x16(x.x) - bias, odd = unpackFloat2x16(x.y) - bias;
        return uvec2(packFloat2x16(even * scale), packFloat2x16(odd * scale));
    }
    if (B_TYPE == TYPE_Q6_K) {
        uvec2 x = bundle_bytes(r, sub, i) | 0x64006400u;
        f16vec2 bias = f16vec2(1024.0 + BUNDLE_BIAS);
        float scale = bundle_scale_q6_k(r, sub, i);
        return uvec2(half_pair(scale * vec2(unpackFloat2x16(x.x) - bias)),
                     half_pair(scale * vec2(unpackFloat2x16(x.y) - bias)));
    }
#endif
    vec4 x = bundle_values(r, sub, i);
    return uvec2(half_pair(x.xz), half_pair(x.yw));
}

// Vector i of an invocation: its row of the tile, and the first of its k.
uvec2 place_of(uint i)
{
    uint own = gl_LocalInvocationIndex, vector = own + i * THREADS;
    if (UNEVEN == 0) // the same k: what follows from i is constant
        return uvec2(own / ROW_VECTORS + i * (THREADS / ROW_VECTORS), own % ROW_VECTORS * 8);
    return uvec2(vector / ROW_VECTORS, vector % ROW_VECTORS * 8);
}

// Finds the vectors of an invocation. Beyond the tile or the edge are its last row and column.
void find_vectors(uint a_base, uint b_base, uvec2 first)
{
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        uvec2 place = place_of(i);
        uint row = first.x + min(place.x, A_ROWS - 1);
        row = (EDGE & COOP_EDGE_MN) != 0 ? min(row, p.m - 1) : row;
        a_at[i] = a_base + row * p.a_row + place.y * p.a_col;
        a_at[i] = A_VEC != 0 ? a_at[i] / 8 : a_at[i];
    }
    raw_first = (b_base + first.y * p.b_row) / 2;
    [[unroll]] for (uint i = 0; BUNDLES && i < RAW_LOADS; i++) {
        uint vector = gl_LocalInvocationIndex + i * THREADS;
        uint column = first.y + min(vector / RAW_VECTORS, BN - 1);
        column = (EDGE & COOP_EDGE_MN) != 0 ? min(column, p.n - 1) : column;
        uint line = b_base + column * p.b_row;
        raw_at[i] = RAW_HALVES ? line / 2 : line / 4 + vector % RAW_VECTORS * 4;
    }
    [[unroll]] for (uint i = 0; !BUNDLES && i < B_LOADS; i++) {
        uvec2 place = place_of(i);
        uint column = first.y + min(place.x, BN - 1);
        column = (EDGE & COOP_EDGE_MN) != 0 ? min(column, p.n - 1) : column;
        b_at[i] = b_base + column * p.b_row + (IS_QUANT(B_TYPE) ? 0 : place.y * p.b_col);
        b_at[i] = B_VEC != 0 && !IS_QUANT(B_TYPE) ? b_at[i] / 8 : b_at[i];
    }
}

// Loads words of quantised B from k0 on; 0 beyond the end of k.
void load_raw(uint k0)
{
    uint skip = k0 / 128 * BUNDLE_PAIR_WORDS(B_TYPE), count = min(raw_words_left(k0), RAW_WORDS);
    bool inside = (EDGE & COOP_EDGE_K) == 0, whole = inside && RAW_WORDS % 4 == 0;
    [[unroll]] for (uint i = 0; i < RAW_LOADS; i++) {
        uint vector = gl_LocalInvocationIndex + i * THREADS;
        raw_next[i] = uvec4(0);
        if (BN * RAW_VECTORS % THREADS != 0 && vector >= BN * RAW_VECTORS)
            continue;
        if (RAW_HALVES)
            raw_next[i] = load_half_vector(raw_at[i], k0, vector % RAW_VECTORS,
                                           inside && RAW_HALF_WHOLE(DEPTH));
        else
            raw_next[i] = load_raw_vector(raw_at[i] + skip, vector % RAW_VECTORS * 4, count, whole);
    }
}

// Loads a stage of the tiles, which begins at k0; 0 beyond the end of k.
void load_tiles(uint stage, uint k0)
{
    uint a_step = THREADS / ROW_VECTORS * (p.a_row / 8);
    uint b_step = THREADS / ROW_VECTORS * (p.b_row / 8);
    if (BUNDLES)
        load_raw(k0);
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        uint k = k0 + place_of(i).y;
        A_NEXT(i) = uvec4(0);
        if ((EDGE & COOP_EDGE_K) != 0 && k >= p.k)
            continue;
        A_NEXT(i) = A_STEPS      ? a_vectors[a_at[0] + k0 / 8 + i * a_step]
                    : A_VEC != 0 ? a_vectors[a_at[i] + k0 / 8]
                               : load_a(0, a_at[i] + k0 * p.a_col, p.a_col, p.k - k, A_TYPE);
        if (RELU != 0)
            A_NEXT(i) = uvec4(relu2(A_NEXT(i).x), relu2(A_NEXT(i).y), relu2(A_NEXT(i).z),
                              relu2(A_NEXT(i).w));
    }
    [[unroll]] for (uint i = 0; !BUNDLES && i < B_LOADS; i++) {
        uint k = k0 + place_of(i).y;
        B_NEXT(i) = uvec4(0);
        if ((EDGE & COOP_EDGE_K) != 0 && k >= p.k)
            continue;
        if (IS_QUANT(B_TYPE)) {
            B_NEXT(i) = round_quants(b_at[i], k);
            continue;
        }
        B_NEXT(i) = B_STEPS      ? b_vectors[b_at[0] + k0 / 8 + i * b_step]
                    : B_VEC != 0 ? b_vectors[b_at[i] + k0 / 8]
                               : load_b(0, b_at[i] + k0 * p.b_col, p.b_col, p.k - k, A_TYPE);
    }
}

void stage_raw()
{
    [[unroll]] for (uint i = 0; i < RAW_LOADS; i++) {
        uint vector = gl_LocalInvocationIndex + i * THREADS;
        if (BN * RAW_VECTORS % THREADS == 0 || vector < BN * RAW_VECTORS)
            [[unroll]] for (uint e = 0; e < 4; e++)
                results[RESULTS + vector * 4 + e] = uintBitsToFloat(raw_next[i][e]);
    }
}

// Decodes the bundles from k0 on.
void stage_bundles(uint k0)
{
    [[unroll]] for (uint first = 0; first < BN * ROW_BUNDLES; first += THREADS) {
        uint i = first + gl_LocalInvocationIndex;
        if (BN * ROW_BUNDLES % THREADS != 0 && i >= BN * ROW_BUNDLES)
            continue;
        uint column = i / ROW_BUNDLES, at = B_FIRST + column * PITCH;
        bundle r;
        if (RAW_HALVES)
            r = load_bundle_q6_k(column * RAW_VECTORS * 8 + half_skew(raw_first, column, k0),
                                 i % ROW_BUNDLES);
        else
            r = load_bundle(column * RAW_VECTORS * 4, i % ROW_BUNDLES);
        at += RAW_HALVES ? i % ROW_BUNDLES / 2 * 18 + i % 2 * 2 : i % ROW_BUNDLES * 9;
        [[unroll]] for (uint c = 0; c < 8; c++)
            tiles[at + (RAW_HALVES ? c / 2 * 4 + c / 4 + c % 2 : c)] =
                uvec4(bundle_halves(r, c / 4, c % 4 * 2), bundle_halves(r, c / 4, c % 4 * 2 + 1));
    }
}

// Stores a stage of the tiles; the tiles begin at k0.
void stage_tiles(uint stage, uint k0)
{
    if (BUNDLES) {
        stage_raw();
        barrier(); // also: the tiles before these have been read
        stage_bundles(k0);
    }
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        uvec2 place = place_of(i);
        if (A_ROWS * ROW_VECTORS % THREADS == 0 || place.x < A_ROWS)
            tiles[place.x * PITCH + PADDED(stage * ROW_VECTORS + place.y / 8)] =
                IS_QUANT(B_TYPE) ? in_order(A_NEXT(i)) : A_NEXT(i);
    }
    [[unroll]] for (uint i = 0; !BUNDLES && i < B_LOADS; i++) {
        uvec2 place = place_of(i);
        if (BN * ROW_VECTORS % THREADS == 0 || place.x < BN)
            tiles[B_FIRST + place.x * PITCH + stage * ROW_VECTORS + place.y / 8] = B_NEXT(i);
    }
}

#include "matmul/matmul_coop_store.glsl"

void sync_results()
{
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease);
}

// The tile of a workgroup, its column first. Those at work together fill COOP_BAND rows of tiles,
// so that what they read of both inputs is a smaller fraction of the second-level cache.
uvec2 tile_of_group()
{
    uvec2 size = gl_NumWorkGroups.xy;
    if (BM < 64) // few rows of tiles, or one
        return gl_WorkGroupID.xy;
    uint linear = gl_WorkGroupID.y * size.x + gl_WorkGroupID.x;
    uint band = linear / (COOP_BAND * size.x), i = linear - band * COOP_BAND * size.x;
    uint rows = min(size.y - band * COOP_BAND, COOP_BAND);
    return uvec2(i / rows, band * COOP_BAND + i % rows);
}

// Adds UNROLLED k of the tiles, from k0 on, a multiple of it.
void add_unrolled(uvec2 own, uint k0)
{
    uint vector = PADDED(k0 / 8);
    [[unroll]] for (uint k = 0; k < UNROLLED; k += K) {
        coopmat<HALF, gl_ScopeSubgroup, M, K, gl_MatrixUseA> a[MATS_M];
        [[unroll]] for (uint i = 0; i < MATS_M; i++)
            coopMatLoad(a[i], tiles, (own.x + i * M) * PITCH + vector + k / 8, PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint j = 0; j < MATS_N; j++) {
            coopmat<HALF, gl_ScopeSubgroup, K, N, gl_MatrixUseB> b;
            coopMatLoad(b, tiles, B_FIRST + (own.y + j * N) * PITCH + vector + k / 8, PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            [[unroll]] for (uint i = 0; i < MATS_M; i++)
                acc[i * MATS_N + j] = coopMatMulAdd(a[i], b, acc[i * MATS_N + j]);
        }
    }
}

// Adds all k, a tile after the other.
void add_whole(uvec2 own, bool adds)
{
    load_tiles(0, 0);
    for (uint k0 = 0; k0 < p.k; k0 += DEPTH) {
        stage_tiles(0, k0);
        barrier();
        if (k0 + DEPTH < p.k)
            load_tiles(0, k0 + DEPTH);
        if (adds && DEPTH == UNROLLED)
            add_unrolled(own, 0);
        else if (adds)
            [[dont_unroll]] for (uint k = 0; k < DEPTH; k += UNROLLED)
                add_unrolled(own, k);
        if (!BUNDLES)
            barrier();
    }
}

// Adds all k by halves of a tile: what is stored or loads meanwhile is the other half, so that one
// barrier stands between two of them, and a load has the time of two to arrive.
void add_halves(uvec2 own)
{
    load_tiles(0, 0);
    load_tiles(1, STAGE_DEPTH);
    stage_tiles(0, 0);
    if (DEPTH < p.k)
        load_tiles(0, DEPTH);
    for (uint k0 = 0; k0 < p.k; k0 += DEPTH) {
        bool more = k0 + DEPTH < p.k;
        barrier(); // the first half is there, the second has been read
        stage_tiles(1, k0);
        if (more)
            load_tiles(1, k0 + DEPTH + STAGE_DEPTH);
        add_unrolled(own, 0);
        barrier();
        if (more)
            stage_tiles(0, k0 + DEPTH);
        if (k0 + 2 * DEPTH < p.k)
            load_tiles(0, k0 + 2 * DEPTH);
        add_unrolled(own, STAGE_DEPTH);
    }
}

void main()
{
    uint z = gl_WorkGroupID.z;
    uint batch = z / p.n_head, head = z % p.n_head;
    uint a_base = p.a_offset + batch * p.a_batch + head * p.a_head;
    uint b_base = p.b_offset + batch * p.b_batch + head / p.group * p.b_head;
    uint c_base = p.c_offset + batch * p.c_batch + head * p.c_head;
    uvec2 first = tile_of_group().yx * uvec2(BM, BN);
    uvec2 own = uvec2(gl_SubgroupID % SUBS_M * MATS_M * M,
                      gl_SubgroupID / SUBS_M * MATS_N * N); // place in the tile
    uint mine = gl_SubgroupID * M * N;                      // its matrix in results
    bool adds = !IDLE || gl_SubgroupID < SUBS_M * SUBS_N;

    [[unroll]] for (uint i = 0; i < MATS_M * MATS_N; i++) {
        acc[i] = coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(0.0);
        if ((SUMS & SUMS_LOAD) != 0) { // every subgroup comes to every barrier
            if (adds)
                fetch_matrix(first + own + uvec2(i / MATS_N * M, i % MATS_N * N), mine);
            sync_results();
            if (adds)
                coopMatLoad(acc[i], results, mine, N, gl_CooperativeMatrixLayoutRowMajor);
            sync_results();
        }
    }
    init_grid(THREADS);
    find_vectors(a_base, b_base, first);
    if (STAGES > 1) // no quantised B, and no subgroup only loads
        add_halves(own);
    else
        add_whole(own, adds);
    if (!adds)
        return;
    [[unroll]] for (uint i = 0; i < MATS_M; i++)
        [[unroll]] for (uint j = 0; j < MATS_N; j++) {
            coopMatStore(acc[i * MATS_N + j], results, mine, N,
                         gl_CooperativeMatrixLayoutRowMajor);
            sync_results();
            store_matrix(c_base, first + own + uvec2(i * M, j * N), mine);
            sync_results();
        }
}
