/* index_score.h - how much queries want to attend to tokens, as an indexer of sparse attention sees it.
 *
 *   s[i][t] = sum_h w[i][h] * max(0, q[i][h] . k[t])
 *
 * for the tokens t < n_tok of a page; all heads share the keys.  Factors such as n_head^-1/2 * dim^-1/2 belong into w,
 * since max is homogeneous.  max(0, NaN) is 0.  A score's bits depend on its query, its key, n_head and dim alone:
 * neither n_tok, nor other queries, nor threads change them.
 * Source: DeepSeek-V3.2-Exp, "lightning indexer". */
#ifndef NB_KERNEL_INDEX_SCORE_H
#define NB_KERNEL_INDEX_SCORE_H
#include "kernel/kernel.h"

enum { NB_INDEX_TOK = 64 }; /* most tokens of a call */

typedef struct nb_index_score_args {
    float *s; /* [n_query][s_stride]; of each row n_tok values are written */
    const void
        *q; /* n_query packed queries (variant->pack), variant->q_bytes apart, aligned to 64 */
    const float *k; /* [n_tok][k_stride]; a variant with q_eps != 0 wants values of BF16 */
    void *scratch;  /* variant->scratch bytes, aligned to 64; no meaning outside a call */
    size_t n_query, n_head, dim, n_tok; /* n_head, dim >= 1; n_tok <= NB_INDEX_TOK */
    size_t s_stride, k_stride;          /* elements */
} nb_index_score_args;

/* With u = 2^-24 and A = sum_h |w_h| sum_d |q_d k_d|:
 *   |s - s64| <= (u * (dim + n_head + 8) + q_eps) * A
 * A dot product is one chain over dim (dim + 1 roundings), max changes no distance, the sum over heads is n_head
 * products and at most n_head sums, joining 16 lanes four more.  q_eps is the relative rounding of a query before its
 * products. */
typedef void nb_index_score_fn(const nb_index_score_args *a);
/* Packs one query: q [n_head][dim] and its weights w [n_head] into q_bytes at out. */
typedef void nb_index_pack_fn(size_t n_head, size_t dim, const float *q, const float *w, void *out);
typedef size_t nb_index_bytes_fn(size_t n_head, size_t dim);
nb_index_score_fn nb_index_score_c, nb_index_score_avx2, nb_index_score_avx512, nb_index_score_amx;

/* s64 and A in double, [n_query][n_tok] each, of queries q [n_query][n_head][dim] and w [n_query][n_head]. */
void nb_index_score_ref(const nb_index_score_args *a, const float *q, const float *w, double *s64,
                        double *abs_sum);

typedef struct nb_index_score_variant {
    const char *name;
    nb_space space;
    nb_caps need;
    nb_index_score_fn *fn;
    nb_index_pack_fn *pack;
    nb_index_bytes_fn *q_bytes; /* a multiple of 64 */
    nb_index_bytes_fn *scratch; /* a multiple of 64 */
    float q_eps;
} nb_index_score_variant;
extern const nb_index_score_variant nb_index_score_variants[];

/* Packing in float: the weights of all heads, then per block of heads [dim][NB_INDEX_BLOCK]; heads that do not exist
 * are zeros. */
enum { NB_INDEX_BLOCK = 32 };
static inline size_t nb_index_n_block(size_t n_head)
{
    return (n_head + NB_INDEX_BLOCK - 1) / NB_INDEX_BLOCK;
}
nb_index_pack_fn nb_index_pack_f32, nb_index_pack_amx;
nb_index_bytes_fn nb_index_bytes_f32, nb_index_bytes_amx, nb_index_scratch_none,
    nb_index_scratch_amx;
#endif
