/* attn_c.c - portable attention over one tile, and the joining of states (which
 * is the same code for every instruction set).
 *
 * Order of one (query, head): a score is two 8-lane dot products in one set of
 * lanes (k1 then k2; lanes joined pairwise); the sum of weights runs in 8 lanes
 * over t % 8; the sum of weighted values is one chain over t, added to the scaled
 * old state at the end. */
#include "kernel/attn/attn.h"

#include <math.h>

#include "kernel/attn/attn_order.h"

enum { LANE = NB_ATTN_LANE };

/* One query of one head: scores of n tokens into s, returns their maximum. */
static float scores(const nb_attn_args *a, const float *q, size_t g, size_t n, float *s)
{
    float max = -INFINITY;
    for (size_t t = 0; t < n; t++) {
        const float *k2 = a->d2 ? a->k2 + t * a->k2_stride : NULL;
        s[t] =
            nb_attn_dot(q, a->k1 + t * a->k1_stride + g * a->k1_head, a->d1, k2, a->d2) * a->scale;
        if (s[t] > max) max = s[t];
    }
    return max;
}

/* o = o * keep + sum_t p[t] v[t]; o is only written when keep is 0. */
static void add_values(const nb_attn_args *a, float *o, float keep, const float *p, size_t g,
                       size_t n)
{
    enum { STRIP = 64 };
    float sum[STRIP];
    for (size_t d = 0; d < a->d_v; d += STRIP) {
        const size_t n_d = a->d_v - d < STRIP ? a->d_v - d : STRIP;
        for (size_t j = 0; j < n_d; j++) sum[j] = 0;
        for (size_t t = 0; t < n; t++) {
            const float *v = a->v + t * a->v_stride + g * a->v_head + d;
            for (size_t j = 0; j < n_d; j++) sum[j] += p[t] * v[j];
        }
        for (size_t j = 0; j < n_d; j++) o[d + j] = keep != 0 ? o[d + j] * keep + sum[j] : sum[j];
    }
}

static void one(const nb_attn_args *a, size_t i, size_t h, size_t n)
{
    const size_t g = h / a->group;
    float *m = a->m + i * a->ml_q_stride + h, *l = a->l + i * a->ml_q_stride + h;
    float *o = a->o + i * a->o_q_stride + h * a->d_v, p[NB_ATTN_TILE], lane[LANE] = { 0 };
    const float *q = a->q + i * a->q_q_stride + h * (a->d1 + a->d2);
    const float max = scores(a, q, g, n, p), m1 = max > *m ? max : *m;
    const float keep = *m == -INFINITY ? 0 : expf(*m - m1);
    for (size_t t = 0; t < n; t++) {
        p[t] = expf(p[t] - m1);
        lane[t % LANE] += p[t];
    }
    add_values(a, o, keep, p, g, n);
    *l = (keep != 0 ? *l * keep : 0) + nb_attn_join_lanes(lane);
    *m = *l == *l ? m1 : NAN; /* so that later tiles do not take the state for an empty one */
}

void nb_attn_c(const nb_attn_args *a)
{
    for (size_t i = 0; i < a->n_q; i++) {
        const size_t vis = a->vis0 + i * a->vis_step, n = vis < a->n_kv ? vis : a->n_kv;
        if (n == 0) continue;
        for (size_t h = a->head_begin; h < a->head_end; h++) one(a, i, h, n);
    }
}

void nb_attn_merge(float *o, float *m, float *l, const float *o2, const float *m2, const float *l2,
                   size_t n_head, size_t d_v)
{
    for (size_t h = 0; h < n_head; h++) {
        if (m2[h] == -INFINITY) continue; /* an empty range */
        const float m1 = m2[h] > m[h] ? m2[h] : m[h];
        const bool empty = m[h] == -INFINITY;
        const float c1 = empty ? 0 : expf(m[h] - m1), c2 = expf(m2[h] - m1);
        for (size_t i = h * d_v; i < (h + 1) * d_v; i++)
            o[i] = empty ? o2[i] * c2 : o[i] * c1 + o2[i] * c2;
        l[h] = empty ? l2[h] * c2 : l[h] * c1 + l2[h] * c2;
        m[h] = m1;
    }
}

void nb_attn_finish(float *y, const float *o, const float *l, size_t n_head, size_t d_v)
{
    for (size_t h = 0; h < n_head; h++)
        for (size_t i = h * d_v; i < (h + 1) * d_v; i++) y[i] = l[h] != 0 ? o[i] / l[h] : 0;
}
