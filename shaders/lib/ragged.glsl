// The rows of a ragged batch that a tile takes. The includer has attention_params as `p` and the
// buffer q_start. Starts below 0 or past the end are clamped.
#include "lib/start.glsl"

// First row of sequence i.
uint q_begin(uint i) { return start_within(q_start[p.q_start_offset + i], p.n_q); }

// First tile of sequence i, with tiles of `rows` rows: each sequence starts a new tile, and those
// before it fill at most this many.
uint first_tile(uint i, uint rows) { return q_begin(i) * p.group / rows + i; }

// Sequence of a tile: the last whose first tile is not after it. The tile may be past its end.
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
