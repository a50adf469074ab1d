/* peak_avx512.c - peak loops of AVX-512 F and VNNI: 24 chains of the 32 registers; reading as in
 * peak_avx2.c with loads of 64 bytes. */
#include <immintrin.h>

#include "kernel/peak/peak.h"

uint64_t nb_peak_read_avx512(const void *p, size_t n_bytes)
{
    const char *b = p;
    __m512i s0 = _mm512_setzero_si512(), s1 = s0, s2 = s0, s3 = s0;
    for (size_t i = 0; i < n_bytes; i += NB_PEAK_READ) {
        for (size_t j = 0; j < NB_PEAK_READ; j += 256) {
            s0 = _mm512_xor_si512(s0, _mm512_loadu_si512(b + i + j));
            s1 = _mm512_xor_si512(s1, _mm512_loadu_si512(b + i + j + 64));
            s2 = _mm512_xor_si512(s2, _mm512_loadu_si512(b + i + j + 128));
            s3 = _mm512_xor_si512(s3, _mm512_loadu_si512(b + i + j + 192));
        }
    }
    s0 = _mm512_xor_si512(_mm512_xor_si512(s0, s1), _mm512_xor_si512(s2, s3));
    uint64_t out[8], r = 0;
    _mm512_storeu_si512(out, s0);
    for (size_t i = 0; i < 8; i++) r ^= out[i];
    return r;
}

#define EIGHT(f, a, b, c, d, e, g, h, i) f(a) f(b) f(c) f(d) f(e) f(g) f(h) f(i)
#define CHAINS(f)                                                                                  \
    EIGHT(f, 0, 1, 2, 3, 4, 5, 6, 7)                                                               \
    EIGHT(f, 8, 9, 10, 11, 12, 13, 14, 15)                                                         \
    EIGHT(f, 16, 17, 18, 19, 20, 21, 22, 23)

double nb_peak_f32_avx512(size_t n_round, float *sink)
{
    const __m512 m = _mm512_set1_ps(0.999f), a = _mm512_set1_ps(0.25f);
    __m512 sum = _mm512_setzero_ps();
    float out[16];
#define START(i) __m512 x##i = _mm512_set1_ps((float)(i));
#define STEP(i) x##i = _mm512_fmadd_ps(x##i, m, a);
#define ADD(i) sum = _mm512_add_ps(sum, x##i);
    CHAINS(START)
    for (size_t r = 0; r < n_round; r++) {
        CHAINS(STEP)
    }
    CHAINS(ADD)
#undef START
#undef STEP
#undef ADD
    _mm512_storeu_ps(out, sum);
    *sink = out[0];
    return 24.0 * 32 * (double)n_round;
}

double nb_peak_int8_avx512(size_t n_round, float *sink)
{
    const __m512i u = _mm512_set1_epi8(3), s = _mm512_set1_epi8(-5);
    __m512i sum = _mm512_setzero_si512();
    int32_t out[16];
#define START(i) __m512i x##i = _mm512_set1_epi32(i);
#if NB_EMULATED
#define KEEP(x)
#else
#define KEEP(x) __asm__ volatile("" : "+v"(x)) /* or gcc copies every sum, which halves the rate */
#endif
#define STEP(i)                                                                                    \
    x##i = _mm512_dpbusd_epi32(x##i, u, s);                                                        \
    KEEP(x##i);
#define ADD(i) sum = _mm512_add_epi32(sum, x##i);
    CHAINS(START)
    for (size_t r = 0; r < n_round; r++) {
        CHAINS(STEP)
    }
    CHAINS(ADD)
#undef START
#undef STEP
#undef ADD
    _mm512_storeu_si512(out, sum);
    *sink = (float)out[0];
    return 24.0 * 128 * (double)n_round;
}
