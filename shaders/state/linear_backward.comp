// Gradients of linear attention: goes backwards from chunk to chunk, whose states are made again from the
// one in front of it, with the gradient of the state in registers. For GPUs: a lane has some features of a
// few values. See linear_backward_params.
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

layout(constant_id = LINEAR_BACK_KEEP) const uint KEEP = 0;
layout(constant_id = LINEAR_BACK_FEATURES) const uint FEATURES = 1;
layout(constant_id = LINEAR_BACK_FOURS) const uint COLUMNS = 4;
layout(constant_id = LINEAR_BACK_FLAGS) const uint WANTED = 0;
ALIASED layout(binding = 13) buffer Work { float work[]; };
ALIASED layout(binding = 13) buffer Work4 { vec4 work_fours[]; };
layout(push_constant) uniform Push { linear_backward_params b; };

const uint STATE = FEATURES * COLUMNS; // fours of a lane
const uint SUMS = COLUMNS + 1;         // that are merged at a time
const uint PARTIAL = 8;                // sums of lanes, which are added in the end
shared vec4 lane_sums[SUMS * LANES], partial_sums[SUMS * PARTIAL];
shared vec4 gate_stage[LINEAR_CHUNK]; // code of the decay of a head, beta, step, the decay
shared float step_stage[LINEAR_CHUNK]; // the slope of step
shared vec4 told_stage[LINEAR_CHUNK * COLUMNS]; // S^T k, which the delta rules correct

uint lane, first_value, group, workgroup;
float rate;          // e^log
vec4 state[STATE];   // [feature][column of four values]
vec4 slopes[STATE];  // gradient of the state
vec4 sums[SUMS];     // of the features
float key[FEATURES];  // of a token
vec4 value[COLUMNS]; // of it
vec4 added[COLUMNS]; // what it writes for its values

bool wants(uint flag) { return (WANTED & flag) != 0u; }

uint feature_at(uint f) { return lane + f * LANES; }

bool is_feature(uint f) { return feature_at(f) < p.head_dim; }

float sum_of(vec4 x) { return (x.x + x.y) + (x.z + x.w); }

// Adds `sums` over all lanes: each gets them. The last loop is not unrolled, as compilers would load all of
// it first.
void merge_lanes()
{
    [[unroll]] for (uint c = 0; c < SUMS; c++)
        lane_sums[c * LANES + lane] = sums[c];
    barrier();
    for (uint i = lane; i < SUMS * PARTIAL; i += LANES) {
        vec4 sum = vec4(0.0);
        for (uint j = 0; j < LANES / PARTIAL; j++)
            sum += lane_sums[i * (LANES / PARTIAL) + j];
        partial_sums[i] = sum;
    }
    barrier();
    [[unroll]] for (uint c = 0; c < SUMS; c++)
        sums[c] = vec4(0.0);
    [[dont_unroll]] for (uint j = 0; j < PARTIAL; j++)
        [[unroll]] for (uint c = 0; c < SUMS; c++)
            sums[c] += partial_sums[c * PARTIAL + j];
}

// ---- States that are kept ------------------------------------------------------------------------

// Fours of a chunk's state, and of that of a token of the chunk.
uint chunk_place(uint chunk)
{
    uint groups = gl_NumWorkGroups.x * gl_NumWorkGroups.y * gl_NumWorkGroups.z;
    return (chunk * groups + workgroup) * STATE * LANES + lane;
}

uint token_place(uint t) { return b.states + (workgroup * LINEAR_CHUNK + t) * STATE * LANES + lane; }

void keep_state(uint at)
{
    [[unroll]] for (uint i = 0; i < STATE; i++)
        work_fours[at + i * LANES] = state[i];
}

void take_state(uint at)
{
    [[unroll]] for (uint i = 0; i < STATE; i++)
        state[i] = work_fours[at + i * LANES];
}

// The state before the first token.
void load_past()
{
    [[unroll]] for (uint f = 0; f < FEATURES; f++)
        [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
            vec4 x = vec4(0.0);
            uint at = place(p.from, uvec4(batch, head, feature_at(f), first_value + 4 * c));
            [[unroll]] for (uint j = 0; j < 4; j++)
                if (has(LINEAR_LOADS) && is_feature(f) && first_value + 4 * c + j < p.value_dim)
                    x[j] = from_values[at + j * p.from.stride3];
            state[f * COLUMNS + c] = x;
        }
}

// Loads the gradient of the state behind the pass's tokens, or stores that of the one in front of them.
void move_slopes(bool store)
{
    [[unroll]] for (uint f = 0; f < FEATURES; f++)
        [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
            uint at = place(p.to, uvec4(batch, head, feature_at(f), first_value + 4 * c));
            uint i = f * COLUMNS + c;
            if (!store)
                slopes[i] = vec4(0.0);
            [[unroll]] for (uint j = 0; j < 4; j++) {
                if (!is_feature(f) || first_value + 4 * c + j >= p.value_dim)
                    continue;
                if (store)
                    to_values[at + j * p.to.stride3] = one_nan(slopes[i][j]);
                else if (!wants(LINEAR_BACK_FIRST))
                    slopes[i][j] = to_values[at + j * p.to.stride3];
            }
        }
}

// ---- Gates ---------------------------------------------------------------------------------------

// The slope of step_of.
float slope_of_step(float x, uint feature)
{
    if (BIAS_TYPE != TYPE_NONE)
        x += LOAD(bias_words, place(p.bias, uvec4(head, feature, 0, 0)), BIAS_TYPE);
    float s = softplus(x);
    bool within = !has(LINEAR_STEPS) || (s >= p.step_min && s <= p.step_max);
    return within ? sigmoid(x) : 0.0;
}

void stage_gates(uint row, uint n)
{
    barrier(); // what was staged before has been read
    for (uint t = lane; t < n; t += LANES) {
        vec4 gates = gates_of(row + t);
        gates.w = gates.x;
        gates.x = DECAY == DECAY_HEAD ? decay_code(gates.x) : 0.0;
        gate_stage[t] = gates;
        step_stage[t] = 0.0;
        if (LOG_TYPE != TYPE_NONE && DECAY == DECAY_HEAD)
            step_stage[t] = slope_of_step(
                LOAD(decay_words, place(p.decay, uvec4(batch, head, row + t, 0)), DECAY_TYPE), 0);
    }
    barrier();
}

float key_decay_x(uint row, uint f)
{
    uint at = place(p.decay, uvec4(batch, head, row, feature_at(f)));
    return is_feature(f) ? LOAD(decay_words, at, DECAY_TYPE) : 0.0;
}

// The logarithm of the decay of a feature.
float key_decay(float x, uint f)
{
    if (LOG_TYPE == TYPE_NONE || !is_feature(f))
        return x;
    return decay_of_step(head_log(), step_of(x, feature_at(f)));
}

// ---- Forward -------------------------------------------------------------------------------------

void load_key(uint row)
{
    uint at = place(p.k, uvec4(batch, head / p.k_ratio, row, 0));
    [[unroll]] for (uint f = 0; f < FEATURES; f++)
        key[f] = is_feature(f) ? LOAD(k_words, at + feature_at(f) * p.k.stride3, K_TYPE) : 0.0;
}

void load_value(uint row)
{
    uint at = place(p.v, uvec4(batch, head, row, first_value));
    [[unroll]] for (uint c = 0; c < COLUMNS; c++)
        value[c] = v_four(at + 4 * c * p.v.stride3, features_from(first_value + 4 * c, p.value_dim));
}

// What is written for a value, of which the state told another.
vec4 corrected(vec4 v, vec4 told, vec4 gates)
{
    vec4 w = stepped(v, gates.z);
    return DELTA ? gates.y * (w - told) : w;
}

void decay_state(uint row, float code)
{
    [[unroll]] for (uint f = 0; f < FEATURES; f++) {
        if (DECAY == DECAY_KEY)
            code = decay_code(key_decay(key_decay_x(row, f), f));
        [[unroll]] for (uint c = 0; c < COLUMNS; c++)
            if (DECAY != DECAY_NONE)
                state[f * COLUMNS + c] = decayed(state[f * COLUMNS + c], code);
    }
}

// Takes the state through token t of a chunk.
void take_token(uint t, uint row)
{
    vec4 gates = gate_stage[t];
    load_key(row);
    load_value(row);
    decay_state(row, gates.x);
    if (KEEP == 0u)
        keep_state(token_place(t));
    if (DELTA) {
        [[unroll]] for (uint c = 0; c < SUMS; c++)
            sums[c] = vec4(0.0);
        [[unroll]] for (uint i = 0; i < STATE; i++)
            sums[i % COLUMNS] = fma(vec4(key[i / COLUMNS]), state[i], sums[i % COLUMNS]);
        merge_lanes();
    }
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
        vec4 told = DELTA ? sums[c] : vec4(0.0);
        vec4 u = corrected(value[c], told, gates);
        if (lane == 0 && DELTA && KEEP == 0u)
            told_stage[t * COLUMNS + c] = told;
        [[unroll]] for (uint f = 0; f < FEATURES; f++)
            state[f * COLUMNS + c] = fma(vec4(key[f]), u, state[f * COLUMNS + c]);
    }
}

void take_chunk(uint row, uint n)
{
    stage_gates(row, n);
    for (uint t = 0; t < n; t++)
        take_token(t, row + t);
}

// ---- Backward ------------------------------------------------------------------------------------

// Where head h of the pass, of `heads`, has element 0 of a row of a plane.
uint plane_row(uint plane, uint heads, uint h, uint row, uint width)
{
    uint sequence = gl_WorkGroupID.x * gl_NumWorkGroups.z + gl_WorkGroupID.z;
    return plane + ((sequence * heads + h) * p.n + row) * width;
}

uint state_row(uint plane, uint row, uint width)
{
    return plane_row(plane, gl_NumWorkGroups.y, gl_WorkGroupID.y, row, width);
}

vec4 y_slope(uint row, uint y_head, uint c)
{
    vec4 x = vec4(0.0);
    uint first = first_value + 4 * c;
    uint at = place(p.y, uvec4(batch, y_head, row, first));
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (first + j < p.value_dim)
            x[j] = LOAD(y_words, at + j * p.y.stride3, Y_TYPE);
    return x;
}

// Output i of the state's group: the gradient of its query, and what it adds to that of the state. `state`
// is that in front of the token.
void read_back(uint row, uint i)
{
    uint y_head = head * group + i, q_head = group > 1 ? y_head : y_head / p.q_ratio;
    uint q_first = place(p.q, uvec4(batch, q_head, row, 0));
    uint plane = plane_row(b.q_plane, gl_NumWorkGroups.y * group, gl_WorkGroupID.y * group + i, row,
                           p.head_dim);
    vec4 y[COLUMNS];
    float of_added = 0.0;
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
        y[c] = y_slope(row, y_head, c);
        of_added = dot_added(added[c], y[c], of_added);
    }
    [[unroll]] for (uint f = 0; f < FEATURES; f++) {
        if (!is_feature(f))
            continue;
        float q = p.scale * LOAD(q_words, q_first + feature_at(f) * p.q.stride3, Q_TYPE), sum = 0.0;
        [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
            sum = dot_added(state[f * COLUMNS + c], y[c], sum);
            slopes[f * COLUMNS + c] = fma(vec4(q), y[c], slopes[f * COLUMNS + c]);
        }
        if (wants(LINEAR_BACK_Q))
            work[plane + feature_at(f)] = p.scale * fma(key[f], of_added, sum);
    }
}

// The gradient of v; returns that of skip.
float store_v(uint row, uint c, vec4 v, vec4 slope)
{
    vec4 y = vec4(0.0);
    if (SKIP_TYPE != TYPE_NONE)
        for (uint i = 0; i < group; i++)
            y += y_slope(row, head * group + i, c);
    slope = with_skip(slope, y);
    uint first = first_value + 4 * c, at = place(p.from, uvec4(batch, head, row, first));
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (wants(LINEAR_BACK_V) && first + j < p.value_dim)
            from_values[at + j * p.from.stride3] = one_nan(slope[j]);
    return dot_added(v, y, 0.0);
}

// The slope of a beta that is sigmoid(x): beta sigmoid(-x), as 1 - beta is 0 for x above 17.
float sigmoid_slope(uint row, float beta)
{
    float x = LOAD(beta_words, place(p.beta, uvec4(packed_batch(), head, row, 0)), BETA_TYPE);
    return beta * sigmoid(-x);
}

// What token t adds to the gradients of its gates: that of u, of the values, is in `sums`.
void gates_back(uint t, uint row, vec4 gates)
{
    float of_beta = 0.0, of_step = 0.0, of_skip = 0.0, of_decay = sum_of(sums[COLUMNS]);
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
        vec4 v = value[c], slope = sums[c];
        if (DELTA) {
            vec4 told = told_stage[t * COLUMNS + c];
            of_beta = dot_added(slope, stepped(v, gates.z) - told, of_beta);
            slope *= gates.y;
            of_decay = dot_added(-slope, told, of_decay);
        }
        of_step = dot_added(slope, v, of_step);
        of_skip += store_v(row, c, v, has(LINEAR_STEPS) ? slope * gates.z : slope);
    }
    if (wants(LINEAR_BACK_BETA))
        work[state_row(b.beta_plane, row, 1)] =
            has(LINEAR_SIGMOID) ? of_beta * sigmoid_slope(row, gates.y) : of_beta;
    if (wants(LINEAR_BACK_SKIP))
        work[state_row(b.skip_plane, row, 1)] = of_skip;
    if (DECAY == DECAY_HEAD && wants(LINEAR_BACK_LOG))
        work[state_row(b.log_plane, row, 1)] = product_or_zero(of_decay, gates.w);
    if (DECAY == DECAY_HEAD && wants(LINEAR_BACK_DECAY)) {
        if (LOG_TYPE != TYPE_NONE)
            of_decay = product_or_zero(of_decay, -rate);
        of_decay = has(LINEAR_STEPS) ? of_decay + of_step : of_decay;
        if (LOG_TYPE != TYPE_NONE)
            of_decay = product_or_zero(step_stage[t], of_decay);
        work[state_row(b.decay_plane, row, 1)] = of_decay;
    }
}

// The gradient of a feature's decay is `slope`, of its logarithm.
void key_decay_back(uint row, uint f, float x, float g, float slope)
{
    if (!is_feature(f))
        return;
    if (wants(LINEAR_BACK_LOG))
        work[state_row(b.log_plane, row, p.head_dim) + feature_at(f)] = product_or_zero(slope, g);
    if (LOG_TYPE != TYPE_NONE)
        slope = product_or_zero(slope, product_or_zero(slope_of_step(x, feature_at(f)), -rate));
    if (wants(LINEAR_BACK_DECAY))
        work[state_row(b.decay_plane, row, p.head_dim) + feature_at(f)] = slope;
}

// Takes a feature's gradient of the state to in front of the token; `state` is that which the key reads.
void feature_back(uint row, uint f, vec4 gates)
{
    float of_key = 0.0, of_decay = 0.0, code = gates.x, x = 0.0, g = 0.0;
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
        uint i = f * COLUMNS + c;
        of_key = dot_added(slopes[i], added[c], of_key);
        if (DELTA) {
            vec4 of_told = -gates.y * sums[c];
            of_key = dot_added(state[i], of_told, of_key);
            slopes[i] = fma(vec4(key[f]), of_told, slopes[i]);
        }
        of_decay = dot_added(slopes[i], state[i], of_decay);
    }
    if (wants(LINEAR_BACK_K) && is_feature(f))
        work[state_row(b.k_plane, row, p.head_dim) + feature_at(f)] = of_key;
    if (DECAY == DECAY_KEY) {
        x = key_decay_x(row, f);
        g = key_decay(x, f);
        code = decay_code(g);
        key_decay_back(row, f, x, g, of_decay);
    }
    [[unroll]] for (uint c = 0; c < COLUMNS; c++)
        if (DECAY != DECAY_NONE)
            slopes[f * COLUMNS + c] = decayed(slopes[f * COLUMNS + c], code);
}

void token_back(uint t, uint row)
{
    vec4 gates = gate_stage[t];
    load_key(row);
    load_value(row);
    take_state(token_place(t));
    [[unroll]] for (uint c = 0; c < COLUMNS; c++)
        added[c] = corrected(value[c], DELTA ? told_stage[t * COLUMNS + c] : vec4(0.0), gates);
    for (uint i = 0; i < group; i++)
        read_back(row, i);
    [[unroll]] for (uint c = 0; c < SUMS; c++)
        sums[c] = vec4(0.0);
    [[unroll]] for (uint i = 0; i < STATE; i++) {
        sums[i % COLUMNS] = fma(vec4(key[i / COLUMNS]), slopes[i], sums[i % COLUMNS]);
        if (DECAY == DECAY_HEAD)
            sums[COLUMNS] = fma(slopes[i], state[i], sums[COLUMNS]);
    }
    merge_lanes();
    if (lane == 0)
        gates_back(t, row, gates);
    [[unroll]] for (uint f = 0; f < FEATURES; f++)
        feature_back(row, f, gates);
}

void clear_plane(uint from, uint count)
{
    for (uint f = lane; f < count; f += LANES)
        work[from + f] = 0.0;
}

// A row from the sequence's length on has no gradient.
void clear_row(uint row)
{
    uint width = DECAY == DECAY_KEY ? p.head_dim : 1, heads = gl_NumWorkGroups.y * group;
    if (wants(LINEAR_BACK_Q))
        for (uint i = 0; i < group; i++)
            clear_plane(plane_row(b.q_plane, heads, gl_WorkGroupID.y * group + i, row, p.head_dim),
                        p.head_dim);
    if (wants(LINEAR_BACK_K))
        clear_plane(state_row(b.k_plane, row, p.head_dim), p.head_dim);
    if (wants(LINEAR_BACK_DECAY))
        clear_plane(state_row(b.decay_plane, row, width), width);
    if (wants(LINEAR_BACK_LOG))
        clear_plane(state_row(b.log_plane, row, width), width);
    if (wants(LINEAR_BACK_BETA))
        clear_plane(state_row(b.beta_plane, row, 1), 1);
    if (wants(LINEAR_BACK_SKIP))
        clear_plane(state_row(b.skip_plane, row, 1), 1);
    uint values = min(features_from(first_value, p.value_dim), 4 * COLUMNS);
    if (wants(LINEAR_BACK_V))
        for (uint j = lane; j < values; j += LANES)
            from_values[place(p.from, uvec4(batch, head, row, first_value + j))] = 0.0;
}

// ---- Passes --------------------------------------------------------------------------------------

// Keeps the state in front of each chunk.
void go_forward(uint count, uint n)
{
    uint chunk = p.first / LINEAR_CHUNK;
    if (p.first == 0)
        load_past();
    else
        take_state(chunk_place(chunk));
    for (uint row = 0; row < n; row += LINEAR_CHUNK) {
        keep_state(chunk_place(chunk++));
        take_chunk(row, min(features_from(row, count), LINEAR_CHUNK));
    }
    if (p.first + n < p.n_row)
        keep_state(chunk_place(chunk));
}

void go_back(uint count, uint n)
{
    move_slopes(false);
    for (uint row = count; row < n; row++)
        clear_row(row);
    for (uint done = 0; done < n; done += LINEAR_CHUNK) {
        uint row = (n - done - 1) / LINEAR_CHUNK * LINEAR_CHUNK;
        uint own = min(features_from(row, count), LINEAR_CHUNK);
        take_state(chunk_place((p.first + row) / LINEAR_CHUNK));
        take_chunk(row, own);
        barrier(); // told_stage is of lane 0
        for (uint t = own; t > 0; t--)
            token_back(t - 1, row + t - 1);
    }
    move_slopes(true);
}

void main()
{
    uint row, count, had;
    lane = gl_LocalInvocationIndex;
    first_value = 4 * COLUMNS * gl_WorkGroupID.x;
    head = p.state_first + gl_WorkGroupID.y;
    batch = gl_WorkGroupID.z;
    workgroup = (gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * gl_NumWorkGroups.x +
                gl_WorkGroupID.x;
    group = p.group;
    rate = 0.0;
    if (LOG_TYPE != TYPE_NONE)
        rate = rate_of_log(head_log());
    load_skip();
    find_tokens(row, count, had);
    uint n = p.n; // no loop's condition reads a buffer
    if (KEEP != 0u)
        go_forward(count, n);
    else
        go_back(count, n);
}
