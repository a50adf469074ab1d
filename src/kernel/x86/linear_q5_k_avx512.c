/* linear_q5_k_avx512.c - linear with Q5_K: 8 sub-blocks of 32 codes of 5 bits with scale and minimum. */
#include "kernel/x86/linear_gguf_avx512.h"

enum { BLOCK = 256, BYTES = 176 };

/* Values of a half of sub-block j: nibbles v, bit j of the bytes h on top. */
INLINE __m512 half_block(__m512i v, __m512i h, int j, float scale, float min)
{
    const __m512 s = _mm512_set1_ps(scale), m = _mm512_set1_ps(min);
    const __m512i bit = _mm512_and_si512(_mm512_srli_epi32(h, (unsigned)j), _mm512_set1_epi32(1));
    const __m512i code = _mm512_or_si512(v, _mm512_slli_epi32(bit, 4));
    return _mm512_permutex2var_ps(_mm512_fmsub_ps(iota(0), s, m), code,
                                  _mm512_fmsub_ps(iota(16), s, m));
}

INLINE void block(const bool dot, const uint8_t *p, const float *x, float *out, __m512 *acc)
{
    float scale[8], min[8];
    const __m512i h0 = bytes16(p + 16), h1 = bytes16(p + 32), four = _mm512_set1_epi32(15);
    k_scales(p, scale, min);
    UNROLL
    for (int j = 0; j < 8; j += 2) {
        const __m512i v0 = bytes16(p + 48 + 16 * j), v1 = bytes16(p + 64 + 16 * j);
        const __m512i a0 = _mm512_and_si512(v0, four), a1 = _mm512_and_si512(v1, four);
        const __m512i b0 = _mm512_srli_epi32(v0, 4), b1 = _mm512_srli_epi32(v1, 4);
        use(dot, 2 * j, half_block(a0, h0, j, scale[j], min[j]), x, out, acc);
        use(dot, 2 * j + 1, half_block(a1, h1, j, scale[j], min[j]), x, out, acc);
        use(dot, 2 * j + 2, half_block(b0, h0, j + 1, scale[j + 1], min[j + 1]), x, out, acc);
        use(dot, 2 * j + 3, half_block(b1, h1, j + 1, scale[j + 1], min[j + 1]), x, out, acc);
    }
}

#define NAME nb_linear_q5_k_avx512
#include "kernel/x86/linear_gguf_avx512.h"
