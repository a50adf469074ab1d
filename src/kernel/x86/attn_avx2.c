/* attn_avx2.c - attention over a tile of up to 64 tokens.
 *
 * A batch of rows (attn_rows.h) goes through three steps:
 *   scores  tiles of 4 rows x 3 tokens, dot products in 8 lanes along d
 *   weights maximum, exp, sum; per row
 *   values  tiles of 4 rows x 2 vectors of 8 columns, one chain over the tokens
 * so that a key or value is loaded once for 4 rows and a query once for 3 tokens.
 * Order of a row, whatever the tiles: lanes along k1, then k2, joined pairwise;
 * weights summed in lanes t % 8; values in one chain over t from 0, added to the
 * scaled old state.  Rows of a tile that see fewer tokens stop there: tokens a row
 * may not see never enter its sums, not even with weight 0 (they may be anything).
 *
 * Bound by the FMA units: (d1 + d2 + d_v) / 8 FMA per row and token. */
#include "kernel/attn/attn_rows.h"

#include <math.h>

#include "kernel/x86/attn_scores_avx2.h"

enum { STRIP = 64, T_MAX = NB_ATTN_TILE };

/* Scores of row r become weights; m, l and keep of the row follow. */
static void weights(nb_attn_rows *b, size_t r, float scale)
{
    const size_t n = b->n_vis[r];
    const __m256 sv = _mm256_set1_ps(scale), none = _mm256_set1_ps(-INFINITY);
    float *p = b->p[r], lane[8], m0 = *b->m[r], m1 = m0;
    __m256 top = none, sum = _mm256_setzero_ps();
    for (size_t t = 0; t < n; t += 8) {
        const __m256 in = _mm256_castsi256_ps(nb_avx2_mask(n - t < 8 ? n - t : 8));
        const __m256 s = _mm256_blendv_ps(none, _mm256_mul_ps(_mm256_load_ps(p + t), sv), in);
        _mm256_store_ps(p + t, s);
        top = _mm256_max_ps(s, top); /* a NaN score is passed over, as in the portable code */
    }
    _mm256_storeu_ps(lane, top);
    for (size_t j = 0; j < 8; j++)
        if (lane[j] > m1) m1 = lane[j];
    const __m256 mv = _mm256_set1_ps(m1);
    for (size_t t = 0; t < n; t += 8) {
        const __m256 in = _mm256_castsi256_ps(nb_avx2_mask(n - t < 8 ? n - t : 8));
        const __m256 e = nb_avx2_exp(_mm256_sub_ps(_mm256_load_ps(p + t), mv));
        const __m256 w = _mm256_and_ps(e, in);
        _mm256_store_ps(p + t, w);
        sum = _mm256_add_ps(sum, w);
    }
    const float keep = m0 == -INFINITY ? 0 : _mm256_cvtss_f32(nb_avx2_exp(_mm256_set1_ps(m0 - m1)));
    const float l = (keep != 0 ? *b->l[r] * keep : 0) + nb_avx2_join(sum);
    b->keep[r] = keep;
    *b->l[r] = l;
    *b->m[r] = l == l ? m1 : NAN;
}

/* Tiles of values: sum[row][column] += sum over t in [t0, t1) of p[row][t] v[t]. */
#define VEC1(M, r) M(r, 0)
#define VEC2(M, r) M(r, 0) M(r, 1)
#define VEC8(M, r) VEC2(M, r) M(r, 2) M(r, 3) M(r, 4) M(r, 5) M(r, 6) M(r, 7)
#define S_LOAD(r, v) __m256 a##r##v = _mm256_load_ps(sum + r * STRIP + v * 8);
#define S_LOAD_ROW(r, V) V(S_LOAD, r)
#define S_STORE(r, v) _mm256_store_ps(sum + r * STRIP + v * 8, a##r##v);
#define S_STORE_ROW(r, V) V(S_STORE, r)
#define V_LOAD(r, c) const __m256 v##c = _mm256_loadu_ps(v + t * vs + c * 8);
#define V_TAIL(r, c) const __m256 v##c = _mm256_maskload_ps(v + t * vs + c * 8, mask);
#define V_FMA(r, c) a##r##c = _mm256_fmadd_ps(pv, v##c, a##r##c);
#define V_ROW(r, V)                                                                                \
    {                                                                                              \
        const __m256 pv = _mm256_broadcast_ss(p + r * T_MAX + t);                                  \
        V(V_FMA, r)                                                                                \
    }
#define VALUES(name, ROWS, VECS, LOAD)                                                             \
    static void name(const float *p, const float *v, size_t vs, size_t t0, size_t t1, float *sum,  \
                     __m256i mask)                                                                 \
    {                                                                                              \
        ROWS(S_LOAD_ROW, VECS)                                                                     \
        for (size_t t = t0; t < t1; t++) {                                                         \
            VECS(LOAD, 0)                                                                          \
            ROWS(V_ROW, VECS)                                                                      \
        }                                                                                          \
        ROWS(S_STORE_ROW, VECS)                                                                    \
        (void)mask;                                                                                \
    }
VALUES(values_4x2, ROW4, VEC2, V_LOAD)
VALUES(values_4x1, ROW4, VEC1, V_LOAD)
VALUES(values_4xm, ROW4, VEC1, V_TAIL)
VALUES(values_1x8, ROW1, VEC8, V_LOAD)
VALUES(values_1x1, ROW1, VEC1, V_LOAD)
VALUES(values_1xm, ROW1, VEC1, V_TAIL)

static void values_4(const float *p, const float *v, size_t vs, size_t t0, size_t t1, float *sum,
                     size_t n_d)
{
    const __m256i mask = nb_avx2_mask(n_d % 8);
    size_t d = 0;
    for (; d + 16 <= n_d; d += 16) values_4x2(p, v + d, vs, t0, t1, sum + d, mask);
    for (; d + 8 <= n_d; d += 8) values_4x1(p, v + d, vs, t0, t1, sum + d, mask);
    if (d < n_d) values_4xm(p, v + d, vs, t0, t1, sum + d, mask);
}

static void values_1(const float *p, const float *v, size_t vs, size_t t0, size_t t1, float *sum,
                     size_t n_d)
{
    const __m256i mask = nb_avx2_mask(n_d % 8);
    size_t d = 0;
    for (; d + 64 <= n_d; d += 64) values_1x8(p, v + d, vs, t0, t1, sum + d, mask);
    for (; d + 8 <= n_d; d += 8) values_1x1(p, v + d, vs, t0, t1, sum + d, mask);
    if (d < n_d) values_1xm(p, v + d, vs, t0, t1, sum + d, mask);
}

static void update_o(float *o, const float *sum, float keep, size_t n_d)
{
    const __m256 kv = _mm256_set1_ps(keep);
    for (size_t d = 0; d < n_d; d += 8) {
        const __m256i mask = nb_avx2_mask(n_d - d < 8 ? n_d - d : 8);
        __m256 s = _mm256_load_ps(sum + d);
        if (keep != 0) s = _mm256_fmadd_ps(_mm256_maskload_ps(o + d, mask), kv, s);
        _mm256_maskstore_ps(o + d, mask, s);
    }
}

/* Rows [r, r + n) of the batch, n <= 4, columns [d, d + n_d) of v. */
static void add_values(nb_attn_rows *b, const nb_attn_args *a, const float *v, size_t r, size_t n,
                       size_t d, size_t n_d)
{
    _Alignas(32) float sum[4][STRIP]; /* weighted values */
    const size_t common = n == 4 ? nb_attn_rows_least(b, r, 4) : 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < STRIP; j += 8) _mm256_store_ps(sum[i] + j, _mm256_setzero_ps());
    if (n == 4) values_4(b->p[r], v + d, a->v_stride, 0, common, sum[0], n_d);
    for (size_t i = 0; i < n; i++) {
        if (b->n_vis[r + i] > common)
            values_1(b->p[r + i], v + d, a->v_stride, common, b->n_vis[r + i], sum[i], n_d);
        update_o(b->o[r + i] + d, sum[i], b->keep[r + i], n_d);
    }
}

static void run_batch(nb_attn_rows *b, const nb_attn_args *a, size_t g)
{
    const nb_avx2_keys k = {
        a->k1 + g * a->k1_head, a->k2, a->k1_stride, a->k2_stride, a->d1, a->d2
    };
    const float *v = a->v + g * a->v_head;
    for (size_t r = 0; r < b->n_row;) {
        const bool four = b->n_row - r >= 4;
        const size_t n = nb_attn_rows_most(b, r, four ? 4 : 1);
        (four ? nb_avx2_scores_4 : nb_avx2_scores_1)(&k, b->q + r, n, b->p[r], T_MAX);
        r += four ? 4 : 1;
    }
    for (size_t r = 0; r < b->n_row; r++) weights(b, r, a->scale);
    for (size_t d = 0; d < a->d_v; d += STRIP) {
        const size_t n_d = a->d_v - d < STRIP ? a->d_v - d : STRIP;
        for (size_t r = 0; r < b->n_row; r += 4)
            add_values(b, a, v, r, b->n_row - r < 4 ? b->n_row - r : 4, d, n_d);
    }
}

void nb_attn_avx2(const nb_attn_args *a)
{
    nb_attn_rows_run(a, run_batch);
}
