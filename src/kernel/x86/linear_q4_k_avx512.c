/* linear_q4_k_avx512.c - linear with Q4_K: 8 sub-blocks of 32 nibbles with scale and minimum. */
#include "kernel/x86/linear_gguf_avx512.h"

enum { BLOCK = 256, BYTES = 144 };

/* Sub-blocks 2i and 2i + 1 are the low and high nibbles of 32 bytes. */
INLINE void block(const bool dot, const uint8_t *p, const float *x, float *out, __m512 *acc)
{
    float scale[8], min[8];
    k_scales(p, scale, min);
    UNROLL
    for (int j = 0; j < 8; j += 2) {
        const __m512i v0 = bytes16(p + 16 + 16 * j), v1 = bytes16(p + 32 + 16 * j);
        const __m512 low =
            _mm512_fmsub_ps(iota(0), _mm512_set1_ps(scale[j]), _mm512_set1_ps(min[j]));
        const __m512 high =
            _mm512_fmsub_ps(iota(0), _mm512_set1_ps(scale[j + 1]), _mm512_set1_ps(min[j + 1]));
        use(dot, 2 * j, _mm512_permutexvar_ps(v0, low), x, out, acc);
        use(dot, 2 * j + 1, _mm512_permutexvar_ps(v1, low), x, out, acc);
        use(dot, 2 * j + 2, _mm512_permutexvar_ps(_mm512_srli_epi32(v0, 4), high), x, out, acc);
        use(dot, 2 * j + 3, _mm512_permutexvar_ps(_mm512_srli_epi32(v1, 4), high), x, out, acc);
    }
}

#define NAME nb_linear_q4_k_avx512
#include "kernel/x86/linear_gguf_avx512.h"
