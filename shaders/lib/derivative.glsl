// Derivatives of the functions of lib/activation.glsl, which is included before this file.

// The density of the normal distribution. x is split as in normal_tail; beyond 13.2 it is 0.
float normal_density(float x)
{
    float a = abs(x);
    float high = uintBitsToFloat(floatBitsToUint(a) & 0xfffff000u);
    float rest = (a - high) * (a + high) * -0.5;
    float e = fma(fma(fma(fma(0.041666668, rest, 0.16666667), rest, 0.5), rest, 1.0), rest, 1.0);
    float outer = exp_reduced(-0.5 * high * high);
    return outer == 0.0 ? 0.0 : 0.39894228 * outer * e;
}

float gelu_slope(float x)
{
    float tail = normal_tail(abs(x)), density = normal_density(x);
    float below = x < 0.0 ? tail : 1.0 - tail;
    if (is_nan(x)) // whose bits may lie in the half that the split drops, which leaves Inf
        return x;
    return density == 0.0 ? below : fma(x, density, below);
}

float gelu_tanh_slope(float x)
{
    float u = 1.5957691216 * fma(0.044715 * x * x, x, x);
    float s = sigmoid(u), falling = s * sigmoid(-u);
    float slope = fma(0.2140644476 * x, x, 1.5957691216); // du / dx
    return falling == 0.0 ? s : fma(x * falling, slope, s);
}

float silu_slope(float x, float alpha)
{
    float rest = product_rest(alpha, x);
    float s = sigmoid_of(alpha * x, rest), falling = s * sigmoid_of(-alpha * x, -rest);
    return falling == 0.0 ? s : fma(alpha * x, falling, s);
}

float tanh_slope(float x)
{
    float e = exp_reduced(-2.0 * abs(x));
    return 4.0 * e / ((1.0 + e) * (1.0 + e));
}

// dy * f'(x).
float back(float dy, float x, uint function, float alpha)
{
    if (function == ELEMENT_GELU)
        return dy * gelu_slope(x);
    if (function == ELEMENT_GELU_TANH)
        return dy * gelu_tanh_slope(x);
    if (function == ELEMENT_SILU)
        return dy * silu_slope(x, alpha);
    if (function == ELEMENT_RELU)
        return relu_back(dy, x);
    if (function == ELEMENT_TANH)
        return dy * tanh_slope(x);
    return function == ELEMENT_SIGMOID ? dy * (sigmoid(x) * sigmoid(-x)) : dy;
}
