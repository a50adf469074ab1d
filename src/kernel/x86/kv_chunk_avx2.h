/* kv_chunk_avx2.h - pages as chunks of floats: 64 channels of a page's 64 tokens at a time.
 *
 * A row of a chunk holds vector j = channels 4j..4j+3 and 32+4j..32+4j+3, j in 0..7: bytes and
 * 16-bit values of both halves of a chunk lie in the two lanes of a register from the load on, and
 * widening works within lanes.  So no decoder has a permutation; who reads the chunk undoes the order
 * where it matters (of a sum of products it does not).
 *
 * Small floats become BF16 first, which holds E2M1, 0..15 and E4M3 exactly: two byte shuffles are
 * the tables of its two bytes.  A float is a BF16 with two zero bytes below, so that unpacking is the
 * conversion.  Scales of blocks are multiplied in; scales of tokens are left out and given as
 * factors: the caller applies them to scores and weights, once for 512 channels. */
#ifndef NB_KERNEL_KV_CHUNK_AVX2_H
#define NB_KERNEL_KV_CHUNK_AVX2_H
#include "kernel/x86/kv_block_avx2.h"
#include "num/e4m3.h"

enum { KV_CHUNK = 64, KV_VECS = KV_CHUNK / 8 };

/* The two bytes of the BF16 codes of a nibble's value. */
typedef struct kv_table {
    uint8_t hi[16], lo[16];
} kv_table;

enum { KV_E2M1, KV_STEPS, KV_UINT4, KV_SUBNORMAL };
static const kv_table kv_tables[4] = {
    [KV_E2M1] = { { 0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x80, 0xbf, 0xbf, 0xbf, 0xc0,
                    0xc0, 0xc0, 0xc0 },
                  { 0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0, 0x00, 0x00, 0x80, 0xc0, 0x00,
                    0x40, 0x80, 0xc0 } },
    [KV_STEPS] = { { 0x00, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x80, 0xbf, 0xc0, 0xc0, 0xc0,
                     0xc0, 0xc0, 0xc0 },
                   { 0x00, 0x80, 0x00, 0x40, 0x80, 0xa0, 0xc0, 0xe0, 0x00, 0x80, 0x00, 0x40, 0x80,
                     0xa0, 0xc0, 0xe0 } },
    [KV_UINT4] = { { 0x00, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x41, 0x41, 0x41, 0x41, 0x41,
                     0x41, 0x41, 0x41 },
                   { 0x00, 0x80, 0x00, 0x40, 0x80, 0xa0, 0xc0, 0xe0, 0x00, 0x10, 0x20, 0x30, 0x40,
                     0x50, 0x60, 0x70 } },
    /* m * 2^-9, m in 0..7: the subnormals of E4M3 */
    [KV_SUBNORMAL] = { { 0x00, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c },
                       { 0x00, 0x00, 0x80, 0xc0, 0x00, 0x20, 0x40, 0x60 } },
};

static inline __m256i kv_both(const uint8_t *lane0, const uint8_t *lane1)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load16(lane0)), load16(lane1), 1);
}

/* A table in both lanes; kv_tables2: of different tables. */
static inline __m256i kv_table256(const uint8_t *t)
{
    return _mm256_broadcastsi128_si256(load16(t));
}

/* BF16 codes to floats: the low and the high four of each lane. */
static inline __m256 kv_widen_lo(__m256i x)
{
    return _mm256_castsi256_ps(_mm256_unpacklo_epi16(_mm256_setzero_si256(), x));
}
static inline __m256 kv_widen_hi(__m256i x)
{
    return _mm256_castsi256_ps(_mm256_unpackhi_epi16(_mm256_setzero_si256(), x));
}

/* 64 nibbles of a chunk in order: a holds those of vectors 0..3, b of 4..7. */
static inline void kv_nibbles(const uint8_t *codes, __m256i *a, __m256i *b)
{
    const __m256i v = _mm256_loadu_si256((const __m256i *)codes), low = _mm256_set1_epi8(15);
    const __m256i even = _mm256_and_si256(v, low);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    *a = _mm256_unpacklo_epi8(even, odd);
    *b = _mm256_unpackhi_epi8(even, odd);
}

/* 32 values from the bytes of their BF16 codes: 4 vectors, times s. */
static inline void kv_scaled4(__m256i lo, __m256i hi, __m256 s, float *out)
{
    const __m256i x = _mm256_unpacklo_epi8(lo, hi), y = _mm256_unpackhi_epi8(lo, hi);
    _mm256_store_ps(out, _mm256_mul_ps(kv_widen_lo(x), s));
    _mm256_store_ps(out + 8, _mm256_mul_ps(kv_widen_hi(x), s));
    _mm256_store_ps(out + 16, _mm256_mul_ps(kv_widen_lo(y), s));
    _mm256_store_ps(out + 24, _mm256_mul_ps(kv_widen_hi(y), s));
}
static inline void kv_plain4(__m256i lo, __m256i hi, float *out)
{
    const __m256i x = _mm256_unpacklo_epi8(lo, hi), y = _mm256_unpackhi_epi8(lo, hi);
    _mm256_store_ps(out, kv_widen_lo(x));
    _mm256_store_ps(out + 8, kv_widen_hi(x));
    _mm256_store_ps(out + 16, kv_widen_lo(y));
    _mm256_store_ps(out + 24, kv_widen_hi(y));
}

/* E4M3 scales of two blocks, one per lane. */
static inline __m256 kv_scales(uint8_t lane0, uint8_t lane1)
{
    return _mm256_blend_ps(_mm256_broadcast_ss(&nb_e4m3_value[lane0 & 0x7f]),
                           _mm256_broadcast_ss(&nb_e4m3_value[lane1 & 0x7f]), 0xf0);
}

/* ---- chunk c of a segment, all tokens, into out [64][64]; each assumes its format ---- */

static inline void kv_chunk_nvfp4(const nb_record_seg *g, const uint8_t *page, size_t c, float *out)
{
    const __m256i hi = kv_table256(kv_tables[KV_E2M1].hi), lo = kv_table256(kv_tables[KV_E2M1].lo);
    const uint8_t *codes = page + g->code_off + c * (KV_CHUNK / 2);
    const uint8_t *sf = page + g->scale_off + c * (KV_CHUNK / BLOCK);
    for (size_t t = 0; t < NB_PAGE_TOK; t++, out += KV_CHUNK) {
        __m256i a, b;
        kv_nibbles(codes, &a, &b);
        kv_scaled4(_mm256_shuffle_epi8(lo, a), _mm256_shuffle_epi8(hi, a), kv_scales(sf[0], sf[2]),
                   out);
        kv_scaled4(_mm256_shuffle_epi8(lo, b), _mm256_shuffle_epi8(hi, b), kv_scales(sf[1], sf[3]),
                   out + 32);
        codes += g->code_stride;
        sf += g->scale_stride;
    }
}

/* Half a chunk of if4: each lane has its block's table. */
static inline void kv_if4_half(__m256i k, uint8_t sf0, uint8_t sf1, float *out)
{
    const kv_table *t0 = &kv_tables[sf0 >> 7], *t1 = &kv_tables[sf1 >> 7];
    kv_scaled4(_mm256_shuffle_epi8(kv_both(t0->lo, t1->lo), k),
               _mm256_shuffle_epi8(kv_both(t0->hi, t1->hi), k), kv_scales(sf0, sf1), out);
}

static inline void kv_chunk_if4(const nb_record_seg *g, const uint8_t *page, size_t c, float *out)
{
    const uint8_t *codes = page + g->code_off + c * (KV_CHUNK / 2);
    const uint8_t *sf = page + g->scale_off + c * (KV_CHUNK / BLOCK);
    for (size_t t = 0; t < NB_PAGE_TOK; t++, out += KV_CHUNK) {
        __m256i a, b;
        kv_nibbles(codes, &a, &b);
        kv_if4_half(a, sf[0], sf[2], out);
        kv_if4_half(b, sf[1], sf[3], out + 32);
        codes += g->code_stride;
        sf += g->scale_stride;
    }
}

/* A scale of 0 reads as 0, which is what its exponent bits say. */
static inline void kv_chunk_mxfp4(const nb_record_seg *g, const uint8_t *page, size_t c, float *out)
{
    const __m256i hi = kv_table256(kv_tables[KV_E2M1].hi), lo = kv_table256(kv_tables[KV_E2M1].lo);
    const uint8_t *codes = page + g->code_off + c * (KV_CHUNK / 2);
    const uint8_t *sf = page + g->scale_off + c * (KV_CHUNK / 32);
    for (size_t t = 0; t < NB_PAGE_TOK; t++, out += KV_CHUNK) {
        const __m256i e =
            _mm256_blend_epi32(_mm256_set1_epi32(sf[0]), _mm256_set1_epi32(sf[1]), 0xf0);
        const __m256 s = _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
        __m256i a, b;
        kv_nibbles(codes, &a, &b);
        kv_scaled4(_mm256_shuffle_epi8(lo, a), _mm256_shuffle_epi8(hi, a), s, out);
        kv_scaled4(_mm256_shuffle_epi8(lo, b), _mm256_shuffle_epi8(hi, b), s, out + 32);
        codes += g->code_stride;
        sf += g->scale_stride;
    }
}

/* FP16 values of a chunk's channels as floats, in the chunk's order. */
static inline void kv_halves(const uint8_t *h, float *out)
{
    for (size_t j = 0; j < KV_VECS; j++) {
        const __m128i a = _mm_loadl_epi64((const __m128i *)(h + 8 * j));
        const __m128i b = _mm_loadl_epi64((const __m128i *)(h + 64 + 8 * j));
        _mm256_store_ps(out + 8 * j, _mm256_cvtph_ps(_mm_unpacklo_epi64(a, b)));
    }
}

/* code * scale is exact: a fused product and sum rounds once, as the definition. */
static inline void kv_chunk_int4(const nb_record_seg *g, const uint8_t *page, size_t c, float *out)
{
    const __m256i hi = kv_table256(kv_tables[KV_UINT4].hi),
                  lo = kv_table256(kv_tables[KV_UINT4].lo);
    const uint8_t *codes = page + g->code_off + c * (KV_CHUNK / 2);
    _Alignas(32) float s[KV_CHUNK], m[KV_CHUNK];
    for (size_t t = 0; t < NB_PAGE_TOK; t++, out += KV_CHUNK, codes += g->code_stride) {
        if (t % 32 == 0) {
            const uint8_t *row = page + g->scale_off + t / 32 * g->scale_stride + c * KV_CHUNK * 2;
            kv_halves(row, s);
            kv_halves(row + g->scale_stride / 2, m);
        }
        __m256i half[2];
        kv_nibbles(codes, &half[0], &half[1]);
        for (size_t k = 0; k < 2; k++) {
            const __m256i l = _mm256_shuffle_epi8(lo, half[k]),
                          h = _mm256_shuffle_epi8(hi, half[k]);
            const __m256i x = _mm256_unpacklo_epi8(l, h), y = _mm256_unpackhi_epi8(l, h);
            const __m256 v[4] = { kv_widen_lo(x), kv_widen_hi(x), kv_widen_lo(y), kv_widen_hi(y) };
            for (size_t j = 0; j < 4; j++) {
                const size_t at = 32 * k + 8 * j;
                _mm256_store_ps(out + at, _mm256_fmadd_ps(v[j], _mm256_load_ps(s + at),
                                                          _mm256_load_ps(m + at)));
            }
        }
    }
}

/* 32 E4M3 codes to the bytes of BF16 codes.  The exponent's bias grows by 120, an even number, so
 * that the upper byte is the sign, the upper three exponent bits and 60; 0x7f (a NaN that no
 * encoder writes) comes out as 480. */
static inline void kv_e4m3_bytes(__m256i x, __m256i *lo, __m256i *hi)
{
    const __m256i seven = _mm256_set1_epi8(7), sign = _mm256_set1_epi8((char)0x80);
    const __m256i sub_hi = kv_table256(kv_tables[KV_SUBNORMAL].hi);
    const __m256i sub_lo = kv_table256(kv_tables[KV_SUBNORMAL].lo);
    const __m256i m = _mm256_and_si256(x, seven);
    const __m256i sub =
        _mm256_cmpeq_epi8(_mm256_and_si256(x, _mm256_set1_epi8(0x78)), _mm256_setzero_si256());
    const __m256i l = _mm256_and_si256(_mm256_slli_epi16(x, 4), _mm256_set1_epi8((char)0xf0));
    const __m256i e = _mm256_and_si256(_mm256_srli_epi16(x, 4), seven);
    const __m256i h = _mm256_add_epi8(e, _mm256_set1_epi8(60));
    *lo = _mm256_blendv_epi8(l, _mm256_shuffle_epi8(sub_lo, m), sub);
    *hi = _mm256_or_si256(_mm256_blendv_epi8(h, _mm256_shuffle_epi8(sub_hi, m), sub),
                          _mm256_and_si256(x, sign));
}

static inline void kv_chunk_e4m3(const nb_record_seg *g, const uint8_t *page, size_t c, float *out)
{
    const uint8_t *codes = page + g->code_off + c * KV_CHUNK;
    for (size_t t = 0; t < NB_PAGE_TOK; t++, out += KV_CHUNK, codes += g->code_stride) {
        __m256i lo, hi;
        kv_e4m3_bytes(kv_both(codes, codes + 32), &lo, &hi);
        kv_plain4(lo, hi, out);
        kv_e4m3_bytes(kv_both(codes + 16, codes + 48), &lo, &hi);
        kv_plain4(lo, hi, out + 32);
    }
}

/* The latent of fp8_ds_mla: a float scale per 128 values. */
static inline void kv_chunk_ds(const nb_record_seg *g, const uint8_t *page, size_t c, float *out)
{
    const uint8_t *codes = page + g->code_off + c * KV_CHUNK;
    const uint8_t *scale = page + g->scale_off + c / 2 * 4;
    for (size_t t = 0; t < NB_PAGE_TOK; t++, out += KV_CHUNK) {
        const __m256 s = _mm256_set1_ps(nb_f32_from_bits(nb_le32_get(scale)));
        __m256i lo, hi;
        kv_e4m3_bytes(kv_both(codes, codes + 32), &lo, &hi);
        kv_scaled4(lo, hi, s, out);
        kv_e4m3_bytes(kv_both(codes + 16, codes + 48), &lo, &hi);
        kv_scaled4(lo, hi, s, out + 32);
        codes += g->code_stride;
        scale += g->scale_stride;
    }
}

/* 2^24 times the codes: the byte is the upper one of an integer. */
static inline void kv_int8_half(__m256i v, float *out)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i x = _mm256_unpacklo_epi8(zero, v), y = _mm256_unpackhi_epi8(zero, v);
    _mm256_store_ps(out, _mm256_cvtepi32_ps(_mm256_unpacklo_epi16(zero, x)));
    _mm256_store_ps(out + 8, _mm256_cvtepi32_ps(_mm256_unpackhi_epi16(zero, x)));
    _mm256_store_ps(out + 16, _mm256_cvtepi32_ps(_mm256_unpacklo_epi16(zero, y)));
    _mm256_store_ps(out + 24, _mm256_cvtepi32_ps(_mm256_unpackhi_epi16(zero, y)));
}

static inline void kv_chunk_int8(const nb_record_seg *g, const uint8_t *page, size_t c, float *out)
{
    const uint8_t *codes = page + g->code_off + c * KV_CHUNK;
    for (size_t t = 0; t < NB_PAGE_TOK; t++, out += KV_CHUNK, codes += g->code_stride) {
        kv_int8_half(kv_both(codes, codes + 32), out);
        kv_int8_half(kv_both(codes + 16, codes + 48), out + 32);
    }
}

static inline void kv_chunk_bf16(const nb_record_seg *g, const uint8_t *page, size_t c, float *out)
{
    const uint8_t *codes = page + g->code_off + c * KV_CHUNK * 2;
    for (size_t t = 0; t < NB_PAGE_TOK; t++, out += KV_CHUNK, codes += g->code_stride) {
        for (size_t j = 0; j < KV_VECS / 2; j++) {
            const __m256i x = kv_both(codes + 16 * j, codes + 64 + 16 * j);
            _mm256_store_ps(out + 16 * j, kv_widen_lo(x));
            _mm256_store_ps(out + 16 * j + 8, kv_widen_hi(x));
        }
    }
}

static inline void kv_chunk_f32(const nb_record_seg *g, const uint8_t *page, size_t c, float *out)
{
    const uint8_t *codes = page + g->code_off + c * KV_CHUNK * 4;
    for (size_t t = 0; t < NB_PAGE_TOK; t++, out += KV_CHUNK, codes += g->code_stride)
        for (size_t j = 0; j < KV_VECS; j++)
            _mm256_store_ps(out + 8 * j,
                            _mm256_castsi256_ps(kv_both(codes + 16 * j, codes + 128 + 16 * j)));
}

/* ---- any format ---- */

/* A segment that the decoders above take: whole chunks, one vector, nothing beside the codes. */
static inline bool kv_chunk_can(const nb_record_seg *g)
{
    return g->n_vec == 1 && g->dim % KV_CHUNK == 0 && g->n_outlier == 0 &&
           g->fmt != NB_SEG_INT4_TOK;
}

/* Do all n bytes of a plane of UE8M0 scales (0 stands for zero) lie in EASY_MIN..EASY_MAX, or at
 * or under 0 where small scales do no harm? */
static inline bool kv_easy_scales(const uint8_t *p, size_t n, bool small_ok)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= p[i] > EASY_MAX || (!small_ok && p[i] != 0 && p[i] < EASY_MIN);
    return bad == 0;
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

/* What the decoded values of each token are to be multiplied with. */
static inline void kv_chunk_factors(const nb_record_seg *g, const uint8_t *page, float *factor)
{
    const int down = g->fmt == NB_SEG_INT8 ? 24 : 0;
    for (size_t t = 0; t < NB_PAGE_TOK; t++) {
        const unsigned outer = g->outer_stride ? page[g->outer_off + t] : NB_UE8M0_ONE;
        factor[t] = outer == 0            ? 0
                    : g->fixed_scale != 0 ? g->fixed_scale
                                          : nb_f32_pow2((int)outer - NB_UE8M0_ONE - down);
    }
}

static inline void kv_chunk_decode(const nb_record_seg *g, const uint8_t *page, size_t c,
                                   float *out)
{
    switch (g->fmt) {
    case NB_SEG_BF16: kv_chunk_bf16(g, page, c, out); break;
    case NB_SEG_E4M3: kv_chunk_e4m3(g, page, c, out); break;
    case NB_SEG_NVFP4: kv_chunk_nvfp4(g, page, c, out); break;
    case NB_SEG_IF4: kv_chunk_if4(g, page, c, out); break;
    case NB_SEG_MXFP4: kv_chunk_mxfp4(g, page, c, out); break;
    case NB_SEG_INT4_CH: kv_chunk_int4(g, page, c, out); break;
    case NB_SEG_INT4_TOK: break; /* not a segment of MLA */
    case NB_SEG_F32: kv_chunk_f32(g, page, c, out); break;
    case NB_SEG_DS_MLA: kv_chunk_ds(g, page, c, out); break;
    case NB_SEG_INT8: kv_chunk_int8(g, page, c, out); break;
    }
}

#endif
