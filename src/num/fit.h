/* fit.h - the scale of a block of values that gives the least squared error.
 *
 * A block of n values x becomes small integers q with y = d * q (nb_fit_scale) or y = d * q + m
 * (nb_fit_affine).  The error is sum w (x - y)^2; w may be NULL, which means 1 for all.  Scales that map
 * the largest value to the end of the range, or near it, are tried; each one's codes give a better scale
 * by least squares, and the best is refined until its codes stay.  Values are finite; n is at most 256.
 * The scale is not rounded: whoever stores it rounds it, and asks nb_fit_codes for the codes then. */
#ifndef NB_NUM_FIT_H
#define NB_NUM_FIT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* x rounded to nearest, ties to even, for |x| < 2^22. */
static inline float nb_fit_round(float x)
{
    return (x + 12582912.0f) - 12582912.0f; /* 1.5 * 2^23 */
}

/* d of y = d * q with lo <= q <= hi, lo < 0 < hi.  0 where all values are 0.  positive: d > 0, else the largest
 * value may take the longer side of the range. */
float nb_fit_scale(const float *x, const float *w, size_t n, int lo, int hi, bool positive);

/* d >= 0 and m of y = d * q + m, 0 <= q <= hi.  below: m <= 0. */
void nb_fit_affine(const float *x, const float *w, size_t n, int hi, bool below, float *d,
                   float *m);

/* The nearest codes for y = d * q + m, lo <= q <= hi (q may be NULL), and their error.  d == 0: all codes are
 * 0, or the end that is nearest to it. */
float nb_fit_codes(const float *x, const float *w, size_t n, float d, float m, int lo, int hi,
                   int8_t *q);
#endif
