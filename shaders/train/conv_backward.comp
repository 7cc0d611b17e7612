// Gradients of a causal convolution's input and past: two channels of a few rows an invocation, as in
// causal_conv.comp. See conv_backward_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params/params.h"
#include "params/model.h"
#include "params/state.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"

layout(constant_id = CONV_BACK_G_TYPE) const uint G_TYPE = 0;
layout(constant_id = CONV_BACK_W_TYPE) const uint W_TYPE = 0;
layout(constant_id = CONV_BACK_PRESENT_TYPE) const uint PRESENT_TYPE = TYPE_NONE;
layout(constant_id = CONV_BACK_Y_TYPE) const uint Y_TYPE = 0;
layout(constant_id = CONV_BACK_WIDTH) const uint WIDTH = 4;
layout(constant_id = CONV_BACK_LENGTHS) const bool LENGTHS = false;
layout(constant_id = CONV_BACK_ADD) const bool ADD = false;
layout(constant_id = CONV_BACK_G_PAIRS) const bool G_PAIRS = false;
layout(constant_id = CONV_BACK_Y_PAIRS) const bool Y_PAIRS = false;
layout(local_size_x = ITEM_LANES) in;
layout(binding = 0) readonly buffer G { uint g_words[]; };
layout(binding = 1) readonly buffer W { uint w_words[]; };
layout(binding = 2) readonly buffer Present { uint present_words[]; };
layout(binding = 3) readonly buffer Lengths { int lengths[]; };
layout(binding = 4) buffer Y { uint y_words[]; };
layout(push_constant) uniform Push { conv_backward_params p; };

const uint LOADED = CONV_EACH + WIDTH - 1;

uint length_of(uint i)
{
    if (!LENGTHS)
        return p.n;
    return min(uint(max(lengths[p.lengths_offset + i * p.lengths_step], 0)), p.n);
}

float load_weight(uint channel, uint tap)
{
    return LOAD(w_words, p.w_offset + channel * p.w_channel + tap * p.w_tap, W_TYPE);
}

// Channels `channel` and, if there are two, the next. A row that is none of the sequence's reads
// another one, and gives 0.
vec2 load_slopes(uint batch, int row, uint rows, uint channel, bool two)
{
    int last = int(min(rows, p.g_end)) - 1;
    uint held = uint(max(min(row, last), int(p.g_first))) - p.g_first;
    uint at = p.g_offset + batch * p.g_batch + held * p.g_row + channel * p.g_col;
    vec2 g;
    if (G_PAIRS) {
        uint word = g_words[at >> 1];
        g = vec2(decode(word, 0, G_TYPE), decode(word, 1, G_TYPE));
    } else {
        g = vec2(LOAD(g_words, at, G_TYPE), two ? LOAD(g_words, at + p.g_col, G_TYPE) : 0.0);
    }
    return uint(row) < rows ? g : vec2(0.0);
}

// What a row, which may be one of the past, passes on as one of the last rows.
vec2 load_present(uint batch, int row, uint rows, uint channel, bool two)
{
    uint kept = uint(row + int(p.keep) - int(rows));
    if (PRESENT_TYPE == TYPE_NONE)
        return vec2(0.0);
    if (kept >= p.keep)
        return vec2(0.0);
    uint at = p.present_offset + batch * p.present_batch + kept * p.present_row +
              channel * p.present_col;
    return vec2(LOAD(present_words, at, PRESENT_TYPE),
                two ? LOAD(present_words, at + p.present_col, PRESENT_TYPE) : 0.0);
}

void store_rows(uint batch, uint row, uint channel, bool two, vec2 y)
{
    uint at = p.y_offset + batch * p.y_batch + (row - p.first) * p.y_row + channel * p.y_col;
    if (Y_PAIRS) {
        if (ADD)
            y += vec2(decode(y_words[at >> 1], 0, Y_TYPE), decode(y_words[at >> 1], 1, Y_TYPE));
        y_words[at >> 1] = pair_word(vec2(one_nan(y.x), one_nan(y.y)), Y_TYPE);
        return;
    }
    if (ADD)
        y += vec2(LOAD(y_words, at, Y_TYPE), two ? LOAD(y_words, at + p.y_col, Y_TYPE) : 0.0);
    STORE(y_words, at, Y_TYPE, one_nan(y.x));
    if (two)
        STORE(y_words, at + p.y_col, Y_TYPE, one_nan(y.y));
}

void differentiate(uint batch, uint first, uint channel, bool two)
{
    const uint rows = length_of(batch);
    vec2 weights[WIDTH], g[LOADED];
    [[unroll]] for (uint j = 0; j < WIDTH; j++)
        weights[j] = vec2(load_weight(channel, j), two ? load_weight(channel + 1, j) : 0.0);
    [[unroll]] for (uint i = 0; i < LOADED; i++) {
        int row = int(first + i * p.dilation) - int(p.shift);
        g[i] = load_slopes(batch, row, rows, channel, two);
    }
    [[unroll]] for (uint i = 0; i < CONV_EACH; i++) {
        uint row = first + i * p.dilation;
        vec2 y = load_present(batch, int(row) - int(p.shift), rows, channel, two);
        [[unroll]] for (uint j = 0; j < WIDTH; j++) {
            vec2 w = weights[WIDTH - 1 - j];
            y = vec2(fma(w.x, g[i + j].x, y.x), fma(w.y, g[i + j].y, y.y));
        }
        if (row < p.end)
            store_rows(batch, row, channel, two, y);
    }
}

void main()
{
    uint tile = CONV_EACH * p.dilation, pairs = p.channels / 2 + p.channels % 2;
    uint tiles = (p.end - p.first - 1) / tile + 1, n = tiles * p.residues * pairs * p.batch;
    for (uint nth = 0; nth < ITEMS_EACH; nth++) {
        uint item = item_at(nth);
        if (item >= n)
            return;
        uint channel = item % pairs * 2, rest = item / pairs;
        uint residue = rest % p.residues;
        rest /= p.residues;
        uint first = p.first + rest % tiles * tile + residue;
        differentiate(rest / tiles, first, channel, channel + 1 < p.channels);
    }
}
