// The keys a row sees, and the bias of the mask tensor. The includer declares parameters `p` with a
// member `mask`, and the buffers mask_words, length_words and query_offset_words.

bool mask_has(uint flag)
{
    return (p.mask.flags & flag) != 0u;
}

uint mask_field(uint shift, uint bits)
{
    return p.mask.flags >> shift & ((1u << bits) - 1u);
}

// Position of query 0 of a batch element.
int mask_query_offset(uint batch)
{
    if (!mask_has(MASK_OFFSET))
        return p.mask.default_offset;
    uint index = p.mask.query_offset_offset + (mask_has(MASK_OFFSET_PER_BATCH) ? batch : 0u);
    return clamp(int(query_offset_words[index]), -(1 << 30), 1 << 30);
}

// Number of keys by kv_length; the lengths may lie beside the query offsets.
uint mask_length(uint index)
{
    return mask_has(MASK_LENGTH_BESIDE) ? query_offset_words[index] : length_words[index];
}

// Keys of a batch element by its length. No result may depend on those from there on.
uint mask_end(uint batch)
{
    if (!mask_has(MASK_LENGTH))
        return p.mask.n_kv;
    uint index = p.mask.length_offset + (mask_has(MASK_LENGTH_PER_BATCH) ? batch : 0u);
    return uint(clamp(int(mask_length(index)), 0, int(p.mask.n_kv)));
}

// First and end key of a row at `position`, by length, causal mask and window; first <= end.
uvec2 mask_range(uint batch, int position)
{
    int first = 0, end = int(mask_end(batch));
    if (mask_has(MASK_TENSOR))
        end = min(end, int(p.mask.mask_n_kv));
    if (mask_has(MASK_CAUSAL))
        end = min(end, position < 0 ? 0 : position + 1);
    // Compares before it subtracts or adds: either may overflow.
    if (mask_has(MASK_WINDOW_LEFT) && position > p.mask.window_left)
        first = position - p.mask.window_left;
    if (mask_has(MASK_WINDOW_RIGHT) && position < end - p.mask.window_right)
        end = position + p.mask.window_right + 1;
    end = max(end, 0);
    return uvec2(min(first, end), end);
}

// Reads the mask tensor at a key: false where it hides the key, else the bias of the score.
bool mask_tensor(uint row_index, uint key, out float bias)
{
    bias = 0.0;
    if (!mask_has(MASK_TENSOR))
        return true;
    uint index = row_index + key * p.mask.mask_col;
    uint type = mask_field(MASK_TYPE_SHIFT, 3);
    uint word = mask_words[word_index(index, type)];
    if (type == TYPE_BOOL)
        return (word >> (8u * (index & 3u)) & 0xffu) != 0u;
    bias = decode(word, index, type);
    return floatBitsToUint(bias) != 0xff800000u && !is_nan(bias); // -inf and NaN hide
}

uint mask_row_index(uint batch, uint head, uint query)
{
    return p.mask.mask_offset + batch * p.mask.mask_batch + head * p.mask.mask_head +
           query * p.mask.mask_row;
}
