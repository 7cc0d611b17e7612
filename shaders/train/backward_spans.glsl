// Spans of attention's gradients. The includer has what backward_scores.glsl asks for, OWN and OTHERS,
// lane_sums, LANES_X lanes a row, key_head and tested, and the functions step and store_sums.

#ifndef OF_OTHERS
#define OF_OTHERS(own) ((own) >= p.own_end) // rows of a tile that no result is stored of
#endif

// Adds the sums of a span to Z and Y of each row; with the last span, the sink.
void store_row_sums(uint span)
{
    barrier();
    for (uint t = gl_LocalInvocationIndex; t < OWN; t += THREADS) {
        uint query = own_first + t;
        if (OF_OTHERS(query))
            continue;
        uint at = row_index(query);
        vec2 all = span == 0 ? vec2(0.0)
                             : vec2(rows[at + BACKWARD_ROW_SUM], rows[at + BACKWARD_ROW_SUM + 1]);
        vec2 here = vec2(0.0);
        for (uint lane = 0; lane < LANES_X; lane++) {
            here += lane_sums[t * LANES_X + lane];
            lane_sums[t * LANES_X + lane] = vec2(0.0);
        }
        all += here;
        if (span + 1 == p.n_span && mask_has(MASK_SINK)) {
            float sink = sinks[p.sink_offset + head_of()], log_sum = rows[at + BACKWARD_ROW_LOG_SUM];
            bool dead = floatBitsToUint(log_sum) == 0xff800000u;
            float weight = sink == log_sum ? 1.0 : exp_accurate(sink - log_sum);
            all.x += weight;
            rows[at + BACKWARD_ROW_SINK] = dead ? 0.0 : -(weight / all.x * (all.y / all.x));
        }
        rows[at + BACKWARD_ROW_SUM] = all.x;
        rows[at + BACKWARD_ROW_SUM + 1] = all.y;
    }
    barrier();
}

// Adds a span: BACKWARD_SPAN of the other side, and of the queries of one head.
void add_span(uint span)
{
    uint n_other = OWNS_KEYS ? p.n_q : p.mask.n_kv;
    uint n_other_span = (n_other - 1) / BACKWARD_SPAN + 1;
    uint first = span % n_other_span * BACKWARD_SPAN, end = min(first + BACKWARD_SPAN, n_other);
    uint own_end = min(own_first + OWN, p.own_end);
    if (OWNS_KEYS) {
        head = key_head * p.group + span / n_other_span;
        alibi = GENERAL && mask_has(MASK_ALIBI) ? slopes[p.alibi_offset + head_of()] : 0.0;
    }
    if (OWNS_KEYS)
        find_span(first, end);
    for (uint other = first; other < end; other += OTHERS) {
        if (OWNS_KEYS)
            find_bounds(other, first);
        uint key = OWNS_KEYS ? own_first : other;
        uint key_end = OWNS_KEYS ? own_end : other + OTHERS;
        if (!some_sees(key, key_end))
            continue;
        tested = !all_see(key, key_end);
        if (OWNS_KEYS)
            store_queries(other);
        step(other);
    }
    if (STAGE == BACKWARD_SUMS)
        store_row_sums(span);
    else
        store_sums(span);
}

// Sets what of the grid's place does not depend on the features; returns the tile of them.
uint find_place()
{
    uint y = gl_WorkGroupID.y / p.n_feature_tile;
    own_first = p.own_first + gl_WorkGroupID.x * OWN;
    key_head = OWNS_KEYS ? y : (p.head_first + y) / p.group - p.head_first / p.group;
    head = y;
    alibi = GENERAL && mask_has(MASK_ALIBI) ? slopes[p.alibi_offset + p.head_first + y] : 0.0;
    return gl_WorkGroupID.y % p.n_feature_tile;
}

void add_spans()
{
    if (!OWNS_KEYS) {
        find_span(own_first, own_first);
        find_bounds(own_first, own_first);
        store_queries(own_first);
    }
    // No condition of a loop loads, see tests/span/module.sh, and no register keeps the end.
    bool more = true;
    for (uint span = p.span_first; more; span++) {
        add_span(span);
        more = span + 1 < p.span_end;
    }
}
