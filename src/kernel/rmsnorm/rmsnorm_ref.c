/* rmsnorm_ref.c - rmsnorm as plain loops in double. */
#include "kernel/rmsnorm/rmsnorm.h"

#include <math.h>

void nb_rmsnorm_ref(const nb_rmsnorm_args *a, double *y64)
{
    for (size_t t = 0; t < a->n_row; t++) {
        const float *x = a->x + t * a->x_stride;
        double sum = 0;
        for (size_t i = 0; i < a->dim; i++) sum += (double)x[i] * (double)x[i];
        const double rms = sqrt(sum / (double)a->dim + (double)a->eps);
        for (size_t i = 0; i < a->dim; i++)
            y64[t * a->dim + i] = (double)x[i] * (double)a->w[i] / rms;
    }
}
