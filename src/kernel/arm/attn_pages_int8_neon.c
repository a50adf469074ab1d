/* attn_pages_int8_neon.c - attention over pages whose latents have 4 bits: scores in integers (SDOT), values in floats.
 *
 * The arithmetic of the scores is that of x86/attn_int8_avx2.h: a value is c/2 times its group's scale, c a signed byte;
 * a query is a signed byte per value and a factor per 64 values (a unit), the largest magnitude / 127.  The products of
 * a group of 16 are an exact integer; times the group's scale they are added up as floats, times the query's factor
 * once per unit, times the token's outer scale once per token.  Bytes of both sides are signed, so that no bias is
 * needed.  A query's bytes are chosen in double: they are the nearest ones.
 *
 * Up to 64 rows (query, head) share a page's codes, scales and floats.  Lanes are four rows: per group of 16 values,
 * 8 tokens and four rows, 32 SDOT among 83 instructions (gcc 12), where floats take 128 FMLA among 280.  The rope key,
 * weights and values are those of attn_neon.c; the values' d1 / 4 FMLA per row and token are now the larger part.
 *
 * Order of a row: groups of a unit, units, the rope key; weights and values as in attn_neon.c, page by page. */
#include <math.h>

#include "kernel/arm/attn_scores_neon.h"
#include "kernel/arm/attn_values_neon.h"
#include "kernel/attn_pages/attn_pages.h"
#include "kernel/kv_codec/kv_codec.h"
#include "num/e4m3.h"
#include "num/ue8m0.h"

enum { UNIT = 64, GROUP = 16, GROUPS = UNIT / GROUP, QUAD = 4, TOK = NB_PAGE_TOK, MAX_ROW = 64 };
enum { TILE = 8 }; /* tokens */

/* Four rows of a unit. */
typedef struct query4 {
    int8_t q[UNIT / QUAD][4][QUAD];
    float factor[4];
} query4;

typedef struct room {
    float *k1, *k2;   /* [TOK][d1], [TOK][d2] */
    float *scale;     /* [n_group][TOK] halves of a page's group scales */
    float *outer;     /* [TOK]                */
    query4 *query;    /* [MAX_ROW / 4][units] */
    int8_t *code;     /* [TOK][d1]            */
    size_t d1, d2, n_unit;
} room;

typedef struct rows {
    const float *q[MAX_ROW];
    float *o[MAX_ROW], *m[MAX_ROW], *l[MAX_ROW];
    size_t n;
} rows;

bool nb_attn_pages_neonint8_can(const nb_record *r)
{
    const nb_record_seg *g = &r->seg[0];
    return nb_record_is_mla(r) && (g->fmt == NB_SEG_NVFP4 || g->fmt == NB_SEG_IF4) &&
           g->dim % UNIT == 0 && g->n_outlier == 0;
}

static size_t layout(const nb_record *r, char *at, room *w)
{
    const size_t d1 = r->seg[0].dim, d2 = r->seg[1].dim, n_unit = d1 / UNIT;
    const size_t query = MAX_ROW / 4 * n_unit * sizeof(query4);
    const size_t floats = TOK * (d1 + d2 + d1 / GROUP + 1);
    if (at) {
        w->d1 = d1, w->d2 = d2, w->n_unit = n_unit;
        w->query = (query4 *)(void *)at;
        w->k1 = (float *)(void *)(at + query);
        w->k2 = w->k1 + TOK * d1;
        w->scale = w->k2 + TOK * d2;
        w->outer = w->scale + TOK * (d1 / GROUP);
        w->code = (int8_t *)(w->outer + TOK);
    }
    return query + floats * sizeof(float) + TOK * d1;
}

size_t nb_attn_pages_neonint8_scratch(const nb_record *r)
{
    return (layout(r, NULL, NULL) + 63) / 64 * 64;
}

/* ---- queries ---- */

/* The largest magnitude of a unit; a NaN is the largest. */
static float largest(const float *q)
{
    uint32x4_t top = vdupq_n_u32(0);
    for (size_t i = 0; i < UNIT; i += 4)
        top = vmaxq_u32(top, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(q + i)),
                                       vdupq_n_u32(0x7fffffff)));
    return vgetq_lane_f32(vreinterpretq_f32_u32(vdupq_n_u32(vmaxvq_u32(top))), 0);
}

/* Four floats to integers in 32 bits, by = what they are multiplied with. */
static inline int32x4_t bytes4(const float *q, float64x2_t by)
{
    const float32x4_t x = vld1q_f32(q);
    const int64x2_t a = vcvtnq_s64_f64(vmulq_f64(vcvt_f64_f32(vget_low_f32(x)), by));
    const int64x2_t b = vcvtnq_s64_f64(vmulq_f64(vcvt_high_f64_f32(x), by));
    return vcombine_s32(vmovn_s64(a), vmovn_s64(b));
}

/* Row r of four. */
static void pack_row(const float *q, size_t r, query4 *to)
{
    const float most = largest(q);
    const bool finite = most <= 0x1.fffffep127f;
    const float64x2_t by = vdupq_n_f64(finite && most != 0 ? 127 / (double)most : 0);
    to->factor[r] = finite ? most * (1.0f / 127) : NAN;
    for (size_t i = 0; i < UNIT; i += 8) {
        int8_t b[8] = { 0 };
        if (finite)
            vst1_s8(b, vmovn_s16(vcombine_s16(vmovn_s32(bytes4(q + i, by)),
                                              vmovn_s32(bytes4(q + i + 4, by)))));
        memcpy(to->q[i / QUAD][r], b, QUAD);
        memcpy(to->q[i / QUAD + 1][r], b + QUAD, QUAD);
    }
}

/* Lanes without a row repeat the first. */
static void pack_queries(const room *w, const rows *b)
{
    for (size_t r = 0; r < (b->n + 3) / 4 * 4; r++)
        for (size_t u = 0; u < w->n_unit; u++)
            pack_row(b->q[r < b->n ? r : 0] + u * UNIT, r % 4, &w->query[r / 4 * w->n_unit + u]);
}

/* ---- keys ---- */

static void read_codes(const room *w, const nb_record_seg *g, const uint8_t *page)
{
    static const int8_t e2m1[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    static const int8_t step[16] = { 0, 2,  4,  6,  8,  10,  12,  14,
                                     0, -2, -4, -6, -8, -10, -12, -14 };
    const int8x16_t table[2] = { vld1q_s8(e2m1), vld1q_s8(step) };
    for (size_t t = 0; t < TOK; t++) {
        const uint8_t *code = page + g->code_off + t * g->code_stride;
        const uint8_t *sf = page + g->scale_off + t * g->scale_stride;
        const uint8_t outer = page[g->outer_off + t * g->outer_stride];
        w->outer[t] = outer == 0            ? 0
                      : g->fixed_scale != 0 ? g->fixed_scale
                                            : nb_ue8m0_to_f32(outer);
        for (size_t i = 0; i < g->n_group; i++) {
            const uint8x8_t v = vld1_u8(code + i * (GROUP / 2));
            const uint8x8_t lo = vand_u8(v, vdup_n_u8(15)), hi = vshr_n_u8(v, 4);
            const uint8x16_t at = vcombine_u8(vzip1_u8(lo, hi), vzip2_u8(lo, hi));
            /* the sign of a group's scale chooses */
            const bool stepped = g->fmt == NB_SEG_IF4 && sf[i] >> 7;
            vst1q_s8(w->code + t * w->d1 + i * GROUP, vqtbl1q_s8(table[stepped], at));
            w->scale[i * TOK + t] = nb_e4m3_to_f32(sf[i] & 0x7f) * 0.5f;
        }
    }
}

/* ---- scores ---- */

#define EACH_TOK _Pragma("GCC unroll 8") for (size_t t = 0; t < TILE; t++)

/* Four rows and TILE tokens: the latent's part, without the tokens' outer scales, to out. */
static void tile(const room *w, const query4 *q, size_t t0, float out[TILE][4])
{
    const int8_t *code = w->code + t0 * w->d1;
    const float *scale = w->scale + t0;
    float32x4_t s[TILE];
    EACH_TOK s[t] = vdupq_n_f32(0);
    for (size_t u = 0; u < w->n_unit; u++, q++) {
        const float32x4_t factor = vld1q_f32(q->factor);
        float32x4_t a[TILE];
        EACH_TOK a[t] = vdupq_n_f32(0);
        for (size_t g = 0; g < GROUPS; g++, code += GROUP, scale += TOK) {
            const int8x16_t q0 = vld1q_s8(q->q[4 * g][0]), q1 = vld1q_s8(q->q[4 * g + 1][0]);
            const int8x16_t q2 = vld1q_s8(q->q[4 * g + 2][0]), q3 = vld1q_s8(q->q[4 * g + 3][0]);
            EACH_TOK
            {
                const int8x16_t c = vld1q_s8(code + t * w->d1);
                int32x4_t x = vdotq_laneq_s32(vdupq_n_s32(0), q0, c, 0);
                x = vdotq_laneq_s32(x, q1, c, 1);
                x = vdotq_laneq_s32(x, q2, c, 2);
                x = vdotq_laneq_s32(x, q3, c, 3);
                a[t] = vfmaq_n_f32(a[t], vcvtq_f32_s32(x), scale[t]);
            }
        }
        EACH_TOK s[t] = vfmaq_f32(s[t], a[t], factor);
    }
    EACH_TOK vst1q_f32(out[t], s[t]);
}

/* Scores of the batch, whose rows are [row0, row0 + n_row) of the list. */
static void scores(const room *w, nb_attn_rows *b, size_t row0)
{
    const nb_neon_keys rope = { .k1 = w->k2, .k1_stride = w->d2, .d1 = w->d2 };
    for (size_t r = 0, n; r < b->n_row; r += n) {
        const float *q[4];
        n = b->n_row - r < 4 ? b->n_row - r : 4;
        for (size_t i = 0; i < n; i++) q[i] = b->q[r + i] + w->d1;
        if (n == 4)
            nb_neon_scores_4(&rope, q, TOK, b->p[r], T_MAX);
        else
            for (size_t i = 0; i < n; i++) nb_neon_scores_1(&rope, q + i, TOK, b->p[r + i], T_MAX);
        for (size_t t0 = 0; t0 < TOK; t0 += TILE) {
            float s[TILE][4];
            tile(w, w->query + (row0 + r) / 4 * w->n_unit, t0, s);
            for (size_t i = 0; i < n; i++)
                for (size_t t = 0; t < TILE; t++)
                    b->p[r + i][t0 + t] = fmaf(s[t][i], w->outer[t0 + t], b->p[r + i][t0 + t]);
        }
    }
}

static void one_page(const nb_attn_pages_args *a, const room *w, const rows *list, const void *page)
{
    const nb_attn_args values = { .d_v = w->d1, .v_stride = w->d1 };
    read_codes(w, &a->record->seg[0], page);
    nb_kv_decode_neon(a->record, page, 0, 0, TOK, w->k1, w->d1);
    nb_kv_decode_neon(a->record, page, 1, 0, TOK, w->k2, w->d2);
    for (size_t row0 = 0; row0 < list->n; row0 += NB_ATTN_ROWS) {
        nb_attn_rows b;
        b.n_row = list->n - row0 < NB_ATTN_ROWS ? list->n - row0 : NB_ATTN_ROWS;
        for (size_t r = 0; r < b.n_row; r++) {
            b.q[r] = list->q[row0 + r];
            b.o[r] = list->o[row0 + r];
            b.m[r] = list->m[row0 + r];
            b.l[r] = list->l[row0 + r];
            b.n_vis[r] = TOK;
        }
        scores(w, &b, row0);
        for (size_t r = 0; r < b.n_row; r++) weights(&b, r, a->scale);
        all_values(&b, &values, w->k1);
    }
}

static void run_rows(const nb_attn_pages_args *a, const room *w, rows *b)
{
    pack_queries(w, b);
    for (size_t p = 0; p < a->n_page; p++) one_page(a, w, b, a->page[p]);
    b->n = 0;
}

void nb_attn_pages_neonint8(const nb_attn_pages_args *a)
{
    room w;
    rows b = { .n = 0 };
    layout(a->record, a->scratch, &w);
    for (size_t i = 0; i < a->n_query; i++)
        for (size_t h = a->head_begin; h < a->head_end; h++) {
            b.q[b.n] = a->query[i].q + h * (w.d1 + w.d2);
            b.o[b.n] = a->query[i].o + h * w.d1;
            b.m[b.n] = a->query[i].m + h;
            b.l[b.n++] = a->query[i].l + h;
            if (b.n == MAX_ROW) run_rows(a, &w, &b);
        }
    if (b.n) run_rows(a, &w, &b);
}
