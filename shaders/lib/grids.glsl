// The grids of iq1, iq2 and iq3, of whose entries blocks have the numbers. The pass binds that of
// GRID_TYPE, or any buffer for a type that has none, and a workgroup copies it to shared memory: some
// compilers keep arrays of constants in memory of each lane, whether they are read or not. The
// includer has GRID_TYPE, and the binding GRID.
layout(binding = GRID) readonly buffer Grid { uvec4 grid_vectors[]; };
shared uint grid_words[HAS_GRID(GRID_TYPE) ? 4 * GRID_VECTORS(GRID_TYPE) : 1]; // two entries each

// Before the first value is read, by all `threads` invocations of a workgroup.
void init_grid(uint threads)
{
    if (!HAS_GRID(GRID_TYPE))
        return;
    for (uint i = gl_LocalInvocationIndex; i < GRID_VECTORS(GRID_TYPE); i += threads) {
        uvec4 x = grid_vectors[i];
        grid_words[4 * i] = x.x;
        grid_words[4 * i + 1] = x.y;
        grid_words[4 * i + 2] = x.z;
        grid_words[4 * i + 3] = x.w;
    }
    barrier();
}

uint grid_entry(uint i) { return grid_words[i / 2] >> i % 2 * 16 & 0xffffu; }
