/* linear_tile_avx512.h - linear for one type of weight; included once per type by
 * linear_<type>_avx512.c, which defines before:
 *
 *   W_TYPE          element type of the weights
 *   W_LOAD(p)       16 weights as float (FP8B: without their scale, times 2^-8)
 *   W_TAIL(p, n)    the first n < 16 of them, the others 0, reading n only
 *   W_CHUNK_SCALE(w, r, c, n)  factor of chunk [c, c + n) of row r (FP8B only)
 *   W_FP8, W_F32    1 for that type, else 0
 *   W_PACKED        1: W_TYPE is float, and rows are copies that nb_packed_values makes; else 0
 *   W_ONE           optional: tile_8x1 of its own, in the same order; false: not for these columns
 *   NAME            the function to define
 *
 * The order of summation is linear_order.h's with 16 lanes in place of 8: column c goes to lane
 * c % 16, at the end lanes i and i + 8 are added and the 8 joined as there.  A chunk has k groups
 * of 16 columns with k = ceil(3/4 sqrt(n)), at most 64, so that there are m <= sqrt(n)/12 + 1
 * chunks (or n/1024 + 1): k + m + 4 joins + 1 for the bias <= 5/6 sqrt(n) + 7 roundings, and
 * 70 + n/1024 from 7,282 columns on (up to 800,000), where 8 + sqrt(n) is at least 93.  FP8B:
 * 8 in a chunk of 128 columns, n/128 + 1 chunks, 6.
 *
 * One token: 8 rows at a time straight from the matrix, eight sequential streams that the
 * hardware's prefetchers follow.  A vector of BF16 or FP16 costs two operations to widen and the
 * FMA on the two ports: 21 bytes per cycle, above what memory gives; FP8 costs six, 5 bytes per
 * cycle.  More tokens: 8 rows are widened once per chunk into a strip of floats that stays in L1,
 * for up to 48 tokens; tiles of 4 rows x 6 tokens (24 sums, 6 activations, 1 weight in the 32
 * registers) take 24 FMA and 10 loads per 16 columns, so the FMA ports bound it: 12 cycles. */
#include "kernel/linear/linear.h"
#include "kernel/linear/linear_order.h"
#include "kernel/x86/vec_avx512.h"

enum { PANEL_ROW = 8, PANEL_TOK = 48, LANE = 16, TILE_ROW = 4, TILE_TOK = 6, CHUNK_MAX = 1024 };

/* Columns of a chunk. */
static size_t chunk_columns(size_t n_col)
{
    if (W_FP8) return NB_FP8_BLOCK;
    if (W_PACKED) return NB_PACKED_CHUNK;
    size_t k = 1;
    while (k < CHUNK_MAX / LANE && 16 * k * k < 9 * n_col) k++;
    return LANE * k;
}

/* Lists of tokens and rows for the tiles below; r and t are literal digits. */
#define TOK1(M, r) M(r, 0)
#define TOK2(M, r) TOK1(M, r) M(r, 1)
#define TOK3(M, r) TOK2(M, r) M(r, 2)
#define TOK4(M, r) TOK3(M, r) M(r, 3)
#define TOK5(M, r) TOK4(M, r) M(r, 4)
#define TOK6(M, r) TOK5(M, r) M(r, 5)
#define ROW1(M, T) M(0, T)
#define ROW4(M, T) M(0, T) M(1, T) M(2, T) M(3, T)
#define ROW8(M, T) ROW4(M, T) M(4, T) M(5, T) M(6, T) M(7, T)

#define DECL(r, t) __m512 a##r##t = _mm512_setzero_ps();
#define DECL_ROW(r, T) T(DECL, r)
#define X_LOAD(r, t) const __m512 x##t = _mm512_loadu_ps(x + t * xs + i);
#define X_TAIL(r, t) const __m512 x##t = _mm512_maskz_loadu_ps(mask, x + t * xs + i);
#define FMA(r, t) a##r##t = _mm512_fmadd_ps(wv, x##t, a##r##t);
/* From the matrix. */
#define FMA_ROW(r, T)                                                                              \
    {                                                                                              \
        const __m512 wv = W_LOAD(w + r * ws + i);                                                  \
        T(FMA, r)                                                                                  \
    }
/* One token: with the rows of the next panel, which the hardware does not see coming.  In the order of
 * addresses: the same columns of 8 rows of 4 KiB would push each other out of level 1. */
#define FMA_ROW_ONE(r, T)                                                                          \
    if (!W_PACKED && (r * LANE * sizeof *w) % 64 == 0)                                             \
        _mm_prefetch(                                                                              \
            (const char *)(w + PANEL_ROW * ws + (PANEL_ROW - 1) * xs + PANEL_ROW * i + r * LANE),  \
            _MM_HINT_T0); /* xs: columns before the chunk */                                       \
    FMA_ROW(r, T)
#define FMA_ROW_TAIL(r, T)                                                                         \
    {                                                                                              \
        const __m512 wv = W_TAIL(w + r * ws + i, n - i);                                           \
        T(FMA, r)                                                                                  \
    }
/* From floats: a strip, or the matrix of an F32. */
#define FMA_ROW_F(r, T)                                                                            \
    {                                                                                              \
        const __m512 wv = _mm512_loadu_ps(w + r * ws + i);                                         \
        T(FMA, r)                                                                                  \
    }
#define FMA_ROW_F_TAIL(r, T)                                                                       \
    {                                                                                              \
        const __m512 wv = _mm512_maskz_loadu_ps(mask, w + r * ws + i);                             \
        T(FMA, r)                                                                                  \
    }
#define TOTAL(r, t) (total + (t * PANEL_ROW + r) * LANE)
#if W_FP8
#define ADD(r, t)                                                                                  \
    _mm512_storeu_ps(TOTAL(r, t), _mm512_fmadd_ps(a##r##t, sv, _mm512_loadu_ps(TOTAL(r, t))));
#define ADD_ROW(r, T)                                                                              \
    {                                                                                              \
        const __m512 sv = _mm512_set1_ps(scale[r]);                                                \
        T(ADD, r)                                                                                  \
    }
#else
#define ADD(r, t)                                                                                  \
    _mm512_storeu_ps(TOTAL(r, t), _mm512_add_ps(a##r##t, _mm512_loadu_ps(TOTAL(r, t))));
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
            const __mmask16 mask = nb_avx512_mask16(n - i);                                        \
            TOKS(X_TAIL, 0)                                                                        \
            ROWS(ROW_TAIL, TOKS)                                                                   \
        }                                                                                          \
        ROWS(ADD_ROW, TOKS)                                                                        \
        (void)xs, (void)ws, (void)scale;                                                           \
    }
TILE(tile_8x1, W_TYPE, ROW8, TOK1, FMA_ROW_ONE, FMA_ROW_TAIL)
TILE(tile_1x1, W_TYPE, ROW1, TOK1, FMA_ROW, FMA_ROW_TAIL)
TILE(tile_4x1, float, ROW4, TOK1, FMA_ROW_F, FMA_ROW_F_TAIL)
TILE(tile_4x2, float, ROW4, TOK2, FMA_ROW_F, FMA_ROW_F_TAIL)
TILE(tile_4x3, float, ROW4, TOK3, FMA_ROW_F, FMA_ROW_F_TAIL)
TILE(tile_4x4, float, ROW4, TOK4, FMA_ROW_F, FMA_ROW_F_TAIL)
TILE(tile_4x5, float, ROW4, TOK5, FMA_ROW_F, FMA_ROW_F_TAIL)
TILE(tile_4x6, float, ROW4, TOK6, FMA_ROW_F, FMA_ROW_F_TAIL)

typedef void tile_fn(const float *w, size_t ws, const float *x, size_t xs, size_t n,
                     const float *scale, float *total);
static tile_fn *const tile_4[TILE_TOK + 1] = { NULL,     tile_4x1, tile_4x2, tile_4x3,
                                               tile_4x4, tile_4x5, tile_4x6 };

/* Rows of strips begin an odd number of cache lines apart, so that they use all sets of L1. */
enum { STRIP_STRIDE = CHUNK_MAX + LANE };

/* n columns of up to 4 rows as floats; rows that are missing and columns up to the next multiple
 * of 16 are 0. */
static void make_strip(const W_TYPE *w, size_t ws, size_t n, size_t n_row, float *strip)
{
    for (size_t r = 0; r < TILE_ROW; r++, strip += STRIP_STRIDE) {
        const W_TYPE *p = w + r * ws;
        size_t i = 0;
        for (; r < n_row && i + LANE <= n; i += LANE) _mm512_storeu_ps(strip + i, W_LOAD(p + i));
        if (r < n_row && i < n) _mm512_storeu_ps(strip + i, W_TAIL(p + i, n - i)), i += LANE;
        for (; i < n; i += LANE) _mm512_storeu_ps(strip + i, _mm512_setzero_ps());
    }
}

/* n_row <= PANEL_ROW rows x n_tok tokens of the panel over n columns. */
static void chunk_one(const W_TYPE *w, size_t ws, const float *x, size_t n, size_t n_row,
                      const float *scale, float *total, size_t c)
{
#ifdef W_ONE
    if (n_row == PANEL_ROW && W_ONE(w, ws, x, c, n, scale, total)) return;
#endif
    if (n_row == PANEL_ROW) {
        tile_8x1(w, ws, x, c, n, scale, total);
        return;
    }
    for (size_t r = 0; r < n_row; r++)
        tile_1x1(w + r * ws, ws, x, 0, n, scale + r, total + r * LANE);
}

static void chunk_many(const W_TYPE *w, size_t ws, const float *x, size_t xs, size_t n,
                       size_t n_row, size_t n_tok, const float *scale, float *total)
{
    _Alignas(64) float strip[PANEL_ROW * STRIP_STRIDE];
    const float *src[PANEL_ROW / TILE_ROW];
    size_t stride[PANEL_ROW / TILE_ROW];
    const size_t n_group = (n_row + TILE_ROW - 1) / TILE_ROW;
    for (size_t g = 0; g < n_group; g++) {
        const size_t r = g * TILE_ROW, k = n_row - r < TILE_ROW ? n_row - r : TILE_ROW;
        src[g] = strip + r * STRIP_STRIDE;
        stride[g] = STRIP_STRIDE;
#if W_F32
        if (k == TILE_ROW) { /* floats already */
            src[g] = w + r * ws;
            stride[g] = ws;
            continue;
        }
#endif
        make_strip(w + r * ws, ws, n, k, strip + r * STRIP_STRIDE);
    }
    for (size_t t = 0, k; t < n_tok; t += k) {
        k = n_tok - t < TILE_TOK ? n_tok - t : TILE_TOK;
        for (size_t g = 0; g < n_group; g++)
            tile_4[k](src[g], stride[g], x + t * xs, xs, n, scale + g * TILE_ROW,
                      TOTAL(g * TILE_ROW, t));
    }
}

/* Joins the totals of token t and writes n_row outputs, 4 at a time. */
static void write_rows(const nb_linear_args *a, size_t r0, size_t n_row, size_t t,
                       const float *total)
{
    float *y = a->y + t * a->y_stride + (r0 - a->row_begin);
    for (size_t r = 0; r < n_row; r += TILE_ROW) {
        const size_t k = n_row - r < TILE_ROW ? n_row - r : TILE_ROW;
        const __mmask8 mask = (__mmask8)((1u << k) - 1);
        const float *p = total + r * LANE;
        __m128 sum = nb_avx512_join4(_mm512_loadu_ps(p), _mm512_loadu_ps(p + LANE),
                                     _mm512_loadu_ps(p + 2 * LANE), _mm512_loadu_ps(p + 3 * LANE));
        if (a->bias) sum = _mm_add_ps(sum, _mm_maskz_loadu_ps(mask, a->bias + r0 + r));
        _mm_mask_storeu_ps(y + r, mask, sum);
    }
}

static void panel(const nb_linear_args *a, size_t r0, size_t n_row, size_t t0, size_t n_tok,
                  size_t chunk)
{
    _Alignas(64) float total[PANEL_TOK * PANEL_ROW * LANE];
    float scale[PANEL_ROW] = { 0 };
    const size_t n_col = a->w.n_col;
#if W_PACKED
    enum { WS = NB_PACKED_CHUNK + LANE }; /* not a multiple of L1's stride */
    float w[PANEL_ROW * WS];
#else
    const size_t WS = n_col;
#endif
    for (size_t i = 0; i < n_tok * PANEL_ROW * LANE; i += LANE)
        _mm512_storeu_ps(total + i, _mm512_setzero_ps());
    for (size_t c = 0; c < n_col; c += chunk) {
        const size_t n = n_col - c < chunk ? n_col - c : chunk;
        const float *x = a->x + t0 * a->x_stride + c;
#if W_FP8
        for (size_t r = 0; r < n_row; r++) scale[r] = W_CHUNK_SCALE(&a->w, r0 + r, c, n);
#endif
#if W_PACKED
        for (size_t r = 0; r < n_row; r++) nb_packed_values(&a->w, r0 + r, c, n, w + r * WS);
#else
        const W_TYPE *w = (const W_TYPE *)a->w.data + r0 * n_col + c;
#endif
        if (a->n_tok == 1)
            chunk_one(w, WS, x, n, n_row, scale, total, c);
        else
            chunk_many(w, WS, x, a->x_stride, n, n_row, n_tok, scale, total);
    }
    for (size_t t = 0; t < n_tok; t++) write_rows(a, r0, n_row, t0 + t, TOTAL(0, t));
}

void NAME(const nb_linear_args *a)
{
    const size_t chunk = chunk_columns(a->w.n_col);
    for (size_t r = a->row_begin; r < a->row_end; r += PANEL_ROW) {
        const size_t n_row = a->row_end - r < PANEL_ROW ? a->row_end - r : PANEL_ROW;
        for (size_t t = 0; t < a->n_tok; t += PANEL_TOK)
            panel(a, r, n_row, t, a->n_tok - t < PANEL_TOK ? a->n_tok - t : PANEL_TOK, chunk);
    }
}
