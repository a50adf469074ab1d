/* attn_job_bf16.h - the scratch of the variants of attn_pages with BF16 products, and the factors of tokens.
 *
 * Outer scales are not in keys and values: scores get them as floats, the latent's and the rope key's apart,
 * and weights get 2^(e - the call's largest e), so that nothing underflows that matters. */
#ifndef NB_KERNEL_ATTN_JOB_BF16_H
#define NB_KERNEL_ATTN_JOB_BF16_H
#include <math.h>

#include "kernel/attn_pages/attn_pages.h"
#include "kernel/x86/attn_vec_avx512.h"
#include "kernel/x86/kv_decode_amx.h"

enum {
    ROWS = 16,
    TOK_MAX = NB_ATTN_PAGES_MAX * NB_PAGE_TOK,
    PAGE_TILES = NB_PAGE_TOK / NB_AMX_TOK,   /* of keys: 4 */
    BLOCK = PAGE_TILES * NB_AMX_TILE,        /* words of a block's keys of a page */
    UNIT = NB_AMX_UNIT / NB_AMX_KEY * BLOCK, /* of a unit's */
    P_BLOCK = NB_AMX_V_BLOCKS * NB_AMX_TILE, /* of a block's weights */
    V_UNIT = NB_AMX_UNIT / 16 * NB_AMX_V_BLOCKS * NB_AMX_TILE /* of all tokens */
};

typedef struct rows {
    const float *q[ROWS];
    float *o[ROWS], *m[ROWS], *l[ROWS];
    float keep[ROWS]; /* factor of the old state; 0: none */
    size_t n;
} rows;

/* How a variant cuts its work: a constant of it. */
typedef struct form {
    size_t n_part;   /* BF16 numbers of a query: 1, or 2 (hi, lo)          */
    size_t n_block;  /* blocks of rows that share decoded keys and values  */
    bool all_values; /* all units' values are decoded with the keys, not one at a time after them */
    bool no_values;  /* values are decoded where they are used             */
    bool pairs;      /* weights lie as [pair of tokens][row], not as tiles */
    bool all_keys;   /* room for the keys of all pages, not of two units   */
    size_t extra;    /* bytes of the variant's own                         */
    size_t extra_unit; /* and for each block and unit of the latent       */
} form;

typedef struct job {
    const nb_attn_pages_args *a;
    form f;
    nb_amx_seg seg[2];
    size_t n_unit; /* of both segments */
    size_t n_tok;
    size_t q_block, s_block; /* from block to block of q (words), of s (floats) */
    /* places in the scratch */
    uint16_t *k; /* [page][unit][2 blocks][64 tokens][32], or two units of one page           */
    uint16_t
        *v; /* [d1/16 tiles, or 2 times 4][8][16 pairs of tokens][16 columns][2]                      */
    uint16_t *q; /* [block][unit][2 blocks][parts][16 pairs][16 rows][2]                     */
    uint16_t
        *p; /* [block][8][16 rows][32 tokens]                                                  */
    float *s[2]; /* scores of the segments, [block][256 tokens][16 rows]                     */
    float *o;    /* [2][4 tiles][16 rows][16 columns]                                        */
    float *score_by[2]; /* [256]: factor of a token's scores, the scale of attention in it       */
    float *weight_by;   /* [256]: factor of a token's weight                                     */
    char *extra;        /* the variant's own                                                     */
    float out_by;       /* the rest of the values' factor                                        */
} job;

static size_t take(size_t *at, size_t n_bytes)
{
    const size_t here = *at;
    *at += (n_bytes + 63) / 64 * 64;
    return here;
}

/* Lays out the scratch at base (NULL: only counts); returns its bytes. */
static size_t lay_out(job *j, form f, const nb_record *r, char *base)
{
    const size_t u0 = (r->seg[0].dim + 63) / 64, u1 = (r->seg[1].dim + 63) / 64;
    const size_t q_block = (u0 + u1) * 2 * f.n_part * NB_AMX_TILE, s_block = TOK_MAX * ROWS;
    size_t at = 0, place[12];
    place[0] = take(&at, (f.all_keys ? NB_ATTN_PAGES_MAX * (u0 + u1) : 2) * UNIT * sizeof *j->k);
    place[1] = take(&at, (f.no_values ? 0 : f.all_values ? u0 : 2) * V_UNIT * sizeof *j->v);
    place[2] = take(&at, f.n_block * q_block * sizeof *j->q);
    place[3] = take(&at, f.n_block * P_BLOCK * sizeof *j->p);
    for (size_t i = 4; i < 6; i++) place[i] = take(&at, f.n_block * s_block * sizeof(float));
    place[6] = take(&at, 2 * 4 * ROWS * 16 * sizeof(float));
    for (size_t i = 7; i < 10; i++) place[i] = take(&at, TOK_MAX * sizeof(float));
    place[10] = take(&at, 2 * NB_AMX_TABLE_BYTES);
    place[11] = take(&at, f.extra + f.n_block * u0 * f.extra_unit);
    if (!base) return at;
    j->f = f;
    j->q_block = q_block;
    j->s_block = s_block;
    j->k = (void *)(base + place[0]);
    j->v = (void *)(base + place[1]);
    j->q = (void *)(base + place[2]);
    j->p = (void *)(base + place[3]);
    j->o = (void *)(base + place[6]);
    j->weight_by = (void *)(base + place[9]);
    j->extra = base + place[11];
    for (size_t s = 0; s < 2; s++) {
        j->s[s] = (void *)(base + place[4 + s]);
        j->score_by[s] = (void *)(base + place[7 + s]);
        j->seg[s] = nb_amx_open(&r->seg[s], base + place[10] + s * NB_AMX_TABLE_BYTES);
    }
    j->n_unit = u0 + u1;
    return at;
}

/* Records whose values are exact in BF16 but for one factor per token. */
static bool exact_in_bf16(const nb_record *r)
{
    const nb_record_seg *c = &r->seg[0], *k = &r->seg[1];
    if (!nb_record_is_mla(r) || !nb_amx_reads(c) || !nb_amx_reads(k)) return false;
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
#endif
