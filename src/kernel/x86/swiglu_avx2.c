/* swiglu_avx2.c - swiglu with the exp of vec_avx2.h; same form as swiglu_c.c. */
#include "kernel/swiglu/swiglu.h"

#include "kernel/x86/vec_avx2.h"

static inline __m256 swiglu(__m256 g, __m256 u)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
    const __m256 z = nb_avx2_exp(_mm256_or_ps(g, sign)); /* exp(-|g|) */
    const __m256 top = _mm256_blendv_ps(one, z, g);      /* by the sign of g */
    const __m256 sigmoid = _mm256_div_ps(top, _mm256_add_ps(one, z));
    return _mm256_mul_ps(_mm256_mul_ps(g, sigmoid), u);
}

void nb_swiglu_avx2(const nb_swiglu_args *a)
{
    const size_t dim = a->dim;
    const __m256i mask = nb_avx2_mask(dim % 8);
    for (size_t t = 0; t < a->n_tok; t++) {
        const float *gate = a->gate + t * a->in_stride, *up = a->up + t * a->in_stride;
        float *y = a->y + t * a->y_stride;
        size_t i = 0;
        for (; i + 8 <= dim; i += 8)
            _mm256_storeu_ps(y + i, swiglu(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
        if (i < dim)
            _mm256_maskstore_ps(
                y + i, mask,
                swiglu(_mm256_maskload_ps(gate + i, mask), _mm256_maskload_ps(up + i, mask)));
    }
}
