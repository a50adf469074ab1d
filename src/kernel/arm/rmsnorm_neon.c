/* rmsnorm_neon.c - rmsnorm in 16 lanes (four vectors); see rmsnorm_c.c for the accuracy.  Bound by the
 * loads: x is read twice, the weights once. */
#include "kernel/rmsnorm/rmsnorm.h"

#include <math.h>

#include "kernel/arm/vec_neon.h"

static double sum_of_squares(const float *x, size_t dim)
{
    nb_neon_f8 s = nb_neon_zero(), r = s;
    float lane[16];
    size_t i = 0;
    for (; i + 16 <= dim; i += 16) {
        const nb_neon_f8 a = nb_neon_load(x + i), b = nb_neon_load(x + i + 8);
        s = nb_neon_fma(s, a, a);
        r = nb_neon_fma(r, b, b);
    }
    if (i < dim) {
        const size_t n = dim - i;
        const nb_neon_f8 a = nb_neon_load_n(x + i, n < 8 ? n : 8);
        const nb_neon_f8 b = nb_neon_load_n(n > 8 ? x + i + 8 : x, n > 8 ? n - 8 : 0);
        s = nb_neon_fma(s, a, a);
        r = nb_neon_fma(r, b, b);
    }
    nb_neon_store(lane, s);
    nb_neon_store(lane + 8, r);
    double sum = 0;
    for (size_t j = 0; j < 16; j++) sum += (double)lane[j];
    return sum;
}

void nb_rmsnorm_neon(const nb_rmsnorm_args *a)
{
    const size_t dim = a->dim;
    for (size_t t = 0; t < a->n_row; t++) {
        const float *x = a->x + t * a->x_stride, *w = a->w;
        float *y = a->y + t * a->y_stride;
        const double mean = sum_of_squares(x, dim) / (double)dim;
        const float f = (float)(1.0 / sqrt(mean + (double)a->eps));
        size_t i = 0;
        for (; i + 4 <= dim; i += 4)
            vst1q_f32(y + i, vmulq_f32(vmulq_n_f32(vld1q_f32(x + i), f), vld1q_f32(w + i)));
        for (; i < dim; i++) y[i] = x[i] * f * w[i];
    }
}
