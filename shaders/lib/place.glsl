// Batch (or page) and row of a position in a cache. The includer has cache_params as `p`, and the
// buffer `table`.
uvec2 place(uint batch, uint position)
{
    if (p.page_size == 0)
        return uvec2(batch, position);
    uint page = table[p.table_offset + batch * p.table_row + position / p.page_size];
    return uvec2(min(page, p.n_page - 1), position % p.page_size);
}
