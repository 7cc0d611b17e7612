// Rows and keys of a workgroup: those of a batch element of dense tensors, of a sequence of a
// ragged batch, whose keys are packed too or lie in a cache, or of a sequence of a paged cache. The
// includer has attention_params as `p`, and the buffers q_start, kv_start and table. WORK_HEAD is the workgroup's key head, by default y of
// the grid.
#ifndef WORK_HEAD
#define WORK_HEAD gl_WorkGroupID.y
#endif

#ifndef PAGED // where it is no constant of the kernel
#define PAGED (p.page_size != 0)
#endif

#include "lib/ragged.glsl"

struct sequence {
    uint index;   // batch element or sequence, for lengths, offsets, masks and dropout
    uint batch;   // batch element for the strides: index, or 0 where q and keys are packed
    uint q_first, n_q, kv_first, n_kv; // rows along the row axes
    int position; // of query 0
};

// Finds the workgroup's sequence, and its tile of `rows` rows in that sequence.
sequence find_sequence(uint rows, out uint tile)
{
    tile = gl_WorkGroupID.x;
    uint z = gl_WorkGroupID.z;
    sequence s = sequence(p.batch_first + z, z, 0, p.n_q, 0, p.mask.n_kv, 0);
    if (p.n_sequence == 0) {
        if (mask_has(MASK_CAUSAL) && (tile & 1u) != 0u) // a long tile after a short one
            tile = gl_NumWorkGroups.x - 1 - tile / 2;
        else if (mask_has(MASK_CAUSAL))
            tile /= 2;
    } else {
        tile = p.tile_first + tile * p.tile_step;
        s.index = sequence_of_tile(tile, rows);
        s.batch = p.kv_packed != 0 ? 0 : s.index; // the strides of packed q and output are 0
        s.q_first = q_begin(s.index);
        uint first = first_tile(s.index, rows);
        s.n_q = tile < first ? 0 : max(q_begin(s.index + 1), s.q_first) - s.q_first;
        tile -= first;
        if (p.kv_packed != 0) {
            s.kv_first = start_within(kv_start[p.kv_start_offset + s.index], p.mask.n_kv);
            uint kv_end = start_within(kv_start[p.kv_start_offset + s.index + 1], p.mask.n_kv);
            s.n_kv = max(kv_end, s.kv_first) - s.kv_first;
        }
    }
    s.position = mask_query_offset(s.index) + int(p.query_first);
    return s;
}

// Row of k and v that holds a key of the sequence. A page number past the pool reads as the last
// page.
uint key_row(uint key, sequence s)
{
    if (!PAGED)
        return s.kv_first + key;
    uint page = table[p.table_offset + s.index * p.table_row + key / p.page_size];
    return min(page, p.n_page - 1) * p.page_size + key % p.page_size;
}

uint k_index(uint row, sequence s)
{
    uint outer = !PAGED ? s.batch : row / p.page_size;
    uint inner = !PAGED ? row : row % p.page_size;
    return p.k_offset + outer * p.k_batch + WORK_HEAD * p.k_head + inner * p.k_row;
}

uint v_index(uint row, sequence s)
{
    uint outer = !PAGED ? s.batch : row / p.page_size;
    uint inner = !PAGED ? row : row % p.page_size;
    return p.v_offset + outer * p.v_batch + WORK_HEAD * p.v_head + inner * p.v_row;
}
