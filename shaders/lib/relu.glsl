// ReLU by bits. Compilers of GPUs make a maximum of `x < 0 ? 0 : x`, which turns NaN and -0, the
// mark of a hidden weight, into 0. Vulkan allows that; integers have no such freedom.

// Whether x is below 0: from the least negative number, 0x80000001, to -Inf, 0xff800000.
#define IS_NEGATIVE(bits) ((bits) - 0x80000001u < 0x7f800000u)

float relu_of(float x)
{
    uint bits = floatBitsToUint(x);
    return uintBitsToFloat(IS_NEGATIVE(bits) ? 0u : bits);
}

// dy * the derivative at x: 0 for x <= 0, whatever dy is; dy where x is NaN.
float relu_back(float dy, float x)
{
    uint bits = floatBitsToUint(x);
    return bits << 1 == 0u || IS_NEGATIVE(bits) ? 0.0 : dy;
}
