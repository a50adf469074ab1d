/* linear_q4_0_avx512.c - linear with Q4_0: 32 nibbles and their scale. */
#include "kernel/x86/linear_gguf_avx512.h"

enum { BLOCK = 32, BYTES = 18 };

INLINE void block(const bool dot, const uint8_t *p, const float *x, float *out, __m512 *acc)
{
    nibbles(dot, p + 2, _mm512_mul_ps(iota(-8), half(p)), x, out, acc);
}

#define NAME nb_linear_q4_0_avx512
#include "kernel/x86/linear_gguf_avx512.h"
