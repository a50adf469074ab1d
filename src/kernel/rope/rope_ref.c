/* rope_ref.c - rope in double, not in place. */
#include "kernel/rope/rope.h"

void nb_rope_ref(const nb_rope_args *a, double *y64)
{
    const size_t half = a->dim / 2;
    for (size_t t = 0; t < a->n_tok; t++) {
        for (size_t h = 0; h < a->n_head; h++) {
            const float *x = a->x + t * a->tok_stride + h * a->head_stride;
            double *y = y64 + (t * a->n_head + h) * a->dim;
            for (size_t j = 0; j < half; j++) {
                const size_t i0 = a->interleaved ? 2 * j : j;
                const size_t i1 = a->interleaved ? 2 * j + 1 : j + half;
                const double c = (double)a->cos_sin[t * a->dim + j];
                const double s = (double)a->cos_sin[t * a->dim + half + j];
                y[i0] = (double)x[i0] * c - (double)x[i1] * s;
                y[i1] = (double)x[i0] * s + (double)x[i1] * c;
            }
        }
    }
}
