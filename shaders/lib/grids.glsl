// The grids of iq1, iq2 and iq3, of whose entries blocks have the numbers. A workgroup copies that of
// GRID_TYPE to shared memory, see init_grid(): constants that lanes index would be moved to memory of
// each, or read one lane after the other.
#define WORDS(a, b, c, d) uvec4(a, b, c, d)
const uvec4 grid_iq1_s[] = uvec4[](
#include "grids/iq1_s.def"
);
const uvec4 grid_iq2_xxs[] = uvec4[](
#include "grids/iq2_xxs.def"
);
const uvec4 grid_iq2_xs[] = uvec4[](
#include "grids/iq2_xs.def"
);
const uvec4 grid_iq2_s[] = uvec4[](
#include "grids/iq2_s.def"
);
const uvec4 grid_iq3_xxs[] = uvec4[](
#include "grids/iq3_xxs.def"
);
const uvec4 grid_iq3_s[] = uvec4[](
#include "grids/iq3_s.def"
);
#undef WORDS

shared uint grid_words[HAS_GRID(GRID_TYPE) ? 4 * GRID_CHUNKS(GRID_TYPE) : 1]; // of two entries each

uvec4 grid_chunk(uint i)
{
    if (GRID_TYPE == TYPE_IQ3_S)
        return grid_iq3_s[i];
    if (GRID_TYPE == TYPE_IQ3_XXS)
        return grid_iq3_xxs[i];
    if (GRID_TYPE == TYPE_IQ2_XXS)
        return grid_iq2_xxs[i];
    if (GRID_TYPE == TYPE_IQ2_XS)
        return grid_iq2_xs[i];
    if (GRID_TYPE == TYPE_IQ2_S)
        return grid_iq2_s[i];
    return grid_iq1_s[i];
}

// Before the first value is read, by all `threads` invocations of a workgroup.
void init_grid(uint threads)
{
    if (!HAS_GRID(GRID_TYPE))
        return;
    for (uint i = gl_LocalInvocationIndex; i < GRID_CHUNKS(GRID_TYPE); i += threads) {
        uvec4 x = grid_chunk(i);
        grid_words[4 * i] = x.x;
        grid_words[4 * i + 1] = x.y;
        grid_words[4 * i + 2] = x.z;
        grid_words[4 * i + 3] = x.w;
    }
    barrier();
}

uint grid_entry(uint i) { return grid_words[i / 2] >> i % 2 * 16 & 0xffffu; }
