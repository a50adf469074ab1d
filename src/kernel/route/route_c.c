/* route_c.c - portable route.
 *
 * Exponentials and sums are in double: a few hundred experts per token cost less
 * than one row of any matrix, and the choice then depends on the logits only, not
 * on rounding.  A NaN logit ranks below everything, so that the ids stay valid and
 * distinct whatever the input. */
#include "kernel/route/route.h"

#include <math.h>

typedef struct scratch {
    double score[NB_ROUTE_MAX_EXPERT], choice[NB_ROUTE_MAX_EXPERT], rank[NB_ROUTE_MAX_EXPERT];
    bool off[NB_ROUTE_MAX_EXPERT], group_on[NB_ROUTE_MAX_EXPERT];
} scratch;

static void scores(const nb_route_args *a, const float *logits, scratch *s)
{
    if (a->sqrt_softplus) {
        for (size_t e = 0; e < a->n_expert; e++) {
            const double x = (double)logits[e];
            s->score[e] = sqrt(x > 40 ? x : log1p(exp(x)));
        }
    } else if (a->sigmoid) {
        for (size_t e = 0; e < a->n_expert; e++)
            s->score[e] = 1.0 / (1.0 + exp(-(double)logits[e]));
    } else {
        double max = -INFINITY, sum = 0;
        for (size_t e = 0; e < a->n_expert; e++)
            if ((double)logits[e] > max) max = (double)logits[e];
        for (size_t e = 0; e < a->n_expert; e++) {
            s->score[e] = exp((double)logits[e] - max);
            sum += s->score[e];
        }
        for (size_t e = 0; e < a->n_expert; e++) s->score[e] /= sum;
    }
    for (size_t e = 0; e < a->n_expert; e++) {
        s->choice[e] = s->score[e] + (a->bias ? (double)a->bias[e] : 0);
        if (isnan(s->choice[e])) s->choice[e] = -INFINITY;
        s->off[e] = false;
    }
}

/* Index of the largest value not switched off, lowest index first. */
static size_t best(const double *v, const bool *off, size_t n)
{
    size_t at = n;
    for (size_t i = 0; i < n; i++)
        if (!off[i] && (at == n || v[i] > v[at])) at = i;
    return at;
}

/* Switches off the experts of all but the topk_group best groups. */
static void mask_groups(const nb_route_args *a, scratch *s)
{
    const size_t per = a->n_expert / a->n_group;
    for (size_t g = 0; g < a->n_group; g++) {
        double first = -INFINITY, second = -INFINITY;
        for (size_t e = g * per; e < (g + 1) * per; e++) {
            if (s->choice[e] > first) {
                second = first;
                first = s->choice[e];
            } else if (s->choice[e] > second) {
                second = s->choice[e];
            }
        }
        s->rank[g] = a->group_top == 2 && per > 1 ? first + second : first;
        s->group_on[g] = false;
    }
    for (size_t k = 0; k < a->topk_group && k < a->n_group; k++)
        s->group_on[best(s->rank, s->group_on, a->n_group)] = true;
    for (size_t e = 0; e < a->n_expert; e++) s->off[e] = !s->group_on[e / per];
}

void nb_route_c(const nb_route_args *a)
{
    scratch s;
    for (size_t t = 0; t < a->n_tok; t++) {
        uint32_t *id = a->id + t * a->top_k;
        double sum = 0;
        scores(a, a->logits + t * a->n_expert, &s);
        if (a->n_group > 1) mask_groups(a, &s);
        for (size_t k = 0; k < a->top_k; k++) {
            const size_t e = a->given ? id[k] : best(s.choice, s.off, a->n_expert);
            s.off[e] = true;
            id[k] = (uint32_t)e;
            sum += s.score[e];
        }
        const double f = a->normalise ? (double)a->factor / (sum + 1e-20) : (double)a->factor;
        for (size_t k = 0; k < a->top_k; k++)
            a->weight[t * a->top_k + k] = (float)(s.score[id[k]] * f);
    }
}
