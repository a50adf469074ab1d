/* embed_c.c - portable embed.  The product has at most 4 + 24 + 24 significant
 * bits (FP8B) or 24 + 24: exact in double, rounded once. */
#include "kernel/embed/embed.h"

#include "kernel/linear/linear_order.h"

enum { STRIP = 64 }; /* divides the scale block */

void nb_embed_c(const nb_embed_args *a)
{
    const size_t dim = a->w.n_col;
    for (size_t t = 0; t < a->n_tok; t++) {
        float *y = a->y + t * a->y_stride, strip[STRIP];
        const size_t r = a->id[t];
        for (size_t c = 0; c < dim; c += STRIP) {
            const size_t n = dim - c < STRIP ? dim - c : STRIP;
            const double f = (double)a->factor * (double)nb_weight_scale(&a->w, r, c);
            nb_weight_codes(&a->w, r, c, n, strip);
            for (size_t i = 0; i < n; i++) y[c + i] = (float)(f * (double)strip[i]);
        }
    }
}
