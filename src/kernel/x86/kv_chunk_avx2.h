/* kv_chunk_avx2.h - pages as chunks of floats, 64 channels of all 64 tokens at a time: what may be read
 * so, where a chunk's bytes are, and the rows of kv_rows_avx2.h for every format. */
#ifndef NB_KERNEL_KV_CHUNK_AVX2_H
#define NB_KERNEL_KV_CHUNK_AVX2_H
#include "kernel/x86/kv_rows_avx2.h"

/* The formats that are read so: X(format, row of a chunk). */
#define KV_CHUNK_FORMATS(X)                                                                        \
    X(NB_SEG_BF16, kv_row_bf16)                                                                    \
    X(NB_SEG_E4M3, kv_row_e4m3)                                                                    \
    X(NB_SEG_NVFP4, kv_row_nvfp4)                                                                  \
    X(NB_SEG_IF4, kv_row_nvfp4)                                                                    \
    X(NB_SEG_MXFP4, kv_row_mxfp4)                                                                  \
    X(NB_SEG_INT4_CH, kv_row_int4)                                                                 \
    X(NB_SEG_F32, kv_row_f32)                                                                      \
    X(NB_SEG_DS_MLA, kv_row_ds)                                                                    \
    X(NB_SEG_INT8, kv_row_int8)

/* A segment that the decoders take: whole chunks, one vector, nothing beside the codes. */
static inline bool kv_chunk_can(const nb_record_seg *g)
{
#define X(FMT, row) || g->fmt == (FMT)
    return g->n_vec == 1 && g->dim % KV_CHUNK == 0 && g->n_outlier == 0 &&
           (false KV_CHUNK_FORMATS(X));
#undef X
}

/* Do all n bytes of a plane of UE8M0 scales (n a multiple of 32; 0 stands for zero) lie in
 * EASY_MIN..EASY_MAX, or under it where small scales do no harm? */
static inline bool kv_easy_scales(const uint8_t *p, size_t n, bool small_ok)
{
    const __m256i zero = _mm256_setzero_si256(), top = _mm256_set1_epi8((char)(EASY_MAX + 1));
    const __m256i low = _mm256_set1_epi8((char)(small_ok ? 0 : EASY_MIN - 1));
    __m256i bad = zero;
    for (size_t i = 0; i < n; i += 32) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(p + i));
        const __m256i large = _mm256_cmpeq_epi8(_mm256_max_epu8(x, top), x);
        const __m256i small = _mm256_cmpeq_epi8(_mm256_min_epu8(x, low), x);
        bad = _mm256_or_si256(bad, large);
        bad = _mm256_or_si256(bad, _mm256_andnot_si256(_mm256_cmpeq_epi8(x, zero), small));
    }
    return _mm256_testz_si256(bad, bad) != 0;
}

static inline bool kv_easy_ds(const nb_record_seg *g, const uint8_t *page)
{
    unsigned bad = 0;
    for (size_t t = 0; t < NB_PAGE_TOK; t++)
        for (size_t k = 0; k < g->n_group; k++) {
            const uint32_t u = nb_le32_get(page + g->scale_off + t * g->scale_stride + 4 * k);
            bad |= (u & 0x807fffffu) != 0 || u >> 23 < EASY_MIN || u >> 23 > EASY_MAX;
        }
    return bad == 0;
}

/* Whether the page's scales are such that kv_chunk_decode gives its values: no product leaves the
 * range of normal floats, no scale is a NaN. */
static inline bool kv_chunk_easy(const nb_record_seg *g, const uint8_t *page)
{
    if (g->fmt == NB_SEG_DS_MLA) return kv_easy_ds(g, page);
    if (g->fmt == NB_SEG_MXFP4)
        return kv_easy_scales(page + g->scale_off, g->scale_stride * NB_PAGE_TOK, true);
    return g->outer_stride == 0 ||
           kv_easy_scales(page + g->outer_off, g->outer_stride * NB_PAGE_TOK, false);
}

/* What the decoded values of each token are to be multiplied with; 0 for an outer scale of 0. */
static inline void kv_chunk_factors(const nb_record_seg *g, const uint8_t *page, float *factor)
{
    const __m256i down = _mm256_set1_epi32(g->fmt == NB_SEG_INT8 ? 24 : 0);
    const __m256 one = _mm256_set1_ps(1);
    for (size_t t = 0; t < NB_PAGE_TOK; t += 8) {
        __m256 f = one;
        if (g->outer_stride) {
            const uint8_t *outer = page + g->outer_off + t;
            const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)outer));
            const __m256i none = _mm256_cmpeq_epi32(e, _mm256_setzero_si256());
            const __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(e, down), 23);
            f = g->fixed_scale != 0 ? _mm256_set1_ps(g->fixed_scale) : _mm256_castsi256_ps(bits);
            f = _mm256_andnot_ps(_mm256_castsi256_ps(none), f);
        }
        _mm256_storeu_ps(factor + t, f);
    }
}

static inline bool kv_has_tables(const nb_record_seg *g)
{
    return g->fmt == NB_SEG_NVFP4 || g->fmt == NB_SEG_IF4 || g->fmt == NB_SEG_MXFP4;
}

/* table[b] = the codes' values times the scale b, for all 256 bytes; see kv_has_tables. */
static inline void kv_make_tables(const nb_record_seg *g, kv_table *table)
{
    static const float grid[2][8] = { { 0, .5f, 1, 1.5f, 2, 3, 4, 6 }, { 0, 1, 2, 3, 4, 5, 6, 7 } };
    const __m256i order =
        _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, 1, 5, 9, 13, -1, -1, -1, -1, 0, 4, 8, 12, -1,
                         -1, -1, -1, 1, 5, 9, 13, -1, -1, -1, -1);
    for (unsigned b = 0; b < 256; b++) {
        const unsigned steps = g->fmt == NB_SEG_IF4 && b & 0x80;
        const float scale =
            g->fmt == NB_SEG_MXFP4 ? nb_f32_from_bits(b << 23) : nb_e4m3_value[b & 0x7f];
        const __m256 v = _mm256_mul_ps(_mm256_loadu_ps(grid[steps]), _mm256_set1_ps(scale));
        /* Each lane: 4 lower bytes, 4 zeros, 4 upper bytes, 4 zeros. */
        const __m256i x = _mm256_shuffle_epi8(_mm256_srli_epi32(_mm256_castps_si256(v), 16), order);
        const __m128i y =
            _mm_unpacklo_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
        const __m128i z =
            _mm_unpackhi_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
        const __m128i minus = _mm_or_si128(z, _mm_set1_epi8((char)0x80));
        _mm_store_si128((__m128i *)table[b].lo, _mm_unpacklo_epi64(y, y));
        _mm_store_si128((__m128i *)table[b].hi, _mm_unpacklo_epi64(z, minus));
    }
}

static inline void kv_set_source(const nb_record_seg *g, const uint8_t *page, const kv_table *table,
                                 size_t c, kv_source *s)
{
    const size_t per = g->fmt == NB_SEG_MXFP4 ? 32 : BLOCK;
    s->codes = page + g->code_off + c * g->code_stride * KV_CHUNK / g->dim;
    s->scale = page + g->scale_off + c * (KV_CHUNK / per);
    s->code_stride = g->code_stride;
    s->scale_stride = g->scale_stride;
    s->table = table;
    if (g->fmt == NB_SEG_DS_MLA) {
        s->codes = page + g->code_off + c * KV_CHUNK;
        s->scale = page + g->scale_off + c / 2 * 4;
    } else if (g->fmt == NB_SEG_BF16) { /* its rows may hold a latent, too */
        s->codes = page + g->code_off + c * KV_CHUNK * 2;
    } else if (g->fmt == NB_SEG_INT4_CH) {
        for (size_t k = 0; k < 2; k++) {
            const uint8_t *row = page + g->scale_off + k * g->scale_stride + c * KV_CHUNK * 2;
            kv_halves(row, s->mul[k]);
            kv_halves(row + g->scale_stride / 2, s->add[k]);
        }
    }
}

/* All 64 rows of a chunk; fmt: one of KV_CHUNK_FORMATS. */
static inline void kv_chunk_decode(nb_seg_fmt fmt, const kv_source *s, float *out)
{
    switch (fmt) {
#define X(FMT, row)                                                                                \
    case FMT:                                                                                      \
        for (size_t t = 0; t < NB_PAGE_TOK; t++) row(s, t, out + t * KV_CHUNK);                    \
        break;
        KV_CHUNK_FORMATS(X)
#undef X
    default: break;
    }
}

#endif
