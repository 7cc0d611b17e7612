// A step of SGD, Adam or AdamW, element by element, or with PAIRS by neighbours of w, which are whole
// words. See optimiser_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "params/model.h"
#include "params/train.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"

layout(constant_id = OPTIMISER_W_TYPE) const uint W_TYPE = 0;
layout(constant_id = OPTIMISER_G_TYPE) const uint G_TYPE = 0;
layout(constant_id = OPTIMISER_KIND) const uint KIND = 0;
layout(constant_id = OPTIMISER_MOMENTUM) const uint MOMENTUM = 0;
layout(constant_id = OPTIMISER_PAIRS) const bool PAIRS = false;
layout(local_size_x = ITEM_LANES) in;
layout(binding = 0) buffer W { uint w_words[]; };
layout(binding = 1) readonly buffer G { uint g_words[]; };
layout(binding = 2) buffer M { float m_words[]; };
layout(binding = 3) buffer V { float v_words[]; };
layout(binding = 4) readonly buffer Rate { float rates[]; };
layout(push_constant) uniform Push { optimiser_params p; };

float sgd(float w, float g, uvec4 at)
{
    float rate = rates[p.rate_offset];
    if (MOMENTUM > 0) {
        uint place_m = place(p.m, at);
        float m = one_nan(fma(p.momentum, m_words[place_m], g));
        m_words[place_m] = m;
        g = MOMENTUM == 2 ? fma(p.momentum, m, g) : m;
    }
    return w - rate * g;
}

float adam(float w, float g, uvec4 at)
{
    uint place_m = place(p.m, at), place_v = place(p.v, at);
    float m = m_words[place_m];
    precise float towards = g - m; // from the nearer of both, which a small g beside a large m needs
    m = one_nan(p.rest1 < 0.5 ? fma(p.rest1, towards, m) : fma(p.rest1 - 1.0, towards, g));
    float v = one_nan(fma(p.rest2 * g, g, p.beta2 * v_words[place_v]));
    m_words[place_m] = m;
    v_words[place_v] = v;
    float below = sqrt(v) / rates[p.rate_offset + 2] + p.epsilon;
    return w - rates[p.rate_offset + 1] * (m / below);
}

// The parameter at `at` after the step.
float stepped(uvec4 at)
{
    float w = LOAD(w_words, place(p.w, at), W_TYPE), g = LOAD(g_words, place(p.g, at), G_TYPE);
    if (p.decay != 0.0) { // 0 times an infinite parameter is NaN
        if (KIND == OPTIMISER_ADAMW)
            w -= rates[p.rate_offset] * p.decay * w;
        else
            g = fma(p.decay, w, g);
    }
    return one_nan(KIND == OPTIMISER_SGD ? sgd(w, g, at) : adam(w, g, at));
}

void main()
{
    const uint each = PAIRS ? 2 : 1;
    uint width = p.size3 / each, n = width * p.size2 * p.size1 * p.size0;
    for (uint nth = 0; nth < ITEMS_EACH; nth++) {
        uint item = item_at(nth);
        if (item >= n)
            return;
        uvec4 at = item_coordinates(item, width, p.size2, p.size1);
        at.w *= each;
        uint index = place(p.w, at);
        float w = stepped(at);
        if (PAIRS)
            w_words[index >> 1] = pair_word(vec2(w, stepped(at + uvec4(0, 0, 0, 1))), W_TYPE);
        else
            STORE(w_words, index, W_TYPE, w)
    }
}
