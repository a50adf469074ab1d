/* attn_math.c - see attn_math.h.  Plain loops with constant inner counts, which compilers turn
 * into vectors without being allowed to reorder a sum. */
#include "quality/attn_math.h"

#include <math.h>
#include <string.h>

enum { LANES = 8, TILE = 64 };

double nb_attn_dot(const float *a, const float *b, size_t n)
{
    double acc[LANES] = { 0 }, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++) acc[j] += (double)a[i + j] * b[i + j];
    for (; i < n; i++) sum += (double)a[i] * b[i];
    for (size_t j = 0; j < LANES; j++) sum += acc[j];
    return sum;
}

nb_attn_head nb_attn_head_of(const nb_capture_layer *l, size_t h)
{
    if (l->is_mla) return (nb_attn_head){ 0, l->d_q, 0, l->dim[0] };
    const size_t g = h / (l->n_head / l->n_kv_head);
    return (nb_attn_head){ g * l->dim[0], l->dim[0], l->n_vec[0] * l->dim[0] + g * l->dim[1],
                           l->dim[1] };
}
size_t nb_attn_sum_width(const nb_capture_layer *l)
{
    return l->is_mla ? l->dim[0] : l->dim[1];
}
size_t nb_attn_out_width(const nb_capture_layer *l)
{
    return l->w_uv ? l->d_v : nb_attn_sum_width(l);
}

void nb_attn_scores(const nb_capture_layer *l, const float *q, const float *rows, size_t n,
                    double *s, size_t ld)
{
    for (size_t t0 = 0; t0 < n; t0 += TILE) {
        const size_t t1 = t0 + TILE < n ? t0 + TILE : n;
        for (size_t h = 0; h < l->n_head; h++) {
            const nb_attn_head at = nb_attn_head_of(l, h);
            const float *qh = q + h * l->d_q;
            for (size_t t = t0; t < t1; t++) {
                const float *k = rows + t * l->n_values + at.key;
                s[h * ld + t] = (double)l->scale * nb_attn_dot(qh, k, at.d_key);
            }
        }
    }
}

void nb_attn_axpy(double w, const float *v, size_t d, double *acc)
{
    size_t i = 0;
    for (; i + LANES <= d; i += LANES)
        for (size_t j = 0; j < LANES; j++) acc[i + j] += w * v[i + j];
    for (; i < d; i++) acc[i] += w * v[i];
}

void nb_attn_add(const nb_capture_layer *l, const double *w, size_t ld, const float *rows, size_t n,
                 double *acc)
{
    const size_t d = nb_attn_sum_width(l), stride = l->n_values;
    for (size_t t0 = 0; t0 < n; t0 += TILE) {
        const size_t n_t = t0 + TILE < n ? TILE : n - t0;
        for (size_t h = 0; h < l->n_head; h++) {
            const float *v = rows + t0 * stride + nb_attn_head_of(l, h).value;
            const double *wh = w + h * ld + t0;
            double *to = acc + h * d;
            for (size_t t = 0; t < n_t; t++) nb_attn_axpy(wh[t], v + t * stride, d, to);
        }
    }
}

void nb_attn_exp(double *s, size_t n, double *max, double *sum)
{
    double top = -INFINITY, total = 0;
    for (size_t t = 0; t < n; t++) top = s[t] > top ? s[t] : top;
    for (size_t t = 0; t < n; t++) {
        s[t] = exp(s[t] - top);
        total += s[t];
    }
    *max = top;
    *sum = total;
}

void nb_attn_project(const nb_capture_layer *l, size_t h, const double *u, double *out)
{
    const size_t d = nb_attn_sum_width(l);
    if (!l->w_uv) {
        memcpy(out, u, d * sizeof *out);
        return;
    }
    const float *w = l->w_uv + h * l->d_v * d;
    for (size_t v = 0; v < l->d_v; v++, w += d) {
        double acc[LANES] = { 0 }, sum = 0;
        size_t i = 0;
        for (; i + LANES <= d; i += LANES)
            for (size_t j = 0; j < LANES; j++) acc[j] += w[i + j] * u[i + j];
        for (; i < d; i++) sum += w[i] * u[i];
        for (size_t j = 0; j < LANES; j++) sum += acc[j];
        out[v] = sum;
    }
}
