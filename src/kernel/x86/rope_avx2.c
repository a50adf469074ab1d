/* rope_avx2.c - rope, 4 pairs (interleaved) or 8 pairs (half-split) at a time; the
 * pairs that are left over go one by one. */
#include "kernel/rope/rope.h"

#include "kernel/x86/vec_avx2.h"

static void interleaved(float *x, const float *c, const float *s, size_t half)
{
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    size_t j = 0;
    for (; j + 4 <= half; j += 4) {
        const __m256 v = _mm256_loadu_ps(x + 2 * j), swapped = _mm256_permute_ps(v, 0xb1);
        const __m256 cos =
            _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(c + j)), twice);
        const __m256 sin =
            _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(s + j)), twice);
        /* even lanes: a cos - b sin, odd lanes: b cos + a sin */
        _mm256_storeu_ps(x + 2 * j, _mm256_fmaddsub_ps(v, cos, _mm256_mul_ps(swapped, sin)));
    }
    for (; j < half; j++) {
        const float a = x[2 * j], b = x[2 * j + 1];
        x[2 * j] = a * c[j] - b * s[j];
        x[2 * j + 1] = a * s[j] + b * c[j];
    }
}

static void half_split(float *x, const float *c, const float *s, size_t half)
{
    float *y = x + half;
    size_t j = 0;
    for (; j + 8 <= half; j += 8) {
        const __m256 a = _mm256_loadu_ps(x + j), b = _mm256_loadu_ps(y + j);
        const __m256 cos = _mm256_loadu_ps(c + j), sin = _mm256_loadu_ps(s + j);
        _mm256_storeu_ps(x + j, _mm256_fmsub_ps(a, cos, _mm256_mul_ps(b, sin)));
        _mm256_storeu_ps(y + j, _mm256_fmadd_ps(a, sin, _mm256_mul_ps(b, cos)));
    }
    for (; j < half; j++) {
        const float a = x[j], b = y[j];
        x[j] = a * c[j] - b * s[j];
        y[j] = a * s[j] + b * c[j];
    }
}

void nb_rope_avx2(const nb_rope_args *a)
{
    const size_t half = a->dim / 2;
    for (size_t t = 0; t < a->n_tok; t++) {
        const float *c = a->cos_sin + t * a->dim;
        for (size_t h = 0; h < a->n_head; h++) {
            float *x = a->x + t * a->tok_stride + h * a->head_stride;
            if (a->interleaved)
                interleaved(x, c, c + half, half);
            else
                half_split(x, c, c + half, half);
        }
    }
}
