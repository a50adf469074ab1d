/* attn_prefill_ref.c - expanded attention over all tiles in double, in two passes. */
#include "kernel/attn_prefill/attn_prefill.h"

#include <math.h>

typedef struct ctx {
    const nb_attn_prefill_args *a;
    const nb_attn_prefill_tile *tile;
    size_t n_tok; /* that the query sees */
} ctx;

/* Score of token t; *abs_sum gets scale times the sum of |products|. */
static double score(const ctx *x, const float *q, size_t t, double *abs_sum)
{
    const nb_attn_prefill_dims *d = &x->a->d;
    const nb_attn_prefill_tile *tile = &x->tile[t / NB_PREFILL_TILE];
    const size_t row = t % NB_PREFILL_TILE;
    const float *k1 = tile->k1 + row * tile->k1_stride;
    const float *k2 = d->d2 ? tile->k2 + row * tile->k2_stride : NULL;
    double s = 0, b = 0;
    for (size_t j = 0; j < d->d1 + d->d2; j++) {
        const double p = (double)q[j] * (double)(j < d->d1 ? k1[j] : k2[j - d->d1]);
        s += p;
        b += fabs(p);
    }
    *abs_sum = b * fabs((double)x->a->scale);
    return s * (double)x->a->scale;
}

static void one(const ctx *x, const float *q, double *y, double *score_abs, double *v_max)
{
    const size_t d_v = x->a->d.d_v;
    double max = -INFINITY, sum = 0, b;
    for (size_t j = 0; j < d_v; j++) y[j] = 0;
    *score_abs = *v_max = 0;
    for (size_t t = 0; t < x->n_tok; t++) {
        max = fmax(max, score(x, q, t, &b));
        *score_abs = fmax(*score_abs, b);
    }
    for (size_t t = 0; t < x->n_tok; t++) {
        const nb_attn_prefill_tile *tile = &x->tile[t / NB_PREFILL_TILE];
        const float *v = tile->v + t % NB_PREFILL_TILE * tile->v_stride;
        const double p = exp(score(x, q, t, &b) - max);
        sum += p;
        for (size_t j = 0; j < d_v; j++) {
            y[j] += p * (double)v[j];
            *v_max = fmax(*v_max, fabs((double)v[j]));
        }
    }
    for (size_t j = 0; j < d_v; j++) y[j] = x->n_tok ? y[j] / sum : 0;
}

void nb_attn_prefill_ref(const nb_attn_prefill_args *a, const float *q, size_t q_stride,
                         const nb_attn_prefill_tile *tile, double *y64, double *score_abs,
                         double *v_max)
{
    for (size_t i = 0; i < a->n_q; i++) {
        const size_t vis = a->vis0 + i * a->vis_step;
        const size_t last = vis < a->last_tok ? vis : a->last_tok;
        const ctx x = { a, tile, (a->n_tile - 1) * NB_PREFILL_TILE + last };
        one(&x, q + i * q_stride, y64 + i * a->d.d_v, score_abs + i, v_max + i);
    }
}
