/* linear_t_tile_avx2.h - linear_t for one type of weight; included once per type by
 * linear_<type>_avx2.c, which defines before:
 *
 *   W_TYPE          element type of the weights
 *   W_LOAD_T(p)     8 weights as float, without their scale
 *   W_TAIL_T(p, n)  the first n < 8 of them, the others 0, reading n only
 *   W_FACTOR_T(w, r, c)  what x of row r is multiplied with for columns about c; not
 *                   defined where there is none
 *   NAME_T          the function to define
 *
 * A tile is tokens x vectors of 8 columns over one chunk of rows, with x as broadcasts
 * from xb[t][NB_LINEAR_T_CHUNK_MAX]: each row of W is read in pieces of 64 columns. */
#include "kernel/linear/linear.h"
#include "kernel/linear/linear_order.h"
#include "kernel/x86/vec_avx2.h"

#ifdef W_FACTOR_T
#define FACTOR_T(x, w, r, c) ((x)*W_FACTOR_T(w, r, c))
#else
#define FACTOR_T(x, w, r, c) (x)
#endif
enum { LANE_T = 8 };
#define TOKT1(M, v) M(v, 0)
#define TOKT3(M, v) M(v, 0) M(v, 1) M(v, 2)
#define VEC1(M, t) M(t, 0)
#define VEC4(M, t) M(t, 0) M(t, 1) M(t, 2) M(t, 3)
#define VEC8(M, t) VEC4(M, t) M(t, 4) M(t, 5) M(t, 6) M(t, 7)
#define BT_DECL(t, v) __m256 b##t##v = _mm256_setzero_ps();
#define BT_X(r, t) const __m256 x##t = _mm256_broadcast_ss(xb + t * NB_LINEAR_T_CHUNK_MAX + i);
#define BT_FMA(v, t) b##t##v = _mm256_fmadd_ps(wv, x##t, b##t##v);
#define BT_COL3(t, v)                                                                              \
    {                                                                                              \
        const __m256 wv = W_LOAD_T(w + i * ws + v * LANE_T);                                       \
        TOKT3(BT_FMA, v)                                                                           \
    }
#define BT_COL1(t, v)                                                                              \
    {                                                                                              \
        const __m256 wv = W_LOAD_T(w + i * ws + v * LANE_T);                                       \
        TOKT1(BT_FMA, v)                                                                           \
    }
#define BT_ADD(t, v)                                                                               \
    _mm256_storeu_ps(total + t * ts + v * LANE_T,                                                  \
                     _mm256_add_ps(b##t##v, _mm256_loadu_ps(total + t * ts + v * LANE_T)));
#define BT_ROW(t, V) V(BT_DECL, t)

static void tile_t_3x4(const W_TYPE *w, size_t ws, const float *xb, size_t n, float *total,
                       size_t ts)
{
    VEC4(BT_DECL, 0)
    VEC4(BT_DECL, 1)
    VEC4(BT_DECL, 2) for (size_t i = 0; i < n; i++){ TOKT3(BT_X, 0) VEC4(BT_COL3, 0) } VEC4(
        BT_ADD, 0) VEC4(BT_ADD, 1) VEC4(BT_ADD, 2)
}
static void tile_t_1x8(const W_TYPE *w, size_t ws, const float *xb, size_t n, float *total,
                       size_t ts)
{
    VEC8(BT_DECL, 0)
    for (size_t i = 0; i < n; i++) {
        TOKT1(BT_X, 0)
        VEC8(BT_COL1, 0)
    }
    VEC8(BT_ADD, 0)
    (void)ts;
}
static void tile_t_1x1(const W_TYPE *w, size_t ws, const float *xb, size_t n, float *total)
{
    const size_t ts = 0;
    VEC1(BT_DECL, 0)
    for (size_t i = 0; i < n; i++) {
        TOKT1(BT_X, 0)
        VEC1(BT_COL1, 0)
    }
    VEC1(BT_ADD, 0)
}
static void tile_t_tail(const W_TYPE *w, size_t ws, const float *xb, size_t n, size_t n_c,
                        float *total)
{
    const size_t ts = 0;
    VEC1(BT_DECL, 0)
    for (size_t i = 0; i < n; i++) {
        TOKT1(BT_X, 0)
        const __m256 wv = W_TAIL_T(w + i * ws, n_c);
        TOKT1(BT_FMA, 0)
    }
    VEC1(BT_ADD, 0)
}

enum { STRIP_COL = 64, STRIP_TOK = 6 }; /* STRIP_COL divides the scale block */

/* n_c <= STRIP_COL columns from c, for n_tok <= STRIP_TOK tokens from t0. */
static void column_strip(const nb_linear_args *a, size_t c, size_t n_c, size_t t0, size_t n_tok,
                         size_t chunk)
{
    float total[STRIP_TOK * STRIP_COL], xb[STRIP_TOK * NB_LINEAR_T_CHUNK_MAX];
    const size_t ws = a->w.n_col, xs = NB_LINEAR_T_CHUNK_MAX;
    for (size_t i = 0; i < n_tok * STRIP_COL; i += LANE_T)
        _mm256_storeu_ps(total + i, _mm256_setzero_ps());
    for (size_t r = a->row_begin; r < a->row_end; r += chunk) {
        const size_t n = a->row_end - r < chunk ? a->row_end - r : chunk;
        const W_TYPE *w = (const W_TYPE *)a->w.data + r * ws + c;
        for (size_t t = 0; t < n_tok; t++) {
            const float *x = a->x + (t0 + t) * a->x_stride + (r - a->row_begin);
            for (size_t i = 0; i < n; i++) xb[t * xs + i] = FACTOR_T(x[i], &a->w, r + i, c);
        }
        for (size_t t = 0; t < n_tok;) {
            float *tt = total + t * STRIP_COL;
            const float *xt = xb + t * xs;
            const bool three = n_tok - t >= 3;
            size_t j = 0;
            for (; three && j + 32 <= n_c; j += 32) tile_t_3x4(w + j, ws, xt, n, tt + j, STRIP_COL);
            for (size_t k = 0; k < (three ? 3 : 1); k++) {
                size_t i = j;
                for (; i + 64 <= n_c; i += 64)
                    tile_t_1x8(w + i, ws, xt + k * xs, n, tt + k * STRIP_COL + i, STRIP_COL);
                for (; i + 8 <= n_c; i += 8)
                    tile_t_1x1(w + i, ws, xt + k * xs, n, tt + k * STRIP_COL + i);
                if (i < n_c)
                    tile_t_tail(w + i, ws, xt + k * xs, n, n_c - i, tt + k * STRIP_COL + i);
            }
            t += three ? 3 : 1;
        }
    }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t j = 0; j < n_c; j++)
            a->y[(t0 + t) * a->y_stride + (c - a->col_begin) + j] = total[t * STRIP_COL + j];
}

void NAME_T(const nb_linear_args *a)
{
    const size_t chunk = nb_linear_t_chunk(a->row_end - a->row_begin);
    for (size_t c = a->col_begin, n_c; c < a->col_end; c += n_c) {
        n_c = STRIP_COL - c % STRIP_COL;
        if (n_c > a->col_end - c) n_c = a->col_end - c;
        for (size_t t = 0; t < a->n_tok; t += STRIP_TOK)
            column_strip(a, c, n_c, t, a->n_tok - t < STRIP_TOK ? a->n_tok - t : STRIP_TOK, chunk);
    }
}
