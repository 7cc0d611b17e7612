// linear_weights on the device's matrix units: products of rows of keys and queries, of which it leaves
// vectors for linear_chunked_coop. See LINEAR_M.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "params/params.h"
#include "params/model.h"
#include "params/state.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"
#include "lib/math.glsl"
#include "lib/activation.glsl"
#include "lib/decay.glsl"
#include "lib/start.glsl"
#include "state/linear.glsl"
#include "state/chunk.glsl"
#include "state/chunk_coop.glsl"

layout(binding = 0) readonly buffer Q8 { uvec4 q_vectors[]; };
layout(binding = 1) readonly buffer K8 { uvec4 k_vectors[]; };
layout(binding = 13) writeonly buffer Weights { uvec4 weights[]; };
layout(binding = 13) writeonly buffer WeightLists { float lists[]; };

// Vectors of features of a row that are staged, and from one row to the next: in other banks.
const uint DEPTH8 = C8, STAGE_PITCH = DEPTH8 + 1;
const uint DOTS = C / SIZE_N;                     // matrices of a subgroup's tokens with all
const uint STAGED = 2 * C * STAGE_PITCH, PAIRS = C * (QUADS + 1);
shared uvec4 stage[STAGED > PAIRS ? STAGED : PAIRS]; // [k, q][token][8 features], or products [j][four i]
shared uint tops[C]; // bits of the greatest of each row of A, or of T

ACCUMULATOR dots[DOTS];
uint lane;

#include "state/within.glsl"

vec4 matrix_four(uint at) { return uintBitsToFloat(stage[at]); }

void set_matrix_four(uint at, vec4 x) { stage[at] = floatBitsToUint(x); }

// ---- Rows ---------------------------------------------------------------------------------------

// Rows of bfloat16 are multiplied by a power of two each, and those of float16 whose words are not copied, as
// drivers may flush their least numbers; that of the greatest number which is one.
vec2 factors_of(uint side, uint row)
{
    vec2 factors = length_of(side, row);
    if (has(LINEAR_VECTORS) && (side == OF_K ? K_TYPE : Q_TYPE) == TYPE_F16)
        return vec2(factors.x, 1.0);
    uint first = first_of(side, row), step = side == OF_K ? p.k.stride3 : p.q.stride3, top = 0;
    [[dont_unroll]] for (uint c = 0; c < FOURS; c++) {
        vec4 x = row_of(side, first + 4 * c * step, features_from(4 * c, p.head_dim));
        [[unroll]] for (uint j = 0; j < 4; j++)
            top = max(top, bits_of(x[j]) < 0x7f800000u ? bits_of(x[j]) : 0u);
    }
    return vec2(factors.x * grown_by(top) * factors.y, reduced_by(top));
}

// Eight features of a row of float16.
uvec4 load_vector(uint side, uint first, uint feature, float by)
{
    uint type = side == OF_K ? K_TYPE : Q_TYPE, step = side == OF_K ? p.k.stride3 : p.q.stride3;
    vec4 x, y;
    if (has(LINEAR_VECTORS)) {
        uint at = first + feature >> 3;
        uvec4 words = uvec4(0);
        if (feature < p.head_dim)
            words = side == OF_K ? k_vectors[at] : q_vectors[at];
        if (type == TYPE_F16)
            return words;
        x = decode4(words.xy, type);
        y = decode4(words.zw, type);
    } else {
        x = row_of(side, first + feature * step, features_from(feature, p.head_dim));
        y = row_of(side, first + (feature + 4) * step, features_from(feature + 4, p.head_dim));
    }
    x *= by;
    y *= by;
    return uvec4(packFloat2x16(f16vec2(x.xy)), packFloat2x16(f16vec2(x.zw)),
                 packFloat2x16(f16vec2(y.xy)), packFloat2x16(f16vec2(y.zw)));
}

// Stages vectors first8 .. of all keys, and of all queries where these are the side, and then leaves them;
// rows from n on are 0.
void stage_rows(uint side, uint row, uint n, uint first8, uint base)
{
    [[dont_unroll]] for (uint i = lane; i < (side == OF_Q ? 2 : 1) * C * DEPTH8; i += LANES) {
        uint of = i / (C * DEPTH8), t = i / DEPTH8 % C, d = i % DEPTH8;
        uvec4 x = uvec4(0);
        if (t < n)
            x = load_vector(of, first_of(of, row + t), 8 * (first8 + d), lengths[of * C + t].y);
        stage[(i / DEPTH8) * STAGE_PITCH + d] = x;
        if (side == OF_Q)
            weights[base + (of == OF_K ? WEIGHTS_K_ROWS : WEIGHTS_Q_ROWS) + t * D8 + first8 + d] = x;
    }
}

uint low_pair(uint a, uint b) { return a & 0xffffu | b << 16; }

uint high_of(uint a, uint b) { return a >> 16 | b & 0xffff0000u; }

// Leaves staged keys turned: a lane has two features of eight tokens.
void leave_turned(uint first8, uint base)
{
    [[dont_unroll]] for (uint i = lane; i < 4 * DEPTH8 * C8; i += LANES) {
        uint t = i % C8, word = i / C8, at = 8 * t * STAGE_PITCH + word / 4;
        uint x[8];
        [[unroll]] for (uint j = 0; j < 8; j++)
            x[j] = stage[at + j * STAGE_PITCH][word % 4];
        uint to = base + WEIGHTS_TURNED + (8 * first8 + 2 * word) * C8 + t;
        weights[to] = uvec4(low_pair(x[0], x[1]), low_pair(x[2], x[3]), low_pair(x[4], x[5]),
                            low_pair(x[6], x[7]));
        weights[to + C8] = uvec4(high_of(x[0], x[1]), high_of(x[2], x[3]), high_of(x[4], x[5]),
                                 high_of(x[6], x[7]));
    }
}

// ---- Products -----------------------------------------------------------------------------------

uint own_token() { return gl_SubgroupID * SIZE_M; } // first of the subgroup

// Products of the subgroup's rows of a side with all keys, of DEPTH8 vectors. Leaving later keys out costs
// more than their matrices: NVK then moves all sums at each of these.
void add_products(uint side)
{
    [[dont_unroll]] for (uint d = 0; d < DEPTH8; d += SIZE_K / 8) {
        LEFT a;
        coopMatLoad(a, stage, (side * C + own_token()) * STAGE_PITCH + d, STAGE_PITCH,
                    gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint j = 0; j < DOTS; j++) {
            RIGHT b;
            coopMatLoad(b, stage, j * SIZE_N * STAGE_PITCH + d, STAGE_PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            dots[j] = coopMatMulAdd(a, b, dots[j]);
        }
    }
}

// Products take the place of what was staged.
void multiply(uint side, uint row, uint n, uint base)
{
    [[unroll]] for (uint j = 0; j < DOTS; j++)
        dots[j] = ACCUMULATOR(0.0);
    [[dont_unroll]] for (uint first8 = 0; first8 < D8; first8 += DEPTH8) {
        barrier(); // the stage has been read
        stage_rows(side, row, n, first8, base);
        barrier();
        if (side == OF_Q)
            leave_turned(first8, base);
        add_products(side);
    }
    barrier();
    [[unroll]] for (uint j = 0; j < DOTS; j++)
        coopMatStore(dots[j], stage, j * SIZE_N * (QUADS + 1) + own_token() / 4, QUADS + 1,
                     gl_CooperativeMatrixLayoutColumnMajor);
    barrier();
}

// Products become A, or those with keys L: a lane has a half of column j. Decays are summed as in
// linear_weights.
void weigh(uint side)
{
    [[dont_unroll]] for (uint item = lane; item < 2 * C; item += LANES) {
        uint j = item % C, first = item / C * (C / 2);
        float sum = 0.0, of_key = lengths[j].x;
        [[dont_unroll]] for (uint i = j + 1; i < first; i++)
            sum += gate_stage[i].x;
        [[dont_unroll]] for (uint q = first / 4; q < first / 4 + QUADS / 2; q++) {
            vec4 x = matrix_four(j * (QUADS + 1) + q);
            [[unroll]] for (uint c = 0; c < 4; c++) {
                uint i = 4 * q + c;
                sum += i > j ? gate_stage[i].x : 0.0;
                float f = DECAY == DECAY_NONE ? 1.0 : decay_factor(decay_code(sum));
                f *= side == OF_K ? gate_stage[i].y : 1.0;
                precise float y = x[c] * of_key * lengths[side * C + i].x; // the two might overflow
                x[c] = i < j || (side == OF_K && i == j) ? 0.0 : y * f;
            }
            set_matrix_four(j * (QUADS + 1) + q, x);
        }
    }
    barrier();
}

// ---- What is left -------------------------------------------------------------------------------

// Element of A, or of T: 0 of a later token, whatever its beta is.
float element_of(uint side, uint i, uint j)
{
    if (j > i)
        return 0.0;
    float x = uintBitsToFloat(stage[j * (QUADS + 1) + i / 4][i % 4]);
    return side == OF_K ? x * gate_stage[j].y : x;
}

void write_matrix(uint side, uint base)
{
    if (lane < C) {
        uint top = 0;
        [[dont_unroll]] for (uint j = 0; j <= lane; j++)
            top = max(top, bits_of(element_of(side, lane, j)));
        tops[lane] = top;
        lists[4 * (base + WEIGHTS_LISTS) + (side == OF_K ? LIST_T : LIST_A) * C + lane] =
            grown_by(top);
    }
    barrier();
    [[dont_unroll]] for (uint item = lane; item < MATRIX; item += LANES) {
        uint i = item / C8, j = 8 * (item % C8);
        vec4 x, y;
        [[unroll]] for (uint c = 0; c < 4; c++) {
            x[c] = element_of(side, i, j + c);
            y[c] = element_of(side, i, j + 4 + c);
        }
        uvec4 low, high = high_vector(x, y, reduced_by(tops[i]), low);
        uint to = base + (side == OF_K ? WEIGHTS_T_PAIRS : WEIGHTS_A_PAIRS) + item;
        weights[to] = high;
        weights[to + MATRIX] = low;
    }
}

void write_lists(uint base)
{
    if (lane >= C)
        return;
    float sum = 0.0, rest = 0.0, whole = 0.0;
    [[dont_unroll]] for (uint i = 0; i < C; i++) {
        sum += i <= lane ? gate_stage[i].x : 0.0;
        rest += i > lane ? gate_stage[i].x : 0.0;
        whole += gate_stage[i].x;
    }
    float f = DECAY == DECAY_NONE ? 1.0 : decay_factor(decay_code(sum));
    float last = DECAY == DECAY_NONE ? 1.0 : decay_factor(decay_code(rest));
    uint to = 4 * (base + WEIGHTS_LISTS) + lane;
    lists[to + LIST_K * C] = f * lengths[lane].x;
    lists[to + LIST_Q * C] = f * lengths[C + lane].x;
    lists[to + LIST_WRITTEN * C] = last * lengths[lane].x;
    lists[to + LIST_STEP * C] = gate_stage[lane].z;
    if (lane == 0)
        lists[4 * (base + EACH - 1)] = decay_code(whole);
}

void main()
{
    uint row, count, had;
    lane = gl_LocalInvocationIndex;
    head = p.state_first + gl_WorkGroupID.y;
    batch = gl_WorkGroupID.z;
    uint first = C * gl_WorkGroupID.x;
    if (!find_tokens(row, count, had) || first >= count)
        return;
    uint base = weights_at(row, gl_WorkGroupID.x, EACH), n = min(count - first, C);
    make_gates(row + first, n);
    barrier();
    write_lists(base);
    [[dont_unroll]] for (uint i = 0; i < (DELTA ? 2 : 1); i++) {
        uint side = i == 0 ? OF_Q : OF_K;
        multiply(side, row + first, n, base);
        weigh(side);
        if (side == OF_K)
            invert();
        write_matrix(side, base);
    }
}
