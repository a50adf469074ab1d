/* linear_q5_0_avx512.c - linear with Q5_0: 32 codes of 5 bits and their scale. */
#include "kernel/x86/linear_gguf_avx512.h"

enum { BLOCK = 32, BYTES = 22 };

/* vpermi2ps looks 5 bits up in two vectors. */
INLINE void block(const bool dot, const uint8_t *p, const float *x, float *out, __m512 *acc)
{
    const __m512 d = half(p), low = _mm512_mul_ps(iota(-16), d), high = _mm512_mul_ps(iota(0), d);
    const __m512i v = bytes16(p + 6), bit = _mm512_set1_epi32(16);
    uint32_t h;
    memcpy(&h, p + 2, sizeof h);
    __m512i q = _mm512_and_si512(v, _mm512_set1_epi32(15));
    q = _mm512_mask_mov_epi32(q, (__mmask16)h, _mm512_or_si512(q, bit));
    use(dot, 0, _mm512_permutex2var_ps(low, q, high), x, out, acc);
    q = _mm512_srli_epi32(v, 4);
    q = _mm512_mask_mov_epi32(q, (__mmask16)(h >> 16), _mm512_or_si512(q, bit));
    use(dot, 1, _mm512_permutex2var_ps(low, q, high), x, out, acc);
}

#define NAME nb_linear_q5_0_avx512
#include "kernel/x86/linear_gguf_avx512.h"
