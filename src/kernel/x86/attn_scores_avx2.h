/* attn_scores_avx2.h - scores of attention, before the scale: what attn and attn_score share, so
 * that both have the same bits.  Dot products in 8 lanes along d, k1 then k2, joined pairwise, in
 * tiles of 4 rows (queries or heads) x 3 tokens. */
#ifndef NB_KERNEL_ATTN_SCORES_AVX2_H
#define NB_KERNEL_ATTN_SCORES_AVX2_H
#include "kernel/x86/vec_avx2.h"

typedef struct nb_avx2_keys {
    const float *k1, *k2; /* [n_tok][stride]; k2 unused when d2 == 0 */
    size_t k1_stride, k2_stride, d1, d2;
} nb_avx2_keys;

/* Tiles of scores: rows q[0..R) of the batch times tokens from k1, k2. */
#define TOK1(M, r) M(r, 0)
#define TOK3(M, r) M(r, 0) M(r, 1) M(r, 2)
#define ROW1(M, T) M(0, T)
#define ROW4(M, T) M(0, T) M(1, T) M(2, T) M(3, T)
#define DECL(r, t) __m256 a##r##t = _mm256_setzero_ps();
#define DECL_ROW(r, T) T(DECL, r)
#define K_LOAD(r, t) const __m256 kv##t = _mm256_loadu_ps(k + t * ks + i);
#define K_TAIL(r, t) const __m256 kv##t = _mm256_maskload_ps(k + t * ks + i, mask);
#define FMA(r, t) a##r##t = _mm256_fmadd_ps(qv, kv##t, a##r##t);
#define FMA_ROW(r, T)                                                                              \
    {                                                                                              \
        const __m256 qv = _mm256_loadu_ps(q[r] + from + i);                                        \
        T(FMA, r)                                                                                  \
    }
#define FMA_ROW_TAIL(r, T)                                                                         \
    {                                                                                              \
        const __m256 qv = _mm256_maskload_ps(q[r] + from + i, mask);                               \
        T(FMA, r)                                                                                  \
    }
/* One part of the dot products: n values, in q from `from` on. */
#define PART(ROWS, TOKS, key, stride, first, count)                                                \
    {                                                                                              \
        const float *k = (key);                                                                    \
        const size_t ks = (stride), from = (first), n = (count);                                   \
        size_t i = 0;                                                                              \
        for (; i + 8 <= n; i += 8) {                                                               \
            TOKS(K_LOAD, 0)                                                                        \
            ROWS(FMA_ROW, TOKS)                                                                    \
        }                                                                                          \
        if (i < n) {                                                                               \
            const __m256i mask = nb_avx2_mask(n - i);                                              \
            TOKS(K_TAIL, 0)                                                                        \
            ROWS(FMA_ROW_TAIL, TOKS)                                                               \
        }                                                                                          \
        (void)ks;                                                                                  \
    }
#define PARTS(ROWS, TOKS)                                                                          \
    PART(ROWS, TOKS, a->k1 + t * a->k1_stride, a->k1_stride, 0, a->d1)                             \
    if (a->d2) PART(ROWS, TOKS, a->k2 + t * a->k2_stride, a->k2_stride, a->d1, a->d2)

static inline void nb_avx2_store4(float *p, size_t stride, __m128 s)
{
    float v[4];
    _mm_storeu_ps(v, s);
    for (size_t r = 0; r < 4; r++) p[r * stride] = v[r];
}

/* p[r * p_stride + t] = q[r] . k[t] for 4 rows; nb_avx2_scores_1: for one. */
static inline void nb_avx2_scores_4(const nb_avx2_keys *a, const float *const *q, size_t n_tok,
                                    float *p, size_t p_stride)
{
    size_t t = 0;
    for (; t + 3 <= n_tok; t += 3) {
        ROW4(DECL_ROW, TOK3)
        PARTS(ROW4, TOK3)
        nb_avx2_store4(p + t, p_stride, nb_avx2_join4(a00, a10, a20, a30));
        nb_avx2_store4(p + t + 1, p_stride, nb_avx2_join4(a01, a11, a21, a31));
        nb_avx2_store4(p + t + 2, p_stride, nb_avx2_join4(a02, a12, a22, a32));
    }
    for (; t < n_tok; t++) {
        ROW4(DECL_ROW, TOK1)
        PARTS(ROW4, TOK1)
        nb_avx2_store4(p + t, p_stride, nb_avx2_join4(a00, a10, a20, a30));
    }
}

static inline void nb_avx2_scores_1(const nb_avx2_keys *a, const float *const *q, size_t n_tok,
                                    float *p, size_t p_stride)
{
    size_t t = 0;
    for (; t + 3 <= n_tok; t += 3) {
        ROW1(DECL_ROW, TOK3)
        PARTS(ROW1, TOK3)
        p[t] = nb_avx2_join(a00);
        p[t + 1] = nb_avx2_join(a01);
        p[t + 2] = nb_avx2_join(a02);
    }
    for (; t < n_tok; t++) {
        ROW1(DECL_ROW, TOK1)
        PARTS(ROW1, TOK1)
        p[t] = nb_avx2_join(a00);
    }
    (void)p_stride;
}

#undef TOK1
#undef TOK3
#undef DECL
#undef DECL_ROW
#undef K_LOAD
#undef K_TAIL
#undef FMA
#undef FMA_ROW
#undef FMA_ROW_TAIL
#undef PART
#undef PARTS

#endif
