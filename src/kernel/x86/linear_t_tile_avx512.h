/* linear_t_tile_avx512.h - linear_t for one type of weight; included once per type by
 * linear_<type>_avx512.c, which defines before:
 *
 *   WT_TYPE            element type of the weights
 *   WT_LOAD(p)         16 weights as float (FP8B: without their scale, times 2^-8)
 *   WT_TAIL(p, mask)   those in the mask, the others 0, reading them only
 *   WT_FACTOR          what a block's scale is multiplied with (FP8B: 2^8); 0: no scales
 *   NAME_T             the function to define
 *
 * A strip of 64 columns goes down the rows, x as broadcasts: 4 vectors for 6 tokens at a time
 * (24 sums), or for one; one column is one chain in the order of linear_order.h, so its bits
 * are those of 8 lanes.  Weights are widened once per 6 tokens; a single token is bound by
 * their conversion (3 operations per vector of BF16), about 21 bytes per cycle. */
#include "kernel/linear/linear.h"
#include "kernel/linear/linear_order.h"
#include "kernel/x86/vec_avx512.h"

enum { T_LANE = 16, T_COL = 64, T_TOK = 6 }; /* T_COL divides the scale block */

#define T_VEC4(M, t) M(t, 0) M(t, 1) M(t, 2) M(t, 3)
#define T_TOK1(M, v) M(0, v)
#define T_TOK6(M, v) M(0, v) M(1, v) M(2, v) M(3, v) M(4, v) M(5, v)
#define T_DECL(t, v) __m512 b##t##v = _mm512_setzero_ps();
#define T_DECL4(t, v) T_VEC4(T_DECL, t)
#define T_X(t, v) const __m512 x##t = _mm512_set1_ps(xb[t * NB_LINEAR_T_CHUNK_MAX + i]);
#define T_FMA(t, v) b##t##v = _mm512_fmadd_ps(wv, x##t, b##t##v);
#define T_COL1(t, v)                                                                               \
    {                                                                                              \
        const __m512 wv = WT_LOAD(w + i * ws + v * T_LANE);                                        \
        T_TOK1(T_FMA, v)                                                                           \
    }
#define T_COL6(t, v)                                                                               \
    {                                                                                              \
        const __m512 wv = WT_LOAD(w + i * ws + v * T_LANE);                                        \
        T_TOK6(T_FMA, v)                                                                           \
    }
#define T_ADD(t, v)                                                                                \
    {                                                                                              \
        float *p = total + t * T_COL + v * T_LANE;                                                 \
        _mm512_storeu_ps(p, _mm512_add_ps(b##t##v, _mm512_loadu_ps(p)));                           \
    }
#define T_ADD4(t, v) T_VEC4(T_ADD, t)
/* n rows of 64 columns from w, for the tokens of xb [tok][NB_LINEAR_T_CHUNK_MAX]. */
#define T_TILE(name, TOKS, COL, N_LINE)                                                            \
    static void name(const WT_TYPE *w, size_t ws, const float *xb, size_t n, float *total)         \
    {                                                                                              \
        TOKS(T_DECL4, 0)                                                                           \
        for (size_t i = 0; i < n; i++) {                                                           \
            TOKS(T_X, 0)                                                                           \
            T_VEC4(COL, 0)                                                                         \
            for (int k = 0; k < N_LINE; k++) /* of the next columns */                             \
                _mm_prefetch((const char *)(w + i * ws + T_COL) + k * 64, _MM_HINT_T0);            \
        }                                                                                          \
        TOKS(T_ADD4, 0)                                                                            \
    }
T_TILE(tile_t_1, T_TOK1, T_COL1, (int)(T_COL * sizeof(WT_TYPE) / 64))
T_TILE(tile_t_6, T_TOK6, T_COL6, 0)

/* One vector of columns, or the part of it in mask, for one token. */
static void tile_t_tail(const WT_TYPE *w, size_t ws, const float *xb, size_t n, __mmask16 mask,
                        float *total)
{
    __m512 sum = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i++)
        sum = _mm512_fmadd_ps(WT_TAIL(w + i * ws, mask), _mm512_set1_ps(xb[i]), sum);
    _mm512_storeu_ps(total, _mm512_add_ps(sum, _mm512_loadu_ps(total)));
}

/* x of rows [r, r + n) for n_tok tokens from t0, times the scales of the rows. */
static void make_xb(const nb_linear_args *a, size_t r, size_t n, size_t c, size_t t0, size_t n_tok,
                    float *xb)
{
    float scale[NB_LINEAR_T_CHUNK_MAX];
    for (size_t i = 0; WT_FACTOR != 0 && i < n; i++) scale[i] = nb_weight_scale(&a->w, r + i, c);
    for (size_t t = 0; t < n_tok; t++) {
        const float *x = a->x + (t0 + t) * a->x_stride + (r - a->row_begin);
        float *out = xb + t * NB_LINEAR_T_CHUNK_MAX;
        for (size_t i = 0; i < n; i++)
            out[i] = WT_FACTOR != 0 ? x[i] * scale[i] * (float)WT_FACTOR : x[i];
    }
}

/* n_c <= T_COL columns from c, for n_tok <= T_TOK tokens from t0. */
static void column_strip(const nb_linear_args *a, size_t c, size_t n_c, size_t t0, size_t n_tok,
                         size_t chunk)
{
    _Alignas(64) float total[T_TOK * T_COL], xb[T_TOK * NB_LINEAR_T_CHUNK_MAX];
    const size_t ws = a->w.n_col, xs = NB_LINEAR_T_CHUNK_MAX;
    for (size_t i = 0; i < T_TOK * T_COL; i += T_LANE)
        _mm512_storeu_ps(total + i, _mm512_setzero_ps());
    for (size_t r = a->row_begin; r < a->row_end; r += chunk) {
        const size_t n = a->row_end - r < chunk ? a->row_end - r : chunk;
        const WT_TYPE *w = (const WT_TYPE *)a->w.data + r * ws + c;
        make_xb(a, r, n, c, t0, n_tok, xb);
        if (n_c == T_COL && n_tok == T_TOK) {
            tile_t_6(w, ws, xb, n, total);
            continue;
        }
        for (size_t t = 0; t < n_tok; t++) {
            if (n_c == T_COL) {
                tile_t_1(w, ws, xb + t * xs, n, total + t * T_COL);
                continue;
            }
            for (size_t j = 0; j < n_c; j += T_LANE)
                tile_t_tail(w + j, ws, xb + t * xs, n,
                            nb_avx512_mask16(n_c - j < T_LANE ? n_c - j : T_LANE),
                            total + t * T_COL + j);
        }
    }
    for (size_t t = 0; t < n_tok; t++) {
        float *y = a->y + (t0 + t) * a->y_stride + (c - a->col_begin);
        for (size_t j = 0; j < n_c; j += T_LANE)
            _mm512_mask_storeu_ps(y + j, nb_avx512_mask16(n_c - j < T_LANE ? n_c - j : T_LANE),
                                  _mm512_loadu_ps(total + t * T_COL + j));
    }
}

void NAME_T(const nb_linear_args *a)
{
    const size_t chunk = nb_linear_t_chunk(a->row_end - a->row_begin);
    for (size_t c = a->col_begin, n_c; c < a->col_end; c += n_c) {
        n_c = T_COL - c % T_COL;
        if (n_c > a->col_end - c) n_c = a->col_end - c;
        for (size_t t = 0; t < a->n_tok; t += T_TOK)
            column_strip(a, c, n_c, t, a->n_tok - t < T_TOK ? a->n_tok - t : T_TOK, chunk);
    }
}
