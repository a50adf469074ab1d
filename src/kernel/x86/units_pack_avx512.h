/* units_pack_avx512.h - activations in 8 bits for packed weights, a segment of units at a time (linear_units.h); shared
 * by the packs of AVX-512 and AMX.
 *
 * Largest values and sums of 16 units come from trees over 16 vectors, 45 operations each, instead of 16 reductions of 10;
 * scales of 16 units are two divisions.  Each operation is the portable one, so the integers are the same. */
#ifndef NB_KERNEL_UNITS_PACK_AVX512_H
#define NB_KERNEL_UNITS_PACK_AVX512_H
#include <string.h>

#include "kernel/linear/linear_units.h"
#include "kernel/x86/vec_avx512.h"

/* A segment of a token. */
typedef struct nb_pk_seg {
    _Alignas(64) int8_t q[NB_PK_SEG][NB_PK_UNIT];
    float sx[NB_PK_SEG];
    int32_t minus[3][NB_PK_SEG]; /* {lo, hi} of nb_pk_x */
    float sum[3][NB_PK_SEG];
} nb_pk_seg;

/* Lane i: all lanes of v[i] joined by `op`. */
#define NB_PK_TREE(name, op)                                                                       \
    static inline __attribute__((always_inline)) __m512i name(const __m512i *v)                    \
    {                                                                                              \
        __m512i e[8], f[4];                                                                        \
        _Pragma("GCC unroll 8") for (int k = 0; k < 8; k++) e[k] =                                 \
            op(_mm512_unpacklo_epi32(v[2 * k], v[2 * k + 1]),                                      \
               _mm512_unpackhi_epi32(v[2 * k], v[2 * k + 1]));                                     \
        _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++) f[k] =                                 \
            op(_mm512_unpacklo_epi64(e[2 * k], e[2 * k + 1]),                                      \
               _mm512_unpackhi_epi64(e[2 * k], e[2 * k + 1]));                                     \
        const __m512i lo = op(_mm512_shuffle_i32x4(f[0], f[1], 0x88),                              \
                              _mm512_shuffle_i32x4(f[0], f[1], 0xdd));                             \
        const __m512i hi = op(_mm512_shuffle_i32x4(f[2], f[3], 0x88),                              \
                              _mm512_shuffle_i32x4(f[2], f[3], 0xdd));                             \
        return op(_mm512_shuffle_i32x4(lo, hi, 0x88), _mm512_shuffle_i32x4(lo, hi, 0xdd));         \
    }
NB_PK_TREE(nb_pk_most16, _mm512_max_epu32)
NB_PK_TREE(nb_pk_sum16, _mm512_add_epi32)

/* x: n <= 512 columns; order: of the bytes of each half (two copies of 16 indices). */
static inline __attribute__((always_inline)) void nb_pk_segment(const float *x, size_t n, __m256i order, nb_pk_seg *o)
{
    _Alignas(64) __m512i v[2][NB_PK_SEG];
    _Alignas(64) float inv[NB_PK_SEG];
    const __m512i mag = _mm512_set1_epi32(0x7fffffff);
    for (size_t u = 0; u < NB_PK_SEG; u++) {
        const size_t c = u * NB_PK_UNIT, left = n > c ? n - c : 0;
        const __mmask16 m0 = nb_avx512_mask16(left < 16 ? left : 16);
        const __mmask16 m1 = nb_avx512_mask16(left < 16 ? 0 : left < 32 ? left - 16 : 16);
        v[0][u] = _mm512_maskz_loadu_epi32(m0, x + (left ? c : 0));
        v[1][u] = _mm512_maskz_loadu_epi32(m1, x + (m1 ? c + 16 : 0));
    }
    __m512i top[NB_PK_SEG];
    for (size_t u = 0; u < NB_PK_SEG; u++) /* a NaN is above infinity */
        top[u] = _mm512_max_epu32(_mm512_and_si512(mag, v[0][u]), _mm512_and_si512(mag, v[1][u]));
    const __m512i bits = nb_pk_most16(top);
    const __m512 a = _mm512_castsi512_ps(bits), most = _mm512_set1_ps(NB_PK_X_MAX8);
    const __mmask16 bad = _mm512_cmpge_epu32_mask(bits, _mm512_set1_epi32(0x7f800000));
    const __mmask16 ok =
        (__mmask16)(_mm512_cmp_ps_mask(a, _mm512_set1_ps(NB_PK_X_MIN), _CMP_GE_OQ) & ~bad);
    _mm512_store_ps(inv, _mm512_maskz_div_ps(ok, most, a));
    __m512 sx = _mm512_maskz_div_ps(ok, a, most);
    sx = _mm512_mask_blend_ps(bad, sx, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
    for (size_t u = 0; u < NB_PK_SEG; u++) {
        const __m512 by = _mm512_set1_ps(inv[u]);
        const __mmask16 m = (ok >> u & 1) ? 0xffff : 0; /* where x is not finite, or tiny, all are 0 */
        for (int h = 0; h < 2; h++)
            v[h][u] = _mm512_cvtps_epi32(_mm512_maskz_mov_ps(m, _mm512_mul_ps(_mm512_castsi512_ps(v[h][u]), by)));
        const __m256i q = _mm256_set_m128i(_mm512_cvtepi32_epi8(v[1][u]), _mm512_cvtepi32_epi8(v[0][u]));
        _mm256_store_si256((__m256i *)(void *)o->q[u], _mm256_shuffle_epi8(q, order));
    }
    const __m512i first = nb_pk_sum16(v[0]), second = nb_pk_sum16(v[1]);
    const __m512i sum[3] = { _mm512_add_epi32(first, second), first, second };
    _mm512_storeu_ps(o->sx, sx);
    for (int k = 0; k < 3; k++) { /* -sum as lo + 128 hi, lo in -64..63 */
        const __m512i minus = _mm512_sub_epi32(_mm512_setzero_si512(), sum[k]);
        const __m512i hi = _mm512_srai_epi32(_mm512_add_epi32(minus, _mm512_set1_epi32(64)), 7);
        const __m512i lo = _mm512_sub_epi32(minus, _mm512_slli_epi32(hi, 7));
        const __m512i both = _mm512_or_si512(_mm512_slli_epi32(hi, 16), _mm512_and_si512(lo, _mm512_set1_epi32(0xffff)));
        _mm512_storeu_si512(o->minus[k], both);
        _mm512_storeu_ps(o->sum[k], _mm512_mul_ps(_mm512_cvtepi32_ps(sum[k]), sx));
    }
}

/* As they are, or in the order of words (nb_packed_is_words).  (Not a parameter: gcc leaves out vzeroupper in
 * functions that take vectors.) */
static inline __m256i nb_pk_order(bool words)
{
    const __m128i plain = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i even_odd = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    return _mm256_broadcastsi128_si256(words ? even_odd : plain);
}

/* Columns [c, c + 512) of a token, those before n_col; column: as in nb_linear_pack. */
static inline __attribute__((always_inline)) void nb_pk_segment_at(const float *x, const uint32_t *column, size_t c, size_t n_col, __m256i order,
                                    nb_pk_seg *o)
{
    const size_t n = n_col - c < NB_PK_SEG_COL ? n_col - c : NB_PK_SEG_COL;
    float v[NB_PK_SEG_COL];
    for (size_t i = 0; column && i < n; i++) v[i] = x[column[c + i]];
    nb_pk_segment(column ? v : x + c, n, order, o);
}

#endif
