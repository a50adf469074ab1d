/* residual.h - the residual plane: 4 more bits per value of segment 0, without scales.
 *
 * Beside a page of an nvfp4 or if4 record, row t of the plane (ceil(dim / 2) bytes per
 * vector) says where in its cell each value lies: the cell of a code is cut into 16 equal
 * parts.  With v = x / s (s: all scales of the block) and the code's magnitude index i:
 *   E2M1   i = 0: the signed cell [-.25, .25); then [.25,.75) [.75,1.25) [1.25,1.75)
 *          [1.75,2.5) [2.5,3.5) [3.5,5) [5,T), T = 6.5 for modes basic and 4over6, 7 for search
 *          and for if4
 *   steps  k = 0: [-.5, .5); k = 1..6: [k - .5, k + .5); 7: [6.5, 8)
 *   r = clamp(floor((|v| - lo) / (hi - lo) * 16), 0, 15); i = 0: from v itself
 *   refined value = sign * (lo + (r + .5) * (hi - lo) / 16) * s; i = 0: without sign
 * Two r per byte, the even value in the low nibble.  A block of scale 0 and a vector of outer
 * scale 0 store 0 and read +0.  Outlier channels store 0 and read as in the page.  Encoding is
 * exact: thresholds, no division.  Source: specifications of nibble's Thrift mode (docs/
 * number-formats.md, 5). */
#ifndef NB_NUM_RESIDUAL_H
#define NB_NUM_RESIDUAL_H
#include "num/record.h"

bool nb_residual_possible(const nb_record *r); /* segment 0 in NVFP4 or IF4 */
size_t nb_residual_row_bytes(const nb_record *r);  /* per token: n_vec * ceil(dim / 2) */
size_t nb_residual_page_bytes(const nb_record *r); /* 64 rows */

/* plane: [64][row_bytes].  page is what nb_record_encode_page wrote for these values;
 * x: BF16 rows of segment 0, as there. */
void nb_residual_encode(const nb_record *r, const void *page, const uint16_t *x, size_t x_stride,
                        void *plane);
/* The refined values of segment 0 of token tok from its row: [n_vec * dim] floats. */
void nb_residual_decode(const nb_record *r, const void *page, size_t tok, const void *row,
                        float *out);

#endif
