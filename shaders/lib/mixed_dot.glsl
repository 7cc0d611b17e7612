// Words of two float16 of neighbouring k, whose products a device adds to a float32 in one instruction of
// VK_VALVE_shader_mixed_float_dot_product. How that rounds in between, and whether it takes subnormal
// float16 for 0, is the device's own: with the latter it fails the known problem of these kernels.

spirv_instruction(extensions = ["SPV_VALVE_mixed_float_dot_product"],
                  capabilities = [9, 6912], // Float16, DotProductFloat16AccFloat32VALVE
                  id = 6916)                // OpFDot2MixAcc32VALVE
float mixed_dot(f16vec2 a, f16vec2 b, float sum);

// sum + the products of both halves.
float add_pair(uint a, uint b, float sum)
{
    return mixed_dot(unpackFloat2x16(a), unpackFloat2x16(b), sum);
}

// The halves of a word that are not below 0, as lib/relu.glsl has them, or 0.
uint relu_of_pair(uint word)
{
    uint low = word & 0xffffu, high = word >> 16;
    low = low - 0x8001u < 0x7c00u ? 0u : low; // from the least negative number to -Inf
    high = high - 0x8001u < 0x7c00u ? 0u : high;
    return low | high << 16;
}
