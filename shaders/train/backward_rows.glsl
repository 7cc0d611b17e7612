// Rows of queries, keys, values and gradients of outputs, of any type. The includer has the buffers,
// the types, VECS, key_head and head.

#define LOAD4(to, name, base, d, dim, type, vec)                                                   \
    {                                                                                              \
        if ((VECS & vec) != 0) {                                                                   \
            if (4 * (d) < dim)                                                                     \
                to = type == TYPE_F32 ? name##_vec4[((base) >> 2) + (d)]                           \
                                      : decode4(name##_words2[((base) >> 2) + (d)], type);         \
        } else {                                                                                   \
            [[dont_unroll]] for (uint i = 0; i < 4; i++) {                                         \
                if (4 * (d) + i < dim)                                                             \
                    to.x = LOAD(name##_words, (base) + 4 * (d) + i, type);                         \
                to = to.yzwx;                                                                      \
            }                                                                                      \
        }                                                                                          \
    }

// Vec4 d of a query or of its output's gradient; 0 past the end of the row.
vec4 load_query(bool second, uint query, uint d)
{
    vec4 y = vec4(0.0);
    query = min(query, p.n_q - 1);
    if (second)
        LOAD4(y, dy,
              p.dy_offset + gl_WorkGroupID.z * p.dy_batch + head * p.dy_head + query * p.dy_row, d,
              p.value_dim, DY_TYPE, BACKWARD_DY_VEC)
    else
        LOAD4(y, q, p.q_offset + gl_WorkGroupID.z * p.q_batch + head * p.q_head + query * p.q_row, d,
              p.head_dim, Q_TYPE, BACKWARD_Q_VEC)
    return y;
}

// Vec4 d of a key or value.
vec4 load_key(bool second, uint key, uint d)
{
    vec4 y = vec4(0.0);
    key = min(key, p.mask.n_kv - 1);
    if (second)
        LOAD4(y, v, p.v_offset + gl_WorkGroupID.z * p.v_batch + key_head * p.v_head + key * p.v_row,
              d, p.value_dim, V_TYPE, BACKWARD_V_VEC)
    else
        LOAD4(y, k, p.k_offset + gl_WorkGroupID.z * p.k_batch + key_head * p.k_head + key * p.k_row,
              d, p.head_dim, K_TYPE, BACKWARD_K_VEC)
    return y;
}
