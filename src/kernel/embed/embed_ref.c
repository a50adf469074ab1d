/* embed_ref.c - embed in double, element by element. */
#include "kernel/embed/embed.h"

#include "kernel/linear/linear_order.h"

void nb_embed_ref(const nb_embed_args *a, double *y64)
{
    for (size_t t = 0; t < a->n_tok; t++) {
        for (size_t c = 0; c < a->w.n_col; c++) {
            float code;
            nb_weight_codes(&a->w, a->id[t], c, 1, &code);
            y64[t * a->w.n_col + c] =
                (double)code * ((double)nb_weight_scale(&a->w, a->id[t], c) * (double)a->factor);
        }
    }
}
