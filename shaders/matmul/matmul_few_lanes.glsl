// matmul_few with float32 A and quantised B. A lane sums a block of k of OWN_COLUMNS columns, whose
// bytes it reads by itself: nearby lanes read neighbours, and whole cache lines are used at once.
// Sixteen integers are multiplied in one chain, which then enters the block's sum times their scale;
// an offset does times the sum of the sixteen of A, in the order of tile_sum(). Or values are
// multiplied, in chains of QUANT_CHAIN: see SCALES_CHAINS. Blocks are added as in matmul_tile, in
// their order.
#include "lib/lane_blocks.glsl"

const uint ROW_GROUPS = THREADS / BLOCKS; // of OWN_COLUMNS columns
const uint A_LINE = MATMUL_BLOCK / 4, LINE_PITCH = FEW_PITCH(A_LINE);
const uint FOUR_SUMS = HAS_OFFSET(B_TYPE) ? ROWS * BLOCKS * 9 : 1;
shared vec4 four_sums[FOUR_SUMS]; // [row][block][k / 16]: sums of each four of A
float lane_sum[ROWS * OWN_COLUMNS]; // of the block
const bool SCALES = SCALES_CHAINS(A_TYPE, B_TYPE);
const uint LANE_LOST = !SCALES ? ROWS * OWN_COLUMNS : 1;
float lane_lost[LANE_LOST]; // by rounding of the sum

// Stages the blocks of A that begin at k0.
void stage_a(uint a_base, uint row0, uint k0)
{
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        uint vector = i * THREADS + gl_LocalInvocationIndex, line = vector / A_LINE;
        uint row = min(row0 + line / BLOCKS, p.m - 1), k = k0 + vector % (BLOCKS * A_LINE) * 4;
        vec4 x = vec4(0.0);
        if (A_VECTORS % THREADS != 0 && vector >= A_VECTORS)
            continue;
        if (EDGE == 0 || k < p.k)
            x = relu(uintBitsToFloat(
                load_a(A_VEC, a_base + row * p.a_row + k * p.a_col, p.a_col, p.k - k, A_TYPE)));
        a_tile[line * LINE_PITCH + vector % A_LINE] = x;
        if (HAS_OFFSET(B_TYPE))
            four_sums[line * 9 + vector % A_LINE / 4][vector % 4] = (x.x + x.y) + (x.z + x.w);
    }
}

// Adds 16 products of a column to the sum of each row; scale and offset as in name_scale().
void add_sixteen(uint column, uint block, uint g, vec4 b[4], float scale, float offset)
{
    [[unroll]] for (uint i = 0; i < ROWS; i++) {
        uint line = i * BLOCKS + block, at = line * LINE_PITCH + g * 4;
        float x = 0.0, sum = lane_sum[i * OWN_COLUMNS + column];
        if (!SCALES) {
            uint e = i * OWN_COLUMNS + column;
            x = add4(a_tile[at + 1], b[1], add4(a_tile[at], b[0], 0.0));
            add_exactly(lane_sum[e], lane_lost[e], x);
            x = add4(a_tile[at + 3], b[3], add4(a_tile[at + 2], b[2], 0.0));
            add_exactly(lane_sum[e], lane_lost[e], x);
            continue;
        }
        [[unroll]] for (uint j = 0; j < 4; j++)
            x = add4(a_tile[at + j], b[j], x);
        sum = add_scaled(scale, x, sum);
        if (HAS_OFFSET(B_TYPE)) {
            vec4 s = four_sums[line * 9 + g];
            sum = add_scaled(offset, (s.x + s.y) + (s.z + s.w), sum);
        }
        lane_sum[i * OWN_COLUMNS + column] = sum;
    }
}

// Adds blocks of a type whose rows are no whole words.
void add_bytes(uint b_base, uint column0, uint block, uint k)
{
    [[unroll]] for (uint c = 0; c < OWN_COLUMNS; c++) {
        uint line = b_base + min(column0 + c, p.n - 1) * p.b_row;
        [[dont_unroll]] for (uint g = 0; g < 8 && k + 16 * g < p.k; g++) {
            vec2 scale = load_quants_scale(line, k + 16 * g, B_TYPE);
            vec4 b[4];
            [[unroll]] for (uint j = 0; j < 4; j++) {
                b[j] = vec4(0.0);
                if (EDGE == 0 || k + 16 * g + 4 * j < p.k)
                    b[j] = load_quants_integers(line, k + 16 * g + 4 * j, B_TYPE) *
                           (SCALES ? 1.0 : scale.x);
            }
            add_sixteen(c, block, g, b, scale.x, scale.y);
        }
    }
}

void load_lanes(uint b_base, uint column0, uint k, uint read)
{
    uint left = p.k - k; // of which a row has whole bundles
    [[unroll]] for (uint c = 0; c < OWN_COLUMNS; c++) {
        uint line = b_base + min(column0 + c, p.n - 1) * p.b_row;
        uint count = left >= MATMUL_BLOCK ? LANE_WORDS
                     : read > 0           ? 0
                                          : BUNDLE_PAIR_WORDS(B_TYPE) / 2;
        load_lane_words(c, line, k / MATMUL_BLOCK, read, count);
    }
}

void add_words(uint block, uint k, uint read)
{
    const uint granules = 8 / LANE_READS;
    [[unroll]] for (uint c = 0; c < OWN_COLUMNS; c++)
        unpack_lane_scales(c, k / MATMUL_BLOCK, read);
    [[unroll]] for (uint g = 0; g < granules; g++)
        [[unroll]] for (uint c = 0; c < OWN_COLUMNS; c++) {
            vec2 scale = lane_scales[c * LANE_SCALES + g * LANE_SCALES / 8];
            vec4 b[4];
            [[unroll]] for (uint j = 0; j < 4; j++)
                b[j] = lane_integers(c, read, g, j) * (SCALES ? 1.0 : scale[g % 2]);
            float own = PAIR_SCALES ? scale[g % 2] : scale.x;
            add_sixteen(c, block, read * granules + g, b, own, scale.y);
        }
}

// Adds the sums of the blocks that begin at k0, which lanes have put into b_tile, to the results.
void add_lane_sums(uint k0)
{
    uint end = k0 + BLOCKS * MATMUL_BLOCK; // a group is whole such steps
    [[unroll]] for (uint i = 0; i < RESULTS; i++) {
        uint at = element_within(i);
        [[unroll]] for (uint block = 0; block < BLOCKS; block++) // beyond k they are 0
            group[i] += uintBitsToFloat(b_tile[block * ROWS * COLUMNS + at]);
        if (end <= p.k && ends_group(end)) {
            total[i] += group[i];
            group[i] = 0.0;
        }
    }
}

const uint READS = B_VEC != 0 && LANE_READS > 1 ? LANE_READS : 0; // read one after the other

void add_lanes(uint a_base, uint b_base, uvec2 first)
{
    uint lane = gl_LocalInvocationIndex % BLOCKS, set = gl_LocalInvocationIndex / BLOCKS;
    uint column0 = first.y + set * OWN_COLUMNS;
    init_integers();
    init_table();
    for (uint k0 = 0; k0 < p.k; k0 += BLOCKS * MATMUL_BLOCK) {
        uint k = k0 + lane * MATMUL_BLOCK;
        bool inside = EDGE == 0 || k < p.k;
        if (B_VEC != 0 && LANE_READS == 1 && inside) // while A is staged
            load_lanes(b_base, column0, k, 0);
        stage_a(a_base, first.x, k0);
        [[unroll]] for (uint i = 0; i < ROWS * OWN_COLUMNS; i++)
            lane_sum[i] = lane_lost[i % LANE_LOST] = 0.0;
        barrier();
        if (B_VEC == 0 && inside)
            add_bytes(b_base, column0, lane, k);
        else if (LANE_READS == 1 && inside)
            add_words(lane, k, 0);
        [[dont_unroll]] for (uint read = 0; read < READS && inside; read++) {
            load_lanes(b_base, column0, k, read);
            add_words(lane, k, read);
        }
        [[unroll]] for (uint i = 0; i < ROWS * OWN_COLUMNS; i++) {
            uint column = set * OWN_COLUMNS + i % OWN_COLUMNS;
            uint at = (lane * ROWS + i / OWN_COLUMNS) * COLUMNS + column;
            float sum = SCALES ? lane_sum[i] : with_lost(lane_sum[i], lane_lost[i % LANE_LOST]);
            b_tile[at] = floatBitsToUint(sum);
        }
        barrier();
        add_lane_sums(k0);
    }
}
