/* linear_act8.h - activations in 8 bits, a scale per 32 columns (NB_ACT_INT8): the rule and the packed form.
 *
 * Of each group of 32 columns of a token, the last one may be shorter, in single precision:
 *
 *   a = max |x[c]|;  inv = 127 / a;  q[c] = round_to_nearest_even(x[c] * inv);  s = a / 127
 *
 * a < 2^-100: all q and s are 0; an x[c] that is not finite: all q are 0 and s is the NaN 0x7fc00000.
 * So |x[c] - s q[c]| <= a / 254 * (1 + 2^-13).
 *
 * A product with integer weights sums a group exactly, and the groups in turn, one fused multiply-add each:
 *
 *   acc = fma((float)sum_c q[c] W[r][c], s, acc)
 *
 * INT8 weights: y[r] = acc * scale[r] [+ bias[r]].  Every variant does just this, so all give the same bits,
 * for any number of tokens.  vpdpbusd multiplies unsigned bytes by signed ones: variants add 128 to the weights
 * and begin a group's sum with z = -128 sum_c q[c], which the packed form has ready. */
#ifndef NB_KERNEL_LINEAR_ACT8_H
#define NB_KERNEL_LINEAR_ACT8_H
#include "kernel/linear/linear.h"

enum { NB_ACT8_GROUP = 32 };
#define NB_ACT8_MAX 127.0f
#define NB_ACT8_MIN 0x1p-100f /* groups of smaller activations count as 0 */

/* The packed form: signed bytes q [n_tok][nb_act8_stride], then float s and int32_t z, both
 * [n_tok][nb_act8_groups].  Zeros pad rows. */
static inline size_t nb_act8_stride(size_t n_col)
{
    return (n_col + 63) / 64 * 64;
}
static inline size_t nb_act8_groups(size_t n_col)
{
    return (n_col + 511) / 512 * 16;
}
static inline const int8_t *nb_act8_q(const void *xp, size_t n_col, size_t tok)
{
    return (const int8_t *)xp + tok * nb_act8_stride(n_col);
}
static inline const float *nb_act8_s(const void *xp, size_t n_tok, size_t n_col)
{
    return (const float *)(const void *)((const char *)xp + n_tok * nb_act8_stride(n_col));
}
static inline const int32_t *nb_act8_z(const void *xp, size_t n_tok, size_t n_col)
{
    return (const int32_t *)(const void *)(nb_act8_s(xp, n_tok, n_col) +
                                           n_tok * nb_act8_groups(n_col));
}

nb_linear_pack_bytes nb_linear_act8_pack_bytes;
nb_linear_pack nb_linear_act8_pack_c, nb_linear_act8_pack_avxvnni, nb_linear_act8_pack_avx512, nb_linear_act8_pack_neon;
nb_linear_fn nb_linear_int8_act8_c, nb_linear_int8_act8_avxvnni, nb_linear_int8_act8_avx512,
    nb_linear_int8_act8_neon;

#endif
