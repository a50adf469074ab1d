/* lockstep.c - see lockstep.h.
 *
 * KL is summed as  sum p (ref - var) - (lse_ref - lse_var): differences of floats are exact in
 * double, so equal rows give exactly 0, and close rows lose no digits to the size of the logits.
 * What rounding leaves below 0 is 0. */
#include "quality/lockstep.h"

#include <math.h>
#include <stdlib.h>

/* The largest logit and the first place where it is; false when there is none to work with. */
static bool largest(const float *x, size_t n, float *max, uint32_t *best)
{
    bool ok = true;
    float m = -INFINITY;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        ok &= x[i] < INFINITY; /* not NaN, not +infinity */
        if (x[i] > m) {
            m = x[i];
            at = i;
        }
    }
    *max = m;
    *best = (uint32_t)at;
    return ok && m > -INFINITY;
}

static nb_status log_sum_exp(const float *x, size_t n, double *lse, uint32_t *best)
{
    float max;
    if (!largest(x, n, &max, best)) return NB_ERR_NONFINITE;
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - (double)max);
    *lse = (double)max + log(sum);
    return NB_OK;
}

nb_status nb_lockstep_ref(const float *ref, size_t n_vocab, uint32_t next, nb_row_ref *out)
{
    nb_row_ref r;
    if (n_vocab == 0 || next >= n_vocab) return NB_ERR_ARG;
    NB_TRY(log_sum_exp(ref, n_vocab, &r.lse, &r.best));
    r.nll = r.lse - (double)ref[next];
    if (!isfinite(r.nll)) return NB_ERR_NONFINITE;
    *out = r;
    return NB_OK;
}

nb_status nb_lockstep_diff(const float *ref, const nb_row_ref *r, const float *var, size_t n_vocab,
                           uint32_t next, nb_row_diff *out)
{
    double lse, kl = 0;
    uint32_t best;
    if (n_vocab == 0 || next >= n_vocab) return NB_ERR_ARG;
    NB_TRY(log_sum_exp(var, n_vocab, &lse, &best));
    for (size_t i = 0; i < n_vocab; i++) {
        const double p = exp((double)ref[i] - r->lse);
        if (p > 0) kl += p * ((double)ref[i] - (double)var[i]);
    }
    kl -= r->lse - lse;
    const double nll = lse - (double)var[next];
    if (!isfinite(kl) || !isfinite(nll)) return NB_ERR_NONFINITE;
    *out = (nb_row_diff){ .kl = kl > 0 ? kl : 0, .nll = nll, .same_best = best == r->best };
    return NB_OK;
}

/* ---- many rows ------------------------------------------------------------- */

void nb_lockstep_blocks(const nb_lockstep_rows *r, uint32_t *out)
{
    uint32_t block = 0;
    for (size_t i = 0; i < r->n; i++) {
        if (i && (r->window[i] != r->window[i - 1] ||
                  r->pos[i] / NB_LOCKSTEP_BLOCK != r->pos[i - 1] / NB_LOCKSTEP_BLOCK))
            block++;
        out[i] = block;
    }
}

/* The rows of one range, as columns. */
typedef struct columns {
    size_t n;
    double *kl, *same, *nll, *nll_ref, *sorted;
    uint32_t *block, *all;
} columns;

static void columns_deinit(columns *c)
{
    free(c->kl);
    free(c->same);
    free(c->nll);
    free(c->nll_ref);
    free(c->sorted);
    free(c->block);
    free(c->all);
}

static nb_status pick(const nb_lockstep_rows *r, size_t from, size_t to, columns *c)
{
    const size_t n = r->n ? r->n : 1;
    c->kl = calloc(n, sizeof(double));
    c->same = calloc(n, sizeof(double));
    c->nll = calloc(n, sizeof(double));
    c->nll_ref = calloc(n, sizeof(double));
    c->sorted = calloc(n, sizeof(double));
    c->block = calloc(n, sizeof *c->block);
    c->all = calloc(n, sizeof *c->all);
    if (!c->kl || !c->same || !c->nll || !c->nll_ref || !c->sorted || !c->block || !c->all)
        return NB_ERR_NOMEM;
    nb_lockstep_blocks(r, c->all);
    for (size_t i = 0; i < r->n; i++) {
        if (r->pos[i] < from || r->pos[i] >= to) continue;
        const size_t k = c->n++;
        c->kl[k] = c->sorted[k] = r->kl[i];
        c->same[k] = r->same[i];
        c->nll[k] = r->nll[i];
        c->nll_ref[k] = r->nll_ref[i];
        c->block[k] = c->all[i];
    }
    return c->n ? NB_OK : NB_ERR_ARG;
}

static nb_ci exp_of(nb_ci c)
{
    return (nb_ci){ exp(c.value), exp(c.lo), exp(c.hi) };
}

static nb_status summarise(columns *c, size_t n_round, uint64_t seed, nb_lockstep_sum *s)
{
    nb_summary kl;
    nb_ci nll_ref;
    nb_summarise(c->sorted, c->n, &kl);
    s->n = c->n;
    s->kl_p95 = kl.p95;
    s->kl_max = kl.max;
    NB_TRY(nb_bootstrap_mean(c->kl, c->block, c->n, n_round, seed, &s->kl));
    NB_TRY(nb_bootstrap_quantile(c->kl, c->block, c->n, 0.5, n_round, seed, &s->kl_median));
    NB_TRY(nb_bootstrap_quantile(c->kl, c->block, c->n, 0.99, n_round, seed, &s->kl_p99));
    NB_TRY(nb_bootstrap_mean(c->same, c->block, c->n, n_round, seed, &s->same));
    NB_TRY(nb_bootstrap_mean(c->nll, c->block, c->n, n_round, seed, &s->nll));
    NB_TRY(nb_bootstrap_mean(c->nll_ref, c->block, c->n, n_round, seed, &nll_ref));
    NB_TRY(nb_bootstrap_diff(c->nll, c->nll_ref, c->block, c->n, n_round, seed, &s->dnll));
    s->ppl = exp_of(s->nll);
    s->ppl_ref = exp_of(nll_ref);
    s->ppl_ratio = exp_of(s->dnll);
    return NB_OK;
}

nb_status nb_lockstep_summarise(const nb_lockstep_rows *r, size_t from, size_t to, size_t n_round,
                                uint64_t seed, nb_lockstep_sum *out)
{
    columns c = { 0 };
    nb_lockstep_sum s = { .from = from, .to = to };
    nb_status st = pick(r, from, to, &c);
    if (st == NB_OK) st = summarise(&c, n_round, seed, &s);
    if (st == NB_OK) *out = s;
    columns_deinit(&c);
    return st;
}

size_t nb_lockstep_ranges(size_t max_pos, size_t edge[NB_LOCKSTEP_RANGES + 1])
{
    size_t n = 0;
    edge[0] = 0;
    while (edge[n] <= max_pos && n < NB_LOCKSTEP_RANGES) {
        edge[n + 1] = n ? 2 * edge[n] : 256;
        n++;
    }
    return n;
}
