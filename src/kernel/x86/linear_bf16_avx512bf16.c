/* linear_bf16_avx512bf16.c - BF16 weights times activations rounded to BF16 once (NB_ACT_BF16), by vdpbf16ps:
 * 32 products per instruction where FMA has 16, and nothing is widened.
 *
 * Order of an output: columns 2 i and 2 i + 1 modulo 32 go to lane i, each an FMA without denormal numbers; a chunk
 * of 1,024 columns is one chain, chunks are added in turn, and lanes are joined as in linear_order.h.  So a
 * term meets at most 64 + n/1024 + 6 roundings of 2^-24, beside the 2^-8 of x.
 *
 * One token: 8 rows at a time, up to 6: tiles of 4 rows from the matrix, with the next 8 rows prefetched in the
 * order of addresses.  More: 8 rows of a chunk are
 * copied to 16 KiB of L1, for up to 48 tokens; a tile of 4 rows x 6 tokens has 24 products and 10 loads per 32
 * columns, 12 cycles where two products begin in a cycle. */
#include <stdbool.h>
#include <string.h>

#include "kernel/linear/linear.h"
#include "kernel/x86/vec_avx512.h"

enum { STEP = 32, CHUNK = 1024, ROWS = 8, TILE_ROW = 4, TILE_TOK = 6, PANEL_TOK = 48, LANE = 16 };
enum { STRIP = CHUNK + STEP }; /* rows of a strip begin an odd number of cache lines apart */

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")

/* ---- the pack: rows of BF16, zeros to the next multiple of 32 ---- */

static size_t stride_of(size_t n_col)
{
    return (n_col + STEP - 1) / STEP * STEP;
}

size_t nb_linear_act16_pack_bytes(size_t n_tok, size_t n_col)
{
    return n_tok * stride_of(n_col) * sizeof(uint16_t);
}

void nb_linear_act16_pack_avx512bf16(void *xp, const float *x, size_t x_stride, size_t n_tok,
                                     size_t n_col, const uint32_t *column, size_t tok0, size_t tok1)
{
    const size_t stride = stride_of(n_col);
    (void)column, (void)n_tok;
    for (size_t t = tok0; t < tok1; t++) {
        const float *row = x + t * x_stride;
        uint16_t *out = (uint16_t *)xp + t * stride;
        for (size_t c = 0; c < stride; c += 16) {
            const size_t left = n_col > c ? n_col - c : 0;
            const __m512 v = _mm512_maskz_loadu_ps(nb_avx512_mask16(left < 16 ? left : 16), row + c);
            _mm256_storeu_si256((__m256i *)(void *)(out + c), (__m256i)_mm512_cvtneps_pbh(v));
        }
    }
}

/* ---- tiles ---- */

INLINE __m512 dot(__m512 sum, __m512i w, __m512i x)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x);
}

/* 8 rows from the matrix times one token, n columns: added to total [ROWS][LANE].  c: columns before these. */
static void rows_8(const uint16_t *w, size_t ws, const uint16_t *x, size_t n, size_t c, float *total)
{
    __m512 a[ROWS];
    UNROLL
    for (int r = 0; r < ROWS; r++) a[r] = _mm512_setzero_ps();
    const uint16_t *ahead = w + ROWS * ws + (ROWS - 1) * c;
    for (size_t i = 0; i < n; i += STEP) {
        const __mmask32 mask = n - i < STEP ? nb_avx512_mask32(n - i) : ~(__mmask32)0;
        const __m512i xv = _mm512_loadu_si512(x + i);
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            _mm_prefetch((const char *)(ahead + ROWS * i + r * STEP), _MM_HINT_T0);
            a[r] = dot(a[r], _mm512_maskz_loadu_epi16(mask, w + (size_t)r * ws + i), xv);
        }
    }
    UNROLL
    for (int r = 0; r < ROWS; r++)
        _mm512_store_ps(total + r * LANE, _mm512_add_ps(a[r], _mm512_load_ps(total + r * LANE)));
}

static void row_1(const uint16_t *w, const uint16_t *x, size_t n, float *total)
{
    __m512 a = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += STEP) {
        const __mmask32 mask = n - i < STEP ? nb_avx512_mask32(n - i) : ~(__mmask32)0;
        a = dot(a, _mm512_maskz_loadu_epi16(mask, w + i), _mm512_loadu_si512(x + i));
    }
    _mm512_store_ps(total, _mm512_add_ps(a, _mm512_load_ps(total)));
}

/* 4 rows, of a strip or (direct) of the matrix, times n_tok (literal) tokens: added to total [tok][ROWS][LANE].
 * ahead: of the matrix, what is prefetched. */
INLINE void tile(const int n_tok, const bool direct, const uint16_t *w, size_t ws, const uint16_t *ahead,
                 const uint16_t *x, size_t xs, size_t n, float *total)
{
    __m512 a[TILE_ROW * TILE_TOK];
    UNROLL
    for (int k = 0; k < TILE_ROW * n_tok; k++) a[k] = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += STEP) {
        __m512i xv[TILE_TOK];
        UNROLL
        for (int t = 0; t < n_tok; t++) xv[t] = _mm512_loadu_si512(x + (size_t)t * xs + i);
        UNROLL
        for (int r = 0; r < TILE_ROW; r++) {
            const uint16_t *p = w + (size_t)r * ws + i;
            const __mmask32 mask =
                direct && n - i < STEP ? nb_avx512_mask32(n - i) : ~(__mmask32)0;
            const __m512i wv = direct ? _mm512_maskz_loadu_epi16(mask, p) : _mm512_load_si512(p);
            if (direct) _mm_prefetch((const char *)(ahead + TILE_ROW * i + r * STEP), _MM_HINT_T0);
            UNROLL
            for (int t = 0; t < n_tok; t++) a[r * n_tok + t] = dot(a[r * n_tok + t], wv, xv[t]);
        }
    }
    UNROLL
    for (int r = 0; r < TILE_ROW; r++) {
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            float *p = total + (t * ROWS + r) * LANE;
            _mm512_store_ps(p, _mm512_add_ps(a[r * n_tok + t], _mm512_load_ps(p)));
        }
    }
}

typedef void tile_fn(const uint16_t *w, size_t ws, const uint16_t *ahead, const uint16_t *x, size_t xs,
                     size_t n, float *total);
#define TILE(k)                                                                                    \
    static void tile_##k(const uint16_t *w, size_t ws, const uint16_t *ahead, const uint16_t *x,   \
                         size_t xs, size_t n, float *total)                                        \
    {                                                                                              \
        tile(k, false, w, ws, ahead, x, xs, n, total);                                             \
    }                                                                                              \
    static void direct_##k(const uint16_t *w, size_t ws, const uint16_t *ahead, const uint16_t *x, \
                           size_t xs, size_t n, float *total)                                      \
    {                                                                                              \
        tile(k, true, w, ws, ahead, x, xs, n, total);                                              \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
static tile_fn *const tiles[TILE_TOK + 1] = { NULL, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6 };
static tile_fn *const directs[TILE_TOK + 1] = { NULL,     direct_1, direct_2, direct_3,
                                                direct_4, direct_5, direct_6 };

/* n columns of n_row <= ROWS rows; the rest of the rows, and of the last step, is 0. */
static void make_strip(const uint16_t *w, size_t ws, size_t n_row, size_t n, uint16_t *strip)
{
    for (size_t r = 0; r < ROWS; r++)
        for (size_t i = 0; i < n; i += STEP) {
            const size_t left = r < n_row ? n - i : 0;
            const __mmask32 mask = left < STEP ? nb_avx512_mask32(left) : ~(__mmask32)0;
            _mm512_store_si512(strip + r * STRIP + i, _mm512_maskz_loadu_epi16(mask, w + r * ws + i));
        }
}

/* Lines [i0, i1) of ROWS rows of a chunk, row by row. */
static void fetch_lines(const uint16_t *w, size_t ws, size_t i0, size_t i1)
{
    for (size_t i = i0; i < i1; i++)
        _mm_prefetch((const char *)(w + i / (CHUNK / STEP) * ws + i % (CHUNK / STEP) * STEP),
                     _MM_HINT_T0);
}

static void write_rows(const nb_linear_args *a, size_t r0, size_t n_row, size_t t,
                       const float *total)
{
    float *y = a->y + t * a->y_stride + (r0 - a->row_begin);
    for (size_t r = 0; r < n_row; r += TILE_ROW) {
        const __mmask8 mask = (__mmask8)((1u << (n_row - r < TILE_ROW ? n_row - r : TILE_ROW)) - 1);
        const float *p = total + r * LANE;
        __m128 sum = nb_avx512_join4(_mm512_load_ps(p), _mm512_load_ps(p + LANE),
                                     _mm512_load_ps(p + 2 * LANE), _mm512_load_ps(p + 3 * LANE));
        if (a->bias) sum = _mm_add_ps(sum, _mm_maskz_loadu_ps(mask, a->bias + r0 + r));
        _mm_mask_storeu_ps(y + r, mask, sum);
    }
}

/* n_row <= ROWS rows x n_tok <= PANEL_TOK tokens from t0. */
static void panel(const nb_linear_args *a, size_t r0, size_t n_row, size_t t0, size_t n_tok)
{
    _Alignas(64) float total[PANEL_TOK * ROWS * LANE];
    _Alignas(64) uint16_t strip[ROWS * STRIP];
    const size_t n_col = a->w.n_col, xs = stride_of(n_col), lines = ROWS * CHUNK / STEP;
    const uint16_t *w = (const uint16_t *)a->w.data + r0 * n_col;
    memset(total, 0, n_tok * ROWS * LANE * sizeof *total);
    for (size_t c = 0; c < n_col; c += CHUNK) {
        const size_t n = n_col - c < CHUNK ? n_col - c : CHUNK;
        const uint16_t *x = (const uint16_t *)a->xp + t0 * xs + c;
        if (a->n_tok == 1) {
            if (n_row == ROWS) rows_8(w + c, n_col, x, n, c, total);
            for (size_t r = 0; n_row < ROWS && r < n_row; r++)
                row_1(w + r * n_col + c, x, n, total + r * LANE);
            continue;
        }
        if (a->n_tok <= TILE_TOK && n_row == ROWS) { /* a few: from the matrix, too */
            for (size_t r = 0; r < ROWS; r += TILE_ROW)
                directs[n_tok](w + r * n_col + c, n_col,
                               w + (r + ROWS) * n_col + (TILE_ROW - 1) * c + c, x, xs, n,
                               total + r * LANE);
            continue;
        }
        make_strip(w + c, n_col, n_row, n, strip);
        const uint16_t *next = c + CHUNK < n_col ? w + c + CHUNK : w + ROWS * n_col;
        for (size_t t = 0, k; t < n_tok; t += k) {
            k = n_tok - t < TILE_TOK ? n_tok - t : TILE_TOK;
            if (t0 == 0) fetch_lines(next, n_col, t * lines / n_tok, (t + k) * lines / n_tok);
            for (size_t r = 0; r < n_row; r += TILE_ROW)
                tiles[k](strip + r * STRIP, STRIP, NULL, x + t * xs, xs, n,
                         total + (t * ROWS + r) * LANE);
        }
    }
    for (size_t t = 0; t < n_tok; t++)
        write_rows(a, r0, n_row, t0 + t, total + t * ROWS * LANE);
}

void nb_linear_bf16_act16_avx512bf16(const nb_linear_args *a)
{
    for (size_t r = a->row_begin; r < a->row_end; r += ROWS)
        for (size_t t = 0; t < a->n_tok; t += PANEL_TOK)
            panel(a, r, a->row_end - r < ROWS ? a->row_end - r : ROWS, t,
                  a->n_tok - t < PANEL_TOK ? a->n_tok - t : PANEL_TOK);
}
