/* attn_pages_bf16.h - what the variants of attn_pages with BF16 products share beyond attn_job_bf16.h: packing
 * of queries, steps of decoding, softmax.
 *
 * Rows (query, head) go in blocks of 16, which are the lanes of scores and of exp; all pages of the call
 * are one softmax.  A query is one BF16 number per value; the sum of the weights is of unrounded weights;
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

/* Steps of packing a block, at most. */
static size_t n_pack(const job *j)
{
    return j->n_unit * ROWS;
}

/* 64 values of a row as BF16, to nearest (a NaN stays one); those from n on are zero. */
static inline void load_unit(const float *q, size_t n, __m512i x[2])
{
    __m512 f[4];
    for (size_t i = 0; i < 4; i++)
        f[i] = 16 * i < n ? _mm512_loadu_ps(q + 16 * i) : _mm512_setzero_ps();
    x[0] = (__m512i)_mm512_cvtne2ps_pbh(f[1], f[0]);
    x[1] = (__m512i)_mm512_cvtne2ps_pbh(f[3], f[2]);
}

/* Queries of the rows of a block, the segments from s0 on: pairs of values in the order of decoded keys. */
static void pack_queries(const job *j, const rows *b, size_t block, size_t s0, ahead *next)
{
    _Alignas(64) uint16_t at[NB_AMX_UNIT];
    _Alignas(64) uint16_t t[2][ROWS][NB_AMX_KEY];
    uint16_t *to = j->q + block * j->q_block + (s0 ? j->seg[0].n_unit * 2 * NB_AMX_TILE : 0);
    memset(t, 0, sizeof t); /* rows that do not exist */
    for (size_t s = s0, from = s0 ? j->seg[0].g->dim : 0; s < 2; from += j->seg[s].g->dim, s++) {
        const size_t dim = j->seg[s].g->dim;
        for (size_t p = 0; p < NB_AMX_UNIT; p++) at[p] = (uint16_t)nb_amx_place(j->seg[s].order, p);
        const __m512i at0 = _mm512_load_si512(at), at1 = _mm512_load_si512(at + 32);
        for (size_t d = 0; d < dim; d += NB_AMX_UNIT) {
            __m512i x[2], c[16];
            for (size_t r = 0; r < b->n; r++) {
                ask(next);
                load_unit(b->q[r] + from + d, dim - d, x);
                _mm512_store_si512(t[0][r], _mm512_permutex2var_epi16(x[0], at0, x[1]));
                _mm512_store_si512(t[1][r], _mm512_permutex2var_epi16(x[0], at1, x[1]));
            }
            for (size_t h = 0; h < 2; h++, to += NB_AMX_TILE) {
                nb_avx512_columns16(t[h], sizeof t[h][0], c);
                for (size_t i = 0; i < 16; i++) _mm512_store_si512(to + 32 * i, c[i]);
            }
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

/* Before units of a page are decoded. */
static void page_rows(const job *j, size_t page)
{
    if (j->seg[0].order == NB_AMX_NIBBLES) nb_amx_page_rows(&j->seg[0], j->a->page[page], j->sf);
}

/* Tokens from t on of a unit of a segment. */
static inline nb_amx_from rows_of(const job *j, size_t page, const nb_amx_seg *s, size_t unit,
                                  size_t t)
{
    const size_t of_unit = s->g->fmt == NB_SEG_MXFP4 ? 2 : 4;
    return (nb_amx_from){ j->a->page[page], unit, t, j->sf + t * NB_AMX_SCALES + unit * of_unit,
                          NB_AMX_SCALES };
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
