/* rmsnorm_avx2.c - rmsnorm in 16 lanes (two vectors); see rmsnorm_c.c for the
 * accuracy.  The tail is masked: nothing beyond dim is read or written. */
#include "kernel/rmsnorm/rmsnorm.h"

#include <math.h>

#include "kernel/x86/vec_avx2.h"

static double sum_of_squares(const float *x, size_t dim)
{
    __m256 s0 = _mm256_setzero_ps(), s1 = s0;
    float lane[16];
    size_t i = 0;
    for (; i + 16 <= dim; i += 16) {
        const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
        s0 = _mm256_fmadd_ps(a, a, s0);
        s1 = _mm256_fmadd_ps(b, b, s1);
    }
    if (i < dim) {
        const size_t n = dim - i;
        const __m256 a = _mm256_maskload_ps(x + i, nb_avx2_mask(n < 8 ? n : 8));
        s0 = _mm256_fmadd_ps(a, a, s0);
        if (n > 8) {
            const __m256 b = _mm256_maskload_ps(x + i + 8, nb_avx2_mask(n - 8));
            s1 = _mm256_fmadd_ps(b, b, s1);
        }
    }
    _mm256_storeu_ps(lane, s0);
    _mm256_storeu_ps(lane + 8, s1);
    double sum = 0;
    for (size_t j = 0; j < 16; j++) sum += (double)lane[j];
    return sum;
}

void nb_rmsnorm_avx2(const nb_rmsnorm_args *a)
{
    const size_t dim = a->dim;
    const __m256i mask = nb_avx2_mask(dim % 8);
    for (size_t t = 0; t < a->n_row; t++) {
        const float *x = a->x + t * a->x_stride, *w = a->w;
        float *y = a->y + t * a->y_stride;
        const double mean = sum_of_squares(x, dim) / (double)dim;
        const __m256 f = _mm256_set1_ps((float)(1.0 / sqrt(mean + (double)a->eps)));
        size_t i = 0;
        for (; i + 8 <= dim; i += 8) {
            const __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), f);
            _mm256_storeu_ps(y + i, _mm256_mul_ps(v, _mm256_loadu_ps(w + i)));
        }
        if (i < dim) {
            const __m256 v = _mm256_mul_ps(_mm256_maskload_ps(x + i, mask), f);
            _mm256_maskstore_ps(y + i, mask, _mm256_mul_ps(v, _mm256_maskload_ps(w + i, mask)));
        }
    }
}
