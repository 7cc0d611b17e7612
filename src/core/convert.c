#include "core/convert.h"

float dtype_to_float(const void *data, size_t index, enum vka_dtype dtype)
{
    union {
        uint32_t bits;
        float value;
    } x;
    if (dtype == VKA_F32)
        return ((const float *)data)[index];
    uint32_t h = ((const uint16_t *)data)[index];
    x.bits = h << 16;
    if (dtype == VKA_BF16)
        return x.value;
    uint32_t sign = (h & 0x8000) << 16, magnitude = h & 0x7fff;
    if (magnitude < 0x400) { /* 0 and subnormals: units of 2^-24 */
        x.value = (float)magnitude * 5.9604644775390625e-8f;
        x.bits |= sign;
    } else {
        x.bits = sign | (magnitude >= 0x7c00 ? 0x7f800000 | magnitude << 13
                                             : (magnitude << 13) + 0x38000000);
    }
    return x.value;
}

uint16_t dtype_to_f16(float x)
{
    union {
        float value;
        uint32_t bits;
    } u = {x};
    uint32_t sign = u.bits >> 16 & 0x8000, magnitude = u.bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) /* 65520 and above */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* below 2^-14: units of 2^-24, ties to even by the addition */
        u.bits = magnitude;
        u.value += 0.5f;
        return (uint16_t)(sign | (u.bits & 0x7ff));
    }
    uint32_t rounded = (magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13;
    return (uint16_t)(sign | (rounded - 0x1c000));
}
