/* e4m3.h - FP8 E4M3 ("fn": no infinities; 0x7f and 0xff are NaN; largest 448).
 *
 * 1 sign, 4 exponent (bias 7) and 3 fraction bits; subnormal step 2^-9.
 * Source: OCP 8-bit Floating Point Specification (OFP8) 1.0. */
#ifndef NB_NUM_E4M3_H
#define NB_NUM_E4M3_H
#include <stdbool.h>

#include "num/bits.h"

enum { NB_E4M3_MAX = 0x7e, NB_E4M3_NAN = 0x7f };

/* Value of every code; the two NaN codes are quiet NaNs. */
extern const float nb_e4m3_value[256];

static inline float nb_e4m3_to_f32(uint8_t c)
{
    return nb_e4m3_value[c];
}

/* Nearest, ties to even, saturating: every finite or infinite magnitude over
 * 448 becomes 448 of the same sign.  A NaN becomes 0x7f with its sign; the sign
 * of zero is kept. */
static inline uint8_t nb_e4m3_from_f32(float x)
{
    const uint32_t u = nb_f32_bits(x), sign = u >> 24 & 0x80, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return (uint8_t)(sign | NB_E4M3_NAN);
    if (mag >= 0x43e00000u) return (uint8_t)(sign | NB_E4M3_MAX); /* 448 */
    if (mag >= 0x3c800000u)                                       /* 2^-6 */
        return (uint8_t)(sign | ((mag - (120u << 23) + 0x7ffff + (mag >> 20 & 1)) >> 20));
    return (uint8_t)(sign | nb_shift_rne((mag & 0x7fffff) | 0x800000, 141 - (mag >> 23)));
}

static inline bool nb_e4m3_is_nan(uint8_t c)
{
    return (c & 0x7f) == NB_E4M3_NAN;
}

/* The code nearest to the real quotient a / d, ties to even, for a finite a >= 0
 * of at most 8 significant bits and d in 1..7; over 448 it is 0x7e.  No division
 * decides: a product with the rounded reciprocal proposes a code, and comparing
 * a with d * midpoint (5 + 3 bits, exact) corrects it. */
static inline uint8_t nb_e4m3_quotient(float a, int d)
{
    static const float recip[8] = { 0,     1.0f,           0.5f,           0x1.555556p-2f,
                                    0.25f, 0x1.99999ap-3f, 0x1.555556p-3f, 0x1.24924ap-3f };
    const float df = (float)d;
    unsigned c = nb_e4m3_from_f32(a * recip[d]);
    if (c < NB_E4M3_MAX) {
        const float up = df * (0.5f * (nb_e4m3_value[c] + nb_e4m3_value[c + 1]));
        if (a > up || (a == up && c & 1)) c++;
    }
    if (c > 0) {
        const float lo = df * (0.5f * (nb_e4m3_value[c - 1] + nb_e4m3_value[c]));
        if (a < lo || (a == lo && c & 1)) c--;
    }
    return (uint8_t)c;
}

#endif
