// Self-test of long loops: as many iterations as a pass may ask for. Each makes the next number of
// a linear congruential generator, so that no compiler can leave one out.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "params/params.h"

layout(local_size_x = 1) in;
layout(binding = 0) buffer Number { uint number; };
layout(push_constant) uniform Push { loop_probe_params p; };

void main()
{
    uint x = number;
    for (uint i = 0; i < p.n; i++)
        x = x * LOOP_PROBE_FACTOR + 1u;
    number = x;
}
