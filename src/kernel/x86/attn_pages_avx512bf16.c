/* attn_pages_avx512bf16.c - attention over encoded pages with BF16 dot products (vdpbf16ps), and with integer
 * ones for the scores of NVFP4 and IF4 (attn_int8_avx512.h).
 *
 * Up to 128 rows (query, head) in blocks of 16 share decoded pages; all pages of the call are one softmax.
 *   scores  lanes are rows: a pair of a key's values is broadcast from memory, a pair of 16 queries is a
 *           vector.  Tiles of 16 tokens; after every 64 values the sums go to memory and another 64 values of
 *           64 tokens (8 KiB) are decoded for all blocks.  The two halves of a key's 32 values are read in turns:
 *           keys lie 64 bytes apart, and two loads from one bank of the first-level cache take two cycles.
 *   values  lanes are columns: tiles of 4 rows x 64 columns over all tokens of the call, a pair of weights is
 *           broadcast, a pair of tokens' values is a vector.  Values are decoded together with the keys, 4-bit
 *           values in registers, for tiles of 8 rows x 32 columns.
 * Cached values are exact; a weight is rounded to BF16, a query to BF16 or to bytes.
 *
 * Order of a row: a score is one chain over the pairs of the latent (integers: sums of 16, a chain over groups,
 * one over units), another over those of the rope key; weights in blocks of 32 tokens, two chains; values
 * one chain over the pairs of tokens.
 *
 * Bound, 16 rows, cycles per token with two dot products of 512 bits per cycle: scores 144 (BF16; 17 loads for
 * 16 products) or 85 + 16 (integers: loads; rope key), values 128; beside them copying and decoding codes 30 (4 bits),
 * weights 13, packing queries 10.  Measured with pages from memory: 358 (NVFP4), 440 (E4M3), 490 (BF16).
 * On Zen 5 a vector store takes both units of the dot products for a cycle, a vpermw a sixth of it; unpacking,
 * shifts by variable counts and logic cost nothing beside them.  So decoding twice in registers (155 cycles with the
 * products) beats decoding once to memory (178, and 45 more with pages from memory).
 * Tried and slower: values of all units decoded with the keys (4 bits: 256 KiB written and read again); half as
 * many tokens per pass over the values; 4-bit values of a unit decoded while the unit before is summed. */
#include "kernel/x86/attn_int8_avx512.h"

enum {
    BLOCKS = 8,
    Q_KEY = NB_AMX_TILE, /* words of a block's queries for 32 values */
    V_ASK = 16           /* tokens from one prefetch to the next     */
};
static const form one_part = { .n_part = 1, .n_block = BLOCKS, .all_values = true, .pairs = true };
static const form in_bytes = { .n_part = 1,
                               .n_block = BLOCKS,
                               .no_values = true,
                               .pairs = true,
                               .extra = sizeof(i8_room),
                               .extra_unit = I8_UNIT_BYTES };

size_t nb_attn_pages_avx512bf16_scratch(const nb_record *r)
{
    return lay_out(NULL, one_part, r, NULL);
}

/* What avx512int8 does not take. */
bool nb_attn_pages_avx512bf16_can(const nb_record *r)
{
    return exact_in_bf16(r) && !i8_reads(&r->seg[0]);
}

#define EACH4(M, r) M(r, 0) M(r, 1) M(r, 2) M(r, 3)
#define GRID4(M) EACH4(M, 0) EACH4(M, 1) EACH4(M, 2) EACH4(M, 3)
#define EACH16(M)                                                                                  \
    M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)

/* s + the products of 16 pairs with the pair at p. */
static inline __m512 dot_pair(__m512 s, __m512i x, const void *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return _mm512_dpbf16_ps(s, (__m512bh)x, (__m512bh)_mm512_set1_epi32(pair));
}

/* ---- scores ---- */

#define S_LOAD(t) __m512 a##t = fresh ? _mm512_setzero_ps() : _mm512_load_ps(s + (t)*ROWS);
#define S_DOT(t)                                                                                   \
    a##t = dot_pair(a##t, x, k##t + 4 * p);                                                        \
    a##t = dot_pair(a##t, y, k##t + 4 * p + 32);
#define S_STORE(t) _mm512_store_ps(s + (t)*ROWS, a##t);
#define S_KEY(t) const uint8_t *const k##t = k + (t)*stride;

/* 16 tokens x 16 rows: s += products of 32 values. */
static inline void score_tile(const uint8_t *k, size_t stride, const uint16_t *q, float *s,
                              bool fresh, ahead *next)
{
    EACH16(S_KEY)
    EACH16(S_LOAD)
    for (size_t p = 0; p < NB_AMX_KEY / 4; p++) {
        ask(next);
        const __m512i x = _mm512_load_si512(q + p * 32), y = _mm512_load_si512(q + (p + 8) * 32);
        EACH16(S_DOT)
    }
    EACH16(S_STORE)
}

/* A unit of a page's keys for a block of rows; k: where it was decoded to. */
static void score_unit(const job *j, size_t page, size_t u, size_t block, const uint16_t *k)
{
    size_t unit;
    const nb_amx_seg *g = seg_of(j, u, &unit);
    float *s = j->s[g != j->seg] + block * j->s_block + page * NB_PAGE_TOK * ROWS;
    const uint16_t *q = j->q + block * j->q_block + 2 * u * Q_KEY;
    const size_t n_step = 2 * PAGE_TILES * 8; /* of a unit */
    ahead next = look_ahead(j, block || j->f.extra ? NB_ATTN_PAGES_MAX : page + 1, u * n_step,
                            j->n_unit * n_step);
    for (size_t half = 0; half < 2 && has_block(j, u, half); half++, q += Q_KEY)
        for (size_t t = 0; t < NB_PAGE_TOK; t += 16) {
            const bool fresh = unit + half == 0;
            if (g->in_place) {
                const uint8_t *from = (const uint8_t *)j->a->page[page] + g->g->code_off +
                                      (unit * NB_AMX_UNIT + half * NB_AMX_KEY) * 2;
                score_tile(from + t * g->g->code_stride, g->g->code_stride, q, s + t * ROWS, fresh,
                           &next);
            } else {
                score_tile((const uint8_t *)(k + half * BLOCK + t * NB_AMX_KEY), 2 * NB_AMX_KEY, q,
                           s + t * ROWS, fresh, &next);
            }
        }
}

static void scores(const job *j, size_t n_block)
{
    i8_room *room = (void *)j->extra;
    const size_t n_int = j->f.extra ? j->seg[0].n_unit : 0;
    for (size_t page = 0; page < j->a->n_page; page++) {
        if (n_int) i8_page(j, page, room);
        for (size_t u = 0; u < n_int; u++) {
            i8_codes(j, page, u, room);
            for (size_t b = 0; b < n_block; b++) i8_scores(j, room, page, u, b);
        }
        for (size_t u = n_int; u < j->n_unit; u++) {
            for (size_t c = 0; c < NB_PAGE_TOK / NB_AMX_CHUNK; c++) {
                decode_step(j, page, u, c, j->k);
            }
            for (size_t b = 0; b < n_block; b++) score_unit(j, page, u, b, j->k);
        }
    }
}

/* ---- values ---- */

#define V_ZERO(r, c) __m512 a##r##c = _mm512_setzero_ps();
#define V_LOAD(r, c) const __m512i v##c = _mm512_load_si512(v + c * next);
#define V_DOT(r, c) a##r##c = _mm512_dpbf16_ps(a##r##c, (__m512bh)w, (__m512bh)v##c);
#define V_ROW(r)                                                                                   \
    {                                                                                              \
        int32_t pair;                                                                              \
        memcpy(&pair, p + (r)*2, sizeof pair);                                                     \
        const __m512i w = _mm512_set1_epi32(pair);                                                 \
        EACH4(V_DOT, r)                                                                            \
    }
#define V_STORE(r)                                                                                 \
    put_row(j, b, at + r, u, (const __m512[4]){ a##r##0, a##r##1, a##r##2, a##r##3 });

/* o = o * keep + x of a unit, columns in order. */
static inline void put_row(const job *j, const rows *b, size_t r, size_t u, const __m512 x[4])
{
    const __m512 by = _mm512_set1_ps(j->out_by), keep = _mm512_set1_ps(b->keep[r]);
    __m512 y[4];
    if (r >= b->n) return;
    float *to = b->o[r] + u * NB_AMX_UNIT;
    nb_amx_natural(j->seg[0].order, x, y);
    for (size_t i = 0; i < 4; i++) {
        __m512 z = _mm512_mul_ps(y[i], by);
        if (b->keep[r] != 0) z = _mm512_fmadd_ps(_mm512_loadu_ps(to + 16 * i), keep, z);
        _mm512_storeu_ps(to + 16 * i, z);
    }
}

/* What a pass over the tokens asks for of the page that the next call reads: pass `at` of n of the first block. */
static ahead look_next(const job *j, size_t block, size_t at, size_t n)
{
    const size_t n_ask = j->n_tok / V_ASK;
    return look_at(j, block ? NULL : j->a->next, at * n_ask, n * n_ask);
}

/* Unit u of rows at .. at + 3. */
static void values_4(const job *j, const rows *b, size_t u, size_t at, const uint16_t *v,
                     const uint16_t *weight, ahead soon)
{
    const size_t next = NB_AMX_V_BLOCKS * NB_AMX_TILE;
    GRID4(V_ZERO)
    for (size_t t = 0; t < j->n_tok; t += 2, v += 32) {
        const uint16_t *p = weight + t * ROWS + at * 2;
        if (t % V_ASK == 0) ask(&soon);
        EACH4(V_LOAD, 0)
        V_ROW(0)
        V_ROW(1)
        V_ROW(2)
        V_ROW(3)
    }
    V_STORE(0)
    V_STORE(1)
    V_STORE(2)
    V_STORE(3)
}

static void values(const job *j, const rows *b, size_t n_block)
{
    for (size_t u = 0; u < j->seg[0].n_unit; u++)
        for (size_t i = 0; i < n_block; i++)
            for (size_t r = 0; r < b[i].n; r += 4)
                values_4(j, &b[i], u, r, j->v + u * V_UNIT, j->p + i * P_BLOCK,
                         look_next(j, i, u * (ROWS / 4) + r / 4, j->seg[0].n_unit * (ROWS / 4)));
}

/* ---- 4-bit values, decoded where they are used ---- */

/* 16 columns of two tokens in pairs, as nb_amx_put_values orders them; code: the codes of both, two bytes in
 * turns, in each quarter; sf: the scale of each. */
static inline __m512i value_pairs(const uint16_t *table, __m512i code, uint8_t sf0, uint8_t sf1)
{
    const __m512i shift =
        _mm512_setr_epi32(0, 0, 0, 0, 0x40004, 0x40004, 0x40004, 0x40004, 0x80008, 0x80008, 0x80008,
                          0x80008, 0xc000c, 0xc000c, 0xc000c, 0xc000c);
    const __m512i second = _mm512_set1_epi32(0x100000); /* the other token's row */
    const __m512i row = _mm512_inserti64x4(_mm512_castsi256_si512(nb_amx_table_row(table, sf0)),
                                           nb_amx_table_row(table, sf1), 1);
    const __m512i n = _mm512_srlv_epi16(code, shift);
    return _mm512_permutexvar_epi16(
        _mm512_ternarylogic_epi32(n, _mm512_set1_epi16(15), second, 0xea), row);
}

#define H_EACH8(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)
#define H_ZERO(r) __m512 a##r = _mm512_setzero_ps(), c##r = _mm512_setzero_ps();
#define H_ROW(r)                                                                                   \
    {                                                                                              \
        int32_t pair;                                                                              \
        memcpy(&pair, p + (r)*2, sizeof pair);                                                     \
        const __m512bh w = (__m512bh)_mm512_set1_epi32(pair);                                      \
        a##r = _mm512_dpbf16_ps(a##r, w, (__m512bh)v0);                                            \
        c##r = _mm512_dpbf16_ps(c##r, w, (__m512bh)v1);                                            \
    }
#define H_STORE(r) put_half(j, b, at + r, half, a##r, c##r);

/* o = o * keep + x of 32 columns, x in the order of nibbles. */
static inline void put_half(const job *j, const rows *b, size_t r, size_t half, __m512 x, __m512 y)
{
    const __m512i at = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512 by = _mm512_set1_ps(j->out_by), keep = _mm512_set1_ps(b->keep[r]);
    if (r >= b->n) return;
    float *to = b->o[r] + half * (NB_AMX_UNIT / 2);
    __m512 z[2] = { _mm512_mul_ps(_mm512_permutexvar_ps(at, x), by),
                    _mm512_mul_ps(_mm512_permutexvar_ps(at, y), by) };
    for (size_t i = 0; i < 2; i++) {
        if (b->keep[r] != 0) z[i] = _mm512_fmadd_ps(_mm512_loadu_ps(to + 16 * i), keep, z[i]);
        _mm512_storeu_ps(to + 16 * i, z[i]);
    }
}

/* 32 columns of rows at .. at + 7. */
static void values_8(const job *j, const rows *b, size_t half, size_t at, const uint16_t *weight,
                     ahead soon)
{
    const nb_amx_seg *s = &j->seg[0];
    const i8_room *room = (const void *)j->extra;
    const uint8_t *code = room->line[half / 4][0] + half % 4 * 16;
    const size_t ss = s->g->scale_stride;
    H_EACH8(H_ZERO)
    for (size_t t = 0; t < j->n_tok; t += NB_PAGE_TOK) {
        const uint8_t *sf =
            (const uint8_t *)j->a->page[t / NB_PAGE_TOK] + s->g->scale_off + half * 2;
        const uint16_t *p = weight + t * ROWS + at * 2;
        for (size_t i = 0; i < NB_PAGE_TOK; i += 2, code += 128, sf += 2 * ss, p += 2 * ROWS) {
            if (i % V_ASK == 0) ask(&soon);
            const __m512i x = _mm512_broadcast_i32x4(_mm_load_si128((const void *)code));
            const __m512i y = _mm512_broadcast_i32x4(_mm_load_si128((const void *)(code + 64)));
            const uint32_t f = nb_le16_get(sf), g = nb_le16_get(sf + ss);
            const __m512i v0 =
                value_pairs(s->table, _mm512_unpacklo_epi16(x, y), (uint8_t)f, (uint8_t)g);
            const __m512i v1 = value_pairs(s->table, _mm512_unpackhi_epi16(x, y), (uint8_t)(f >> 8),
                                           (uint8_t)(g >> 8));
            H_EACH8(H_ROW)
        }
    }
    H_EACH8(H_STORE)
}

static void values_4bit(const job *j, const rows *b, size_t n_block)
{
    for (size_t h = 0; h < 2 * j->seg[0].n_unit; h++)
        for (size_t i = 0; i < n_block; i++)
            for (size_t r = 0; r < b[i].n; r += 8)
                values_8(j, &b[i], h, r, j->p + i * P_BLOCK,
                         look_next(j, i, h * (ROWS / 8) + r / 8, j->seg[0].n_unit * (ROWS / 4)));
}

static void run(const nb_attn_pages_args *a, form f)
{
    const size_t n_row = a->n_query * (a->head_end - a->head_begin);
    job j = { .a = a, .n_tok = a->n_page * NB_PAGE_TOK };
    rows b[BLOCKS];
    if (n_row == 0) return;
    lay_out(&j, f, a->record, a->scratch);
    token_factors(&j);
    for (size_t at = 0, n; at < n_row; at += n * ROWS) {
        n = (n_row - at + ROWS - 1) / ROWS;
        if (n > BLOCKS) n = BLOCKS;
        for (size_t i = 0; i < n; i++) {
            b[i] = rows_from(a, at + i * ROWS);
            ahead next = look_ahead(&j, at + i ? NB_ATTN_PAGES_MAX : 0, 0, n_pack(&j, f.extra));
            if (f.extra) i8_pack_queries(&j, &b[i], i, &next);
            pack_queries(&j, &b[i], i, f.extra ? 1 : 0, &next);
        }
        scores(&j, n);
        for (size_t i = 0; i < n; i++) weights(&j, &b[i], i);
        if (f.extra)
            values_4bit(&j, b, n);
        else
            values(&j, b, n);
    }
}

void nb_attn_pages_avx512bf16(const nb_attn_pages_args *a)
{
    run(a, one_part);
}

void nb_attn_pages_avx512int8(const nb_attn_pages_args *a)
{
    run(a, in_bytes);
}

size_t nb_attn_pages_avx512int8_scratch(const nb_record *r)
{
    return lay_out(NULL, in_bytes, r, NULL);
}

bool nb_attn_pages_avx512int8_can(const nb_record *r)
{
    return exact_in_bf16(r) && i8_reads(&r->seg[0]);
}
