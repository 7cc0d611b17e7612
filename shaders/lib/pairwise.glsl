// Sums of many terms in a fixed order, whose error grows with the logarithm of their number.
//
// PAIRWISE(name, term) defines float name(uint n): the sum of term(0) .. term(n - 1) by halves.
// Eight terms at a time are summed as a tree; like the digits of a binary counter, level l then
// holds the sum of 2^l such trees, and two of one level make one of the next. term(i) is 0 for i >=
// n.
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
