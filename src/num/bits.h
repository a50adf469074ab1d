/* bits.h - what the number formats share: the bits of a float, and rounding of
 * integers to nearest, ties to even.
 *
 * Assumes that float is IEEE 754 binary32 (checked below as far as C can).
 * Nothing in src/num changes or reads the rounding mode or the flush-to-zero
 * bits: conversions work on bits, and the few float operations of the record
 * encoder are either exact or correctly rounded operations on normal numbers. */
#ifndef NB_NUM_BITS_H
#define NB_NUM_BITS_H
#include <float.h>
#include <stdint.h>
#include <string.h>

_Static_assert(sizeof(float) == 4 && FLT_MANT_DIG == 24 && FLT_MAX_EXP == 128,
               "float must be IEEE binary32");
_Static_assert(FLT_EVAL_METHOD == 0, "float expressions must be evaluated in float");

static inline uint32_t nb_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float nb_f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* 2^p as a float for p in -126..127. */
static inline float nb_f32_pow2(int p)
{
    return nb_f32_from_bits((uint32_t)(p + 127) << 23);
}

/* m / 2^shift rounded to nearest, ties to even; m < 2^24, any shift. */
static inline uint32_t nb_shift_rne(uint32_t m, uint32_t shift)
{
    if (shift == 0) return m;
    if (shift > 24) return 0; /* less than one half */
    return (m + (1u << (shift - 1)) - 1 + ((m >> shift) & 1)) >> shift;
}

/* 16-bit and 32-bit values in little-endian byte order, on any host. */
static inline uint16_t nb_le16_get(const uint8_t *p)
{
    return (uint16_t)(p[0] | (unsigned)p[1] << 8);
}
static inline void nb_le16_put(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v & 0xff);
    p[1] = (uint8_t)(v >> 8);
}
static inline uint32_t nb_le32_get(const uint8_t *p)
{
    return (uint32_t)nb_le16_get(p) | (uint32_t)nb_le16_get(p + 2) << 16;
}
static inline void nb_le32_put(uint8_t *p, uint32_t v)
{
    nb_le16_put(p, (uint16_t)(v & 0xffff));
    nb_le16_put(p + 2, (uint16_t)(v >> 16));
}

#endif
