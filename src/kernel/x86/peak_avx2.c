/* peak_avx2.c - peak loops of AVX2 + FMA.
 *
 * Registers only: 12 chains hide a latency of 4 to 5 cycles on two units.  Reading: 16 loads of 32
 * bytes a round into four sums by XOR, which no port of the loads is shared with; one addition a
 * load would do as well, and the sums are bound by loads on every processor that has two ports for
 * them. */
#include <immintrin.h>

#include "kernel/peak/peak.h"

uint64_t nb_peak_read_avx2(const void *p, size_t n_bytes)
{
    const char *b = p;
    __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0;
    for (size_t i = 0; i < n_bytes; i += NB_PEAK_READ) {
        for (size_t j = 0; j < NB_PEAK_READ; j += 128) {
            const __m256i *v = (const __m256i *)(const void *)(b + i + j);
            s0 = _mm256_xor_si256(s0, _mm256_loadu_si256(v));
            s1 = _mm256_xor_si256(s1, _mm256_loadu_si256(v + 1));
            s2 = _mm256_xor_si256(s2, _mm256_loadu_si256(v + 2));
            s3 = _mm256_xor_si256(s3, _mm256_loadu_si256(v + 3));
        }
    }
    s0 = _mm256_xor_si256(_mm256_xor_si256(s0, s1), _mm256_xor_si256(s2, s3));
    uint64_t out[4];
    _mm256_storeu_si256((__m256i *)(void *)out, s0);
    return out[0] ^ out[1] ^ out[2] ^ out[3];
}

#define TWELVE(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11)

double nb_peak_f32_avx2(size_t n_round, float *sink)
{
    const __m256 m = _mm256_set1_ps(0.999f), a = _mm256_set1_ps(0.25f);
    __m256 sum = _mm256_setzero_ps();
#define START(i) __m256 x##i = _mm256_set1_ps((float)(i));
#define STEP(i) x##i = _mm256_fmadd_ps(x##i, m, a);
#define ADD(i) sum = _mm256_add_ps(sum, x##i);
    TWELVE(START)
    for (size_t r = 0; r < n_round; r++) {
        TWELVE(STEP)
    }
    TWELVE(ADD)
#undef START
#undef STEP
#undef ADD
    *sink = _mm256_cvtss_f32(sum);
    return 12.0 * 16 * (double)n_round;
}

double nb_peak_int8_avx2(size_t n_round, float *sink)
{
    __m256i sum = _mm256_setzero_si256();
    const __m256i a = _mm256_set1_epi16(3);
#define START(i) __m256i x##i = _mm256_set1_epi32(i);
/* In place, or gcc makes all products first and has no registers for them. */
#define STEP(i)                                                                                    \
    x##i = _mm256_add_epi32(x##i, _mm256_madd_epi16(x##i, a));                                     \
    __asm__("" : "+x"(x##i));
#define ADD(i) sum = _mm256_add_epi32(sum, x##i);
    TWELVE(START)
    for (size_t r = 0; r < n_round; r++) {
        TWELVE(STEP)
    }
    TWELVE(ADD)
#undef START
#undef STEP
#undef ADD
    *sink = (float)_mm_cvtsi128_si32(_mm256_castsi256_si128(sum));
    return 12.0 * 32 * (double)n_round;
}
