/* linear_mxfp4_avx512.c - linear with MXFP4 in blocks: 32 nibbles and a power of two. */
#include "kernel/x86/linear_gguf_avx512.h"

enum { BLOCK = 32, BYTES = 17 };

INLINE void block(const bool dot, const uint8_t *p, const float *x, float *out, __m512 *acc)
{
    const __m512 value = _mm512_set_ps(-12, -8, -6, -4, -3, -2, -1, 0, 12, 8, 6, 4, 3, 2, 1, 0);
    const int d = *p < 2 ? 0x00200000 << *p : (*p - 1) << 23; /* 2^(e - 128) */
    const __m512 scale = _mm512_castsi512_ps(_mm512_set1_epi32(d));
    nibbles(dot, p + 1, _mm512_mul_ps(value, scale), x, out, acc);
}

#define NAME nb_linear_mxfp4_avx512
#include "kernel/x86/linear_gguf_avx512.h"
