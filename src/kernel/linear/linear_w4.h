/* linear_w4.h - the order of products with codes of 4 bits (INT4, FP4), and how x is packed for it.
 *
 * A row's codes are words of 32 bits with 8 columns each, the first in the lowest bits.  A block is 16
 * words, 128 columns: lane i has the 8 columns of word i.  Per block a lane sums its 8 products in
 * order, starting with the first, and adds the sum, times the scale of the lane's group, to the lane's
 * total:
 *
 *   sum = v[0] x[0];  sum = fma(v[j], x[j], sum) for j = 1..7;  total = fma(sum, scale * outer, total)
 *
 * with v = code - zero point or the E2M1 value, which are exact.  At the end lanes i and i + 8 are
 * added and the 8 joined as in linear_order.h.  8 + 1 + n/128 + 4 + 1 for the bias, and 2 for roundings of
 * scale * outer and of the value that it is compared with: 16 + n/128.
 *
 * So x is packed as [block][j][lane], zeros behind the last column; with act order in the order of the
 * codes.  Lanes of missing words have the scale 0. */
#ifndef NB_KERNEL_LINEAR_W4_H
#define NB_KERNEL_LINEAR_W4_H
#include "kernel/linear/linear.h"

enum { NB_W4_BLOCK = 128, NB_W4_LANE = 16 };

/* Floats from token to token: an odd number of cache lines, so that they use all sets of L1. */
static inline size_t nb_w4_stride(size_t n_col)
{
    return (n_col + NB_W4_BLOCK - 1) / NB_W4_BLOCK * NB_W4_BLOCK + NB_W4_LANE;
}

/* The values of the 16 codes; of integers without a zero point. */
void nb_w4_table(const nb_weight *w, float table[16]);

/* Scales times outer, and zero points, of the lanes of n_block blocks from block b of row r: [block][16]. */
void nb_w4_lanes(const nb_weight *w, size_t r, size_t b, size_t n_block, float *scale, float *zero);

nb_linear_pack_bytes nb_linear_w4_pack_bytes;
nb_linear_pack nb_linear_w4_pack;
nb_linear_fn nb_linear_w4_avx2, nb_linear_w4_avx512, nb_linear_t_w4_avx512;

#endif
