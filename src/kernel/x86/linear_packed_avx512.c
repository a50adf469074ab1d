/* linear_packed_avx512.c - linear with any packed type: rows of values from its traits, for all tokens
 * of a panel.  Types that are read at memory's speed have kernels of their own. */
#include "kernel/x86/vec_avx512.h"

#define W_TYPE float
#define W_PACKED 1
#define W_FP8 0
#define W_F32 1
#define W_LOAD(p) _mm512_loadu_ps(p)
#define W_TAIL(p, n) _mm512_maskz_loadu_ps(nb_avx512_mask16(n), p)
#define NAME nb_linear_packed_avx512
#include "kernel/x86/linear_tile_avx512.h"
