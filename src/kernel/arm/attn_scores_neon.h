/* attn_scores_neon.h - scores of attention, before the scale: what attn and attn_score share, so that
 * both have the same bits.  Dot products in 8 lanes along d, k1 then k2, joined pairwise, in tiles of 4
 * rows (queries or heads) x 2 tokens: 16 chains and 12 loads per 16 FMLA. */
#ifndef NB_KERNEL_ATTN_SCORES_NEON_H
#define NB_KERNEL_ATTN_SCORES_NEON_H
#include "kernel/arm/vec_neon.h"

typedef struct nb_neon_keys {
    const float *k1, *k2; /* [n_tok][stride]; k2 unused when d2 == 0 */
    size_t k1_stride, k2_stride, d1, d2;
} nb_neon_keys;

#define NB_TOK1(M, r) M(r, 0)
#define NB_TOK2(M, r) M(r, 0) M(r, 1)
#define NB_ROW1(M, T) M(0, T)
#define NB_ROW4(M, T) M(0, T) M(1, T) M(2, T) M(3, T)
#define NB_DECL(r, t) nb_neon_f8 a##r##t = nb_neon_zero();
#define NB_DECL_ROW(r, T) T(NB_DECL, r)
#define NB_KEY(r, t) const nb_neon_f8 k##t = nb_neon_load(k + t * stride + i);
#define NB_KEY_TAIL(r, t) const nb_neon_f8 k##t = nb_neon_load_n(k + t * stride + i, n - i);
#define NB_FMA(r, t) a##r##t = nb_neon_fma(a##r##t, x, k##t);
#define NB_FMA_ROW(r, T)                                                                           \
    {                                                                                              \
        const nb_neon_f8 x = nb_neon_load(q[r] + from + i);                                        \
        T(NB_FMA, r)                                                                               \
    }
#define NB_FMA_TAIL(r, T)                                                                          \
    {                                                                                              \
        const nb_neon_f8 x = nb_neon_load_n(q[r] + from + i, n - i);                               \
        T(NB_FMA, r)                                                                               \
    }
/* One part of the dot products: n values, in q from `from` on. */
#define NB_PART(ROWS, TOKS, key, key_stride, first, count)                                         \
    {                                                                                              \
        const size_t stride = (key_stride), from = (first), n = (count);                           \
        const float *k = (key) + at * stride;                                                      \
        size_t i = 0;                                                                              \
        for (; i + 8 <= n; i += 8) {                                                               \
            TOKS(NB_KEY, 0)                                                                        \
            ROWS(NB_FMA_ROW, TOKS)                                                                 \
        }                                                                                          \
        if (i < n) {                                                                               \
            TOKS(NB_KEY_TAIL, 0)                                                                   \
            ROWS(NB_FMA_TAIL, TOKS)                                                                \
        }                                                                                          \
    }
#define NB_PUT(r, t) p[r * p_stride + at + t] = nb_neon_join(a##r##t);
#define NB_PUT_ROW(r, T) T(NB_PUT, r)
#define NB_SCORE_TILE(ROWS, TOKS)                                                                  \
    {                                                                                              \
        ROWS(NB_DECL_ROW, TOKS)                                                                    \
        NB_PART(ROWS, TOKS, a->k1, a->k1_stride, 0, a->d1)                                         \
        if (a->d2) NB_PART(ROWS, TOKS, a->k2, a->k2_stride, a->d1, a->d2)                          \
        ROWS(NB_PUT_ROW, TOKS)                                                                     \
    }

/* p[r * p_stride + t] = q[r] . k[t] for 4 rows; nb_neon_scores_1: for one. */
static inline void nb_neon_scores_4(const nb_neon_keys *a, const float *const *q, size_t n_tok,
                                    float *p, size_t p_stride)
{
    size_t at = 0;
    for (; at + 2 <= n_tok; at += 2) NB_SCORE_TILE(NB_ROW4, NB_TOK2)
    if (at < n_tok) NB_SCORE_TILE(NB_ROW4, NB_TOK1)
}

static inline void nb_neon_scores_1(const nb_neon_keys *a, const float *const *q, size_t n_tok,
                                    float *p, size_t p_stride)
{
    size_t at = 0;
    for (; at + 2 <= n_tok; at += 2) NB_SCORE_TILE(NB_ROW1, NB_TOK2)
    if (at < n_tok) NB_SCORE_TILE(NB_ROW1, NB_TOK1)
}

#endif
