/* index_score_avx2.c - scores of an indexer: 16 heads x 4 tokens at a time, heads in lanes.
 *
 * A step of the chain over dim loads two vectors of queries and broadcasts four values of keys for eight FMA, whose
 * units it is bound by: n_head * dim / 8 of them per token.  Keys need no transposition, and a query's are packed once. */
#include "kernel/index_score/index_score.h"
#include "kernel/x86/vec_avx2.h"

enum { BLOCK = NB_INDEX_BLOCK, TOK = 4 };

/* The lanes of n tokens, n <= TOK a constant. */
static inline __attribute__((always_inline)) void tokens(const float *w, const float *q,
                                                         size_t n_block, size_t dim, const float *k,
                                                         size_t stride, size_t n, float *s)
{
    __m256 lane[TOK];
    for (size_t t = 0; t < n; t++) lane[t] = _mm256_setzero_ps();
    for (size_t b = 0; b < 2 * n_block; b++) {
        const float *x = q + b / 2 * dim * BLOCK + b % 2 * 16;
        const __m256 w0 = _mm256_loadu_ps(w + b * 16), w1 = _mm256_loadu_ps(w + b * 16 + 8);
        __m256 a0[TOK], a1[TOK];
        for (size_t t = 0; t < n; t++) a0[t] = a1[t] = _mm256_setzero_ps();
        for (size_t d = 0; d < dim; d++) {
            const __m256 x0 = _mm256_loadu_ps(x + d * BLOCK),
                         x1 = _mm256_loadu_ps(x + d * BLOCK + 8);
            for (size_t t = 0; t < n; t++) {
                const __m256 y = _mm256_broadcast_ss(k + t * stride + d);
                a0[t] = _mm256_fmadd_ps(x0, y, a0[t]);
                a1[t] = _mm256_fmadd_ps(x1, y, a1[t]);
            }
        }
        for (size_t t = 0; t < n; t++) {
            lane[t] = _mm256_fmadd_ps(w0, _mm256_max_ps(a0[t], _mm256_setzero_ps()), lane[t]);
            lane[t] = _mm256_fmadd_ps(w1, _mm256_max_ps(a1[t], _mm256_setzero_ps()), lane[t]);
        }
    }
    for (size_t t = 0; t < n; t++) s[t] = nb_avx2_join(lane[t]);
}

void nb_index_score_avx2(const nb_index_score_args *a)
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
