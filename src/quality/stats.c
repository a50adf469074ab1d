/* stats.c - paired statistics: summaries, the block bootstrap, Wilson, McNemar.
 *
 * Neighbouring positions of a text are not independent, so blocks of them are resampled (Kuensch
 * 1989; here blocks do not overlap, and a text's last may be shorter).  A mean of a resample needs
 * only the sums and the lengths of its blocks, which are made once: a round costs one draw for
 * each block, not for each item.  A round's draws depend on (seed, round, place) alone, so that
 * two quantities resampled with one seed see the same blocks.
 *
 * Wilson 1927 for shares (it stays in [0, 1] and does not collapse at 0 of n), McNemar's test
 * exactly, from the binomial distribution. */
#include "quality/stats.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/rng.h"
#include "base/status.h"

enum { DEFAULT_ROUNDS = 2000, MAX_ROUNDS = 1 << 24, MAX_SYSTEMS = 3 };
static const double Z95 = 1.959963984540054; /* of the normal distribution, two-sided 95% */

/* ---- order -------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of sorted x: linear between order statistics (type 7 of Hyndman and Fan 1996). */
static double quantile(const double *x, size_t n, double q)
{
    const double at = q * (double)(n - 1);
    const size_t i = (size_t)at;
    if (i + 1 >= n) return x[n - 1];
    const double t = at - (double)i;
    return t > 0 ? x[i] + t * (x[i + 1] - x[i]) : x[i];
}

/* Neumaier's sum: the order of the items costs no digits. */
static double sum_of(const double *x, size_t n)
{
    double s = 0, c = 0;
    for (size_t i = 0; i < n; i++) {
        const double t = s + x[i];
        c += fabs(s) >= fabs(x[i]) ? (s - t) + x[i] : (x[i] - t) + s;
        s = t;
    }
    return s + c;
}

void nb_summarise(double *x, size_t n, nb_summary *out)
{
    *out = (nb_summary){ 0 };
    if (n == 0) return;
    qsort(x, n, sizeof *x, by_value);
    out->mean = sum_of(x, n) / (double)n;
    out->median = quantile(x, n, 0.5);
    out->p95 = quantile(x, n, 0.95);
    out->p99 = quantile(x, n, 0.99);
    out->max = x[n - 1];
}

/* ---- blocks ------------------------------------------------------------- */

typedef struct blocks {
    size_t n;                 /* blocks */
    double *count;            /* [n] items in each */
    double *sum[MAX_SYSTEMS]; /* [n] */
    double *round;            /* [n_round] results */
    size_t n_round;
} blocks;

static void blocks_deinit(blocks *b)
{
    free(b->count);
    free(b->round);
    for (size_t s = 0; s < MAX_SYSTEMS; s++) free(b->sum[s]);
}

static nb_status check(const double *const *x, size_t n_system, size_t n, size_t n_round)
{
    if (n == 0) return NB_ERR_ARG;
    if (n > UINT32_MAX || n_round > MAX_ROUNDS) return NB_ERR_LIMIT;
    for (size_t s = 0; s < n_system; s++)
        for (size_t i = 0; i < n; i++)
            if (!isfinite(x[s][i])) return NB_ERR_NONFINITE;
    return NB_OK;
}

static size_t count_blocks(const uint32_t *block, size_t n)
{
    if (!block) return n;
    size_t n_block = 1;
    for (size_t i = 1; i < n; i++) n_block += block[i] != block[i - 1];
    return n_block;
}

/* After NB_OK or not: blocks_deinit. */
static nb_status make_blocks(const double *const *x, size_t n_system, const uint32_t *block,
                             size_t n, size_t n_round, blocks *b)
{
    *b = (blocks){ .n_round = n_round ? n_round : DEFAULT_ROUNDS };
    NB_TRY(check(x, n_system, n, n_round));
    b->n = count_blocks(block, n);
    b->count = calloc(b->n, sizeof *b->count);
    b->round = calloc(b->n_round, sizeof *b->round);
    bool ok = b->count && b->round;
    for (size_t s = 0; s < n_system; s++) {
        b->sum[s] = calloc(b->n, sizeof *b->sum[s]);
        ok = ok && b->sum[s];
    }
    if (!ok) return NB_ERR_NOMEM;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && (!block || block[i] != block[i - 1])) at++;
        b->count[at]++;
        for (size_t s = 0; s < n_system; s++) b->sum[s][at] += x[s][i];
    }
    return NB_OK;
}

/* A block of a round, uniform in [0, n); n < 2^32, so the excess of some is below 2^-32. */
static inline size_t draw(uint64_t key, size_t place, size_t n)
{
    return (size_t)(((nb_mix64(key ^ (place * 0xda942042e4dd58b5u)) >> 32) * n) >> 32);
}

static inline uint64_t round_key(uint64_t seed, size_t round)
{
    return nb_rng_u64(seed, round);
}

/* Means of the systems in one resample. */
static void resample(const blocks *b, size_t n_system, uint64_t key, double *mean)
{
    double count = 0, sum[MAX_SYSTEMS] = { 0 };
    for (size_t i = 0; i < b->n; i++) {
        const size_t k = draw(key, i, b->n);
        count += b->count[k];
        for (size_t s = 0; s < n_system; s++) sum[s] += b->sum[s][k];
    }
    for (size_t s = 0; s < n_system; s++) mean[s] = sum[s] / count;
}

/* The middle 95% of n results, which are reordered. */
static void interval(double *x, size_t n, size_t n_block, nb_ci *out)
{
    if (n_block < 2 || n == 0) {
        out->lo = out->hi = NAN;
        return;
    }
    qsort(x, n, sizeof *x, by_value);
    out->lo = quantile(x, n, 0.025);
    out->hi = quantile(x, n, 0.975);
}

/* ---- the bootstrap ------------------------------------------------------ */

nb_status nb_bootstrap_mean(const double *x, const uint32_t *block, size_t n, size_t n_round,
                            uint64_t seed, nb_ci *out)
{
    const double *const xs[1] = { x };
    blocks b;
    const nb_status st = make_blocks(xs, 1, block, n, n_round, &b);
    if (st == NB_OK) {
        for (size_t r = 0; r < b.n_round; r++) resample(&b, 1, round_key(seed, r), &b.round[r]);
        out->value = sum_of(x, n) / (double)n;
        interval(b.round, b.n_round, b.n, out);
    }
    blocks_deinit(&b);
    return st;
}

nb_status nb_bootstrap_diff(const double *a, const double *b, const uint32_t *block, size_t n,
                            size_t n_round, uint64_t seed, nb_ci *out)
{
    const double *const x[2] = { a, b };
    blocks k;
    const nb_status st = make_blocks(x, 2, block, n, n_round, &k);
    if (st == NB_OK) {
        for (size_t r = 0; r < k.n_round; r++) {
            double mean[2];
            resample(&k, 2, round_key(seed, r), mean);
            k.round[r] = mean[0] - mean[1];
        }
        out->value = (sum_of(a, n) - sum_of(b, n)) / (double)n;
        interval(k.round, k.n_round, k.n, out);
    }
    blocks_deinit(&k);
    return st;
}

/* Fills b->round with recoveries (n_kept of them, where there is a gap) and returns the standard
 * error of the gap. */
static double recoveries(const blocks *b, uint64_t seed, size_t *n_kept)
{
    double mean_gap = 0, m2 = 0; /* Welford 1962 */
    *n_kept = 0;
    for (size_t r = 0; r < b->n_round; r++) {
        double mean[3];
        resample(b, 3, round_key(seed, r), mean);
        const double gap = mean[0] - mean[2], delta = gap - mean_gap;
        mean_gap += delta / (double)(r + 1);
        m2 += delta * (gap - mean_gap);
        if (gap != 0) b->round[(*n_kept)++] = (mean[0] - mean[1]) / gap;
    }
    return sqrt(m2 / (double)b->n_round);
}

nb_status nb_bootstrap_recovery(const double *low, const double *method, const double *high,
                                const uint32_t *block, size_t n, size_t n_round, uint64_t seed,
                                nb_ci *out, int *valid)
{
    const double *const x[3] = { low, method, high };
    blocks b;
    const nb_status st = make_blocks(x, 3, block, n, n_round, &b);
    if (st == NB_OK) {
        size_t n_kept;
        const double se = recoveries(&b, seed, &n_kept);
        const double l = sum_of(low, n) / (double)n, m = sum_of(method, n) / (double)n,
                     h = sum_of(high, n) / (double)n;
        *valid = b.n > 1 && l != h && fabs(l - h) >= 2 * se;
        *out = (nb_ci){ NAN, NAN, NAN };
        if (*valid) {
            out->value = (l - m) / (l - h);
            interval(b.round, n_kept, b.n, out);
        }
    }
    blocks_deinit(&b);
    return st;
}

/* ---- quantiles ---------------------------------------------------------- */

typedef struct ranked {
    double x;
    uint32_t block;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *p = a, *q = b;
    if (p->x != q->x) return p->x > q->x ? 1 : -1;
    return (p->block > q->block) - (p->block < q->block);
}

/* The quantile of a resample in which block k occurs times[k] times. */
static double weighted_quantile(const ranked *v, size_t n, const uint32_t *times, double want)
{
    double seen = 0;
    for (size_t i = 0; i < n; i++) {
        seen += times[v[i].block];
        if (seen >= want && seen > 0) return v[i].x;
    }
    return v[n - 1].x;
}

static void quantile_rounds(const blocks *b, const ranked *v, size_t n, double q, uint64_t seed,
                            uint32_t *times)
{
    for (size_t r = 0; r < b->n_round; r++) {
        const uint64_t key = round_key(seed, r);
        double count = 0;
        for (size_t i = 0; i < b->n; i++) times[i] = 0;
        for (size_t i = 0; i < b->n; i++) {
            const size_t k = draw(key, i, b->n);
            times[k]++;
            count += b->count[k];
        }
        b->round[r] = weighted_quantile(v, n, times, q * count);
    }
}

nb_status nb_bootstrap_quantile(const double *x, const uint32_t *block, size_t n, double q,
                                size_t n_round, uint64_t seed, nb_ci *out)
{
    if (!(q >= 0 && q <= 1)) return NB_ERR_ARG;
    const double *const xs[1] = { x };
    blocks b;
    ranked *v = NULL;
    double *sorted = NULL;
    uint32_t *times = NULL;
    nb_status st;
    NB_TRY_OUT(make_blocks(xs, 1, block, n, n_round, &b));
    st = NB_ERR_NOMEM;
    v = calloc(n, sizeof *v);
    sorted = calloc(n, sizeof *sorted);
    times = calloc(b.n, sizeof *times);
    if (!v || !sorted || !times) goto out;
    uint32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && (!block || block[i] != block[i - 1])) at++;
        v[i] = (ranked){ x[i], at };
    }
    qsort(v, n, sizeof *v, by_rank);
    for (size_t i = 0; i < n; i++) sorted[i] = v[i].x;
    quantile_rounds(&b, v, n, q, seed, times);
    out->value = quantile(sorted, n, q);
    interval(b.round, b.n_round, b.n, out);
    st = NB_OK;
out:
    free(v);
    free(sorted);
    free(times);
    blocks_deinit(&b);
    return st;
}

/* ---- shares ------------------------------------------------------------- */

nb_ci nb_wilson(size_t k, size_t n)
{
    if (n == 0) return (nb_ci){ 0, 0, 1 };
    const double m = (double)n, p = (double)(k < n ? k : n) / m, z2 = Z95 * Z95;
    const double mid = (p + z2 / (2 * m)) / (1 + z2 / m);
    const double half = Z95 / (1 + z2 / m) * sqrt(p * (1 - p) / m + z2 / (4 * m * m));
    /* Exactly 0 and 1 at the ends, where rounding would leave a trace. */
    return (nb_ci){ p, k == 0 ? 0 : mid - half, k >= n ? 1 : mid + half };
}

double nb_mcnemar(size_t b, size_t c)
{
    const size_t n = b + c, k = b < c ? b : c;
    if (b == c) return 1;
    /* 2 P(X <= k), X binomial of n and 1/2: the largest term by logarithms, the smaller ones
     * from it. */
    double log_term = -(double)n * log(2);
    for (size_t j = 1; j <= k; j++) log_term += log((double)(n - k + j) / (double)j);
    double sum = 0, ratio = 1;
    for (size_t i = k;; i--) {
        sum += ratio;
        if (i == 0 || ratio < 1e-18) break;
        ratio *= (double)i / (double)(n - i + 1);
    }
    const double p = 2 * exp(log_term) * sum;
    return p < 1 ? p : 1;
}
