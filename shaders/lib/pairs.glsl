// Numbers of twice float32's digits: vec2(high, low), the value of which is high + low, |low| at most
// half a unit in the last place of high. Every step is `precise`: its rounding errors are what counts.
// Products are split in halves of 12 bits, as fma() need not round once.

// a + b, exactly.
vec2 pair_sum(float a, float b)
{
    precise float s = a + b, t = s - a;
    precise float rest = (a - (s - t)) + (b - t);
    return vec2(s, rest);
}

// To 2^-45 or so of the result, where it does not cancel out.
vec2 pair_add(vec2 a, vec2 b)
{
    vec2 s = pair_sum(a.x, b.x);
    precise float low = s.y + (a.y + b.y);
    return pair_sum(s.x, low);
}

vec2 pair_multiply(vec2 a, vec2 b)
{
    float high_a = uintBitsToFloat(floatBitsToUint(a.x) & 0xfffff000u);
    float high_b = uintBitsToFloat(floatBitsToUint(b.x) & 0xfffff000u);
    precise float low_a = a.x - high_a, low_b = b.x - high_b, p = a.x * b.x;
    precise float rest =
        ((high_a * high_b - p) + high_a * low_b + low_a * high_b) + low_a * low_b;
    precise float low = rest + (a.x * b.y + a.y * b.x);
    return pair_sum(p, low);
}

// a / b, rounded to float32.
float pair_divide(vec2 a, vec2 b)
{
    precise float q = a.x / b.x;
    vec2 rest = pair_add(a, -pair_multiply(b, vec2(q, 0.0)));
    precise float result = q + (rest.x + rest.y) / b.x;
    return result;
}

// e^x, for x from -87.3 to 0: Taylor's series of the rest modulo ln 2, whose powers from the sixth on
// need no more than float32, to 2^-42 or so.
vec2 pair_exp(vec2 x)
{
    float n = roundEven(x.x * 1.44269504);
    // ln 2 as three numbers: n times the first and n times the second are exact.
    precise float first = n * -0.693145751953125, second = n * -1.4286197256296873e-6;
    precise float third = x.y + n * 1.2905320041778356e-11;
    vec2 r = pair_add(pair_sum(x.x, first), pair_sum(second, third));
    float y = fma(2.0876757e-9, r.x, 2.5052108e-8);
    y = fma(y, r.x, 2.7557319e-7);
    y = fma(y, r.x, 2.7557319e-6);
    y = fma(y, r.x, 2.4801587e-5);
    y = fma(y, r.x, 1.984127e-4);
    y = fma(y, r.x, 1.3888889e-3);
    vec2 p = pair_add(pair_multiply(vec2(y, 0.0), r), vec2(8.333333767950535e-3, -4.34617203e-10));
    p = pair_add(pair_multiply(p, r), vec2(4.16666679084301e-2, -1.24176347e-9));
    p = pair_add(pair_multiply(p, r), vec2(0.1666666716337204, -4.96705388e-9));
    p = pair_add(pair_multiply(p, r), vec2(0.5, 0.0));
    p = pair_add(pair_multiply(p, r), vec2(1.0, 0.0));
    p = pair_add(pair_multiply(p, r), vec2(1.0, 0.0));
    return p * power_of_two(n, 0x3f800000u);
}

// e^(x - most), for x up to `most`: NaN where the difference is, 0 below e^-87.3.
vec2 pair_weight(float x, float most)
{
    float above = x - most;
    if (is_nan(above))
        return vec2(above, 0.0);
    return above < -87.3 ? vec2(0.0) : pair_exp(pair_sum(x, -most));
}
