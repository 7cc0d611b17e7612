// Keys and values in storage buffers. The includer has the constants K_TYPE and V_TYPE, K_VEC and
// V_VEC (rows are whole, aligned vec4).

layout(binding = 1) readonly buffer Keys { uint k_words[]; };
layout(binding = 1) readonly buffer Keys2 { uvec2 k_words2[]; };
layout(binding = 1) readonly buffer Keys4 { vec4 k_vec4[]; };
layout(binding = 2) readonly buffer Values { uint v_words[]; };
layout(binding = 2) readonly buffer Values2 { uvec2 v_words2[]; };
layout(binding = 2) readonly buffer Values4 { vec4 v_vec4[]; };

// Scale of the quantised value at `at`; scales: p.k_scales or p.v_scales.
#define CACHED_SCALE(words, scales, at, type)                                                      \
    (IS_HEAD_SCALED(type) ? uintBitsToFloat(words[scales + WORK_HEAD])                             \
                          : float_from_f16(half_bits(words[scales + at / CACHE_BLOCK >> 1],        \
                                                     scales + at / CACHE_BLOCK)))

// Values 4 d .. 4 d + 3 of the quantised row at value `base`.
#define QUANTISED4(words, scales, type)                                                            \
    {                                                                                              \
        uint at_ = base + 4 * d;                                                                   \
        float scale_ = CACHED_SCALE(words, scales, at_, type);                                     \
        uint word_ = words[word_index(at_, type)], first_ = at_ % WORD_VALUES(type);               \
        for (uint i = 0; i < 4; i++)                                                               \
            x[i] = scale_ * stored_value(word_, first_ + i, type);                                 \
    }

// Vec4 d of the row of keys at element `base`; 0 past head_dim.
vec4 load_k(uint base, uint d)
{
    vec4 x = vec4(0.0);
    if (IS_SCALED(K_TYPE)) {
        if (4 * d < p.head_dim)
            QUANTISED4(k_words, p.k_scales, K_TYPE)
        return x;
    }
    if (K_VEC != 0) {
        if (4 * d < p.head_dim)
            x = K_TYPE == TYPE_F32 ? k_vec4[(base >> 2) + d]
                                   : decode4(k_words2[(base >> 2) + d], K_TYPE);
        return x;
    }
    for (uint i = 0; i < 4; i++)
        if (4 * d + i < p.head_dim)
            x[i] = LOAD(k_words, base + 4 * d + i, K_TYPE);
    return x;
}

// Vec4 d of the row of values at element `base`; 0 past value_dim.
vec4 load_v(uint base, uint d)
{
    vec4 x = vec4(0.0);
    if (IS_SCALED(V_TYPE)) {
        if (4 * d < p.value_dim)
            QUANTISED4(v_words, p.v_scales, V_TYPE)
        return x;
    }
    if (V_VEC != 0) {
        if (4 * d < p.value_dim)
            x = V_TYPE == TYPE_F32 ? v_vec4[(base >> 2) + d]
                                   : decode4(v_words2[(base >> 2) + d], V_TYPE);
        return x;
    }
    for (uint i = 0; i < 4; i++)
        if (4 * d + i < p.value_dim)
            x[i] = LOAD(v_words, base + 4 * d + i, V_TYPE);
    return x;
}
