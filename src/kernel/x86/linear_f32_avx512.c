/* linear_f32_avx512.c - linear and linear_t with FP32 weights: tiles read the matrix itself. */
#include "kernel/x86/vec_avx512.h"

#define W_TYPE float
#define W_PACKED 0
#define W_FP8 0
#define W_F32 1
#define W_LOAD(p) _mm512_loadu_ps(p)
#define W_TAIL(p, n) _mm512_maskz_loadu_ps(nb_avx512_mask16(n), p)
#define NAME nb_linear_f32_avx512
#include "kernel/x86/linear_tile_avx512.h"

#define WT_TYPE float
#define WT_LOAD(p) _mm512_loadu_ps(p)
#define WT_TAIL(p, mask) _mm512_maskz_loadu_ps(mask, p)
#define WT_FACTOR 0
#define NAME_T nb_linear_t_f32_avx512
#include "kernel/x86/linear_t_tile_avx512.h"
