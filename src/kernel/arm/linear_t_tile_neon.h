/* linear_t_tile_neon.h - linear_t for one type of weight; included once per type by
 * linear_<type>_neon.c, which defines W_TYPE and W_LOAD(p) as for linear_tile_neon.h, and
 *
 *   W_FACTOR_T(w, r, c)  what x of row r is multiplied with for columns about c
 *   NAME_T               the function to define
 *
 * A tile is 1 or 2 tokens x 32 columns over one chunk of rows: 8 or 16 chains, with x as broadcasts from
 * x[t][NB_LINEAR_T_CHUNK_MAX]; each row of W is read in pieces of 32 columns, of 8 and a copied tail.
 * Bound by the FMLA and the widenings, as linear is. */
#include "kernel/arm/vec_neon.h"
#include "kernel/linear/linear.h"
#include "kernel/linear/linear_order.h"

enum {
    STRIP_COL = 64,
    STRIP_TOK = 8,
    XS = NB_LINEAR_T_CHUNK_MAX
}; /* STRIP_COL divides a scale block */

#define COL1(M, t) M(t, 0)
#define COL4(M, t) M(t, 0) M(t, 1) M(t, 2) M(t, 3)
#define T_DECL(t, v) nb_neon_f8 s##t##v = nb_neon_zero();
#define T_LOAD(t, v) const nb_neon_f8 w##v = W_LOAD(w + i * ws + 8 * v);
#define T_TAIL(t, v) const nb_neon_f8 w##v = t_tail(w + i * ws, n_c);
#define T_FMA(t, v) s##t##v = nb_neon_fma_n(s##t##v, w##v, x##t);
#define T_X(t, COLS)                                                                               \
    {                                                                                              \
        const float32x4_t x##t = vdupq_n_f32(x[t * XS + i]);                                       \
        COLS(T_FMA, t)                                                                             \
    }
#define T_ADD(t, v)                                                                                \
    nb_neon_store(total + t * STRIP_COL + 8 * v,                                                   \
                  nb_neon_add(nb_neon_load(total + t * STRIP_COL + 8 * v), s##t##v));
#define T_TOK1(M, COLS) M(0, COLS)
#define T_TOK2(M, COLS) M(0, COLS) M(1, COLS)
#define T_DECLS(t, COLS) COLS(T_DECL, t)
#define T_ADDS(t, COLS) COLS(T_ADD, t)

/* The first n < 8 weights, the others 0. */
static inline nb_neon_f8 t_tail(const W_TYPE *p, size_t n)
{
    W_TYPE v[8] = { 0 };
    memcpy(v, p, n * sizeof *v);
    return W_LOAD(v);
}

/* total[t][c] += sum over i < n of x[t][i] w[i][c]; n_c is for tails only. */
#define TILE_T(name, TOKS, COLS, LOAD)                                                             \
    static void name(const W_TYPE *w, size_t ws, const float *x, size_t n, size_t n_c,             \
                     float *total)                                                                 \
    {                                                                                              \
        TOKS(T_DECLS, COLS)                                                                        \
        for (size_t i = 0; i < n; i++) {                                                           \
            COLS(LOAD, 0)                                                                          \
            TOKS(T_X, COLS)                                                                        \
        }                                                                                          \
        TOKS(T_ADDS, COLS)                                                                         \
        (void)n_c;                                                                                 \
    }
TILE_T(t_2x4, T_TOK2, COL4, T_LOAD)
TILE_T(t_1x4, T_TOK1, COL4, T_LOAD)
TILE_T(t_2x1, T_TOK2, COL1, T_LOAD)
TILE_T(t_1x1, T_TOK1, COL1, T_LOAD)
TILE_T(t_2xn, T_TOK2, COL1, T_TAIL)
TILE_T(t_1xn, T_TOK1, COL1, T_TAIL)

/* n_c columns times n_tok tokens over n rows. */
static void t_tiles(const W_TYPE *w, size_t ws, const float *x, size_t n, size_t n_c, size_t n_tok,
                    float *total)
{
    for (size_t t = 0, k; t < n_tok; t += k) {
        k = n_tok - t < 2 ? 1 : 2;
        const float *xt = x + t * XS;
        float *tt = total + t * STRIP_COL;
        size_t c = 0;
        for (; c + 32 <= n_c; c += 32) (k == 2 ? t_2x4 : t_1x4)(w + c, ws, xt, n, 0, tt + c);
        for (; c + 8 <= n_c; c += 8) (k == 2 ? t_2x1 : t_1x1)(w + c, ws, xt, n, 0, tt + c);
        if (c < n_c) (k == 2 ? t_2xn : t_1xn)(w + c, ws, xt, n, n_c - c, tt + c);
    }
}

/* n_c <= STRIP_COL columns from c, for n_tok <= STRIP_TOK tokens from t0. */
static void column_strip(const nb_linear_args *a, size_t c, size_t n_c, size_t t0, size_t n_tok,
                         size_t chunk)
{
    float total[STRIP_TOK * STRIP_COL] = { 0 }, x[STRIP_TOK * XS];
    const size_t ws = a->w.n_col;
    for (size_t r = a->row_begin; r < a->row_end; r += chunk) {
        const size_t n = a->row_end - r < chunk ? a->row_end - r : chunk;
        for (size_t t = 0; t < n_tok; t++) {
            const float *from = a->x + (t0 + t) * a->x_stride + (r - a->row_begin);
            for (size_t i = 0; i < n; i++) x[t * XS + i] = from[i] * W_FACTOR_T(&a->w, r + i, c);
        }
        t_tiles((const W_TYPE *)a->w.data + r * ws + c, ws, x, n, n_c, n_tok, total);
    }
    for (size_t t = 0; t < n_tok; t++)
        memcpy(a->y + (t0 + t) * a->y_stride + (c - a->col_begin), total + t * STRIP_COL,
               n_c * sizeof *total);
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
