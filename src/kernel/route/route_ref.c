/* route_ref.c - route by its definition: an expert's place is the number of
 * experts that come before it (larger choice, or equal and lower index). */
#include "kernel/route/route.h"

#include <math.h>

static bool before(const double *v, size_t i, size_t j)
{
    return v[i] > v[j] || (v[i] == v[j] && i < j);
}

static double score_of(const nb_route_args *a, const float *x, size_t e)
{
    if (a->sqrt_softplus)
        return sqrt((double)x[e] > 40 ? (double)x[e] : log1p(exp((double)x[e])));
    if (a->sigmoid) return 1.0 / (1.0 + exp(-(double)x[e]));
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < a->n_expert; i++) max = fmax(max, (double)x[i]);
    for (size_t i = 0; i < a->n_expert; i++) sum += exp((double)x[i] - max);
    return exp((double)x[e] - max) / sum;
}

static double group_rank(const nb_route_args *a, const double *choice, size_t g)
{
    const size_t per = a->n_expert / a->n_group, e0 = g * per;
    double best = -INFINITY;
    for (size_t i = 0; i < per; i++) {
        if (a->group_top != 2 || per == 1) {
            best = fmax(best, choice[e0 + i]);
            continue;
        }
        for (size_t j = 0; j < i; j++) best = fmax(best, choice[e0 + i] + choice[e0 + j]);
    }
    return best;
}

static void mask_groups(const nb_route_args *a, double *choice)
{
    double rank[NB_ROUTE_MAX_EXPERT];
    const size_t per = a->n_expert / a->n_group;
    for (size_t g = 0; g < a->n_group; g++) rank[g] = group_rank(a, choice, g);
    for (size_t g = 0; g < a->n_group; g++) {
        size_t place = 0;
        for (size_t i = 0; i < a->n_group; i++) place += i != g && before(rank, i, g);
        if (place < a->topk_group) continue;
        for (size_t i = 0; i < per; i++) choice[g * per + i] = -INFINITY;
    }
}

void nb_route_ref(const nb_route_args *a, uint32_t *id, double *weight, double *choice64)
{
    for (size_t t = 0; t < a->n_tok; t++) {
        const float *x = a->logits + t * a->n_expert;
        double *choice = choice64 + t * a->n_expert, sum = 0;
        for (size_t e = 0; e < a->n_expert; e++)
            choice[e] = score_of(a, x, e) + (a->bias ? (double)a->bias[e] : 0);
        if (a->n_group > 1) mask_groups(a, choice);
        for (size_t e = 0; e < a->n_expert && !a->given; e++) {
            size_t place = 0;
            for (size_t i = 0; i < a->n_expert; i++) place += i != e && before(choice, i, e);
            if (place < a->top_k) id[t * a->top_k + place] = (uint32_t)e;
        }
        for (size_t k = 0; k < a->top_k; k++) sum += score_of(a, x, id[t * a->top_k + k]);
        for (size_t k = 0; k < a->top_k; k++)
            weight[t * a->top_k + k] = score_of(a, x, id[t * a->top_k + k]) * (double)a->factor /
                                       (a->normalise ? sum + 1e-20 : 1.0);
    }
}
