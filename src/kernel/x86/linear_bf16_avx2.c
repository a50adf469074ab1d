/* linear_bf16_avx2.c - linear and linear_t with BF16 weights: a BF16 is the upper
 * half of a float. */
#include "kernel/x86/vec_avx2.h"

static inline __m256 widen(__m128i v)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
static inline __m256 load(const uint16_t *p)
{
    return widen(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline __m256 load_tail(const uint16_t *p, size_t n)
{
    uint16_t v[8] = { 0 };
    for (size_t i = 0; i < n; i++) v[i] = p[i];
    return load(v);
}

#define W_TYPE uint16_t
#define W_FP8 0
#define W_LOAD(p) load(p)
#define W_TAIL(p, n) load_tail(p, n)
#define W_LOAD_T(p) load(p)
#define W_TAIL_T(p, n) load_tail(p, n)
#define NAME nb_linear_bf16_avx2
#define NAME_T nb_linear_t_bf16_avx2
#include "kernel/x86/linear_tile_avx2.h"
#include "kernel/x86/linear_t_tile_avx2.h"
