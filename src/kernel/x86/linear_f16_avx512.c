/* linear_f16_avx512.c - linear and linear_t with FP16 weights: the conversion is exact. */
#include "kernel/x86/vec_avx512.h"

static inline __m512 load(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline __m512 load_mask(const uint16_t *p, __mmask16 mask)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
}

#define W_TYPE uint16_t
#define W_PACKED 0
#define W_FP8 0
#define W_F32 0
#define W_LOAD(p) load(p)
#define W_TAIL(p, n) load_mask(p, nb_avx512_mask16(n))
#define NAME nb_linear_f16_avx512
#include "kernel/x86/linear_tile_avx512.h"

#define WT_TYPE uint16_t
#define WT_LOAD(p) load(p)
#define WT_TAIL(p, mask) load_mask(p, mask)
#define WT_FACTOR 0
#define NAME_T nb_linear_t_f16_avx512
#include "kernel/x86/linear_t_tile_avx512.h"
