/* linear_act8_avxvnni.c - activations in 8 bits (linear_act8.h) and INT8 weights by AVX-VNNI.
 *
 * One token reads 8 rows at a time, 32 columns of each, one group: vpdpbusd on the rows as they are stored, then 21
 * operations join the lanes, so that lane i has row i.  As many bytes of the 8 rows after them are prefetched, in the order
 * of their addresses.  It is bound by memory.
 *
 * More tokens: a panel of 16 rows and 512 columns is transposed into 8 KiB, so that a vector has four columns of 8 rows,
 * and used for all tokens of the call; their sums wait in memory between groups, because a tile of 16 rows x 6 tokens
 * needs 12 of the 16 registers for integers.  A group of a tile is 96 vpdpbusd, 48 broadcasts, 12 conversions and 12 FMA:
 * 89 % of the peak where products and FMA share two units.  The lines of the next panel are prefetched meanwhile. */
#include <math.h>
#include <string.h>

#include "kernel/linear/linear_act8.h"
#include "kernel/x86/vec_avx2.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

enum { CHUNK = 512, ROWS = 8, PANEL = 16, TOK = 6, SUMS_TOK = 256, LINES = CHUNK * PANEL / 64, G = NB_ACT8_GROUP };

INLINE __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
INLINE __m256i dot(__m256i sum, __m256i w, __m256i q)
{
    return _mm256_dpbusd_avx_epi32(sum, w, q);
}

/* ---- the pack ---- */

INLINE uint32_t max_of(__m256i m)
{
    __m128i v = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    v = _mm_max_epu32(v, _mm_shuffle_epi32(v, 0x4e));
    v = _mm_max_epu32(v, _mm_shuffle_epi32(v, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(v);
}
INLINE int32_t sum_of(__m256i m)
{
    __m128i v = _mm_add_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1));
    return _mm_cvtsi128_si32(v);
}
INLINE __m256i rounded(const float *x, __m256 by)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), by));
}

/* 32 values. */
static void pack_group(const float *x, int8_t *q, float *s, int32_t *z)
{
    const __m256i mag = _mm256_set1_epi32(0x7fffffff), zero = _mm256_setzero_si256();
    const __m256i a = _mm256_max_epu32(_mm256_and_si256(mag, load(x)), _mm256_and_si256(mag, load(x + 8)));
    const __m256i b = _mm256_max_epu32(_mm256_and_si256(mag, load(x + 16)), _mm256_and_si256(mag, load(x + 24)));
    const uint32_t bits = max_of(_mm256_max_epu32(a, b)); /* from 0x7f800000 on not finite */
    float most;
    memcpy(&most, &bits, sizeof most);
    if (bits >= 0x7f800000 || most < NB_ACT8_MIN) {
        _mm256_storeu_si256((__m256i *)(void *)q, zero);
        *s = bits >= 0x7f800000 ? NAN : 0;
        *z = 0;
        return;
    }
    const __m256 by = _mm256_set1_ps(NB_ACT8_MAX / most);
    const __m256i lo = _mm256_packs_epi32(rounded(x, by), rounded(x + 8, by));
    const __m256i hi = _mm256_packs_epi32(rounded(x + 16, by), rounded(x + 24, by));
    const __m256i v = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(lo, hi), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)q, v);
    *s = most / NB_ACT8_MAX;
    *z = -128 * sum_of(dot(zero, _mm256_set1_epi8(1), v));
}

void nb_linear_act8_pack_avxvnni(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                                 const uint32_t *column, size_t tok0, size_t tok1)
{
    if (column) {
        nb_linear_act8_pack_c(xp, x, x_stride, n_tok, n_col, column, tok0, tok1);
        return;
    }
    const size_t stride = nb_act8_stride(n_col), gs = nb_act8_groups(n_col), n_group = (n_col + G - 1) / G;
    int8_t *q = (int8_t *)xp;
    float *s = (float *)(void *)(q + n_tok * stride);
    int32_t *z = (int32_t *)(void *)(s + n_tok * gs);
    for (size_t t = tok0; t < tok1; t++) {
        const float *from = x + t * x_stride;
        memset(q + t * stride, 0, stride);
        memset(s + t * gs, 0, gs * sizeof *s);
        memset(z + t * gs, 0, gs * sizeof *z);
        for (size_t g = 0; g < n_group; g++) {
            float tail[G] = { 0 };
            if (n_col - g * G < G) memcpy(tail, from + g * G, (n_col - g * G) * sizeof *tail);
            pack_group(n_col - g * G < G ? tail : from + g * G, q + t * stride + g * G, s + t * gs + g, z + t * gs + g);
        }
    }
}

/* ---- rows ---- */

/* n <= 32 columns of 8 rows, `last` the last that exists (the others repeat it), as unsigned bytes; q is 0 in columns
 * that are missing. */
INLINE void load_rows(const int8_t *w, size_t ws, size_t last, size_t n, __m256i v[ROWS])
{
    const __m256i turn = _mm256_set1_epi8((char)0x80);
    UNROLL
    for (size_t i = 0; i < ROWS; i++) {
        const int8_t *p = w + (i < last ? i : last) * ws;
        int8_t tail[G] = { 0 };
        if (n < G) memcpy(tail, p, n);
        v[i] = _mm256_xor_si256(turn, load(n < G ? tail : p));
    }
}

/* The sums of the lanes of v[i] in lane i. */
INLINE __m256i join8(const __m256i v[ROWS])
{
    const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

INLINE __m256 add_group(__m256i sum, float s, __m256 acc)
{
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(s), acc);
}

INLINE void write_rows(const nb_linear_args *a, size_t r, size_t n_row, size_t t, __m256 acc)
{
    float *y = a->y + t * a->y_stride + (r - a->row_begin);
    if (n_row == ROWS) {
        acc = _mm256_mul_ps(acc, _mm256_loadu_ps(a->w.scale + r));
        if (a->bias) acc = _mm256_add_ps(acc, _mm256_loadu_ps(a->bias + r));
        _mm256_storeu_ps(y, acc);
        return;
    }
    const __m256i m = nb_avx2_mask(n_row);
    acc = _mm256_mul_ps(acc, _mm256_maskload_ps(a->w.scale + r, m));
    if (a->bias) acc = _mm256_add_ps(acc, _mm256_maskload_ps(a->bias + r, m));
    _mm256_maskstore_ps(y, m, acc);
}

/* ---- one token ---- */

INLINE __m256 step_one(__m256i v[ROWS], const int8_t *q, float s, int32_t z, __m256 acc)
{
    const __m256i x = load(q);
    UNROLL
    for (int i = 0; i < ROWS; i++) v[i] = dot(_mm256_setzero_si256(), v[i], x);
    return add_group(_mm256_add_epi32(join8(v), _mm256_set1_epi32(z)), s, acc);
}

static void one_token(const nb_linear_args *a, size_t r, size_t n_row)
{
    const size_t n_col = a->w.n_col;
    const int8_t *w = (const int8_t *)a->w.data + r * n_col, *q = nb_act8_q(a->xp, n_col, 0);
    const float *s = nb_act8_s(a->xp, a->n_tok, n_col);
    const int32_t *z = nb_act8_z(a->xp, a->n_tok, n_col);
    const char *ahead = (const char *)w + ROWS * n_col;
    __m256 acc = _mm256_setzero_ps();
    __m256i v[ROWS];
    size_t c = 0;
    for (; n_row == ROWS && c + G <= n_col; c += G) {
        UNROLL
        for (size_t i = 0; i < ROWS * G / 64; i++) _mm_prefetch(ahead + c * ROWS + i * 64, _MM_HINT_NTA);
        load_rows(w + c, n_col, ROWS - 1, G, v);
        acc = step_one(v, q + c, s[c / G], z[c / G], acc);
    }
    for (; c < n_col; c += G) {
        load_rows(w + c, n_col, n_row - 1, n_col - c < G ? n_col - c : G, v);
        acc = step_one(v, q + c, s[c / G], z[c / G], acc);
    }
    write_rows(a, r, n_row, 0, acc);
}

/* ---- more tokens ---- */

/* n_row <= 16 rows, n columns. */
static void make_panel(const int8_t *w, size_t ws, size_t n_row, size_t n, uint8_t *panel)
{
    for (size_t c = 0; c < n; c += G, panel += G * PANEL)
        for (size_t r = 0; r < PANEL; r += ROWS) { /* the last row again where there are fewer */
            const size_t at = r < n_row ? r : n_row - 1, have = n_row - at < ROWS ? n_row - at : ROWS;
            __m256i v[ROWS];
            if (have == ROWS && n - c >= G)
                load_rows(w + at * ws + c, ws, ROWS - 1, G, v);
            else
                load_rows(w + at * ws + c, ws, have - 1, n - c < G ? n - c : G, v);
            nb_avx2_turn8(v, panel + r * 4, PANEL * 4);
        }
}

/* n_tok (literal) tokens times a panel of n_group groups: added to sum [n_tok][PANEL]. */
INLINE void tile(const int n_tok, const uint8_t *panel, const int8_t *q, size_t qs, const float *s, const int32_t *z,
                 size_t gs, size_t n_group, float *sum)
{
    for (size_t g = 0; g < n_group; g++, q += G, panel += G * PANEL) {
        __m256i a[TOK], b[TOK];
        UNROLL
        for (int t = 0; t < n_tok; t++) a[t] = b[t] = _mm256_set1_epi32(z[(size_t)t * gs + g]);
        UNROLL
        for (int j = 0; j < G / 4; j++) {
            const __m256i w0 = load(panel + j * PANEL * 4), w1 = load(panel + j * PANEL * 4 + 32);
            UNROLL
            for (int t = 0; t < n_tok; t++) {
                int32_t four;
                memcpy(&four, q + (size_t)t * qs + j * 4, sizeof four);
                const __m256i x = _mm256_set1_epi32(four);
                a[t] = dot(a[t], w0, x);
                b[t] = dot(b[t], w1, x);
                __asm__("" : "+x"(a[t]), "+x"(b[t])); /* or gcc keeps the sums in memory */
            }
        }
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            float *to = sum + t * PANEL;
            const float by = s[(size_t)t * gs + g];
            _mm256_store_ps(to, add_group(a[t], by, _mm256_load_ps(to)));
            _mm256_store_ps(to + 8, add_group(b[t], by, _mm256_load_ps(to + 8)));
        }
    }
}

typedef void tile_fn(const uint8_t *panel, const int8_t *q, size_t qs, const float *s, const int32_t *z, size_t gs,
                     size_t n_group, float *sum);
#define TILE(n)                                                                                    \
    static void tile_##n(const uint8_t *panel, const int8_t *q, size_t qs, const float *s,         \
                         const int32_t *z, size_t gs, size_t n_group, float *sum)                  \
    {                                                                                              \
        tile(n, panel, q, qs, s, z, gs, n_group, sum);                                             \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
static tile_fn *const tiles[TOK + 1] = { NULL, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6 };

/* Lines [i0, i1) of a chunk of PANEL rows, row by row. */
static void fetch_lines(const int8_t *w, size_t ws, size_t i0, size_t i1)
{
    for (size_t i = i0; i < i1; i++)
        _mm_prefetch((const char *)w + i / (CHUNK / 64) * ws + i % (CHUNK / 64) * 64, _MM_HINT_T0);
}

/* n_row <= 16 rows x n_tok <= SUMS_TOK tokens from t0. */
static void many_tokens(const nb_linear_args *a, size_t r, size_t n_row, size_t t0, size_t n_tok)
{
    _Alignas(64) uint8_t panel[CHUNK * PANEL];
    _Alignas(64) float sum[SUMS_TOK * PANEL];
    const size_t n_col = a->w.n_col, qs = nb_act8_stride(n_col), gs = nb_act8_groups(n_col);
    const int8_t *w = (const int8_t *)a->w.data + r * n_col;
    const float *s = nb_act8_s(a->xp, a->n_tok, n_col) + t0 * gs;
    const int32_t *z = nb_act8_z(a->xp, a->n_tok, n_col) + t0 * gs;
    memset(sum, 0, n_tok * PANEL * sizeof *sum);
    for (size_t c = 0; c < n_col; c += CHUNK) {
        const size_t n = n_col - c < CHUNK ? n_col - c : CHUNK;
        const int8_t *next = c + CHUNK < n_col ? w + c + CHUNK : w + PANEL * n_col;
        make_panel(w + c, n_col, n_row, n, panel);
        for (size_t t = 0, k; t < n_tok; t += k) {
            k = n_tok - t < TOK ? n_tok - t : TOK;
            fetch_lines(next, n_col, t * LINES / n_tok, (t + k) * LINES / n_tok);
            tiles[k](panel, nb_act8_q(a->xp, n_col, t0 + t) + c, qs, s + t * gs + c / G, z + t * gs + c / G, gs,
                     (n + G - 1) / G, sum + t * PANEL);
        }
    }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < n_row; i += ROWS)
            write_rows(a, r + i, n_row - i < ROWS ? n_row - i : ROWS, t0 + t, _mm256_load_ps(sum + t * PANEL + i));
}

void nb_linear_int8_act8_avxvnni(const nb_linear_args *a)
{
    const size_t step = a->n_tok == 1 ? ROWS : PANEL;
    for (size_t t = 0; t < a->n_tok; t += SUMS_TOK)
        for (size_t r = a->row_begin; r < a->row_end; r += step) {
            const size_t n_row = a->row_end - r < step ? a->row_end - r : step;
            if (a->n_tok == 1)
                one_token(a, r, n_row);
            else
                many_tokens(a, r, n_row, t, a->n_tok - t < SUMS_TOK ? a->n_tok - t : SUMS_TOK);
        }
}
