/* attn_int8_avx2.h - scores of 4-bit latents as sums of integer products: queries and keys; attn_dots_avx2.h multiplies.
 *
 * The arithmetic of attn_int8_avx512.h: a value is c/2 times its group's scale, stored as c + BIAS; a query
 * is a byte per value and a factor per 64 values; the products of a group of 16 are an exact integer.
 * A lane of 16 bits has 8 products of at most 30 * 127, so nothing saturates; it starts at -BIAS times the sum of
 * its query bytes.  A row has two such lanes. */
#ifndef NB_KERNEL_ATTN_INT8_AVX2_H
#define NB_KERNEL_ATTN_INT8_AVX2_H
#include <math.h>
#include <string.h>

#include "kernel/x86/kv_chunk_avx2.h"
#include "kernel/x86/vec_avx2.h"

enum { I8_BIAS = 16, I8_ROWS = 16, I8_UNIT = 64, I8_GROUPS = I8_UNIT / 16 };

/* Queries of 16 rows, 64 values. */
typedef struct i8_query {
    _Alignas(32) int8_t q[I8_GROUPS][4][I8_ROWS][4];
    int16_t start[I8_GROUPS][I8_ROWS][2];
    float factor[I8_ROWS];
} i8_query;

/* Codes of a unit of a page. */
typedef struct i8_keys {
    _Alignas(32) uint8_t code[NB_PAGE_TOK][I8_UNIT];
} i8_keys;

static inline bool i8_reads(const nb_record_seg *g)
{
    return (g->fmt == NB_SEG_NVFP4 || g->fmt == NB_SEG_IF4) && kv_chunk_can(g);
}

/* ---- queries ---- */

/* The largest magnitude of 64 floats; a NaN is the largest. */
static inline float i8_most(const float *q)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i top = _mm256_setzero_si256();
    for (size_t i = 0; i < I8_UNIT; i += 8) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(q + i));
        top = _mm256_max_epu32(top, _mm256_and_si256(x, magnitude));
    }
    __m128i t = _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    t = _mm_max_epu32(t, _mm_shuffle_epi32(t, 0x4e));
    t = _mm_max_epu32(t, _mm_shuffle_epi32(t, 0xb1));
    return nb_f32_from_bits((uint32_t)_mm_cvtsi128_si32(t));
}

/* Row r of a unit. */
static inline void i8_pack_row(const float *q, size_t r, i8_query *to)
{
    const float most = i8_most(q), up = most < 0x1p-60f ? 0x1p64f : 1;
    const float by = most != 0 ? 127 / (most * up) : 0;
    const __m256 f = _mm256_set1_ps(up), g = _mm256_set1_ps(by);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    to->factor[r] = most * (1.0f / 127);
    for (size_t k = 0; k < I8_GROUPS; k += 2) {
        _Alignas(32) int8_t b[32];
        __m256i c[4];
        for (size_t i = 0; i < 4; i++) {
            const __m256 x = _mm256_loadu_ps(q + 16 * k + 8 * i);
            c[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_mul_ps(x, f), g));
        }
        const __m256i words =
            _mm256_packs_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3]));
        _mm256_store_si256((__m256i *)(void *)b, _mm256_permutevar8x32_epi32(words, order));
        /* Pairs of a group summed over its four quads. */
        const __m256i bytes = _mm256_load_si256((const __m256i *)(void *)b);
        __m256i sum = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
        sum = _mm256_add_epi16(sum, _mm256_shuffle_epi32(sum, 0x4e));
        sum = _mm256_add_epi16(sum, _mm256_shuffle_epi32(sum, 0xb1));
        sum = _mm256_mullo_epi16(sum, _mm256_set1_epi16(-I8_BIAS));
        const int32_t start[2] = { _mm256_extract_epi32(sum, 0), _mm256_extract_epi32(sum, 4) };
        for (size_t h = 0; h < 2; h++) {
            for (size_t i = 0; i < 4; i++) memcpy(to->q[k + h][i][r], b + 16 * h + 4 * i, 4);
            memcpy(to->start[k + h][r], &start[h], sizeof start[h]);
        }
    }
}

/* ---- keys ---- */

/* The codes of unit u of a page. */
static inline void i8_codes(const nb_record_seg *g, const uint8_t *page, size_t u, i8_keys *k)
{
    const size_t cs = g->code_stride, ss = g->scale_stride;
    const uint8_t *code = page + g->code_off + u * (I8_UNIT / 2);
    const uint8_t *sf = page + g->scale_off + u * I8_GROUPS;
    const bool if4 = g->fmt == NB_SEG_IF4;
    const __m256i low = _mm256_set1_epi8(15), bias = _mm256_set1_epi8(I8_BIAS);
    const __m256i e2m1 = _mm256_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12,
                                          0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const __m256i step =
        _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 0, -2, -4, -6, -8, -10, -12, -14, 0, 2, 4, 6, 8,
                         10, 12, 14, 0, -2, -4, -6, -8, -10, -12, -14);
    const __m256i a = _mm256_add_epi8(e2m1, bias), b = _mm256_add_epi8(step, bias);
    for (size_t t = 0; t < NB_PAGE_TOK; t++, code += cs, sf += ss) {
        const __m256i x =
            _mm256_permute4x64_epi64(_mm256_loadu_si256((const __m256i *)(const void *)code), 0xd8);
        const __m256i lo = _mm256_and_si256(x, low);
        const __m256i hi = _mm256_and_si256(_mm256_srli_epi16(x, 4), low);
        const __m256i at0 = _mm256_unpacklo_epi8(lo, hi), at1 = _mm256_unpackhi_epi8(lo, hi);
        __m256i c0 = _mm256_shuffle_epi8(a, at0), c1 = _mm256_shuffle_epi8(a, at1);
        if (if4) { /* the sign of a group's scale chooses */
            const __m256i s0 =
                _mm256_set_m128i(_mm_set1_epi8((char)sf[1]), _mm_set1_epi8((char)sf[0]));
            const __m256i s1 =
                _mm256_set_m128i(_mm_set1_epi8((char)sf[3]), _mm_set1_epi8((char)sf[2]));
            c0 = _mm256_blendv_epi8(c0, _mm256_shuffle_epi8(b, at0), s0);
            c1 = _mm256_blendv_epi8(c1, _mm256_shuffle_epi8(b, at1), s1);
        }
        _mm256_store_si256((__m256i *)(void *)k->code[t], c0);
        _mm256_store_si256((__m256i *)(void *)(k->code[t] + 32), c1);
    }
}

/* Halves of the group scales of a page: [64][n], n a multiple of 8, zeros at the end.  E4M3 is FP16 with
 * another bias. */
static inline void i8_scales(const nb_record_seg *g, const uint8_t *page, size_t n, float *out)
{
    const __m128i magnitude = _mm_set1_epi16(0x3f80);
    for (size_t t = 0; t < NB_PAGE_TOK; t++, out += n) {
        const uint8_t *sf = page + g->scale_off + t * g->scale_stride;
        for (size_t i = 0; i < n; i += 8) {
            uint8_t b[8] = { 0 };
            memcpy(b, sf + i, g->n_group - i < 8 ? g->n_group - i : 8);
            const __m128i w = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)b));
            const __m256 x = _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(w, 7), magnitude));
            _mm256_store_ps(out + i, _mm256_mul_ps(x, _mm256_set1_ps(128)));
        }
    }
}
#endif
