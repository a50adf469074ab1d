/* linear_f32_avx2.c - linear and linear_t with FP32 weights. */
#include "kernel/x86/vec_avx2.h"

#define W_TYPE float
#define W_PACKED 0
#define W_FP8 0
#define W_STRIP_MIN 12
#define W_LOAD(p) _mm256_loadu_ps(p)
#define W_TAIL(p, n) _mm256_maskload_ps(p, nb_avx2_mask(n))
#define W_LOAD_T(p) W_LOAD(p)
#define W_TAIL_T(p, n) W_TAIL(p, n)
#define NAME nb_linear_f32_avx2
#define NAME_T nb_linear_t_f32_avx2
#include "kernel/x86/linear_t_tile_avx2.h"
#include "kernel/x86/linear_tile_avx2.h"
