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
 * Generated tokens only; prompts read the record as it is. */
#ifndef NB_MODEL_THRIFT_H
#define NB_MODEL_THRIFT_H
#include "base/status.h"
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

/* kind and defaults from the words of the command line. */
nb_status nb_thrift_parse(const char *kind, double tau, double fraction, double pool,
                          nb_thrift_options *out, nb_error *err);

#endif
