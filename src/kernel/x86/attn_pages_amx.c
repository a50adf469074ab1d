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
#include "kernel/x86/amx_tile.h"
#include "kernel/x86/attn_pages_bf16.h"

enum { Q_BLOCK = 2 * NB_AMX_TILE }; /* words of hi and lo of a block */
static const form two_parts = { .n_part = 2, .n_block = 1, .all_values = true, .all_keys = true };

size_t nb_attn_pages_amx_scratch(const nb_record *r)
{
    return lay_out(NULL, two_parts, r, NULL);
}

bool nb_attn_pages_amx_can(const nb_record *r)
{
    return exact_in_bf16(r);
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

/* Lines of a page that is read soon. */
static void prefetch(const job *j, size_t page, size_t part, size_t n_part)
{
    const size_t n = j->a->record->page_bytes;
    if (page >= j->a->n_page) return;
    const char *p = j->a->page[page];
    for (size_t i = n * part / n_part / 64 * 64; i < n * (part + 1) / n_part; i += 64)
        _mm_prefetch(p + i, _MM_HINT_T1);
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
        __m512 x[4], y[4];
        for (size_t i = 0; i < 4; i++) x[i] = _mm512_loadu_ps(o + (i * ROWS + r) * 16);
        nb_amx_natural(j->seg[0].order, x, y);
        for (size_t i = 0; i < 4; i++) {
            __m512 z = _mm512_mul_ps(y[i], by);
            if (b->keep[r] != 0) z = _mm512_fmadd_ps(_mm512_loadu_ps(to + 16 * i), keep, z);
            _mm512_storeu_ps(to + 16 * i, z);
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

void nb_attn_pages_amx(const nb_attn_pages_args *a)
{
    const size_t n_row = a->n_query * (a->head_end - a->head_begin);
    job j = { .a = a, .n_tok = a->n_page * NB_PAGE_TOK };
    if (n_row == 0) return;
    lay_out(&j, two_parts, a->record, a->scratch);
    token_factors(&j);
    if (n_row > ROWS) decode_all(&j);
    for (size_t at = 0; at < n_row; at += ROWS) {
        rows b = rows_from(a, at);
        ahead next = look_ahead(&j, at ? NB_ATTN_PAGES_MAX : 0, 0, n_pack(&j, false));
        pack_queries(&j, &b, 0, 0, &next);
        configure(16);
        if (n_row > ROWS)
            score_all(&j);
        else
            decode_and_score(&j);
        weights(&j, &b, 0);
        if (b.n < ROWS) configure(b.n);
        values(&j, &b);
        _tile_release();
    }
}
