// The sequence of a row of a ragged batch. The includer has parameters `p` with n_sequence and
// q_start_offset, and the buffer q_start.

// Finds the sequence of packed row `row`, and the row's place in it; false where the row is in none.
bool find_packed(uint row, out uint sequence, out uint place_row)
{
    uint low = 0, high = p.n_sequence; // the last sequence that begins at the row or before
    while (high - low > 1) {
        uint middle = (low + high) / 2;
        if (q_start[p.q_start_offset + middle] <= row)
            low = middle;
        else
            high = middle;
    }
    uint first = q_start[p.q_start_offset + low];
    sequence = low;
    place_row = row - first;
    return row >= first && row < q_start[p.q_start_offset + low + 1];
}
