/* linear_q6_k_avx512.c - linear with Q6_K: 16 groups of 16 codes of 6 bits with a signed scale. */
#include "kernel/x86/linear_gguf_avx512.h"

enum { BLOCK = 256, BYTES = 210 };

/* Half p of 128 values: four parts of 32 codes, nibbles of 64 bytes and two bits of 32 bytes on top. */
INLINE void block(const bool dot, const uint8_t *p, const float *x, float *out, __m512 *acc)
{
    float scale[16];
    const __m128i s = _mm_loadu_si128((const __m128i *)(const void *)(p + 192));
    _mm512_storeu_ps(scale,
                     _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(s)), half(p + 208)));
    UNROLL
    for (int k = 0; k < 8; k++) {
        const int part = k % 4;
        const __m256i lo =
            _mm256_loadu_si256((const __m256i *)(const void *)(p + 64 * (k / 4) + 32 * (part % 2)));
        const __m256i hi =
            _mm256_loadu_si256((const __m256i *)(const void *)(p + 128 + 32 * (k / 4)));
        const __m256i a = part < 2 ? lo : _mm256_srli_epi16(lo, 4);
        const __m256i b = part == 0   ? _mm256_slli_epi16(hi, 4)
                          : part == 1 ? _mm256_slli_epi16(hi, 2)
                          : part == 2 ? hi
                                      : _mm256_srli_epi16(hi, 2);
        __m256i q = _mm256_or_si256(_mm256_and_si256(a, _mm256_set1_epi8(15)),
                                    _mm256_and_si256(b, _mm256_set1_epi8(48)));
        q = _mm256_sub_epi8(q, _mm256_set1_epi8(32));
        const __m512 v0 = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(q)));
        const __m512 v1 = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(q, 1)));
        use(dot, 2 * k, _mm512_mul_ps(v0, _mm512_set1_ps(scale[2 * k])), x, out, acc);
        use(dot, 2 * k + 1, _mm512_mul_ps(v1, _mm512_set1_ps(scale[2 * k + 1])), x, out, acc);
    }
}

#define NAME nb_linear_q6_k_avx512
#include "kernel/x86/linear_gguf_avx512.h"
