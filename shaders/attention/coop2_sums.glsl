// Sums of the rows of attention_coop2 before the first and after the last step of a pass.

// Element i of row t in the matrix over the scores.
#define ROW_ELEMENT(t, i) scores[(t) * S_PITCH + (i) / 4][(i) % 4]

#define PUT_MATRIX(y)                                                                              \
    subgroup_barrier_shared();                                                                     \
    coopMatStore(y, scores, matrix_at(), S_PITCH, gl_CooperativeMatrixLayoutRowMajor);             \
    subgroup_barrier_shared();

#define GET_MATRIX(y)                                                                              \
    subgroup_barrier_shared();                                                                     \
    coopMatLoad(y, scores, matrix_at(), S_PITCH, gl_CooperativeMatrixLayoutRowMajor);              \
    subgroup_barrier_shared();

// Whether row t saw a key so far.
bool row_saw(uint t, uvec2 keys)
{
    uvec2 range = ranges[t];
    bool here = GENERAL != 0 ? (seen_rows[t / M] >> t % M & 1u) != 0
                             : max(range.x, keys.x) < min(range.y, keys.y);
    return here || ((STATE & STATE_LOAD) != 0 && saw_key(t));
}

void load_sums()
{
    uint first = first_lane_row();
    for (uint e = gl_SubgroupInvocationID; e < M * N; e += LANES) {
        uint t = first + e / N;
        float sum = saved(row_state(t) + VALUE + e % N);
        ROW_ELEMENT(t, e % N) = floatBitsToUint(sum == HIDDEN ? 0.0 : sum);
    }
    GET_MATRIX(row_sum)
    for (uint e = gl_SubgroupInvocationID; e < M * N; e += LANES) {
        uint t = first + e / N;
        float top = saw_key(t) ? max(saved(row_state(t) + VALUE + N), NO_MAX) : NO_MAX;
        ROW_ELEMENT(t, e % N) = floatBitsToUint(top);
    }
    GET_MATRIX(row_max)
}

// Adds the columns of row_sum, in order, and the sink; stores what a state or a record has of a
// row.
void finish_rows(uvec2 keys, sequence s)
{
    bool keep = (STATE & STATE_STORE) != 0;
    uint first = first_lane_row(), end = first + M;
    if (GENERAL != 0)
        atomicOr(seen_rows[gl_SubgroupID], seen_bits);
    PUT_MATRIX(row_sum)
    for (uint t = first + gl_SubgroupInvocationID; t < end; t += LANES) {
        bool saw = row_saw(t, keys);
        float sum = 0.0;
        for (uint i = 0; i < N; i++) {
            float own = uintBitsToFloat(ROW_ELEMENT(t, i));
            sum += own;
            if (keep)
                o_words[row_state(t) + VALUE + i] = floatBitsToUint(saw ? own : HIDDEN);
        }
        factors[t] = saw ? sum : HIDDEN;
    }
    PUT_MATRIX(row_max)
    for (uint t = first + gl_SubgroupInvocationID; t < end; t += LANES) {
        float top = uintBitsToFloat(ROW_ELEMENT(t, 0));
        bool saw = factors[t] != HIDDEN;
        if (!saw)
            top = MINUS_INFINITY;
        precise float natural_max = top * (GENERAL != 0 ? 1.0 : 0.69314718); // ln 2
        if (keep)
            o_words[row_state(t) + VALUE + N] = floatBitsToUint(top);
        if (LOG_SUM != 0 && !keep && first_row + t < n_row && first_value4 == 0)
            store_log_sum_of(t, saw, natural_max, factors[t], s);
        if (saw && SPLITS == 0 && mask_has(MASK_SINK))
            factors[t] = fma(COOP_UNIT, sink_weight(sinks[p.sink_offset + p.head_first +
                                                     head_of(row_of(t))], natural_max), factors[t]);
        if (SPLITS != 0 && !keep && first_row + t < n_row && first_value4 == 0)
            store_split(output_base(t, s), natural_max, saw ? factors[t] : 0.0, saw, COOP_UNIT);
    }
    subgroup_barrier_shared();
}
