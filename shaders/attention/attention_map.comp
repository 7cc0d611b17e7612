// Finds the tiles that a mask tensor hides completely or leaves unchanged, before attention_tile. A
// workgroup makes one word, for 16 tiles along the keys. See attention_map_params.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"
#include "lib/dtype.glsl"

layout(constant_id = MAP_LANES) const uint LANES = 64;
layout(local_size_x_id = MAP_LANES) in;
layout(binding = 0) writeonly buffer Map { uint map_words[]; };
layout(binding = 1) readonly buffer Mask { uint mask_words[]; };
layout(push_constant) uniform Push { attention_map_params p; };
#define length_words mask_words       // for functions of lib/mask.glsl that are not called
#define query_offset_words mask_words
#include "lib/mask.glsl"

shared uint word;

// MAP_ bits of a tile, from those of its elements that this invocation reads.
uint tile_code(uint first_row, uint first_key, uint head, uint batch)
{
    uint code = 0;
    for (uint e = gl_LocalInvocationIndex; e < p.tile_rows * p.tile_keys; e += LANES) {
        uint row = first_row + e / p.tile_keys, key = first_key + e % p.tile_keys;
        if (row >= p.n_q * p.group || key >= p.mask.mask_n_kv)
            continue;
        float bias;
        uint at = mask_row_index(batch, head + row % p.group, p.query_first + row / p.group);
        bool visible = mask_tensor(at, key, bias);
        code |= (visible ? MAP_SOME : 0u) | (!visible || bias != 0.0 ? MAP_TEST : 0u);
    }
    return code;
}

void main()
{
    uint batch = gl_WorkGroupID.z / p.n_head, head = gl_WorkGroupID.z % p.n_head;
    if (gl_LocalInvocationIndex == 0)
        word = 0;
    barrier();
    uint mine = 0;
    for (uint t = 0; t < 16; t++)
        mine |= tile_code(gl_WorkGroupID.y * p.tile_rows,
                          (gl_WorkGroupID.x * 16 + t) * p.tile_keys,
                          p.head_first + head * p.group, p.batch_first + batch)
                << 2 * t;
    atomicOr(word, mine);
    barrier();
    if (gl_LocalInvocationIndex == 0)
        map_words[(gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * gl_NumWorkGroups.x +
                  gl_WorkGroupID.x] = word;
}
