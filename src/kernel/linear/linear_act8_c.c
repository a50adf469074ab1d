/* linear_act8_c.c - activations in 8 bits and INT8 weights, portable: linear_act8.h as it stands. */
#include "kernel/linear/linear_act8.h"

#include <math.h>
#include <string.h>

size_t nb_linear_act8_pack_bytes(size_t n_tok, size_t n_col)
{
    return n_tok * (nb_act8_stride(n_col) + 2 * nb_act8_groups(n_col) * sizeof(float));
}

/* n <= NB_ACT8_GROUP values of a row from column c on. */
static void pack_group(const float *x, const uint32_t *column, size_t c, size_t n, int8_t *q, float *s,
                       int32_t *z)
{
    float v[NB_ACT8_GROUP] = { 0 }, a = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        v[i] = x[column ? column[c + i] : c + i];
        finite &= (bool)isfinite(v[i]);
        if (fabsf(v[i]) > a) a = fabsf(v[i]);
    }
    const bool zero = !finite || a < NB_ACT8_MIN;
    const float inv = zero ? 0 : NB_ACT8_MAX / a;
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t k = zero ? 0 : (int32_t)lrintf(v[i] * inv);
        q[i] = (int8_t)k;
        sum += k;
    }
    *s = !finite ? NAN : zero ? 0 : a / NB_ACT8_MAX;
    *z = -128 * sum;
}

void nb_linear_act8_pack_c(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                           const uint32_t *column, size_t tok0, size_t tok1)
{
    const size_t stride = nb_act8_stride(n_col), n_group = nb_act8_groups(n_col);
    int8_t *q = (int8_t *)xp;
    float *s = (float *)(void *)(q + n_tok * stride);
    int32_t *z = (int32_t *)(void *)(s + n_tok * n_group);
    for (size_t t = tok0; t < tok1; t++) {
        memset(q + t * stride, 0, stride);
        memset(s + t * n_group, 0, n_group * sizeof *s);
        memset(z + t * n_group, 0, n_group * sizeof *z);
        for (size_t c = 0, g = t * n_group; c < n_col; c += NB_ACT8_GROUP, g++)
            pack_group(x + t * x_stride, column, c, n_col - c < NB_ACT8_GROUP ? n_col - c : NB_ACT8_GROUP,
                       q + t * stride + c, s + g, z + g);
    }
}

void nb_linear_int8_act8_c(const nb_linear_args *a)
{
    const size_t n_col = a->w.n_col, n_group = nb_act8_groups(n_col);
    for (size_t r = a->row_begin; r < a->row_end; r++) {
        const int8_t *w = (const int8_t *)a->w.data + r * n_col;
        for (size_t t = 0; t < a->n_tok; t++) {
            const int8_t *q = nb_act8_q(a->xp, n_col, t);
            const float *s = nb_act8_s(a->xp, a->n_tok, n_col) + t * n_group;
            float acc = 0;
            for (size_t c = 0; c < n_col; s++) {
                int32_t sum = 0;
                const size_t end = n_col - c < NB_ACT8_GROUP ? n_col : c + NB_ACT8_GROUP;
                for (; c < end; c++) sum += q[c] * w[c];
                acc = fmaf((float)sum, *s, acc);
            }
            acc *= a->w.scale[r];
            a->y[t * a->y_stride + (r - a->row_begin)] = a->bias ? acc + a->bias[r] : acc;
        }
    }
}
