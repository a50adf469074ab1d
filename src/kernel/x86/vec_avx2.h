/* vec_avx2.h - what the AVX2 variants share: tails without over-reads, the fixed
 * joining of 8 lanes, exp. */
#ifndef NB_KERNEL_VEC_AVX2_H
#define NB_KERNEL_VEC_AVX2_H
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

/* Mask of the first n lanes, n in 0..8. */
static inline __m256i nb_avx2_mask(size_t n)
{
    static const int32_t on[16] = { -1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0 };
    return _mm256_loadu_si256((const __m256i *)(const void *)(on + 8 - n));
}

/* ((l0 + l1) + (l2 + l3)) + ((l4 + l5) + (l6 + l7)) of each argument. */
static inline __m128 nb_avx2_join4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}
static inline float nb_avx2_join(__m256 a)
{
    return _mm_cvtss_f32(nb_avx2_join4(a, a, a, a));
}

/* Eight vectors of eight dwords, transposed: dword i of each to out + i * stride (bytes), in 32 bytes that need no
 * alignment. */
static inline __attribute__((always_inline)) void nb_avx2_turn8(const __m256i x[8], void *out, size_t stride)
{
    __m256i a[8], b[8];
    _Pragma("GCC unroll 8")
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(x[i], x[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(x[i], x[i + 1]);
    }
    _Pragma("GCC unroll 8")
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    _Pragma("GCC unroll 8")
    for (size_t i = 0; i < 4; i++) {
        char *p = (char *)out + i * stride;
        _mm256_storeu_si256((__m256i *)(void *)p, _mm256_permute2x128_si256(b[i], b[i + 4], 0x20));
        _mm256_storeu_si256((__m256i *)(void *)(p + 4 * stride), _mm256_permute2x128_si256(b[i], b[i + 4], 0x31));
    }
}

/* exp(x) for x <= 88, within 2 ulp, subnormal results included; NaN stays NaN.
 * x = n ln 2 + r with |r| <= 0.3466 (ln 2 in two floats, fused), the Taylor
 * polynomial of degree 7 (its remainder r^8/8! is under 2^-27), and 2^n in two
 * factors, so that results under 2^-126 are rounded once, by the last product.
 * Below -104 the result is 0. */
static inline __m256 nb_avx2_exp(__m256 x)
{
    x = _mm256_max_ps(_mm256_set1_ps(-104.0f), x); /* this order keeps a NaN */
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e430p-1f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-0x1.05c610p-29f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    const __m256i k = _mm256_cvtps_epi32(n), k1 = _mm256_srai_epi32(k, 1);
    const __m256i k2 = _mm256_sub_epi32(k, k1), bias = _mm256_set1_epi32(127);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(k1, bias), 23)));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(k2, bias), 23)));
}

#endif
