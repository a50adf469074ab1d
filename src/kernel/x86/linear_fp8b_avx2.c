/* linear_fp8b_avx2.c - linear and linear_t with E4M3 weights in scaled blocks.
 *
 * The fields of an E4M3 (4 exponent bits, bias 7; 3 fraction bits) put into those
 * of an FP16 (5 bits, bias 15; 10 bits) are 2^-8 times its value, subnormals
 * included, and F16C makes a float of it, exactly; the 2^8 goes into the block
 * scale.  Only the two NaN codes come out wrong, as +-480 * 2^-8: linear looks
 * for them once per row and chunk and makes the chunk's scale a NaN, linear_t,
 * where columns must not disturb each other, fixes them in the vector.
 *
 * A single token is bound by this conversion (9 GB/s of codes on a Zen 3 core that
 * reads 16).  Tried and not faster: 16 codes per step (the same), widening to 32
 * bits and a product with 2^120 (half, when subnormal codes are frequent). */
#include <math.h>

#include "kernel/kernel.h"
#include "kernel/linear/linear_order.h"
#include "kernel/x86/vec_avx2.h"

/* 8 codes (in the low half of v) as FP16 bits. */
static inline __m128i as_fp16(__m128i v)
{
    const __m128i w = _mm_slli_epi16(_mm_cvtepi8_epi16(v), 7); /* sign in bits 14 and 15 */
    return _mm_and_si128(w, _mm_set1_epi16((short)0xbf80));
}
static inline __m128i with_nan(__m128i h)
{
    const __m128i mag = _mm_and_si128(h, _mm_set1_epi16(0x3f80));
    const __m128i nan = _mm_cmpeq_epi16(mag, _mm_set1_epi16(0x3f80));
    return _mm_or_si128(h, _mm_and_si128(nan, _mm_set1_epi16(0x7e00)));
}
static inline __m128i load8(const uint8_t *p)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
}
static inline __m128i load_tail(const uint8_t *p, size_t n)
{
    uint8_t v[8] = { 0 };
    for (size_t i = 0; i < n; i++) v[i] = p[i];
    return load8(v);
}

static inline __m256i mag32(const uint8_t *p)
{
    return _mm256_and_si256(_mm256_set1_epi8(0x7f),
                            _mm256_loadu_si256((const __m256i *)(const void *)p));
}
static bool has_nan(const uint8_t *p, size_t n)
{
    bool any = false;
    if (n == NB_FP8_BLOCK) {
        const __m256i lo = _mm256_max_epu8(mag32(p), mag32(p + 32));
        const __m256i hi = _mm256_max_epu8(mag32(p + 64), mag32(p + 96));
        const __m256i nan = _mm256_cmpeq_epi8(_mm256_max_epu8(lo, hi), _mm256_set1_epi8(0x7f));
        return _mm256_movemask_epi8(nan) != 0;
    }
    for (size_t i = 0; i < n; i++) any |= nb_e4m3_is_nan(p[i]);
    return any;
}

static float chunk_scale(const nb_weight *w, size_t r, size_t c, size_t n)
{
    const uint8_t *p = (const uint8_t *)w->data + r * w->n_col + c;
    return has_nan(p, n) ? NAN : nb_weight_scale(w, r, c) * 256;
}

#define W_TYPE uint8_t
#define W_PACKED 0
#define W_FP8 1
#define W_STRIP_MIN 6
#define W_LOAD(p) _mm256_cvtph_ps(as_fp16(load8(p)))
#define W_TAIL(p, n) _mm256_cvtph_ps(as_fp16(load_tail(p, n)))
#define W_LOAD_T(p) _mm256_cvtph_ps(with_nan(as_fp16(load8(p))))
#define W_TAIL_T(p, n) _mm256_cvtph_ps(with_nan(as_fp16(load_tail(p, n))))
#define W_CHUNK_SCALE(w, r, c, n) chunk_scale(w, r, c, n)
#define W_FACTOR_T(w, r, c) (nb_weight_scale(w, r, c) * 256)
#define NAME nb_linear_fp8b_avx2
#define NAME_T nb_linear_t_fp8b_avx2
#include "kernel/x86/linear_t_tile_avx2.h"
#include "kernel/x86/linear_tile_avx2.h"
