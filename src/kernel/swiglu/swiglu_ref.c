/* swiglu_ref.c - swiglu in double. */
#include "kernel/swiglu/swiglu.h"

#include <math.h>

void nb_swiglu_ref(const nb_swiglu_args *a, double *y64)
{
    for (size_t t = 0; t < a->n_tok; t++) {
        for (size_t i = 0; i < a->dim; i++) {
            const double g = (double)a->gate[t * a->in_stride + i];
            const double u = (double)a->up[t * a->in_stride + i];
            y64[t * a->dim + i] = g / (1.0 + exp(-g)) * u;
        }
    }
}
