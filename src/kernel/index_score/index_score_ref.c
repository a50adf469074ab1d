/* index_score_ref.c - scores of an indexer in double. */
#include <math.h>

#include "kernel/index_score/index_score.h"

void nb_index_score_ref(const nb_index_score_args *a, const float *q, const float *w, double *s64,
                        double *abs_sum)
{
    for (size_t i = 0; i < a->n_query; i++)
        for (size_t t = 0; t < a->n_tok; t++) {
            double sum = 0, all = 0;
            for (size_t h = 0; h < a->n_head; h++) {
                double dot = 0, most = 0;
                for (size_t d = 0; d < a->dim; d++) {
                    const double p = (double)q[(i * a->n_head + h) * a->dim + d] *
                                     (double)a->k[t * a->k_stride + d];
                    dot += p;
                    most += fabs(p);
                }
                sum += (double)w[i * a->n_head + h] * (dot > 0 ? dot : 0);
                all += fabs((double)w[i * a->n_head + h]) * most;
            }
            s64[i * a->n_tok + t] = sum;
            abs_sum[i * a->n_tok + t] = all;
        }
}
