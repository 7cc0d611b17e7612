// The words of keys and values that a lane of attention_feature has, their scales, and sums over lanes.

uint64_t row_at(uvec2 address, uint base, uint type)
{
    return packUint2x32(address) + 4ul * word_index(base, type);
}

// First elements of the keys, or values, of group g of a step, whose first is at `base`: a page
// holds whole steps. Keys past the end repeat the last.
void rows_at(uint base, uint row, uint g, uint last, out uint at[8])
{
    [[unroll]] for (uint j = 0; j < 8; j++)
        at[j] = base + min(8 * g + j, last) * row;
}

// Word of this lane in vector c of a row.
float word_of(uint64_t row, uint c)
{
    if (OWN_WORDS != 0)
        return uintBitsToFloat(Word(row).at[8 * c + lane()]);
    return pick(Fours(row).at[2 * c], Fours(row).at[2 * c + 1]);
}

float value_of(float word, uint i, uint type)
{
    uint bits = floatBitsToUint(word);
    if (type == TYPE_F32)
        return word;
    if (IS_SCALED(type))
        return stored_value(bits, i, type);
    if (type == TYPE_BF16)
        return uintBitsToFloat(i == 0 ? bits << 16 : bits & 0xffff0000u);
    return unpackHalf2x16(bits)[i];
}

// Address of the first scale, see CACHE_BLOCK.
uint64_t scales_at(uvec2 address, uint scales, uint type)
{
    return row_at(address, IS_HEAD_SCALED(type) ? scales : scales / 2, TYPE_F32);
}

// Scale of this lane's word in vector c of a quantised row at value `base`; scales: address of the
// first of all.
float scale_of(uint64_t scales, uint base, uint c, uint type)
{
    if (IS_HEAD_SCALED(type))
        return uintBitsToFloat(Word(scales).at[work_head]);
    uint at = (base + c * 8 * WORD_VALUES(type)) / CACHE_BLOCK;
    float scale = unpackHalf2x16(Word(scales).at[at >> 1])[at & 1];
    if (type == TYPE_Q8_0)
        return scale;
    return lane() < 4 ? scale : unpackHalf2x16(Word(scales).at[at + 1 >> 1])[at + 1 & 1];
}

// Scales of a lane's words in each of eight rows at values at[8]. Where lanes load alone, each loads
// those of one row.
void scales_of(uint64_t scales, uint at[8], uint c, uint type, out float scale[8])
{
    if (OWN_WORDS == 0 || IS_HEAD_SCALED(type)) {
        float head = IS_HEAD_SCALED(type) ? scale_of(scales, 0, 0, type) : 0.0;
        [[unroll]] for (uint j = 0; j < 8; j++)
            scale[j] = IS_HEAD_SCALED(type) ? head : scale_of(scales, at[j], c, type);
        return;
    }
    uint mine = at[0];
    [[unroll]] for (uint j = 1; j < 8; j++)
        mine = lane() == j ? at[j] : mine;
    mine = (mine + c * 8 * WORD_VALUES(type)) / CACHE_BLOCK;
    float low = unpackHalf2x16(Word(scales).at[mine >> 1])[mine & 1], high = low;
    if (type == TYPE_Q4_0)
        high = unpackHalf2x16(Word(scales).at[mine + 1 >> 1])[mine + 1 & 1];
    [[unroll]] for (uint j = 0; j < 8; j++) {
        scale[j] = subgroupShuffle(low, j);
        if (type == TYPE_Q4_0)
            scale[j] = lane() < 4 ? scale[j] : subgroupShuffle(high, j);
    }
}

#include "cpu/lanes.glsl"
