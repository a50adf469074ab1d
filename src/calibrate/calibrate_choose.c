/* calibrate_choose.c - what follows from the measured losses: a transform, a record per layer.
 *
 * A transform is picked where every other query of the text sees it best, and has to prove itself
 * on the rest, so that the best of many noisy candidates is not taken for good.  Under a budget
 * of bits layers are raised from their smallest record by the step that wins most loss per bit;
 * losses of layers are added as they are. */
#include <math.h>
#include <stdlib.h>

#include "calibrate/calibrate_internal.h"
#include "quality/stats.h"

void nb_calib_summarise(calib_candidate *c, size_t n_cand, size_t n_query, const double *ref_sq,
                        size_t n_head)
{
    for (size_t i = 0; i < n_cand; i++) {
        double loss = 0, error = 0;
        for (size_t k = 0; k < n_query; k++) loss += c[i].loss[k];
        for (size_t h = 0; h < n_head; h++)
            if (ref_sq[h] > 0) error += sqrt(c[i].err_sq[h] / ref_sq[h]);
        c[i].mean_loss = loss / (double)n_query;
        c[i].error = error / (double)n_head;
    }
}

static double mean_of_half(const double *x, size_t n, size_t odd)
{
    double sum = 0;
    size_t k = 0;
    for (size_t i = odd; i < n; i += 2, k++) sum += x[i];
    return k ? sum / (double)k : 0;
}

nb_status nb_calib_choose_transform(const calib_candidate *c, size_t n_cand, size_t n_query,
                                    uint64_t seed, size_t *out, nb_error *err)
{
    size_t best = 0;
    for (size_t i = 1; i < n_cand; i++)
        if (mean_of_half(c[i].loss, n_query, 0) < mean_of_half(c[best].loss, n_query, 0)) best = i;
    *out = 0;
    if (best == 0 || n_query < 4) return NB_OK;
    const size_t n = n_query / 2;
    double *none = calloc(2 * n, sizeof *none);
    if (!none) return nb_fail(err, NB_ERR_NOMEM, "out of memory for a comparison");
    for (size_t i = 0; i < n; i++) {
        none[i] = c[0].loss[2 * i + 1];
        none[n + i] = c[best].loss[2 * i + 1];
    }
    nb_ci ci = { 0 };
    const nb_status st = nb_bootstrap_diff(none, none + n, NULL, n, 0, seed, &ci);
    free(none);
    if (st != NB_OK) return nb_fail(err, st, "losses of candidates cannot be compared");
    if (ci.lo > 0) *out = best;
    return NB_OK;
}

/* The smaller record; of equally small ones the better. */
static bool cheaper(const calib_candidate *a, const calib_candidate *b)
{
    return a->bits < b->bits || (a->bits == b->bits && a->mean_loss < b->mean_loss);
}

static size_t cheapest(const calib_candidate *c, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (cheaper(&c[i], &c[best])) best = i;
    return best;
}

nb_status nb_calib_choose_bits(const calib_candidate *c, const size_t *n, size_t n_cand,
                               size_t n_layer, double target_bits, size_t *pick, nb_error *err)
{
    double left = target_bits * (double)n_layer, least = 0;
    for (size_t i = 0; i < n_layer; i++) {
        pick[i] = cheapest(c + i * n_cand, n[i]);
        least += c[i * n_cand + pick[i]].bits;
    }
    left -= least;
    if (left < -1e-9)
        return nb_fail(err, NB_ERR_RANGE,
                       "--target-bits %g: the smallest records take %.3f bits per value",
                       target_bits, least / (double)n_layer);
    for (;;) {
        double best = 0;
        size_t layer = 0, to = 0;
        for (size_t i = 0; i < n_layer; i++) {
            const calib_candidate *at = &c[i * n_cand + pick[i]];
            for (size_t k = 0; k < n[i]; k++) {
                const calib_candidate *x = &c[i * n_cand + k];
                const double more = x->bits - at->bits, win = at->mean_loss - x->mean_loss;
                if (more <= 0 || more > left + 1e-9 || win <= best * more) continue;
                best = win / more;
                layer = i;
                to = k;
            }
        }
        if (best <= 0) return NB_OK;
        left -= c[layer * n_cand + to].bits - c[layer * n_cand + pick[layer]].bits;
        pick[layer] = to;
    }
}

size_t nb_calib_choose_error(const calib_candidate *c, size_t n, double max_error)
{
    size_t best = SIZE_MAX, exact = 0;
    for (size_t i = 0; i < n; i++) {
        if (c[i].error < c[exact].error) exact = i;
        if (c[i].error <= max_error && (best == SIZE_MAX || cheaper(&c[i], &c[best]))) best = i;
    }
    return best != SIZE_MAX ? best : exact; /* none keeps it: the most exact one */
}
