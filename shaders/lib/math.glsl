// exp and tanh to about 2 units in the last place of float32 on every driver: what Vulkan asks of
// its own leaves errors that grow with the argument, and drivers for CPUs use all of that leave.

// e^x and 2^n for x <= 0 and a little above, where x = n ln 2 + r: e^x is y 2^n.
float exp_parts(float x, out float n)
{
    n = roundEven(x * 1.44269504);       // |r| <= 0.35
    float r = fma(n, -0.693145752, x);   // ln 2 in two parts, the first exact times small n
    r = fma(n, -1.42860677e-6, r);
    // Minimax polynomial of (e^r - 1 - r) / r^2; this and the other coefficients here are the ones
    // of Moshier's Cephes library, whose errors are published.
    float y = fma(1.9875691500e-4, r, 1.3981999507e-3);
    y = fma(y, r, 8.3334519073e-3);
    y = fma(y, r, 4.1665795894e-2);
    y = fma(y, r, 1.6666665459e-1);
    y = fma(y, r, 5.0000001201e-1);
    return fma(y, r * r, r) + 1.0;
}

// 2^n times the power of two whose bits are `one`, without a conversion to int, which compilers for
// CPUs make lane by lane: the low bits of n + 1.5 * 2^23 are those of n.
float power_of_two(float n, uint one)
{
    return uintBitsToFloat((floatBitsToUint(n + 12582912.0) << 23) + one);
}

// Exactly 1 at 0, 0 below -87.3, NaN for NaN.
float exp_accurate(float x)
{
    float n, y = exp_parts(x, n);
    return x < -87.3 ? 0.0 : y * power_of_two(n, 0x3f800000u);
}

// The weight of a key, e^x in units of WEIGHT_UNIT, of which 2 * 16,384 make 1: so many values of
// any size can be summed without overflow. 0 below -76.9.
#define WEIGHT_UNIT 3.0517578125e-5
float exp_weight(float x)
{
    float n, y = exp_parts(x, n);
    return x < -76.9 ? 0.0 : y * power_of_two(n, 0x38000000u);
}

// What a sink adds to the sum of weights that are relative to `most`: more than float32 holds, and
// so all, where it is that far above, infinity included.
float sink_weight(float sink, float most)
{
    float above = sink == most ? 0.0 : sink - most;
    return above > 87.0 ? uintBitsToFloat(0x7f800000u) : exp_accurate(above);
}

// Odd, so small arguments keep their relative precision.
float tanh_accurate(float x)
{
    float a = abs(x);
    if (is_nan(x))
        return x;
    if (a < 0.625) {
        float s = a * a;
        float y = -5.70498872745e-3;
        y = fma(y, s, 2.06390887954e-2);
        y = fma(y, s, -5.37397155531e-2);
        y = fma(y, s, 1.33314422036e-1);
        y = fma(y, s, -3.33332819422e-1);
        return fma(x * s, y, x);
    }
    float e = exp_accurate(-2.0 * a);
    return sign(x) * ((1.0 - e) / (1.0 + e));
}

// (cos, sin) of a fraction of 2^32 turns: the nearest quarter turn exactly, the rest, within an
// eighth of a turn, by polynomial.
vec2 cos_sin_turns(uint turns)
{
    uint quarter = turns + 0x20000000u >> 30;
    float x = float(int(turns - (quarter << 30))) * 1.46291807926716e-9; // 2 pi / 2^32
    float z = x * x;
    float s = fma(fma(fma(-1.9515295891e-4, z, 8.3321608736e-3), z, -1.6666654611e-1), z * x, x);
    float c = fma(fma(2.443315711809948e-5, z, -1.388731625493765e-3), z, 4.166664568298827e-2);
    c = fma(c * z, z, fma(-0.5, z, 1.0));
    vec2 cs = (quarter & 1u) != 0u ? vec2(-s, c) : vec2(c, s);
    return (quarter & 2u) != 0u ? -cs : cs;
}
