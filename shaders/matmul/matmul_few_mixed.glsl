// matmul_few with float16 inputs, of which none is hidden: vectors of eight elements along k are staged
// as they are, and an instruction adds the products of two.
#include "lib/mixed_dot.glsl"

uvec4 relu_vector(uvec4 x)
{
    return RELU != 0 ? uvec4(relu_of_pair(x.x), relu_of_pair(x.y), relu_of_pair(x.z),
                             relu_of_pair(x.w))
                     : x;
}

// The sum and the products of two vectors, pair by pair as matmul_tile adds them.
float add_vector(uvec4 a, uvec4 b, float sum)
{
    [[unroll]] for (uint i = 0; i < 4; i++)
        sum = add_pair(a[i], b[i], sum);
    return sum;
}
