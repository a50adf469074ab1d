/* attn_score_ref.c - scores in double. */
#include <math.h>

#include "kernel/attn_score/attn_score.h"

void nb_attn_score_ref(const nb_attn_score_args *a, double *s64, double *abs_sum)
{
    for (size_t h = a->head_begin, i = 0; h < a->head_end; h++) {
        const float *q = a->q + h * (a->d1 + a->d2);
        for (size_t t = 0; t < a->n_kv; t++, i++) {
            s64[i] = abs_sum[i] = 0;
            for (size_t j = 0; j < a->d1 + a->d2; j++) {
                const float k =
                    j < a->d1 ? a->k1[t * a->k1_stride + j] : a->k2[t * a->k2_stride + j - a->d1];
                const double p = (double)q[j] * (double)k;
                s64[i] += p;
                abs_sum[i] += fabs(p);
            }
            s64[i] *= (double)a->scale;
            abs_sum[i] *= fabs((double)a->scale);
        }
    }
}
