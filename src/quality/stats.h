/* stats.h - the few statistics that comparisons of cache formats need.
 *
 * Everything is paired: the same items under two systems.  Random numbers come from a seed, so
 * that a report can be reproduced. */
#ifndef NB_QUALITY_STATS_H
#define NB_QUALITY_STATS_H
#include <stddef.h>
#include <stdint.h>

#include "nibble/status.h"

typedef struct nb_ci {
    double value, lo, hi; /* estimate and 95% interval */
} nb_ci;

typedef struct nb_summary {
    double mean, median, p95, p99, max;
} nb_summary;
/* x is reordered; n >= 1. Quantiles interpolate between order statistics. */
void nb_summarise(double *x, size_t n, nb_summary *out);

/* Percentile bootstrap of the mean of x[n], resampling blocks: item i belongs to block[i] (blocks
 * are runs of equal numbers; NULL: every item its own).  n_round resamplings, default 2000 at 0.
 * With a single block there is nothing to resample: lo and hi are NaN.
 * All of these: NB_ERR_ARG for n = 0, NB_ERR_NONFINITE for an x that is not finite, NB_ERR_LIMIT
 * beyond 2^32 - 1 items or 2^24 rounds, NB_ERR_NOMEM; *out is written on success only. */
nb_status nb_bootstrap_mean(const double *x, const uint32_t *block, size_t n, size_t n_round,
                            uint64_t seed, nb_ci *out);
/* Of the quantile q, 0 <= q <= 1: the value as in nb_summarise; in a resample the smallest x that
 * the share q of its items does not exceed. */
nb_status nb_bootstrap_quantile(const double *x, const uint32_t *block, size_t n, double q,
                                size_t n_round, uint64_t seed, nb_ci *out);
/* Of mean(a) - mean(b), items resampled together. */
nb_status nb_bootstrap_diff(const double *a, const double *b, const uint32_t *block, size_t n,
                            size_t n_round, uint64_t seed, nb_ci *out);
/* Recovery (low - method) / (low - high) of mean losses, items resampled together over all three
 * systems; the same for scores, of which more is better.  *valid is 0 when the gap low - high is
 * under 2 of its standard errors: then there is no number to show, and *out is NaN. */
nb_status nb_bootstrap_recovery(const double *low, const double *method, const double *high,
                                const uint32_t *block, size_t n, size_t n_round, uint64_t seed,
                                nb_ci *out, int *valid);
/* Wilson's interval of k of n, k <= n; n = 0: 0 to 1. */
nb_ci nb_wilson(size_t k, size_t n);
/* McNemar's exact two-sided p for pairs that differ: b right only under one, c only under the other. */
double nb_mcnemar(size_t b, size_t c);

#endif
