/* peak_avxvnni.c - the peak loop of byte products by AVX-VNNI: 12 chains in registers. */
#include <immintrin.h>

#include "kernel/peak/peak.h"

#define TWELVE(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11)
#define START(i) __m256i x##i = _mm256_set1_epi32(i);
/* In place, or gcc copies every sum. */
#define STEP(i)                                                                                    \
    x##i = _mm256_dpbusd_avx_epi32(x##i, a, b);                                                    \
    __asm__("" : "+x"(x##i));
#define ADD(i) sum = _mm256_add_epi32(sum, x##i);

double nb_peak_int8_avxvnni(size_t n_round, float *sink)
{
    const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
    __m256i sum = _mm256_setzero_si256();
    TWELVE(START)
    for (size_t r = 0; r < n_round; r++) {
        TWELVE(STEP)
    }
    TWELVE(ADD)
    *sink = (float)_mm_cvtsi128_si32(_mm256_castsi256_si128(sum));
    return 12.0 * 64 * (double)n_round;
}
