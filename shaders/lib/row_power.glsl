// Norms of rows whose squares leave the range of float32: their values are multiplied by a power of
// two first, and the squares are summed once more.

// Whether a mean of squares is not that of the row: not finite, or so small that squares below
// 2^-126, which may be 0, count in it and in epsilon.
bool squares_leave_range(float mean_square, float epsilon)
{
    bool finite = (floatBitsToUint(mean_square) & 0x7fffffffu) < 0x7f800000u;
    return !finite || mean_square + epsilon < 7.8886090522101181e-31; // 2^-100
}

// The power of two for such a row, whose mean, or 0, was taken off. 2^-80 leaves room for 2^30 squares of
// the largest values, and those that count stay above 2^-126; 2^80 does so for the least. Values that are
// small without a large mean are: equal ones of any size leave no squares.
float row_power(float mean_square, float mean)
{
    bool small = mean_square < 1.0 && abs(mean) < 1.0;
    return small ? 1.2089258196146292e24 : 8.2718061255302767e-25;
}

// Epsilon times the square of `power`; above 0 where epsilon is, so that a row of equal values
// gives 0.
float scaled_epsilon(float epsilon, float power)
{
    precise float scaled = epsilon * power; // the square of power may be 0
    scaled *= power;
    bool above = floatBitsToUint(epsilon) > 0u; // a device may compare a subnormal number as 0
    return max(scaled, above ? 1.17549435e-38 : 0.0);
}
