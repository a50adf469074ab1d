/* linear_units_amx.c - products of packed weights and activations in 8 bits on the tile unit: the integers of
 * linear_units.h, and its floats in its order, so the bits are those of the other variants.
 *
 * 16 tokens are the left operand, a row of 8 to 32 digits each, a span of columns; the codes of a panel
 * (units_panel.h) lie as the right one is read.  A product costs 16 cycles whatever its depth, and its sums leave
 * through memory, since scales change with each span: 16 conversions, multiplications and FMA each (types with
 * minima: one FMA more), 24 to 32 cycles of the vector ports, which bound it.  Sums wait in a ring of RING
 * buffers, so that the tile unit works ahead of the vectors.  VNNI takes about 96 cycles for the same.
 * Types whose spans are always of 16 columns have no row: they take two products where VNNI takes no more than for 32, and
 * are no faster here (70 ns for 16 rows x 16 tokens x 32 columns of Q6_K, 68 by VNNI; Q4_K 37 and 52).
 *
 * Up to FEW tokens pack and multiply as AVX-512 does: a tile costs as much for one token as for 16 (Q4_K, 128 rows x 2,048
 * columns: 8 tokens 30 us and 22, 16 tokens 30 and 34).  So few take no more room in units of 96 bytes a token than a block. */
#include <string.h>

#include "kernel/x86/amx_tile.h"
#include "kernel/x86/units_pack_avx512.h"

enum { LANES = 16 };
#include "kernel/x86/units_types.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

enum { TOK = NB_LINEAR_PACK_TOK, FEW = 10, PANELS = 4, AHEAD = 4, RING = 2 * AHEAD };

/* 16 tokens' unit; tokens that are missing are zeros.  Sums as in nb_pk_x: of the unit and of its halves. */
typedef struct block_unit {
    int8_t q[TOK][NB_PK_UNIT];
    float sx[TOK];
    int32_t minus[3][TOK];
    float sum[3][TOK];
} block_unit;

/* ---- the pack: blocks of tokens, units of each ---- */

size_t nb_linear_units8_pack_bytes_amx(size_t n_tok, size_t n_col)
{
    if (n_tok <= FEW) return nb_linear_units_pack_bytes(n_tok, n_col);
    return (n_tok + TOK - 1) / TOK * nb_pk_units(n_col) * sizeof(block_unit);
}

/* Token t of a segment. */
static void put(const nb_pk_seg *s, size_t n_unit, size_t t, block_unit *to)
{
    for (size_t u = 0; u < n_unit; u++, to++) {
        memcpy(to->q[t], s->q[u], NB_PK_UNIT);
        to->sx[t] = s->sx[u];
        for (size_t k = 0; k < 3; k++) {
            to->minus[k][t] = s->minus[k][u];
            to->sum[k][t] = s->sum[k][u];
        }
    }
}

/* One segment of all tokens after the other: the block's part stays in L1. */
static void pack(void *xp, const float *x, size_t x_stride, size_t n_col, const uint32_t *column, size_t tok0, size_t tok1,
                 bool words)
{
    const size_t n_unit = nb_pk_units(n_col);
    const __m256i order = nb_pk_order(words);
    nb_pk_seg s;
    for (size_t t0 = tok0; t0 < tok1; t0 += TOK) {
        block_unit *to = (block_unit *)xp + t0 / TOK * n_unit;
        const size_t nt = tok1 - t0 < TOK ? tok1 - t0 : TOK;
        if (nt < TOK) memset(to, 0, n_unit * sizeof *to);
        for (size_t u = 0; u < n_unit; u += NB_PK_SEG)
            for (size_t t = 0; t < nt; t++) {
                nb_pk_segment_at(x + (t0 + t) * x_stride, column, u * NB_PK_UNIT, n_col, order, &s);
                put(&s, n_unit - u < NB_PK_SEG ? n_unit - u : NB_PK_SEG, t, to + u);
            }
    }
}

void nb_linear_units8_pack_amx(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                               const uint32_t *column, size_t tok0, size_t tok1)
{
    if (n_tok <= FEW)
        nb_linear_units_pack8_avx512(xp, x, x_stride, n_tok, n_col, column, tok0, tok1);
    else
        pack(xp, x, x_stride, n_col, column, tok0, tok1, false);
}
void nb_linear_units8_pack_words_amx(void *xp, const float *x, size_t x_stride, size_t n_tok, size_t n_col,
                                     const uint32_t *column, size_t tok0, size_t tok1)
{
    if (n_tok <= FEW)
        nb_linear_units_pack8_words_avx512(xp, x, x_stride, n_tok, n_col, column, tok0, tok1);
    else
        pack(xp, x, x_stride, n_col, column, tok0, tok1, true);
}

/* ---- spans: tiles to sums, sums to totals ---- */

typedef enum kind { ZERO, ZERO_8, MIN } kind;
typedef int32_t sums[TOK][LANES];

/* Sums of span s: `span` (literal) columns of a unit. */
#define MULTIPLY(acc, left, right)                                                                 \
    {                                                                                              \
        const size_t at = s * (size_t)span % NB_PK_UNIT, u = s * (size_t)span / NB_PK_UNIT;        \
        _tile_loadd(left, x[u].q[0] + at, NB_PK_UNIT);                                             \
        _tile_loadd(right, p->code[u][at / 4], LANES * 4);                                         \
        _tile_zero(acc);                                                                           \
        _tile_dpbsud(acc, left, right);                                                            \
        _tile_stored(acc, ring[s % RING], LANES * 4);                                              \
    }
INLINE void multiply(const int span, const panel *p, const block_unit *x, size_t s, size_t end, sums *ring)
{
    if (s < end) MULTIPLY(0, 4, 6)
    if (++s < end) MULTIPLY(1, 5, 7)
    if (++s < end) MULTIPLY(2, 4, 6)
    if (++s < end) MULTIPLY(3, 5, 7)
}

INLINE __m512i less_zeros(__m512i sum, __m512i zero, const int8_t *q)
{
    const __m512i z = _mm512_mullo_epi32(_mm512_and_si512(zero, _mm512_set1_epi32(255)), _mm512_set1_epi32(0x01010101));
    int32_t v[2];
    memcpy(v, q, sizeof v);
    __m512i h = _mm512_dpbusd_epi32(_mm512_setzero_si512(), z, _mm512_set1_epi32(v[0]));
    h = _mm512_dpbusd_epi32(h, z, _mm512_set1_epi32(v[1]));
    return _mm512_sub_epi32(sum, h);
}

INLINE void add(const kind k, const int span, const panel *p, const block_unit *x, size_t s, const sums *sum,
                __m512 *total)
{
    const size_t at = s * (size_t)span % NB_PK_UNIT;
    const size_t part = span == NB_PK_UNIT ? 0 : 1 + at / 16;
    x += s * (size_t)span / NB_PK_UNIT;
    const __m512 scale = _mm512_load_ps(p->scale[s]);
    const __m512i zero = k == MIN ? _mm512_setzero_si512() : _mm512_load_si512(p->zero[s]);
    const __m512 min = k == MIN ? _mm512_load_ps(p->min[s]) : _mm512_setzero_ps();
    UNROLL
    for (int t = 0; t < TOK; t++) {
        __m512i v = _mm512_load_si512((*sum)[t]);
        if (k == ZERO) v = _mm512_dpwssd_epi32(v, zero, _mm512_set1_epi32(x->minus[part][t]));
        if (k == ZERO_8) v = less_zeros(v, zero, x->q[t] + at);
        const __m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(v), _mm512_set1_ps(x->sx[t]));
        total[t] = _mm512_fmadd_ps(f, scale, total[t]);
        if (k == MIN) total[t] = _mm512_fmadd_ps(_mm512_set1_ps(x->sum[part][t]), min, total[t]);
    }
}

/* A segment of 16 rows times 16 tokens. */
INLINE void segment(const kind k, const int span, const panel *p, const block_unit *x, size_t n_unit, __m512 *total)
{
    _Alignas(64) sums ring[RING];
    const size_t end = n_unit * NB_PK_UNIT / (size_t)span;
    UNROLL
    for (int t = 0; t < TOK; t++) total[t] = _mm512_setzero_ps();
    multiply(span, p, x, 0, end, ring);
    for (size_t s = 0; s < end; s += AHEAD) {
        multiply(span, p, x, s + AHEAD, end, ring);
        for (size_t i = s; i < s + AHEAD && i < end; i++) add(k, span, p, x, i, &ring[i % RING], total);
    }
}

typedef void segment_fn(const panel *p, const block_unit *x, size_t n_unit, __m512 *total);
#define SEGMENT(name, k, span)                                                                     \
    static void name(const panel *p, const block_unit *x, size_t n_unit, __m512 *out)              \
    {                                                                                              \
        __m512 total[TOK];                                                                         \
        segment(k, span, p, x, n_unit, total);                                                     \
        UNROLL                                                                                     \
        for (int t = 0; t < TOK; t++) out[t] = total[t];                                           \
    }
SEGMENT(zero_32, ZERO, 32)
SEGMENT(zero_16, ZERO, 16)
SEGMENT(zero_8, ZERO_8, 8)
SEGMENT(min_32, MIN, 32)

/* ---- the loops ---- */

/* Tokens: tiles 4 and 5, panels: 6 and 7, sums: 0 to 3.  Missing tokens are zeros, so shapes are those of a whole block. */
static void configure(size_t span)
{
    nb_amx_config c = { .palette = 1 };
    for (size_t i = 0; i < 8; i++) {
        c.rows[i] = i < 6 ? TOK : (uint8_t)(span / 4);
        c.row_bytes[i] = i == 4 || i == 5 ? (uint16_t)span : 64;
    }
    nb_amx_configure(&c);
}

static void add_to_y(const nb_linear_args *a, size_t r, size_t t0, const __m512 *total, bool first, bool last)
{
    const size_t nt = a->n_tok - t0 < TOK ? a->n_tok - t0 : TOK;
    const __mmask16 m = nb_avx512_mask16(a->row_end - r < LANES ? a->row_end - r : LANES);
    float *y = a->y + t0 * a->y_stride + (r - a->row_begin);
    for (size_t t = 0; t < nt; t++, y += a->y_stride) {
        __m512 v = total[t];
        if (!first) v = _mm512_add_ps(_mm512_maskz_loadu_ps(m, y), v);
        if (last && a->bias) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, a->bias + r));
        _mm512_mask_storeu_ps(y, m, v);
    }
}

/* Share i of n of the lines of a segment of n_row rows. */
static void prefetch(const uint8_t *p, size_t stride, size_t n_row, size_t bytes, size_t i, size_t n)
{
    for (size_t r = n_row * i / n; r < n_row * (i + 1) / n; r++)
        for (size_t k = 0; k < bytes + 63; k += 64) _mm_prefetch((const char *)p + r * stride + k, _MM_HINT_T1);
}

/* Where the codes of unit u of row r are. */
static const uint8_t *codes_at(const nb_weight *w, size_t r, size_t u)
{
    const nb_wtype_traits *x = &nb_wtypes[w->type];
    const size_t at = u * NB_PK_UNIT / x->block * x->block_bytes;
    return (const uint8_t *)w->data + r * nb_wtype_row_bytes(w->type, w->n_col) + at;
}

void nb_linear_units8_amx(const nb_linear_args *a)
{
    if (a->n_tok <= FEW) {
        nb_linear_units8_avx512(a);
        return;
    }
    panel p[PANELS];
    __m512 total[TOK];
    const size_t n_all = nb_pk_units(a->w.n_col), span = nb_packed_span(&a->w);
    const size_t stride = nb_wtype_row_bytes(a->w.type, a->w.n_col), bytes = stride * NB_PK_SEG / n_all;
    segment_fn *fn = nb_packed_has_min(a->w.type) ? min_32 : span == 32 ? zero_32 : span == 16 ? zero_16 : zero_8;
    configure(span);
    for (size_t r = a->row_begin; r < a->row_end; r += PANELS * LANES)
        for (size_t u = 0; u < n_all; u += NB_PK_SEG) {
            const size_t n_unit = n_all - u < NB_PK_SEG ? n_all - u : NB_PK_SEG;
            const bool last = u + n_unit == n_all;
            const uint8_t *next = last ? codes_at(&a->w, r + PANELS * LANES, 0) : codes_at(&a->w, r, u + NB_PK_SEG);
            size_t n = 0;
            for (; n < PANELS && r + n * LANES < a->row_end; n++)
                nb_units_panel_avx512(a, r + n * LANES, a->row_end, u, n_unit, &p[n]);
            nb_amx_written();
            for (size_t t = 0; t < a->n_tok; t += TOK) {
                const block_unit *x = (const block_unit *)a->xp + t / TOK * n_all + u;
                prefetch(next, stride, PANELS * LANES, bytes, t / TOK, (a->n_tok + TOK - 1) / TOK);
                for (size_t i = 0; i < n; i++) {
                    fn(&p[i], x, n_unit, total);
                    add_to_y(a, r + i * LANES, t, total, u == 0, last);
                }
            }
        }
    _tile_release();
}
