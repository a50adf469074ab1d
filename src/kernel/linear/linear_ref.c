/* linear_ref.c - linear and linear_t as plain loops in double. */
#include "kernel/linear/linear.h"

#include <math.h>

#include "kernel/linear/linear_order.h"

static double weight_at(const nb_weight *w, size_t r, size_t c)
{
    float code;
    nb_weight_codes(w, r, c, 1, &code);
    return (double)code * (double)nb_weight_scale(w, r, c);
}

void nb_linear_ref(const nb_linear_args *a, double *y64, double *s64)
{
    const size_t n_row = a->row_end - a->row_begin;
    for (size_t r = 0; r < n_row; r++) {
        const size_t row = a->row_begin + r;
        for (size_t t = 0; t < a->n_tok; t++) {
            double y = a->bias ? (double)a->bias[row] : 0, s = fabs(y);
            for (size_t c = 0; c < a->w.n_col; c++) {
                const double term = (double)a->x[t * a->x_stride + c] * weight_at(&a->w, row, c);
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
    for (size_t c = 0; c < n_col; c++) {
        const size_t col = a->col_begin + c;
        for (size_t t = 0; t < a->n_tok; t++) {
            double y = 0, s = 0;
            for (size_t r = a->row_begin; r < a->row_end; r++) {
                const double x = (double)a->x[t * a->x_stride + (r - a->row_begin)];
                const double term = x * weight_at(&a->w, r, col);
                y += term;
                s += fabs(term);
            }
            y64[t * n_col + c] = y;
            s64[t * n_col + c] = s;
        }
    }
}
