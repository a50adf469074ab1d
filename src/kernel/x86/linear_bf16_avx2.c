/* linear_bf16_avx2.c - linear and linear_t with BF16 weights: a BF16 is the upper
 * half of a float. */
#include "kernel/x86/vec_avx2.h"

/* 8 of them: a load that fills both halves and one shuffle within them.  (vpmovzxwd and
 * a shift are two operations of pipes that the products want.) */
static inline __m256 load(const uint16_t *p)
{
    const __m256i at =
        _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, /* columns 0-3 */
                         -1, -1, 8, 9, -1, -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(v), at));
}
static inline __m256 load_tail(const uint16_t *p, size_t n)
{
    uint16_t v[8] = { 0 };
    for (size_t i = 0; i < n; i++) v[i] = p[i];
    return load(v);
}

#define W_TYPE uint16_t
#define W_PACKED 0
#define W_FP8 0
#define W_STRIP_MIN 24
#define W_LOAD(p) load(p)
#define W_TAIL(p, n) load_tail(p, n)
#define W_LOAD_T(p) load(p)
#define W_TAIL_T(p, n) load_tail(p, n)
#define NAME nb_linear_bf16_avx2
#define NAME_T nb_linear_t_bf16_avx2
#include "kernel/x86/linear_t_tile_avx2.h"
#include "kernel/x86/linear_tile_avx2.h"
