/* attn_pages_amx.c - attention over encoded pages with AMX tiles in BF16.
 *
 * Rows (query, head) go in blocks of 16; tokens in tiles of 16, all pages of the call in one softmax:
 *   scores  S^T[16 tokens][16 rows] += K[16 tokens][32] Q^T[32][16 rows].  Keys are the A operand, so
 *           that a decoded (or BF16) row is used as it lies.  A query is two BF16 numbers, q = hi + lo,
 *           two B tiles per tile of keys.  Four tiles of tokens share a pair of B tiles.
 *   weights rows are the lanes: exp in 512 bits; the sum is of unrounded weights; P = weight * outer
 *           scale rounded to BF16 in pairs of tokens, transposed to the A operand
 *   values  O[16 rows][16 columns] += P[16 rows][32 tokens] V[32 tokens][16 columns], V in pairs of
 *           tokens, written by the decoder beside the keys.  Four tiles of O at a time.
 * Outer scales are not in the tiles: scores get them as floats, the latent's and the rope key's apart, and
 * weights get 2^(e - the call's largest e), so that nothing underflows that matters.
 *
 * With one block of rows decoding and scores are one loop: a step decodes 8 tokens x 64 values and
 * issues 2 tile products of the unit before, so that the tile unit works beside the vector ports, keys stay
 * in L1 (two units) and are never loaded from L2.  More blocks: all keys are decoded first.
 *
 * Order of a row: chains of 16 products within a tile, blocks of 32 values, hi then lo of each; weights
 * in 32-token blocks, two chains of 16; values in chains of 16 within a tile, tiles in order.
 *
 * Bound, 16 rows, cycles per token: tile products 36 (scores) + 16 (values, from L2 at 21 to 27);
 * decoding at 40 (4 bits), beside the scores; weights 20; packing queries 10; joining 3.
 * docs/performance.md has the count.  Tried on paper and left: one pass of decoding for keys and another for
 * values (saves the 256 KiB of V, costs the lookups twice); V tiles as keys with zeros in every second word of
 * the queries (saves the stores of keys, doubles the products of scores). */
#include <math.h>

#include "kernel/attn_pages/attn_pages.h"
#include "kernel/x86/amx_tile.h"
#include "kernel/x86/attn_vec_avx512.h"
#include "kernel/x86/kv_decode_amx.h"

enum {
    ROWS = 16,
    TOK_MAX = NB_ATTN_PAGES_MAX * NB_PAGE_TOK,
    PAGE_TILES = NB_PAGE_TOK / NB_AMX_TOK,   /* of keys: 4 */
    BLOCK = PAGE_TILES * NB_AMX_TILE,        /* words of a block's keys of a page */
    UNIT = NB_AMX_UNIT / NB_AMX_KEY * BLOCK, /* of a unit's */
    Q_BLOCK = 2 * NB_AMX_TILE,               /* hi and lo of a block */
    V_UNIT = NB_AMX_UNIT / 16 * NB_AMX_V_BLOCKS * NB_AMX_TILE /* of all tokens */
};

typedef struct rows {
    const float *q[ROWS];
    float *o[ROWS], *m[ROWS], *l[ROWS];
    float keep[ROWS]; /* factor of the old state; 0: none */
    size_t n;
} rows;

typedef struct job {
    const nb_attn_pages_args *a;
    nb_amx_seg seg[2];
    size_t n_unit; /* of both segments */
    size_t n_tok;
    /* places in the scratch */
    uint16_t *k; /* [page][unit][2 blocks][64 tokens][32], or the last two units of one page */
    uint16_t *v; /* [d1/16 tiles][8][16 pairs of tokens][16 columns][2]                      */
    uint16_t *q; /* [unit][2 blocks][hi, lo][16 pairs][16 rows][2]                           */
    uint16_t *p; /* [8][16 rows][32 tokens]                                                  */
    float *s[2]; /* scores of the segments, [256 tokens][16 rows]                            */
    float *o;    /* [2][4 tiles][16 rows][16 columns]                                        */
    float *score_by[2]; /* [256]: factor of a token's scores, the scale of attention in it       */
    float *weight_by;   /* [256]: factor of a token's weight                                     */
    float out_by;       /* the rest of the values' factor                                        */
} job;

static size_t take(size_t *at, size_t n_bytes)
{
    const size_t here = *at;
    *at += (n_bytes + 63) / 64 * 64;
    return here;
}

/* Lays out the scratch at base (NULL: only counts); returns its bytes. */
static size_t lay_out(job *j, const nb_record *r, char *base)
{
    const size_t u0 = (r->seg[0].dim + 63) / 64, u1 = (r->seg[1].dim + 63) / 64;
    size_t at = 0, place[11];
    place[0] = take(&at, NB_ATTN_PAGES_MAX * (u0 + u1) * UNIT * sizeof *j->k);
    place[1] = take(&at, u0 * V_UNIT * sizeof *j->v);
    place[2] = take(&at, (u0 + u1) * 2 * Q_BLOCK * sizeof *j->q);
    place[3] = take(&at, NB_AMX_V_BLOCKS * NB_AMX_TILE * sizeof *j->p);
    for (size_t i = 4; i < 6; i++) place[i] = take(&at, TOK_MAX * ROWS * sizeof(float));
    place[6] = take(&at, 2 * 4 * ROWS * 16 * sizeof(float));
    for (size_t i = 7; i < 10; i++) place[i] = take(&at, TOK_MAX * sizeof(float));
    place[10] = take(&at, 2 * NB_AMX_TABLE_BYTES);
    if (!base) return at;
    j->k = (void *)(base + place[0]);
    j->v = (void *)(base + place[1]);
    j->q = (void *)(base + place[2]);
    j->p = (void *)(base + place[3]);
    j->o = (void *)(base + place[6]);
    j->weight_by = (void *)(base + place[9]);
    for (size_t s = 0; s < 2; s++) {
        j->s[s] = (void *)(base + place[4 + s]);
        j->score_by[s] = (void *)(base + place[7 + s]);
        j->seg[s] = nb_amx_open(&r->seg[s], base + place[10] + s * NB_AMX_TABLE_BYTES);
    }
    j->n_unit = u0 + u1;
    return at;
}

size_t nb_attn_pages_amx_scratch(const nb_record *r)
{
    return lay_out(NULL, r, NULL);
}

/* Formats whose values are exact in BF16 but for one factor per token. */
bool nb_attn_pages_amx_can(const nb_record *r)
{
    const nb_record_seg *c = &r->seg[0], *k = &r->seg[1];
    if (r->n_seg != 2 || !nb_amx_reads(c) || !nb_amx_reads(k)) return false;
    if (k->fmt != NB_SEG_BF16 && k->fmt != NB_SEG_E4M3 && k->fmt != NB_SEG_INT8) return false;
    return c->dim % NB_AMX_UNIT == 0 && k->dim % NB_AMX_KEY == 0 && c->dim <= 1024 && k->dim <= 256;
}

/* ---- factors of tokens ---- */

/* 2^(e - 127) for 16 outer bytes, minus `down` exponents; a byte of 0 gives 0. */
static __m512 powers(const uint8_t *outer, int down)
{
    const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)outer));
    const __m512i moved = _mm512_sub_epi32(e, _mm512_set1_epi32(down));
    const __mmask16 some =
        _mm512_test_epi32_mask(e, e) & _mm512_cmpgt_epi32_mask(moved, _mm512_setzero_si512());
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(some, moved, 23));
}

static int largest_outer(const job *j)
{
    const nb_record_seg *g = &j->a->record->seg[0];
    __m512i top = _mm512_setzero_si512();
    for (size_t p = 0; p < j->a->n_page; p++)
        top =
            _mm512_max_epu8(top, _mm512_loadu_si512((const uint8_t *)j->a->page[p] + g->outer_off));
    uint8_t b[64], e = 0;
    _mm512_storeu_si512(b, top);
    for (size_t i = 0; i < 64; i++) e = b[i] > e ? b[i] : e;
    return e;
}

/* score_by of both segments, weight_by and out_by. */
static void token_factors(job *j)
{
    const nb_record *r = j->a->record;
    const int top = r->seg[0].outer_stride && r->seg[0].fixed_scale == 0 ? largest_outer(j) : 127;
    j->out_by =
        r->seg[0].fixed_scale != 0 ? r->seg[0].fixed_scale : nb_f32_from_bits((uint32_t)top << 23);
    for (size_t s = 0; s < 2; s++) {
        const nb_record_seg *g = &r->seg[s];
        const __m512 by =
            _mm512_set1_ps(g->fixed_scale != 0 ? j->a->scale * g->fixed_scale : j->a->scale);
        for (size_t t = 0; t < j->n_tok; t += 16) {
            const uint8_t *outer =
                (const uint8_t *)j->a->page[t / NB_PAGE_TOK] + g->outer_off + t % NB_PAGE_TOK;
            __m512 score = by, weight = _mm512_set1_ps(1);
            if (g->outer_stride) {
                score = _mm512_mul_ps(by, powers(outer, 0));
                weight = powers(outer, top - 127);
            }
            _mm512_store_ps(j->score_by[s] + t, score);
            if (s == 0) _mm512_store_ps(j->weight_by + t, weight);
        }
    }
}

/* ---- queries ---- */

/* 16 values of 16 rows as 16 columns; rows that do not exist are zero. */
static void load_columns(const rows *b, size_t d, float *columns)
{
    _Alignas(64) float t[ROWS][16];
    __m512i c[16];
    for (size_t r = 0; r < ROWS; r++)
        _mm512_store_ps(t[r], r < b->n ? _mm512_loadu_ps(b->q[r] + d) : _mm512_setzero_ps());
    nb_avx512_columns16(t, sizeof t[0], c);
    for (size_t i = 0; i < 16; i++) _mm512_store_si512(columns + 16 * i, c[i]);
}

/* Two columns of queries as hi and lo pairs.  hi is rounded to nearest, halves away from zero, in the integers:
 * |lo| <= 2^-8 |q|, and rounding lo leaves 2^-16 |q|. */
static inline void put_pair(const float *x, const float *y, uint16_t *hi, uint16_t *lo)
{
    const __m512i half = _mm512_set1_epi32(0x8000), high = _mm512_set1_epi32((int)0xffff0000);
    const __m512i xb = _mm512_load_si512(x), yb = _mm512_load_si512(y);
    const __m512i xh = _mm512_and_si512(_mm512_add_epi32(xb, half), high);
    const __m512i yh = _mm512_and_si512(_mm512_add_epi32(yb, half), high);
    const __m512 xl = _mm512_sub_ps(_mm512_castsi512_ps(xb), _mm512_castsi512_ps(xh));
    const __m512 yl = _mm512_sub_ps(_mm512_castsi512_ps(yb), _mm512_castsi512_ps(yh));
    const __m512i xr = _mm512_add_epi32(_mm512_castps_si512(xl), half);
    const __m512i yr = _mm512_add_epi32(_mm512_castps_si512(yl), half);
    _mm512_store_si512(hi, _mm512_or_si512(_mm512_srli_epi32(xh, 16), yh));
    /* (xr >> 16) | (yr & high) */
    _mm512_store_si512(lo, _mm512_ternarylogic_epi32(_mm512_srli_epi32(xr, 16), yr, high, 0xf8));
}

static void pack_queries(const job *j, const rows *b)
{
    uint8_t place[NB_AMX_UNIT];
    _Alignas(64) float column[NB_AMX_UNIT][ROWS];
    uint16_t *q = j->q;
    size_t from = 0;
    for (size_t s = 0; s < 2; from += j->seg[s].g->dim, s++) {
        const size_t dim = j->seg[s].g->dim;
        for (size_t p = 0; p < NB_AMX_UNIT; p++)
            place[p] = (uint8_t)nb_amx_place(j->seg[s].order, p);
        for (size_t u = 0; u < j->seg[s].n_unit; u++) {
            for (size_t d = 0; d < NB_AMX_UNIT; d += 16) {
                if (u * NB_AMX_UNIT + d < dim)
                    load_columns(b, from + u * NB_AMX_UNIT + d, column[d]);
                else
                    memset(column[d], 0, 16 * sizeof column[d]);
            }
            for (size_t p = 0; p < NB_AMX_UNIT; p += 2) {
                uint16_t *to = q + p / 32 * Q_BLOCK + p % 32 * 16;
                put_pair(column[place[p]], column[place[p + 1]], to, to + NB_AMX_TILE);
            }
            q += 2 * Q_BLOCK;
        }
    }
}

/* ---- tiles ---- */

/* Tiles 0..4 (sums and weights) with n rows, the others full. */
static void configure(size_t n)
{
    nb_amx_config c = NB_AMX_FULL;
    for (size_t i = 0; i < 5; i++) c.rows[i] = (uint8_t)n;
    nb_amx_configure(&c);
}

/* A block of 32 values: keys of 64 tokens in four tiles, queries in two. */
typedef struct block_ops {
    const uint8_t *k;
    size_t stride; /* bytes from token to token */
    const uint16_t *q;
} block_ops;

/* The 8 products of a block in four steps, each two; sums in tiles 0..3. */
static inline void score_step(const block_ops *x, int step)
{
    const uint8_t *k = x->k + (size_t)(step & 2) * NB_AMX_TOK * x->stride;
    nb_amx_written();
    switch (step) {
    case 0:
        _tile_loadd(6, x->q, 64);
        _tile_loadd(4, k, x->stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, k + NB_AMX_TOK * x->stride, x->stride);
        _tile_dpbf16ps(1, 5, 6);
        _tile_loadd(7, x->q + NB_AMX_TILE, 64);
        break;
    case 1:
        _tile_dpbf16ps(0, 4, 7);
        _tile_dpbf16ps(1, 5, 7);
        break;
    case 2:
        _tile_loadd(4, k, x->stride);
        _tile_dpbf16ps(2, 4, 6);
        _tile_loadd(5, k + NB_AMX_TOK * x->stride, x->stride);
        _tile_dpbf16ps(3, 5, 6);
        break;
    default:
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
        break;
    }
}

static void zero_sums(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

static void store_sums(float *to, size_t next)
{
    _tile_stored(0, to, 64);
    _tile_stored(1, to + next, 64);
    _tile_stored(2, to + 2 * next, 64);
    _tile_stored(3, to + 3 * next, 64);
}

/* ---- decoding and scores ---- */

/* Unit u of both segments: which segment, which of its units. */
static const nb_amx_seg *seg_of(const job *j, size_t u, size_t *unit)
{
    const bool rope = u >= j->seg[0].n_unit;
    *unit = rope ? u - j->seg[0].n_unit : u;
    return &j->seg[rope];
}

/* Lines of a page that is read soon. */
static void prefetch(const job *j, size_t page, size_t part, size_t n_part)
{
    const size_t n = j->a->record->page_bytes;
    if (page >= j->a->n_page) return;
    const char *p = j->a->page[page];
    for (size_t i = n * part / n_part / 64 * 64; i < n * (part + 1) / n_part; i += 64)
        _mm_prefetch(p + i, _MM_HINT_T1);
}

/* Chunk c (of 8) of unit u of a page. */
static inline void decode_step(const job *j, size_t page, size_t u, size_t c, uint16_t *k)
{
    size_t unit;
    const nb_amx_seg *s = seg_of(j, u, &unit);
    uint16_t *v = s == &j->seg[0] ? j->v + unit * V_UNIT + page * 2 * NB_AMX_TILE : NULL;
    nb_amx_decode_chunk(s, j->a->page[page], unit, c * NB_AMX_CHUNK, k, v);
}

/* Block `half` of unit u; k: where the unit was decoded to. */
static block_ops block_of(const job *j, size_t page, size_t u, size_t half, const uint16_t *k)
{
    size_t unit;
    const nb_amx_seg *s = seg_of(j, u, &unit);
    block_ops x = { (const uint8_t *)(k + half * BLOCK), 2 * NB_AMX_KEY,
                    j->q + (2 * u + half) * Q_BLOCK };
    if (s->in_place) {
        x.k = (const uint8_t *)j->a->page[page] + s->g->code_off +
              (unit * NB_AMX_UNIT + half * NB_AMX_KEY) * 2;
        x.stride = s->g->code_stride;
    }
    return x;
}

static bool has_block(const job *j, size_t u, size_t half)
{
    size_t unit;
    return 2 * (seg_of(j, u, &unit), unit) + half < seg_of(j, u, &unit)->n_block;
}

/* After unit u: at the end of a segment its sums are scores. */
static void end_unit(const job *j, size_t page, size_t u)
{
    if (u + 1 != j->seg[0].n_unit && u + 1 != j->n_unit) return;
    store_sums(j->s[u + 1 == j->n_unit] + page * NB_PAGE_TOK * ROWS, NB_AMX_TOK * ROWS);
    zero_sums();
}

/* One block of rows: steps of decoding unit u between products of unit u - 1. */
static void decode_and_score(const job *j)
{
    zero_sums();
    for (size_t page = 0; page < j->a->n_page; page++) {
        nb_amx_page(&j->seg[0], j->a->page[page]);
        for (size_t u = 0; u <= j->n_unit; u++) {
            uint16_t *now = j->k + u % 2 * UNIT;
            const uint16_t *before = j->k + (u + 1) % 2 * UNIT;
            prefetch(j, page + 1, u, j->n_unit + 1);
            for (size_t half = 0; half < 2; half++) {
                block_ops x = { 0 };
                const bool some = u > 0 && has_block(j, u - 1, half);
                if (some) x = block_of(j, page, u - 1, half, before);
                for (int step = 0; step < 4; step++) {
                    if (u < j->n_unit) decode_step(j, page, u, half * 4 + (size_t)step, now);
                    if (some) score_step(&x, step);
                }
            }
            if (u > 0) end_unit(j, page, u - 1);
        }
    }
}

static void decode_all(const job *j)
{
    for (size_t page = 0; page < j->a->n_page; page++) {
        nb_amx_page(&j->seg[0], j->a->page[page]);
        for (size_t u = 0; u < j->n_unit; u++) {
            prefetch(j, page + 1, u, j->n_unit);
            for (size_t c = 0; c < NB_PAGE_TOK / NB_AMX_CHUNK; c++)
                decode_step(j, page, u, c, j->k + (page * j->n_unit + u) * UNIT);
        }
    }
}

static void score_all(const job *j)
{
    zero_sums();
    for (size_t page = 0; page < j->a->n_page; page++)
        for (size_t u = 0; u < j->n_unit; u++) {
            const uint16_t *k = j->k + (page * j->n_unit + u) * UNIT;
            for (size_t half = 0; half < 2 && has_block(j, u, half); half++) {
                const block_ops x = block_of(j, page, u, half, k);
                for (int step = 0; step < 4; step++) score_step(&x, step);
            }
            end_unit(j, page, u);
        }
}

/* ---- weights ---- */

/* Scores with all factors, in s[0]; their maximum. */
static __m512 scale_scores(const job *j)
{
    __m512 top[4];
    for (size_t i = 0; i < 4; i++) top[i] = _mm512_set1_ps(-INFINITY);
    for (size_t t = 0; t < j->n_tok; t += 4)
        for (size_t i = 0; i < 4; i++) {
            float *s = j->s[0] + (t + i) * ROWS;
            const __m512 c =
                _mm512_mul_ps(_mm512_load_ps(s), _mm512_set1_ps(j->score_by[0][t + i]));
            const __m512 x = _mm512_fmadd_ps(_mm512_load_ps(j->s[1] + (t + i) * ROWS),
                                             _mm512_set1_ps(j->score_by[1][t + i]), c);
            _mm512_store_ps(s, x);
            top[i] = _mm512_max_ps(x, top[i]); /* a NaN score is passed over */
        }
    return _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));
}

/* exp(s - m) of 32 tokens as a tile of weights; returns their sum. */
static inline __m512 weigh_block(const job *j, size_t t, __m512 m)
{
    const __m512i half = _mm512_set1_epi32(0x8000), high = _mm512_set1_epi32((int)0xffff0000);
    __m512 sum0 = _mm512_setzero_ps(), sum1 = _mm512_setzero_ps();
    _Alignas(64) uint32_t pair[16][ROWS];
    __m512i row[ROWS];
    for (size_t i = 0; i < 16; i++) {
        const float *s = j->s[0] + (t + 2 * i) * ROWS, *by = j->weight_by + t + 2 * i;
        const __m512 w0 = nb_avx512_exp(_mm512_sub_ps(_mm512_load_ps(s), m));
        const __m512 w1 = nb_avx512_exp(_mm512_sub_ps(_mm512_load_ps(s + ROWS), m));
        sum0 = _mm512_add_ps(sum0, w0);
        sum1 = _mm512_add_ps(sum1, w1);
        const __m512i p0 = _mm512_castps_si512(_mm512_mul_ps(w0, _mm512_set1_ps(by[0])));
        const __m512i p1 = _mm512_castps_si512(_mm512_mul_ps(w1, _mm512_set1_ps(by[1])));
        const __m512i r0 = _mm512_srli_epi32(_mm512_add_epi32(p0, half), 16);
        const __m512i r1 = _mm512_add_epi32(p1, half);
        _mm512_store_si512(pair[i], _mm512_ternarylogic_epi32(r0, r1, high, 0xf8));
    }
    nb_avx512_columns16(pair, sizeof pair[0], row);
    uint16_t *p = j->p + t / NB_AMX_V_TOK * NB_AMX_TILE;
    for (size_t r = 0; r < ROWS; r++) _mm512_store_si512(p + r * 32, row[r]);
    return _mm512_add_ps(sum0, sum1);
}

static void weights(const job *j, rows *b)
{
    _Alignas(64) float m0[ROWS], l0[ROWS], m1[ROWS];
    for (size_t r = 0; r < ROWS; r++) {
        m0[r] = r < b->n ? *b->m[r] : 0;
        l0[r] = r < b->n ? *b->l[r] : 0;
    }
    const __m512 old = _mm512_load_ps(m0), m = _mm512_max_ps(scale_scores(j), old);
    const __mmask16 fresh = _mm512_cmp_ps_mask(old, _mm512_set1_ps(-INFINITY), _CMP_EQ_OQ);
    const __m512 keep =
        _mm512_mask_blend_ps(fresh, nb_avx512_exp(_mm512_sub_ps(old, m)), _mm512_setzero_ps());
    __m512 sum = _mm512_setzero_ps();
    for (size_t t = 0; t < j->n_tok; t += NB_AMX_V_TOK)
        sum = _mm512_add_ps(sum, weigh_block(j, t, m));
    const __mmask16 some = _mm512_cmp_ps_mask(keep, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const __m512 l = _mm512_mask_add_ps(sum, some, _mm512_mul_ps(_mm512_load_ps(l0), keep), sum);
    const __mmask16 nan = _mm512_cmp_ps_mask(l, l, _CMP_UNORD_Q);
    _mm512_store_ps(l0, l);
    _mm512_store_ps(m1, _mm512_mask_blend_ps(nan, m, _mm512_set1_ps(NAN)));
    _mm512_storeu_ps(b->keep, keep);
    for (size_t r = 0; r < b->n; r++) {
        *b->l[r] = l0[r];
        *b->m[r] = m1[r];
    }
}

/* ---- values ---- */

/* Unit u's four tiles of O over all tokens. */
static void value_tiles(const job *j, size_t u, float *o)
{
    const size_t next = NB_AMX_V_BLOCKS * NB_AMX_TILE;
    const uint16_t *p = j->p, *v = j->v + u * V_UNIT;
    nb_amx_written();
    zero_sums();
    for (size_t t = 0; t < j->n_tok; t += NB_AMX_V_TOK, p += NB_AMX_TILE, v += NB_AMX_TILE) {
        _tile_loadd(4, p, 64);
        _tile_loadd(5, v, 64);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, v + next, 64);
        _tile_dpbf16ps(1, 4, 6);
        _tile_loadd(5, v + 2 * next, 64);
        _tile_dpbf16ps(2, 4, 5);
        _tile_loadd(6, v + 3 * next, 64);
        _tile_dpbf16ps(3, 4, 6);
    }
    store_sums(o, ROWS * 16);
}

static void join_values(const job *j, const rows *b, size_t u, const float *o)
{
    const __m512 by = _mm512_set1_ps(j->out_by);
    for (size_t r = 0; r < b->n; r++) {
        const __m512 keep = _mm512_set1_ps(b->keep[r]);
        float *to = b->o[r] + u * NB_AMX_UNIT;
        __m512 y[4];
        nb_amx_natural(j->seg[0].order, o + r * 16, ROWS * 16, y);
        for (size_t i = 0; i < 4; i++) {
            __m512 x = _mm512_mul_ps(y[i], by);
            if (b->keep[r] != 0) x = _mm512_fmadd_ps(_mm512_loadu_ps(to + 16 * i), keep, x);
            _mm512_storeu_ps(to + 16 * i, x);
        }
    }
}

static void values(const job *j, const rows *b)
{
    const size_t n = j->seg[0].n_unit;
    for (size_t u = 0; u <= n; u++) { /* one unit is joined while the next is summed */
        if (u < n) value_tiles(j, u, j->o + u % 2 * 4 * ROWS * 16);
        if (u > 0) join_values(j, b, u - 1, j->o + (u - 1) % 2 * 4 * ROWS * 16);
    }
}

/* ---- the call ---- */

/* Up to 16 rows from row `at` of the list (query, head). */
static rows rows_from(const nb_attn_pages_args *a, size_t at)
{
    const size_t n_head = a->head_end - a->head_begin, d1 = a->record->seg[0].dim;
    const size_t d = d1 + a->record->seg[1].dim, n = a->n_query * n_head - at;
    rows b = { .n = n < ROWS ? n : ROWS };
    for (size_t r = 0; r < b.n; r++) {
        const nb_attn_query *q = &a->query[(at + r) / n_head];
        const size_t h = a->head_begin + (at + r) % n_head;
        b.q[r] = q->q + h * d;
        b.o[r] = q->o + h * d1;
        b.m[r] = q->m + h;
        b.l[r] = q->l + h;
    }
    return b;
}

void nb_attn_pages_amx(const nb_attn_pages_args *a)
{
    const size_t n_row = a->n_query * (a->head_end - a->head_begin);
    job j = { .a = a, .n_tok = a->n_page * NB_PAGE_TOK };
    if (n_row == 0) return;
    lay_out(&j, a->record, a->scratch);
    prefetch(&j, 0, 0, 1);
    token_factors(&j);
    if (n_row > ROWS) decode_all(&j);
    for (size_t at = 0; at < n_row; at += ROWS) {
        rows b = rows_from(a, at);
        pack_queries(&j, &b);
        configure(16);
        if (n_row > ROWS)
            score_all(&j);
        else
            decode_and_score(&j);
        weights(&j, &b);
        if (b.n < ROWS) configure(b.n);
        values(&j, &b);
        _tile_release();
    }
}
