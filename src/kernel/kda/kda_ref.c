/* kda_ref.c - kda as plain loops in double. */
#include "kernel/kda/kda.h"

void nb_kda_ref(const nb_kda_args *a, double *y64, double *s64)
{
    for (size_t i = 0; i < a->d_k; i++)
        for (size_t j = 0; j < a->d_v; j++) s64[i * a->d_v + j] = (double)a->s[i * a->s_stride + j];
    for (size_t t = 0; t < a->n_tok; t++) {
        const float *q = a->q + t * a->qk_stride, *k = a->k + t * a->qk_stride;
        for (size_t j = 0; j < a->d_v; j++) {
            double held = 0, y = 0;
            for (size_t i = 0; i < a->d_k; i++) {
                s64[i * a->d_v + j] *= (double)a->a[t * a->a_stride + i];
                held += (double)k[i] * s64[i * a->d_v + j];
            }
            const double e =
                (double)a->beta[t * a->beta_stride] * ((double)a->v[t * a->v_stride + j] - held);
            for (size_t i = 0; i < a->d_k; i++) {
                s64[i * a->d_v + j] += (double)k[i] * e;
                y += (double)q[i] * s64[i * a->d_v + j];
            }
            y64[t * a->d_v + j] = y;
        }
    }
}
