// What the kernels of linear attention share: constants, buffers, which rows are a sequence's, what stands
// in front, and the writing of y. See linear_params.

layout(constant_id = LINEAR_LANES) const uint LANES = 64;
layout(constant_id = LINEAR_SPLITS) const uint SPLITS = 8;
layout(constant_id = LINEAR_FOURS) const uint FOURS = 4;
layout(constant_id = LINEAR_TOKENS) const uint TOKENS = 8;
layout(constant_id = LINEAR_Q_TYPE) const uint Q_TYPE = 0;
layout(constant_id = LINEAR_K_TYPE) const uint K_TYPE = 0;
layout(constant_id = LINEAR_V_TYPE) const uint V_TYPE = 0;
layout(constant_id = LINEAR_DECAY_TYPE) const uint DECAY_TYPE = 0;
layout(constant_id = LINEAR_BETA_TYPE) const uint BETA_TYPE = TYPE_NONE;
layout(constant_id = LINEAR_Y_TYPE) const uint Y_TYPE = 0;
layout(constant_id = LINEAR_DECAY) const uint DECAY = DECAY_NONE;
layout(constant_id = LINEAR_ROWS) const uint ROWS = ROWS_DENSE;
layout(constant_id = LINEAR_FLAGS) const uint FLAGS = 0;
layout(constant_id = LINEAR_LOG_TYPE) const uint LOG_TYPE = TYPE_NONE;
layout(constant_id = LINEAR_BIAS_TYPE) const uint BIAS_TYPE = TYPE_NONE;
layout(constant_id = LINEAR_SKIP_TYPE) const uint SKIP_TYPE = TYPE_NONE;
layout(local_size_x_id = LINEAR_LANES) in;
layout(binding = 0) readonly buffer Q { uint q_words[]; };
layout(binding = 1) readonly buffer K { uint k_words[]; };
layout(binding = 2) readonly buffer V { uint v_words[]; };
layout(binding = 3) readonly buffer Decay { uint decay_words[]; };
layout(binding = 4) readonly buffer Beta { uint beta_words[]; };
// The state may stay in its place: neither is readonly.
ALIASED layout(binding = 5) buffer From { float from_values[]; };
ALIASED layout(binding = 5) buffer From4 { vec4 from_fours[]; };
ALIASED layout(binding = 6) buffer To { float to_values[]; };
ALIASED layout(binding = 6) buffer To4 { vec4 to_fours[]; };
layout(binding = 7) buffer Y { uint y_words[]; };
layout(binding = 8) buffer Starts { uint starts[]; };
layout(binding = 9) readonly buffer Log { uint log_words[]; };
layout(binding = 10) readonly buffer Bias { uint bias_words[]; };
layout(binding = 11) readonly buffer Skip { uint skip_words[]; };
layout(binding = 12) readonly buffer Params { linear_params p; };
#include "state/note.glsl"

const bool DELTA = BETA_TYPE != TYPE_NONE;
uint batch, head; // sequence and state

bool has(uint flag) { return (FLAGS & flag) != 0u; }

uint features_from(uint first, uint end) { return end - min(first, end); }

uint packed_batch() { return ROWS == ROWS_RAGGED || ROWS == ROWS_KEPT ? 0 : batch; }

// Makes vec4 name(at, count): four features from `at` on, 0 from `count` on.
#define FOUR_OF(name, words, stride, TYPE)                                                         \
    vec4 name(uint at, uint count)                                                                 \
    {                                                                                              \
        vec4 x = vec4(0.0);                                                                        \
        [[unroll]] for (uint j = 0; j < 4; j++)                                                    \
            if (j < count)                                                                         \
                x[j] = LOAD(words, at + j * stride, TYPE);                                         \
        return x;                                                                                  \
    }
FOUR_OF(q_four, q_words, p.q.stride3, Q_TYPE)
FOUR_OF(k_four, k_words, p.k.stride3, K_TYPE)
FOUR_OF(v_four, v_words, p.v.stride3, V_TYPE)
FOUR_OF(decay_four, decay_words, p.decay.stride3, DECAY_TYPE)

// The step of an x of this head, see linear_params.
float step_of(float x, uint feature)
{
    if (BIAS_TYPE != TYPE_NONE)
        x += LOAD(bias_words, place(p.bias, uvec4(head, feature, 0, 0)), BIAS_TYPE);
    float s = softplus(x);
    if (!has(LINEAR_STEPS) || is_nan(s))
        return s;
    // By bits, as in lib/relu.glsl: none of the three is negative.
    uint least = floatBitsToUint(abs(p.step_min)), most = floatBitsToUint(p.step_max);
    return uintBitsToFloat(min(max(floatBitsToUint(s), least), most));
}

float head_log() { return LOAD(log_words, place(p.log, uvec4(head, 0, 0, 0)), LOG_TYPE); }

// Decay of a head, beta and step of a row.
vec4 gates_of(uint row)
{
    uvec4 at = uvec4(packed_batch(), head, row, 0);
    vec4 gates = vec4(0.0);
    if (DECAY == DECAY_HEAD) {
        float g = LOAD(decay_words, place(p.decay, at), DECAY_TYPE);
        if (LOG_TYPE != TYPE_NONE) {
            gates.z = step_of(g, 0);
            g = decay_of_step(head_log(), gates.z);
        }
        gates.x = g;
    }
    if (DELTA) {
        gates.y = LOAD(beta_words, place(p.beta, at), BETA_TYPE);
        if (has(LINEAR_SIGMOID))
            gates.y = sigmoid(gates.y);
    }
    return gates;
}

float skip; // of the state

void load_skip()
{
    if (SKIP_TYPE != TYPE_NONE)
        skip = LOAD(skip_words, place(p.skip, uvec4(head, 0, 0, 0)), SKIP_TYPE);
}

vec4 with_skip(vec4 y, vec4 v) { return SKIP_TYPE != TYPE_NONE ? fma(vec4(skip), v, y) : y; }

// What is written for v, before a delta rule corrects it.
vec4 stepped(vec4 v, float step)
{
    precise vec4 u = v * step;
    return has(LINEAR_STEPS) ? u : v;
}

float dot_added(vec4 a, vec4 b, float to)
{
    return fma(a.x, b.x, fma(a.y, b.y, fma(a.z, b.z, fma(a.w, b.w, to))));
}

// A row whose squares, or products with states up to 2^100, might overflow is shrunk, as its epsilon is,
// before it is divided by its length: by how much follows from its largest feature, so that products with
// states down to 2^-90 are no subnormals.
const float LARGE = 1048576.0;              // 2^20
const float HUGE = 7.205759403792794e16;    // 2^56
const float SHRINK = 1.4551915228366852e-11; // 2^-36
const float SHRINK_HUGE = 8.470329472543003e-22; // 2^-70

float shrink_of_size(float most)
{
    return most <= LARGE ? 1.0 : most <= HUGE ? SHRINK : SHRINK_HUGE;
}

// Writes four values, from first_value on.
void store_y(uint row, uint y_head, uint first_value, vec4 y)
{
    uint at = place(p.y, uvec4(packed_batch(), y_head, row, first_value));
    [[unroll]] for (uint j = 0; j < 4; j += 2) {
        if (first_value + j >= p.value_dim)
            break;
        if (has(LINEAR_Y_PAIRS)) {
            y_words[at + j >> 1] = pair_word(vec2(one_nan(y[j]), one_nan(y[j + 1])), Y_TYPE);
            continue;
        }
        STORE(y_words, at + j * p.y.stride3, Y_TYPE, one_nan(y[j]));
        if (first_value + j + 1 < p.value_dim)
            STORE(y_words, at + (j + 1) * p.y.stride3, Y_TYPE, one_nan(y[j + 1]));
    }
}

// The sequence's tokens in this pass: row is that of the first, `had` counts those that are cleared where
// they are none too. False where they are another kernel's.
bool find_tokens(out uint row, out uint count, out uint had)
{
    uint total;
    row = 0;
    count = had = p.n;
    if (ROWS == ROWS_DENSE)
        return true;
    if (ROWS == ROWS_LENGTHS) {
        total = uint(max(int(starts[p.starts_offset + batch * p.starts_step]), 0));
        count = min(total - min(total, p.first), p.n);
    } else {
        uint first = (ROWS == ROWS_KEPT ? cached_start() : p.starts_offset) + batch;
        uint begin = start_within(starts[first], p.n_row);
        uint end = max(start_within(starts[first + 1], p.n_row), begin);
        row = begin + p.first;
        had = min(end - min(end, row), p.n);
        if (ROWS == ROWS_KEPT)
            end = min(end, begin + starts[p.starts_offset + batch]);
        total = end - begin;
        count = min(end - min(end, row), p.n);
    }
    return total >= p.least && total <= p.most;
}
