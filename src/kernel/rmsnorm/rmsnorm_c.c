/* rmsnorm_c.c - portable rmsnorm.
 *
 * The sum of squares runs in 16 lanes that are joined in double, and the factor
 * 1 / sqrt(mean + eps) is rounded once, so that an output sees half of
 * (dim/16 + 1) roundings of the sum, one of the factor and two of the products:
 * dim/32 + 3.5 <= 4 + dim/16 for every dim. */
#include "kernel/rmsnorm/rmsnorm.h"

#include <math.h>

enum { LANE = 16 };

void nb_rmsnorm_c(const nb_rmsnorm_args *a)
{
    const size_t dim = a->dim;
    for (size_t t = 0; t < a->n_row; t++) {
        const float *x = a->x + t * a->x_stride, *w = a->w;
        float *y = a->y + t * a->y_stride, lane[LANE] = { 0 };
        size_t i = 0;
        for (; i + LANE <= dim; i += LANE)
            for (size_t j = 0; j < LANE; j++) lane[j] += x[i + j] * x[i + j];
        for (size_t j = 0; i + j < dim; j++) lane[j] += x[i + j] * x[i + j];
        double sum = 0;
        for (size_t j = 0; j < LANE; j++) sum += (double)lane[j];
        const float f = (float)(1.0 / sqrt(sum / (double)dim + (double)a->eps));
        for (i = 0; i < dim; i++) y[i] = x[i] * f * w[i];
    }
}
