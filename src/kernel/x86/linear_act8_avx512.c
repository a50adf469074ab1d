/* linear_act8_avx512.c - activations in 8 bits on AVX-512: the pack, and INT8 weights by VNNI
 * (linear_act8_avx512.h).
 *
 * One token reads 16 rows at a time, in steps of 64 columns, and prefetches as many bytes of the 16 rows after
 * them, in the order of their addresses.  Up to 8 tokens do the same, but transpose the step in registers.  Many
 * tokens: a panel of 32 rows and 512 columns is packed into L1 (16 KiB) and used for all tokens of the call; their sums
 * wait in memory between panels.  Meanwhile the lines of the next panel are prefetched, some with each group of columns:
 * packing a panel that is still in memory takes as long as multiplying it with 20 tokens. */
#include <math.h>
#include <string.h>

#include "kernel/x86/linear_act8_avx512.h"

#define INLINE NB_ACT8_INLINE
#define UNROLL NB_ACT8_UNROLL

enum { CHUNK = 512, GROUPS = CHUNK / NB_ACT8_GROUP, SUMS_TOK = 256, LINES = CHUNK * NB_ACT8_PANEL / 64 };

/* ---- the pack ---- */

/* 512 columns from c on, n of which exist. */
static void pack_chunk(const float *x, size_t n, int8_t *q, float *s, int32_t *z, size_t n_q)
{
    _Alignas(64) uint32_t top[GROUPS] = { 0 };
    _Alignas(64) float inv[GROUPS];
    const __m512i mag = _mm512_set1_epi32(0x7fffffff);
    for (size_t g = 0; g * 32 < n; g++) {
        const size_t left = n - g * 32;
        const __mmask16 m0 = nb_avx512_mask16(left < 16 ? left : 16);
        const __mmask16 m1 = left <= 16 ? 0 : nb_avx512_mask16(left - 16 < 16 ? left - 16 : 16);
        const __m512i a = _mm512_and_si512(mag, _mm512_maskz_loadu_epi32(m0, x + g * 32));
        const __m512i b = _mm512_and_si512(mag, _mm512_maskz_loadu_epi32(m1, x + g * 32 + 16));
        top[g] = _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
    }
    const __m512i bits = _mm512_load_si512(top);
    const __m512 a = _mm512_castsi512_ps(bits);
    const __mmask16 bad = _mm512_cmpge_epu32_mask(bits, _mm512_set1_epi32(0x7f800000));
    const __mmask16 ok =
        (__mmask16)(_mm512_cmp_ps_mask(a, _mm512_set1_ps(NB_ACT8_MIN), _CMP_GE_OQ) & ~bad);
    const __m512 most = _mm512_set1_ps(NB_ACT8_MAX);
    _mm512_store_ps(inv, _mm512_maskz_div_ps(ok, most, a));
    __m512 sv = _mm512_maskz_div_ps(ok, a, most);
    sv = _mm512_mask_blend_ps(bad, sv, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
    _mm512_storeu_ps(s, sv);
    for (size_t g = 0; g < GROUPS; g++) {
        const size_t left = g * 32 < n && (ok >> g & 1) ? n - g * 32 : 0;
        const __mmask16 m0 = nb_avx512_mask16(left < 16 ? left : 16);
        const __mmask16 m1 = left <= 16 ? 0 : nb_avx512_mask16(left - 16 < 16 ? left - 16 : 16);
        const __m512 by = _mm512_set1_ps(inv[g]);
        const __m512i v0 = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(m0, x + g * 32), by));
        const __m512i v1 =
            _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(m1, x + g * 32 + 16), by));
        z[g] = -128 * _mm512_reduce_add_epi32(_mm512_add_epi32(v0, v1));
        if (g * 32 >= n_q) continue;
        _mm_storeu_si128((__m128i *)(void *)(q + g * 32), _mm512_cvtepi32_epi8(v0));
        _mm_storeu_si128((__m128i *)(void *)(q + g * 32 + 16), _mm512_cvtepi32_epi8(v1));
    }
}

void nb_linear_act8_pack_avx512(void *xp, const float *x, size_t x_stride, size_t n_tok,
                                size_t n_col, const uint32_t *column, size_t tok0, size_t tok1)
{
    if (column) {
        nb_linear_act8_pack_c(xp, x, x_stride, n_tok, n_col, column, tok0, tok1);
        return;
    }
    const size_t stride = nb_act8_stride(n_col), gs = nb_act8_groups(n_col);
    int8_t *q = (int8_t *)xp;
    float *s = (float *)(void *)(q + n_tok * stride);
    int32_t *z = (int32_t *)(void *)(s + n_tok * gs);
    for (size_t t = tok0; t < tok1; t++)
        for (size_t c = 0; c < n_col; c += CHUNK)
            pack_chunk(x + t * x_stride + c, n_col - c < CHUNK ? n_col - c : CHUNK, q + t * stride + c,
                       s + t * gs + c / 32, z + t * gs + c / 32, stride - c);
}

/* ---- one token ---- */

static void write_rows(const nb_linear_args *a, size_t r, size_t n_row, size_t t, __m512 acc)
{
    const __mmask16 mask = nb_avx512_mask16(n_row);
    acc = _mm512_mul_ps(acc, _mm512_maskz_loadu_ps(mask, a->w.scale + r));
    if (a->bias) acc = _mm512_add_ps(acc, _mm512_maskz_loadu_ps(mask, a->bias + r));
    _mm512_mask_storeu_ps(a->y + t * a->y_stride + (r - a->row_begin), mask, acc);
}

/* A step of n_row rows, 1..16 (the others repeat the last), as unsigned bytes; columns that are missing: 128. */
INLINE void load_rows(const int8_t *w, size_t ws, size_t last, __mmask64 mask, __m512i *v)
{
    const __m512i turn = _mm512_set1_epi8((char)0x80);
    UNROLL
    for (size_t i = 0; i < NB_ACT8_ROWS; i++)
        v[i] = _mm512_xor_si512(turn, _mm512_maskz_loadu_epi8(mask, w + (i < last ? i : last) * ws));
}
INLINE void load_16(const int8_t *w, size_t ws, __m512i *v)
{
    const __m512i turn = _mm512_set1_epi8((char)0x80);
    UNROLL
    for (size_t i = 0; i < NB_ACT8_ROWS; i++)
        v[i] = _mm512_xor_si512(turn, _mm512_loadu_si512(w + i * ws));
}

INLINE __m512 step_one(__m512i *v, const int8_t *q, const float *s, const int32_t *z, __m512 acc)
{
    const __m512i x = _mm512_loadu_si512(q);
    __m512i g0, g1;
    UNROLL
    for (int i = 0; i < NB_ACT8_ROWS; i++) v[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), v[i], x);
    nb_act8_join16(v, &g0, &g1);
    g0 = _mm512_add_epi32(g0, _mm512_set1_epi32(z[0]));
    g1 = _mm512_add_epi32(g1, _mm512_set1_epi32(z[1]));
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(g0), _mm512_set1_ps(s[0]), acc);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(g1), _mm512_set1_ps(s[1]), acc);
}

static void one_token(const nb_linear_args *a, size_t r, size_t n_row)
{
    const size_t n_col = a->w.n_col;
    const int8_t *w = (const int8_t *)a->w.data + r * n_col, *q = nb_act8_q(a->xp, n_col, 0);
    const int8_t *ahead = w + NB_ACT8_ROWS * n_col;
    const float *s = nb_act8_s(a->xp, a->n_tok, n_col);
    const int32_t *z = nb_act8_z(a->xp, a->n_tok, n_col);
    __m512 acc = _mm512_setzero_ps();
    __m512i v[NB_ACT8_ROWS];
    size_t c = 0;
    for (; n_row == NB_ACT8_ROWS && c + NB_ACT8_STEP <= n_col; c += NB_ACT8_STEP) {
        nb_act8_ahead(ahead + c * NB_ACT8_ROWS, NB_ACT8_ROWS);
        load_16(w + c, n_col, v);
        acc = step_one(v, q + c, s + c / 32, z + c / 32, acc);
    }
    for (; c < n_col; c += NB_ACT8_STEP) {
        load_rows(w + c, n_col, n_row - 1, nb_avx512_mask64(n_col - c), v);
        acc = step_one(v, q + c, s + c / 32, z + c / 32, acc);
    }
    write_rows(a, r, n_row, 0, acc);
}

/* ---- a few tokens: 16 rows are transposed in registers ---- */

enum { FEW = 8 };

INLINE void step_few(const int n_tok, __m512i *v, const int8_t *q, size_t qs, const float *s,
                     const int32_t *z, size_t gs, __m512 *sum)
{
    nb_act8_transpose16(v);
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        const size_t at = (size_t)t * gs;
        __m512i g0 = _mm512_set1_epi32(z[at]), g1 = _mm512_set1_epi32(z[at + 1]);
        UNROLL
        for (int j = 0; j < 8; j++) {
            g0 = _mm512_dpbusd_epi32(g0, v[j], nb_act8_bcast(q + (size_t)t * qs + j * 4));
            g1 = _mm512_dpbusd_epi32(g1, v[j + 8], nb_act8_bcast(q + (size_t)t * qs + 32 + j * 4));
        }
        sum[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(g0), _mm512_set1_ps(s[at]), sum[t]);
        sum[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(g1), _mm512_set1_ps(s[at + 1]), sum[t]);
    }
}

/* n_row <= 16 rows x n_tok (literal) tokens, all of the call. */
INLINE void few_tokens(const int n_tok, const nb_linear_args *a, size_t r, size_t n_row)
{
    const size_t n_col = a->w.n_col, qs = nb_act8_stride(n_col), gs = nb_act8_groups(n_col);
    const int8_t *w = (const int8_t *)a->w.data + r * n_col, *q = nb_act8_q(a->xp, n_col, 0);
    const int8_t *ahead = w + NB_ACT8_ROWS * n_col;
    const float *s = nb_act8_s(a->xp, a->n_tok, n_col);
    const int32_t *z = nb_act8_z(a->xp, a->n_tok, n_col);
    __m512 sum[FEW];
    __m512i v[NB_ACT8_ROWS];
    size_t c = 0;
    UNROLL
    for (int t = 0; t < n_tok; t++) sum[t] = _mm512_setzero_ps();
    for (; n_row == NB_ACT8_ROWS && c + NB_ACT8_STEP <= n_col; c += NB_ACT8_STEP) {
        nb_act8_ahead(ahead + c * NB_ACT8_ROWS, NB_ACT8_ROWS);
        load_16(w + c, n_col, v);
        step_few(n_tok, v, q + c, qs, s + c / 32, z + c / 32, gs, sum);
    }
    for (; c < n_col; c += NB_ACT8_STEP) {
        load_rows(w + c, n_col, n_row - 1, nb_avx512_mask64(n_col - c), v);
        step_few(n_tok, v, q + c, qs, s + c / 32, z + c / 32, gs, sum);
    }
    UNROLL
    for (int t = 0; t < n_tok; t++) write_rows(a, r, n_row, (size_t)t, sum[t]);
}

typedef void few_fn(const nb_linear_args *a, size_t r, size_t n_row);
#define FEW_TOKENS(n)                                                                              \
    static void few_##n(const nb_linear_args *a, size_t r, size_t n_row)                           \
    {                                                                                              \
        few_tokens(n, a, r, n_row);                                                                \
    }
FEW_TOKENS(2)
FEW_TOKENS(3)
FEW_TOKENS(4)
FEW_TOKENS(5)
FEW_TOKENS(6)
FEW_TOKENS(7)
FEW_TOKENS(8)
static few_fn *const few[FEW + 1] = { NULL,  one_token, few_2, few_3, few_4,
                                      few_5, few_6,     few_7, few_8 };

/* ---- many tokens ---- */

/* n_row <= 32 rows, n columns. */
static void make_panel(const int8_t *w, size_t ws, size_t n_row, size_t n, uint8_t *panel)
{
    __m512i v[NB_ACT8_ROWS];
    for (size_t c = 0; c < n; c += NB_ACT8_STEP, panel += NB_ACT8_PANEL_STEP)
        for (int half = 0; half < 2; half++) {
            const size_t r0 = (size_t)half * NB_ACT8_ROWS;
            if (r0 >= n_row) continue; /* of what is there nothing is written */
            if (n_row >= r0 + NB_ACT8_ROWS && n - c >= NB_ACT8_STEP)
                load_16(w + r0 * ws + c, ws, v);
            else
                load_rows(w + r0 * ws + c, ws,
                          (n_row - r0 < NB_ACT8_ROWS ? n_row - r0 : NB_ACT8_ROWS) - 1,
                          nb_avx512_mask64(n - c), v);
            nb_act8_panel_put(panel, half, v);
        }
}

/* Lines [at, end) of the next chunk of 32 rows, row by row, of which a group of columns asks for `each`: all at once would
 * fill the queue of misses, and the core would wait. */
typedef struct fetch {
    const int8_t *w;
    size_t ws, at, end, each;
} fetch;

INLINE void fetch_some(fetch *f)
{
    for (const size_t to = f->at + f->each; f->at < to && f->at < f->end; f->at++)
        _mm_prefetch((const char *)f->w + f->at / (CHUNK / 64) * f->ws + f->at % (CHUNK / 64) * 64, _MM_HINT_T0);
}

/* n_tok (literal) tokens times a panel of n_group groups: added to sum [n_tok][NB_ACT8_PANEL]. */
INLINE void tile(const int n_tok, const uint8_t *panel, const int8_t *q, size_t qs,
                 const float *s, const int32_t *z, size_t gs, size_t n_group, float *sum, fetch f)
{
    __m512 f0[NB_ACT8_TOK], f1[NB_ACT8_TOK];
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        f0[t] = _mm512_load_ps(sum + t * NB_ACT8_PANEL);
        f1[t] = _mm512_load_ps(sum + t * NB_ACT8_PANEL + 16);
    }
    for (size_t g = 0; g < n_group; g++) {
        __m512i i0[NB_ACT8_TOK], i1[NB_ACT8_TOK];
        fetch_some(&f);
        nb_act8_group(n_tok, panel + g * (NB_ACT8_PANEL_STEP / 2), q + g * 32, qs, z + g, gs, i0, i1);
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            const __m512 by = _mm512_set1_ps(s[(size_t)t * gs + g]);
            f0[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(i0[t]), by, f0[t]);
            f1[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(i1[t]), by, f1[t]);
        }
    }
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        _mm512_store_ps(sum + t * NB_ACT8_PANEL, f0[t]);
        _mm512_store_ps(sum + t * NB_ACT8_PANEL + 16, f1[t]);
    }
}

typedef void tile_fn(const uint8_t *panel, const int8_t *q, size_t qs, const float *s,
                     const int32_t *z, size_t gs, size_t n_group, float *sum, const fetch *f);
#define TILE(n)                                                                                    \
    static void tile_##n(const uint8_t *panel, const int8_t *q, size_t qs, const float *s,         \
                         const int32_t *z, size_t gs, size_t n_group, float *sum, const fetch *f)  \
    {                                                                                              \
        tile(n, panel, q, qs, s, z, gs, n_group, sum, *f);                                         \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
static tile_fn *const tiles[NB_ACT8_TOK + 1] = { NULL,   tile_1, tile_2, tile_3,
                                                 tile_4, tile_5, tile_6 };

/* n_row <= 32 rows x n_tok <= SUMS_TOK tokens from t0. */
static void many_tokens(const nb_linear_args *a, size_t r, size_t n_row, size_t t0, size_t n_tok)
{
    _Alignas(64) uint8_t panel[CHUNK / NB_ACT8_STEP * NB_ACT8_PANEL_STEP];
    _Alignas(64) float sum[SUMS_TOK * NB_ACT8_PANEL];
    const size_t n_col = a->w.n_col, qs = nb_act8_stride(n_col), gs = nb_act8_groups(n_col);
    const int8_t *w = (const int8_t *)a->w.data + r * n_col;
    const float *s = nb_act8_s(a->xp, a->n_tok, n_col) + t0 * gs;
    const int32_t *z = nb_act8_z(a->xp, a->n_tok, n_col) + t0 * gs;
    memset(sum, 0, n_tok * NB_ACT8_PANEL * sizeof *sum);
    for (size_t c = 0; c < n_col; c += CHUNK) {
        const size_t n = n_col - c < CHUNK ? n_col - c : CHUNK;
        const size_t n_group = (n + 31) / 32;
        fetch f = { .w = c + CHUNK < n_col ? w + c + CHUNK : w + NB_ACT8_PANEL * n_col, .ws = n_col };
        make_panel(w + c, n_col, n_row, n, panel);
        for (size_t t = 0, k; t < n_tok; t += k) {
            k = n_tok - t < NB_ACT8_TOK ? n_tok - t : NB_ACT8_TOK;
            f.at = f.end;
            f.end = (t + k) * LINES / n_tok;
            f.each = (f.end - f.at + n_group - 1) / n_group;
            tiles[k](panel, nb_act8_q(a->xp, n_col, t0 + t) + c, qs, s + t * gs + c / 32,
                     z + t * gs + c / 32, gs, n_group, sum + t * NB_ACT8_PANEL, &f);
        }
    }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < n_row; i += 16)
            write_rows(a, r + i, n_row - i < 16 ? n_row - i : 16, t0 + t,
                       _mm512_load_ps(sum + t * NB_ACT8_PANEL + i));
}

void nb_linear_int8_act8_avx512(const nb_linear_args *a)
{
    if (a->n_tok == 0) return;
    const size_t step = a->n_tok <= FEW ? NB_ACT8_ROWS : NB_ACT8_PANEL;
    for (size_t t = 0; t < a->n_tok; t += SUMS_TOK)
        for (size_t r = a->row_begin; r < a->row_end; r += step) {
            const size_t n_row = a->row_end - r < step ? a->row_end - r : step;
            if (a->n_tok <= FEW)
                few[a->n_tok](a, r, n_row);
            else
                many_tokens(a, r, n_row, t, a->n_tok - t < SUMS_TOK ? a->n_tok - t : SUMS_TOK);
        }
}
