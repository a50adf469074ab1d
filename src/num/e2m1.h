/* e2m1.h - FP4 E2M1: sign, two exponent bits, one fraction bit; no NaN, no infinity.
 *
 * Magnitudes 0, .5, 1, 1.5, 2, 3, 4, 6.  Source: OCP Microscaling Formats 1.0. */
#ifndef NB_NUM_E2M1_H
#define NB_NUM_E2M1_H
#include "num/bits.h"

/* Values of the 16 codes; code 8 is -0. */
extern const float nb_e2m1_value[16];
/* Midpoints between neighbouring magnitudes j and j + 1, j = 0..6. */
extern const float nb_e2m1_bound[7];

static inline float nb_e2m1_to_f32(uint8_t c)
{
    return nb_e2m1_value[c & 15];
}

/* Nearest, ties to even, saturating at 6; the sign of zero is kept.  A NaN has
 * no code and becomes +-6: callers check first. */
static inline uint8_t nb_e2m1_from_f32(float x)
{
    const uint32_t u = nb_f32_bits(x), sign = u >> 28 & 8, mag = u & 0x7fffffffu;
    if (mag >= 0x40c00000u) return (uint8_t)(sign | 7); /* 6 */
    if (mag >= 0x3f800000u) {                           /* 1 */
        const uint32_t c = (mag - (126u << 23) + 0x1fffff + (mag >> 22 & 1)) >> 22;
        return (uint8_t)(sign | c);
    }
    return (uint8_t)(sign | nb_shift_rne((mag & 0x7fffff) | 0x800000, 149 - (mag >> 23)));
}

#endif
