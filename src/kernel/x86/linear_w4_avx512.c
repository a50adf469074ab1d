/* linear_w4_avx512.c - linear with codes of 4 bits (INT4, FP4); linear_w4.h has the order.
 *
 * vpermps takes the lowest 4 bits of a word as the index of a table of 16 floats, so that a vector of 128
 * codes costs 7 shifts, 8 look-ups and 8 FMAs.  One token: 4 rows at a time straight from the
 * matrix.  More: 4 rows of SEGMENT columns are made float once, a strip in L1 in the order of
 * the packed x, for tiles of 4 rows x 6 tokens. */
#include "kernel/linear/linear_w4.h"
#include "kernel/linear/packed.h"
#include "kernel/x86/vec_avx512.h"

enum { BLOCK = NB_W4_BLOCK, LANE = NB_W4_LANE, ROW = 4, TOK = 6, PANEL_TOK = 48, SEGMENT = 8 };

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

/* Rows from one on, for SEGMENT blocks: scales and zero points of their lanes. */
typedef struct lanes {
    _Alignas(64) float scale[ROW][SEGMENT * LANE], zero[ROW][SEGMENT * LANE];
} lanes;

/* 16 scales from p on, those in the mask, as float. */
static inline __m512 scales16(const nb_wgroups *g, size_t at, __mmask16 m)
{
    const uint8_t *b = (const uint8_t *)g->scale + at * nb_stype_bytes(g->scale_type);
    switch (g->scale_type) {
    case NB_S_F32: return _mm512_maskz_loadu_ps(m, b);
    case NB_S_BF16:
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, b)), 16));
    case NB_S_F16: return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, b));
    case NB_S_E4M3: {
        const __m128i v = _mm_maskz_loadu_epi8(m, b);
        const __m256i w = _mm256_slli_epi16(_mm256_cvtepi8_epi16(v), 7);
        const __m256i h = _mm256_and_si256(w, _mm256_set1_epi16((short)0xbf80));
        const __mmask16 nan = _mm_cmpeq_epi8_mask(_mm_and_si128(v, _mm_set1_epi8(0x7f)),
                                                  _mm_set1_epi8(0x7f));
        const __m512 f = _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(256));
        return _mm512_mask_mov_ps(f, nan, _mm512_set1_ps(__builtin_nanf("")));
    }
    default: { /* E8M0: 0 is a subnormal */
        const __m512i v = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, b));
        const __mmask16 least = _mm512_mask_cmpeq_epi32_mask(m, v, _mm512_setzero_si512());
        const __mmask16 nan = _mm512_cmpeq_epi32_mask(v, _mm512_set1_epi32(255));
        __m512i f = _mm512_slli_epi32(v, 23);
        f = _mm512_mask_mov_epi32(f, least, _mm512_set1_epi32(0x00400000));
        return _mm512_castsi512_ps(_mm512_mask_mov_epi32(f, nan, _mm512_set1_epi32(0x7fc00000)));
    }
    }
}

/* What nb_w4_lanes writes, for groups of 16 to 128 columns. */
static void row_lanes(const nb_weight *w, size_t r, size_t b, size_t n_block, float *scale,
                      float *zero)
{
    const nb_wgroups *g = &w->group;
    const size_t size = g->size;
    if (size != 16 && size != 32 && size != 64 && size != 128) {
        nb_w4_lanes(w, r, b, n_block, scale, zero);
        return;
    }
    const size_t n_group = nb_weight_n_group(w), per = BLOCK / size, first = b * per;
    const size_t at = r * n_group + first;
    const __m512 outer = _mm512_set1_ps(g->outer);
    const __m512i lane =
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const unsigned shift = size == 16 ? 1 : size == 32 ? 2 : size == 64 ? 3 : 4;
    const __m512i group = _mm512_srli_epi32(lane, shift);
    for (size_t k = 0; k < n_block * per; k += 16) {
        const size_t left = first + k < n_group ? n_group - first - k : 0;
        const __mmask16 m = nb_avx512_mask16(left < 16 ? left : 16);
        const __m512 s = _mm512_maskz_mul_ps(m, scales16(g, at + k, m), outer);
        const __m512 z = g->zero ? _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(
                                       _mm_maskz_loadu_epi8(m, g->zero + at + k)))
                                 : _mm512_setzero_ps();
        for (size_t i = 0; i < 16 && k + i < n_block * per; i += per) {
            const __m512i index = _mm512_add_epi32(group, _mm512_set1_epi32((int)i));
            const size_t to = (k + i) / per * LANE;
            _mm512_store_ps(scale + to, _mm512_permutexvar_ps(index, s));
            if (g->zero) _mm512_store_ps(zero + to, _mm512_permutexvar_ps(index, z));
        }
    }
}

/* 16 words from p on, of which `left` are in the row. */
static inline __m512i words(const uint8_t *p, size_t left)
{
    return left >= 16 ? _mm512_loadu_si512(p)
                      : _mm512_maskz_loadu_epi32(nb_avx512_mask16(left), p);
}

/* One token, n_row (literal) rows: [row][LANE] of total, x and rows from the segment's first block on. */
INLINE void direct(const int n_row, const bool zeros, const uint8_t *w, size_t row_bytes,
                   const float *x, size_t n_block, size_t n_word, const lanes *l, __m512 table,
                   float *total)
{
    __m512 sum[ROW], tot[ROW];
    __m512i v[ROW];
    UNROLL
    for (int r = 0; r < n_row; r++) tot[r] = _mm512_loadu_ps(total + r * LANE);
    for (size_t b = 0; b < n_block; b++, x += BLOCK) {
        __m512 zero[ROW];
        UNROLL
        for (int r = 0; r < n_row; r++) {
            v[r] = words(w + (size_t)r * row_bytes + b * 64, n_word - b * 16);
            if (zeros) zero[r] = _mm512_load_ps(l->zero[r] + b * LANE);
        }
        UNROLL
        for (int j = 0; j < 8; j++) {
            const __m512 xv = _mm512_load_ps(x + j * LANE);
            UNROLL
            for (int r = 0; r < n_row; r++) {
                __m512 f = _mm512_permutexvar_ps(_mm512_srli_epi32(v[r], 4 * (unsigned)j), table);
                if (zeros) f = _mm512_sub_ps(f, zero[r]);
                sum[r] = j == 0 ? _mm512_mul_ps(f, xv) : _mm512_fmadd_ps(f, xv, sum[r]);
            }
        }
        UNROLL
        for (int r = 0; r < n_row; r++)
            tot[r] = _mm512_fmadd_ps(sum[r], _mm512_load_ps(l->scale[r] + b * LANE), tot[r]);
    }
    UNROLL
    for (int r = 0; r < n_row; r++) _mm512_storeu_ps(total + r * LANE, tot[r]);
}

/* Values of n_block blocks of a row, [block][j][LANE]. */
static void make_strip(const uint8_t *w, size_t n_block, size_t n_word, bool zeros,
                       const float *zero, __m512 table, float *strip)
{
    for (size_t b = 0; b < n_block; b++, strip += BLOCK) {
        const __m512i v = words(w + b * 64, n_word - b * 16);
        const __m512 z = zeros ? _mm512_load_ps(zero + b * LANE) : _mm512_setzero_ps();
        UNROLL
        for (int j = 0; j < 8; j++) {
            __m512 f = _mm512_permutexvar_ps(_mm512_srli_epi32(v, 4 * (unsigned)j), table);
            if (zeros) f = _mm512_sub_ps(f, z);
            _mm512_store_ps(strip + j * LANE, f);
        }
    }
}

/* ROW rows of a strip x n_tok (literal) tokens: total [tok][ROW][LANE]. */
INLINE void tile(const int n_tok, const float *strip, const float *x, size_t xs, size_t n_block,
                 const lanes *l, float *total)
{
    for (size_t b = 0; b < n_block; b++) {
        __m512 sum[ROW * TOK];
        UNROLL
        for (int j = 0; j < 8; j++) {
            __m512 xv[TOK];
            UNROLL
            for (int t = 0; t < n_tok; t++)
                xv[t] = _mm512_load_ps(x + (size_t)t * xs + b * BLOCK + j * LANE);
            UNROLL
            for (int r = 0; r < ROW; r++) {
                const __m512 f =
                    _mm512_load_ps(strip + (r * SEGMENT + (int)b) * BLOCK + j * LANE);
                UNROLL
                for (int t = 0; t < n_tok; t++)
                    sum[r * TOK + t] = j == 0 ? _mm512_mul_ps(f, xv[t])
                                              : _mm512_fmadd_ps(f, xv[t], sum[r * TOK + t]);
            }
        }
        UNROLL
        for (int r = 0; r < ROW; r++) {
            const __m512 s = _mm512_load_ps(l->scale[r] + b * LANE);
            UNROLL
            for (int t = 0; t < n_tok; t++) {
                float *p = total + (t * ROW + r) * LANE;
                _mm512_store_ps(p, _mm512_fmadd_ps(sum[r * TOK + t], s, _mm512_load_ps(p)));
            }
        }
    }
}

typedef void tile_fn(const float *strip, const float *x, size_t xs, size_t n_block, const lanes *l,
                     float *total);
#define TILE(n)                                                                                    \
    static void tile_##n(const float *strip, const float *x, size_t xs, size_t n_block,            \
                         const lanes *l, float *total)                                             \
    {                                                                                              \
        tile(n, strip, x, xs, n_block, l, total);                                                  \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
static tile_fn *const tiles[TOK + 1] = { NULL, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6 };

/* n_row <= ROW outputs of token t from totals of ROW rows. */
static void write_rows(const nb_linear_args *a, size_t r, size_t n_row, size_t t, const float *p)
{
    const __mmask8 mask = (__mmask8)((1u << n_row) - 1);
    __m128 sum = nb_avx512_join4(_mm512_loadu_ps(p), _mm512_loadu_ps(p + LANE),
                                 _mm512_loadu_ps(p + 2 * LANE), _mm512_loadu_ps(p + 3 * LANE));
    if (a->bias) sum = _mm_add_ps(sum, _mm_maskz_loadu_ps(mask, a->bias + r));
    _mm_mask_storeu_ps(a->y + t * a->y_stride + (r - a->row_begin), mask, sum);
}

typedef struct panel {
    const nb_linear_args *a;
    size_t row_bytes, n_word, n_block, xs;
    const float *x;
    __m512 table;
    bool zeros;
} panel;

static void one_token(const panel *p, size_t r, size_t n_row)
{
    lanes l;
    _Alignas(64) float total[ROW * LANE] = { 0 };
    for (size_t b = 0; b < p->n_block; b += SEGMENT) {
        const size_t n = p->n_block - b < SEGMENT ? p->n_block - b : SEGMENT;
        const uint8_t *w = (const uint8_t *)p->a->w.data + r * p->row_bytes + b * 64;
        const float *x = p->x + b * BLOCK;
        for (size_t i = 0; i < n_row; i++)
            row_lanes(&p->a->w, r + i, b, n, l.scale[i], l.zero[i]);
        const size_t n_word = p->n_word - b * 16;
        if (n_row == ROW && !p->zeros)
            direct(ROW, false, w, p->row_bytes, x, n, n_word, &l, p->table, total);
        else if (n_row == ROW)
            direct(ROW, true, w, p->row_bytes, x, n, n_word, &l, p->table, total);
        else
            for (size_t i = 0; i < n_row; i++) {
                if (i) { /* direct looks at the first row's */
                    for (size_t k = 0; k < n * LANE; k++) l.scale[0][k] = l.scale[i][k];
                    for (size_t k = 0; k < n * LANE; k++) l.zero[0][k] = l.zero[i][k];
                }
                const uint8_t *wi = w + i * p->row_bytes;
                if (p->zeros)
                    direct(1, true, wi, 0, x, n, n_word, &l, p->table, total + i * LANE);
                else
                    direct(1, false, wi, 0, x, n, n_word, &l, p->table, total + i * LANE);
            }
    }
    write_rows(p->a, r, n_row, 0, total);
}

static void many_tokens(const panel *p, size_t r, size_t n_row, size_t t0, size_t n_tok)
{
    lanes l = { 0 };
    _Alignas(64) float strip[ROW * SEGMENT * BLOCK], total[PANEL_TOK * ROW * LANE];
    for (size_t i = 0; i < n_tok * ROW * LANE; i += LANE)
        _mm512_store_ps(total + i, _mm512_setzero_ps());
    for (size_t i = n_row * SEGMENT * BLOCK; i < (size_t)ROW * SEGMENT * BLOCK; i++) strip[i] = 0;
    for (size_t b = 0; b < p->n_block; b += SEGMENT) {
        const size_t n = p->n_block - b < SEGMENT ? p->n_block - b : SEGMENT;
        for (size_t i = 0; i < n_row; i++) {
            const uint8_t *w = (const uint8_t *)p->a->w.data + (r + i) * p->row_bytes + b * 64;
            row_lanes(&p->a->w, r + i, b, n, l.scale[i], l.zero[i]);
            make_strip(w, n, p->n_word - b * 16, p->zeros, l.zero[i], p->table,
                       strip + i * SEGMENT * BLOCK);
        }
        for (size_t t = 0, k; t < n_tok; t += k) {
            k = n_tok - t < TOK ? n_tok - t : TOK;
            tiles[k](strip, p->x + (t0 + t) * p->xs + b * BLOCK, p->xs, n, &l,
                     total + t * ROW * LANE);
        }
    }
    for (size_t t = 0; t < n_tok; t++) write_rows(p->a, r, n_row, t0 + t, total + t * ROW * LANE);
}

void nb_linear_w4_avx512(const nb_linear_args *a)
{
    float table[16];
    nb_w4_table(&a->w, table);
    const size_t n_col = a->w.n_col;
    const panel p = { .a = a,
                      .row_bytes = nb_wtype_row_bytes(a->w.type, n_col),
                      .n_word = (n_col + 7) / 8,
                      .n_block = (n_col + BLOCK - 1) / BLOCK,
                      .xs = nb_w4_stride(n_col),
                      .x = a->xp,
                      .table = _mm512_loadu_ps(table),
                      .zeros = a->w.group.zero != NULL };
    for (size_t t = 0; t < a->n_tok; t += PANEL_TOK)
        for (size_t r = a->row_begin; r < a->row_end; r += ROW) {
            const size_t n_row = a->row_end - r < ROW ? a->row_end - r : ROW;
            const size_t n_tok = a->n_tok - t < PANEL_TOK ? a->n_tok - t : PANEL_TOK;
            if (a->n_tok == 1)
                one_token(&p, r, n_row);
            else
                many_tokens(&p, r, n_row, t, n_tok);
        }
}
