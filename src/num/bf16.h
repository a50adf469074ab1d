/* bf16.h - bfloat16: the upper half of a float (1 sign, 8 exponent, 7 fraction bits). */
#ifndef NB_NUM_BF16_H
#define NB_NUM_BF16_H
#include <stdbool.h>

#include "num/bits.h"

enum { NB_BF16_MAX = 0x7f7f, NB_BF16_INF = 0x7f80, NB_BF16_MAG = 0x7fff };

/* Exact, for every code (a NaN keeps its bits). */
static inline float nb_bf16_to_f32(uint16_t b)
{
    return nb_f32_from_bits((uint32_t)b << 16);
}

/* Nearest, ties to even.  Magnitudes from 2^128 - 2^119 on become infinite
 * (callers who may not store infinities check); a NaN keeps its sign and upper
 * payload and becomes quiet. */
static inline uint16_t nb_bf16_from_f32(float x)
{
    const uint32_t u = nb_f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline bool nb_bf16_is_finite(uint16_t b)
{
    return (b & 0x7f80) != 0x7f80;
}

/* ceil(log2(|b| * 128 / t)) for finite b != 0 and t in 128..255, from the
 * exponent and fraction bits: with |b| = f/128 * 2^k, f in 128..255, it is k, or
 * k + 1 when f > t.  (t = 192: the fraction of 6 and 1536; t = 224: of 448.) */
static inline int nb_bf16_ceil_log2(uint16_t b, unsigned t)
{
    unsigned f = b & 0x7fu;
    int k = (b >> 7 & 0xff) - 127;
    if (k == -127) { /* subnormal: normalise */
        for (k = -126; f < 128; k--) f <<= 1;
    } else {
        f |= 128;
    }
    return k + (f > t);
}

/* |b| * 2^p, exact when the product is a normal float or 0; products under
 * 2^-126 may come out as 0, those over the float range are not allowed. */
static inline float nb_bf16_mag_scaled(uint16_t b, int p)
{
    const int ex = b >> 7 & 0xff, f = b & 0x7f;
    if (ex != 0 && ex + p > 0) /* the usual case: move the exponent */
        return nb_f32_from_bits((uint32_t)(ex + p) << 23 | (uint32_t)f << 16);
    const int q = (ex ? ex : 1) + p - 127; /* weight of the leading bit of a normal number */
    return q < -126 ? 0 : (float)(ex ? 128 + f : f) * 0x1p-7f * nb_f32_pow2(q);
}

#endif
