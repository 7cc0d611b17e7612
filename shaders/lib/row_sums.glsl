// Sums over the lanes of a workgroup. The includer has LANES, a power of two, and CENTER: whether it
// needs reduce_both.

// Makes type name(type x): the sum of x, by a tree in the array `partial`.
#define REDUCE(type, name, partial)                                                                \
    type name(type x)                                                                              \
    {                                                                                              \
        uint lane = gl_LocalInvocationIndex;                                                       \
        barrier(); /* what was reduced before has been read */                                     \
        partial[lane] = x;                                                                         \
        for (uint step = LANES / 2; step > 0; step /= 2) {                                         \
            barrier();                                                                             \
            if (lane < step)                                                                       \
                partial[lane] += partial[lane + step];                                             \
        }                                                                                          \
        barrier();                                                                                 \
        return partial[0];                                                                         \
    }
shared float partial_sums[LANES];
shared vec2 partial_pairs[CENTER ? LANES : 1];
REDUCE(float, reduce_add, partial_sums)
REDUCE(vec2, reduce_both, partial_pairs)

// Moves the mean by what values less the mean have as theirs, x: the first was rounded, of equal values too,
// whose error would stand for their deviation. Returns the variance; y is the mean of squares.
float settle_mean(vec2 left, inout float mean)
{
    mean += left.x;
    return relu_of(fma(-left.x, left.x, left.y)); // not finite where y is not
}
