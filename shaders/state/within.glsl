// What both forms of linear_weights share: rows of keys and queries, gates, and the inverse. The includer
// has lane, factors_of, and the matrix [j][four i].

shared vec4 gate_stage[C];  // decay of a head, beta, step
shared vec2 lengths[2 * C]; // [k, q][token]: what results are multiplied by, and rows before

// Both factors of a row of keys or queries.
vec2 factors_of(uint side, uint row);
vec4 matrix_four(uint at);
void set_matrix_four(uint at, vec4 x);

vec4 row_of(uint side, uint at, uint count)
{
    return side == OF_K ? k_four(at, count) : q_four(at, count);
}

uint first_of(uint side, uint row)
{
    return side == OF_K ? place(p.k, uvec4(packed_batch(), head / p.k_ratio, row, 0))
                        : place(p.q, uvec4(packed_batch(), head / p.q_ratio, row, 0));
}

// ---- In front -----------------------------------------------------------------------------------

// 1 / length, and what the row is shrunk by.
vec2 length_of(uint side, uint row)
{
    if (!has(LINEAR_NORMED))
        return vec2(1.0);
    uint first = first_of(side, row), step = side == OF_K ? p.k.stride3 : p.q.stride3;
    float most = 0.0, sum = 0.0;
    [[dont_unroll]] for (uint c = 0; c < FOURS; c++) {
        vec4 x = abs(row_of(side, first + 4 * c * step, features_from(4 * c, p.head_dim)));
        most = max(most, max(max(x.x, x.y), max(x.z, x.w)));
    }
    float shrink = shrink_of_size(most);
    [[dont_unroll]] for (uint c = 0; c < FOURS; c++) {
        vec4 x = row_of(side, first + 4 * c * step, features_from(4 * c, p.head_dim)) * shrink;
        sum = dot_added(x, x, sum);
    }
    precise float epsilon = p.norm_epsilon * shrink * shrink;
    return vec2(1.0 / sqrt(sum + epsilon), shrink);
}

// Tokens from n on change nothing.
void make_gates(uint row, uint n)
{
    if (lane < C)
        gate_stage[lane] = lane < n ? gates_of(row + lane) : vec4(0.0);
    [[dont_unroll]] for (uint i = lane; i < 2 * C; i += LANES)
        lengths[i] = i % C < n ? factors_of(i / C, row + i % C) : vec2(1.0);
}

// ---- The inverse: T = (I + L)^-1, four rows at a time, in L's place; a lane has column j --------------

// Four rows of T in a column, made of L and of the rows above.
vec4 rows_of_inverse(uint q, uint j)
{
    vec4 x = vec4(equal(4 * q + uvec4(0, 1, 2, 3), uvec4(j)));
    [[dont_unroll]] for (uint s = j / 4; s < q; s++) {
        vec4 t = matrix_four(j * (QUADS + 1) + s);
        [[unroll]] for (uint i = 0; i < 4; i++) // what stands above the diagonal is 0 times it, or NaN
            if (4 * s + i >= j)
                x = fma(-matrix_four((4 * s + i) * (QUADS + 1) + q), vec4(t[i]), x);
    }
    vec3 l = matrix_four(4 * q * (QUADS + 1) + q).yzw;
    x.yzw = 4 * q >= j ? fma(-l, vec3(x.x), x.yzw) : x.yzw;
    vec2 m = matrix_four((4 * q + 1) * (QUADS + 1) + q).zw;
    x.zw = 4 * q + 1 >= j ? fma(-m, vec2(x.y), x.zw) : x.zw;
    float o = matrix_four((4 * q + 2) * (QUADS + 1) + q).w;
    x.w = 4 * q + 2 >= j ? fma(-o, x.z, x.w) : x.w;
    return x;
}

void invert()
{
    [[dont_unroll]] for (uint q = 0; q < QUADS; q++) {
        vec4 x = vec4(0.0);
        if (lane < C && lane < 4 * q + 4)
            x = rows_of_inverse(q, lane);
        barrier();
        if (lane < C)
            set_matrix_four(lane * (QUADS + 1) + q, x);
        barrier();
    }
}
