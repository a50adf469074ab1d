/* attn_ref.c - attention over all tokens in double, in two passes. */
#include "kernel/attn/attn.h"

#include <math.h>

/* Score of token t; *abs_sum gets scale times the sum of |products|. */
static double score(const nb_attn_args *a, const float *q, size_t g, size_t t, double *abs_sum)
{
    const float *k1 = a->k1 + t * a->k1_stride + g * a->k1_head;
    const float *k2 = a->d2 ? a->k2 + t * a->k2_stride : NULL;
    double s = 0, b = 0;
    for (size_t j = 0; j < a->d1 + a->d2; j++) {
        const double p = (double)q[j] * (double)(j < a->d1 ? k1[j] : k2[j - a->d1]);
        s += p;
        b += fabs(p);
    }
    *abs_sum = b * fabs((double)a->scale);
    return s * (double)a->scale;
}

static void one(const nb_attn_args *a, size_t i, size_t h, size_t n, double *y, double *score_abs,
                double *v_max)
{
    const size_t g = h / a->group;
    const float *q = a->q + i * a->q_q_stride + h * (a->d1 + a->d2);
    double max = -INFINITY, sum = 0, b;
    for (size_t j = 0; j < a->d_v; j++) y[j] = 0;
    *score_abs = *v_max = 0;
    for (size_t t = 0; t < n; t++) {
        max = fmax(max, score(a, q, g, t, &b));
        *score_abs = fmax(*score_abs, b);
    }
    for (size_t t = 0; t < n; t++) {
        const float *v = a->v + t * a->v_stride + g * a->v_head;
        const double p = exp(score(a, q, g, t, &b) - max);
        sum += p;
        for (size_t j = 0; j < a->d_v; j++) {
            y[j] += p * (double)v[j];
            *v_max = fmax(*v_max, fabs((double)v[j]));
        }
    }
    for (size_t j = 0; j < a->d_v; j++) y[j] = n ? y[j] / sum : 0;
}

void nb_attn_ref(const nb_attn_args *a, double *y64, double *score_abs, double *v_max)
{
    const size_t n_head = a->head_end - a->head_begin;
    for (size_t i = 0; i < a->n_q; i++) {
        const size_t vis = a->vis0 + i * a->vis_step, n = vis < a->n_kv ? vis : a->n_kv;
        for (size_t h = 0; h < n_head; h++) {
            const size_t at = i * n_head + h;
            one(a, i, a->head_begin + h, n, y64 + at * a->d_v, score_abs + at, v_max + at);
        }
    }
}
