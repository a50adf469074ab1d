/* fp16.h - IEEE 754 binary16 (1 sign, 5 exponent, 10 fraction bits). */
#ifndef NB_NUM_FP16_H
#define NB_NUM_FP16_H
#include <stdbool.h>

#include "num/bits.h"

enum { NB_FP16_MAX = 0x7bff, NB_FP16_INF = 0x7c00 };

/* Exact, for every code.  A signalling NaN comes back quiet. */
static inline float nb_fp16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fff;
    if (mag >= NB_FP16_INF)
        return nb_f32_from_bits(sign | 0x7f800000u | (mag & 0x3ff) << 13 |
                                (mag > NB_FP16_INF ? 0x400000u : 0));
    if (mag >= 0x400) return nb_f32_from_bits(sign | ((mag << 13) + (112u << 23)));
    const float v = (float)mag * 0x1p-24f; /* subnormal here, normal as a float */
    return sign ? -v : v;
}

/* Nearest, ties to even; magnitudes from 65520 on become infinite; a NaN keeps
 * its sign and upper payload and becomes quiet. */
static inline uint16_t nb_fp16_from_f32(float x)
{
    const uint32_t u = nb_f32_bits(x), sign = u >> 16 & 0x8000, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));
    if (mag >= 0x477ff000u) return (uint16_t)(sign | NB_FP16_INF); /* 65520 */
    if (mag >= 0x38800000u)                                        /* 2^-14 */
        return (uint16_t)(sign | ((mag - (112u << 23) + 0xfff + (mag >> 13 & 1)) >> 13));
    return (uint16_t)(sign | nb_shift_rne((mag & 0x7fffff) | 0x800000, 126 - (mag >> 23)));
}

/* As nb_fp16_from_f32, but what would become infinite becomes +-65504. */
static inline uint16_t nb_fp16_from_f32_sat(float x)
{
    const uint16_t h = nb_fp16_from_f32(x);
    return (h & 0x7fff) == NB_FP16_INF ? (uint16_t)((h & 0x8000) | NB_FP16_MAX) : h;
}

static inline bool nb_fp16_is_finite(uint16_t h)
{
    return (h & 0x7c00) != 0x7c00;
}

#endif
