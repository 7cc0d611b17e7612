// Activation functions, built on those of lib/math.glsl.
#include "lib/relu.glsl"

// e^(x + rest), for a rest that is small beside x, as exp_accurate, with a reduction that no compiler
// may change: Mesa 22 joins the two numbers of ln 2 again, and the error then grows with x. An fma
// cannot be marked so; the first product is exact. The rest counts before the power: beside a small
// result it could be subnormal.
// exp_and_power() rounds the rest once more: near half of ln 2 to +-1, which is why its power
// counts.
float exp_of(float x, float rest)
{
    float n = roundEven(x * 1.44269504);
    precise float first = x - n * 0.693145752;
    precise float r = (first - n * 1.42860677e-6) + rest;
    float more, y = exp_and_power(r, more); // from -87.3 on n + more is at least -126
    return x < -87.3 ? 0.0 : y * power_of_two(n + more, 0x3f800000u);
}

float exp_reduced(float x) { return exp_of(x, 0.0); }

// What the product of a and b loses as it is rounded; 0 where that is of 100 or more, or no number.
// They are split in halves of 12 bits, as fma() need not round once.
float product_rest(float a, float b)
{
    float high_a = uintBitsToFloat(floatBitsToUint(a) & 0xfffff000u);
    float high_b = uintBitsToFloat(floatBitsToUint(b) & 0xfffff000u);
    precise float low_a = a - high_a, low_b = b - high_b, p = a * b;
    precise float rest =
        ((high_a * high_b - p) + high_a * low_b + low_a * high_b) + low_a * low_b;
    return abs(p) < 100.0 ? rest : 0.0;
}

// 1 / (1 + e^-(x + rest)), for a rest that is small beside x; s is at most 1, so nothing overflows.
float sigmoid_of(float x, float rest)
{
    float s = exp_of(-abs(x), x < 0.0 ? rest : -rest);
    return (x < 0.0 ? s : 1.0) / (1.0 + s);
}

float sigmoid(float x) { return sigmoid_of(x, 0.0); }

// The upper tail of the normal distribution, erfc(x / sqrt(2)) / 2, for x from 0. It is
// e^(-x^2 / 2) t P(t) with t = 1 / (1 + 0.35 x), where P interpolates at the Chebyshev points of
// x from 0 to 13.4: a relative error of 3.9e-8 there, and 3.3e-7 with float32 coefficients and
// arithmetic. Beyond 13.2 it is 0. x is split, so that its square has no error to be magnified.
float normal_tail(float x)
{
    float high = uintBitsToFloat(floatBitsToUint(x) & 0xfffff000u); // its square is exact
    float rest = (x - high) * (x + high) * -0.5;                    // at most 0.05
    float t = 1.0 / fma(0.35, x, 1.0);
    float y = -0.0295935757;
    y = fma(y, t, 0.146148637);
    y = fma(y, t, -0.260189652);
    y = fma(y, t, 0.164232567);
    y = fma(y, t, -0.026531361);
    y = fma(y, t, 0.106918842);
    y = fma(y, t, 0.119488403);
    y = fma(y, t, 0.139907166);
    y = fma(y, t, 0.139618963);
    float e = fma(fma(fma(fma(0.041666668, rest, 0.16666667), rest, 0.5), rest, 1.0), rest, 1.0);
    float outer = exp_reduced(-0.5 * high * high);
    return outer == 0.0 ? 0.0 : outer * e * (y * t); // from 4.8e6 on e is Inf
}

// x times the normal distribution of x, without cancellation on either side.
float gelu(float x)
{
    float tail = normal_tail(abs(x));
    return x * (x < 0.0 ? tail : 1.0 - tail);
}

float gelu_tanh(float x)
{
    return x * sigmoid(1.5957691216 * fma(0.044715 * x * x, x, x)); // 2 sqrt(2 / pi)
}

float activate(float x, uint function, float alpha)
{
    if (function == ELEMENT_GELU)
        return gelu(x);
    if (function == ELEMENT_GELU_TANH)
        return gelu_tanh(x);
    if (function == ELEMENT_SILU)
        return x * sigmoid_of(alpha * x, product_rest(alpha, x));
    if (function == ELEMENT_RELU)
        return relu_of(x);
    if (function == ELEMENT_TANH)
        return tanh_accurate(x);
    return function == ELEMENT_SIGMOID ? sigmoid(x) : x;
}
