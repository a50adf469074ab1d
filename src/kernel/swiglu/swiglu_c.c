/* swiglu_c.c - portable swiglu.
 *
 * sigmoid(g) = 1 / (1 + z) or z / (1 + z) with z = exp(-|g|): no overflow, and
 * the result keeps its relative accuracy until z becomes subnormal (g < -87). */
#include "kernel/swiglu/swiglu.h"

#include <math.h>

void nb_swiglu_c(const nb_swiglu_args *a)
{
    for (size_t t = 0; t < a->n_tok; t++) {
        const float *gate = a->gate + t * a->in_stride, *up = a->up + t * a->in_stride;
        float *y = a->y + t * a->y_stride;
        for (size_t i = 0; i < a->dim; i++) {
            const float g = gate[i], z = expf(-fabsf(g));
            const float sigmoid = (g < 0 ? z : 1.0f) / (1.0f + z);
            y[i] = g * sigmoid * up[i];
        }
    }
}
