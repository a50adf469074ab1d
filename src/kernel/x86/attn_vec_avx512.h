/* attn_vec_avx512.h - what the attention variants with 512-bit vectors share beyond vec_avx512.h: exp,
 * 16 sums at once, the largest lane, columns of a 16x16 block. */
#ifndef NB_KERNEL_ATTN_VEC_AVX512_H
#define NB_KERNEL_ATTN_VEC_AVX512_H
#include "kernel/x86/vec_avx512.h"

/* Per quarter of 128 bits: (x0 + x2) + (x1 + x3) of each argument. */
static inline __m512 nb_avx512_join_quads(__m512 a, __m512 b, __m512 c, __m512 d)
{
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}

/* Lane i of the result is the sum of the 16 lanes of x[i], by the same tree for every i: within
 * each quarter (0 + 2) + (1 + 3), then the quarters (0 + 1) + (2 + 3). */
static inline __m512 nb_avx512_join16(const __m512 x[16])
{
    const __m512 a = nb_avx512_join_quads(x[0], x[1], x[2], x[3]);
    const __m512 b = nb_avx512_join_quads(x[4], x[5], x[6], x[7]);
    const __m512 c = nb_avx512_join_quads(x[8], x[9], x[10], x[11]);
    const __m512 d = nb_avx512_join_quads(x[12], x[13], x[14], x[15]);
    const __m512 ab =
        _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    const __m512 cd =
        _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x88), _mm512_shuffle_f32x4(c, d, 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}

/* The largest lane; there is no NaN among them. */
static inline float nb_avx512_max_lane(__m512 a)
{
    a = _mm512_max_ps(a, _mm512_shuffle_f32x4(a, a, 0x4e));
    a = _mm512_max_ps(a, _mm512_shuffle_f32x4(a, a, 0xb1));
    const __m128 q = _mm512_castps512_ps128(a), r = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(r, _mm_shuffle_ps(r, r, 0x55)));
}

/* exp(x) for x <= 88, within 2 ulp, subnormal results included; NaN stays NaN.  As nb_avx2_exp:
 * x = n ln 2 + r, |r| <= 0.3466 (ln 2 in two floats, fused), the Taylor polynomial of degree 7 (its
 * remainder r^8/8! is under 2^-27); scalef multiplies with 2^n and rounds once.
 * Below -104 the result is 0.  13 uops of the two vector ports. */
static inline __m512 nb_avx512_exp(__m512 x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-104.0f), x); /* this order keeps a NaN          */
    const __m512 big = _mm512_set1_ps(0x1.8p23f);  /* adding it rounds to an integer */
    const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(0x1.715476p+0f), big), big);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e430p-1f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-0x1.05c610p-29f), r);
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* Four pieces of 128 bits, `stride` bytes apart, as one vector: loads and blends, no shuffles. */
static inline __m512i nb_avx512_quarters(const char *p, size_t stride)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)p));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p + stride)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p + 2 * stride)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p + 3 * stride)), 3);
}

/* out[c] = dwords c of 16 rows of 16 dwords that lie `stride` bytes apart.  Half of the exchange is
 * done by loading pieces, since shuffles have one port and loads two: 32 shuffles, 64 loads. */
static inline void nb_avx512_columns16(const void *rows, size_t stride, __m512i out[16])
{
    for (size_t k = 0; k < 4; k++) { /* columns 4k .. 4k + 3 of rows r, r + 4, r + 8, r + 12 */
        const char *p = (const char *)rows + 16 * k;
        const __m512i a = nb_avx512_quarters(p, 4 * stride);
        const __m512i b = nb_avx512_quarters(p + stride, 4 * stride);
        const __m512i c = nb_avx512_quarters(p + 2 * stride, 4 * stride);
        const __m512i d = nb_avx512_quarters(p + 3 * stride, 4 * stride);
        const __m512i ab0 = _mm512_unpacklo_epi32(a, b), ab1 = _mm512_unpackhi_epi32(a, b);
        const __m512i cd0 = _mm512_unpacklo_epi32(c, d), cd1 = _mm512_unpackhi_epi32(c, d);
        out[4 * k] = _mm512_unpacklo_epi64(ab0, cd0);
        out[4 * k + 1] = _mm512_unpackhi_epi64(ab0, cd0);
        out[4 * k + 2] = _mm512_unpacklo_epi64(ab1, cd1);
        out[4 * k + 3] = _mm512_unpackhi_epi64(ab1, cd1);
    }
}

#endif
