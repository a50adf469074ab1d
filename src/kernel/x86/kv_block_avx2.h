/* kv_block_avx2.h - what the files about KV pages share: 16 values at a time.
 *
 * Values are scaled by moving exponents.  A BF16 subnormal, or a value that underflows, becomes 0
 * in the fast path, which is taken only where such values lie so far under every threshold that
 * no byte depends on them. */
#ifndef NB_KERNEL_KV_BLOCK_AVX2_H
#define NB_KERNEL_KV_BLOCK_AVX2_H
#include <immintrin.h>
#include <string.h>

#include "num/bf16.h"
#include "num/record.h"
#include "num/ue8m0.h"

enum {
    BLOCK = 16,
    EASY_MIN = 40, /* UE8M0 scales from 2^-87 to 2^83 make no product subnormal or infinite, and */
    EASY_MAX = 210 /* from EASY_MIN on subnormal inputs are under 2^-39 when scaled              */
};

/* 16 values: magnitudes in the normalised domain, and the input bits. */
typedef struct block {
    __m256 ax0, ax1;
    __m256i x;
} block;

static inline int easy(unsigned b)
{
    return b >= EASY_MIN && b <= EASY_MAX;
}

static inline __m128i load16(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

/* 8 bytes: 16 nibbles in element order, one per byte. */
static inline __m128i nibbles16(const uint8_t *codes)
{
    const __m128i v = _mm_loadl_epi64((const __m128i *)codes), low = _mm_set1_epi8(15);
    return _mm_unpacklo_epi8(_mm_and_si128(v, low), _mm_and_si128(_mm_srli_epi16(v, 4), low));
}

/* The reverse, from 16 lanes of 0..15 in two vectors: 8 bytes, n values of them stored. */
static inline void put_nibbles(__m256i k0, __m256i k1, size_t n, uint8_t *codes)
{
    /* 32 -> 16 bits packs within halves; the permutation puts them in order again. */
    const __m256i c = _mm256_permute4x64_epi64(_mm256_packus_epi32(k0, k1), 0xd8);
    const __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));
    const __m128i pairs = _mm_maddubs_epi16(bytes, _mm_set1_epi16(0x1001)); /* low + 16 high */
    uint8_t out[16];
    _mm_storeu_si128((__m128i *)out, _mm_packus_epi16(pairs, pairs));
    memcpy(codes, out, n >= BLOCK ? BLOCK / 2 : (n + 1) / 2);
}

static inline __m256i load_x(const uint16_t *x, size_t n)
{
    uint16_t t[BLOCK] = { 0 };
    if (n >= BLOCK) return _mm256_loadu_si256((const __m256i *)x);
    memcpy(t, x, n * sizeof *t);
    return _mm256_loadu_si256((const __m256i *)t);
}

static inline __m256i magnitude(__m256i x)
{
    return _mm256_and_si256(x, _mm256_set1_epi16(NB_BF16_MAG));
}

/* Eight BF16 magnitudes as the bits of floats. */
static inline __m256i widen8(__m128i mag)
{
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(mag), 16);
}

/* |x| * 2^p for eight values. */
static inline __m256 scale8(__m128i mag, int p)
{
    const __m256i bits = widen8(mag);
    const __m256i ex = _mm256_srli_epi32(bits, 23), zero = _mm256_setzero_si256();
    const __m256i ok = _mm256_and_si256(_mm256_cmpgt_epi32(ex, zero),
                                        _mm256_cmpgt_epi32(ex, _mm256_set1_epi32(-p)));
    const __m256i moved = _mm256_add_epi32(bits, _mm256_set1_epi32(p * (1 << 23)));
    return _mm256_castsi256_ps(_mm256_and_si256(moved, ok));
}

/* Saturated quotients by a fixed scale: correctly rounded, as the portable encoder's. */
static inline __m256 quotient8(__m128i mag, const nb_record_seg *g)
{
    const __m256 q =
        _mm256_div_ps(_mm256_castsi256_ps(widen8(mag)), _mm256_set1_ps(g->fixed_scale));
    return _mm256_min_ps(q, _mm256_set1_ps(g->fmt == NB_SEG_E4M3 ? 448.0f : 2688.0f));
}

/* n > 0 values (those over 16 are left out) of a vector whose scale byte is `scale`. */
static inline block make_block(const nb_record_seg *g, const uint16_t *x, size_t n, unsigned scale)
{
    block b;
    const int p = NB_UE8M0_ONE - (int)scale;
    b.x = load_x(x, n);
    const __m256i m = magnitude(b.x);
    const __m128i m0 = _mm256_castsi256_si128(m), m1 = _mm256_extracti128_si256(m, 1);
    if (g->fixed_scale != 0) {
        b.ax0 = quotient8(m0, g);
        b.ax1 = quotient8(m1, g);
    } else if (scale >= EASY_MIN) {
        b.ax0 = scale8(m0, p);
        b.ax1 = scale8(m1, p);
    } else {
        float ax[BLOCK] = { 0 };
        for (size_t i = 0; i < BLOCK && i < n; i++) ax[i] = nb_bf16_mag_scaled(x[i], p);
        b.ax0 = _mm256_loadu_ps(ax);
        b.ax1 = _mm256_loadu_ps(ax + 8);
    }
    return b;
}

/* The outlier channels of a decoded token stand beside the codes. */
static inline void fix_outliers(const nb_record_seg *g, const uint8_t *page, size_t t, float *out)
{
    const uint8_t *side = page + g->side_off + t * g->side_stride;
    for (size_t k = 0; k < g->n_outlier; k++)
        out[g->outlier[k]] = nb_bf16_to_f32(nb_le16_get(side + 2 * k));
}

#endif
