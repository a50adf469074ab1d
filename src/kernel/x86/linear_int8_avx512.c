/* linear_int8_avx512.c - products with INT8 weights by VNNI, the bits of the portable row
 * (linear_int8.h): sums of integers have no order.
 *
 * 32 weights are widened to 16 bits by one shuffle, and vpdpwssd adds 32 products to 16 sums of 32
 * bits.  One product is at most 127 * 16256 in size, a step adds two of them to a lane, so that 512
 * steps (16,384 columns) fit 32 bits; then the lanes go to 64.  One token: 8 rows at a time, 8
 * shuffles and 8 dot products per 32 columns on two ports: 32 bytes per cycle.  More: tiles of 4
 * rows x 4 tokens, 16 dot products and 4 shuffles: 10 cycles for 512 products, where FMA would
 * need 16.  6 tokens would be 14 cycles for 768, but gcc then keeps sums in memory.  Bytes against two digits of 7 bits (vpdpbusd) is the same number of dot products. */
#include "kernel/x86/linear_int8_avx512.h"

enum { STEP = 32, SEGMENT = 512 * STEP, TILE_ROW = 4, TILE_TOK = 4, ONE_ROW = 8 };

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
#define ROW8(M, T) ROW4(M, T) M(4, T) M(5, T) M(6, T) M(7, T)
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
#define JOIN_8(r, t)                                                                               \
    JOIN(a0##t, a1##t, a2##t, a3##t, sum)                                                          \
    JOIN(a4##t, a5##t, a6##t, a7##t, sum + TILE_ROW)
#define JOIN_1(r, t) sum[0] += _mm512_reduce_add_epi64(to_64(a0##t));

/* n <= SEGMENT columns from w and q: added to sum [tok][TILE_ROW]; one token: sum [rows]. */
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
TILE(tile_8x1, ROW8, TOK1, JOIN_8)
TILE(tile_1x1, ROW1, TOK1, JOIN_1)
TILE(tile_4x1, ROW4, TOK1, JOIN_4)
TILE(tile_4x2, ROW4, TOK2, JOIN_4)
TILE(tile_4x3, ROW4, TOK3, JOIN_4)
TILE(tile_4x4, ROW4, TOK4, JOIN_4)

typedef void tile_fn(const int8_t *w, size_t ws, const int16_t *q, size_t qs, size_t n,
                     int64_t *sum);
static tile_fn *const tile_4[TILE_TOK + 1] = { NULL, tile_4x1, tile_4x2, tile_4x3, tile_4x4 };

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

/* n_row <= ONE_ROW rows x n_tok <= TILE_TOK tokens. */
static void block(const nb_linear_args *a, size_t r, size_t n_row, size_t t, size_t n_tok)
{
    int64_t sum[TILE_TOK * TILE_ROW + ONE_ROW] = { 0 };
    const size_t n_col = a->w.n_col, qs = nb_int8_stride(n_col);
    const float *sx = nb_int8_sx(a->xp, a->n_tok, n_col) + t;
    for (size_t c = 0; c < n_col; c += SEGMENT) {
        const size_t n = n_col - c < SEGMENT ? n_col - c : SEGMENT;
        const int8_t *w = (const int8_t *)a->w.data + r * n_col + c;
        const int16_t *q = nb_int8_q(a->xp, n_col, t) + c;
        if (n_row == ONE_ROW)
            tile_8x1(w, n_col, q, qs, n, sum);
        else if (n_row == TILE_ROW)
            tile_4[n_tok](w, n_col, q, qs, n, sum);
        else
            for (size_t i = 0; i < n_row; i++)
                for (size_t k = 0; k < n_tok; k++)
                    tile_1x1(w + i * n_col, n_col, q + k * qs, qs, n, sum + k * TILE_ROW + i);
    }
    for (size_t k = 0; k < n_tok; k++)
        for (size_t i = 0; i < n_row; i += TILE_ROW) {
            const size_t left = n_row - i < TILE_ROW ? n_row - i : TILE_ROW;
            write4(a, r + i, t + k, (__mmask8)((1u << left) - 1), sum + k * TILE_ROW + i, sx[k]);
        }
}

enum { PANEL_TOK = 48 };

void nb_linear_int8_avx512(const nb_linear_args *a)
{
    /* Rows innermost: the tokens of a panel, 2 bytes a value, stay in L2. */
    for (size_t t0 = 0, t1; t0 < a->n_tok; t0 = t1) {
        t1 = a->n_tok - t0 < PANEL_TOK ? a->n_tok : t0 + PANEL_TOK;
        for (size_t r = a->row_begin, k; r < a->row_end; r += k) {
            k = a->row_end - r;
            k = a->n_tok == 1 && k >= ONE_ROW ? ONE_ROW : k < TILE_ROW ? k : TILE_ROW;
            for (size_t t = t0; t < t1; t += TILE_TOK)
                block(a, r, k, t, t1 - t < TILE_TOK ? t1 - t : TILE_TOK);
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
