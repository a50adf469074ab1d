/* attn_pages_amx.c - attention over encoded pages with AMX tiles in BF16.
 *
 * Rows (query, head) go in blocks of 16, up to eight of them share decoded pages; all pages of the call are one
 * softmax.
 *   scores  S^T[16 tokens][16 rows] += K[16 tokens][32] Q^T[32][16 rows].  Keys are the A operand, so
 *           that a decoded (or BF16) row is used as it lies.  A query is one BF16 number per value.
 *           32 tokens at a time: their keys (36 KiB) stay in the first-level cache for all blocks, two blocks
 *           at a time, so that two tiles of keys and two of queries make four products.
 *   weights rows are the lanes: exp in 512 bits; the sum is of unrounded weights; P = weight * outer
 *           scale rounded to BF16 in pairs of tokens, transposed to the A operand
 *   values  O[16 rows][16 columns] += P[16 rows][32 tokens] V[32 tokens][16 columns], V in pairs of
 *           tokens, four tiles of O at a time; the 64 columns of all tokens (32 KiB) stay in the first-level
 *           cache for all blocks.
 * Decoding runs beside the products of the first blocks: a step decodes 8 tokens x 64 values, then issues the
 * products of the step before, so that the tile unit works beside the vector ports.
 * Outer scales are not in the tiles: scores get them as floats, the latent's and the rope key's apart, and
 * weights get 2^(e - the call's largest e), so that nothing underflows that matters.
 *
 * Order of a row: chains of 16 products within a tile, blocks of 32 values; weights in 32-token blocks, two chains
 * of 16; values in chains of 16 within a tile, tiles in order.
 *
 * Bound, 16 rows, cycles per token: decoding 32 (keys) + 40 (values) for 4 bits, beside products of 18 + 16;
 * weights 20; packing queries 6; joining 6.
 * Tried and slower: values decoded with the keys and kept until the weights are there.  That saves the second
 * decoding, but 256 KiB written to the second-level cache cost 64 cycles per token and reading them 20. */
#include "kernel/x86/amx_tile.h"
#include "kernel/x86/attn_pages_bf16.h"

enum {
    BLOCKS = 8,
    K_TOK = 32,                           /* tokens whose keys are decoded together */
    K_HALF = K_TOK * NB_AMX_KEY,          /* words of a block of their keys         */
    K_UNIT = 2 * K_HALF,                  /* of a unit of them                      */
    K_UNITS = (1024 + 256) / NB_AMX_UNIT, /* of the largest record              */
    STEPS = NB_AMX_V_TOK / NB_AMX_CHUNK,  /* chunks of 32 tokens: 4             */
    V_STEP = 4 * NB_AMX_TILE              /* words of 32 tokens of a unit's values  */
};

typedef struct room {
    _Alignas(64) uint16_t k[K_UNITS][K_UNIT]; /* [2 blocks][32 tokens][32]; see key_unit */
    _Alignas(64) uint16_t sf[1024 / NB_AMX_UNIT][TOK_MAX][4]; /* job.sf by units, of all pages    */
    _Alignas(64) uint16_t v[NB_AMX_V_BLOCKS][V_STEP]; /* [4 tiles][16 pairs][16 columns][2] */
} room;

static const form tiles = { .n_block = BLOCKS, .extra = sizeof(room) };

size_t nb_attn_pages_amx_scratch(const nb_record *r)
{
    return lay_out(NULL, tiles, r, NULL);
}

bool nb_attn_pages_amx_can(const nb_record *r)
{
    return exact_in_bf16(r);
}

/* Tiles 0..4 (sums and weights) with n rows, the others full. */
static void configure(size_t n)
{
    nb_amx_config c = NB_AMX_FULL;
    for (size_t i = 0; i < 5; i++) c.rows[i] = (uint8_t)n;
    nb_amx_configure(&c);
}

/* ---- scores ---- */

/* A block of 32 values: the keys of 32 tokens, the queries of one or two blocks of rows. */
typedef struct score_ops {
    const uint8_t *k;
    size_t stride;           /* bytes from token to token */
    const uint16_t *q0, *q1; /* q1 NULL: one block */
} score_ops;

/* Where a unit of 32 tokens is decoded to: with one block of rows two places are enough, and more would not stay in
 * the first-level cache beside the page. */
NB_AMX_INLINE uint16_t *key_unit(const job *j, size_t u)
{
    room *m = (void *)j->extra;
    return m->k[j->ring_k ? u % 2 : u];
}

NB_AMX_INLINE score_ops ops_of(const job *j, size_t page, size_t t, size_t u, size_t half,
                               size_t block, bool two)
{
    size_t unit;
    const nb_amx_seg *s = seg_of(j, u, &unit);
    score_ops x = { (const uint8_t *)(key_unit(j, u) + half * K_HALF), 2 * NB_AMX_KEY,
                    j->q + block * j->q_block + (2 * u + half) * NB_AMX_TILE, NULL };
    if (two) x.q1 = x.q0 + j->q_block;
    if (s->in_place) {
        x.stride = s->g->code_stride;
        x.k = (const uint8_t *)j->a->page[page] + s->g->code_off + t * x.stride +
              (unit * NB_AMX_UNIT + half * NB_AMX_KEY) * 2;
    }
    return x;
}

/* Sums of the first block's 32 tokens in tiles 0 and 1, of the second's in 2 and 3. */
NB_AMX_INLINE void score_first(const score_ops *x)
{
    _tile_loadd(6, x->q0, 64);
    _tile_loadd(4, x->k, x->stride);
    _tile_dpbf16ps(0, 4, 6);
    if (!x->q1) return;
    _tile_loadd(7, x->q1, 64);
    _tile_dpbf16ps(2, 4, 7);
}

NB_AMX_INLINE void score_second(const score_ops *x)
{
    _tile_loadd(5, x->k + NB_AMX_TOK * x->stride, x->stride);
    _tile_dpbf16ps(1, 5, 6);
    if (x->q1) _tile_dpbf16ps(3, 5, 7);
}

NB_AMX_INLINE void zero_sums(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* After unit u: at the end of a segment its sums are scores of tokens from t on of the call. */
NB_AMX_INLINE void end_unit(const job *j, size_t t, size_t u, size_t block, bool two)
{
    if (u + 1 != j->seg[0].n_unit && u + 1 != j->n_unit) return;
    float *s = j->s[u + 1 == j->n_unit] + block * j->s_block + t * ROWS;
    _tile_stored(0, s, 64);
    _tile_stored(1, s + NB_AMX_TOK * ROWS, 64);
    if (two) {
        _tile_stored(2, s + j->s_block, 64);
        _tile_stored(3, s + j->s_block + NB_AMX_TOK * ROWS, 64);
    }
    zero_sums();
}

/* Keys of 8 tokens from t on of unit u of a page. */
NB_AMX_INLINE void decode_keys(nb_seg_fmt fmt, const job *j, size_t page, size_t t, size_t u)
{
    room *m = (void *)j->extra;
    size_t unit;
    const nb_amx_seg *s = seg_of(j, u, &unit);
    const nb_amx_from from = rows_of(j, page, s, unit, t);
    const nb_amx_keys k = { key_unit(j, u) + t % K_TOK * NB_AMX_KEY, K_HALF };
    nb_amx_decode_chunk(fmt, s, &from, k, (nb_amx_values){ 0 }, NB_AMX_K);
    if (fmt == NB_SEG_NVFP4 || fmt == NB_SEG_MXFP4)
        for (size_t i = 0; i < NB_AMX_CHUNK; i++)
            memcpy(m->sf[unit][page * NB_PAGE_TOK + t + i], from.sf + i * NB_AMX_SCALES,
                   sizeof m->sf[0][0]);
}

/* Unit u of 32 tokens is decoded beside the products of unit u - 1; some: there is one. */
NB_AMX_INLINE void unit_of(nb_seg_fmt fmt, const job *j, size_t page, size_t t, size_t u, bool some,
                           bool two, ahead *next)
{
    for (size_t half = 0; half < 2; half++) {
        const bool product = u > 0 && has_block(j, u - 1, half);
        score_ops x = { 0 };
        if (product) x = ops_of(j, page, t, u - 1, half, 0, two);
        for (size_t i = 0; i < 2; i++) {
            nb_amx_written();
            if (product && i == 0) score_first(&x);
            if (product && i == 1) score_second(&x);
            ask(next);
            if (some) decode_keys(fmt, j, page, t + (2 * half + i) * NB_AMX_CHUNK, u);
        }
    }
}

/* 32 tokens from t on of a page, decoded beside the scores of the first two blocks of rows. */
static void decode_and_score(const job *j, size_t page, size_t t, bool two, ahead *next)
{
    for (size_t u = 0; u <= j->n_unit; u++) {
        size_t unit;
        const nb_seg_fmt fmt = u < j->n_unit ? seg_of(j, u, &unit)->g->fmt : NB_SEG_BF16;
        switch (fmt) {
        case NB_SEG_BF16: unit_of(NB_SEG_BF16, j, page, t, u, false, two, next); break;
        case NB_SEG_E4M3: unit_of(NB_SEG_E4M3, j, page, t, u, true, two, next); break;
        case NB_SEG_INT8: unit_of(NB_SEG_INT8, j, page, t, u, true, two, next); break;
        case NB_SEG_MXFP4: unit_of(NB_SEG_MXFP4, j, page, t, u, true, two, next); break;
        default: unit_of(NB_SEG_NVFP4, j, page, t, u, true, two, next); break;
        }
        if (u > 0) end_unit(j, page * NB_PAGE_TOK + t, u - 1, 0, two);
    }
}

/* The same tokens for one or two blocks more. */
static void score(const job *j, size_t page, size_t t, size_t block, bool two)
{
    for (size_t u = 0; u < j->n_unit; u++) {
        for (size_t half = 0; half < 2 && has_block(j, u, half); half++) {
            const score_ops x = ops_of(j, page, t, u, half, block, two);
            score_first(&x);
            score_second(&x);
        }
        end_unit(j, page * NB_PAGE_TOK + t, u, block, two);
    }
}

static void scores(const job *j, size_t n_block)
{
    const size_t n_ask = (j->n_unit + 1) * STEPS;
    zero_sums();
    for (size_t page = 0; page < j->a->n_page; page++) {
        page_rows(j, page);
        for (size_t t = 0; t < NB_PAGE_TOK; t += K_TOK) {
            ahead next = look_ahead(j, page + 1, t / K_TOK * n_ask, 2 * n_ask);
            decode_and_score(j, page, t, n_block > 1, &next);
            for (size_t b = 2; b < n_block; b += 2) score(j, page, t, b, b + 1 < n_block);
        }
    }
}

/* ---- values ---- */

/* Values of unit u of 8 tokens from token t of the call on; v: of their 32 tokens. */
NB_AMX_INLINE void decode_values(nb_seg_fmt fmt, const job *j, size_t u, size_t t, uint16_t *v)
{
    const room *m = (const void *)j->extra;
    const nb_amx_values to = { v + t % NB_AMX_V_TOK / 2 * 32, NB_AMX_TILE };
    const nb_amx_from from = { j->a->page[t / NB_PAGE_TOK], u, t % NB_PAGE_TOK, m->sf[u][t], 4 };
    nb_amx_decode_chunk(fmt, &j->seg[0], &from, (nb_amx_keys){ 0 }, to, NB_AMX_V);
}

/* Columns `i` (of 4) of the product of 32 tokens' weights, in tile 4, with their values. */
NB_AMX_INLINE void value_step(const uint16_t *v, int i)
{
    nb_amx_written();
    switch (i) {
    case 0:
        _tile_loadd(5, v, 64);
        _tile_dpbf16ps(0, 4, 5);
        break;
    case 1:
        _tile_loadd(6, v + NB_AMX_TILE, 64);
        _tile_dpbf16ps(1, 4, 6);
        break;
    case 2:
        _tile_loadd(7, v + 2 * NB_AMX_TILE, 64);
        _tile_dpbf16ps(2, 4, 7);
        break;
    default:
        _tile_loadd(5, v + 3 * NB_AMX_TILE, 64);
        _tile_dpbf16ps(3, 4, 5);
        break;
    }
}

/* 32 tokens from k on are decoded to `to` while those before, at v, are multiplied with the weights p. */
NB_AMX_INLINE void decode_and_add(nb_seg_fmt fmt, const job *j, size_t u, size_t k, uint16_t *to,
                                  const uint16_t *v, const uint16_t *p, ahead *next)
{
    if (p) _tile_loadd(4, p, 64);
    NB_AMX_UNROLL
    for (int i = 0; i < STEPS; i++) {
        if (p) value_step(v, i);
        ask(next);
        decode_values(fmt, j, u, k + (size_t)i * NB_AMX_CHUNK, to);
    }
}

NB_AMX_INLINE void add(const uint16_t *v, const uint16_t *p)
{
    _tile_loadd(4, p, 64);
    for (int i = 0; i < STEPS; i++) value_step(v, i);
}

/* Sums of a unit for the first block of rows; its values are decoded beside them, to a ring of 32 tokens each. */
NB_AMX_INLINE void first_block(nb_seg_fmt fmt, const job *j, size_t u, size_t ring, ahead *next)
{
    room *m = (void *)j->extra;
    const size_t n = j->n_tok / NB_AMX_V_TOK;
    decode_and_add(fmt, j, u, 0, m->v[0], NULL, NULL, next);
    for (size_t k = 1; k < n; k++)
        decode_and_add(fmt, j, u, k * NB_AMX_V_TOK, m->v[k % ring], m->v[(k - 1) % ring],
                       j->p + (k - 1) * NB_AMX_TILE, next);
    add(m->v[(n - 1) % ring], j->p + (n - 1) * NB_AMX_TILE);
}

/* Sums of a unit for a block. */
static void value_tiles(const job *j, size_t u, size_t block, size_t ring)
{
    const room *m = (const void *)j->extra;
    const uint16_t *p = j->p + block * P_BLOCK;
    zero_sums();
    if (block == 0) {
        const size_t n_ask = j->n_tok / NB_AMX_CHUNK;
        ahead next = look_at(j, j->a->next, u * n_ask, j->seg[0].n_unit * n_ask);
        switch (j->seg[0].g->fmt) {
        case NB_SEG_BF16: first_block(NB_SEG_BF16, j, u, ring, &next); break;
        case NB_SEG_E4M3: first_block(NB_SEG_E4M3, j, u, ring, &next); break;
        case NB_SEG_INT8: first_block(NB_SEG_INT8, j, u, ring, &next); break;
        case NB_SEG_MXFP4: first_block(NB_SEG_MXFP4, j, u, ring, &next); break;
        default: first_block(NB_SEG_NVFP4, j, u, ring, &next); break;
        }
    } else {
        for (size_t k = 0; k < j->n_tok / NB_AMX_V_TOK; k++) add(m->v[k], p + k * NB_AMX_TILE);
    }
    _tile_stored(0, j->o, 64);
    _tile_stored(1, j->o + ROWS * 16, 64);
    _tile_stored(2, j->o + 2 * ROWS * 16, 64);
    _tile_stored(3, j->o + 3 * ROWS * 16, 64);
}

/* 16 columns of n rows join the state, from column `at` on: to = to * keep + o * by.  All rows are read before one is
 * written, since states of every other row share the lower twelve bits of their addresses, and a read would wait for
 * a write just before it. */
NB_AMX_INLINE void join_columns(const rows *b, size_t n, size_t at, const float *o, __m512 by)
{
    __m512 z[ROWS] = { 0 };
    NB_AMX_UNROLL
    for (size_t r = 0; r < n; r++) {
        const __mmask16 old = b->keep[r] != 0 ? 0xffff : 0;
        z[r] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(old, b->o[r] + at), _mm512_set1_ps(b->keep[r]),
                               _mm512_mul_ps(_mm512_load_ps(o + r * 16), by));
    }
    NB_AMX_UNROLL
    for (size_t r = 0; r < n; r++) _mm512_storeu_ps(b->o[r] + at, z[r]);
}

/* Sums of a unit come in the order of values and join the state. */
static void join_values(const job *j, const rows *b, size_t u)
{
    float *o = j->o;
    const __m512 by = _mm512_set1_ps(j->out_by);
    if (j->seg[0].order != NB_AMX_NIBBLES)
        for (size_t r = 0; r < b->n; r++) {
            __m512 x[4], y[4];
            for (size_t i = 0; i < 4; i++) x[i] = _mm512_load_ps(o + (i * ROWS + r) * 16);
            nb_amx_natural(j->seg[0].order, x, y);
            for (size_t i = 0; i < 4; i++) _mm512_store_ps(o + (i * ROWS + r) * 16, y[i]);
        }
    for (size_t i = 0; i < 4; i++) {
        const size_t at = u * NB_AMX_UNIT + 16 * i;
        if (b->n == ROWS)
            join_columns(b, ROWS, at, o + i * ROWS * 16, by);
        else
            join_columns(b, b->n, at, o + i * ROWS * 16, by);
    }
}

static void values(const job *j, const rows *b, size_t n_block)
{
    const size_t ring = n_block > 1 ? NB_AMX_V_BLOCKS : 2;
    for (size_t u = 0; u < j->seg[0].n_unit; u++)
        for (size_t i = 0; i < n_block; i++) {
            value_tiles(j, u, i, ring);
            join_values(j, &b[i], u);
        }
}

/* ---- the call ---- */

void nb_attn_pages_amx(const nb_attn_pages_args *a)
{
    const size_t n_row = a->n_query * (a->head_end - a->head_begin);
    job j = { .a = a, .n_tok = a->n_page * NB_PAGE_TOK };
    rows b[BLOCKS];
    if (n_row == 0) return;
    lay_out(&j, tiles, a->record, a->scratch);
    token_factors(&j);
    for (size_t at = 0, n; at < n_row; at += n * ROWS) {
        n = (n_row - at + ROWS - 1) / ROWS;
        if (n > BLOCKS) n = BLOCKS;
        for (size_t i = 0; i < n; i++) {
            b[i] = rows_from(a, at + i * ROWS);
            ahead next = look_ahead(&j, at + i ? NB_ATTN_PAGES_MAX : 0, 0, n_pack(&j));
            pack_queries(&j, &b[i], i, 0, &next);
        }
        j.ring_k = n == 1;
        configure(ROWS);
        scores(&j, n);
        for (size_t i = 0; i < n; i++) weights(&j, &b[i], i);
        if (n == 1 && b[0].n < ROWS) configure(b[0].n);
        values(&j, b, n);
        _tile_release();
    }
}
