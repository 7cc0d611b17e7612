// Elements of strided tensors of rank 4, and pairs of neighbours.
#extension GL_EXT_spirv_intrinsics : require

// Before a buffer in whose place another of the shader may lie: SPIR-V takes buffers of different
// bindings for different memory, but for those that are decorated as Aliased.
#define ALIASED spirv_decorate(20)

uint place(strided_params s, uvec4 at)
{
    return s.offset + at.x * s.stride0 + at.y * s.stride1 + at.z * s.stride2 + at.w * s.stride3;
}

#include "lib/rounded.glsl"

// The order of floats as that of integers, with both zeros equal and NaN above all. Never 0.
uint order_key(float x)
{
    uint bits = floatBitsToUint(x);
    bits = bits << 1 == 0u ? 0u : bits; // by bits, as in lib/relu.glsl
    return is_nan(x) ? 0xffffffffu : (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

// Item `nth` of this invocation, see ITEM_LANES.
uint item_at(uint nth)
{
    uint group = gl_WorkGroupID.y * ITEM_GRID + gl_WorkGroupID.x;
    return (group * ITEMS_EACH + nth) * ITEM_LANES + gl_LocalInvocationIndex;
}

// Coordinates of item u, with `width` items along axis 3.
uvec4 item_coordinates(uint u, uint width, uint size2, uint size1)
{
    uvec4 at = uvec4(0, 0, 0, u);
    if (u < width)
        return at;
    at.w = u % width;
    u /= width;
    at.z = u % size2;
    u /= size2;
    at.y = u % size1;
    at.x = u / size1;
    return at;
}
