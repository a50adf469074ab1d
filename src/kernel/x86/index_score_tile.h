/* index_score_tile.h - scores of an indexer, heads in lanes, for AVX2 and AVX-512.  The including file defines LANE,
 * v_float, V(op) (an intrinsic), V_JOIN, and MANY and SOME, the tokens of a tile: included once by each of
 * index_score_avx2.c and index_score_avx512.c.
 *
 * Two vectors of heads pass over all tokens of the page, a tile of tokens after the other, before the next two: their
 * queries (8 or 16 KiB) stay in the first-level cache, and keys come in order, once per pair.  A step of the chain
 * over dim loads two vectors and broadcasts a value of each key for two FMA per key, whose units it is bound by:
 * n_head * dim / LANE FMA per token.  What the tokens have of earlier heads lies in memory, and a tile is a function
 * of its own: in registers, all that would displace sums. */
#include "kernel/index_score/index_score.h"

enum { BLOCK = NB_INDEX_BLOCK };

#define EACH_TOK(n) _Pragma("GCC unroll 8") for (size_t t = 0; t < (n); t++)

/* Two vectors of heads and n tokens, n a constant: to the tokens' lanes. */
static inline __attribute__((always_inline)) void tile(const float *w, const float *q, size_t dim,
                                                       const float *k, size_t stride, size_t n,
                                                       v_float *lane)
{
    const v_float zero = V(setzero_ps)();
    v_float a[MANY], b[MANY];
    EACH_TOK(n) a[t] = b[t] = zero;
    for (size_t d = 0; d < dim; d++, q += BLOCK) {
        const v_float x = V(loadu_ps)(q), y = V(loadu_ps)(q + LANE);
        EACH_TOK(n)
        {
            const v_float v = V(set1_ps)(k[t * stride + d]);
            a[t] = V(fmadd_ps)(x, v, a[t]);
            b[t] = V(fmadd_ps)(y, v, b[t]);
        }
    }
    EACH_TOK(n)
    {
        const v_float l = V(fmadd_ps)(V(loadu_ps)(w), V(max_ps)(a[t], zero), lane[t]);
        lane[t] = V(fmadd_ps)(V(loadu_ps)(w + LANE), V(max_ps)(b[t], zero), l);
    }
}

#define TILE(name, n)                                                                              \
    static __attribute__((noinline)) void name(const float *w, const float *q, size_t dim,         \
                                               const float *k, size_t stride, v_float *lane)       \
    {                                                                                              \
        tile(w, q, dim, k, stride, n, lane);                                                       \
    }
TILE(tile_many, MANY)
TILE(tile_some, SOME)
TILE(tile_one, 1)

static void score(const nb_index_score_args *a)
{
    const size_t n_head = nb_index_n_block(a->n_head) * BLOCK;
    const size_t bytes = nb_index_bytes_f32(a->n_head, a->dim), n = a->n_tok, by = a->k_stride;
    for (size_t i = 0; i < a->n_query; i++) {
        const float *w = (const float *)(const void *)((const char *)a->q + i * bytes);
        v_float lane[NB_INDEX_TOK];
        for (size_t t = 0; t < n; t++) lane[t] = V(setzero_ps)();
        for (size_t h = 0; h < n_head; h += 2 * LANE) {
            const float *q = w + n_head + h / BLOCK * BLOCK * a->dim + h % BLOCK, *k = a->k;
            size_t t = 0;
            for (; t + MANY <= n; t += MANY)
                tile_many(w + h, q, a->dim, k + t * by, by, lane + t);
            for (; t + SOME <= n; t += SOME)
                tile_some(w + h, q, a->dim, k + t * by, by, lane + t);
            for (; t < n; t++) tile_one(w + h, q, a->dim, k + t * by, by, lane + t);
        }
        for (size_t t = 0; t < n; t++) a->s[i * a->s_stride + t] = V_JOIN(lane[t]);
    }
}
