/* linear_fp8b_avx512.c - linear and linear_t with E4M3 weights in scaled blocks.
 *
 * The fields of an E4M3 put into those of an FP16 are 2^-8 times its value, subnormals included;
 * the conversion to float is exact and the 2^8 goes into the block's scale.  Only the two NaN codes
 * come out wrong, as +-480 * 2^-8: linear looks for them once per row and chunk and makes the
 * chunk's scale a NaN, linear_t, where columns must not disturb each other, fixes them. */
#include <math.h>

#include "kernel/kernel.h"
#include "kernel/linear/linear_order.h"
#include "kernel/x86/vec_avx512.h"

/* 16 codes as FP16 bits. */
static inline __m256i as_fp16(__m128i v)
{
    const __m256i w = _mm256_slli_epi16(_mm256_cvtepi8_epi16(v), 7); /* sign in bits 14 and 15 */
    return _mm256_and_si256(w, _mm256_set1_epi16((short)0xbf80));
}
static inline __m512 with_nan(__m256i h)
{
    const __m256i mag = _mm256_and_si256(h, _mm256_set1_epi16(0x3f80));
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(mag, _mm256_set1_epi16(0x3f80));
    return _mm512_cvtph_ps(_mm256_mask_blend_epi16(nan, h, _mm256_set1_epi16(0x7e00)));
}
static inline __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* Whether codes [0, n), n <= NB_FP8_BLOCK, have a NaN. */
static bool has_nan(const uint8_t *p, size_t n)
{
    const __m512i mag = _mm512_set1_epi8(0x7f);
    __mmask64 any = 0;
    for (size_t i = 0; i < n; i += 64) {
        const __m512i v = _mm512_maskz_loadu_epi8(nb_avx512_mask64(n - i), p + i);
        any |= _mm512_cmpeq_epi8_mask(_mm512_and_si512(v, mag), mag);
    }
    return any != 0;
}

static float chunk_scale(const nb_weight *w, size_t r, size_t c, size_t n)
{
    const uint8_t *p = (const uint8_t *)w->data + r * w->n_col + c;
    return has_nan(p, n) ? NAN : nb_weight_scale(w, r, c) * 256;
}

/* 8 rows of a whole chunk times one token: 32 codes are converted by 3 operations together, where W_LOAD takes 3
 * for 16.  c: columns before the chunk. */
static bool one_8(const uint8_t *w, size_t ws, const float *x, size_t c, size_t n, const float *scale,
                  float *total)
{
    __m512 a[8];
    if (n != NB_FP8_BLOCK) return false;
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) a[r] = _mm512_setzero_ps();
    for (size_t i = 0; i < NB_FP8_BLOCK; i += 32) {
        const __m512 x0 = _mm512_loadu_ps(x + i), x1 = _mm512_loadu_ps(x + i + 16);
#pragma GCC unroll 8
        for (size_t r = 0; r < 8; r++) {
            const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(w + r * ws + i));
            const __m512i h = _mm512_and_si512(_mm512_slli_epi16(_mm512_cvtepi8_epi16(v), 7),
                                               _mm512_set1_epi16((short)0xbf80));
            if (r % 2 == 0)
                _mm_prefetch((const char *)(w + 8 * ws + 7 * c + 8 * i + r * 32), _MM_HINT_T0);
            a[r] = _mm512_fmadd_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(h)), x0, a[r]);
            a[r] = _mm512_fmadd_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)), x1, a[r]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++)
        _mm512_storeu_ps(total + r * 16, _mm512_fmadd_ps(a[r], _mm512_set1_ps(scale[r]),
                                                         _mm512_loadu_ps(total + r * 16)));
    return true;
}

#define W_ONE one_8
#define W_TYPE uint8_t
#define W_PACKED 0
#define W_FP8 1
#define W_F32 0
#define W_LOAD(p) _mm512_cvtph_ps(as_fp16(load16(p)))
#define W_TAIL(p, n) _mm512_cvtph_ps(as_fp16(_mm_maskz_loadu_epi8(nb_avx512_mask16(n), p)))
#define W_CHUNK_SCALE(w, r, c, n) chunk_scale(w, r, c, n)
#define NAME nb_linear_fp8b_avx512
#include "kernel/x86/linear_tile_avx512.h"

#define WT_TYPE uint8_t
#define WT_LOAD(p) with_nan(as_fp16(load16(p)))
#define WT_TAIL(p, mask) with_nan(as_fp16(_mm_maskz_loadu_epi8(mask, p)))
#define WT_FACTOR 256
#define NAME_T nb_linear_t_fp8b_avx512
#include "kernel/x86/linear_t_tile_avx512.h"
