/* linear_int8.h - products with INT8 weights: integers, so that every variant gives the same bits.
 *
 * A token's activations become 15-bit integers with one scale,
 *
 *   a  = max_c |x[c]|;  inv = 16256 / a;  q[c] = round_to_nearest_even(x[c] * inv);  sx = a / 16256
 *
 * in single precision (a < 2^-100: all q and sx are 0; an x[c] not finite: all q are 0 and sx
 * is the NaN 0x7fc00000), the product sums exactly,
 *
 *   y[r] = (float)(sum_c q[c] W[r][c]) * (scale[r] * sx)  [+ bias[r]]
 *
 * and only these last operations round.  15 bits are 128 hi + lo with hi in -127..127 and lo in
 * -64..63, two digits of a signed-byte dot product (AMX); 16256 = 127 * 128.  |sum| < 2^53 for up
 * to 2^32 columns.  Eight bits for the weights, fifteen for the activations: rounding both to eight,
 * as is usual, loses what large single activations leave of the rest. */
#ifndef NB_KERNEL_LINEAR_INT8_H
#define NB_KERNEL_LINEAR_INT8_H
#include "kernel/linear/linear.h"

#define NB_INT8_X_MAX 16256.0f
#define NB_INT8_X_MIN 0x1p-100f /* smaller activations count as 0 */

/* What the portable and the AVX variants pack: q [n_tok][nb_int8_stride] signed 16-bit integers,
 * padded with zeros, then float sx [n_tok]. */
static inline size_t nb_int8_stride(size_t n_col)
{
    return (n_col + 31) / 32 * 32;
}
static inline const int16_t *nb_int8_q(const void *xp, size_t n_col, size_t tok)
{
    return (const int16_t *)xp + tok * nb_int8_stride(n_col);
}
static inline const float *nb_int8_sx(const void *xp, size_t n_tok, size_t n_col)
{
    return (const float *)(const void *)((const int16_t *)xp + n_tok * nb_int8_stride(n_col));
}

static inline float nb_int8_finish(int64_t sum, float scale, float sx)
{
    return (float)sum * (scale * sx);
}

#endif
