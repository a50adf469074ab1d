/* thrift.h - Thrift mode: decode steps read the cached tokens that matter at 8 bits.
 *
 * After ThriftAttention (arXiv 2605.23081), made for one latent that all heads share and for a
 * cache that is 4 bits in memory: beside each page lies a residual plane (num/residual.h) in
 * host memory.  A decode step scores all earlier pages from their 4-bit codes, chooses tokens,
 * and attends with these refined.  The choice depends on the sequence alone (promise 3).
 *
 *   token       t is refined when, for any head h, exp(S[h,t] - LSE[h]) > tau; LSE over all
 *               that the query sees, own page included.  At most ceil(fraction * n) of the n
 *               tokens in earlier pages: those with the largest max_h (S[h,t] - LSE[h]), ties to
 *               the lower position.
 *   block-mean  blocks of 64: score max_h q_h . mean of the decoded keys; the paper's choice
 *   quest       max_h sum_i max(q_i kmax_i, q_i kmin_i)
 *   block-prob  max_h sum_t exp(S[h,t] - LSE[h])
 *               each takes max(1, min(N, round(fraction * N))) of the N earlier pages, halves to even
 * Tokens that are kept in BF16 (--kv-sinks) are no candidates: nothing is to be refined.
 * Generated tokens only; prompts read the record as it is. */
#ifndef NB_MODEL_THRIFT_H
#define NB_MODEL_THRIFT_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum nb_thrift_kind {
    NB_THRIFT_OFF,
    NB_THRIFT_TOKEN,
    NB_THRIFT_BLOCK_MEAN,
    NB_THRIFT_QUEST,
    NB_THRIFT_BLOCK_PROB
} nb_thrift_kind;

typedef struct nb_thrift_options {
    nb_thrift_kind kind;
    double tau, fraction, pool;
    size_t max_pos; /* longest sequence: sizes the buffer of scores */
} nb_thrift_options;

typedef struct nb_thrift_count { /* since creation, all layers; see nb_engine_stats */
    uint64_t scored, refined, over, pool_hits, base_bytes, residual_bytes;
} nb_thrift_count;

/* kind and defaults from the words of the command line: kind NULL is off; tau, fraction and pool
 * of 0 are the defaults (1e-3; 0.005 of the tokens or 0.05 of the blocks; 0.02).  NB_ERR_ARG for
 * an unknown kind, NB_ERR_RANGE for numbers outside [0, 1]. max_pos is left 0. */
nb_status nb_thrift_parse(const char *kind, double tau, double fraction, double pool,
                          nb_thrift_options *out, nb_error *err);
const char *nb_thrift_name(nb_thrift_kind kind);

/* ---- the choice ---- */

size_t nb_thrift_token_cap(double fraction, size_t n); /* ceil(fraction * n), at most n */
size_t nb_thrift_n_page(double fraction, size_t n);    /* of n pages; 0 of 0 */
/* log sum exp(s[i]), never less than the largest s; NaN when an s is NaN. Sums in double, in
 * order; terms under e^-40 of the largest are left out. */
float nb_thrift_lse(const float *s, size_t n);
/* Indices i < n with x[i] > above (a NaN never is), ascending, at most cap of them: the largest,
 * ties to the lower index.  Returns how many; *n_over: how many more there were.  out: [min(n, cap)],
 * at least. O(n). */
size_t nb_thrift_choose(const float *x, size_t n, double above, size_t cap, uint32_t *out,
                        size_t *n_over);

/* ---- the pool: residual rows near the kernels, the least recently used goes first ----
 *
 * It decides where a row is read from, never what is read.  Owned by the engine's thread. */

typedef struct nb_thrift_pool nb_thrift_pool;
/* n_slot rows of row_bytes, < 2^32 - 1; 0 slots: everything is a miss. */
nb_status nb_thrift_pool_create(size_t n_slot, size_t row_bytes, nb_thrift_pool **out,
                                nb_error *err);
void nb_thrift_pool_destroy(nb_thrift_pool *p);
size_t nb_thrift_pool_bytes(size_t n_slot, size_t row_bytes);
/* Rows got from now on stay where they are until the next round. */
void nb_thrift_pool_begin(nb_thrift_pool *p);
/* The row of (layer, block, tok < 64), which is `row` in the plane: from the pool (*hit), or copied
 * into it; where all slots hold rows of this round, `row` itself. O(1). */
const unsigned char *nb_thrift_pool_get(nb_thrift_pool *p, size_t layer, uint32_t block, size_t tok,
                                        const unsigned char *row, bool *hit);
/* The page has other content now. */
void nb_thrift_pool_drop(nb_thrift_pool *p, size_t layer, uint32_t block);

#endif
