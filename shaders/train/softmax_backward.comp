// Backward of the softmax of attention, score by score. See softmax_backward_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "params/model.h"
#include "params/train.h"
#include "lib/dtype.glsl"
#include "lib/math.glsl"
#include "lib/philox.glsl"

layout(constant_id = SLOPES_STAGE) const uint STAGE = SLOPES_SUM;
layout(constant_id = SLOPES_GENERAL) const bool GENERAL = true;
layout(constant_id = SLOPES_LANES) const uint LANES = 64;
layout(local_size_x_id = SLOPES_LANES) in;
layout(binding = 0) buffer Scores { uint score_words[]; };
layout(binding = 1) readonly buffer Mask { uint mask_words[]; };
layout(binding = 2) readonly buffer Length { uint length_words[]; };
layout(binding = 3) readonly buffer QueryOffset { uint query_offset_words[]; };
layout(binding = 4) readonly buffer Sink { float sinks[]; };
layout(binding = 5) readonly buffer Alibi { float slopes[]; };
layout(binding = 6) buffer Slopes { uint slope_words[]; };
layout(binding = 7) buffer Rows { float rows[]; };
layout(push_constant) uniform Push { softmax_backward_params p; };
#include "lib/mask.glsl"

uvec3 at; // batch element, head, query
uint mask_row;
int position;
uvec2 range; // of visible keys, but for the mask
float log_sum, slope;
bool dead; // fully masked row

float kept(uint key)
{
    if (!GENERAL || p.dropout == 0.0)
        return 1.0;
    uvec4 counter = uvec4(key, p.draw_query + at.z, (p.draw_place & 0xffffu) + at.y,
                          (p.draw_place >> 16) + at.x);
    uint word = philox(counter, uvec2(p.seed_low, p.seed_high));
    return float(word >> 8) * 5.9604644775390625e-8 >= p.dropout ? 1.0 / (1.0 - p.dropout) : 0.0;
}

// Takes a score to e; false where the row does not see the key. t: tanh of the softcap.
bool weigh(inout float x, out float t, uint key)
{
    float bias = 0.0;
    t = 0.0;
    if (GENERAL && p.softcap != 0.0) {
        t = tanh_accurate(x / p.softcap);
        x = p.softcap * t;
    }
    if (GENERAL && mask_has(MASK_ALIBI)) {
        precise float away = slope * abs(float(position - int(key)));
        x -= away;
    }
    bool visible = key >= range.x && key < range.y;
    if (GENERAL)
        visible = visible && mask_tensor(mask_row, key, bias);
    x = exp_accurate(x + bias - log_sum);
    return visible;
}

// Weight and slope of a key that the row does not see.
uvec2 hidden(uint key)
{
    uint answer = mask_field(MASK_ROW_SHIFT, 2);
    uint n = mask_end(at.x);
    if (!dead || answer == MASKED_ZERO || key >= n)
        return uvec2(HIDDEN_BITS);
    float weight = answer == MASKED_NAN ? uintBitsToFloat(0x7fc00000u) : 1.0 / float(n);
    return uvec2(floatBitsToUint(weight * kept(key)), HIDDEN_BITS);
}

// x: the score; g: the gradient of the weight; of the row: sum of e, and of e m g.
uvec2 weight_and_slope(float x, float g, uint key, vec2 sums)
{
    float t;
    if (!weigh(x, t, key))
        return hidden(key);
    float m = kept(key), weight = x / sums.x;
    precise float of_all = m * g * sums.x, gap = of_all - sums.y;
    float ds = weight * (gap / sums.x);
    if (GENERAL && STAGE == SLOPES_OF_SCORE)
        ds *= 1.0 - t * t;
    return uvec2(floatBitsToUint(weight * m), floatBitsToUint(ds));
}

uint scores_at, slopes_at; // of key 0
float score(uint key) { return uintBitsToFloat(score_words[scores_at + key]); }
float gradient(uint key) { return uintBitsToFloat(slope_words[slopes_at + key]); }

shared vec2 partial[LANES], few[8];

// Adds over the lanes; the sum is that of lane 0.
vec2 add_lanes(vec2 x)
{
    uint lane = gl_LocalInvocationIndex;
    partial[lane] = x;
    barrier();
    if (lane < 8) {
        x = vec2(0.0);
        for (uint i = lane; i < LANES; i += 8)
            x += partial[i];
        few[lane] = x;
    }
    barrier();
    x = vec2(0.0);
    if (lane == 0)
        for (uint i = 0; i < 8; i++)
            x += few[i];
    return x;
}

void add_keys(uint key, uint end, uint of_row)
{
    vec2 sums = vec2(0.0);
    for (; key < end; key += LANES) {
        float t, x = score(key);
        if (weigh(x, t, key)) {
            precise float product = kept(key) * gradient(key) * x;
            sums += vec2(x, product);
        }
    }
    sums = add_lanes(sums);
    uint split = p.mask.n_kv > SLOPES_KEYS ? SLOPES_ROW_SPLITS + 2 * (p.key_first / SLOPES_KEYS + gl_WorkGroupID.z)
                                          : SLOPES_ROW_SUM;
    if (gl_LocalInvocationIndex == 0) {
        rows[of_row + split] = sums.x;
        rows[of_row + split + 1] = sums.y;
    }
}

void main()
{
    uint z = gl_WorkGroupID.y, row = z * p.n_row + gl_WorkGroupID.x;
    uint of_row = p.rows_offset + row * SLOPES_ROW_PITCH(p.mask.n_kv);
    at = uvec3(p.batch_first + z / p.n_head, p.head_first + z % p.n_head * p.head_step,
               p.q_first + gl_WorkGroupID.x);
    position = mask_query_offset(at.x) + int(at.z);
    range = mask_range(at.x, position);
    mask_row = mask_row_index(at.x, at.y, at.z);
    slope = GENERAL && mask_has(MASK_ALIBI) ? slopes[p.alibi_offset + at.y] : 0.0;
    scores_at = p.scores_offset + row * SLOPES_PITCH(p.mask.n_kv);
    slopes_at = p.slopes_offset + row * SLOPES_PITCH(p.mask.n_kv);
    log_sum = rows[of_row + SLOPES_ROW_LOG_SUM];
    dead = floatBitsToUint(log_sum) == 0xff800000u;
    uint key = p.key_first + gl_WorkGroupID.z * SLOPES_KEYS + gl_LocalInvocationIndex;
    uint end = min(key + SLOPES_KEYS, p.mask.n_kv);
    if (STAGE == SLOPES_SUM) {
        add_keys(key, end, of_row);
        return;
    }
    vec2 sums = vec2(rows[of_row + SLOPES_ROW_SUM], rows[of_row + SLOPES_ROW_SUM + 1]);
    if (mask_has(MASK_SINK)) {
        float sink = sinks[p.sink_offset + at.y];
        float weight = sink == log_sum ? 1.0 : exp_accurate(sink - log_sum);
        sums.x += weight;
        if (key == 0)
            rows[of_row + SLOPES_ROW_SINK] = dead ? 0.0 : -(weight / sums.x * (sums.y / sums.x));
    }
    for (; key < end; key += LANES) {
        uvec2 words = weight_and_slope(score(key), gradient(key), key, sums);
        score_words[scores_at + key] = words.x;
        slope_words[slopes_at + key] = words.y;
    }
}
