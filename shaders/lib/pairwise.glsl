// Pairwise sums: a fixed order, and an error that grows with the logarithm of the number of terms.
//
// PAIRWISE(name, term) defines float name(uint n): the sum of term(0) .. term(n - 1), where term(i)
// is 0 for i >= n. Each eight terms are summed as a tree. level[l] holds the sum of 2^l trees, or
// is free, like a digit of a binary counter: two sums of one level make one of the next.
#define PAIRWISE_LEVELS 18

#define PAIRWISE(name, term)                                                                       \
    float name(uint n)                                                                             \
    {                                                                                              \
        float level[PAIRWISE_LEVELS];                                                              \
        uint trees = 0;                                                                            \
        for (uint i = 0; i < n; i += 8) {                                                          \
            float x = ((term(i) + term(i + 1)) + (term(i + 2) + term(i + 3))) +                    \
                      ((term(i + 4) + term(i + 5)) + (term(i + 6) + term(i + 7)));                 \
            bool placed = false;                                                                   \
            [[unroll]] for (uint l = 0; l < PAIRWISE_LEVELS; l++) {                                \
                bool taken = (trees >> l & 1u) != 0u;                                              \
                x = !placed && taken ? level[l] + x : x;                                           \
                level[l] = !placed && !taken ? x : level[l];                                       \
                placed = placed || !taken;                                                         \
            }                                                                                      \
            trees++;                                                                               \
        }                                                                                          \
        float sum = 0.0;                                                                           \
        [[unroll]] for (uint l = 0; l < PAIRWISE_LEVELS; l++)                                      \
            sum = (trees >> l & 1u) != 0u ? level[l] + sum : sum;                                  \
        return sum;                                                                                \
    }
