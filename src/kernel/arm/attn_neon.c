/* attn_neon.c - attention over a tile of up to 64 tokens.
 *
 * A batch of rows (attn_rows.h) goes through three steps:
 *   scores  tiles of 4 rows x 2 tokens, dot products in 8 lanes along d (attn_scores_neon.h)
 *   weights maximum, exp, sum; per row
 *   values  tiles of 4 rows x 16 columns, one chain over the tokens; 4 loads of values and 4 of weights
 *           per 16 FMLA; STRIP columns of 64 tokens stay in the first-level cache for the batch
 * Order of a row, whatever the tiles: lanes along k1, then k2, joined pairwise; weights summed in lanes
 * t % 8; values in one chain over t from 0, added to the scaled old state.  Rows of a tile that see
 * fewer tokens stop there: tokens a row may not see never enter its sums, not even with weight 0 (they
 * may be anything).
 *
 * Bound by the FMLA, (d1 + d2 + d_v) / 4 per row and token: 35 instructions per 16 of them in the scores,
 * 26 in the values (gcc 12). */
#include "kernel/attn/attn_rows.h"

#include <math.h>

#include "kernel/arm/attn_scores_neon.h"

enum { STRIP = 64, T_MAX = NB_ATTN_TILE, NEAR = 12 };

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

/* Scores of all rows with tokens [t, t + NEAR): few enough that their keys stay in the first-level
 * cache from row to row. */
static void score_near(nb_attn_rows *b, const nb_neon_keys *k, size_t t)
{
    nb_neon_keys at = *k;
    at.k1 += t * k->k1_stride;
    if (k->d2) at.k2 += t * k->k2_stride;
    for (size_t r = 0, rows; r < b->n_row; r += rows) {
        rows = b->n_row - r >= 4 ? 4 : 1;
        size_t n = nb_attn_rows_most(b, r, rows);
        n = n < t ? 0 : n - t < NEAR ? n - t : NEAR;
        (rows == 4 ? nb_neon_scores_4 : nb_neon_scores_1)(&at, b->q + r, n, b->p[r] + t, T_MAX);
    }
}

static void run_batch(nb_attn_rows *b, const nb_attn_args *a, size_t g)
{
    const nb_neon_keys k = {
        a->k1 + g * a->k1_head, a->k2, a->k1_stride, a->k2_stride, a->d1, a->d2
    };
    const float *v = a->v + g * a->v_head;
    for (size_t t = 0; t < a->n_kv; t += NEAR) score_near(b, &k, t);
    for (size_t r = 0; r < b->n_row; r++) weights(b, r, a->scale);
    for (size_t d = 0; d < a->d_v; d += STRIP) {
        const size_t n_d = a->d_v - d < STRIP ? a->d_v - d : STRIP;
        for (size_t r = 0; r < b->n_row; r += 4)
            add_values(b, a, v, r, b->n_row - r < 4 ? b->n_row - r : 4, d, n_d);
    }
}

void nb_attn_neon(const nb_attn_args *a)
{
    nb_attn_rows_run(a, run_batch);
}
