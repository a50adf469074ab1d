/* kv_rows_avx2.h - rows of chunks: 64 channels of a token of a page as floats, per format.
 *
 * A row of a chunk holds vector j = channels 4j..4j+3 and 32+4j..32+4j+3, j in 0..7: bytes and
 * 16-bit values of both halves of a chunk lie in the two lanes of a register from the load on, and
 * widening works within lanes.  So no decoder has a permutation; who reads the chunk undoes the order
 * where it matters (of a sum of products it does not).
 *
 * Small floats become BF16 first, which holds E4M3, 0..15 and E2M1 times a block's scale exactly: two
 * byte shuffles look up its two bytes, in a table of the block's scale, so that no multiplication is
 * left (the FMA units have other work).  A float is a BF16 with two zero bytes below: unpacking is
 * the conversion.  Scales of tokens are left out and given as factors: the caller applies them to
 * scores and weights, once for 512 channels. */
#ifndef NB_KERNEL_KV_ROWS_AVX2_H
#define NB_KERNEL_KV_ROWS_AVX2_H
#include "kernel/x86/kv_block_avx2.h"
#include "num/e4m3.h"

enum { KV_CHUNK = 64, KV_VECS = KV_CHUNK / 8 };

/* The two bytes of the BF16 codes of a nibble's value (or of three bits'). */
typedef struct kv_table {
    _Alignas(32) uint8_t hi[16];
    uint8_t lo[16];
} kv_table;

static const kv_table kv_uint4 = { { 0x00, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x41, 0x41,
                                     0x41, 0x41, 0x41, 0x41, 0x41, 0x41 },
                                   { 0x00, 0x80, 0x00, 0x40, 0x80, 0xa0, 0xc0, 0xe0, 0x00, 0x10,
                                     0x20, 0x30, 0x40, 0x50, 0x60, 0x70 } };
/* m * 2^-9, m in 0..7: the subnormals of E4M3 */
static const kv_table kv_subnormal = { { 0x00, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c },
                                       { 0x00, 0x00, 0x80, 0xc0, 0x00, 0x20, 0x40, 0x60 } };

/* Where a chunk's rows are read from. */
typedef struct kv_source {
    const uint8_t *codes, *scale;
    size_t code_stride, scale_stride;
    const kv_table *table; /* of nvfp4, if4, mxfp4: one per scale byte   */
    _Alignas(32) float mul[2][KV_CHUNK],
        add[2][KV_CHUNK]; /* of int4, per 32 tokens, in a chunk's order */
} kv_source;

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

/* ---- row t of a chunk of a source, into out [64]; each assumes its format ---- */

/* Blocks 0 and 2 (or 1 and 3) of a chunk, in a lane each. */
static inline void kv_fp4_half(__m256i k, const kv_table *t0, const kv_table *t1, float *out)
{
    kv_plain4(_mm256_shuffle_epi8(kv_both(t0->lo, t1->lo), k),
              _mm256_shuffle_epi8(kv_both(t0->hi, t1->hi), k), out);
}

static inline void kv_row_nvfp4(const kv_source *s, size_t t, float *out)
{
    const uint8_t *sf = s->scale + t * s->scale_stride;
    __m256i a, b;
    kv_nibbles(s->codes + t * s->code_stride, &a, &b);
    kv_fp4_half(a, &s->table[sf[0]], &s->table[sf[2]], out);
    kv_fp4_half(b, &s->table[sf[1]], &s->table[sf[3]], out + 32);
}

static inline void kv_row_mxfp4(const kv_source *s, size_t t, float *out)
{
    const uint8_t *sf = s->scale + t * s->scale_stride;
    const kv_table *t0 = &s->table[sf[0]], *t1 = &s->table[sf[1]];
    const __m256i lo = kv_both(t0->lo, t1->lo), hi = kv_both(t0->hi, t1->hi);
    __m256i a, b;
    kv_nibbles(s->codes + t * s->code_stride, &a, &b);
    kv_plain4(_mm256_shuffle_epi8(lo, a), _mm256_shuffle_epi8(hi, a), out);
    kv_plain4(_mm256_shuffle_epi8(lo, b), _mm256_shuffle_epi8(hi, b), out + 32);
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
static inline void kv_fma4(__m256i lo, __m256i hi, const float *mul, const float *add, float *out)
{
    const __m256i x = _mm256_unpacklo_epi8(lo, hi), y = _mm256_unpackhi_epi8(lo, hi);
#define KV_FMA(v, at)                                                                              \
    _mm256_store_ps(out + at,                                                                      \
                    _mm256_fmadd_ps(v, _mm256_load_ps(mul + at), _mm256_load_ps(add + at)))
    KV_FMA(kv_widen_lo(x), 0);
    KV_FMA(kv_widen_hi(x), 8);
    KV_FMA(kv_widen_lo(y), 16);
    KV_FMA(kv_widen_hi(y), 24);
#undef KV_FMA
}

static inline void kv_row_int4(const kv_source *s, size_t t, float *out)
{
    const __m256i lo = kv_table256(kv_uint4.lo), hi = kv_table256(kv_uint4.hi);
    const float *mul = s->mul[t / 32], *add = s->add[t / 32];
    __m256i a, b;
    kv_nibbles(s->codes + t * s->code_stride, &a, &b);
    kv_fma4(_mm256_shuffle_epi8(lo, a), _mm256_shuffle_epi8(hi, a), mul, add, out);
    kv_fma4(_mm256_shuffle_epi8(lo, b), _mm256_shuffle_epi8(hi, b), mul + 32, add + 32, out + 32);
}

/* 32 E4M3 codes to the bytes of BF16 codes.  The exponent's bias grows by 120, an even number, so
 * that the upper byte is the sign, the upper three exponent bits and 60; 0x7f (a NaN that no
 * encoder writes) comes out as 480. */
static inline void kv_e4m3_bytes(__m256i x, __m256i *lo, __m256i *hi)
{
    const __m256i seven = _mm256_set1_epi8(7), sign = _mm256_set1_epi8((char)0x80);
    const __m256i sub_hi = kv_table256(kv_subnormal.hi);
    const __m256i sub_lo = kv_table256(kv_subnormal.lo);
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

static inline void kv_row_e4m3(const kv_source *s, size_t t, float *out)
{
    const uint8_t *codes = s->codes + t * s->code_stride;
    __m256i lo, hi;
    kv_e4m3_bytes(kv_both(codes, codes + 32), &lo, &hi);
    kv_plain4(lo, hi, out);
    kv_e4m3_bytes(kv_both(codes + 16, codes + 48), &lo, &hi);
    kv_plain4(lo, hi, out + 32);
}

/* The latent of fp8_ds_mla: a float scale per 128 values. */
static inline void kv_row_ds(const kv_source *s, size_t t, float *out)
{
    const uint8_t *codes = s->codes + t * s->code_stride;
    const __m256 f = _mm256_set1_ps(nb_f32_from_bits(nb_le32_get(s->scale + t * s->scale_stride)));
    __m256i lo, hi;
    kv_e4m3_bytes(kv_both(codes, codes + 32), &lo, &hi);
    kv_scaled4(lo, hi, f, out);
    kv_e4m3_bytes(kv_both(codes + 16, codes + 48), &lo, &hi);
    kv_scaled4(lo, hi, f, out + 32);
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

static inline void kv_row_int8(const kv_source *s, size_t t, float *out)
{
    const uint8_t *codes = s->codes + t * s->code_stride;
    kv_int8_half(kv_both(codes, codes + 32), out);
    kv_int8_half(kv_both(codes + 16, codes + 48), out + 32);
}

static inline void kv_bf16_pair(const uint8_t *codes, float *out)
{
    const __m256i x = kv_both(codes, codes + 64);
    _mm256_store_ps(out, kv_widen_lo(x));
    _mm256_store_ps(out + 8, kv_widen_hi(x));
}

static inline void kv_row_bf16(const kv_source *s, size_t t, float *out)
{
    const uint8_t *codes = s->codes + t * s->code_stride;
    kv_bf16_pair(codes, out);
    kv_bf16_pair(codes + 16, out + 16);
    kv_bf16_pair(codes + 32, out + 32);
    kv_bf16_pair(codes + 48, out + 48);
}

static inline void kv_row_f32(const kv_source *s, size_t t, float *out)
{
    const uint8_t *codes = s->codes + t * s->code_stride;
#define KV_COPY(j)                                                                                 \
    _mm256_store_ps(out + 8 * (j),                                                                 \
                    _mm256_castsi256_ps(kv_both(codes + 16 * (j), codes + 128 + 16 * (j))))
    KV_COPY(0);
    KV_COPY(1);
    KV_COPY(2);
    KV_COPY(3);
    KV_COPY(4);
    KV_COPY(5);
    KV_COPY(6);
    KV_COPY(7);
#undef KV_COPY
}

#endif
