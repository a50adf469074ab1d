/* linear_int8_avx512.h - the rule of linear_int8.h for activations, in vectors of 16; shared by the
 * packs of AVX-512 and AMX.  Each operation is the portable one, so the integers are the same. */
#ifndef NB_KERNEL_LINEAR_INT8_AVX512_H
#define NB_KERNEL_LINEAR_INT8_AVX512_H
#include <string.h>

#include "kernel/linear/linear_int8.h"
#include "kernel/x86/vec_avx512.h"

typedef struct nb_int8_scale {
    float inv, sx; /* inv: 0 where all integers are 0 */
} nb_int8_scale;

/* Of a token: n values of x. */
static inline nb_int8_scale nb_int8_scale_of(const float *x, size_t n)
{
    const __m512i mag = _mm512_set1_epi32(0x7fffffff);
    __m512i max = _mm512_setzero_si512(); /* as bits: a NaN is above infinity */
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 k = nb_avx512_mask16(n - i < 16 ? n - i : 16);
        max = _mm512_max_epu32(max, _mm512_and_si512(mag, _mm512_maskz_loadu_epi32(k, x + i)));
    }
    const uint32_t bits = _mm512_reduce_max_epu32(max);
    nb_int8_scale s = { 0, 0 };
    if (bits >= 0x7f800000) {
        const uint32_t nan = 0x7fc00000;
        memcpy(&s.sx, &nan, sizeof nan);
        return s;
    }
    float m;
    memcpy(&m, &bits, sizeof m);
    if (m >= NB_INT8_X_MIN) s = (nb_int8_scale){ NB_INT8_X_MAX / m, m / NB_INT8_X_MAX };
    return s;
}

/* The integers of x[c, c + 16); 0 from column n on. */
static inline __m512i nb_int8_q_of(const float *x, size_t c, size_t n, nb_int8_scale s)
{
    const size_t left = n > c ? n - c : 0;
    const __mmask16 k = s.inv > 0 ? nb_avx512_mask16(left < 16 ? left : 16) : 0;
    return _mm512_cvtps_epi32(
        _mm512_mul_ps(_mm512_maskz_loadu_ps(k, x + c), _mm512_set1_ps(s.inv)));
}

#endif
