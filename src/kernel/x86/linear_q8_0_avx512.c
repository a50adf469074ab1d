/* linear_q8_0_avx512.c - linear with Q8_0: 32 signed bytes and their scale. */
#include "kernel/x86/linear_gguf_avx512.h"

enum { BLOCK = 32, BYTES = 34 };

INLINE void block(const bool dot, const uint8_t *p, const float *x, float *out, __m512 *acc)
{
    const __m512 d = half(p);
    for (int i = 0; i < 2; i++) {
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(p + 2 + 16 * i));
        use(dot, i, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b)), d), x, out, acc);
    }
}

#define NAME nb_linear_q8_0_avx512
#include "kernel/x86/linear_gguf_avx512.h"
