/* ue8m0.h - UE8M0: an unsigned power of two, 2^(b - 127); 255 is NaN; no zero.
 *
 * Source: OCP Microscaling Formats 1.0 (there E8M0).  The records of record.h
 * use byte 0 differently, as the mark of an all-zero vector; see there. */
#ifndef NB_NUM_UE8M0_H
#define NB_NUM_UE8M0_H
#include "num/bits.h"

enum { NB_UE8M0_ONE = 127, NB_UE8M0_NAN = 255 };

/* Exact; 0 gives 2^-127, a subnormal float; 255 a quiet NaN. */
static inline float nb_ue8m0_to_f32(uint8_t b)
{
    if (b == 0) return nb_f32_from_bits(0x00400000u);
    if (b == NB_UE8M0_NAN) return nb_f32_from_bits(0x7fc00000u);
    return nb_f32_from_bits((uint32_t)b << 23);
}

/* The smallest code whose value is >= x.  Clamped to 0..254; a NaN, a negative
 * number and zero have no code: NaN gives 255, the others 0. */
static inline uint8_t nb_ue8m0_from_f32_up(float x)
{
    const uint32_t u = nb_f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return NB_UE8M0_NAN;
    if (u >> 31 || u <= 0x00400000u) return 0;
    const uint32_t b = (u >> 23) + ((u & 0x7fffff) != 0);
    return (uint8_t)(b > 254 ? 254 : b);
}

/* 127 + e clamped to lo..hi. */
static inline uint8_t nb_ue8m0_from_exp(int e, int lo, int hi)
{
    const int b = NB_UE8M0_ONE + e;
    return (uint8_t)(b < lo ? lo : b > hi ? hi : b);
}

#endif
