/* rng.h - counter-based random numbers: the value depends only on (seed, index),
 * so results are the same for any thread count and any order of evaluation.
 *
 * nb_mix64 is the finaliser of SplitMix64 (Steele, Lea, Flood 2014,
 * doi 10.1145/2714064.2660195), applied to seed and index. */
#ifndef NB_BASE_RNG_H
#define NB_BASE_RNG_H
#include <stdint.h>

static inline uint64_t nb_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
static inline uint64_t nb_rng_u64(uint64_t seed, uint64_t index)
{
    return nb_mix64(nb_mix64(seed) ^ (index * 0xda942042e4dd58b5u));
}
/* Uniform in [0, 1) with 53 random bits. */
static inline double nb_rng_unit(uint64_t seed, uint64_t index)
{
    return (double)(nb_rng_u64(seed, index) >> 11) * 0x1p-53;
}

#endif
