/* attn_int8_avx512.h - scores of 4-bit latents as sums of integer products (vpdpbusd).
 *
 * A 4-bit value is c/2 times its group's scale, c an integer of magnitude 0..14.  A query is one signed byte
 * per value and a float per 64 values (a unit), the largest magnitude / 127.  The products of a group of 16
 * are an exact integer; times the group's scale they are added up as floats, times the query's factor once per
 * unit.  Codes are stored as c + BIAS, unsigned as the instruction wants them; BIAS times the sum of the
 * query's bytes is taken off by starting every sum there.
 *
 * Lanes are rows.  Per token and group of 16 values: 4 products, a conversion and a multiplication, each with
 * a broadcast from memory. */
#ifndef NB_KERNEL_ATTN_INT8_AVX512_H
#define NB_KERNEL_ATTN_INT8_AVX512_H
#include "kernel/x86/attn_pages_bf16.h"

enum {
    I8_BIAS = 16,
    I8_GROUPS = NB_AMX_UNIT / 16,                   /* groups of a unit             */
    I8_GROUP_BYTES = (4 + 1) * 64,                  /* 4 vectors of queries, starts */
    I8_UNIT_BYTES = I8_GROUPS * I8_GROUP_BYTES + 64 /* and factors       */
};

typedef struct i8_room {
    _Alignas(64) uint8_t code[NB_PAGE_TOK][NB_AMX_UNIT];  /* of a unit of a page */
    _Alignas(64) float scale[NB_PAGE_TOK][NB_AMX_SCALES]; /* half of it, of a page */
} i8_room;

/* With MXFP4 the scale alone may be 2^126. */
static bool i8_reads(const nb_record_seg *g)
{
    return g->fmt == NB_SEG_NVFP4 || g->fmt == NB_SEG_IF4;
}

/* ---- queries ---- */

static inline __m512i i8_pack4(const __m512i *c)
{
    const __m512i low = _mm512_set1_epi32(0xff);
    const __m512i a = _mm512_and_si512(c[0], low), b = _mm512_slli_epi32(c[3], 24);
    const __m512i d = _mm512_slli_epi32(_mm512_and_si512(c[1], low), 8);
    const __m512i e = _mm512_slli_epi32(_mm512_and_si512(c[2], low), 16);
    return _mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(d, e));
}

/* 64 columns of 16 rows to bytes, starts and factors. */
static void i8_pack_unit(float column[NB_AMX_UNIT][ROWS], uint8_t *to)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i top = _mm512_setzero_si512(); /* as bits: a NaN is the largest */
    for (size_t i = 0; i < NB_AMX_UNIT; i++)
        top = _mm512_max_epu32(top, _mm512_and_si512(_mm512_load_si512(column[i]), magnitude));
    const __m512 most = _mm512_castsi512_ps(top);
    const __mmask16 tiny = _mm512_cmp_ps_mask(most, _mm512_set1_ps(0x1p-60f), _CMP_LT_OQ);
    const __mmask16 some = _mm512_test_epi32_mask(top, top);
    const __m512 up = _mm512_mask_blend_ps(tiny, _mm512_set1_ps(1), _mm512_set1_ps(0x1p64f));
    const __m512 by = _mm512_maskz_div_ps(some, _mm512_set1_ps(127), _mm512_mul_ps(most, up));
    for (size_t g = 0; g < I8_GROUPS; g++, to += I8_GROUP_BYTES) {
        __m512i sum = _mm512_setzero_si512();
        for (size_t i = 0; i < 4; i++) {
            __m512i c[4];
            for (size_t k = 0; k < 4; k++) {
                const __m512 x = _mm512_load_ps(column[16 * g + 4 * i + k]);
                c[k] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_mul_ps(x, up), by));
                sum = _mm512_add_epi32(sum, c[k]);
            }
            _mm512_store_si512(to + 64 * i, i8_pack4(c));
        }
        sum = _mm512_mullo_epi32(sum, _mm512_set1_epi32(-I8_BIAS));
        _mm512_store_si512(to + 256, sum);
    }
    _mm512_store_ps((float *)(void *)to, _mm512_mul_ps(most, _mm512_set1_ps(1.0f / 127)));
}

/* The latent part of the queries of the rows of a block. */
static void i8_pack_queries(const job *j, const rows *b, size_t block, ahead *next)
{
    uint8_t *to = (uint8_t *)j->extra + sizeof(i8_room) + block * j->seg[0].n_unit * I8_UNIT_BYTES;
    _Alignas(64) float column[NB_AMX_UNIT][ROWS];
    for (size_t u = 0; u < j->seg[0].n_unit; u++, to += I8_UNIT_BYTES) {
        for (size_t d = 0; d < NB_AMX_UNIT; d += 16) {
            load_columns(b, u * NB_AMX_UNIT + d, column[d], next);
        }
        i8_pack_unit(column, to);
    }
}

/* ---- keys ---- */

/* Before units of a page. */
static void i8_page(const nb_record_seg *g, const uint8_t *page, i8_room *k)
{
    for (size_t t = 0; t < NB_PAGE_TOK; t++) {
        const uint8_t *sf = page + g->scale_off + t * g->scale_stride;
        for (size_t i = 0; i < g->n_group; i += 16) {
            const __mmask16 in = nb_avx512_mask16(g->n_group - i < 16 ? g->n_group - i : 16);
            _mm512_store_ps(k->scale[t] + i,
                            nb_avx512_e4m3_scales(_mm_maskz_loadu_epi8(in, sf + i), 128));
        }
    }
}

/* The codes of a unit. */
static void i8_codes(const nb_record_seg *g, const uint8_t *page, size_t unit, i8_room *k)
{
    const __m512i e2m1 = _mm512_broadcast_i32x4(
        _mm_setr_epi8(I8_BIAS, I8_BIAS + 1, I8_BIAS + 2, I8_BIAS + 3, I8_BIAS + 4, I8_BIAS + 6,
                      I8_BIAS + 8, I8_BIAS + 12, I8_BIAS, I8_BIAS - 1, I8_BIAS - 2, I8_BIAS - 3,
                      I8_BIAS - 4, I8_BIAS - 6, I8_BIAS - 8, I8_BIAS - 12));
    const __m512i step = _mm512_broadcast_i32x4(
        _mm_setr_epi8(I8_BIAS, I8_BIAS + 2, I8_BIAS + 4, I8_BIAS + 6, I8_BIAS + 8, I8_BIAS + 10,
                      I8_BIAS + 12, I8_BIAS + 14, I8_BIAS, I8_BIAS - 2, I8_BIAS - 4, I8_BIAS - 6,
                      I8_BIAS - 8, I8_BIAS - 10, I8_BIAS - 12, I8_BIAS - 14));
    const size_t cs = g->code_stride, ss = g->scale_stride;
    const uint8_t *code = page + g->code_off + unit * (NB_AMX_UNIT / 2);
    const uint8_t *sf = page + g->scale_off + unit * I8_GROUPS;
    const bool if4 = g->fmt == NB_SEG_IF4;
    for (size_t t = 0; t < NB_PAGE_TOK; t++, code += cs, sf += ss) {
        const __m512i w = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)code));
        const __m512i at =
            _mm512_and_si512(_mm512_or_si512(w, _mm512_slli_epi16(w, 4)), _mm512_set1_epi8(15));
        __m512i c = _mm512_shuffle_epi8(e2m1, at);
        if (if4) {
            const __m512i four = _mm512_cvtepi8_epi32(_mm_set1_epi32((int)nb_le32_get(sf)));
            const __mmask16 stepped = _mm512_movepi32_mask(_mm512_permutexvar_epi32(
                _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), four));
            c = _mm512_shuffle_epi8(_mm512_mask_blend_epi32(stepped, e2m1, step), at);
        }
        _mm512_store_si512(k->code[t], c);
    }
}

/* ---- scores ---- */

#define I8_EACH16(M)                                                                               \
    M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)

static inline __m512i i8_dot(__m512i sum, const uint8_t *code, __m512i q)
{
    int32_t four;
    memcpy(&four, code, sizeof four);
    return _mm512_dpbusd_epi32(sum, _mm512_set1_epi32(four), q);
}

#define I8_ZERO(t) __m512 a##t = _mm512_setzero_ps();
#define I8_TOKEN(t)                                                                                \
    {                                                                                              \
        const uint8_t *const c = code + (t)*NB_AMX_UNIT;                                           \
        const __m512i x = i8_dot(i8_dot(start, c, q0), c + 4, q1);                                 \
        const __m512i y = i8_dot(i8_dot(x, c + 8, q2), c + 12, q3);                                \
        a##t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(y), _mm512_set1_ps(scale[(t)*NB_AMX_SCALES]),    \
                               a##t);                                                              \
    }
#define I8_ADD(t)                                                                                  \
    _mm512_store_ps(s + (t)*ROWS, fresh                                                            \
                                      ? _mm512_mul_ps(a##t, by)                                    \
                                      : _mm512_fmadd_ps(a##t, by, _mm512_load_ps(s + (t)*ROWS)));

/* A unit of 16 tokens for a block: s (+)= its part of the scores. */
static void i8_tile(const uint8_t *code, const float *scale, const uint8_t *q, float *s, bool fresh,
                    ahead next)
{
    I8_EACH16(I8_ZERO)
    for (size_t g = 0; g < I8_GROUPS; g++, q += I8_GROUP_BYTES, code += 16, scale++) {
        const __m512i q0 = _mm512_load_si512(q), q1 = _mm512_load_si512(q + 64);
        const __m512i q2 = _mm512_load_si512(q + 128), q3 = _mm512_load_si512(q + 192);
        const __m512i start = _mm512_load_si512(q + 256);
        ask(&next);
        I8_EACH16(I8_TOKEN)
    }
    const __m512 by = _mm512_load_ps((const float *)(const void *)q);
    I8_EACH16(I8_ADD)
}

static void i8_scores(const job *j, const i8_room *k, size_t page, size_t unit, size_t block)
{
    const size_t n_unit = j->seg[0].n_unit;
    const uint8_t *q = (const uint8_t *)(k + 1) + (block * n_unit + unit) * I8_UNIT_BYTES;
    float *s = j->s[0] + block * j->s_block + page * NB_PAGE_TOK * ROWS;
    for (size_t t = 0; t < NB_PAGE_TOK; t += 16) {
        const size_t step = (unit * PAGE_TILES + t / 16) * I8_GROUPS;
        i8_tile(k->code[t], k->scale[t] + unit * I8_GROUPS, q, s + t * ROWS, unit == 0,
                look_ahead(j, block ? NB_ATTN_PAGES_MAX : page + 1, step,
                           n_unit * PAGE_TILES * I8_GROUPS));
    }
}
#endif
