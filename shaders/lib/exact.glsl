// The softmax with twice float32's digits: the includer has the row's scores in slice_words, and
// reduce_add(). Scores stay where they are until the weights replace them.
#include "lib/pairs.glsl"

// Maximum and sum of the whole row.
float exact_max;
vec2 exact_sum;

// Takes the multiple of `grain` that is nearest to it from what a lane has; returns the lanes' sum.
vec2 reduce_multiples(inout vec2 mine, float grain)
{
    float large = 12582912.0 * grain; // 1.5 * 2^23
    precise float taken = (mine.x + large) - large;
    mine = pair_add(mine, vec2(-taken, 0.0));
    return vec2(reduce_add(taken), 0.0);
}

// The sum of what the lanes have, at most 2^14 each. It is split in multiples of three units, so
// large that float32 holds their sums over 128 lanes exactly, in any order, and a rest. No loop, as
// spirv-opt loses `precise` when it unrolls one.
vec2 reduce_pairs(vec2 mine)
{
    vec2 sum = reduce_multiples(mine, 0.25);
    sum = pair_add(sum, reduce_multiples(mine, 3.814697265625e-6));       // 2^-18
    sum = pair_add(sum, reduce_multiples(mine, 5.8207660913467407e-11)); // 2^-34
    return pair_add(sum, vec2(reduce_add(mine.x + mine.y), 0.0));
}

void sum_exactly(uint row, float row_max, uint head, uint lane)
{
    vec2 sum = vec2(0.0);
    exact_max = row_max;
    for (uint key = keys.x + lane; key < keys.y; key += LANES) {
        uint bits = slice_words[row + key];
        if (bits != HIDDEN_MARK)
            sum = pair_add(sum, pair_weight(uintBitsToFloat(bits), row_max));
    }
    exact_sum = reduce_pairs(sum);
    if (!mask_has(MASK_SINK))
        return;
    float sink = sinks[p.sink_offset + head];
    exact_sum = pair_add(exact_sum, sink == row_max ? vec2(1.0, 0.0) : pair_weight(sink, row_max));
}

float exact_weight(float x) { return pair_divide(pair_weight(x, exact_max), exact_sum); }
