// Infinities of A in products with a type of B that has offsets, whose integers and offsets are
// multiplied apart: Inf times an integer of 0 is NaN, and so is Inf less Inf, where the product
// with the value is Inf. Results that are not finite are looked at once more, after the sums; those
// of finite A cost nothing. The includer has a_words of float32, load_quants(), lib/lost.glsl and
// lib/relu.glsl.

// The sum of the products of a row's values that are not finite; 0 where there are none.
float infinite_products(uint a_line, uint b_line)
{
    float sum = 0.0;
    [[dont_unroll]] for (uint k0 = 0; k0 < p.k && !is_nan(sum); k0 += 16) {
        bool found = false; // in 16 at a time: drivers bound the iterations of loops
        [[unroll]] for (uint i = 0; i < 16; i++)
            found = found || !is_finite(uintBitsToFloat(
                                 a_words[a_line + min(k0 + i, p.k - 1) * p.a_col]));
        [[dont_unroll]] for (uint k = k0; found && k < min(k0 + 16, p.k); k++) {
            float x = uintBitsToFloat(a_words[a_line + k * p.a_col]);
            x = RELU != 0 ? relu_of(x) : x;
            if (!is_finite(x))
                sum = fma(x, load_quants(b_line, k & ~3u, B_TYPE)[k & 3u], sum);
        }
    }
    return sum;
}

// A result of this pass; earlier: what earlier_sums() gave.
float with_infinite(float total, uint a_line, uint b_line, vec2 earlier)
{
    float sum = infinite_products(a_line, b_line);
    return sum == 0.0 ? total : sum + (earlier.x + earlier.y);
}
