/* linear_tile_neon.h - linear for one type of weight; included once per type by linear_<type>_neon.c,
 * which defines before:
 *
 *   W_TYPE          element type of the weights
 *   W_LOAD(p)       8 weights as float (FP8B: without their scale, times 2^-8)
 *   W_CHUNK_SCALE(a, r, c)  factor of the chunk at c of row r (FP8B only)
 *   NAME            the function to define
 *
 * A tile of rows x tokens stays in registers over one chunk of columns and is added to lane totals on
 * the stack: 8 x 1 for one token, else 4 x 2, both with 16 chains.  A panel of 8 rows goes through a
 * chunk for up to 32 tokens.  Whatever the tile, an output's lanes see the same operations in the same
 * order (linear_order.h).
 *
 * Per 8 columns of 4 rows x 2 tokens with BF16: 16 FMLA, 8 widenings, 6 loads of one or two vectors; 35
 * instructions with the addresses (gcc 12).  8 x 1: 16 FMLA, 16 widenings, 50 instructions for 128 bytes
 * of weights.  By this count a product of many tokens is bound by the
 * FMLA and the widenings, which share their units, and one token by them or by the memory, whichever
 * is slower: 8 cycles for 128 bytes with 4 units.  Strips that are widened once for all tokens would
 * save the widenings from 3 tokens on. */
#include "kernel/arm/vec_neon.h"
#include "kernel/linear/linear.h"
#include "kernel/linear/linear_order.h"

enum { PANEL_ROW = 8, PANEL_TOK = 32, LANE = 8 };

/* Lists of tokens and rows for the tiles below; r and t are literal digits. */
#define TOK1(M, r) M(r, 0)
#define TOK2(M, r) M(r, 0) M(r, 1)
#define ROW1(M, T) M(0, T)
#define ROW4(M, T) M(0, T) M(1, T) M(2, T) M(3, T)
#define ROW8(M, T) ROW4(M, T) M(4, T) M(5, T) M(6, T) M(7, T)

#define DECL(r, t) nb_neon_f8 a##r##t = nb_neon_zero();
#define DECL_ROW(r, T) T(DECL, r)
#define X_LOAD(r, t) const nb_neon_f8 x##t = nb_neon_load(x + t * xs + i);
#define X_TAIL(r, t) const nb_neon_f8 x##t = nb_neon_load_n(x + t * xs + i, n - i);
#define FMA(r, t) a##r##t = nb_neon_fma(a##r##t, wv, x##t);
#define FMA_ROW(r, T)                                                                              \
    {                                                                                              \
        const nb_neon_f8 wv = W_LOAD(w + r * ws + i);                                              \
        T(FMA, r)                                                                                  \
    }
#define FMA_ROW_TAIL(r, T)                                                                         \
    {                                                                                              \
        const nb_neon_f8 wv = load_tail(w + r * ws + i, n - i);                                    \
        T(FMA, r)                                                                                  \
    }
#define TOTAL(r, t) (total + (t * PANEL_ROW + r) * LANE)
#ifdef W_CHUNK_SCALE
#define JOIN(r, t) nb_neon_fma_n(nb_neon_load(TOTAL(r, t)), a##r##t, vdupq_n_f32(scale[r]))
#else
#define JOIN(r, t) nb_neon_add(nb_neon_load(TOTAL(r, t)), a##r##t)
#endif
#define ADD(r, t) nb_neon_store(TOTAL(r, t), JOIN(r, t));
#define ADD_ROW(r, T) T(ADD, r)

/* The first n < 8 weights, the others 0. */
static inline nb_neon_f8 load_tail(const W_TYPE *p, size_t n)
{
    W_TYPE v[8] = { 0 };
    memcpy(v, p, n * sizeof *v);
    return W_LOAD(v);
}

/* Where a tile starts: w and x at the chunk's first column, totals and scales at the tile's first row
 * (and token). */
#define TILE(name, ROWS, TOKS)                                                                     \
    static void name(const W_TYPE *w, size_t ws, const float *x, size_t xs, size_t n,              \
                     const float *scale, float *total)                                             \
    {                                                                                              \
        size_t i = 0;                                                                              \
        ROWS(DECL_ROW, TOKS)                                                                       \
        for (; i + LANE <= n; i += LANE) {                                                         \
            TOKS(X_LOAD, 0)                                                                        \
            ROWS(FMA_ROW, TOKS)                                                                    \
        }                                                                                          \
        if (i < n) {                                                                               \
            TOKS(X_TAIL, 0)                                                                        \
            ROWS(FMA_ROW_TAIL, TOKS)                                                               \
        }                                                                                          \
        ROWS(ADD_ROW, TOKS)                                                                        \
        (void)xs, (void)ws, (void)scale;                                                           \
    }
TILE(tile_8x1, ROW8, TOK1)
TILE(tile_4x2, ROW4, TOK2)
TILE(tile_1x2, ROW1, TOK2)
TILE(tile_1x1, ROW1, TOK1)

/* n_row rows x n_tok tokens of the panel over n columns. */
static void chunk_tiles(const W_TYPE *w, size_t ws, const float *x, size_t xs, size_t n,
                        size_t n_row, size_t n_tok, const float *scale, float *total)
{
    size_t t = 0;
    for (; t + 2 <= n_tok; t += 2) {
        float *tt = total + t * PANEL_ROW * LANE;
        size_t r = 0;
        for (; r + 4 <= n_row; r += 4)
            tile_4x2(w + r * ws, ws, x + t * xs, xs, n, scale + r, tt + r * LANE);
        for (; r < n_row; r++)
            tile_1x2(w + r * ws, ws, x + t * xs, xs, n, scale + r, tt + r * LANE);
    }
    if (t == n_tok) return;
    float *tt = total + t * PANEL_ROW * LANE;
    size_t r = 0;
    for (; r + 8 <= n_row; r += 8)
        tile_8x1(w + r * ws, ws, x + t * xs, xs, n, scale + r, tt + r * LANE);
    for (; r < n_row; r++) tile_1x1(w + r * ws, ws, x + t * xs, xs, n, scale + r, tt + r * LANE);
}

static void panel(const nb_linear_args *a, size_t r0, size_t n_row, size_t t0, size_t n_tok,
                  size_t chunk)
{
    float total[PANEL_TOK * PANEL_ROW * LANE], scale[PANEL_ROW] = { 0 };
    const size_t n_col = a->w.n_col;
    const W_TYPE *w = (const W_TYPE *)a->w.data + r0 * n_col;
    memset(total, 0, n_tok * PANEL_ROW * LANE * sizeof *total);
    for (size_t c = 0; c < n_col; c += chunk) {
        const size_t n = n_col - c < chunk ? n_col - c : chunk;
#ifdef W_CHUNK_SCALE
        for (size_t r = 0; r < n_row; r++) scale[r] = W_CHUNK_SCALE(&a->w, r0 + r, c);
#endif
        chunk_tiles(w + c, n_col, a->x + t0 * a->x_stride + c, a->x_stride, n, n_row, n_tok, scale,
                    total);
    }
    for (size_t t = 0; t < n_tok; t++) {
        float *y = a->y + (t0 + t) * a->y_stride + (r0 - a->row_begin);
        for (size_t r = 0; r < n_row; r++) {
            const float sum = nb_neon_join(nb_neon_load(TOTAL(r, t)));
            y[r] = a->bias ? sum + a->bias[r0 + r] : sum;
        }
    }
}

void NAME(const nb_linear_args *a)
{
    const size_t chunk = nb_linear_chunk(a->w.type, a->w.n_col);
    for (size_t r = a->row_begin; r < a->row_end; r += PANEL_ROW) {
        const size_t n_row = a->row_end - r < PANEL_ROW ? a->row_end - r : PANEL_ROW;
        for (size_t t = 0; t < a->n_tok; t += PANEL_TOK)
            panel(a, r, n_row, t, a->n_tok - t < PANEL_TOK ? a->n_tok - t : PANEL_TOK, chunk);
    }
}
