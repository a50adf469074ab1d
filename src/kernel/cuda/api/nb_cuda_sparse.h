/* nb_cuda_sparse.h - operations of sparse attention (DSA): an indexer's queries and keys, scores, the exact top k, and
 * pages made of the chosen tokens, which attention over pages then reads.
 *
 * They work on rows [row0, row0 + n_row) of a pass.  row_chunk is that of the pass (nb_cuda_mla_args), indexed by
 * row0 + i; everything else has one entry per row i.  Padding (UINT32_MAX) chooses nothing.  A row at position p sees
 * n = p + 1 tokens.  With n <= k it attends to all of them, and its scores are not computed.
 * Scores and top k also work on compressed rows (nb_cuda_csa.h): with a ratio, a row sees n = (p + 1) / ratio of them, a
 * page has 64 / ratio, a multiple of 16, and "token" below is such a row. */
#ifndef NB_KERNEL_CUDA_API_NB_CUDA_SPARSE_H
#define NB_KERNEL_CUDA_API_NB_CUDA_SPARSE_H
#include "kernel/cuda/api/nb_cuda_ops.h"

/* In place, as attn_mla.c defines them: keys are normalised (LayerNorm, eps 1e-6), the first d_rope values of keys and
 * queries are rotated, and where dim is a power of two, both go through a Hadamard transform.  w is multiplied by
 * (n_head * dim)^-1/2.  k NULL or q NULL: without keys, or without queries.
 * last: of queries alone; the last d_rope values are rotated, and there is no transform (attn_csa.c).
 * q16, w16 (may be NULL; dim is a multiple of 64): the queries for the row "mma" of the scores,
 * [n_tok][NB_CUDA_INDEX_HEADS(n_head)][dim] values of FP16 and [n_tok][NB_CUDA_INDEX_HEADS(n_head)] floats.
 * A head is divided by a power of two that brings its largest value to [2^13, 2^14), and w16 is w times this power.
 * Heads beyond n_head are 0.  Value d of a block of 64 stands at place NB_CUDA_INDEX_PLACE(d). */
typedef struct nb_cuda_index_finish_args {
    float *k;                 /* [n_tok][k_stride] */
    const float *norm, *bias; /* [dim] x2 */
    float *q, *w;             /* [n_tok][n_head * dim], [n_tok][n_head] */
    uint16_t *q16;
    float *w16;
    const float *cos_sin; /* [n_tok][d_rope] */
    size_t n_tok, n_head, dim, d_rope, k_stride;
    bool interleaved, last;
} nb_cuda_index_finish_args;
#define NB_CUDA_INDEX_HEADS(n_head) (((size_t)(n_head) + 15) / 16 * 16)
/* A lane of an mma has the 16 bytes of keys [16 t, 16 t + 16): four values in each of four steps. */
#define NB_CUDA_INDEX_PLACE(d) ((d) % 16 / 4 * 16 + (d) % 4 / 2 * 8 + (d) / 16 * 2 + (d) % 2)

/* score[i][t] = index_score.h of token t, for all tokens that the row sees: keys of complete pages decoded, of its own
 * page as its rows are.  Bound: that of index_score.h with the q_eps of the table's row, and with q_eps != 0 also
 * 2^-36 sum_h |w_h| max|q_h| max|k| dim for what FP16 cannot hold beside a head's or a key's largest value. */
typedef struct nb_cuda_index_score_args {
    nb_cuda_cache cache;
    const float *q, *w;
    const uint16_t *q16;
    const float *w16;
    const uint32_t *row_chunk;
    float *score; /* [n_row][stride] */
    size_t row0, n_row, n_head, dim, k;
    size_t seg;    /* of the record: the keys */
    size_t stride; /* positions of the longest sequence, rounded up to 64 */
    size_t share;  /* 1, or: rows i / share * share ... are of one chunk, and may read keys together (at most 4) */
    size_t ratio;  /* 0: none; with one, share is 1 */
} nb_cuda_index_score_args;

typedef struct nb_cuda_index_row {
    const char *name;
    int cc;
    bool packed; /* reads q16 and w16, not q and w */
    float q_eps;
    bool (*can)(const nb_record *r, size_t seg, size_t n_head);
    void (*fn)(nb_cuda *g, const nb_cuda_index_score_args *a);
} nb_cuda_index_row;

/* at[i] = the choice of index_topk.h among the n scores of the row: ascending positions, min(n, k) of them.
 * scratch: n_row * NB_CUDA_TOPK_SCRATCH(stride) words, all zero before the first call with this stride. */
typedef struct nb_cuda_index_topk_args {
    const nb_cuda_chunk *chunk;
    const uint32_t *row_chunk;
    const float *score; /* [n_row][stride] */
    uint32_t *at;       /* [n_row][k] */
    uint32_t *scratch;
    size_t row0, n_row, k, stride;
    size_t ratio; /* 0: none */
} nb_cuda_index_topk_args;
enum { NB_CUDA_TOPK_BINS = 2048, NB_CUDA_TOPK_PART = 4096 };
#define NB_CUDA_TOPK_SCRATCH(stride)                                                               \
    (3 * NB_CUDA_TOPK_BINS + 8 + 2 * (((size_t)(stride) + NB_CUDA_TOPK_PART - 1) / NB_CUDA_TOPK_PART))

/* The chosen tokens of each row as a sequence of its own, for attention over pages:
 *   page    [n_row][n_page] pages of `to`: tokens of complete pages, in order, 64 to a page, byte by byte
 *   rest    [n_row][64][to.n_values] floats: those of them that fill no page, decoded
 *   own     the same of the row's own page, as its rows are
 * to: the record of the cache, its first two segments only; nb_record_can_move.
 * chunk[0..n_row) are the rows' sequences for attention over `page`: the pages of unit u are
 * table[i * table_stride + nb_cuda_unit_page(units, u)] ..., at most unit_page of them.  chunk[n_row..) and
 * chunk[2 n_row..) are sequences of one token, whose own pages are rest and own.  has: row_chunk for these three;
 * UINT32_MAX where there is nothing.
 * item, n_item: one item per unit that has pages.  Row i's states are n_unit + 2: those of its units, that of rest and
 * that of own.  All of them become empty (part_m). */
typedef struct nb_cuda_gather_args {
    nb_cuda_cache cache;
    nb_record to;
    const uint32_t *at, *row_chunk;
    unsigned char *page;
    float *rest, *own;
    nb_cuda_chunk *chunk;
    uint32_t *has;
    nb_cuda_item *item;
    uint32_t *n_item;
    float *part_m; /* [n_row][n_unit + 2][n_head] */
    size_t row0, n_row, k, n_head;
    size_t n_page, n_unit, unit_page; /* n_page = k / 64; n_unit = n_page / unit_page, rounded up */
    size_t table_stride;
} nb_cuda_gather_args;

#endif
