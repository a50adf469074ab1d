/* index_score_c.c - portable scores of an indexer, and the packing of queries in float.
 *
 * Order of a score: a chain over dim per head; heads of a block in lanes, a chain over blocks per lane, then the lanes
 * in order. */
#include <string.h>

#include "kernel/index_score/index_score.h"

enum { BLOCK = NB_INDEX_BLOCK, HALF = BLOCK / 2 };

size_t nb_index_bytes_f32(size_t n_head, size_t dim)
{
    return nb_index_n_block(n_head) * BLOCK * (1 + dim) * sizeof(float);
}

size_t nb_index_scratch_none(size_t n_head, size_t dim)
{
    (void)n_head, (void)dim;
    return 0;
}

void nb_index_pack_f32(size_t n_head, size_t dim, const float *q, const float *w, void *out)
{
    const size_t n_block = nb_index_n_block(n_head);
    float *to = out, *block = to + n_block * BLOCK;
    memset(out, 0, nb_index_bytes_f32(n_head, dim));
    for (size_t h = 0; h < n_head; h++) {
        to[h] = w[h];
        for (size_t d = 0; d < dim; d++)
            block[(h / BLOCK * dim + d) * BLOCK + h % BLOCK] = q[h * dim + d];
    }
}

/* Adds half a block of heads to a token's lanes. */
static void add_heads(float *lane, const float *w, const float *q, const float *k, size_t dim)
{
    float acc[HALF] = { 0 };
    for (size_t d = 0; d < dim; d++)
        for (size_t j = 0; j < HALF; j++) acc[j] += q[d * BLOCK + j] * k[d];
    for (size_t j = 0; j < HALF; j++) lane[j] += w[j] * (acc[j] > 0 ? acc[j] : 0);
}

void nb_index_score_c(const nb_index_score_args *a)
{
    const size_t n_block = nb_index_n_block(a->n_head);
    const size_t query = nb_index_bytes_f32(a->n_head, a->dim);
    for (size_t i = 0; i < a->n_query; i++) {
        const float *w = (const float *)(const void *)((const char *)a->q + i * query);
        const float *q = w + n_block * BLOCK;
        for (size_t t = 0; t < a->n_tok; t++) {
            float lane[HALF] = { 0 }, sum = 0;
            for (size_t b = 0; b < 2 * n_block; b++)
                add_heads(lane, w + b * HALF, q + b / 2 * a->dim * BLOCK + b % 2 * HALF,
                          a->k + t * a->k_stride, a->dim);
            for (size_t j = 0; j < HALF; j++) sum += lane[j];
            a->s[i * a->s_stride + t] = sum;
        }
    }
}
