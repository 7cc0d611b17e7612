// Rows of a table by ids, as an embedding has them; the table may be quantised. See gather_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "params/model.h"
#include "lib/dtype.glsl"
#include "lib/elements.glsl"
#define ROW_VALUES p.size3
#include "lib/blocks.glsl"

layout(constant_id = GATHER_TABLE_TYPE) const uint TABLE_TYPE = 0;
layout(constant_id = GATHER_Y_TYPE) const uint Y_TYPE = 0;
layout(constant_id = GATHER_PAIRS) const bool PAIRS = false;
layout(local_size_x = ITEM_LANES) in;
layout(binding = 0) readonly buffer Ids { int ids[]; };
layout(binding = 1) readonly buffer Table { uint table_words[]; };
layout(binding = 2) buffer Y { uint y_words[]; };
layout(push_constant) uniform Push { gather_params p; };

QUANT_READER(load_block, table_words)
#define GRID_TYPE TABLE_TYPE
#define GRID 3
#include "lib/grids.glsl"

// Values of a block of mxfp4, whose scale is below 2^-126 where its exponent is 0 or 1: a device may take
// that for 0, though values are larger. A quarter or half of the integers times 2^-126 is the same.
vec4 load_mxfp4(uint line, uint column)
{
    uint scale = floatBitsToUint(load_block_scale(line, column, TYPE_MXFP4).x);
    float fraction = scale >= 0x00800000u ? 1.0 : scale == 0x00400000u ? 0.5 : 0.25;
    precise vec4 values = load_block_integers(line, column, TYPE_MXFP4) * fraction;
    values *= uintBitsToFloat(max(scale, 0x00800000u));
    return values;
}

// Columns `column` .. `column` + 3 of a row of this pass; 0 behind its end.
vec4 load4(uint row, uint column)
{
    uint line = p.table_offset + row * p.table_row;
    if (TABLE_TYPE == TYPE_MXFP4)
        return load_mxfp4(line, column);
    if (IS_QUANT(TABLE_TYPE))
        return load_block(line, column, TABLE_TYPE);
    vec4 x = vec4(0.0);
    for (uint i = 0; i < 4; i++)
        if (column + i < p.size3)
            x[i] = LOAD(table_words, line + (column + i) * p.table_col, TABLE_TYPE);
    return x;
}

void store4(uvec4 at, vec4 x)
{
    uint index = place(p.y, at);
    if (PAIRS) { // rows are whole pairs
        y_words[index >> 1] = pair_word(x.xy, Y_TYPE);
        if (at.w + 2 < p.size3)
            y_words[(index >> 1) + 1] = pair_word(x.zw, Y_TYPE);
        return;
    }
    for (uint i = 0; i < 4; i++)
        if (at.w + i < p.size3)
            STORE(y_words, index + i * p.y.stride3, Y_TYPE, x[i]);
}

void main()
{
    uint width = p.size3 / 4 + (p.size3 % 4 != 0 ? 1 : 0);
    init_grid(ITEM_LANES);
    uint n = width * p.size2 * p.size1 * p.size0;
    for (uint nth = 0; nth < ITEMS_EACH; nth++) {
        uint item = item_at(nth);
        if (item >= n)
            return;
        uvec4 at = item_coordinates(item, width, p.size2, p.size1);
        at.w *= 4;
        uint id = uint(ids[place(p.ids, uvec4(at.xyz, 0))]); // negative ones are beyond any table
        bool here = id >= p.first && id - p.first < p.n_row;
        if (!here && !(p.first == 0 && id >= p.n_table))
            continue;
        vec4 x = here ? vec4(p.scale) * load4(id - p.first, at.w) : vec4(0.0);
        store4(at, vec4(one_nan(x.x), one_nan(x.y), one_nan(x.z), one_nan(x.w)));
    }
}
