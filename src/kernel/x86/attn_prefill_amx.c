/* attn_prefill_amx.c - expanded attention on the tile unit, in BF16 with sums in floats.
 *
 * Tiles have 16 rows of 64 bytes.  Packed:
 *
 *   queries  [block of 16][32 dimensions]: rows are queries (A)
 *   a tile   keys   [16 tokens][32 dimensions]: rows are pairs of dimensions, tokens beside them (B)
 *            values [32 columns][32 tokens][16 columns]: rows are tokens j and j + 16 (B)
 *            and the first token whose value is not finite
 *
 * A call has three steps.  Products always go through 2 x 2 tiles of sums, which takes a tile load
 * for each product and four independent chains:
 *
 *   scores   for 32 tokens, for 32 queries: 12 KiB of keys stay in L1 while the queries (24 KiB)
 *            pass, so that keys come from L2 once a call; each row's maximum follows per lane
 *   weights  2^x of a row of up to 256 scores, to BF16 in the shape of A; their sum is of the
 *            rounded weights (a product with ones), so that they add up to 1
 *   values   for 32 queries, for 32 columns: sums stay in tiles over all tokens of the call, then
 *            join the old state
 *
 * Weights of the second 32 queries are computed a row at a time between the products with values of
 * the first, where the vector ports are idle.  Tokens t and t + 16 make a pair, since then weights
 * are packed by a shift and a blend, without a shuffle.  2^x = 2^floor(x) (1 + ..): a polynomial of
 * degree 3 within 2^-13.7, to which 2^-8 is added, so that cutting off 16 bits rounds.
 *
 * 64 queries x 256 tokens of 128 + 64 / 128: 384 + 256 products of 16 cycles are 10,240 cycles, or
 * 12,600 at the rate that 2 x 2 tiles with their loads were measured to reach (81 %).  32 weights are
 * 18 operations of the two vector ports and a row some 60 more: 6,500 cycles, half of them beside
 * products.  Maxima and the joining, 1,000 operations each, overlap in part.
 *
 * Tokens that a row does not see have weight 0; where their values are not finite, each row of
 * queries gets its own copy of the values with zeros instead. */
#include "kernel/attn_prefill/attn_prefill.h"

#include <math.h>
#include <string.h>

#include "kernel/x86/amx_tile.h"
#include "kernel/x86/attn_vec_avx512.h"

enum {
    TILE = NB_PREFILL_TILE,
    MAX_TOK = TILE * NB_PREFILL_TILES_MAX,
    PAIR = 32,               /* queries, tokens, columns of 2 x 2 tiles */
    BYTES = 1024,            /* of a tile                               */
    S_STRIDE = MAX_TOK + 16, /* no power of two: rows would share sets of the cache */
    STEPS = MAX_TOK / PAIR,
    TRAILER = 64
};

static size_t k_steps(const nb_attn_prefill_dims *d)
{
    return (d->d1 + d->d2 + 31) / 32;
}

static size_t col_pairs(const nb_attn_prefill_dims *d)
{
    return (d->d_v + 31) / 32;
}

size_t nb_attn_prefill_q_bytes_amx(const nb_attn_prefill_dims *d)
{
    return 4 * k_steps(d) * BYTES;
}

/* Bytes of the keys of a packed tile. */
static size_t key_bytes(const nb_attn_prefill_dims *d)
{
    return 4 * k_steps(d) * BYTES;
}

size_t nb_attn_prefill_kv_bytes_amx(const nb_attn_prefill_dims *d)
{
    return key_bytes(d) + col_pairs(d) * 4 * BYTES + TRAILER;
}

typedef struct scratch {
    _Alignas(64) float s[TILE][S_STRIDE];              /* scores before the scale              */
    _Alignas(64) float top[TILE][16];                  /* their maxima, per lane               */
    _Alignas(64) uint32_t p[TILE / 16][STEPS][16][16]; /* weights: pairs of BF16               */
    _Alignas(64) float sum[PAIR][PAIR];                /* weighted values, 32 columns          */
    _Alignas(64) float part[PAIR][PAIR];               /* the same, of which a row is used     */
    _Alignas(64) uint32_t v[4][16][16];                /* values of the last tile, 32 columns  */
} scratch;

size_t nb_attn_prefill_scratch_amx(const nb_attn_prefill_dims *d)
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

void nb_attn_prefill_pack_q_amx(const nb_attn_prefill_dims *d, void *dst, const float *q,
                                size_t q_stride, size_t n_q)
{
    const size_t n = d->d1 + d->d2, ks = k_steps(d), n_row = (n_q + PAIR - 1) / PAIR * PAIR;
    for (size_t r = 0; r < n_row; r++) {
        char *out = (char *)dst + r / 16 * ks * BYTES + r % 16 * 64;
        for (size_t k = 0; k < ks; k++) {
            const __m512i x =
                r < n_q ? load_row(q + r * q_stride, n, NULL, 0, 32 * k) : _mm512_setzero_si512();
            _mm512_store_si512(out + k * BYTES, x);
        }
    }
}

static void pack_keys(const nb_attn_prefill_dims *d, char *dst, const nb_attn_prefill_tile *t)
{
    _Alignas(64) uint32_t row[16][16];
    for (size_t b = 0; b < TILE / 16; b++) {
        for (size_t k = 0; k < k_steps(d); k++, dst += BYTES) {
            for (size_t i = 0; i < 16; i++) {
                const size_t at = 16 * b + i;
                __m512i x = _mm512_setzero_si512();
                if (at < t->n_tok)
                    x = load_row(t->k1 + at * t->k1_stride, d->d1,
                                 d->d2 ? t->k2 + at * t->k2_stride : NULL, d->d2, 32 * k);
                _mm512_store_si512(row[i], x);
            }
            nb_avx512_transpose16(dst, 64, 0xffff, row, 64);
        }
    }
}

/* Columns [c, c + 16) of token t; zeros after the ends. */
static inline __m512 load_value(const nb_attn_prefill_dims *d, const nb_attn_prefill_tile *t,
                                size_t at, size_t c)
{
    if (at >= t->n_tok || c >= d->d_v) return _mm512_setzero_ps();
    const size_t n = d->d_v - c < 16 ? d->d_v - c : 16;
    return _mm512_maskz_loadu_ps(nb_avx512_mask16(n), t->v + at * t->v_stride + c);
}

void nb_attn_prefill_pack_kv_amx(const nb_attn_prefill_dims *d, void *dst,
                                 const nb_attn_prefill_tile *t)
{
    static const uint16_t by_column[32] = { 0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                            21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                            11, 27, 12, 28, 13, 29, 14, 30, 15, 31 };
    const __m512i order = _mm512_loadu_si512(by_column), exponent = _mm512_set1_epi16(0x7f80);
    char *out = (char *)dst + key_bytes(d);
    uint32_t first_bad = TILE;
    pack_keys(d, dst, t);
    for (size_t c = 0; c < col_pairs(d) * PAIR; c += PAIR) {
        for (size_t k = 0; k < 4; k++, out += BYTES) { /* 32 tokens, 2 x 16 columns */
            for (size_t j = 0; j < 16; j++) {
                const size_t at = k / 2 * PAIR + j, col = c + k % 2 * 16;
                const __m512 lo = load_value(d, t, at, col), hi = load_value(d, t, at + 16, col);
                const __m512i x = (__m512i)_mm512_cvtne2ps_pbh(hi, lo);
                _mm512_store_si512(out + j * 64, _mm512_permutexvar_epi16(order, x));
                const __mmask32 bad =
                    _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent);
                if (bad >> 16 && at + 16 < first_bad) first_bad = (uint32_t)at + 16;
                if (bad & 0xffff && at < first_bad) first_bad = (uint32_t)at;
            }
        }
    }
    memset(out, 0, TRAILER);
    memcpy(out, &first_bad, sizeof first_bad);
}

/* ---- a call ---- */

typedef struct work {
    const nb_attn_prefill_args *a;
    scratch *x;
    size_t ks, next_row, end_row; /* rows whose weights are to be computed beside the values */
    uint8_t vis[TILE];            /* tokens of the last tile that a row sees */
    float keep[TILE];
} work;

/* Tokens of the call that the last row of the 32 from q0 on, which sees most, sees. */
static size_t pair_sees(const work *w, size_t q0)
{
    const size_t end = q0 + PAIR < w->a->n_q ? q0 + PAIR : w->a->n_q;
    return (w->a->n_tile - 1) * TILE + w->vis[end - 1];
}

static size_t row_sees(const work *w, size_t i)
{
    return (w->a->n_tile - 1) * TILE + w->vis[i];
}

/* 32 queries x 32 tokens; q and k: tiles [2][ks]. */
static void scores_2x2(const char *q, const char *k, size_t ks, float *s)
{
    const char *q1 = q + ks * BYTES, *k1 = k + ks * BYTES;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t i = 0; i < ks * BYTES; i += BYTES) {
        _tile_loadd(4, q + i, 64);
        _tile_loadd(6, k + i, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, k1 + i, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, q1 + i, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, s, S_STRIDE * sizeof *s);
    _tile_stored(1, s + 16, S_STRIDE * sizeof *s);
    _tile_stored(2, s + 16 * S_STRIDE, S_STRIDE * sizeof *s);
    _tile_stored(3, s + 16 * S_STRIDE + 16, S_STRIDE * sizeof *s);
}

/* Maxima of rows [q0, q0 + 32) take in the scores of tokens [t, t + 32); a NaN is passed over. */
static void maxima(const work *w, size_t q0, size_t t)
{
    const size_t end = q0 + PAIR < w->a->n_q ? q0 + PAIR : w->a->n_q;
    for (size_t i = q0; i < end; i++) {
        const size_t sees = row_sees(w, i), n = sees < t ? 0 : sees - t;
        const float *s = w->x->s[i] + t;
        __m512 top = _mm512_load_ps(w->x->top[i]);
        if (n >= PAIR) {
            top = _mm512_max_ps(_mm512_load_ps(s), top);
            top = _mm512_max_ps(_mm512_load_ps(s + 16), top);
        } else {
            const __mmask32 in = nb_avx512_mask32(n);
            const __mmask16 lo = (__mmask16)in, hi = (__mmask16)(in >> 16);
            top = _mm512_mask_max_ps(top, lo, _mm512_load_ps(s), top);
            top = _mm512_mask_max_ps(top, hi, _mm512_load_ps(s + 16), top);
        }
        _mm512_store_ps(w->x->top[i], top);
    }
}

static void all_scores(const work *w)
{
    const nb_attn_prefill_args *a = w->a;
    for (size_t i = 0; i < a->n_q; i++) _mm512_store_ps(w->x->top[i], _mm512_set1_ps(-INFINITY));
    for (size_t j = 0; j < a->n_tile; j++) {
        for (size_t t = 0; t < TILE; t += PAIR) {
            const char *k = (const char *)a->tile[j] + t / 16 * w->ks * BYTES;
            for (size_t q0 = 0; q0 < a->n_q; q0 += PAIR) {
                if (pair_sees(w, q0) <= j * TILE + t) continue;
                scores_2x2((const char *)a->q + q0 / 16 * w->ks * BYTES, k, w->ks,
                           w->x->s[q0] + j * TILE + t);
                maxima(w, q0, j * TILE + t);
            }
        }
    }
}

/* 2^x + 2^-8 of it for x <= 0, of which the upper 16 bits are the weight rounded to BF16. */
static inline __m512 power(__m512 x)
{
    const __m512 f = _mm512_sub_ps(x, _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC));
    __m512 y = _mm512_set1_ps(0x1.3f96a4p-4f);
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.cefc4cp-3f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.64444cp-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.fff632p-1f + 0x1p-8f));
    return _mm512_scalef_ps(y, x);
}

/* Scores of 32 tokens as weights, of which the first n are seen. */
static inline __m512i weights_32(const float *s, __m512 top, __m512 scale, size_t n)
{
    const __m512 x0 = _mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(s), top), scale);
    const __m512 x1 = _mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(s + 16), top), scale);
    const __m512i lo = _mm512_srli_epi32(_mm512_castps_si512(power(x0)), 16);
    const __m512i both = _mm512_mask_blend_epi16(0xaaaaaaaa, lo, _mm512_castps_si512(power(x1)));
    if (n >= PAIR) return both;
    const __mmask32 in =
        nb_avx512_mask32(n); /* token t: lower half of lane t, t + 16: upper half */
    const __m512i low = _mm512_maskz_set1_epi32((__mmask16)in, 0xffff);
    const __m512i all = _mm512_mask_set1_epi32(low, (__mmask16)(in >> 16), -1);
    return _mm512_and_si512(both, all);
}

/* Row i: weights in the shape of A for every step of its 32 queries; m, l and keep follow. */
static void weights(work *w, size_t i)
{
    const nb_attn_prefill_args *a = w->a;
    const size_t n = row_sees(w, i), steps = (pair_sees(w, i / PAIR * PAIR) + PAIR - 1) / PAIR;
    const float m0 = a->m[i * a->ml_stride];
    uint32_t *p = w->x->p[i / 16][0][i % 16];
    const float top0 = nb_avx512_max_lane(_mm512_load_ps(w->x->top[i]));
    const float old = m0 / a->scale, top1 = old > top0 ? old : top0;
    const float m1 = top0 * a->scale > m0 ? top0 * a->scale : m0;
    const __m512 top = _mm512_set1_ps(top1), scale = _mm512_set1_ps(a->scale * 0x1.715476p+0f);
    const __m512i ones = _mm512_set1_epi32(0x3f803f80);
    __m512 sum = _mm512_setzero_ps();
    for (size_t k = 0; k < steps; k++, p += BYTES / 4) {
        const size_t left = n < k * PAIR ? 0 : n - k * PAIR;
        const __m512i v = left == 0 ? _mm512_setzero_si512()
                                    : weights_32(w->x->s[i] + k * PAIR, top, scale, left);
        _mm512_store_si512(p, v);
        sum = _mm512_dpbf16_ps(sum, (__m512bh)v, (__m512bh)ones);
    }
    if (n == 0) return;
    const float keep =
        m0 == -INFINITY ? 0 : _mm512_cvtss_f32(nb_avx512_exp(_mm512_set1_ps(m0 - m1)));
    float *l = a->l + i * a->ml_stride;
    const float l1 = (keep != 0 ? *l * keep : 0) + nb_avx512_join(sum);
    w->keep[i] = keep;
    *l = l1;
    a->m[i * a->ml_stride] = l1 == l1 ? m1 : NAN;
}

static inline void weights_beside(work *w)
{
    if (w->next_row < w->end_row) weights(w, w->next_row++);
}

/* out[32][32] = weights of the 32 queries from q0 on times columns 32 c ..; last: values of the last
 * tile, tiles [2][2], instead of the packed ones. */
static void values_2x2(work *w, size_t q0, size_t c, const uint32_t *last, float *out)
{
    const nb_attn_prefill_args *a = w->a;
    const uint32_t *p0 = w->x->p[q0 / 16][0][0], *p1 = w->x->p[q0 / 16 + 1][0][0];
    const size_t steps = (pair_sees(w, q0) + PAIR - 1) / PAIR, keys = key_bytes(&a->d);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t k = 0; k < steps; k++) {
        const char *v = (const char *)a->tile[k / 2] + keys + c * 4 * BYTES;
        if (last && k / 2 + 1 == a->n_tile) v = (const char *)last;
        v += k % 2 * 2 * BYTES;
        _tile_loadd(4, p0 + k * (BYTES / 4), 64);
        _tile_loadd(6, v, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, v + BYTES, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, p1 + k * (BYTES / 4), 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        weights_beside(w);
    }
    _tile_stored(0, out, PAIR * sizeof *out);
    _tile_stored(1, out + 16, PAIR * sizeof *out);
    _tile_stored(2, out + 16 * PAIR, PAIR * sizeof *out);
    _tile_stored(3, out + 16 * PAIR + 16, PAIR * sizeof *out);
}

/* As values_2x2 into x->sum, each row with zeros for the values that it does not see. */
static void values_apart(work *w, size_t q0, size_t c)
{
    const nb_attn_prefill_args *a = w->a;
    const char *v = (const char *)a->tile[a->n_tile - 1] + key_bytes(&a->d) + c * 4 * BYTES;
    for (size_t i = q0; i < q0 + PAIR && i < a->n_q; i++) {
        for (size_t r = 0; r < 64; r++) { /* rows of the four tiles: tokens t, t + 16 */
            const size_t t = r / 32 * PAIR + r % 16;
            const uint32_t in =
                (t < w->vis[i] ? 0xffff : 0) | (t + 16 < w->vis[i] ? 0xffff0000 : 0);
            const __m512i x = _mm512_loadu_si512(v + r * 64);
            _mm512_store_si512(w->x->v[0][0] + r * 16,
                               _mm512_and_si512(x, _mm512_set1_epi32((int)in)));
        }
        nb_amx_written();
        values_2x2(w, q0, c, w->x->v[0][0], w->x->part[0]);
        memcpy(w->x->sum[i - q0], w->x->part[i - q0], sizeof w->x->sum[0]);
    }
}

/* Columns [c, c + 32) of the sums of rows [q0, q0 + 32) join the old state.  A sum of -0 becomes 0,
 * so that weights 0 beside it do not change a bit. */
static void join_state(const work *w, size_t q0, size_t c)
{
    const nb_attn_prefill_args *a = w->a;
    const __mmask32 in = nb_avx512_mask32(a->d.d_v - c < PAIR ? a->d.d_v - c : PAIR);
    for (size_t i = q0; i < q0 + PAIR && i < a->n_q; i++) {
        if (row_sees(w, i) == 0) continue;
        float *o = a->o + i * a->o_stride + c;
        const __m512 keep = _mm512_set1_ps(w->keep[i]);
        for (size_t h = 0; h < 2; h++) {
            const __mmask16 m = (__mmask16)(in >> 16 * h);
            __m512 s =
                _mm512_add_ps(_mm512_load_ps(w->x->sum[i - q0] + 16 * h), _mm512_setzero_ps());
            if (w->keep[i] != 0) s = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, o + 16 * h), keep, s);
            _mm512_mask_storeu_ps(o + 16 * h, m, s);
        }
    }
}

static void all_values(work *w, size_t q0)
{
    const nb_attn_prefill_args *a = w->a;
    const size_t end = q0 + PAIR < a->n_q ? q0 + PAIR : a->n_q, sees = pair_sees(w, q0);
    uint32_t first_bad;
    memcpy(&first_bad,
           (const char *)a->tile[a->n_tile - 1] + key_bytes(&a->d) + col_pairs(&a->d) * 4 * BYTES,
           sizeof first_bad);
    /* In the last tile steps of 32 tokens are gone through whole. */
    const bool apart = first_bad < (w->vis[end - 1] + 31u) / 32 * 32;
    nb_amx_written();
    for (size_t c = 0; sees && c < col_pairs(&a->d); c++) {
        if (apart)
            values_apart(w, q0, c);
        else
            values_2x2(w, q0, c, NULL, w->x->sum[0]);
        join_state(w, q0, c * PAIR);
    }
}

void nb_attn_prefill_amx(const nb_attn_prefill_args *a)
{
    static const nb_amx_config config = NB_AMX_FULL;
    work w = { .a = a, .x = a->scratch, .ks = k_steps(&a->d) };
    for (size_t i = 0; i < a->n_q; i++) {
        const size_t vis = a->vis0 + i * a->vis_step;
        w.vis[i] = (uint8_t)(vis < a->last_tok ? vis : a->last_tok);
    }
    nb_amx_configure(&config);
    all_scores(&w);
    for (size_t q0 = 0; q0 < a->n_q; q0 += PAIR) {
        w.end_row = q0 + PAIR < a->n_q ? q0 + PAIR : a->n_q;
        while (w.next_row < w.end_row) weights(&w, w.next_row++);
        w.end_row = q0 + 2 * PAIR < a->n_q ? q0 + 2 * PAIR : a->n_q;
        all_values(&w, q0);
    }
    _tile_release();
}
