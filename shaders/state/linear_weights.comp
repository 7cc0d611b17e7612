// What the tokens of a chunk of linear attention do to one another, without the state: for linear_chunked.
// For GPUs. See linear_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
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

layout(binding = 13) writeonly buffer Weights { vec4 weights[]; };

// A lane has, of a product of rows of keys or queries with those of keys, four i and C / 8 j.
const uint OWN = C / 8;
shared vec4 rows[2 * C * PITCH];   // [k, side][token][four features]
shared vec4 matrix[C * (QUADS + 1)]; // [j][four i], of decays, then of L, then of its inverse
uint lane, quad, first_own;

#include "state/within.glsl"

vec2 factors_of(uint side, uint row) { return length_of(side, row); }

vec4 matrix_four(uint at) { return matrix[at]; }

void set_matrix_four(uint at, vec4 x) { matrix[at] = x; }

// matrix[j][i] = e^ the decays of tokens j + 1 .. i; each is summed for itself, so that no difference of
// sums loses a weak decay behind a strong one.
void make_factors()
{
    if (lane >= C)
        return;
    float sum = 0.0;
    [[dont_unroll]] for (uint q = 0; q < QUADS; q++) {
        vec4 f = vec4(0.0);
        [[unroll]] for (uint c = 0; c < 4; c++) {
            uint i = 4 * q + c;
            sum += i > lane ? gate_stage[i].x : 0.0;
            f[c] = i < lane ? 0.0 : DECAY == DECAY_NONE ? 1.0 : decay_factor(decay_code(sum));
        }
        matrix[lane * (QUADS + 1) + q] = f;
    }
}

// ---- Products -----------------------------------------------------------------------------------

void stage_rows(uint side, uint row, uint n, uint first_four)
{
    [[dont_unroll]] for (uint i = lane; i < 2 * C * TILE; i += LANES) {
        uint which = i / (C * TILE) == 0 ? OF_K : side, t = i / TILE % C;
        uint feature = 4 * (first_four + i % TILE);
        uint count = t < n ? features_from(feature, p.head_dim) : 0;
        uint step = which == OF_K ? p.k.stride3 : p.q.stride3;
        rows[(i / TILE) * PITCH + i % TILE] =
            row_of(which, first_of(which, row + t) + feature * step, count) *
            lengths[which * C + t].y;
    }
}

// The dot products of the lane's four rows of a side with its OWN rows of keys.
void multiply(uint side, uint row, uint n, out vec4 d[OWN])
{
    [[unroll]] for (uint j = 0; j < OWN; j++)
        d[j] = vec4(0.0);
    [[dont_unroll]] for (uint first = 0; first < FOURS; first += TILE) {
        barrier(); // the tile before has been read
        stage_rows(side, row, n, first);
        barrier();
        [[dont_unroll]] for (uint c = 0; c < TILE; c++) {
            uint at = (C + 4 * quad) * PITCH + c;
            vec4 a = rows[at], b = rows[at + PITCH];
            vec4 e = rows[at + 2 * PITCH], f = rows[at + 3 * PITCH];
            [[unroll]] for (uint j = 0; j < OWN; j++) {
                vec4 k = rows[(first_own + j) * PITCH + c];
                d[j].x = dot_added(k, a, d[j].x);
                d[j].y = dot_added(k, b, d[j].y);
                d[j].z = dot_added(k, e, d[j].z);
                d[j].w = dot_added(k, f, d[j].w);
            }
        }
    }
}

vec4 lengths_of(uint side)
{
    uint at = side * C + 4 * quad;
    return vec4(lengths[at].x, lengths[at + 1].x, lengths[at + 2].x, lengths[at + 3].x);
}

// d, with decays and lengths; 0 above the diagonal, as factors are there, whatever d is.
vec4 weighed(vec4 d, uint j, vec4 of_side)
{
    vec4 f = matrix[j * (QUADS + 1) + quad];
    uvec4 i = 4 * quad + uvec4(0, 1, 2, 3);
    return mix(d * f * (of_side * lengths[j].x), vec4(0.0), lessThan(i, uvec4(j)));
}

void write_queries(uint row, uint n, uint base)
{
    vec4 d[OWN];
    multiply(OF_Q, row, n, d);
    [[unroll]] for (uint j = 0; j < OWN; j++)
        weights[base + WEIGHTS_A + (first_own + j) * QUADS + quad] =
            weighed(d[j], first_own + j, lengths_of(OF_Q));
}

// L_ij, for j < i.
void make_keys(uint row, uint n)
{
    vec4 d[OWN];
    multiply(OF_K, row, n, d);
    vec4 beta = vec4(gate_stage[4 * quad].y, gate_stage[4 * quad + 1].y, gate_stage[4 * quad + 2].y,
                     gate_stage[4 * quad + 3].y);
    uvec4 i = 4 * quad + uvec4(0, 1, 2, 3);
    [[unroll]] for (uint own = 0; own < OWN; own++) {
        uint j = first_own + own;
        vec4 l = weighed(d[own], j, lengths_of(OF_K)) * beta;
        matrix[j * (QUADS + 1) + quad] = mix(l, vec4(0.0), lessThanEqual(i, uvec4(j)));
    }
}

// ---- A chunk ------------------------------------------------------------------------------------

// For the state: what a row's read of it is multiplied by, of a key and a query; what is written by a key;
// the step; and what rows are shrunk by.
void write_gates(uint base)
{
    if (lane >= C)
        return;
    float sum = 0.0, whole = 0.0;
    [[dont_unroll]] for (uint i = 0; i < C; i++) {
        sum += i <= lane ? gate_stage[i].x : 0.0;
        whole += gate_stage[i].x;
    }
    float f = DECAY == DECAY_NONE ? 1.0 : decay_factor(decay_code(sum));
    float last = matrix[lane * (QUADS + 1) + QUADS - 1].w;
    weights[base + WEIGHTS_GATES + 2 * lane] =
        vec4(f * lengths[lane].x, f * lengths[C + lane].x, last * lengths[lane].x,
             gate_stage[lane].z);
    weights[base + WEIGHTS_GATES + 2 * lane + 1] =
        vec4(lengths[lane].y, lengths[C + lane].y, decay_code(whole), 0.0);
}

void main()
{
    uint row, count, had;
    lane = gl_LocalInvocationIndex;
    quad = lane % QUADS;
    first_own = lane / QUADS * OWN;
    head = p.state_first + gl_WorkGroupID.y;
    batch = gl_WorkGroupID.z;
    uint first = C * gl_WorkGroupID.x;
    if (!find_tokens(row, count, had) || first >= count)
        return;
    uint base = weights_at(row, gl_WorkGroupID.x, LINEAR_WEIGHTS), n = min(count - first, C);
    make_gates(row + first, n);
    barrier();
    make_factors();
    barrier();
    write_gates(base);
    write_queries(row + first, n, base);
    if (!DELTA)
        return;
    make_keys(row + first, n);
    barrier();
    invert();
    [[dont_unroll]] for (uint i = lane; i < C * QUADS; i += LANES)
        weights[base + WEIGHTS_T + i] =
            matrix[i / QUADS * (QUADS + 1) + i % QUADS] * gate_stage[i / QUADS].y;
}
