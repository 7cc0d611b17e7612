// Sums of add_exactly() of lib/sums.glsl.

bool is_finite(float x) { return (floatBitsToUint(x) & 0x7f800000u) != 0x7f800000u; }

// A sum and what rounding took from it, which is NaN where the sum is infinite.
float with_lost(float sum, float lost) { return is_finite(sum) ? sum + lost : sum; }
