// What a token leaves of a state, e^g, as a code of one float: below a bound near 1 the code is e^g - 1,
// with its sign bit set, as a state that decays slowly for thousands of tokens would else lose the error
// of each rounded factor; otherwise e^g.

// e^x - 1 for x from -0.5 to 0, to the last place.
float exp_minus_one(float x)
{
    float y = fma(2.7557319e-6, x, 2.4801587e-5);
    y = fma(y, x, 1.9841270e-4);
    y = fma(y, x, 1.3888889e-3);
    y = fma(y, x, 8.3333333e-3);
    y = fma(y, x, 4.1666667e-2);
    y = fma(y, x, 0.16666667);
    y = fma(y, x, 0.5);
    return fma(y, x * x, x);
}

// ln(1 + e^x).
float softplus(float x)
{
    precise float rest = log_plus_one(exp_accurate(-abs(x))), whole = relu_of(x);
    return whole + rest;
}

// x y, but 0 where x is, even if y is infinite.
float product_or_zero(float x, float y)
{
    precise float z = x * y;
    return x == 0.0 ? 0.0 : z;
}

// e^log, the decay of a step of 1.
float rate_of_log(float log)
{
    return log > 88.0 ? uintBitsToFloat(0x7f800000u) : exp_accurate(log);
}

// -e^log step, the decay of a step: none where the step is 0, whatever its log.
float decay_of_step(float log, float step) { return product_or_zero(step, -rate_of_log(log)); }

float decay_code(float g)
{
    if (g <= 0.0 && g > -0.5)
        return -abs(exp_minus_one(g));
    float e = exp_accurate(g);
    return g > 88.0 ? uintBitsToFloat(0x7f800000u) : e;
}

bool decay_is_weak(float code) { return floatBitsToUint(code) >> 31 != 0u; }

// e^g.
float decay_factor(float code) { return decay_is_weak(code) ? 1.0 + code : code; }

vec4 decay_factors(vec4 code)
{
    return vec4(decay_factor(code.x), decay_factor(code.y), decay_factor(code.z),
                decay_factor(code.w));
}

// e^g times four values.
vec4 decayed(vec4 x, float code)
{
    vec4 whole = decay_is_weak(code) ? x : vec4(0.0);
    return fma(x, vec4(code), whole);
}
