// Which rows of a ragged batch a tile takes. The includer has attention_params as `p` and the
// buffer q_start. Offsets past the end are clamped to it.

// Row along the row axes where sequence i begins.
uint q_begin(uint i) { return min(q_start[p.q_start_offset + i], p.n_q); }

// The first tile of sequence i, of tiles of `rows` rows: each sequence begins a tile of its own,
// and those before it fill no more than so many.
uint first_tile(uint i, uint rows) { return q_begin(i) * p.group / rows + i; }

// The sequence that a tile belongs to: the last one whose first tile is not behind it. The tile may
// be past its end.
uint sequence_of_tile(uint tile, uint rows)
{
    uint low = 0, high = p.n_sequence;
    while (high - low > 1) {
        uint middle = (low + high) / 2;
        if (first_tile(middle, rows) <= tile)
            low = middle;
        else
            high = middle;
    }
    return low;
}
