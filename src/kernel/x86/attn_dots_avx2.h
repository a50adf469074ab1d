/* attn_dots_avx2.h - the products of attention in integers (attn_int8_avx2.h, attn_int16_avx2.h); included once by each of
 * attn_pages_avx2.c and attn_pages_avxvnni.c, which define I8_VNNI as 0 or 1 before.
 *
 * Scores, 16 rows at a time: the queries of a group stay in 8 registers while all tokens of a page pass; sums of a unit lie
 * in memory.  Per token and group, without VNNI: 8 vpmaddubsw, 8 additions, 2 vpmaddwd, 2 conversions, 2 FMA; with it, 8
 * vpdpbusd in place of the first 18.  Values: vpmaddwd and an addition, or vpdpwssd. */
#include "kernel/x86/attn_int16_avx2.h"

#define INLINE8 static inline __attribute__((always_inline))
#if I8_VNNI
INLINE8 __m256i i8_dot(__m256i sum, __m256i code, __m256i q)
{
    return _mm256_dpbusd_avx_epi32(sum, code, q);
}
INLINE8 __m256i i16_dot(__m256i sum, __m256i a, __m256i b)
{
    return _mm256_dpwssd_avx_epi32(sum, a, b);
}
INLINE8 __m256i i8_dwords(__m256i sum)
{
    return sum;
}
INLINE8 __m256i i8_start(const int16_t pair[2])
{
    return _mm256_madd_epi16(i16_load(pair), _mm256_set1_epi16(1));
}
#else
INLINE8 __m256i i8_dot(__m256i sum, __m256i code, __m256i q)
{
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(code, q));
}
INLINE8 __m256i i16_dot(__m256i sum, __m256i a, __m256i b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
INLINE8 __m256i i8_dwords(__m256i sum)
{
    return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}
INLINE8 __m256i i8_start(const int16_t pair[2])
{
    return i16_load(pair);
}
#endif

/* ---- scores ---- */

#define I8_Q(k, h) _mm256_load_si256((const __m256i *)(const void *)q->q[g][k][8 * (h)])
#define I8_DOT(k)                                                                                  \
    {                                                                                              \
        int32_t four;                                                                              \
        memcpy(&four, code + 4 * (k), sizeof four);                                                \
        const __m256i c = _mm256_set1_epi32(four);                                                 \
        x = i8_dot(x, c, q0##k);                                                                   \
        y = i8_dot(y, c, q1##k);                                                                   \
    }

/* sum (+)= group g of all tokens; scale: of token t at t * stride. */
static inline void i8_group(const i8_keys *k, const i8_query *q, size_t g, const float *scale,
                            size_t stride, float *s, const char **ahead)
{
    const __m256i q00 = I8_Q(0, 0), q01 = I8_Q(1, 0), q02 = I8_Q(2, 0), q03 = I8_Q(3, 0);
    const __m256i q10 = I8_Q(0, 1), q11 = I8_Q(1, 1), q12 = I8_Q(2, 1), q13 = I8_Q(3, 1);
    const __m256i x0 = i8_start(q->start[g][0]), y0 = i8_start(q->start[g][8]);
    const uint8_t *code = k->code[0] + 16 * g;
    for (size_t t = 0; t < NB_PAGE_TOK; t++, code += I8_UNIT, scale += stride, s += I8_ROWS) {
        __m256i x = x0, y = y0;
        if (*ahead && t % 4 == 0) {
            _mm_prefetch(*ahead, _MM_HINT_T1);
            *ahead += 64;
        }
        I8_DOT(0)
        I8_DOT(1)
        I8_DOT(2)
        I8_DOT(3)
        const __m256 f = _mm256_cvtepi32_ps(i8_dwords(x));
        const __m256 e = _mm256_cvtepi32_ps(i8_dwords(y));
        const __m256 by = _mm256_broadcast_ss(scale);
        const __m256 s0 = g ? _mm256_load_ps(s) : _mm256_setzero_ps();
        const __m256 s1 = g ? _mm256_load_ps(s + 8) : _mm256_setzero_ps();
        _mm256_store_ps(s, _mm256_fmadd_ps(f, by, s0));
        _mm256_store_ps(s + 8, _mm256_fmadd_ps(e, by, s1));
    }
}

/* s[t][16 rows] += a unit's part of the scores.  ahead: I8_AHEAD bytes to ask for, a line between
 * other work every few tokens (bursts are lost, attn_pages_bf16.h), or NULL. */
static void i8_unit(const i8_keys *k, const i8_query *q, const float *scale, size_t stride,
                           float *s, const char *ahead)
{
    _Alignas(32) float sum[NB_PAGE_TOK][I8_ROWS];
    for (size_t g = 0; g < I8_GROUPS; g++) i8_group(k, q, g, scale + g, stride, sum[0], &ahead);
    const __m256 f0 = _mm256_load_ps(q->factor), f1 = _mm256_load_ps(q->factor + 8);
    for (size_t t = 0; t < NB_PAGE_TOK; t++, s += I8_ROWS) {
        _mm256_store_ps(s, _mm256_fmadd_ps(_mm256_load_ps(sum[t]), f0, _mm256_load_ps(s)));
        _mm256_store_ps(s + 8,
                        _mm256_fmadd_ps(_mm256_load_ps(sum[t] + 8), f1, _mm256_load_ps(s + 8)));
    }
}

/* ---- values ---- */

#define I16_ROWS4(M) M(0) M(1) M(2) M(3)
#define I16_ZERO(r) __m256i a##r = _mm256_setzero_si256(), b##r = a##r;
#define I16_STEP(r)                                                                                \
    {                                                                                              \
        int32_t pair;                                                                              \
        memcpy(&pair, &w->w[r][2 * t], sizeof pair);                                               \
        const __m256i x = _mm256_set1_epi32(pair);                                                 \
        a##r = i16_dot(a##r, x, v0);                                                               \
        b##r = i16_dot(b##r, x, v1);                                                               \
    }
#define I16_PUT(r)                                                                                 \
    if ((r) < n) i16_put(o[r] + d, keep[r], w->p_by[at + (r)] * w->s_by[g], a##r, b##r);

static inline void i16_put(float *o, float keep, float by, __m256i a, __m256i b)
{
    __m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(a), _mm256_set1_ps(by));
    __m256 y = _mm256_mul_ps(_mm256_cvtepi32_ps(b), _mm256_set1_ps(by));
    if (keep != 0) {
        x = _mm256_fmadd_ps(_mm256_loadu_ps(o), _mm256_set1_ps(keep), x);
        y = _mm256_fmadd_ps(_mm256_loadu_ps(o + 8), _mm256_set1_ps(keep), y);
    }
    _mm256_storeu_ps(o, x);
    _mm256_storeu_ps(o + 8, y);
}

/* Group g (columns d .. d + 15) of n <= 4 rows from row `at` on. */
static inline void i16_rows4(i16_room *w, size_t g, size_t at, size_t n, float *const *o, size_t d,
                            const float *keep)
{
    for (size_t r = 0; r < 4; r++)
        for (size_t t = 0; t < NB_PAGE_TOK; t += 16)
            i16_store(w->w[r] + t,
                      _mm256_mulhrs_epi16(i16_load(w->p[at + r] + t), i16_load(w->s[g] + t)));
    I16_ROWS4(I16_ZERO)
    for (size_t t = 0; t < I16_PAIRS; t++) {
        const __m256i v0 = i16_load(w->v[t][0]), v1 = i16_load(w->v[t][8]);
        I16_ROWS4(I16_STEP)
    }
    I16_ROWS4(I16_PUT)
}

static void i16_rows(i16_room *w, size_t g, size_t n, float *const *o, size_t d, const float *keep)
{
    for (size_t r = 0; r < n; r += 4) i16_rows4(w, g, r, n - r, o + r, d, keep + r);
}

static const i8_dots dots = { i8_unit, i16_rows };
