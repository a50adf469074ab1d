/* attn_pages_bf16.h - what the variants of attn_pages with BF16 products share beyond attn_job_bf16.h: packing
 * of queries, steps of decoding, softmax.
 *
 * Rows (query, head) go in blocks of 16, which are the lanes of scores and of exp; all pages of the call
 * are one softmax.  A query is one or two BF16 numbers; the sum of the weights is of unrounded weights;
 * P = weight * outer scale, rounded to BF16 in pairs of tokens. */
#ifndef NB_KERNEL_ATTN_PAGES_BF16_H
#define NB_KERNEL_ATTN_PAGES_BF16_H
#include "kernel/x86/attn_job_bf16.h"

/* Lines of a page that is read soon, to be asked for a few at a time between other work: when more than about
 * twenty wait, the rest of a burst is lost (measured on Zen 5: 20 ns for 578 bytes from memory, 60 in bursts). */
typedef struct ahead {
    const char *at;
    size_t n; /* lines of a step */
} ahead;

/* For steps from `step` on, of n_step that share the page. */
static ahead look_at(const job *j, const void *page, size_t step, size_t n_step)
{
    if (!page) return (ahead){ 0 };
    const size_t n = (j->a->record->page_bytes / 64 + n_step - 1) / n_step;
    return (ahead){ (const char *)page + step * n * 64, n };
}

static ahead look_ahead(const job *j, size_t page, size_t step, size_t n_step)
{
    return look_at(j, page < j->a->n_page ? j->a->page[page] : NULL, step, n_step);
}

static inline void ask(ahead *x)
{
    for (size_t i = 0; i < x->n; i++, x->at += 64) _mm_prefetch(x->at, _MM_HINT_T1);
}

/* ---- queries ---- */

/* 16 values of 16 rows as 16 columns; rows that do not exist are zero. */
static void load_columns(const rows *b, size_t d, float *columns, ahead *next)
{
    _Alignas(64) float t[ROWS][16];
    __m512i c[16];
    for (size_t r = 0; r < ROWS; r++) {
        ask(next);
        _mm512_store_ps(t[r], r < b->n ? _mm512_loadu_ps(b->q[r] + d) : _mm512_setzero_ps());
    }
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

/* The same as one pair of BF16 numbers, to nearest; a NaN stays one. */
static inline void put_one(const float *x, const float *y, uint16_t *to)
{
    const __m512i turn =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_load_ps(y), _mm512_load_ps(x));
    _mm512_store_si512(to, _mm512_permutexvar_epi16(turn, (__m512i)both));
}

/* Steps of packing a block; ints: the latent as bytes (attn_int8_avx512.h). */
static size_t n_pack(const job *j, bool ints)
{
    const size_t n_int = ints ? j->seg[0].n_unit : 0;
    return (n_int + (j->n_unit - n_int) * (NB_AMX_UNIT / 16)) * ROWS;
}

/* Queries of the rows of a block, the segments from s0 on. */
static void pack_queries(const job *j, const rows *b, size_t block, size_t s0, ahead *next)
{
    uint8_t place[NB_AMX_UNIT];
    _Alignas(64) float column[NB_AMX_UNIT][ROWS];
    const size_t q_key = j->f.n_part * NB_AMX_TILE;
    uint16_t *q = j->q + block * j->q_block + (s0 ? j->seg[0].n_unit * 2 * q_key : 0);
    size_t from = s0 ? j->seg[0].g->dim : 0;
    for (size_t s = s0; s < 2; from += j->seg[s].g->dim, s++) {
        const size_t dim = j->seg[s].g->dim;
        for (size_t p = 0; p < NB_AMX_UNIT; p++)
            place[p] = (uint8_t)nb_amx_place(j->seg[s].order, p);
        for (size_t u = 0; u < j->seg[s].n_unit; u++) {
            for (size_t d = 0; d < NB_AMX_UNIT; d += 16) {
                if (u * NB_AMX_UNIT + d < dim)
                    load_columns(b, from + u * NB_AMX_UNIT + d, column[d], next);
                else
                    memset(column[d], 0, 16 * sizeof column[d]);
            }
            for (size_t p = 0; p < NB_AMX_UNIT; p += 2) {
                uint16_t *to = q + p / 32 * q_key + p % 32 * 16;
                const float *x = column[place[p]], *y = column[place[p + 1]];
                if (j->f.n_part == 2)
                    put_pair(x, y, to, to + NB_AMX_TILE);
                else
                    put_one(x, y, to);
            }
            q += 2 * q_key;
        }
    }
}

/* ---- keys ---- */

/* Unit u of both segments: which segment, which of its units. */
static const nb_amx_seg *seg_of(const job *j, size_t u, size_t *unit)
{
    const bool rope = u >= j->seg[0].n_unit;
    *unit = rope ? u - j->seg[0].n_unit : u;
    return &j->seg[rope];
}

/* Chunk c (of 8) of unit u of a page. */
static inline void decode_step(const job *j, size_t page, size_t u, size_t c, uint16_t *k)
{
    size_t unit;
    const nb_amx_seg *s = seg_of(j, u, &unit);
    const bool with_values = s == &j->seg[0] && j->f.all_values;
    uint16_t *v = with_values ? j->v + unit * V_UNIT + page * 2 * NB_AMX_TILE : NULL;
    nb_amx_decode_chunk(s, j->a->page[page], unit, c * NB_AMX_CHUNK, k, v);
}

static bool has_block(const job *j, size_t u, size_t half)
{
    size_t unit;
    return 2 * (seg_of(j, u, &unit), unit) + half < seg_of(j, u, &unit)->n_block;
}

/* ---- weights ---- */

/* Scores of a block with all factors, in s[0]; their maximum. */
static __m512 scale_scores(const job *j, size_t block)
{
    float *s0 = j->s[0] + block * j->s_block, *s1 = j->s[1] + block * j->s_block;
    __m512 top[4];
    for (size_t i = 0; i < 4; i++) top[i] = _mm512_set1_ps(-INFINITY);
    for (size_t t = 0; t < j->n_tok; t += 4)
        for (size_t i = 0; i < 4; i++) {
            float *s = s0 + (t + i) * ROWS;
            const __m512 c =
                _mm512_mul_ps(_mm512_load_ps(s), _mm512_set1_ps(j->score_by[0][t + i]));
            const __m512 x = _mm512_fmadd_ps(_mm512_load_ps(s1 + (t + i) * ROWS),
                                             _mm512_set1_ps(j->score_by[1][t + i]), c);
            _mm512_store_ps(s, x);
            top[i] = _mm512_max_ps(x, top[i]); /* a NaN score is passed over */
        }
    return _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));
}

/* exp(s - m) of 32 tokens as a tile of weights; returns their sum. */
static inline __m512 weigh_block(const job *j, const float *from, size_t t, __m512 m, uint16_t *p)
{
    const __m512i half = _mm512_set1_epi32(0x8000), high = _mm512_set1_epi32((int)0xffff0000);
    __m512 sum0 = _mm512_setzero_ps(), sum1 = _mm512_setzero_ps();
    p += t / NB_AMX_V_TOK * NB_AMX_TILE;
    _Alignas(64) uint16_t tile[NB_AMX_TILE];
    uint16_t *pair = j->f.pairs ? p : tile;
    __m512i row[ROWS];
    for (size_t i = 0; i < 16; i++) {
        const float *s = from + (t + 2 * i) * ROWS, *by = j->weight_by + t + 2 * i;
        const __m512 w0 = nb_avx512_exp(_mm512_sub_ps(_mm512_load_ps(s), m));
        const __m512 w1 = nb_avx512_exp(_mm512_sub_ps(_mm512_load_ps(s + ROWS), m));
        sum0 = _mm512_add_ps(sum0, w0);
        sum1 = _mm512_add_ps(sum1, w1);
        const __m512i p0 = _mm512_castps_si512(_mm512_mul_ps(w0, _mm512_set1_ps(by[0])));
        const __m512i p1 = _mm512_castps_si512(_mm512_mul_ps(w1, _mm512_set1_ps(by[1])));
        const __m512i r0 = _mm512_srli_epi32(_mm512_add_epi32(p0, half), 16);
        const __m512i r1 = _mm512_add_epi32(p1, half);
        _mm512_store_si512(pair + 2 * ROWS * i, _mm512_ternarylogic_epi32(r0, r1, high, 0xf8));
    }
    if (j->f.pairs) return _mm512_add_ps(sum0, sum1);
    nb_avx512_columns16(tile, 4 * ROWS, row);
    for (size_t r = 0; r < ROWS; r++) _mm512_store_si512(p + r * 32, row[r]);
    return _mm512_add_ps(sum0, sum1);
}

static void weights(const job *j, rows *b, size_t block)
{
    _Alignas(64) float m0[ROWS], l0[ROWS], m1[ROWS];
    for (size_t r = 0; r < ROWS; r++) {
        m0[r] = r < b->n ? *b->m[r] : 0;
        l0[r] = r < b->n ? *b->l[r] : 0;
    }
    const __m512 old = _mm512_load_ps(m0), m = _mm512_max_ps(scale_scores(j, block), old);
    const __mmask16 fresh = _mm512_cmp_ps_mask(old, _mm512_set1_ps(-INFINITY), _CMP_EQ_OQ);
    const __m512 keep =
        _mm512_mask_blend_ps(fresh, nb_avx512_exp(_mm512_sub_ps(old, m)), _mm512_setzero_ps());
    __m512 sum = _mm512_setzero_ps();
    for (size_t t = 0; t < j->n_tok; t += NB_AMX_V_TOK)
        sum = _mm512_add_ps(
            sum, weigh_block(j, j->s[0] + block * j->s_block, t, m, j->p + block * P_BLOCK));
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

/* ---- rows ---- */

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
#endif
