/* linear_bf16_avx512.c - linear and linear_t with BF16 weights: a BF16 is the upper half of a
 * float, so widening is exact and costs a shuffle and a shift per 16. */
#include "kernel/x86/vec_avx512.h"

static inline __m512 widen(__m256i v)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}
static inline __m512 load(const uint16_t *p)
{
    return widen(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline __m512 load_mask(const uint16_t *p, __mmask16 mask)
{
    return widen(_mm256_maskz_loadu_epi16(mask, p));
}

#define W_TYPE uint16_t
#define W_PACKED 0
#define W_FP8 0
#define W_F32 0
#define W_LOAD(p) load(p)
#define W_TAIL(p, n) load_mask(p, nb_avx512_mask16(n))
#define NAME nb_linear_bf16_avx512
#include "kernel/x86/linear_tile_avx512.h"

#define WT_TYPE uint16_t
#define WT_LOAD(p) load(p)
#define WT_TAIL(p, mask) load_mask(p, mask)
#define WT_FACTOR 0
#define NAME_T nb_linear_t_bf16_avx512
#include "kernel/x86/linear_t_tile_avx512.h"
