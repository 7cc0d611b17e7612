// The application's own shader in the example: y += a * x, one invocation an element.
#version 450

layout(local_size_x = 64) in;
layout(push_constant) uniform Params {
    uint count;
    float a;
};
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) buffer Y { float y[]; };

void main()
{
    uint i = gl_GlobalInvocationID.x;
    if (i < count)
        y[i] += a * x[i];
}
