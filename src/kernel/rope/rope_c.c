/* rope_c.c - portable rope. */
#include "kernel/rope/rope.h"

void nb_rope_c(const nb_rope_args *a)
{
    const size_t half = a->dim / 2;
    const size_t step = a->interleaved ? 2 : 1, other = a->interleaved ? 1 : half;
    for (size_t t = 0; t < a->n_tok; t++) {
        const float *c = a->cos_sin + t * a->dim, *s = c + half;
        for (size_t h = 0; h < a->n_head; h++) {
            float *x = a->x + t * a->tok_stride + h * a->head_stride;
            for (size_t j = 0; j < half; j++) {
                float *p = x + j * step;
                const float u = p[0], v = p[other];
                p[0] = u * c[j] - v * s[j];
                p[other] = u * s[j] + v * c[j];
            }
        }
    }
}
