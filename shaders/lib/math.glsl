// exp and tanh, accurate to about 2 units in the last place of float32 on every driver, but that results
// below 2^-126 may be 0. Vulkan allows its own functions errors that grow with the argument, and CPU
// drivers make such errors.

// Splits e^x into y 2^n, with x = n ln 2 + r; returns y. For x up to a little above 0.
float exp_and_power(float x, out float n)
{
    n = roundEven(x * 1.44269504);       // |r| <= 0.35
    float r = fma(n, -0.693145752, x);   // ln 2 as two numbers, the first exact times small n
    r = fma(n, -1.42860677e-6, r);
    // Minimax polynomial of (e^r - 1 - r) / r^2. All coefficients in this file are those of
    // Moshier's Cephes library, whose errors are published.
    float y = fma(1.9875691500e-4, r, 1.3981999507e-3);
    y = fma(y, r, 8.3334519073e-3);
    y = fma(y, r, 4.1665795894e-2);
    y = fma(y, r, 1.6666665459e-1);
    y = fma(y, r, 5.0000001201e-1);
    return fma(y, r * r, r) + 1.0;
}

// 2^n times the power of two whose bits are `one`. Takes n from the low bits of n + 1.5 * 2^23:
// compilers for CPUs convert to int lane by lane.
float power_of_two(float n, uint one)
{
    return uintBitsToFloat((floatBitsToUint(n + 12582912.0) << 23) + one);
}

// Exactly 1 at 0, 0 below -87.3, NaN for NaN.
float exp_accurate(float x)
{
    float n, y = exp_and_power(x, n);
    float e = y * power_of_two(n, 0x3f800000u); // before the test, or some compilers branch
    return x < -87.3 ? 0.0 : e;
}

// Weight of a key: e^x * WEIGHT_UNIT, at most 2^-15, so that sums of 2 * 16,384 weighted values of
// any size do not overflow. 0 below -76.9.
#define WEIGHT_UNIT 3.0517578125e-5
float exp_weight(float x)
{
    float n, y = exp_and_power(x, n);
    float e = y * power_of_two(n, 0x38000000u);
    return x < -76.9 ? 0.0 : e;
}

// Weight of a sink relative to row_max. Infinite where the sink is far above, so that it takes all
// the weight; NaN where both are -inf, as the sum of the keys' weights is then.
float sink_weight(float sink, float row_max)
{
    float above = sink == row_max && sink > 0.0 ? 0.0 : sink - row_max;
    return above > 87.0 ? uintBitsToFloat(0x7f800000u) : exp_accurate(above);
}

// ln x, for NaN, 0, +inf and normal numbers.
float log_accurate(float x)
{
    uint bits = floatBitsToUint(x);
    if (!(x > 0.0) || bits >= 0x7f800000u)
        return bits << 1 == 0u ? uintBitsToFloat(0xff800000u) : x;
    int n = int(bits + 0x4afb0du >> 23) - 127; // x = m 2^n, m from sqrt(1/2) to sqrt(2)
    float e = float(n), r = uintBitsToFloat(bits - (uint(n) << 23)) - 1.0;
    float y = fma(7.0376836292e-2, r, -1.1514610310e-1);
    y = fma(y, r, 1.1676998740e-1);
    y = fma(y, r, -1.2420140846e-1);
    y = fma(y, r, 1.4249322787e-1);
    y = fma(y, r, -1.6668057665e-1);
    y = fma(y, r, 2.0000714765e-1);
    y = fma(y, r, -2.4999993993e-1);
    y = fma(y, r, 3.3333331174e-1);
    y = fma(e, -2.12194440e-4, y * r * r * r); // ln 2 as two numbers, the first exact times e
    return fma(e, 0.693359375, r + fma(-0.5, r * r, y));
}

// 2 atanh(s), for |s| up to 0.18.
float twice_atanh(float s)
{
    float z = s * s;
    float y = fma(z, 0.1181, 0.1428206);
    y = fma(y, z, 0.20000073);
    y = fma(y, z, 0.33333333);
    return 2.0 * fma(s * z, y, s);
}

// log(1 + x), for x from 0 on.
float log_plus_one(float x)
{
    return x < 0.4 ? twice_atanh(x / (2.0 + x)) : log_accurate(1.0 + x);
}

// ln(e^a + e^b); NaN where one is.
float log_add(float a, float b)
{
    float most = max(a, b), least = min(a, b);
    if (is_nan(a) || is_nan(b))
        return is_nan(a) ? a : b;
    bool infinite = (floatBitsToUint(most) & 0x7fffffffu) == 0x7f800000u;
    return infinite ? most : most + log_accurate(1.0 + exp_accurate(least - most));
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

// (cos, sin) of an angle in units of 2^-32 turns: exact by quarter turns, a polynomial for the rest
// of at most an eighth of a turn.
vec2 cos_sin_of(uint angle)
{
    uint quarter = angle + 0x20000000u >> 30;
    float x = float(int(angle - (quarter << 30))) * 1.46291807926716e-9; // 2 pi / 2^32
    float z = x * x;
    float s = fma(fma(fma(-1.9515295891e-4, z, 8.3321608736e-3), z, -1.6666654611e-1), z * x, x);
    float c = fma(fma(2.443315711809948e-5, z, -1.388731625493765e-3), z, 4.166664568298827e-2);
    c = fma(c * z, z, fma(-0.5, z, 1.0));
    vec2 cs = (quarter & 1u) != 0u ? vec2(-s, c) : vec2(c, s);
    return (quarter & 2u) != 0u ? -cs : cs;
}
