/* linear_int8_c.c - portable products with INT8 weights; linear_int8.h has the rule. */
#include <math.h>

#include "kernel/linear/linear_int8.h"

enum { BLOCK = 512 }; /* BLOCK: sums of so many products fit 32 bits */

size_t nb_linear_int8_pack_bytes(size_t n_tok, size_t n_col)
{
    const size_t bytes = n_tok * (nb_int8_stride(n_col) * sizeof(int16_t) + sizeof(float));
    return (bytes + 63) / 64 * 64;
}

/* max |x|, NaN if a value is NaN or infinite. */
static float abs_max(const float *x, size_t n)
{
    float m = 0;
    for (size_t i = 0; i < n; i++) {
        const float v = fabsf(x[i]);
        if (!(v <= 0x1.fffffep127f)) return NAN;
        if (v > m) m = v;
    }
    return m;
}

void nb_linear_int8_pack_c(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                           const uint32_t *column, size_t tok0, size_t tok1)
{
    (void)column;
    const size_t stride = nb_int8_stride(n_col);
    int16_t *q = xp;
    float *sx = (float *)(void *)(q + n_tok * stride);
    for (size_t t = tok0; t < tok1; t++) {
        const float *row = x + t * x_stride, m = abs_max(row, n_col);
        const bool some = m >= NB_INT8_X_MIN;
        const float inv = some ? NB_INT8_X_MAX / m : 0;
        for (size_t c = 0; c < stride; c++)
            q[t * stride + c] = c < n_col && some ? (int16_t)lrintf(row[c] * inv) : 0;
        sx[t] = some ? m / NB_INT8_X_MAX : m != m ? m : 0;
    }
}

void nb_linear_int8_c(const nb_linear_args *a)
{
    const size_t n_col = a->w.n_col;
    const float *sx = nb_int8_sx(a->xp, a->n_tok, n_col);
    for (size_t r = a->row_begin; r < a->row_end; r++) {
        const int8_t *w = (const int8_t *)a->w.data + r * n_col;
        for (size_t t = 0; t < a->n_tok; t++) {
            const int16_t *q = nb_int8_q(a->xp, n_col, t);
            int64_t sum = 0;
            for (size_t c0 = 0; c0 < n_col; c0 += BLOCK) {
                const size_t n = n_col - c0 < BLOCK ? n_col - c0 : BLOCK;
                int32_t part = 0;
                for (size_t c = 0; c < n; c++) part += q[c0 + c] * w[c0 + c];
                sum += part;
            }
            const float y = nb_int8_finish(sum, a->w.scale[r], sx[t]);
            a->y[t * a->y_stride + (r - a->row_begin)] = a->bias ? y + a->bias[r] : y;
        }
    }
}
