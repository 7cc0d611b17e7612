// What attention_coop does with a context after the last step of a pass: NaN and Inf that were left
// out of it, its state for the next pass, its rows or records.

#ifndef FACTOR
#define FACTOR(t) factors[t]
#endif

bool is_visible(uint t, uint key, sequence s)
{
    float x = 0.0;
    return key >= ranges[t].x && key < ranges[t].y &&
           (GENERAL == 0 || bias_score(x, row_of(t), key, true, s));
}

// Sums of the NaN and Inf values that row t of the tile sees at `feature` and the next, in the steps
// that had some. The weight of a key that is seen is positive, unless dropout makes it 0.
vec2 find_nonfinite(uint t, uint feature, sequence s)
{
    vec2 x = vec2(0.0);
    [[dont_unroll]] for (uint k = nonfinite[0]; k < nonfinite[1]; k++) {
        if (!is_visible(t, k, s))
            continue;
        float weight = dropped(1.0, row_of(t), k, s);
        [[unroll]] for (uint i = 0; i < 2; i++) {
            uint at = v_index(key_row(k, s), s) + min(feature + i, p.value_dim - 1);
            uint bits = half_bits(v_words[at >> 1], at);
            if (is_nonfinite(bits))
                x[i] = fma(weight, decode(v_words[at >> 1], at, V_TYPE), x[i]);
        }
    }
    return x;
}

#define HIDDEN -1.0 // row_sum of a row that saw no key

// Vector of 4 floats at which a matrix lies over the scores of this subgroup, and its element e.
uint matrix_at() { return S_AT + first_lane_row() * S_PITCH + column() * (N / 4); }
#define MATRIX(e) scores[matrix_at() + (e) / N * S_PITCH + (e) % N / 4][(e) % 4]

// Feature of this workgroup at column c of this subgroup's matrix j.
uint feature_of(uint j, uint c) { return (column() * VALUE_MATRICES + j) * N + c; }

// Adds the matrix over the scores of this subgroup to matrix j of the context. Each matrix gets one
// added, which is 0 but for one: constants index the context, because some compilers keep an array
// that a loop indexes in memory, for the whole kernel.
void add_matrix(uint j)
{
    subgroup_barrier_shared();
    [[unroll]] for (uint i = 0; i < VALUE_MATRICES; i++) {
        ACCUMULATOR by;
        coopMatLoad(by, scores, i == j ? matrix_at() : ZEROS_AT, i == j ? S_PITCH : 0,
                    gl_CooperativeMatrixLayoutRowMajor);
        context[i] = context[i] + by;
    }
    subgroup_barrier_shared();
}

// First word of the state of row t: context, row_sum or HIDDEN of each of its lanes, row_max.
uint row_state(uint t)
{
    uint pitch = STATE_PITCH(VALUE / 4, ROW_LANES);
    return state_of(ROWS * pitch) + t * pitch;
}

bool saw_key(uint t)
{
    bool any = false;
    for (uint i = 0; i < ROW_LANES; i++)
        any = any || saved(row_state(t) + VALUE + i) != HIDDEN;
    return any;
}

// Sets row_sum and row_max, after load_state has found what the pass before stored.
void load_sums();

// Adds row_sum over the lanes of each row, and the sink, into factors; stores what a state or a
// record has of it.
void finish_rows(uvec2 keys, sequence s);

// Stores the log-sum-exp of row t of the tile; sum: without the sink, whose weight may be infinite.
void store_log_sum_of(uint t, bool seen, float natural_max, float sum, sequence s)
{
    store_log_sum(row_of(t), log_sum(seen, natural_max, sum, COOP_UNIT, row_of(t)), s);
}

// A row that saw no key so far keeps its initial values: dead_context made its saved context.
void load_state()
{
    load_sums();
    [[dont_unroll]] for (uint j = 0; j < VALUE_MATRICES; j++) {
        for (uint e = gl_SubgroupInvocationID; e < M * N; e += LANES) {
            uint row = first_lane_row() + e / N, at = row_state(row) + feature_of(j, e % N);
            MATRIX(e) = saw_key(row) ? floatBitsToUint(saved(at)) : 0u;
        }
        add_matrix(j);
    }
}

// Stores x, the context of row t of the tile at features d and d + 1 of this workgroup.
void store(vec2 x, uint t, uint d, uvec2 keys, sequence s)
{
    bool dead = FACTOR(t) == HIDDEN, keep = (STATE & STATE_STORE) != 0;
    uint feature = 4 * first_value4 + d;
    if (feature < p.value_dim)
        x += find_nonfinite(t, feature, s);
    if (!keep && (first_row + t >= n_row || feature >= p.value_dim))
        return;
    if (dead) {
        vec4 before = (STATE & STATE_LOAD) != 0 ? saved4(row_state(t) + d / 4 * 4) : vec4(0.0);
        before = dead_context(row_of(t), keys, feature / 4, before, s);
        x = d % 4 == 0 ? before.xy : before.zw;
    } else if (SPLITS == 0 && !keep) {
        x /= FACTOR(t);
    }
    uint at = keep ? row_state(t) + d : output_base(t, s) + feature;
    if (keep || SPLITS != 0) {
        o_words[at] = floatBitsToUint(x.x);
        if (keep || feature + 1 < p.value_dim)
            o_words[at + 1] = floatBitsToUint(x.y);
        return;
    }
    x = vec2(one_nan(x.x), one_nan(x.y));
    if (feature + 1 < p.value_dim)
        STORE_PAIR(o_words, at, 1u, O_TYPE, x)
    else
        STORE(o_words, at, O_TYPE, x.x)
}

void store_rows(uvec2 keys, sequence s)
{
    finish_rows(keys, s);
    [[dont_unroll]] for (uint j = 0; j < VALUE_MATRICES; j++) {
        [[unroll]] for (uint i = 0; i < VALUE_MATRICES; i++)
            if (i == j)
                coopMatStore(context[i], scores, matrix_at(), S_PITCH,
                             gl_CooperativeMatrixLayoutRowMajor);
        subgroup_barrier_shared();
        for (uint e = 2 * gl_SubgroupInvocationID; e < M * N; e += 2 * LANES)
            store(uintBitsToFloat(uvec2(MATRIX(e), MATRIX(e + 1))), first_lane_row() + e / N,
                  feature_of(j, e % N), keys, s);
        subgroup_barrier_shared();
    }
}
