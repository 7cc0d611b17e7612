// Reads of 16 bytes along k from matrices of float32 or 16-bit elements.

#define CHUNK(type) ((type) == TYPE_F32 ? 4u : 8u) // elements

// Makes uvec4 name(whole, index, step, count, type): elements `index`, `index` + `step`, ... of a
// buffer, 0 beyond `count`. Where `whole` is not 0, they are an aligned chunk.
#define CHUNK_LOADER(name, words, chunks)                                                          \
    uvec4 name(uint whole, uint index, uint step, uint count, uint type)                           \
    {                                                                                              \
        if (whole != 0)                                                                            \
            return chunks[index / CHUNK(type)];                                                    \
        uvec4 x = uvec4(0);                                                                        \
        [[unroll]] for (uint i = 0; i < 8; i++, index += step) {                                   \
            if (i >= CHUNK(type) || i >= count)                                                    \
                continue;                                                                          \
            uint word = words[word_index(index, type)];                                            \
            if (type == TYPE_F32)                                                                  \
                x[i & 3] = word;                                                                   \
            else                                                                                   \
                x[i >> 1] |= half_bits(word, index) << (16 * (i & 1));                             \
        }                                                                                          \
        return x;                                                                                  \
    }
