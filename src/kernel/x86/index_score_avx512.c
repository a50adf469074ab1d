/* index_score_avx512.c - scores of an indexer: 32 heads x 8 tokens at a time, heads in lanes.
 *
 * A step of the chain over dim loads two vectors of queries and broadcasts eight values of keys for sixteen FMA, whose
 * units it is bound by. */
#include "kernel/index_score/index_score.h"
#include "kernel/x86/vec_avx512.h"

enum { BLOCK = NB_INDEX_BLOCK, TOK = 8 };

/* The lanes of n tokens, n <= TOK a constant. */
static inline __attribute__((always_inline)) void tokens(const float *w, const float *q,
                                                         size_t n_block, size_t dim, const float *k,
                                                         size_t stride, size_t n, float *s)
{
    __m512 lane[TOK];
    for (size_t t = 0; t < n; t++) lane[t] = _mm512_setzero_ps();
    for (size_t b = 0; b < n_block; b++) {
        const float *x = q + b * dim * BLOCK;
        const __m512 w0 = _mm512_loadu_ps(w + b * BLOCK), w1 = _mm512_loadu_ps(w + b * BLOCK + 16);
        __m512 a0[TOK], a1[TOK];
        for (size_t t = 0; t < n; t++) a0[t] = a1[t] = _mm512_setzero_ps();
        for (size_t d = 0; d < dim; d++) {
            const __m512 x0 = _mm512_loadu_ps(x + d * BLOCK),
                         x1 = _mm512_loadu_ps(x + d * BLOCK + 16);
            for (size_t t = 0; t < n; t++) {
                const __m512 y = _mm512_set1_ps(k[t * stride + d]);
                a0[t] = _mm512_fmadd_ps(x0, y, a0[t]);
                a1[t] = _mm512_fmadd_ps(x1, y, a1[t]);
            }
        }
        for (size_t t = 0; t < n; t++) {
            lane[t] = _mm512_fmadd_ps(w0, _mm512_max_ps(a0[t], _mm512_setzero_ps()), lane[t]);
            lane[t] = _mm512_fmadd_ps(w1, _mm512_max_ps(a1[t], _mm512_setzero_ps()), lane[t]);
        }
    }
    for (size_t t = 0; t < n; t++) s[t] = nb_avx512_join(lane[t]);
}

void nb_index_score_avx512(const nb_index_score_args *a)
{
    const size_t n_block = nb_index_n_block(a->n_head);
    const size_t query = nb_index_bytes_f32(a->n_head, a->dim);
    for (size_t i = 0; i < a->n_query; i++) {
        const float *w = (const float *)(const void *)((const char *)a->q + i * query);
        const float *q = w + n_block * BLOCK;
        float *s = a->s + i * a->s_stride;
        size_t t = 0;
        for (; t + TOK <= a->n_tok; t += TOK)
            tokens(w, q, n_block, a->dim, a->k + t * a->k_stride, a->k_stride, TOK, s + t);
        for (; t < a->n_tok; t++)
            tokens(w, q, n_block, a->dim, a->k + t * a->k_stride, a->k_stride, 1, s + t);
    }
}
