/* int4.h - asymmetric 4-bit integers: x^ = q * s + m, q = 0..15, s and m FP16.
 *
 * Rounding is decided by comparing with exact products, never by a division, so
 * that every machine finds the same codes.  Source of the scheme: KIVI (arXiv
 * 2402.02750); the rounding rules are ours, docs/number-formats.md. */
#ifndef NB_NUM_INT4_H
#define NB_NUM_INT4_H
#include <stddef.h>

#include "num/fp16.h"

enum { NB_INT4_MAX = 15 };

/* The FP16 code nearest to range / 15, ties to even; 65504 when over it, 0 when
 * range <= 0.  15 * midpoint has 16 significant bits: the comparisons are exact. */
static inline uint16_t nb_int4_scale(float range)
{
    if (!(range > 0)) return 0;
    unsigned c = nb_fp16_from_f32_sat(range * 0x1.111112p-4f);
    if (c < NB_FP16_MAX) {
        const float up = 7.5f * (nb_fp16_to_f32((uint16_t)c) + nb_fp16_to_f32((uint16_t)(c + 1)));
        if (range > up || (range == up && c & 1)) c++;
    }
    if (c > 0) {
        const float lo = 7.5f * (nb_fp16_to_f32((uint16_t)(c - 1)) + nb_fp16_to_f32((uint16_t)c));
        if (range < lo || (range == lo && c & 1)) c--;
    }
    return (uint16_t)c;
}

/* The q in 0..15 nearest to d / s, ties to even; 0 when s == 0.
 * s * (j + 1/2) has at most 16 significant bits: exact. */
static inline uint8_t nb_int4_code(float d, float s)
{
    unsigned q = 0;
    if (s == 0) return 0;
    for (unsigned j = 0; j < NB_INT4_MAX; j++) {
        const float b = s * ((float)j + 0.5f);
        q += j & 1 ? d >= b : d > b; /* a tie goes to the even j + 1, or stays at j */
    }
    return (uint8_t)q;
}

/* q * s is exact; the sum is rounded once. */
static inline float nb_int4_to_f32(uint8_t q, float s, float m)
{
    return (float)q * s + m;
}

/* Two codes share a byte: the even element has the low nibble. */
static inline uint8_t nb_nibble_get(const uint8_t *codes, size_t i)
{
    return (uint8_t)(codes[i >> 1] >> (i & 1) * 4 & 15);
}
static inline void nb_nibble_or(uint8_t *codes, size_t i, uint8_t q)
{
    codes[i >> 1] = (uint8_t)(codes[i >> 1] | q << (i & 1) * 4);
}

#endif
