/* kv_codec_neon.c - reading KV pages, bit for bit as num/record.c; writing them is the portable code.
 *
 * Every small format is turned into FP16 first, because FP16 holds its values exactly, and FCVTL makes
 * floats of it: the magnitudes of E2M1 (and 0..7) differ only in the upper byte of their FP16 code, so
 * that TBL is the table; E4M3 is FP16 with the exponent field shifted, that is the value times 2^-8.
 * One multiplication by the scale follows, which is exact.
 *
 * 16 values of nvfp4: 1 load of codes, AND, SHR, 2 ZIP, TBL, 2 SHLL, 4 FCVTL, 4 FMUL, 2 stores of pairs;
 * the block's scale is a load from a table, a product and a broadcast.  About 22 instructions, 700 per
 * latent of 512: an eighth of the products of 16 heads with it ((2 * 512 + 64) / 4 * 16 FMLA).
 *
 * Rare scales (zero, or so extreme that a product might leave the range of normal floats) are left to
 * nb_record_decode, a token at a time, and so are vectors that are no multiple of 16 values. */
#include "kernel/kv_codec/kv_codec.h"

#include "kernel/arm/vec_neon.h"
#include "num/bf16.h"
#include "num/e4m3.h"
#include "num/fp16.h"

enum { BLOCK = 16, EASY_MIN = 32, EASY_MAX = 224 };

/* Upper bytes of the FP16 codes of the 16 nibbles: E2M1, and uniform steps. */
static const uint8_t half_hi[2][16] = {
    { 0x00, 0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46, 0x80, 0xb8, 0xbc, 0xbe, 0xc0, 0xc2, 0xc4,
      0xc6 },
    { 0x00, 0x3c, 0x40, 0x42, 0x44, 0x45, 0x46, 0x47, 0x80, 0xbc, 0xc0, 0xc2, 0xc4, 0xc5, 0xc6,
      0xc7 },
};

/* 2^(b - 127) times any code and block scale is 0, a NaN or a normal float under the largest BF16. */
static inline bool easy(unsigned b)
{
    return b >= EASY_MIN && b <= EASY_MAX;
}

static inline uint8x16_t nibbles16(const uint8_t *codes)
{
    const uint8x8_t v = vld1_u8(codes), lo = vand_u8(v, vdup_n_u8(15)), hi = vshr_n_u8(v, 4);
    return vcombine_u8(vzip1_u8(lo, hi), vzip2_u8(lo, hi));
}

/* 8 FP16 numbers times s. */
static inline void put8(uint16x8_t half, float s, float *out)
{
    const float16x8_t h = vreinterpretq_f16_u16(half);
    vst1q_f32(out, vmulq_n_f32(vcvt_f32_f16(vget_low_f16(h)), s));
    vst1q_f32(out + 4, vmulq_n_f32(vcvt_high_f32_f16(h), s));
}

static inline void fp4_block(const uint8_t *codes, uint8x16_t table, float s, float *out)
{
    const uint8x16_t h = vqtbl1q_u8(table, nibbles16(codes));
    put8(vshll_n_u8(vget_low_u8(h), 8), s, out);
    put8(vshll_high_n_u8(h, 8), s, out + 8);
}

/* E4M3 codes in 16 bits as FP16, times 2^-8. */
static inline uint16x8_t e4m3_half(uint16x8_t v)
{
    const uint16x8_t mag = vandq_u16(v, vdupq_n_u16(0x7f));
    const uint16x8_t sign = vshlq_n_u16(vbicq_u16(v, vdupq_n_u16(0x7f)), 8);
    const uint16x8_t nan = vceqq_u16(mag, vdupq_n_u16(NB_E4M3_NAN));
    const uint16x8_t m = vbslq_u16(nan, vdupq_n_u16(0x7e00), vshlq_n_u16(mag, 7));
    return vorrq_u16(m, sign);
}

static void e4m3_values(const uint8_t *codes, size_t n, float scale, float *out)
{
    for (size_t i = 0; i < n; i += BLOCK) {
        const uint8x16_t v = vld1q_u8(codes + i);
        put8(e4m3_half(vmovl_u8(vget_low_u8(v))), scale * 256, out + i);
        put8(e4m3_half(vmovl_high_u8(v)), scale * 256, out + i + 8);
    }
}

static inline void put_int8(int16x8_t v, float s, float *out)
{
    vst1q_f32(out, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), s));
    vst1q_f32(out + 4, vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(v)), s));
}

static void int8_values(const uint8_t *codes, size_t n, float scale, float *out)
{
    for (size_t i = 0; i < n; i += BLOCK) {
        const int8x16_t v = vreinterpretq_s8_u8(vld1q_u8(codes + i));
        put_int8(vmovl_s8(vget_low_s8(v)), scale, out + i);
        put_int8(vmovl_high_s8(v), scale, out + i + 8);
    }
}

static void bf16_values(const uint8_t *codes, size_t n, float *out)
{
    for (size_t i = 0; i < n; i += 8) {
        const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(codes + 2 * i));
        vst1q_f32(out + i, vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)));
        vst1q_f32(out + i + 4, vreinterpretq_f32_u32(vshll_high_n_u16(v, 16)));
    }
}

/* ---- one vector; false: the scales are not easy, nothing is promised about out ---- */

static bool nv_vec(const nb_record_seg *g, const uint8_t *codes, const uint8_t *sf, unsigned outer,
                   float *out)
{
    if (!easy(outer)) return false;
    const bool fixed = g->fixed_scale != 0; /* no power of two: it rounds, so it comes last */
    const float o = fixed ? 1 : nb_f32_pow2((int)outer - 127);
    const uint8x16_t e2m1 = vld1q_u8(half_hi[0]), steps = vld1q_u8(half_hi[1]);
    const unsigned int_bit = g->fmt == NB_SEG_IF4 ? 0x80 : 0;
    for (size_t k = 0; k < g->n_group; k++)
        fp4_block(codes + k * (BLOCK / 2), sf[k] & int_bit ? steps : e2m1,
                  nb_e4m3_value[sf[k] & 0x7f] * o, out + k * BLOCK);
    for (size_t i = 0; fixed && i < g->dim; i++) out[i] *= g->fixed_scale;
    return true;
}

static bool mx_vec(const nb_record_seg *g, const uint8_t *codes, const uint8_t *sf, float *out)
{
    const uint8x16_t e2m1 = vld1q_u8(half_hi[0]);
    for (size_t i = 0; i < g->dim; i += BLOCK) {
        if (!easy(sf[i / 32])) return false;
        fp4_block(codes + i / 2, e2m1, nb_f32_pow2(sf[i / 32] - 127), out + i);
    }
    return true;
}

/* q * s is exact, so that one multiplication and one addition round once. */
static void int4_ch_values(const uint8_t *codes, const uint8_t *scale, const uint8_t *minimum,
                           size_t n, float *out)
{
    for (size_t i = 0; i < n; i += 8) {
        uint8_t c[8] = { 0 };
        memcpy(c, codes + i / 2, 4);
        const uint16x8_t q = vmovl_u8(vget_low_u8(nibbles16(c)));
        const float16x8_t s = vreinterpretq_f16_u8(vld1q_u8(scale + 2 * i));
        const float16x8_t m = vreinterpretq_f16_u8(vld1q_u8(minimum + 2 * i));
        const float32x4_t a = vcvtq_f32_u32(vmovl_u16(vget_low_u16(q)));
        const float32x4_t b = vcvtq_f32_u32(vmovl_high_u16(q));
        vst1q_f32(out + i, vaddq_f32(vmulq_f32(a, vcvt_f32_f16(vget_low_f16(s))),
                                     vcvt_f32_f16(vget_low_f16(m))));
        vst1q_f32(out + i + 4, vaddq_f32(vmulq_f32(b, vcvt_high_f32_f16(s)), vcvt_high_f32_f16(m)));
    }
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
    const uint8_t outer = page[g->outer_off + t * g->outer_stride + v];
    const size_t d = g->dim;
    row += (g->fmt == NB_SEG_INT4_CH ? t / 32 : t) * g->scale_stride;
    if (d % BLOCK != 0) return false;
    switch (g->fmt) {
    case NB_SEG_F32: memcpy(out, codes + v * 4 * d, 4 * d); return true; /* little-endian */
    case NB_SEG_BF16: bf16_values(codes + v * 2 * d, d, out); return true;
    case NB_SEG_E4M3:
        if (!easy(outer)) return false;
        e4m3_values(codes + v * d, d,
                    g->fixed_scale != 0 ? g->fixed_scale : nb_f32_pow2(outer - 127), out);
        return true;
    case NB_SEG_INT8:
        if (!easy(outer)) return false;
        int8_values(codes + v * d, d, nb_f32_pow2(outer - 127), out);
        return true;
    case NB_SEG_NVFP4:
    case NB_SEG_IF4: return nv_vec(g, codes + v * (d / 2), row + v * g->n_group, outer, out);
    case NB_SEG_MXFP4: return mx_vec(g, codes + v * (d / 2), row + v * g->n_group, out);
    case NB_SEG_INT4_CH:
        row += 2 * v * g->n_group;
        int4_ch_values(codes + v * (d / 2), row, row + g->scale_stride / 2, d, out);
        return true;
    case NB_SEG_DS_MLA: return ds_vec(g, codes, row, out);
    default: return false; /* the portable code reads it */
    }
}

void nb_kv_decode_neon(const nb_record *r, const void *page, size_t s, size_t tok0, size_t n_tok,
                       float *out, size_t out_stride)
{
    const nb_record_seg *g = &r->seg[s];
    for (size_t i = 0; i < n_tok; i++, out += out_stride) {
        bool done = true;
        for (size_t v = 0; v < g->n_vec && done; v++)
            done = decode_vec(g, page, tok0 + i, v, out + v * g->dim);
        if (!done) {
            nb_record_decode(r, page, s, tok0 + i, 1, out, out_stride);
            continue;
        }
        const uint8_t *side = (const uint8_t *)page + g->side_off + (tok0 + i) * g->side_stride;
        for (size_t k = 0; k < g->n_outlier; k++)
            out[g->outlier[k]] = nb_bf16_to_f32(nb_le16_get(side + 2 * k));
    }
}
