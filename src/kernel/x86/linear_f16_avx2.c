/* linear_f16_avx2.c - linear and linear_t with FP16 weights (F16C converts). */
#include "kernel/x86/vec_avx2.h"

static inline __m256 load(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
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
#define W_STRIP_MIN 0 /* F16C does not compete with the products */
#define W_LOAD(p) load(p)
#define W_TAIL(p, n) load_tail(p, n)
#define W_LOAD_T(p) load(p)
#define W_TAIL_T(p, n) load_tail(p, n)
#define NAME nb_linear_f16_avx2
#define NAME_T nb_linear_t_f16_avx2
#include "kernel/x86/linear_t_tile_avx2.h"
#include "kernel/x86/linear_tile_avx2.h"
