/* linear_int8_avx512.c - products with INT8 weights by VNNI, the bits of the portable row
 * (linear_int8.h): sums of integers have no order.
 *
 * 32 weights are widened to 16 bits by one shuffle, and vpdpwssd adds 32 products to 16 sums of 32
 * bits.  One product is at most 127 * 16256 in size, a step adds two of them to a lane, so that 512
 * steps (16,384 columns) fit 32 bits; then the lanes go to 64.  One token: row after row, a single stream
 * that prefetches AHEAD bytes (2816 x 2048 beyond the caches, two Zen 5 cores that read 46 GB/s: 8 rows at a
 * time read 24).  Few: tiles of 4
 * rows x 4 tokens, 16 dot products and 4 shuffles per 32 columns.  6 tokens would be less per product, but gcc then
 * keeps sums in memory.
 *
 * From MANY tokens on: a panel of 32 rows and 512 columns is widened and transposed into 32 KiB, so that a vector
 * has pairs of columns of 16 rows, and used for up to PANEL_TOK tokens; a tile is 32 rows x 6 tokens, 12 dot
 * products, 2 loads and 6 broadcasts per pair of columns.  The lines of the next panel are prefetched meanwhile. */
#include "kernel/x86/linear_act8_avx512.h"
#include "kernel/x86/linear_int8_avx512.h"

enum { STEP = 32, SEGMENT = 512 * STEP, TILE_ROW = 4, TILE_TOK = 4, AHEAD = 4096 };

void nb_linear_int8_pack_avx512(void *xp, const float *x, size_t x_stride, size_t n_tok,
                                size_t n_col, const uint32_t *column, size_t tok0, size_t tok1)
{
    (void)column;
    const size_t stride = nb_int8_stride(n_col);
    int16_t *q = (int16_t *)xp + tok0 * stride;
    float *sx = (float *)(void *)((int16_t *)xp + n_tok * stride);
    for (size_t t = tok0; t < tok1; t++, q += stride) {
        const float *row = x + t * x_stride;
        const nb_int8_scale s = nb_int8_scale_of(row, n_col);
        sx[t] = s.sx;
        for (size_t c = 0; c < stride; c += 16)
            _mm256_storeu_si256((__m256i *)(void *)(q + c),
                                _mm512_cvtepi32_epi16(nb_int8_q_of(row, c, n_col, s)));
    }
}

/* ---- sums ---- */

static inline __m512i load_w(const int8_t *p, __mmask32 mask)
{
    return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(mask, p));
}

/* 16 sums of 32 bits as 8 of 64. */
static inline __m512i to_64(__m512i a)
{
    return _mm512_add_epi64(_mm512_cvtepi32_epi64(_mm512_castsi512_si256(a)),
                            _mm512_cvtepi32_epi64(_mm512_extracti32x8_epi32(a, 1)));
}
/* The sums of the lanes of each argument. */
static inline __m256i join4(__m512i a, __m512i b, __m512i c, __m512i d)
{
    a = to_64(a), b = to_64(b), c = to_64(c), d = to_64(d);
    const __m512i ab = _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    const __m512i cd = _mm512_add_epi64(_mm512_unpacklo_epi64(c, d), _mm512_unpackhi_epi64(c, d));
    const __m256i x =
        _mm256_add_epi64(_mm512_castsi512_si256(ab), _mm512_extracti64x4_epi64(ab, 1));
    const __m256i y =
        _mm256_add_epi64(_mm512_castsi512_si256(cd), _mm512_extracti64x4_epi64(cd, 1));
    return _mm256_add_epi64(_mm256_permute2x128_si256(x, y, 0x20),
                            _mm256_permute2x128_si256(x, y, 0x31));
}

#define TOK1(M, r) M(r, 0)
#define TOK2(M, r) TOK1(M, r) M(r, 1)
#define TOK3(M, r) TOK2(M, r) M(r, 2)
#define TOK4(M, r) TOK3(M, r) M(r, 3)
#define ROW1(M, T) M(0, T)
#define ROW4(M, T) M(0, T) M(1, T) M(2, T) M(3, T)
#define DECL(r, t) __m512i a##r##t = _mm512_setzero_si512();
#define DECL_ROW(r, T) T(DECL, r)
#define Q_LOAD(r, t) const __m512i q##t = _mm512_loadu_si512(q + t * qs + i);
#define DOT(r, t) a##r##t = _mm512_dpwssd_epi32(a##r##t, wv, q##t);
#define DOT_ROW(r, T)                                                                              \
    {                                                                                              \
        const __m512i wv = load_w(w + r * ws + i, mask);                                           \
        T(DOT, r)                                                                                  \
    }
#define JOIN(a, b, c, d, out)                                                                      \
    {                                                                                              \
        __m256i *p = (__m256i *)(void *)(out);                                                     \
        _mm256_storeu_si256(p, _mm256_add_epi64(_mm256_loadu_si256(p), join4(a, b, c, d)));        \
    }
#define JOIN_4(r, t) JOIN(a0##t, a1##t, a2##t, a3##t, sum + t * TILE_ROW)
#define JOIN_1(r, t) sum[0] += _mm512_reduce_add_epi64(to_64(a0##t));

/* n <= SEGMENT columns from w and q: added to sum [tok][TILE_ROW]. */
#define TILE(name, ROWS, TOKS, JOINS)                                                               \
    static void name(const int8_t *w, size_t ws, const int16_t *q, size_t qs, size_t n,             \
                     int64_t *sum)                                                                  \
    {                                                                                               \
        ROWS(DECL_ROW, TOKS)                                                                        \
        /* The tail in the same loop: with a copy of the body after it gcc keeps sums in memory. */ \
        for (size_t i = 0; i < n; i += STEP) {                                                      \
            const __mmask32 mask = n - i < STEP ? nb_avx512_mask32(n - i) : ~(__mmask32)0;          \
            TOKS(Q_LOAD, 0)                                                                         \
            ROWS(DOT_ROW, TOKS)                                                                     \
        }                                                                                           \
        TOKS(JOINS, 0)                                                                              \
        (void)qs, (void)ws;                                                                         \
    }
TILE(tile_1x1, ROW1, TOK1, JOIN_1)
TILE(tile_4x2, ROW4, TOK2, JOIN_4)
TILE(tile_4x3, ROW4, TOK3, JOIN_4)
TILE(tile_4x4, ROW4, TOK4, JOIN_4)

typedef void tile_fn(const int8_t *w, size_t ws, const int16_t *q, size_t qs, size_t n,
                     int64_t *sum);
static tile_fn *const tile_4[TILE_TOK + 1] = { NULL, NULL, tile_4x2, tile_4x3, tile_4x4 };

/* A row of n <= SEGMENT columns times one token, in lanes. */
static inline __m512i row_dot(const int8_t *w, const int16_t *q, size_t n)
{
    __m512i s0 = _mm512_setzero_si512(), s1 = s0, s2 = s0, s3 = s0;
    size_t i = 0;
    for (; i + 4 * STEP <= n; i += 4 * STEP) {
        const __mmask32 all = ~(__mmask32)0;
        _mm_prefetch((const char *)w + i + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)w + i + AHEAD + 64, _MM_HINT_T0);
        s0 = _mm512_dpwssd_epi32(s0, load_w(w + i, all), _mm512_loadu_si512(q + i));
        s1 = _mm512_dpwssd_epi32(s1, load_w(w + i + 32, all), _mm512_loadu_si512(q + i + 32));
        s2 = _mm512_dpwssd_epi32(s2, load_w(w + i + 64, all), _mm512_loadu_si512(q + i + 64));
        s3 = _mm512_dpwssd_epi32(s3, load_w(w + i + 96, all), _mm512_loadu_si512(q + i + 96));
    }
    for (; i < n; i += STEP)
        s0 = _mm512_dpwssd_epi32(
            s0, load_w(w + i, n - i < STEP ? nb_avx512_mask32(n - i) : ~(__mmask32)0),
            _mm512_loadu_si512(q + i));
    return _mm512_add_epi32(_mm512_add_epi32(s0, s1), _mm512_add_epi32(s2, s3));
}

/* 4 rows times one token: added to sum. */
static void rows_one(const int8_t *w, size_t ws, const int16_t *q, size_t n, int64_t *sum)
{
    const __m512i a0 = row_dot(w, q, n), a1 = row_dot(w + ws, q, n),
                  a2 = row_dot(w + 2 * ws, q, n), a3 = row_dot(w + 3 * ws, q, n);
    JOIN(a0, a1, a2, a3, sum)
}

/* ---- outputs ---- */

/* 4 rows from r of token t, those in mask. */
static void write4(const nb_linear_args *a, size_t r, size_t t, __mmask8 mask, const int64_t *sum,
                   float sx)
{
    const __m128 s = _mm256_cvtepi64_ps(_mm256_loadu_si256((const __m256i *)(const void *)sum));
    const __m128 scale = _mm_maskz_loadu_ps(mask, a->w.scale + r);
    __m128 y = _mm_mul_ps(s, _mm_mul_ps(scale, _mm_set1_ps(sx)));
    if (a->bias) y = _mm_add_ps(y, _mm_maskz_loadu_ps(mask, a->bias + r));
    _mm_mask_storeu_ps(a->y + t * a->y_stride + (r - a->row_begin), mask, y);
}

/* n_row <= TILE_ROW rows x n_tok <= TILE_TOK tokens. */
static void block(const nb_linear_args *a, size_t r, size_t n_row, size_t t, size_t n_tok)
{
    int64_t sum[TILE_TOK * TILE_ROW] = { 0 };
    const size_t n_col = a->w.n_col, qs = nb_int8_stride(n_col);
    const float *sx = nb_int8_sx(a->xp, a->n_tok, n_col) + t;
    for (size_t c = 0; c < n_col; c += SEGMENT) {
        const size_t n = n_col - c < SEGMENT ? n_col - c : SEGMENT;
        const int8_t *w = (const int8_t *)a->w.data + r * n_col + c;
        const int16_t *q = nb_int8_q(a->xp, n_col, t) + c;
        if (n_row == TILE_ROW && n_tok == 1)
            rows_one(w, n_col, q, n, sum);
        else if (n_row == TILE_ROW)
            tile_4[n_tok](w, n_col, q, qs, n, sum);
        else
            for (size_t i = 0; i < n_row; i++)
                for (size_t k = 0; k < n_tok; k++)
                    tile_1x1(w + i * n_col, n_col, q + k * qs, qs, n, sum + k * TILE_ROW + i);
    }
    for (size_t k = 0; k < n_tok; k++)
        write4(a, r, t + k, (__mmask8)((1u << n_row) - 1), sum + k * TILE_ROW, sx[k]);
}

/* ---- many tokens ---- */

enum {
    MANY = 8,
    PANEL_TOK = 128,
    P_ROW = 32,
    P_COL = 512, /* 256 pairs of at most 2^22 fit 32 bits */
    P_TOK = 6,
    P_LINES = P_ROW * P_COL / 64
};
#define INLINE NB_ACT8_INLINE
#define UNROLL NB_ACT8_UNROLL

/* n_row <= P_ROW rows, n <= P_COL columns, as pairs: [pair][P_ROW][2]; up to 32 columns after n are 0. */
static void make_panel(const int8_t *w, size_t ws, size_t n_row, size_t n, int16_t *panel)
{
    __m512i v[16];
    for (size_t c = 0; c < n; c += STEP, panel += STEP * P_ROW)
        for (size_t r = 0; r < n_row; r += 16) { /* rows that are not there: the last */
            const __mmask32 mask = n - c < STEP ? nb_avx512_mask32(n - c) : ~(__mmask32)0;
            UNROLL
            for (size_t i = 0; i < 16; i++)
                v[i] = load_w(w + (r + i < n_row ? r + i : n_row - 1) * ws + c, mask);
            nb_act8_transpose16(v);
            UNROLL
            for (size_t j = 0; j < 16; j++) _mm512_store_si512(panel + (j * P_ROW + r) * 2, v[j]);
        }
}

INLINE void add_wide(int64_t *sum, __m512i a)
{
    const __m512i lo = _mm512_cvtepi32_epi64(_mm512_castsi512_si256(a));
    const __m512i hi = _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(a, 1));
    _mm512_store_si512(sum, _mm512_add_epi64(_mm512_load_si512(sum), lo));
    _mm512_store_si512(sum + 8, _mm512_add_epi64(_mm512_load_si512(sum + 8), hi));
}

/* A panel of n_pair pairs of columns times n_tok (literal) tokens: added to sum [tok][P_ROW]. */
INLINE void tile(const int n_tok, const int16_t *panel, const int16_t *q, size_t qs, size_t n_pair,
                 int64_t *sum)
{
    __m512i a[P_TOK], b[P_TOK];
    UNROLL
    for (int t = 0; t < n_tok; t++) a[t] = b[t] = _mm512_setzero_si512();
    for (size_t i = 0; i < n_pair; i++, panel += 2 * P_ROW) {
        const __m512i w0 = _mm512_load_si512(panel), w1 = _mm512_load_si512(panel + P_ROW);
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            int32_t two;
            memcpy(&two, q + (size_t)t * qs + 2 * i, sizeof two);
            const __m512i x = _mm512_set1_epi32(two);
            a[t] = _mm512_dpwssd_epi32(a[t], w0, x);
            b[t] = _mm512_dpwssd_epi32(b[t], w1, x);
        }
    }
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        add_wide(sum + t * P_ROW, a[t]);
        add_wide(sum + t * P_ROW + 16, b[t]);
    }
}

typedef void panel_fn(const int16_t *panel, const int16_t *q, size_t qs, size_t n_pair, int64_t *sum);
#define P_TILE(n)                                                                                  \
    static void panel_##n(const int16_t *panel, const int16_t *q, size_t qs, size_t n_pair,        \
                          int64_t *sum)                                                            \
    {                                                                                              \
        tile(n, panel, q, qs, n_pair, sum);                                                        \
    }
P_TILE(1)
P_TILE(2)
P_TILE(3)
P_TILE(4)
P_TILE(5)
P_TILE(6)
static panel_fn *const panels[P_TOK + 1] = { NULL,    panel_1, panel_2, panel_3,
                                             panel_4, panel_5, panel_6 };

/* Lines [i0, i1) of a chunk of P_ROW rows, row by row. */
static void fetch_lines(const int8_t *w, size_t ws, size_t i0, size_t i1)
{
    for (size_t i = i0; i < i1; i++)
        _mm_prefetch((const char *)w + i / (P_COL / 64) * ws + i % (P_COL / 64) * 64, _MM_HINT_T0);
}

/* n_row <= P_ROW rows x n_tok <= PANEL_TOK tokens from t0. */
static void many(const nb_linear_args *a, size_t r0, size_t n_row, size_t t0, size_t n_tok)
{
    _Alignas(64) int16_t panel[P_ROW * P_COL];
    _Alignas(64) int64_t sum[PANEL_TOK * P_ROW];
    const size_t n_col = a->w.n_col, qs = nb_int8_stride(n_col);
    const int8_t *w = (const int8_t *)a->w.data + r0 * n_col;
    const float *sx = nb_int8_sx(a->xp, a->n_tok, n_col) + t0;
    memset(sum, 0, n_tok * P_ROW * sizeof *sum);
    for (size_t c = 0; c < n_col; c += P_COL) {
        const size_t n = n_col - c < P_COL ? n_col - c : P_COL;
        const int8_t *next = c + P_COL < n_col ? w + c + P_COL : w + P_ROW * n_col;
        make_panel(w + c, n_col, n_row, n, panel);
        for (size_t t = 0, k; t < n_tok; t += k) {
            k = n_tok - t < P_TOK ? n_tok - t : P_TOK;
            fetch_lines(next, n_col, t * P_LINES / n_tok, (t + k) * P_LINES / n_tok);
            panels[k](panel, nb_int8_q(a->xp, n_col, t0 + t) + c, qs, (n + 1) / 2, sum + t * P_ROW);
        }
    }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t r = 0; r < n_row; r += TILE_ROW) {
            const size_t left = n_row - r < TILE_ROW ? n_row - r : TILE_ROW;
            write4(a, r0 + r, t0 + t, (__mmask8)((1u << left) - 1), sum + t * P_ROW + r, sx[t]);
        }
}

void nb_linear_int8_avx512(const nb_linear_args *a)
{
    for (size_t t = 0; t < a->n_tok; t += PANEL_TOK) {
        const size_t n_tok = a->n_tok - t < PANEL_TOK ? a->n_tok - t : PANEL_TOK;
        const size_t rows = a->n_tok < MANY ? TILE_ROW : P_ROW;
        for (size_t r = a->row_begin; r < a->row_end; r += rows) {
            const size_t k = a->row_end - r < rows ? a->row_end - r : rows;
            if (a->n_tok >= MANY) many(a, r, k, t, n_tok);
            for (size_t i = 0; a->n_tok < MANY && i < n_tok; i += TILE_TOK)
                block(a, r, k, t + i, n_tok - i < TILE_TOK ? n_tok - i : TILE_TOK);
        }
    }
}

/* ---- linear_t: the products in float, the row's scale in x ---- */

static inline __m512 to_float(__m128i v)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v));
}

#define WT_TYPE int8_t
#define WT_LOAD(p) to_float(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define WT_TAIL(p, mask) to_float(_mm_maskz_loadu_epi8(mask, p))
#define WT_FACTOR 1
#define NAME_T nb_linear_t_int8_avx512
#include "kernel/x86/linear_t_tile_avx512.h"
