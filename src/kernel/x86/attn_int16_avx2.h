/* attn_int16_avx2.h - weighted sums of 4-bit latents as integer products of 16 bits; attn_dots_avx2.h multiplies.
 *
 * A value is c/2 times its group's scale.  The scale goes into the weight: per page, row and group of 16 columns
 *   p'[t] = round(P[t] S[t] / 2^15),  P = weight / the row's largest in the page * 32767,
 *                                     S = scale * 2^(14 - e), 2^e <= the group's largest scale in the page < 2^(e+1)
 * and a column's sum is sum over t of p'[t] c[t], an exact sum of 16-bit products, two tokens at a time, times
 * largest * 2^(e + 1) / 32767.  S is exact down to 2^-10 of the largest.  Rounding P, S and p' moves p' by at most 1.5,
 * of 2^14 for the largest weight and scale.  A group's largest scale stands with a code of half the range or more
 * (the encoders go no further), so 64 tokens that all err one way move a column by 64 * 1.5 * 2 / 2^14 < 2^-6 of the
 * largest value; errors of both signs by an eighth of it. */
#ifndef NB_KERNEL_ATTN_INT16_AVX2_H
#define NB_KERNEL_ATTN_INT16_AVX2_H
#include "kernel/attn_pages/attn_pages.h"
#include "kernel/x86/attn_int8_avx2.h"

enum { I16_PAIRS = NB_PAGE_TOK / 2, I16_GROUPS = 64 }; /* groups of a latent at most */

typedef struct i16_room {
    _Alignas(32) int16_t s[I16_GROUPS][NB_PAGE_TOK]; /* S of the page                     */
    float s_by[I16_GROUPS];                          /* 2^(e + 1)                         */
    int16_t p[64][NB_PAGE_TOK];                      /* P of all rows                     */
    float p_by[64];                                  /* largest / 32767                   */
    int16_t v[I16_PAIRS][16][2];                     /* c of a group                      */
    int16_t w[4][NB_PAGE_TOK];                       /* p' of four rows                   */
} i16_room;

static inline __m256i i16_load(const void *p)
{
    return _mm256_load_si256((const __m256i *)p);
}

static inline void i16_store(void *p, __m256i x)
{
    _mm256_store_si256((__m256i *)p, x);
}

/* Two tokens' integers of 16 bits in one dword. */
static inline __m256i i16_pair(__m256 first, __m256 second)
{
    const __m256i a = _mm256_cvtps_epi32(first), b = _mm256_cvtps_epi32(second);
    return _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
}

/* x[t][8 columns] times `by`, rounded, as out[column][64 tokens]; stride in floats. */
static inline void i16_columns(const float *x, size_t stride, __m256 up, __m256 by,
                               int16_t (*out)[NB_PAGE_TOK])
{
    for (size_t t = 0; t < NB_PAGE_TOK; t += 16) {
        __m256i pair[8];
        for (size_t i = 0; i < 8; i++, x += 2 * stride)
            pair[i] = i16_pair(_mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x), up), by),
                               _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + stride), up), by));
        nb_avx2_turn8(pair, out[0] + t, sizeof out[0]);
    }
}

static inline __m256 i16_most(const float *x, size_t stride)
{
    __m256 a = _mm256_setzero_ps(), b = a;
    for (size_t t = 0; t < NB_PAGE_TOK; t += 2, x += 2 * stride) {
        a = _mm256_max_ps(_mm256_loadu_ps(x), a);
        b = _mm256_max_ps(_mm256_loadu_ps(x + stride), b);
    }
    return _mm256_max_ps(a, b);
}

/* S of a page from the scales [64][stride]; stride: a multiple of 8. */
static inline void i16_page(const float *scale, size_t stride, i16_room *w)
{
    const __m256 one = _mm256_set1_ps(1);
    const __m256i exponent = _mm256_set1_epi32(0x7f800000);
    for (size_t g = 0; g < stride; g += 8) {
        const __m256i e =
            _mm256_and_si256(_mm256_castps_si256(i16_most(scale + g, stride)), exponent);
        const __m256i none = _mm256_cmpeq_epi32(e, _mm256_setzero_si256());
        const __m256i by = _mm256_sub_epi32(_mm256_set1_epi32((int)0x86000000), e);
        i16_columns(scale + g, stride, one, _mm256_castsi256_ps(_mm256_andnot_si256(none, by)),
                    w->s + g);
        _mm256_store_ps(w->s_by + g, _mm256_add_ps(_mm256_castsi256_ps(e), _mm256_castsi256_ps(e)));
    }
}

/* P of 8 rows from r on; p: their weights [64][16]. */
static inline void i16_weights(const float *p, size_t r, i16_room *w)
{
    const __m256 most = i16_most(p, I8_ROWS);
    const __m256 tiny = _mm256_cmp_ps(most, _mm256_set1_ps(0x1p-60f), _CMP_LT_OQ);
    const __m256 none = _mm256_cmp_ps(most, _mm256_setzero_ps(), _CMP_EQ_OQ);
    const __m256 up = _mm256_blendv_ps(_mm256_set1_ps(1), _mm256_set1_ps(0x1p64f), tiny);
    const __m256 by = _mm256_div_ps(_mm256_set1_ps(32767), _mm256_mul_ps(most, up));
    i16_columns(p, I8_ROWS, up, _mm256_andnot_ps(none, by), w->p + r);
    _mm256_store_ps(w->p_by + r, _mm256_mul_ps(most, _mm256_set1_ps(1.0f / 32767)));
}

/* Group i (of 4) of a unit's codes, in pairs of tokens. */
static inline void i16_values(const uint8_t (*code)[I8_UNIT], size_t i, i16_room *w)
{
    const __m128i bias = _mm_set1_epi8(I8_BIAS);
    for (size_t t = 0; t < NB_PAGE_TOK; t += 2) {
        const __m128i a =
            _mm_sub_epi8(_mm_load_si128((const __m128i *)(const void *)(code[t] + 16 * i)), bias);
        const __m128i b = _mm_sub_epi8(
            _mm_load_si128((const __m128i *)(const void *)(code[t + 1] + 16 * i)), bias);
        i16_store(w->v[t / 2][0], _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b)));
        i16_store(w->v[t / 2][8], _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(a, b)));
    }
}

/* What multiplies, per level (attn_dots_avx2.h); all give the same bits. */
typedef struct i8_dots {
    /* s[t][16 rows] += a unit's part of the scores; scale: of token t at t * stride.  ahead: I8_AHEAD bytes to ask for, or
     * NULL. */
    void (*unit)(const i8_keys *k, const i8_query *q, const float *scale, size_t stride, float *s, const char *ahead);
    /* Group g (columns d .. d + 15) of n rows. */
    void (*rows)(i16_room *w, size_t g, size_t n, float *const *o, size_t d, const float *keep);
} i8_dots;
enum { I8_AHEAD = I8_GROUPS * NB_PAGE_TOK / 4 * 64 }; /* bytes */

/* attn_pages in integers (attn_pages_avx2.c) with these. */
void nb_attn_pages_dots_avx2(const nb_attn_pages_args *a, const i8_dots *dots);
#endif
