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

enum { I8_LINES = 8 }; /* of 128 values: a latent of 1,024 */

typedef struct i8_room {
    _Alignas(64) uint8_t line[I8_LINES][TOK_MAX][64];     /* codes of the call: i8_page  */
    _Alignas(64) uint8_t code[NB_PAGE_TOK][NB_AMX_UNIT];  /* of a unit of a page */
    _Alignas(64) float scale[NB_PAGE_TOK][NB_AMX_SCALES]; /* 2^-8 of them, of a page */
} i8_room;

/* With MXFP4 the scale alone may be 2^126. */
static bool i8_reads(const nb_record_seg *g)
{
    return g->fmt == NB_SEG_NVFP4 || g->fmt == NB_SEG_IF4;
}

/* ---- queries ---- */

/* 64 values of a row as bytes, by = what they are multiplied with; the four bytes at 4 i stand at 16 (i % 4) +
 * 4 (i / 4). */
static inline __m512i i8_bytes(const __m512 x[4], __m512 up, __m512 by)
{
    __m512i c[4];
    for (size_t i = 0; i < 4; i++)
        c[i] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_mul_ps(x[i], up), by));
    return _mm512_packs_epi16(_mm512_packs_epi32(c[0], c[1]), _mm512_packs_epi32(c[2], c[3]));
}

static inline void i8_load(const rows *b, size_t r, size_t d, __m512 x[4])
{
    for (size_t i = 0; i < 4; i++)
        x[i] = r < b->n ? _mm512_loadu_ps(b->q[r] + d + 16 * i) : _mm512_setzero_ps();
}

/* The largest magnitude of 64 values of each row; as bits, so that a NaN is the largest. */
static __m512 i8_largest(const rows *b, size_t d, ahead *next)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    _Alignas(64) uint32_t t[ROWS][16];
    __m512i c[16];
    for (size_t r = 0; r < ROWS; r++) {
        __m512 x[4];
        __m512i m = _mm512_setzero_si512();
        ask(next);
        i8_load(b, r, d, x);
        for (size_t i = 0; i < 4; i++)
            m = _mm512_max_epu32(m, _mm512_and_si512(_mm512_castps_si512(x[i]), magnitude));
        _mm512_store_si512(t[r], m);
    }
    nb_avx512_columns16(t, sizeof t[0], c);
    for (size_t n = 8; n; n /= 2)
        for (size_t i = 0; i < n; i++) c[i] = _mm512_max_epu32(c[i], c[i + n]);
    return _mm512_castsi512_ps(c[0]);
}

/* 64 values from d on of 16 rows to bytes, starts and factors. */
static void i8_pack_unit(const rows *b, size_t d, uint8_t *to, ahead *next)
{
    const __m512 most = i8_largest(b, d, next), one = _mm512_set1_ps(1);
    const __mmask16 tiny = _mm512_cmp_ps_mask(most, _mm512_set1_ps(0x1p-60f), _CMP_LT_OQ);
    const __mmask16 some = _mm512_cmp_ps_mask(most, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const __m512 up = _mm512_mask_blend_ps(tiny, one, _mm512_set1_ps(0x1p64f));
    const __m512 by = _mm512_maskz_div_ps(some, _mm512_set1_ps(127), _mm512_mul_ps(most, up));
    _Alignas(64) float ups[ROWS], bys[ROWS];
    _Alignas(64) uint8_t t[ROWS][NB_AMX_UNIT];
    __m512i c[16];
    _mm512_store_ps(ups, up);
    _mm512_store_ps(bys, by);
    for (size_t r = 0; r < ROWS; r++) {
        __m512 x[4];
        i8_load(b, r, d, x);
        _mm512_store_si512(t[r], i8_bytes(x, _mm512_set1_ps(ups[r]), _mm512_set1_ps(bys[r])));
    }
    nb_avx512_columns16(t, sizeof t[0], c);
    for (size_t g = 0; g < I8_GROUPS; g++, to += I8_GROUP_BYTES) {
        __m512i sum = _mm512_setzero_si512();
        for (size_t i = 0; i < 4; i++) {
            sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(I8_BIAS), c[4 * i + g]);
            _mm512_store_si512(to + 64 * i, c[4 * i + g]);
        }
        _mm512_store_si512(to + 256, _mm512_sub_epi32(_mm512_setzero_si512(), sum));
    }
    /* half of a scale is 2^7 times what i8_page leaves of it; a query that is not finite gives NaN */
    const __m512 factor =
        _mm512_fmadd_ps(most, _mm512_set1_ps(1.0f / 127), _mm512_sub_ps(most, most));
    _mm512_store_ps((float *)(void *)to, _mm512_mul_ps(factor, _mm512_set1_ps(128)));
}

/* The latent part of the queries of the rows of a block. */
static void i8_pack_queries(const job *j, const rows *b, size_t block, ahead *next)
{
    uint8_t *to = (uint8_t *)j->extra + sizeof(i8_room) + block * j->seg[0].n_unit * I8_UNIT_BYTES;
    for (size_t u = 0; u < j->seg[0].n_unit; u++, to += I8_UNIT_BYTES)
        i8_pack_unit(b, u * NB_AMX_UNIT, to, next);
}

/* ---- keys ---- */

/* Before units of a page: its codes come to lie in lines of 64 bytes, one below the other.  In the page they are
 * d1/2 bytes apart, and the lines of four pages of which a unit is read would share a few sets of the first-level
 * cache. */
static void i8_page(const job *j, size_t index, i8_room *k)
{
    const nb_record_seg *g = j->seg[0].g;
    const uint8_t *page = j->a->page[index], *code = page + g->code_off, *sf = page + g->scale_off;
    const __m512i bits = _mm512_set1_epi16(0x7f);
    const size_t row = g->dim / 2;
    for (size_t t = 0; t < NB_PAGE_TOK; t++, code += g->code_stride, sf += g->scale_stride) {
        for (size_t at = 0; at < row; at += 64) {
            const __m512i x =
                row - at < 64
                    ? _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(code + at)))
                    : _mm512_loadu_si512(code + at);
            _mm512_store_si512(k->line[at / 64][index * NB_PAGE_TOK + t], x);
        }
        for (size_t i = 0; i < g->n_group; i += 32) { /* E4M3 as FP16: 2^-8 of it */
            const __mmask32 in = g->n_group - i < 32 ? (1u << (g->n_group - i)) - 1 : ~0u;
            const __m512i w = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(in, sf + i));
            const __m512i h = _mm512_slli_epi16(_mm512_and_si512(w, bits), 7);
            _mm512_store_ps(k->scale[t] + i, _mm512_cvtph_ps(_mm512_castsi512_si256(h)));
            _mm512_store_ps(k->scale[t] + i + 16, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)));
        }
    }
}

/* The codes of a unit of a page. */
static void i8_codes(const job *j, size_t index, size_t unit, i8_room *k)
{
    const nb_record_seg *g = j->seg[0].g;
    const __m512i e2m1 = _mm512_broadcast_i32x4(
        _mm_setr_epi8(I8_BIAS, I8_BIAS + 1, I8_BIAS + 2, I8_BIAS + 3, I8_BIAS + 4, I8_BIAS + 6,
                      I8_BIAS + 8, I8_BIAS + 12, I8_BIAS, I8_BIAS - 1, I8_BIAS - 2, I8_BIAS - 3,
                      I8_BIAS - 4, I8_BIAS - 6, I8_BIAS - 8, I8_BIAS - 12));
    const __m512i step = _mm512_broadcast_i32x4(
        _mm_setr_epi8(I8_BIAS, I8_BIAS + 2, I8_BIAS + 4, I8_BIAS + 6, I8_BIAS + 8, I8_BIAS + 10,
                      I8_BIAS + 12, I8_BIAS + 14, I8_BIAS, I8_BIAS - 2, I8_BIAS - 4, I8_BIAS - 6,
                      I8_BIAS - 8, I8_BIAS - 10, I8_BIAS - 12, I8_BIAS - 14));
    const uint8_t *code = k->line[unit / 2][index * NB_PAGE_TOK] + unit % 2 * 32;
    const uint8_t *sf = (const uint8_t *)j->a->page[index] + g->scale_off + unit * I8_GROUPS;
    const bool if4 = g->fmt == NB_SEG_IF4;
    for (size_t t = 0; t < NB_PAGE_TOK; t++, code += 64, sf += g->scale_stride) {
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
