// x as an element of the type holds it.
float rounded(float x, uint type)
{
    if (type == TYPE_F32)
        return x;
    return type == TYPE_F16 ? float_from_f16(f16_from_float(x))
                            : uintBitsToFloat(bf16_from_float(x) << 16);
}
