/* kv_decode_avx512.h - pages as rows of floats, with 512-bit vectors; the values of nb_kv_decode_avx2 for every
 * page that nb_record_check_page accepts.
 *
 * Four bits: the 16 products of a block are one vector, so a block is a shift and a lookup. E4M3 is
 * FP16 with another bias (times 2^-8), which the hardware widens, subnormals too.  Formats, scales and shapes
 * that are rare are left to nb_kv_decode_avx2.
 *
 * Uops for 16 values on ports 0 and 5 (of those only 5): 4 bits 4 (2), E4M3 6 (3), INT8 3 (1), BF16
 * 2 (1). */
#ifndef NB_KERNEL_KV_DECODE_AVX512_H
#define NB_KERNEL_KV_DECODE_AVX512_H
#include "kernel/kv_codec/kv_codec.h"
#include "kernel/x86/kv_block_avx2.h"
#include "kernel/x86/vec_avx512.h"

enum { NB_AVX512_BLOCKS_MAX = 64 }; /* 16-value blocks of a vector whose scales fit the stack */

// clang-format off
static const float nb_avx512_grid[2][16] = {
    { 0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6 },
    { 0, 1, 2, 3, 4, 5, 6, 7, -0.0f, -1, -2, -3, -4, -5, -6, -7 },
};
// clang-format on

/* 8 bytes of codes: lane i gets nibble i in its lowest bits (the others are ignored). */
static inline __m512i nb_avx512_nibbles(const uint8_t *codes)
{
    const __m512i shift =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m128i c = _mm_loadl_epi64((const void *)codes);
    const __m512i both =
        _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
                                 _mm512_castsi128_si512(c));
    return _mm512_srlv_epi32(both, shift);
}

/* Two blocks of 16, their grids times their scales. */
static inline void nb_avx512_fp4_two(const uint8_t *codes, __m512 t0, __m512 t1, float *out)
{
    _mm512_store_ps(out, _mm512_permutexvar_ps(nb_avx512_nibbles(codes), t0));
    _mm512_store_ps(out + 16, _mm512_permutexvar_ps(nb_avx512_nibbles(codes + 8), t1));
}

static inline void nb_avx512_nv_row(const nb_record_seg *g, const uint8_t *codes, const uint8_t *sf,
                                    unsigned outer, float *out)
{
    _Alignas(64) float scale[NB_AVX512_BLOCKS_MAX];
    const __m512 e2m1 = _mm512_loadu_ps(nb_avx512_grid[0]);
    const float f = nb_f32_pow2((int)outer - 127 + 8);
    for (size_t k = 0; k < g->n_group; k += 16) {
        const __mmask16 in = nb_avx512_mask16(g->n_group - k < 16 ? g->n_group - k : 16);
        _mm512_store_ps(scale + k, nb_avx512_e4m3_scales(_mm_maskz_loadu_epi8(in, sf + k), f));
    }
    size_t k = 0;
    for (; k + 2 <= g->n_group && g->fmt == NB_SEG_NVFP4; k += 2)
        nb_avx512_fp4_two(codes + 8 * k, _mm512_mul_ps(e2m1, _mm512_set1_ps(scale[k])),
                          _mm512_mul_ps(e2m1, _mm512_set1_ps(scale[k + 1])), out + 16 * k);
    for (; k < g->n_group; k++) {
        const bool step = g->fmt == NB_SEG_IF4 && sf[k] & 0x80;
        const __m512 table =
            _mm512_mul_ps(_mm512_loadu_ps(nb_avx512_grid[step]), _mm512_set1_ps(scale[k]));
        _mm512_store_ps(out + 16 * k,
                        _mm512_permutexvar_ps(nb_avx512_nibbles(codes + 8 * k), table));
    }
}

/* false: scales that are not easy. */
static inline bool nb_avx512_mx_row(const nb_record_seg *g, const uint8_t *codes, const uint8_t *sf,
                                    float *out)
{
    _Alignas(64) float scale[NB_AVX512_BLOCKS_MAX];
    for (size_t k = 0; k < g->n_group; k += 16) {
        const __mmask16 in = nb_avx512_mask16(g->n_group - k < 16 ? g->n_group - k : 16);
        const __m512i b = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(in, sf + k));
        const __mmask16 hard =
            _mm512_cmpgt_epu32_mask(_mm512_sub_epi32(b, _mm512_set1_epi32(EASY_MIN)),
                                    _mm512_set1_epi32(EASY_MAX - EASY_MIN));
        if (_mm512_mask_test_epi32_mask(hard, b, b)) return false; /* 0 is easy: it is zero */
        _mm512_store_si512(scale + k, _mm512_slli_epi32(b, 23));
    }
    const __m512 e2m1 = _mm512_loadu_ps(nb_avx512_grid[0]);
    for (size_t k = 0; k < g->n_group; k++) {
        const __m512 table = _mm512_mul_ps(e2m1, _mm512_set1_ps(scale[k]));
        nb_avx512_fp4_two(codes + 16 * k, table, table, out + 32 * k);
    }
    return true;
}

static inline void nb_avx512_e4m3_row(const uint8_t *codes, size_t n, float scale, float *out)
{
    const __m512 s = _mm512_set1_ps(scale * 256);
    const __m512i mag = _mm512_set1_epi16(0x3f80), sign = _mm512_set1_epi16((short)0x8000);
    for (size_t i = 0; i < n; i += 32) { /* n is a multiple of 16 */
        const bool two = n - i >= 32;
        const __m256i c = two ? _mm256_loadu_si256((const void *)(codes + i))
                              : _mm256_castsi128_si256(load16(codes + i));
        const __m512i v = _mm512_cvtepu8_epi16(c);
        const __m512i m = _mm512_and_si512(_mm512_slli_epi16(v, 7), mag);
        const __m512i h = _mm512_ternarylogic_epi32(m, _mm512_slli_epi16(v, 8), sign, 0xf8);
        const __m256i h0 = _mm512_castsi512_si256(h), h1 = _mm512_extracti64x4_epi64(h, 1);
        _mm512_store_ps(out + i, _mm512_mul_ps(_mm512_cvtph_ps(h0), s));
        if (two) _mm512_store_ps(out + i + 16, _mm512_mul_ps(_mm512_cvtph_ps(h1), s));
    }
}

static inline void nb_avx512_int8_row(const uint8_t *codes, size_t n, float scale, float *out)
{
    const __m512 s = _mm512_set1_ps(scale);
    for (size_t i = 0; i < n; i += 16)
        _mm512_store_ps(
            out + i, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(codes + i))), s));
}

static inline void nb_avx512_bf16_row(const uint8_t *codes, size_t n, float *out)
{
    for (size_t i = 0; i < n; i += 16) {
        const __m256i v = _mm256_loadu_si256((const void *)(codes + 2 * i));
        _mm512_store_si512(out + i, _mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
    }
}

/* One token; false: not a case for this file. */
static inline bool nb_avx512_row(const nb_record_seg *g, const uint8_t *page, size_t t, float *out)
{
    const uint8_t *codes = page + g->code_off + t * g->code_stride;
    const uint8_t *sf = page + g->scale_off + t * g->scale_stride;
    const unsigned outer = g->outer_stride ? page[g->outer_off + t] : NB_UE8M0_ONE;
    if (outer == 0) {
        for (size_t i = 0; i < g->dim; i += 16) _mm512_store_ps(out + i, _mm512_setzero_ps());
        return true;
    }
    if (!easy(outer)) return false;
    const float f = g->fixed_scale != 0 ? g->fixed_scale : nb_f32_pow2((int)outer - 127);
    switch (g->fmt) {
    case NB_SEG_BF16: nb_avx512_bf16_row(codes, g->dim, out); return true;
    case NB_SEG_E4M3: nb_avx512_e4m3_row(codes, g->dim, f, out); return true;
    case NB_SEG_INT8: nb_avx512_int8_row(codes, g->dim, f, out); return true;
    case NB_SEG_MXFP4: return nb_avx512_mx_row(g, codes, sf, out);
    default: nb_avx512_nv_row(g, codes, sf, outer, out); return true;
    }
}

/* Whether rows of the segment are for nb_avx512_row at all. */
static inline bool nb_avx512_reads(const nb_record_seg *g)
{
    switch (g->fmt) {
    case NB_SEG_BF16:
    case NB_SEG_E4M3:
    case NB_SEG_INT8: return g->dim % 16 == 0 && g->n_vec == 1;
    case NB_SEG_NVFP4:
    case NB_SEG_IF4:
        return g->dim % 16 == 0 && g->n_vec == 1 && g->fixed_scale == 0 &&
               g->n_group <= NB_AVX512_BLOCKS_MAX;
    case NB_SEG_MXFP4:
        return g->dim % 32 == 0 && g->n_vec == 1 && g->n_group <= NB_AVX512_BLOCKS_MAX;
    default: return false;
    }
}

/* Segment s of all tokens of a page of MLA: token t at out + t * stride (a multiple of 16; out aligned
 * to 64).  Up to the next multiple of 16 values, zeros follow. */
static inline void nb_avx512_decode_page(const nb_record *r, const void *page, size_t s, float *out,
                                         size_t stride)
{
    const nb_record_seg *g = &r->seg[s];
    if (!nb_avx512_reads(g)) {
        nb_kv_decode_avx2(r, page, s, 0, NB_PAGE_TOK, out, stride);
        for (size_t t = 0; t < NB_PAGE_TOK && g->dim % 16 != 0; t++)
            for (size_t i = g->dim; i % 16 != 0; i++) out[t * stride + i] = 0;
        return;
    }
    for (size_t t = 0; t < NB_PAGE_TOK; t++, out += stride) {
        if (!nb_avx512_row(g, page, t, out)) nb_record_decode(r, page, s, t, 1, out, stride);
        fix_outliers(g, page, t, out);
    }
}

#endif
