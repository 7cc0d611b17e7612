// The sequence of a row of a ragged batch. The includer has parameters `p` with n_sequence, and either
// defines Q_START(i) or has q_start_offset and the buffer q_start.

#ifndef Q_START // a start below 0 counts as 0
#define Q_START(i) uint(max(int(q_start[p.q_start_offset + (i)]), 0))
#endif

// Finds the sequence of packed row `row`, and the row's place in it; false where the row is in none.
bool find_packed(uint row, out uint sequence, out uint place_row)
{
    uint low = 0, high = p.n_sequence; // the last sequence that begins at the row or before
    while (high - low > 1) {
        uint middle = (low + high) / 2;
        if (Q_START(middle) <= row)
            low = middle;
        else
            high = middle;
    }
    uint first = Q_START(low);
    sequence = low;
    place_row = row - first;
    return row >= first && row < Q_START(low + 1);
}
