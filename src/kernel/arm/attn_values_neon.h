/* attn_values_neon.h - weights and values of a batch of rows (attn_rows.h): what attention over a tile and over pages in
 * integers share. */
#ifndef NB_KERNEL_ATTN_VALUES_NEON_H
#define NB_KERNEL_ATTN_VALUES_NEON_H
#include <math.h>

#include "kernel/arm/vec_neon.h"
#include "kernel/attn/attn_rows.h"

enum { STRIP = 64, T_MAX = NB_ATTN_TILE };

/* Scores of row r become weights; m, l and keep of the row follow. */
static void weights(nb_attn_rows *b, size_t r, float scale)
{
    const size_t n = b->n_vis[r];
    float *p = b->p[r], lane[4], m0 = *b->m[r], m1 = m0;
    float32x4_t top = vdupq_n_f32(-INFINITY);
    for (size_t t = 0; t < n; t++) p[t] *= scale;
    for (size_t t = n; t % 8 != 0; t++) p[t] = -INFINITY; /* weights 0 */
    for (size_t t = 0; t < n; t += 4) { /* a NaN score is passed over, as in attn_c.c */
        const float32x4_t s = vld1q_f32(p + t);
        top = vbslq_f32(vcgtq_f32(s, top), s, top);
    }
    vst1q_f32(lane, top);
    for (size_t j = 0; j < 4; j++)
        if (lane[j] > m1) m1 = lane[j];
    const float32x4_t mv = vdupq_n_f32(m1);
    nb_neon_f8 sum = nb_neon_zero();
    for (size_t t = 0; t < n; t += 8) {
        const nb_neon_f8 s = nb_neon_load(p + t);
        const nb_neon_f8 w = { nb_neon_exp(vsubq_f32(s.a, mv)), nb_neon_exp(vsubq_f32(s.b, mv)) };
        nb_neon_store(p + t, w);
        sum = nb_neon_add(sum, w);
    }
    const float keep = m0 == -INFINITY ? 0 : nb_neon_exp1(m0 - m1);
    const float l = (keep != 0 ? *b->l[r] * keep : 0) + nb_neon_join(sum);
    b->keep[r] = keep;
    *b->l[r] = l;
    *b->m[r] = l == l ? m1 : NAN;
}

/* sum[row][column] += sum over t in [t0, t1) of p[row][t] v[t]: 4 rows x 16 columns, 1 row x 16. */
#define ROW1(M) M(0)
#define ROW4(M) M(0) M(1) M(2) M(3)
#define V_DECL(r)                                                                                  \
    nb_neon_f8 a##r = nb_neon_load(sum + r * STRIP), b##r = nb_neon_load(sum + r * STRIP + 8);
#define V_FMA(r)                                                                                   \
    {                                                                                              \
        const float32x4_t w = vdupq_n_f32(p[r * T_MAX + t]);                                       \
        a##r = nb_neon_fma_n(a##r, x, w);                                                          \
        b##r = nb_neon_fma_n(b##r, y, w);                                                          \
    }
#define V_PUT(r)                                                                                   \
    nb_neon_store(sum + r * STRIP, a##r);                                                          \
    nb_neon_store(sum + r * STRIP + 8, b##r);
#define VALUES(name, ROWS)                                                                         \
    static void name(const float *p, const float *v, size_t stride, size_t t0, size_t t1,          \
                     float *sum)                                                                   \
    {                                                                                              \
        ROWS(V_DECL)                                                                               \
        for (size_t t = t0; t < t1; t++) {                                                         \
            const nb_neon_f8 x = nb_neon_load(v + t * stride);                                     \
            const nb_neon_f8 y = nb_neon_load(v + t * stride + 8);                                 \
            ROWS(V_FMA)                                                                            \
        }                                                                                          \
        ROWS(V_PUT)                                                                                \
    }
VALUES(values_4, ROW4)
VALUES(values_1, ROW1)

/* The last n < 16 columns of one row. */
static void values_tail(const float *p, const float *v, size_t stride, size_t t0, size_t t1,
                        float *sum, size_t n)
{
    for (size_t t = t0; t < t1; t++)
        for (size_t j = 0; j < n; j++) sum[j] = fmaf(p[t], v[t * stride + j], sum[j]);
}

/* n_d <= STRIP columns of n rows, 1 or 4. */
static void values(const float *p, const float *v, size_t stride, size_t t0, size_t t1, float *sum,
                   size_t n, size_t n_d)
{
    size_t d = 0;
    for (; d + 16 <= n_d; d += 16)
        (n == 4 ? values_4 : values_1)(p, v + d, stride, t0, t1, sum + d);
    for (size_t r = 0; d < n_d && r < n; r++)
        values_tail(p + r * T_MAX, v + d, stride, t0, t1, sum + r * STRIP + d, n_d - d);
}

static void update_o(float *o, const float *sum, float keep, size_t n_d)
{
    const float32x4_t kv = vdupq_n_f32(keep);
    for (size_t d = 0; d < n_d; d += 8) {
        const size_t n = n_d - d < 8 ? n_d - d : 8;
        nb_neon_f8 s = nb_neon_load(sum + d);
        if (keep != 0)
            s = nb_neon_fma_n(s, n < 8 ? nb_neon_load_n(o + d, n) : nb_neon_load(o + d), kv);
        if (n < 8)
            nb_neon_store_n(o + d, s, n);
        else
            nb_neon_store(o + d, s);
    }
}

/* Rows [r, r + n) of the batch, n <= 4, columns [d, d + n_d) of v. */
static void add_values(nb_attn_rows *b, const nb_attn_args *a, const float *v, size_t r, size_t n,
                       size_t d, size_t n_d)
{
    float sum[4][STRIP] = { 0 }; /* weighted values */
    const size_t common = n == 4 ? nb_attn_rows_least(b, r, 4) : 0;
    if (n == 4) values(b->p[r], v + d, a->v_stride, 0, common, sum[0], 4, n_d);
    for (size_t i = 0; i < n; i++) {
        if (b->n_vis[r + i] > common)
            values(b->p[r + i], v + d, a->v_stride, common, b->n_vis[r + i], sum[i], 1, n_d);
        update_o(b->o[r + i] + d, sum[i], b->keep[r + i], n_d);
    }
}

/* The weighted values of all rows join their states. */
static void all_values(nb_attn_rows *b, const nb_attn_args *a, const float *v)
{
    for (size_t d = 0; d < a->d_v; d += STRIP) {
        const size_t n_d = a->d_v - d < STRIP ? a->d_v - d : STRIP;
        for (size_t r = 0; r < b->n_row; r += 4)
            add_values(b, a, v, r, b->n_row - r < 4 ? b->n_row - r : 4, d, n_d);
    }
}
#endif
