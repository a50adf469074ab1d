/* kv_codec_avx2.c - reading KV pages with AVX2 and F16C, bit for bit as num/record.c.
 *
 * Every small format is turned into FP16 first, because FP16 holds its values
 * exactly and vcvtph2ps knows subnormals whatever MXCSR says: the magnitudes of
 * E2M1 (and 0..7) differ only in the upper byte of their FP16 code, so a byte
 * shuffle is the table; E4M3 is FP16 with the exponent field shifted, that is the
 * value times 2^-8.  One multiplication by the scale follows, which is exact.
 *
 * Rare scales (zero, or so extreme that a product might leave the range of normal
 * floats) are left to nb_record_decode, a token at a time.  Blocks are 16 values;
 * a shorter last block goes through small copies, so that nothing outside the row
 * is read or written. */
#include "kernel/kv_codec/kv_codec.h"

#include "kernel/x86/kv_block_avx2.h"
#include "num/e4m3.h"
#include "num/fp16.h"

/* Upper bytes of the FP16 codes of the 16 nibbles: E2M1, and uniform steps. */
static const uint8_t half_hi[2][16] = {
    { 0x00, 0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46, 0x80, 0xb8, 0xbc, 0xbe, 0xc0, 0xc2, 0xc4,
      0xc6 },
    { 0x00, 0x3c, 0x40, 0x42, 0x44, 0x45, 0x46, 0x47, 0x80, 0xbc, 0xc0, 0xc2, 0xc4, 0xc5, 0xc6,
      0xc7 },
};

static inline void fp4_block(const uint8_t *codes, __m128i table, __m256 s, float *out)
{
    const __m128i h = _mm_shuffle_epi8(table, nibbles16(codes)), zero = _mm_setzero_si128();
    const __m256 a = _mm256_cvtph_ps(_mm_unpacklo_epi8(zero, h));
    const __m256 b = _mm256_cvtph_ps(_mm_unpackhi_epi8(zero, h));
    _mm256_storeu_ps(out, _mm256_mul_ps(a, s));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(b, s));
}

static inline void fp4_values(const uint8_t *codes, size_t n, __m128i table, __m256 s, float *out)
{
    if (n >= BLOCK) {
        fp4_block(codes, table, s, out);
    } else {
        uint8_t c[BLOCK / 2] = { 0 };
        float o[BLOCK];
        memcpy(c, codes, (n + 1) / 2);
        fp4_block(c, table, s, o);
        memcpy(out, o, n * sizeof *o);
    }
}

/* s: 2^8 times the scale. */
static inline void e4m3_block(const uint8_t *codes, __m256 s, float *out)
{
    const __m256i v = _mm256_cvtepu8_epi16(load16(codes));
    const __m256i mag = _mm256_and_si256(v, _mm256_set1_epi16(0x7f));
    const __m256i sign = _mm256_slli_epi16(_mm256_andnot_si256(_mm256_set1_epi16(0x7f), v), 8);
    const __m256i nan = _mm256_cmpeq_epi16(mag, _mm256_set1_epi16(NB_E4M3_NAN));
    const __m256i m = _mm256_blendv_epi8(_mm256_slli_epi16(mag, 7), _mm256_set1_epi16(0x7e00), nan);
    const __m256i h = _mm256_or_si256(m, sign);
    const __m256 a = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
    const __m256 b = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
    _mm256_storeu_ps(out, _mm256_mul_ps(a, s));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(b, s));
}

static void e4m3_values(const uint8_t *codes, size_t n, float scale, float *out)
{
    const __m256 s = _mm256_set1_ps(scale * 256);
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) e4m3_block(codes + i, s, out + i);
    if (i < n) {
        uint8_t c[BLOCK] = { 0 };
        float o[BLOCK];
        memcpy(c, codes + i, n - i);
        e4m3_block(c, s, o);
        memcpy(out + i, o, (n - i) * sizeof *o);
    }
}

/* code * scale is exact. */
static inline void int8_block(const uint8_t *codes, __m256 s, float *out)
{
    const __m128i v = load16(codes);
    const __m256 a = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
    const __m256 b = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)));
    _mm256_storeu_ps(out, _mm256_mul_ps(a, s));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(b, s));
}

static void int8_values(const uint8_t *codes, size_t n, float scale, float *out)
{
    const __m256 s = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) int8_block(codes + i, s, out + i);
    if (i < n) {
        uint8_t c[BLOCK] = { 0 };
        float o[BLOCK];
        memcpy(c, codes + i, n - i);
        int8_block(c, s, o);
        memcpy(out + i, o, (n - i) * sizeof *o);
    }
}

static inline void bf16_block(const uint8_t *codes, float *out)
{
    const __m256i v = _mm256_cvtepu16_epi32(load16(codes));
    _mm256_storeu_ps(out, _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)));
}

static void bf16_values(const uint8_t *codes, size_t n, float *out)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) bf16_block(codes + 2 * i, out + i);
    if (i < n) {
        uint8_t c[16] = { 0 };
        float o[8];
        memcpy(c, codes + 2 * i, 2 * (n - i));
        bf16_block(c, o);
        memcpy(out + i, o, (n - i) * sizeof *o);
    }
}

/* q * s is exact, so that one multiplication and one addition round once. */
static inline void int4_block(const uint8_t *codes, __m256 s0, __m256 s1, __m256 m0, __m256 m1,
                              float *out)
{
    const __m128i q = nibbles16(codes);
    const __m256 a = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(q));
    const __m256 b = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(q, 8)));
    _mm256_storeu_ps(out, _mm256_add_ps(_mm256_mul_ps(a, s0), m0));
    _mm256_storeu_ps(out + 8, _mm256_add_ps(_mm256_mul_ps(b, s1), m1));
}

static void int4_ch_block(const uint8_t *codes, const uint8_t *scale, const uint8_t *minimum,
                          float *out)
{
    int4_block(codes, _mm256_cvtph_ps(load16(scale)), _mm256_cvtph_ps(load16(scale + 16)),
               _mm256_cvtph_ps(load16(minimum)), _mm256_cvtph_ps(load16(minimum + 16)), out);
}

static void int4_ch_values(const uint8_t *codes, const uint8_t *scale, const uint8_t *minimum,
                           size_t n, float *out)
{
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        int4_ch_block(codes + i / 2, scale + 2 * i, minimum + 2 * i, out + i);
    if (i < n) {
        uint8_t c[BLOCK / 2] = { 0 }, s[2 * BLOCK] = { 0 }, m[2 * BLOCK] = { 0 };
        float o[BLOCK];
        memcpy(c, codes + i / 2, (n - i + 1) / 2);
        memcpy(s, scale + 2 * i, 2 * (n - i));
        memcpy(m, minimum + 2 * i, 2 * (n - i));
        int4_ch_block(c, s, m, o);
        memcpy(out + i, o, (n - i) * sizeof *o);
    }
}

static void int4_tok_values(const uint8_t *codes, const uint8_t *scale, const uint8_t *minimum,
                            size_t n, float *out)
{
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t k = i / 32;
        const __m256 s = _mm256_set1_ps(nb_fp16_to_f32(nb_le16_get(scale + 2 * k)));
        const __m256 m = _mm256_set1_ps(nb_fp16_to_f32(nb_le16_get(minimum + 2 * k)));
        if (n - i >= BLOCK) {
            int4_block(codes + i / 2, s, s, m, m, out + i);
        } else {
            uint8_t c[BLOCK / 2] = { 0 };
            float o[BLOCK];
            memcpy(c, codes + i / 2, (n - i + 1) / 2);
            int4_block(c, s, s, m, m, o);
            memcpy(out + i, o, (n - i) * sizeof *o);
        }
    }
}

/* ---- one vector; false: the scales are not easy, nothing is promised about out ---- */

/* A fixed scale is no power of two: the block scale first, then it, as the portable code. */
static void nv_vec_fixed(const nb_record_seg *g, const uint8_t *codes, const uint8_t *sf,
                         float *out)
{
    const __m128i table = load16(half_hi[0]);
    for (size_t k = 0; k < g->n_group; k++)
        fp4_values(codes + k * (BLOCK / 2), g->dim - k * BLOCK, table,
                   _mm256_set1_ps(nb_e4m3_value[sf[k] & 0x7f]), out + k * BLOCK);
    for (size_t i = 0; i < g->dim; i++) out[i] *= g->fixed_scale;
}

static bool nv_vec(const nb_record_seg *g, const uint8_t *codes, const uint8_t *sf, unsigned outer,
                   float *out)
{
    if (!easy(outer)) return false;
    if (g->fixed_scale != 0) {
        nv_vec_fixed(g, codes, sf, out);
        return true;
    }
    const float o = nb_f32_pow2((int)outer - 127);
    const unsigned int_bit = g->fmt == NB_SEG_IF4 ? 0x80 : 0;
    for (size_t k = 0; k < g->n_group; k++) {
        const __m128i table = load16(half_hi[(sf[k] & int_bit) != 0]);
        const __m256 s = _mm256_set1_ps(nb_e4m3_value[sf[k] & 0x7f] * o);
        fp4_values(codes + k * (BLOCK / 2), g->dim - k * BLOCK, table, s, out + k * BLOCK);
    }
    return true;
}

static bool mx_vec(const nb_record_seg *g, const uint8_t *codes, const uint8_t *sf, float *out)
{
    const __m128i table = load16(half_hi[0]);
    for (size_t i = 0; i < g->dim; i += BLOCK) {
        if (!easy(sf[i / 32])) return false;
        fp4_values(codes + i / 2, g->dim - i, table, _mm256_set1_ps(nb_f32_pow2(sf[i / 32] - 127)),
                   out + i);
    }
    return true;
}

static bool ds_vec(const nb_record_seg *g, const uint8_t *codes, const uint8_t *scale, float *out)
{
    for (size_t k = 0; k < g->n_group; k++) {
        const uint32_t u = nb_le32_get(scale + 4 * k);
        if ((u & 0x807fffffu) != 0 || !easy(u >> 23)) return false;
        e4m3_values(codes + k * 128, 128, nb_f32_from_bits(u), out + k * 128);
    }
    return true;
}

static bool decode_vec(const nb_record_seg *g, const uint8_t *page, size_t t, size_t v, float *out)
{
    const uint8_t *codes = page + g->code_off + t * g->code_stride;
    const uint8_t *row = page + g->scale_off;
    const uint8_t *outer = page + g->outer_off + t * g->outer_stride + v;
    const size_t d = g->dim, half = (d + 1) / 2;
    row += (g->fmt == NB_SEG_INT4_CH ? t / 32 : t) * g->scale_stride;
    switch (g->fmt) {
    case NB_SEG_F32: memcpy(out, codes + v * 4 * d, 4 * d); return true; /* little-endian */
    case NB_SEG_BF16: bf16_values(codes + v * 2 * d, d, out); return true;
    case NB_SEG_E4M3:
        if (!easy(*outer)) return false;
        e4m3_values(codes + v * d, d,
                    g->fixed_scale != 0 ? g->fixed_scale : nb_f32_pow2(*outer - 127), out);
        return true;
    case NB_SEG_INT8:
        if (!easy(*outer)) return false;
        int8_values(codes + v * d, d, nb_f32_pow2(*outer - 127), out);
        return true;
    case NB_SEG_NVFP4:
    case NB_SEG_IF4: return nv_vec(g, codes + v * half, row + v * g->n_group, *outer, out);
    case NB_SEG_MXFP4: return mx_vec(g, codes + v * half, row + v * g->n_group, out);
    case NB_SEG_INT4_CH:
    case NB_SEG_INT4_TOK:
        row += 2 * v * g->n_group;
        (g->fmt == NB_SEG_INT4_CH ? int4_ch_values : int4_tok_values)(
            codes + v * half, row, row + g->scale_stride / 2, d, out);
        return true;
    case NB_SEG_DS_MLA: return ds_vec(g, codes, row, out);
    default: return false; /* the portable code reads it */
    }
}

void nb_kv_decode_avx2(const nb_record *r, const void *page, size_t s, size_t tok0, size_t n_tok,
                       float *out, size_t out_stride)
{
    const nb_record_seg *g = &r->seg[s];
    for (size_t i = 0; i < n_tok; i++, out += out_stride) {
        bool done = true;
        for (size_t v = 0; v < g->n_vec && done; v++)
            done = decode_vec(g, page, tok0 + i, v, out + v * g->dim);
        if (!done) nb_record_decode(r, page, s, tok0 + i, 1, out, out_stride);
        fix_outliers(g, page, tok0 + i, out);
    }
}
