/* linear_ref.c - linear and linear_t as plain loops in double. */
#include "kernel/linear/linear.h"

#include <math.h>

#include "kernel/linear/linear_order.h"

enum { STRIP = NB_PACKED_CHUNK };

/* Weights [c, c + STRIP) of a row, of which the first n exist.  A packed type is read by whole blocks. */
static void strip_at(const nb_weight *w, size_t r, size_t c, size_t n, double *out)
{
    float code[STRIP];
    nb_weight_codes(w, r, c, n, code);
    for (size_t i = 0; i < n; i++) out[i] = (double)code[i] * (double)nb_weight_scale(w, r, c + i);
}

void nb_linear_ref(const nb_linear_args *a, double *y64, double *s64)
{
    const size_t n_row = a->row_end - a->row_begin;
    for (size_t r = 0; r < n_row; r++) {
        const size_t row = a->row_begin + r;
        for (size_t t = 0; t < a->n_tok; t++) {
            double y = a->bias ? (double)a->bias[row] : 0, s = fabs(y), w[STRIP];
            for (size_t c = 0; c < a->w.n_col; c++) {
                const size_t left = a->w.n_col - c;
                if (c % STRIP == 0) strip_at(&a->w, row, c, left < STRIP ? left : STRIP, w);
                const double term = (double)a->x[t * a->x_stride + c] * w[c % STRIP];
                y += term;
                s += fabs(term);
            }
            y64[t * n_row + r] = y;
            s64[t * n_row + r] = s;
        }
    }
}

void nb_linear_t_ref(const nb_linear_args *a, double *y64, double *s64)
{
    const size_t n_col = a->col_end - a->col_begin;
    for (size_t i = 0; i < a->n_tok * n_col; i++) y64[i] = s64[i] = 0;
    for (size_t r = a->row_begin; r < a->row_end; r++) {
        double w[STRIP];
        for (size_t c = a->col_begin; c < a->col_end; c++) {
            const size_t at = c % STRIP, left = a->w.n_col - (c - at);
            if (c == a->col_begin || at == 0) strip_at(&a->w, r, c - at, left < STRIP ? left : STRIP, w);
            for (size_t t = 0; t < a->n_tok; t++) {
                const double x = (double)a->x[t * a->x_stride + (r - a->row_begin)];
                y64[t * n_col + (c - a->col_begin)] += x * w[at];
                s64[t * n_col + (c - a->col_begin)] += fabs(x * w[at]);
            }
        }
    }
}
