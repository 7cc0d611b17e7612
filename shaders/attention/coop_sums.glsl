// Sums of the rows of attention_coop before the first and after the last step of a pass. A lane has
// those of its row and lane.

void load_sums()
{
    uint t = lane_row(), sums = row_state(t) + VALUE;
    if (saw_key(t)) {
        float sum = saved(sums + row_lane());
        seen = sum != HIDDEN;
        row_sum = seen ? sum : 0.0;
        row_max = saved(sums + ROW_LANES);
    }
}

// Stores row_sum of each lane and row_max, before those of a row are added.
void store_sums(uint t)
{
    uint sums = row_state(t) + VALUE;
    o_words[sums + row_lane()] = floatBitsToUint(seen ? row_sum : HIDDEN);
    if (row_lane() == 0)
        o_words[sums + ROW_LANES] = floatBitsToUint(row_max);
}

// Adds row_sum over the lanes of the row, and the sink; stores what a record has of a row.
void finish_row(uint t, sequence s)
{
    precise float natural_max = row_max * (GENERAL != 0 ? 1.0 : 0.69314718); // ln 2
    float sum = 0.0;
    barrier(); // the scores are free
    scores[S_AT + t * S_PITCH + row_lane() / 4][row_lane() % 4] = floatBitsToUint(seen ? row_sum : HIDDEN);
    barrier();
    seen = false;
    for (uint i = 0; i < ROW_LANES; i++) {
        float x = uintBitsToFloat(scores[S_AT + t * S_PITCH + i / 4][i % 4]);
        seen = seen || x != HIDDEN;
        sum += x == HIDDEN ? 0.0 : x;
    }
    if (LOG_SUM != 0 && (STATE & STATE_STORE) == 0 && first_row + t < n_row && row_lane() == 0 &&
        first_value4 == 0)
        store_log_sum_of(t, seen, natural_max, sum, s);
    if (seen && SPLITS == 0 && mask_has(MASK_SINK))
        sum = fma(COOP_UNIT,
                  sink_weight(sinks[p.sink_offset + p.head_first + head_of(row_of(t))], natural_max),
                  sum);
    if (row_lane() == 0)
        FACTOR(t) = seen ? sum : HIDDEN;
    if (SPLITS != 0 && (STATE & STATE_STORE) == 0 && first_row + t < n_row && row_lane() == 0 &&
        first_value4 == 0)
        store_split(output_base(t, s), natural_max, sum, seen, COOP_UNIT);
    barrier();
}

void finish_rows(uvec2 keys, sequence s)
{
    if ((STATE & STATE_STORE) != 0)
        store_sums(lane_row());
    finish_row(lane_row(), s);
}
