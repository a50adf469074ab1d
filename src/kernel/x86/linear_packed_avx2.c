/* linear_packed_avx2.c - linear with any packed type: rows of values from its traits, for all tokens
 * of a panel.  Types that are read at memory's speed have kernels of their own. */
#include "kernel/x86/vec_avx2.h"

#define W_TYPE float
#define W_PACKED 1
#define W_FP8 0
#define W_STRIP_MIN 12
#define W_LOAD(p) _mm256_loadu_ps(p)
#define W_TAIL(p, n) _mm256_maskload_ps(p, nb_avx2_mask(n))
#define NAME nb_linear_packed_avx2
#include "kernel/x86/linear_tile_avx2.h"
