/* lockstep.h - two rows of logits of one text, compared; and what many such rows come to.
 *
 * Rows are float logits of the same position under a reference and under a variant.  All sums are
 * in double and in the order of the vocabulary, so that a report is the same on every run.
 * Formulas: p = softmax(ref), q = softmax(var); KL = sum p (log p - log q), natural logarithm;
 * NLL = -log of the probability of the token that follows. */
#ifndef NB_QUALITY_LOCKSTEP_H
#define NB_QUALITY_LOCKSTEP_H
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "quality/stats.h"

enum { NB_LOCKSTEP_BLOCK = 64 }; /* positions of a block of the bootstrap */

/* What is kept of a row of the reference. */
typedef struct nb_row_ref {
    double lse;    /* log of the sum of exponentials */
    uint32_t best; /* lowest of the largest */
    double nll;
} nb_row_ref;
typedef struct nb_row_diff {
    double kl, nll;
    int same_best; /* top-1 agreement */
} nb_row_diff;

/* next < n_vocab: the token that follows.  NB_ERR_NONFINITE when a logit is NaN or +infinity, all
 * are -infinity, or a result would be infinite. */
nb_status nb_lockstep_ref(const float *ref, size_t n_vocab, uint32_t next, nb_row_ref *out);
nb_status nb_lockstep_diff(const float *ref, const nb_row_ref *r, const float *var, size_t n_vocab,
                           uint32_t next, nb_row_diff *out);

/* Measurements of n rows: windows one behind the other, each with ascending positions. */
typedef struct nb_lockstep_rows {
    size_t n;
    const uint32_t *window, *pos;     /* [n] */
    const double *nll_ref, *nll, *kl; /* [n] */
    const double *same;               /* [n] 0 or 1 */
} nb_lockstep_rows;

/* Of the rows at positions from <= pos < to. */
typedef struct nb_lockstep_sum {
    size_t n, from, to;
    double kl_p95, kl_max;
    nb_ci kl, kl_median, kl_p99, same, nll, dnll, ppl, ppl_ref,
        ppl_ratio; /* 95%: block bootstrap */
} nb_lockstep_sum;
/* NB_ERR_ARG when no row is in the range. Blocks do not reach over windows. */
nb_status nb_lockstep_summarise(const nb_lockstep_rows *r, size_t from, size_t to, size_t n_round,
                                uint64_t seed, nb_lockstep_sum *out);
/* Block numbers of the rows, [n] to out. */
void nb_lockstep_blocks(const nb_lockstep_rows *r, uint32_t *out);

/* Ranges of positions for tables: 0, 256, 512, 1024, ... doubling; edge[0] = 0 and edge[i] the
 * end of range i - 1, the last one above max_pos. Returns the number of ranges. */
enum { NB_LOCKSTEP_RANGES = 32 };
size_t nb_lockstep_ranges(size_t max_pos, size_t edge[NB_LOCKSTEP_RANGES + 1]);

#endif
