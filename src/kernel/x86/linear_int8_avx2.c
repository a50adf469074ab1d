/* linear_int8_avx2.c - products with INT8 weights on integers of 16 bits.
 *
 * A weight is widened to 16 bits, and vpmaddwd multiplies 16 of them with 16 activations and adds
 * pairs: at most 2 * 127 * 16256 < 2^22 each, so a lane of 32 bits holds 520 such sums, 8320
 * columns; a block is BLOCK columns.  The lanes of a block are joined in 64 bits.  Nothing rounds
 * before the last product, so the order does not matter and all variants agree.
 *
 * Few tokens: a tile is 4 rows x 2 tokens: 8 sums, 4 weights and a product in 16 registers, per 16 columns 4
 * widening loads, 2 loads, 8 products and 8 additions; one token: its rows one after the other.
 * One token is bound by the memory.
 *
 * From MANY tokens on: a panel of 16 rows and 512 columns is widened and transposed into 16 KiB, so that a
 * vector has pairs of columns of 8 rows, and used for up to TOKS tokens; a tile is 16 rows x 6 tokens: per pair of
 * columns 2 loads, 6 broadcasts, 12 products and 12 additions, 6 cycles where two products and four of all operations
 * can begin in a cycle.  The lines of the next panel are prefetched meanwhile.
 *
 * Tried: one token as a tile of 4 rows (9 GB/s instead of 13 at
 * 10944 x 2048, four short streams instead of one); 4 x 3 tiles need more registers than there are. */
#include <math.h>
#include <string.h>

#include "kernel/linear/linear_int8.h"
#include "kernel/x86/vec_avx2.h"

enum { BLOCK = 4096, ROWS = 4, TOKS = 128, AHEAD = 2048 };

static inline __m256i load16(const int16_t *p)
{
    return _mm256_load_si256((const __m256i *)(const void *)p);
}
static inline __m256i widen(const int8_t *p)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline __m256i mul_add(__m256i sum, __m256i w, __m256i q)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w, q));
}

/* The sums of the lanes of a, b, c, d. */
static inline __m256i wide(__m256i a)
{
    return _mm256_add_epi64(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(a)),
                            _mm256_cvtepi32_epi64(_mm256_extracti128_si256(a, 1)));
}
static inline __m256i join(__m256i a, __m256i b, __m256i c, __m256i d)
{
    const __m256i ra = wide(a), rb = wide(b), rc = wide(c), rd = wide(d);
    const __m256i ab =
        _mm256_add_epi64(_mm256_unpacklo_epi64(ra, rb), _mm256_unpackhi_epi64(ra, rb));
    const __m256i cd =
        _mm256_add_epi64(_mm256_unpacklo_epi64(rc, rd), _mm256_unpackhi_epi64(rc, rd));
    return _mm256_add_epi64(_mm256_permute2x128_si256(ab, cd, 0x20),
                            _mm256_permute2x128_si256(ab, cd, 0x31));
}

/* 16 columns of 4 rows times two tokens; W(r) are 16 weights of row r. */
#define STEP2(W)                                                                                   \
    {                                                                                              \
        const __m256i w0 = W(0), w1 = W(1), w2 = W(2), w3 = W(3);                                  \
        const __m256i x = load16(q + i), y = load16(q + qs + i);                                   \
        a0 = mul_add(a0, w0, x);                                                                   \
        a1 = mul_add(a1, w1, x);                                                                   \
        a2 = mul_add(a2, w2, x);                                                                   \
        a3 = mul_add(a3, w3, x);                                                                   \
        b0 = mul_add(b0, w0, y);                                                                   \
        b1 = mul_add(b1, w1, y);                                                                   \
        b2 = mul_add(b2, w2, y);                                                                   \
        b3 = mul_add(b3, w3, y);                                                                   \
    }
#define ZERO4(s) __m256i s##0 = _mm256_setzero_si256(), s##1 = s##0, s##2 = s##0, s##3 = s##0
#define ROW(r) widen(w[r] + i) /* as stored                                        */
#define TAIL(r) widen(tail[r]) /* the last columns of a row, which nothing follows */

static void copy_tail(const int8_t *const *w, size_t at, size_t n, int8_t tail[ROWS][16])
{
    for (size_t r = 0; r < ROWS; r++) {
        memset(tail[r], 0, 16);
        memcpy(tail[r], w[r] + at, n);
    }
}

/* The four rows one after the other: they lie behind each other, and one stream of 4 rows comes
 * faster from memory than four of one. */
static inline __m256i row_1(const int8_t *w, const int16_t *q, size_t n)
{
    __m256i a0 = _mm256_setzero_si256(), a1 = a0, a2 = a0, a3 = a0;
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        _mm_prefetch((const char *)w + i + AHEAD, _MM_HINT_T0);
        a0 = mul_add(a0, widen(w + i), load16(q + i));
        a1 = mul_add(a1, widen(w + i + 16), load16(q + i + 16));
        a2 = mul_add(a2, widen(w + i + 32), load16(q + i + 32));
        a3 = mul_add(a3, widen(w + i + 48), load16(q + i + 48));
    }
    for (; i + 16 <= n; i += 16) a0 = mul_add(a0, widen(w + i), load16(q + i));
    if (i < n) {
        int8_t tail[16] = { 0 };
        memcpy(tail, w + i, n - i);
        a1 = mul_add(a1, widen(tail), load16(q + i));
    }
    return _mm256_add_epi32(_mm256_add_epi32(a0, a1), _mm256_add_epi32(a2, a3));
}

static void rows_1(const int8_t *const *w, const int16_t *q, size_t n, __m256i *sum)
{
    const __m256i a = row_1(w[0], q, n), b = row_1(w[1], q, n);
    const __m256i c = row_1(w[2], q, n), d = row_1(w[3], q, n);
    sum[0] = _mm256_add_epi64(sum[0], join(a, b, c, d));
}

static void rows_2(const int8_t *const *w, const int16_t *q, size_t qs, size_t n, __m256i *sum)
{
    size_t i = 0;
    ZERO4(a);
    ZERO4(b);
    for (; i + 16 <= n; i += 16) STEP2(ROW)
    if (i < n) {
        int8_t tail[ROWS][16];
        copy_tail(w, i, n - i, tail);
        STEP2(TAIL)
    }
    sum[0] = _mm256_add_epi64(sum[0], join(a0, a1, a2, a3));
    sum[1] = _mm256_add_epi64(sum[1], join(b0, b1, b2, b3));
}

/* sum[t]: 4 rows times token t of n_tok, over n <= BLOCK columns. */
static void block_sums(const int8_t *const *w, const int16_t *q, size_t qs, size_t n, size_t n_tok,
                       __m256i *sum)
{
    size_t t = 0;
    for (; t + 2 <= n_tok; t += 2) rows_2(w, q + t * qs, qs, n, sum + t);
    if (t < n_tok) rows_1(w, q + t * qs, n, sum + t);
}

/* The exact sums as floats, rounded once: |sum| < 2^51 goes through the fraction of a double. */
static __m128 as_float(__m256i sum)
{
    const __m256d magic = _mm256_set1_pd(0x1.8p52);
    const __m256i bits = _mm256_add_epi64(sum, _mm256_castpd_si256(magic));
    return _mm256_cvtpd_ps(_mm256_sub_pd(_mm256_castsi256_pd(bits), magic));
}

/* ---- many tokens ---- */

enum {
    MANY = 8,
    P_ROW = 16,
    P_COL = 512, /* 256 pairs of at most 2^22 fit 32 bits */
    P_TOK = 6,
    P_LINES = P_ROW * P_COL / 64
};
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* n_row <= P_ROW rows, n <= P_COL columns; up to 16 columns after n are 0.  Columns 2 j, 2 j + 1 of row i are lane i of
 * vector j. */
static void make_panel(const int8_t *w, size_t ws, size_t n_row, size_t n, int16_t *panel)
{
    for (size_t c = 0; c < n; c += 16, panel += 16 * P_ROW)
        for (size_t r = 0; r < n_row; r += 8) {
            __m256i v[8];
            UNROLL
            for (size_t i = 0; i < 8; i++) { /* rows that are not there: the last */
                const int8_t *p = w + (r + i < n_row ? r + i : n_row - 1) * ws + c;
                int8_t tail[16] = { 0 };
                if (n - c < 16) memcpy(tail, p, n - c);
                v[i] = widen(n - c < 16 ? tail : p);
            }
            nb_avx2_turn8(v, panel + r * 2, P_ROW * 2 * sizeof *panel);
        }
}

INLINE void add_wide(int64_t *sum, __m256i a)
{
    __m256i *p = (__m256i *)(void *)sum;
    _mm256_store_si256(
        p, _mm256_add_epi64(_mm256_load_si256(p), _mm256_cvtepi32_epi64(_mm256_castsi256_si128(a))));
    _mm256_store_si256(p + 1, _mm256_add_epi64(_mm256_load_si256(p + 1),
                                               _mm256_cvtepi32_epi64(_mm256_extracti128_si256(a, 1))));
}

/* A panel of n_pair pairs of columns times n_tok (literal) tokens: added to sum [tok][P_ROW]. */
INLINE void tile(const int n_tok, const int16_t *panel, const int16_t *q, size_t qs, size_t n_pair,
                 int64_t *sum)
{
    __m256i a[P_TOK], b[P_TOK];
    UNROLL
    for (int t = 0; t < n_tok; t++) a[t] = b[t] = _mm256_setzero_si256();
    for (size_t i = 0; i < n_pair; i++, panel += 2 * P_ROW) {
        const __m256i w0 = load16(panel), w1 = load16(panel + P_ROW);
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            int32_t two;
            memcpy(&two, q + (size_t)t * qs + 2 * i, sizeof two);
            const __m256i x = _mm256_set1_epi32(two);
            a[t] = mul_add(a[t], w0, x);
            b[t] = mul_add(b[t], w1, x);
            __asm__ volatile("" : "+x"(a[t]), "+x"(b[t])); /* or gcc keeps the sums in memory */
        }
    }
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        add_wide(sum + t * P_ROW, a[t]);
        add_wide(sum + t * P_ROW + 8, b[t]);
    }
}

typedef void tile_fn(const int16_t *panel, const int16_t *q, size_t qs, size_t n_pair, int64_t *sum);
#define TILE(n)                                                                                    \
    static void tile_##n(const int16_t *panel, const int16_t *q, size_t qs, size_t n_pair,         \
                         int64_t *sum)                                                             \
    {                                                                                              \
        tile(n, panel, q, qs, n_pair, sum);                                                        \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
static tile_fn *const tiles[P_TOK + 1] = { NULL, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6 };

/* Lines [i0, i1) of a chunk of P_ROW rows, row by row. */
static void fetch_lines(const int8_t *w, size_t ws, size_t i0, size_t i1)
{
    for (size_t i = i0; i < i1; i++)
        _mm_prefetch((const char *)w + i / (P_COL / 64) * ws + i % (P_COL / 64) * 64, _MM_HINT_T0);
}

/* Of the rows of a panel, those that are not there as 0: a copy of a part of them for each token would be read before it is
 * written, which took a tenth of a prompt. */
typedef struct row_parts {
    float scale[P_ROW], bias[P_ROW];
} row_parts;

static row_parts parts_of(const nb_linear_args *a, size_t r0, size_t n_row)
{
    row_parts p = { { 0 }, { 0 } };
    memcpy(p.scale, a->w.scale + r0, n_row * sizeof *p.scale);
    if (a->bias) memcpy(p.bias, a->bias + r0, n_row * sizeof *p.bias);
    return p;
}

static void write_token(const nb_linear_args *a, const row_parts *p, size_t n_row, float *y, const int64_t *sum, float sx)
{
    for (size_t r = 0; r < n_row; r += ROWS) {
        const __m256i s = _mm256_load_si256((const __m256i *)(const void *)(sum + r));
        __m128 v = _mm_mul_ps(as_float(s), _mm_mul_ps(_mm_loadu_ps(p->scale + r), _mm_set1_ps(sx)));
        if (a->bias) v = _mm_add_ps(v, _mm_loadu_ps(p->bias + r));
        if (n_row - r >= ROWS) {
            _mm_storeu_ps(y + r, v);
            continue;
        }
        float out[ROWS];
        _mm_storeu_ps(out, v);
        memcpy(y + r, out, (n_row - r) * sizeof *out);
    }
}

static void panel_times_tokens(const nb_linear_args *a, size_t r0, size_t n_row, size_t t0, size_t n_tok)
{
    _Alignas(64) int16_t panel[P_ROW * P_COL];
    _Alignas(64) int64_t sum[TOKS * P_ROW];
    const size_t n_col = a->w.n_col, qs = nb_int8_stride(n_col);
    const int8_t *w = (const int8_t *)a->w.data + r0 * n_col;
    memset(sum, 0, n_tok * P_ROW * sizeof *sum);
    for (size_t c = 0; c < n_col; c += P_COL) {
        const size_t n = n_col - c < P_COL ? n_col - c : P_COL;
        const int8_t *next = c + P_COL < n_col ? w + c + P_COL : w + P_ROW * n_col;
        make_panel(w + c, n_col, n_row, n, panel);
        for (size_t t = 0, k; t < n_tok; t += k) {
            k = n_tok - t < P_TOK ? n_tok - t : P_TOK;
            fetch_lines(next, n_col, t * P_LINES / n_tok, (t + k) * P_LINES / n_tok);
            tiles[k](panel, nb_int8_q(a->xp, n_col, t0 + t) + c, qs, (n + 1) / 2, sum + t * P_ROW);
        }
    }
    const row_parts parts = parts_of(a, r0, n_row);
    const float *sx = nb_int8_sx(a->xp, a->n_tok, n_col) + t0;
    float *y = a->y + t0 * a->y_stride + (r0 - a->row_begin);
    for (size_t t = 0; t < n_tok; t++) write_token(a, &parts, n_row, y + t * a->y_stride, sum + t * P_ROW, sx[t]);
}

/* ---- few tokens ---- */

static void rows4_times_tokens(const nb_linear_args *a, size_t r0, size_t n_row, size_t t0,
                               size_t n_tok)
{
    const size_t n_col = a->w.n_col, qs = nb_int8_stride(n_col);
    const int16_t *q = nb_int8_q(a->xp, n_col, t0);
    const float *sx = nb_int8_sx(a->xp, a->n_tok, n_col) + t0;
    const int8_t *w[ROWS];
    float scale[ROWS] = { 0 }, bias[ROWS] = { 0 };
    for (size_t r = 0; r < ROWS; r++) {
        const size_t row = r0 + (r < n_row ? r : n_row - 1); /* rows that are not there: the last */
        w[r] = (const int8_t *)a->w.data + row * n_col;
        scale[r] = a->w.scale[row];
        if (a->bias) bias[r] = a->bias[row];
    }
    __m256i sum[TOKS];
    for (size_t t = 0; t < n_tok; t++) sum[t] = _mm256_setzero_si256();
    for (size_t c = 0; c < n_col; c += BLOCK) {
        block_sums(w, q + c, qs, n_col - c < BLOCK ? n_col - c : BLOCK, n_tok, sum);
        for (size_t r = 0; r < ROWS; r++) w[r] += n_col - c < BLOCK ? n_col - c : BLOCK;
    }
    const __m128 sv = _mm_loadu_ps(scale), bv = _mm_loadu_ps(bias);
    for (size_t t = 0; t < n_tok; t++) {
        __m128 y = _mm_mul_ps(as_float(sum[t]), _mm_mul_ps(sv, _mm_set1_ps(sx[t])));
        if (a->bias) y = _mm_add_ps(y, bv);
        float out[ROWS];
        _mm_storeu_ps(out, y);
        float *to = a->y + (t0 + t) * a->y_stride + (r0 - a->row_begin);
        for (size_t r = 0; r < n_row; r++) to[r] = out[r];
    }
}

void nb_linear_int8_avx2(const nb_linear_args *a)
{
    const size_t rows = a->n_tok < MANY ? ROWS : P_ROW;
    for (size_t t = 0; t < a->n_tok; t += TOKS)
        for (size_t r = a->row_begin; r < a->row_end; r += rows) {
            const size_t n_row = a->row_end - r < rows ? a->row_end - r : rows;
            (a->n_tok < MANY ? rows4_times_tokens : panel_times_tokens)(
                a, r, n_row, t, a->n_tok - t < TOKS ? a->n_tok - t : TOKS);
        }
}

/* ---- packing ---- */

static inline __m256 load_part(const float *x, size_t n)
{
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, nb_avx2_mask(n));
}

/* The largest magnitude as bits, which order as magnitudes do; from 0x7f800000 on not finite. */
static uint32_t abs_max(const float *x, size_t n)
{
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i m = _mm256_setzero_si256();
    for (size_t c = 0; c < n; c += 8)
        m = _mm256_max_epu32(m,
                             _mm256_and_si256(mask, _mm256_castps_si256(load_part(x + c, n - c))));
    __m128i h = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0x4e));
    h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(h);
}

static inline __m256i rounded(const float *x, size_t n, __m256 inv)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(load_part(x, n), inv));
}

static void pack_row(int16_t *q, size_t stride, const float *x, size_t n, float inv)
{
    const __m256 iv = _mm256_set1_ps(inv);
    for (size_t c = 0; c < stride; c += 16) {
        const __m256i lo = c < n ? rounded(x + c, n - c, iv) : _mm256_setzero_si256();
        const __m256i hi = c + 8 < n ? rounded(x + c + 8, n - c - 8, iv) : _mm256_setzero_si256();
        const __m256i v = _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xd8);
        _mm256_store_si256((__m256i *)(void *)(q + c), v);
    }
}

void nb_linear_int8_pack_avx2(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                              const uint32_t *column, size_t tok0, size_t tok1)
{
    (void)column;
    const size_t stride = nb_int8_stride(n_col);
    int16_t *q = xp;
    float *sx = (float *)(void *)(q + n_tok * stride);
    for (size_t t = tok0; t < tok1; t++) {
        const uint32_t bits = abs_max(x + t * x_stride, n_col);
        float m;
        memcpy(&m, &bits, sizeof m);
        const bool finite = bits < 0x7f800000u, some = finite && m >= NB_INT8_X_MIN;
        if (some)
            pack_row(q + t * stride, stride, x + t * x_stride, n_col, NB_INT8_X_MAX / m);
        else
            memset(q + t * stride, 0, stride * sizeof *q);
        sx[t] = some ? m / NB_INT8_X_MAX : finite ? 0 : NAN;
    }
}

/* ---- linear_t ---- */

static inline __m256 load_t(const int8_t *p)
{
    const __m128i v = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
}
static inline __m256 tail_t(const int8_t *p, size_t n)
{
    int8_t v[8] = { 0 };
    for (size_t i = 0; i < n; i++) v[i] = p[i];
    return load_t(v);
}

#define W_TYPE int8_t
#define W_LOAD_T(p) load_t(p)
#define W_TAIL_T(p, n) tail_t(p, n)
#define W_FACTOR_T(w, r, c) ((w)->scale[r])
#define NAME_T nb_linear_t_int8_avx2
#include "kernel/x86/linear_t_tile_avx2.h"
