/* Random numbers of the GPU tests: the same on every machine for the same seed. */
#ifndef TESTS_RNG_H
#define TESTS_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct rng {
    uint64_t state; /* any value is a good seed: neighbouring ones give unrelated numbers */
};

/* A counter through a mixing function (splitmix64). */
static inline uint64_t rng_next(struct rng *rng)
{
    uint64_t x = rng->state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* low .. high, both included. */
static inline uint32_t rng_range(struct rng *rng, uint32_t low, uint32_t high)
{
    return low + (uint32_t)(rng_next(rng) % ((uint64_t)high - low + 1));
}

static inline double rng_uniform(struct rng *rng, double low, double high)
{
    return low + (high - low) * (double)(rng_next(rng) >> 11) * 0x1p-53;
}

static inline bool rng_chance(struct rng *rng, uint32_t percent)
{
    return rng_range(rng, 1, 100) <= percent;
}

#endif
