/* vec_avx512.h - what the AVX-512 and AMX variants share: masks of tails, the fixed joining of
 * 16 lanes, a transposition. */
#ifndef NB_KERNEL_VEC_AVX512_H
#define NB_KERNEL_VEC_AVX512_H
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/x86/vec_avx2.h"

/* Masks of the first n lanes, n in 0..16, 0..32, 0..64. */
static inline __mmask16 nb_avx512_mask16(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}
static inline __mmask32 nb_avx512_mask32(size_t n)
{
    return (__mmask32)((UINT64_C(1) << n) - 1);
}
static inline __mmask64 nb_avx512_mask64(size_t n)
{
    return n >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
}

/* Lane i + lane i + 8, then vec_avx2.h's order for 8 lanes. */
static inline __m256 nb_avx512_fold(__m512 a)
{
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}
static inline __m128 nb_avx512_join4(__m512 a, __m512 b, __m512 c, __m512 d)
{
    return nb_avx2_join4(nb_avx512_fold(a), nb_avx512_fold(b), nb_avx512_fold(c),
                         nb_avx512_fold(d));
}
static inline float nb_avx512_join(__m512 a)
{
    return nb_avx2_join(nb_avx512_fold(a));
}

/* dst[j] lane i = src[i] lane j, for 16 rows of 16 lanes of 32 bits, src_stride and dst_stride in
 * bytes; of each row of dst the lanes in mask are written.  All of src is read before. */
static inline void nb_avx512_transpose16(void *dst, size_t dst_stride, __mmask16 mask,
                                         const void *src, size_t src_stride)
{
    __m512i a[16], b[16];
    for (size_t i = 0; i < 16; i++) a[i] = _mm512_loadu_si512((const char *)src + i * src_stride);
    for (size_t i = 0; i < 16; i += 2) { /* pairs of rows: 2x2 within a quarter */
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (size_t i = 0; i < 16; i += 4) { /* rows i..i+3: column j of each quarter in a[i + j] */
        a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    for (size_t j = 0; j < 4; j++) { /* quarters 0 2 | 1 3 of rows 0-7, of rows 8-15 */
        b[j] = _mm512_shuffle_i32x4(a[j], a[4 + j], 0x88);
        b[4 + j] = _mm512_shuffle_i32x4(a[j], a[4 + j], 0xdd);
        b[8 + j] = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0x88);
        b[12 + j] = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0xdd);
    }
    for (size_t j = 0; j < 4; j++) {
        a[j] = _mm512_shuffle_i32x4(b[j], b[8 + j], 0x88);
        a[8 + j] = _mm512_shuffle_i32x4(b[j], b[8 + j], 0xdd);
        a[4 + j] = _mm512_shuffle_i32x4(b[4 + j], b[12 + j], 0x88);
        a[12 + j] = _mm512_shuffle_i32x4(b[4 + j], b[12 + j], 0xdd);
    }
    for (size_t j = 0; j < 16; j++)
        _mm512_mask_storeu_epi32((char *)dst + j * dst_stride, mask, a[j]);
}

/* E4M3 magnitudes of 16 bytes, times f; f holds the 2^8 of the bias. */
static inline __m512 nb_avx512_e4m3_scales(__m128i b, float f)
{
    const __m256i h =
        _mm256_slli_epi16(_mm256_and_si256(_mm256_cvtepu8_epi16(b), _mm256_set1_epi16(0x7f)), 7);
    return _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(f));
}

#endif
