// Depthwise causal convolution: two channels of a few rows an invocation. See conv_params.
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
#include "lib/start.glsl"

layout(constant_id = CONV_X_TYPE) const uint X_TYPE = 0;
layout(constant_id = CONV_W_TYPE) const uint W_TYPE = 0;
layout(constant_id = CONV_BIAS_TYPE) const uint BIAS_TYPE = TYPE_NONE;
layout(constant_id = CONV_PAST_TYPE) const uint PAST_TYPE = TYPE_NONE;
layout(constant_id = CONV_Y_TYPE) const uint Y_TYPE = 0;
layout(constant_id = CONV_WIDTH) const uint WIDTH = 4;
layout(constant_id = CONV_FUNCTION) const uint FUNCTION = 0;
layout(constant_id = CONV_ROWS) const uint ROWS = ROWS_DENSE;
layout(constant_id = CONV_X_PAIRS) const bool X_PAIRS = false;
layout(constant_id = CONV_Y_PAIRS) const bool Y_PAIRS = false;
layout(constant_id = CONV_KEEP) const bool KEEP = false;
layout(constant_id = CONV_Y_DENSE) const bool Y_DENSE = false;
layout(local_size_x = ITEM_LANES) in;
layout(binding = 0) readonly buffer X { uint x_words[]; };
layout(binding = 1) readonly buffer W { uint w_words[]; };
layout(binding = 2) readonly buffer Bias { uint bias_words[]; };
// What is kept may lie in place of the past: neither is readonly.
ALIASED layout(binding = 3) buffer Past { uint past_words[]; };
layout(binding = 4) buffer Starts { uint starts[]; };
ALIASED layout(binding = 5) buffer Y { uint y_words[]; };
layout(push_constant) uniform Push { conv_params p; };
#include "state/note.glsl"

const bool PACKED = ROWS == ROWS_RAGGED || ROWS == ROWS_KEPT;

// Rows of a sequence: element 0 of its row 0 of x and y, how many count, and how many there are.
struct sequence {
    uint index, x, y, n, had;
};

uint start_of(uint i)
{
    uint first = ROWS == ROWS_KEPT ? cached_start() : p.starts_offset;
    return start_within(starts[first + i], p.n);
}

uint length_of(uint i, uint had)
{
    return min(uint(max(int(starts[p.starts_offset + i * p.starts_step]), 0)), had);
}

// A pass over some rows of dense sequences counts rows from their first, as lengths do.
sequence sequence_at(uint i)
{
    if (PACKED) {
        uint begin = start_of(i), had = max(start_of(i + 1), begin) - begin;
        return sequence(i, p.x_offset + begin * p.x_row, p.y_offset + begin * p.y_row,
                        ROWS == ROWS_KEPT ? length_of(i, had) : had, had);
    }
    uint had = p.first + p.n;
    return sequence(i, p.x_offset + i * p.x_batch + (p.lead - p.first) * p.x_row,
                    p.y_offset + i * p.y_batch - p.first * p.y_row,
                    ROWS == ROWS_LENGTHS ? length_of(i, had) : had, had);
}

// The last sequence whose first tile is not after this one, and the tile's number in it.
uint sequence_of(uint tile, out uint in_sequence)
{
    uint rows = CONV_EACH * p.dilation;
    if (!PACKED) {
        uint tiles = (p.n - 1) / rows + 1;
        in_sequence = tile % tiles;
        return tile / tiles;
    }
    uint low = 0, high = p.batch;
    while (high - low > 1) {
        uint middle = (low + high) / 2;
        if (start_of(middle) / rows + middle <= tile)
            low = middle;
        else
            high = middle;
    }
    in_sequence = tile - start_of(low) / rows - low;
    return low;
}

float load_past(sequence s, uint row, uint channel)
{
    if (PAST_TYPE == TYPE_NONE)
        return 0.0;
    uint at = p.past_offset + s.index * p.past_batch + row * p.past_row + channel * p.past_col;
    return LOAD(past_words, at, PAST_TYPE);
}

// Channels `channel` and, if there are two, the next; `row` may be before the sequence.
vec2 load_rows(sequence s, int row, uint channel, bool two)
{
    if (row < 0) {
        uint past = uint(row + int(p.keep));
        return vec2(load_past(s, past, channel), two ? load_past(s, past, channel + 1) : 0.0);
    }
    uint at = s.x + uint(row) * p.x_row + channel * p.x_col;
    if (X_PAIRS) {
        uint word = x_words[at >> 1];
        return vec2(decode(word, 0, X_TYPE), decode(word, 1, X_TYPE));
    }
    return vec2(LOAD(x_words, at, X_TYPE), two ? LOAD(x_words, at + p.x_col, X_TYPE) : 0.0);
}

void store_rows(sequence s, uint row, uint channel, bool two, vec2 y)
{
    uint at = s.y + row * p.y_row + channel * p.y_col;
    if (Y_PAIRS) {
        y_words[at >> 1] = pair_word(y, Y_TYPE);
        return;
    }
    STORE(y_words, at, Y_TYPE, y.x);
    if (two)
        STORE(y_words, at + p.y_col, Y_TYPE, y.y);
}

float load_weight(uint channel, uint tap)
{
    return LOAD(w_words, p.w_offset + channel * p.w_channel + tap * p.w_tap, W_TYPE);
}

float load_bias(uint channel)
{
    if (BIAS_TYPE == TYPE_NONE)
        return 0.0;
    return LOAD(bias_words, p.bias_offset + channel * p.bias_step, BIAS_TYPE);
}

void convolve(sequence s, uint first, uint channel, bool two)
{
    vec2 weights[WIDTH], x[CONV_EACH + WIDTH - 1];
    const vec2 bias = vec2(load_bias(channel), two ? load_bias(channel + 1) : 0.0);
    [[unroll]] for (uint j = 0; j < WIDTH; j++)
        weights[j] = vec2(load_weight(channel, j), two ? load_weight(channel + 1, j) : 0.0);
    // A row that is not of the sequence reads as one that is: it counts for no row that is written.
    [[unroll]] for (uint i = 0; i < CONV_EACH + WIDTH - 1; i++) {
        int row = int(first + i * p.dilation) - int(p.keep);
        x[i] = load_rows(s, min(row, int(s.n) - 1), channel, two);
    }
    [[unroll]] for (uint i = 0; i < CONV_EACH; i++) {
        vec2 y = bias;
        [[unroll]] for (uint j = 0; j < WIDTH; j++)
            y = vec2(fma(weights[j].x, x[i + j].x, y.x), fma(weights[j].y, x[i + j].y, y.y));
        uint row = first + i * p.dilation;
        y = vec2(one_nan(activate(y.x, FUNCTION, 1.0)), one_nan(activate(y.y, FUNCTION, 1.0)));
        if (row < s.n)
            store_rows(s, row, channel, two, y);
    }
}

// Rows from a length on, of this pass.
void clear(sequence s, uint first, uint channel, bool two)
{
    for (uint i = 0; i < CONV_EACH; i++) {
        uint row = first + i * p.dilation;
        if (row >= s.n && row < s.had)
            store_rows(s, row, channel, two, vec2(0.0));
    }
}

void convolve_item(uint item)
{
    uint pairs = p.channels / 2 + p.channels % 2, in_sequence;
    uint channel = item % pairs * 2, residue = item / pairs % p.residues;
    sequence s = sequence_at(sequence_of(item / pairs / p.residues, in_sequence));
    uint first = p.first + in_sequence * CONV_EACH * p.dilation + residue;
    bool two = channel + 1 < p.channels;
    if (first < s.n)
        convolve(s, first, channel, two);
    if (ROWS == ROWS_LENGTHS || ROWS == ROWS_KEPT)
        clear(s, first, channel, two);
}

// Row i of those that are kept of a channel, which may be before the sequence.
float load_last(sequence s, uint i, uint channel)
{
    int row = int(s.n + i) - int(p.keep);
    return row < 0 ? load_past(s, s.n + i, channel)
                   : LOAD(x_words, s.x + uint(row) * p.x_row + channel * p.x_col, X_TYPE);
}

// Ascending, so that what is read in place has not been written yet.
void keep(uint channel, sequence s)
{
    bool broken = false;
    for (uint i = 0; i < p.keep; i++) {
        uvec2 one = uvec2(i, channel), two = uvec2(i, channel + 1); // row and channel
        if (Y_DENSE) {
            one = uvec2(2 * i % p.keep, channel + 2 * i / p.keep);
            two = uvec2((2 * i + 1) % p.keep, channel + (2 * i + 1) / p.keep);
        }
        uint at = p.y_offset + s.index * p.y_batch + one.x * p.y_row + one.y * p.y_col;
        float x = load_last(s, one.x, one.y), next = 0.0;
        if (Y_PAIRS || Y_DENSE) {
            next = load_last(s, two.x, two.y);
            y_words[at >> 1] = pair_word(vec2(one_nan(x), one_nan(next)), Y_TYPE);
        } else {
            STORE(y_words, at, Y_TYPE, one_nan(x));
        }
        broken = broken || is_broken(x) || is_broken(next);
    }
    if (broken && s.n != 0)
        note_broken(s.index);
}

void main()
{
    uint rows = CONV_EACH * p.dilation, pairs = p.channels / 2 + p.channels % 2;
    uint tiles = PACKED ? p.n / rows + p.batch : ((p.n - 1) / rows + 1) * p.batch;
    const bool both = Y_PAIRS || Y_DENSE;
    uint kept = both ? pairs : p.channels; // items of a sequence
    uint n = KEEP ? kept * p.batch : tiles * p.residues * pairs;
    for (uint nth = 0; nth < ITEMS_EACH; nth++) {
        uint item = item_at(nth);
        if (item >= n)
            return;
        if (KEEP)
            keep(item % kept * (both ? 2 : 1), sequence_at(item / kept));
        else
            convolve_item(item);
    }
}
