// Sums over rows of which the gradients of a causal convolution's weight and bias are made. See
// conv_sums_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params/params.h"
#include "params/model.h"
#include "params/state.h"
#include "lib/dtype.glsl"

layout(constant_id = CONV_SUM_X_TYPE) const uint X_TYPE = 0;
layout(constant_id = CONV_SUM_PAST_TYPE) const uint PAST_TYPE = TYPE_NONE;
layout(constant_id = CONV_SUM_G_TYPE) const uint G_TYPE = 0;
layout(constant_id = CONV_SUM_WIDTH) const uint WIDTH = 4;
layout(constant_id = CONV_SUM_LENGTHS) const bool LENGTHS = false;
layout(constant_id = CONV_SUM_CHANNEL_LANES) const uint CHANNEL_LANES = 32;
layout(constant_id = CONV_SUM_COLUMNS) const bool COLUMNS = true;
layout(local_size_x = CONV_SUM_LANES) in;
layout(binding = 0) readonly buffer X { uint x_words[]; };
layout(binding = 1) readonly buffer Past { uint past_words[]; };
layout(binding = 2) readonly buffer G { uint g_words[]; };
layout(binding = 3) readonly buffer Lengths { int lengths[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { conv_sums_params p; };

const uint ROW_LANES = CONV_SUM_LANES / CHANNEL_LANES;

shared float partial[CONV_SUM_LANES];
float sums[WIDTH + 1];

// Whether a row is one that its sequence has.
bool counts(uint batch, uint row)
{
    if (LENGTHS)
        return int(row) < lengths[p.lengths_offset + batch * p.lengths_step];
    return true;
}

// Row `row` of a sequence, which may be one of the past.
float load_row(uint batch, int row, uint channel)
{
    if (row >= 0) {
        uint at = uint(row) - p.x_first;
        return LOAD(x_words, p.x_offset + batch * p.x_batch + at * p.x_row + channel * p.x_col,
                    X_TYPE);
    }
    if (PAST_TYPE == TYPE_NONE)
        return 0.0;
    uint at = p.past_offset + batch * p.past_batch + uint(row + int(p.keep)) * p.past_row +
              channel * p.past_col;
    return LOAD(past_words, at, PAST_TYPE);
}

// Row `row` of this pass.
void add_row(uint batch, uint row, uint channel)
{
    uint own = p.row_first + row;
    if (!counts(batch, own))
        return;
    uint at = p.g_offset + batch * p.g_batch + row * p.g_row + channel * p.g_col;
    float g = LOAD(g_words, at, G_TYPE);
    sums[0] += g;
    [[unroll]] for (uint j = 0; j < WIDTH; j++) {
        float x = load_row(batch, int(own) - int((WIDTH - 1 - j) * p.dilation), channel);
        sums[1 + j] = fma(g, x, sums[1 + j]);
    }
}

void main()
{
    uint lane = gl_LocalInvocationIndex;
    uint own = COLUMNS ? lane % CHANNEL_LANES : lane / ROW_LANES;
    uint own_row = COLUMNS ? lane / CHANNEL_LANES : lane % ROW_LANES;
    uint step_size = COLUMNS ? CHANNEL_LANES : 1;
    uint channel = gl_WorkGroupID.x * CHANNEL_LANES + own;
    uint first = gl_WorkGroupID.y * CONV_SUM_ROWS, batch = gl_WorkGroupID.z * p.group;
    uint rows = min(CONV_SUM_ROWS, p.n - first);
    uint n = channel < p.channels ? rows * min(p.group, p.batch - batch) : 0;
    [[unroll]] for (uint column = 0; column <= WIDTH; column++)
        sums[column] = 0.0;
    for (uint i = own_row; i < n; i += ROW_LANES)
        add_row(batch + i / rows, first + i % rows, channel);
    uint at = p.y_offset + gl_WorkGroupID.z * p.y_group + gl_WorkGroupID.y * p.y_split +
              channel * p.y_channel;
    [[unroll]] for (uint column = 0; column <= WIDTH; column++) {
        partial[lane] = sums[column];
        for (uint step = ROW_LANES / 2; step > 0; step /= 2) {
            barrier();
            if (own_row < step)
                partial[lane] += partial[lane + step * step_size];
        }
        if (own_row == 0 && channel < p.channels)
            y[at + column * p.y_column] = partial[lane];
        barrier();
    }
}
