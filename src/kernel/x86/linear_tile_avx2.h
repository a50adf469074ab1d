/* linear_tile_avx2.h - linear for one type of weight; included once per type by
 * linear_<type>_avx2.c, which defines before:
 *
 *   W_TYPE          element type of the weights
 *   W_LOAD(p)       8 weights as float (FP8B: without their scale, times 2^-8)
 *   W_TAIL(p, n)    the first n < 8 of them, the others 0, reading n only
 *   W_CHUNK_SCALE(a, r, c, n)  factor of chunk [c, c + n) of row r (FP8B only)
 *   W_FP8           1 for FP8B, else 0
 *   W_STRIP_MIN     tokens from which strips are made (below), 0: never
 *   W_PACKED        1: W_TYPE is float, and rows are copies that nb_packed_values makes; else 0
 *   NAME            the function to define
 *
 * linear holds a tile of rows x tokens in registers (8 x 1 for a single token,
 * else 4 x 3) over one chunk of columns and adds it to lane totals on the stack;
 * a panel of 16 rows goes through a chunk for up to 48 tokens, so that weights
 * and activations of the inner loops stay near.  Whatever the tile, an output's
 * lanes see the same operations in the same order (linear_order.h). */
#include "kernel/linear/linear.h"
#include "kernel/linear/linear_order.h"
#include "kernel/x86/vec_avx2.h"

enum { PANEL_ROW = 16, PANEL_TOK = 48, LANE = 8 };

/* Lists of tokens and rows for the tiles below; r and t are literal digits. */
#define TOK1(M, r) M(r, 0)
#define TOK2(M, r) M(r, 0) M(r, 1)
#define TOK3(M, r) M(r, 0) M(r, 1) M(r, 2)
#define ROW1(M, T) M(0, T)
#define ROW4(M, T) M(0, T) M(1, T) M(2, T) M(3, T)
#define ROW8(M, T) ROW4(M, T) M(4, T) M(5, T) M(6, T) M(7, T)

#define DECL(r, t) __m256 a##r##t = _mm256_setzero_ps();
#define DECL_ROW(r, T) T(DECL, r)
#define X_LOAD(r, t) const __m256 x##t = _mm256_loadu_ps(x + t * xs + i);
#define X_TAIL(r, t) const __m256 x##t = _mm256_maskload_ps(x + t * xs + i, mask);
#define FMA(r, t) a##r##t = _mm256_fmadd_ps(wv, x##t, a##r##t);
#define FMA_ROW(r, T)                                                                              \
    {                                                                                              \
        const __m256 wv = W_LOAD(w + r * ws + i);                                                  \
        T(FMA, r)                                                                                  \
    }
/* One token: with the next 8 rows, which the hardware does not see coming, in the order of addresses. */
#define FMA_ROW_ONE(r, T)                                                                          \
    if (!W_PACKED && (r * LANE * sizeof *w) % 64 == 0)                                             \
        _mm_prefetch((const char *)(w + 8 * ws + 7 * xs + 8 * i + r * LANE),                       \
                     _MM_HINT_T0); /* xs: columns before the chunk */                              \
    FMA_ROW(r, T)
#define FMA_ROW_TAIL(r, T)                                                                         \
    {                                                                                              \
        const __m256 wv = W_TAIL(w + r * ws + i, n - i);                                           \
        T(FMA, r)                                                                                  \
    }
/* The same from a strip of weights that were made float before: [columns / 8][4 rows][8],
 * aligned, zeros after column n. */
#define FMA_ROW_F(r, T)                                                                            \
    {                                                                                              \
        const __m256 wv = _mm256_load_ps(w + i * 4 + r * LANE);                                    \
        T(FMA, r)                                                                                  \
    }
#define TOTAL(r, t) (total + (t * PANEL_ROW + r) * LANE)
#if W_FP8
#define ADD(r, t)                                                                                  \
    _mm256_storeu_ps(TOTAL(r, t), _mm256_fmadd_ps(a##r##t, sv, _mm256_loadu_ps(TOTAL(r, t))));
#define ADD_ROW(r, T)                                                                              \
    {                                                                                              \
        const __m256 sv = _mm256_broadcast_ss(scale + r);                                          \
        T(ADD, r)                                                                                  \
    }
#else
#define ADD(r, t)                                                                                  \
    _mm256_storeu_ps(TOTAL(r, t), _mm256_add_ps(a##r##t, _mm256_loadu_ps(TOTAL(r, t))));
#define ADD_ROW(r, T) T(ADD, r)
#endif

/* Where a tile starts: w and x at the chunk's first column, totals and scales at
 * the tile's first row (and token). */
#define TILE(name, W, ROWS, TOKS, ROW, ROW_TAIL)                                                   \
    static void name(const W *w, size_t ws, const float *x, size_t xs, size_t n,                   \
                     const float *scale, float *total)                                             \
    {                                                                                              \
        size_t i = 0;                                                                              \
        ROWS(DECL_ROW, TOKS)                                                                       \
        for (; i + LANE <= n; i += LANE) {                                                         \
            TOKS(X_LOAD, 0)                                                                        \
            ROWS(ROW, TOKS)                                                                        \
        }                                                                                          \
        if (i < n) {                                                                               \
            const __m256i mask = nb_avx2_mask(n - i);                                              \
            TOKS(X_TAIL, 0)                                                                        \
            ROWS(ROW_TAIL, TOKS)                                                                   \
        }                                                                                          \
        ROWS(ADD_ROW, TOKS)                                                                        \
        (void)xs, (void)ws, (void)scale;                                                           \
    }
TILE(tile_8x1, W_TYPE, ROW8, TOK1, FMA_ROW_ONE, FMA_ROW_TAIL)
TILE(tile_4x1, W_TYPE, ROW4, TOK1, FMA_ROW, FMA_ROW_TAIL)
TILE(tile_4x2, W_TYPE, ROW4, TOK2, FMA_ROW, FMA_ROW_TAIL)
TILE(tile_4x3, W_TYPE, ROW4, TOK3, FMA_ROW, FMA_ROW_TAIL)
TILE(tile_1x1, W_TYPE, ROW1, TOK1, FMA_ROW, FMA_ROW_TAIL)
TILE(tile_1x3, W_TYPE, ROW1, TOK3, FMA_ROW, FMA_ROW_TAIL)

#if W_STRIP_MIN
/* From W_STRIP_MIN tokens on a strip of 4 rows is made float once for all tokens of the
 * panel.  The rows of 8 columns lie side by side, one stream that L1 keeps, where rows as
 * in W, or at a distance of 4 KiB, push each other and x out of its sets; F32 gains by this
 * alone.  (Not faster: 6 rows with 2 tokens; several strips, 16 KiB, per pass over x.) */
TILE(strip_4x1, float, ROW4, TOK1, FMA_ROW_F, FMA_ROW_F)
TILE(strip_4x2, float, ROW4, TOK2, FMA_ROW_F, FMA_ROW_F)
TILE(strip_4x3, float, ROW4, TOK3, FMA_ROW_F, FMA_ROW_F)

/* 4 rows of n columns as float, once for all tokens of the panel. */
static void make_strip(const W_TYPE *w, size_t ws, size_t n, float *strip)
{
    for (size_t r = 0; r < 4; r++) {
        const W_TYPE *p = w + r * ws;
        float *q = strip + r * LANE;
        size_t i = 0;
        for (; i + LANE <= n; i += LANE) _mm256_store_ps(q + i * 4, W_LOAD(p + i));
        if (i < n) _mm256_store_ps(q + i * 4, W_TAIL(p + i, n - i));
    }
}

static void strip_tiles(const float *strip, const float *x, size_t xs, size_t n, size_t n_tok,
                        const float *scale, float *total)
{
    size_t t = 0;
    for (; t + 3 <= n_tok; t += 3)
        strip_4x3(strip, 0, x + t * xs, xs, n, scale, total + t * PANEL_ROW * LANE);
    if (t < n_tok)
        (n_tok - t == 2 ? strip_4x2 : strip_4x1)(strip, 0, x + t * xs, xs, n, scale,
                                                 total + t * PANEL_ROW * LANE);
}
#endif

/* n_row rows x n_tok tokens of the panel over n columns. */
static void chunk_tiles(const W_TYPE *w, size_t ws, const float *x, size_t xs, size_t n,
                        size_t n_row, size_t n_tok, const float *scale, float *total, size_t c)
{
    size_t first = 0;
#if W_STRIP_MIN
    if (n_tok >= W_STRIP_MIN) {
        _Alignas(32) float strip[4 * NB_LINEAR_CHUNK_MAX];
        for (; first + 4 <= n_row; first += 4) {
            make_strip(w + first * ws, ws, n, strip);
            strip_tiles(strip, x, xs, n, n_tok, scale + first, total + first * LANE);
        }
    }
#endif
    for (size_t t = 0, k; t < n_tok; t += k) {
        k = n_tok - t < 3 ? n_tok - t : 3;
        const float *xt = x + t * xs;
        float *tt = total + t * PANEL_ROW * LANE;
        size_t r = first;
        for (; k == 1 && r + 8 <= n_row; r += 8)
            tile_8x1(w + r * ws, ws, xt, c, n, scale + r, tt + r * LANE);
        for (; r + 4 <= n_row; r += 4)
            (k == 3   ? tile_4x3
             : k == 2 ? tile_4x2
                      : tile_4x1)(w + r * ws, ws, xt, xs, n, scale + r, tt + r * LANE);
        for (; r < n_row; r++) {
            if (k == 3) {
                tile_1x3(w + r * ws, ws, xt, xs, n, scale + r, tt + r * LANE);
                continue;
            }
            for (size_t j = 0; j < k; j++)
                tile_1x1(w + r * ws, ws, xt + j * xs, xs, n, scale + r,
                         tt + (j * PANEL_ROW + r) * LANE);
        }
    }
}

static void panel(const nb_linear_args *a, size_t r0, size_t n_row, size_t t0, size_t n_tok,
                  size_t chunk)
{
    float total[PANEL_TOK * PANEL_ROW * LANE], scale[PANEL_ROW] = { 0 };
    const size_t n_col = a->w.n_col;
#if W_PACKED
    enum { WS = NB_PACKED_CHUNK + LANE }; /* not a multiple of L1's stride */
    float w[PANEL_ROW * WS];
#else
    const size_t WS = n_col;
#endif
    for (size_t i = 0; i < n_tok * PANEL_ROW * LANE; i += LANE)
        _mm256_storeu_ps(total + i, _mm256_setzero_ps());
    for (size_t c = 0; c < n_col; c += chunk) {
        const size_t n = n_col - c < chunk ? n_col - c : chunk;
#if W_FP8
        for (size_t r = 0; r < n_row; r++) scale[r] = W_CHUNK_SCALE(&a->w, r0 + r, c, n);
#endif
#if W_PACKED
        for (size_t r = 0; r < n_row; r++) nb_packed_values(&a->w, r0 + r, c, n, w + r * WS);
#else
        const W_TYPE *w = (const W_TYPE *)a->w.data + r0 * n_col + c;
#endif
        chunk_tiles(w, WS, a->x + t0 * a->x_stride + c, a->x_stride, n, n_row, n_tok, scale, total,
                    c);
    }
    for (size_t t = 0; t < n_tok; t++) {
        float *y = a->y + (t0 + t) * a->y_stride + (r0 - a->row_begin);
        for (size_t r = 0; r < n_row; r++) {
            const float sum = nb_avx2_join(_mm256_loadu_ps(TOTAL(r, t)));
            y[r] = a->bias ? sum + a->bias[r0 + r] : sum;
        }
    }
}

void NAME(const nb_linear_args *a)
{
    const size_t chunk = nb_linear_chunk(a->w.type, a->w.n_col);
    /* One or two tokens: 8 rows at a time, each read from end to end, as the
     * hardware's prefetchers like it. */
    const size_t rows = a->n_tok < 3 ? 8 : PANEL_ROW;
    for (size_t r = a->row_begin; r < a->row_end; r += rows) {
        const size_t n_row = a->row_end - r < rows ? a->row_end - r : rows;
        for (size_t t = 0; t < a->n_tok; t += PANEL_TOK)
            panel(a, r, n_row, t, a->n_tok - t < PANEL_TOK ? a->n_tok - t : PANEL_TOK, chunk);
    }
}
