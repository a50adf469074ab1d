/* linear_iq4_nl_avx512.c - linear with IQ4_NL: 32 nibbles that are looked up, and their scale. */
#include "kernel/x86/linear_gguf_avx512.h"

enum { BLOCK = 32, BYTES = 18 };

INLINE void block(const bool dot, const uint8_t *p, const float *x, float *out, __m512 *acc)
{
    const __m512 value =
        _mm512_set_ps(113, 89, 69, 53, 38, 25, 13, 1, -10, -22, -35, -49, -65, -83, -104, -127);
    nibbles(dot, p + 2, _mm512_mul_ps(value, half(p)), x, out, acc);
}

#define NAME nb_linear_iq4_nl_avx512
#include "kernel/x86/linear_gguf_avx512.h"
