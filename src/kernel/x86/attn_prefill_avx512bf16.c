/* attn_prefill_avx512bf16.c - expanded attention by vdpbf16ps, in BF16 with sums in floats: 32 products per
 * instruction where FMA has 16.
 *
 * Dimensions of queries and keys, and tokens of weights and values, are taken in pairs of BF16, a pair to a lane
 * of 32 bits.  Packed:
 *
 *   queries  [block of 16][pair of dimensions][16 queries]
 *   a tile   keys [panel of 32 tokens][pair of dimensions][32], values [panel of 32 columns][pair of tokens][32],
 *            and the first token whose value is not finite
 *
 * A call has three steps, as in attn_prefill_tile.h: scores, weights rounded to BF16 with their sum of what was
 * rounded, values over all tiles of the call in registers.  A register tile is 8 queries x 2 vectors: 16 chains, 2 loads
 * and 8 broadcasts for 16 products.  Bound by the products, (d1 + d2 + d_v) / 32 per query and token at two a
 * cycle; the exponential adds 14 operations per 16 tokens.
 *
 * Order of a row, whatever the others are: a score is one chain over the dimensions; weights in lanes t % 16; values one
 * chain over the tokens.  Tokens that a row does not see have weight 0; where their values are not finite, rows go
 * one by one. */
#include "kernel/attn_prefill/attn_prefill.h"

#include <math.h>
#include <string.h>

#include "kernel/x86/attn_vec_avx512.h"

enum {
    TILE = NB_PREFILL_TILE,
    MAX_TOK = TILE * NB_PREFILL_TILES_MAX,
    ROWS = 8,
    PANEL = 32,
    P_STRIDE = MAX_TOK + 16, /* no power of two: rows would share sets of the cache */
    TRAILER = 64
};
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

/* Pairs of dimensions, in whole vectors. */
static size_t n_pair(const nb_attn_prefill_dims *d)
{
    return (d->d1 + d->d2 + 31) / 32 * 16;
}

static size_t col_panels(const nb_attn_prefill_dims *d)
{
    return (d->d_v + PANEL - 1) / PANEL;
}

size_t nb_attn_prefill_q_bytes_avx512bf16(const nb_attn_prefill_dims *d)
{
    return TILE * n_pair(d) * sizeof(uint32_t);
}

static size_t key_words(const nb_attn_prefill_dims *d)
{
    return TILE * n_pair(d);
}

size_t nb_attn_prefill_kv_bytes_avx512bf16(const nb_attn_prefill_dims *d)
{
    return (key_words(d) + col_panels(d) * TILE / 2 * PANEL) * sizeof(uint32_t) + TRAILER;
}

typedef struct scratch {
    _Alignas(64) float p[TILE][P_STRIDE];     /* scores         */
    _Alignas(64) uint16_t w[TILE][P_STRIDE];  /* weights, BF16  */
    _Alignas(64) float sum[TILE][PANEL];      /* of a panel of columns */
    _Alignas(64) float part[ROWS][PANEL];     /* the same, of which a row is used */
} scratch;

size_t nb_attn_prefill_scratch_avx512bf16(const nb_attn_prefill_dims *d)
{
    (void)d;
    return sizeof(scratch);
}

/* ---- packing ---- */

/* 32 floats from i on of the row a[n_a] | b[n_b] as BF16, zeros after its end. */
static inline __m512i load_row(const float *a, size_t n_a, const float *b, size_t n_b, size_t i)
{
    float mixed[32];
    const float *p = i < n_a ? a + i : b + (i - n_a);
    size_t n = i < n_a ? n_a - i : n_b - (i - n_a);
    if (i < n_a && n < 32 && n_b) {
        const size_t more = n_b < 32 - n ? n_b : 32 - n;
        memcpy(mixed, p, n * sizeof *p);
        memcpy(mixed + n, b, more * sizeof *p);
        p = mixed;
        n += more;
    }
    if (n > 32) n = 32;
    const __m512 lo = _mm512_maskz_loadu_ps(nb_avx512_mask16(n < 16 ? n : 16), p);
    const __m512 hi =
        n > 16 ? _mm512_maskz_loadu_ps(nb_avx512_mask16(n - 16), p + 16) : _mm512_setzero_ps();
    return (__m512i)_mm512_cvtne2ps_pbh(hi, lo);
}

void nb_attn_prefill_pack_q_avx512bf16(const nb_attn_prefill_dims *d, void *dst, const float *q,
                                       size_t q_stride, size_t n_q)
{
    _Alignas(64) uint32_t row[16][16];
    const size_t n = d->d1 + d->d2, np = n_pair(d);
    uint32_t *out = dst;
    for (size_t r0 = 0; r0 < n_q; r0 += 16, out += np * 16)
        for (size_t k = 0; k < np; k += 16) {
            for (size_t i = 0; i < 16; i++)
                _mm512_store_si512(row[i], r0 + i < n_q
                                               ? load_row(q + (r0 + i) * q_stride, n, NULL, 0, 2 * k)
                                               : _mm512_setzero_si512());
            nb_avx512_transpose16(out + k * 16, 64, 0xffff, row, 64);
        }
}

static void pack_keys(const nb_attn_prefill_dims *d, uint32_t *dst, const nb_attn_prefill_tile *t)
{
    _Alignas(64) uint32_t row[16][16];
    const size_t np = n_pair(d);
    for (size_t b = 0; b < TILE; b += 16)
        for (size_t k = 0; k < np; k += 16) {
            for (size_t i = 0; i < 16; i++) {
                const size_t at = b + i;
                __m512i x = _mm512_setzero_si512();
                if (at < t->n_tok)
                    x = load_row(t->k1 + at * t->k1_stride, d->d1,
                                 d->d2 ? t->k2 + at * t->k2_stride : NULL, d->d2, 2 * k);
                _mm512_store_si512(row[i], x);
            }
            nb_avx512_transpose16(dst + (b / PANEL * np + k) * PANEL + b % PANEL, PANEL * 4, 0xffff,
                                  row, 64);
        }
}

/* Columns [c, c + 16) of token at, zeros after the ends; *bad: one is not finite, as BF16. */
static inline __m512i load_value(const nb_attn_prefill_dims *d, const nb_attn_prefill_tile *t,
                                 size_t at, size_t c, bool *bad)
{
    if (at >= t->n_tok || c >= d->d_v) return _mm512_setzero_si512();
    const size_t n = d->d_v - c < 16 ? d->d_v - c : 16;
    const __m512 v = _mm512_maskz_loadu_ps(nb_avx512_mask16(n), t->v + at * t->v_stride + c);
    const __m512i h = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v));
    const __m512i top = _mm512_set1_epi32(0x7f80);
    *bad |= _mm512_cmpeq_epi32_mask(_mm512_and_si512(h, top), top) != 0;
    return h;
}

void nb_attn_prefill_pack_kv_avx512bf16(const nb_attn_prefill_dims *d, void *dst,
                                        const nb_attn_prefill_tile *t)
{
    const size_t n_panel = col_panels(d);
    uint32_t *v = (uint32_t *)dst + key_words(d), *first_bad = v + n_panel * TILE / 2 * PANEL;
    pack_keys(d, dst, t);
    memset(first_bad, 0, TRAILER);
    *first_bad = TILE;
    for (size_t i = 0; i < TILE; i += 2) {
        bool bad0 = false, bad1 = false;
        for (size_t c = 0; c < n_panel * PANEL; c += 16) {
            const __m512i lo = load_value(d, t, i, c, &bad0), hi = load_value(d, t, i + 1, c, &bad1);
            _mm512_store_si512(v + (c / PANEL * TILE / 2 + i / 2) * PANEL + c % PANEL,
                               _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16)));
        }
        if ((bad0 || bad1) && *first_bad == TILE) *first_bad = (uint32_t)(bad0 ? i : i + 1);
    }
}

/* ---- a call ---- */

typedef struct work {
    const nb_attn_prefill_args *a;
    scratch *s;
    size_t n_block;
    uint8_t vis[TILE]; /* tokens of the last tile that a row sees */
    float keep[TILE];
} work;

INLINE __m512 dot(__m512 sum, __m512i a, __m512i b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

static size_t block_end(const work *w, size_t b)
{
    return (b + 1) * ROWS < w->a->n_q ? (b + 1) * ROWS : w->a->n_q;
}
/* Tokens that the last row of the block, which sees most, sees of tile j. */
static size_t block_sees(const work *w, size_t b, size_t j)
{
    return j + 1 < w->a->n_tile ? TILE : w->vis[block_end(w, b) - 1];
}

/* 8 queries [pair][16] x 32 tokens [pair][32]: scores. */
static void scores_8(const uint32_t *q, const uint32_t *k, size_t np, float scale, float *p)
{
    __m512 a[ROWS], b[ROWS];
    UNROLL
    for (int r = 0; r < ROWS; r++) a[r] = b[r] = _mm512_setzero_ps();
    for (size_t i = 0; i < np; i++, q += 16, k += PANEL) {
        const __m512i k0 = _mm512_load_si512(k), k1 = _mm512_load_si512(k + 16);
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            const __m512i x = _mm512_set1_epi32((int32_t)q[r]);
            a[r] = dot(a[r], k0, x);
            b[r] = dot(b[r], k1, x);
        }
    }
    const __m512 f = _mm512_set1_ps(scale);
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        _mm512_store_ps(p + r * P_STRIDE, _mm512_mul_ps(a[r], f));
        _mm512_store_ps(p + r * P_STRIDE + 16, _mm512_mul_ps(b[r], f));
    }
}

static void all_scores(const work *w)
{
    const nb_attn_prefill_args *a = w->a;
    const size_t np = n_pair(&a->d);
    for (size_t j = 0; j < a->n_tile; j++)
        for (size_t t = 0; t < TILE; t += PANEL)
            for (size_t b = 0; b < w->n_block; b++)
                if (block_sees(w, b, j) > t)
                    scores_8((const uint32_t *)a->q + b / 2 * np * 16 + b % 2 * ROWS,
                             (const uint32_t *)a->tile[j] + t * np, np, a->scale,
                             &w->s->p[b * ROWS][j * TILE + t]);
}

/* exp(s - m), s <= m; a NaN stays one.  Under 2^-126: 2^-126.  The polynomial is attn_prefill_tile.h's. */
INLINE __m512 exp_from(__m512 s, __m512 m)
{
    const __m512 magic = _mm512_set1_ps(0x1.8p23f);
    __m512 x = _mm512_mul_ps(_mm512_sub_ps(s, m), _mm512_set1_ps(0x1.715476p+0f));
    x = _mm512_max_ps(_mm512_set1_ps(-126), x); /* this order keeps a NaN */
    const __m512 n = _mm512_add_ps(x, magic), r = _mm512_sub_ps(x, _mm512_sub_ps(n, magic));
    __m512 y = _mm512_set1_ps(0x1.5c08e6p-10f);
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0x1.3d0c52p-7f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0x1.c6b6e4p-5f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0x1.ebf918p-3f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0x1.62e428p-1f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0x1.000002p+0f));
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(y),
                                                _mm512_slli_epi32(_mm512_castps_si512(n), 23)));
}

/* Scores of row i become weights, zeros to the end of the last tile; m, l and keep follow. */
static void weights(work *w, size_t i)
{
    const nb_attn_prefill_args *a = w->a;
    const size_t end = a->n_tile * TILE, n = end - TILE + w->vis[i];
    const float *p = w->s->p[i];
    uint16_t *to = w->s->w[i];
    float *m = a->m + i * a->ml_stride, *l = a->l + i * a->ml_stride;
    __m512 top = _mm512_set1_ps(-INFINITY);
    for (size_t t = 0; t < n; t += 16) /* a NaN score is passed over */
        top = _mm512_mask_max_ps(top, nb_avx512_mask16(n - t < 16 ? n - t : 16), _mm512_load_ps(p + t), top);
    const float m0 = *m, t1 = nb_avx512_max_lane(top), m1 = t1 > m0 ? t1 : m0;
    const __m512 mv = _mm512_set1_ps(m1);
    __m512 sum = _mm512_setzero_ps();
    for (size_t t = 0; t < end; t += 16) {
        const __mmask16 in = t >= n ? 0 : nb_avx512_mask16(n - t < 16 ? n - t : 16);
        const __m512 e = _mm512_maskz_mov_ps(in, in ? exp_from(_mm512_load_ps(p + t), mv) : mv);
        const __m256i h = (__m256i)_mm512_cvtneps_pbh(e);
        _mm256_store_si256((__m256i *)(void *)(to + t), h);
        sum = _mm512_add_ps(
            sum, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)));
    }
    if (n == 0) return;
    float keep = 0;
    if (m0 != -INFINITY) keep = _mm512_cvtss_f32(exp_from(_mm512_set1_ps(m0), mv));
    const float l1 = (keep != 0 ? *l * keep : 0) + nb_avx512_join(sum);
    w->keep[i] = keep;
    *l = l1;
    *m = l1 == l1 ? m1 : NAN;
}

/* Adds n tokens of a panel of values to 8 rows; odd: of the last pair only the first token counts. */
INLINE void add_values(const uint16_t *p, size_t ps, const uint32_t *v, size_t n, __m512 *a, __m512 *b)
{
    for (size_t i = 0; i < n; i += 2, v += PANEL) {
        __m512i v0 = _mm512_load_si512(v), v1 = _mm512_load_si512(v + 16);
        if (n - i == 1) {
            v0 = _mm512_and_si512(v0, _mm512_set1_epi32(0xffff));
            v1 = _mm512_and_si512(v1, _mm512_set1_epi32(0xffff));
        }
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            int32_t two;
            memcpy(&two, p + (size_t)r * ps + i, sizeof two);
            const __m512i x = _mm512_set1_epi32(two);
            a[r] = dot(a[r], v0, x);
            b[r] = dot(b[r], v1, x);
        }
    }
}

static const uint32_t *values_of(const work *w, size_t j, size_t panel)
{
    return (const uint32_t *)w->a->tile[j] + key_words(&w->a->d) + panel * TILE / 2 * PANEL;
}

/* 8 rows from row i on, or row i alone in all eight places (ps 0), over all tiles; n: tokens of the last one. */
static void values_8(const work *w, size_t i, size_t ps, size_t panel, size_t n, float *sum)
{
    __m512 a[ROWS], b[ROWS];
    UNROLL
    for (int r = 0; r < ROWS; r++) a[r] = b[r] = _mm512_setzero_ps();
    for (size_t j = 0; j < w->a->n_tile; j++)
        add_values(w->s->w[i] + j * TILE, ps, values_of(w, j, panel), j + 1 < w->a->n_tile ? TILE : n, a,
                   b);
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        _mm512_store_ps(sum + r * PANEL, a[r]);
        _mm512_store_ps(sum + r * PANEL + 16, b[r]);
    }
}

static void join_state(const work *w, size_t i, size_t panel)
{
    const nb_attn_prefill_args *a = w->a;
    const size_t c0 = panel * PANEL;
    if (a->n_tile == 1 && w->vis[i] == 0) return;
    for (size_t c = c0; c < c0 + PANEL && c < a->d.d_v; c += 16) {
        const __mmask16 mask = nb_avx512_mask16(a->d.d_v - c < 16 ? a->d.d_v - c : 16);
        const __m512 s = _mm512_load_ps(w->s->sum[i] + (c - c0));
        float *o = a->o + i * a->o_stride + c;
        const __m512 y = w->keep[i] != 0 ? _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, o),
                                                           _mm512_set1_ps(w->keep[i]), s)
                                         : s;
        _mm512_mask_storeu_ps(o, mask, y);
    }
}

static void all_values(const work *w)
{
    const nb_attn_prefill_args *a = w->a;
    const size_t n_panel = col_panels(&a->d), last = a->n_tile - 1;
    const size_t first_bad = *(values_of(w, last, n_panel));
    for (size_t panel = 0; panel < n_panel; panel++) {
        for (size_t b = 0; b < w->n_block; b++) {
            const size_t i = b * ROWS, n = block_sees(w, b, last);
            if (first_bad >= (n + 1) / 2 * 2) {
                values_8(w, i, P_STRIDE, panel, n, w->s->sum[i]);
                continue;
            }
            for (size_t r = i; r < block_end(w, b); r++) { /* rows may see different ones */
                values_8(w, r, 0, panel, w->vis[r], w->s->part[0]);
                memcpy(w->s->sum[r], w->s->part[0], sizeof w->s->sum[r]);
            }
        }
        for (size_t i = 0; i < a->n_q; i++) join_state(w, i, panel);
    }
}

void nb_attn_prefill_avx512bf16(const nb_attn_prefill_args *a)
{
    work w = { .a = a, .s = a->scratch, .n_block = (a->n_q + ROWS - 1) / ROWS };
    for (size_t i = 0; i < a->n_q; i++) {
        const size_t vis = a->vis0 + i * a->vis_step;
        w.vis[i] = (uint8_t)(vis < a->last_tok ? vis : a->last_tok);
    }
    all_scores(&w);
    for (size_t i = 0; i < a->n_q; i++) weights(&w, i);
    all_values(&w);
}
