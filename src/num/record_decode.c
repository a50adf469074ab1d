/* record_decode.c - reading a page back as floats.
 *
 * Why decoding is exact: a magnitude of E2M1 or 0..7 has at most 3 significant
 * bits, an E4M3 scale 4, their product 7, an INT8 code 7, and a power of two adds none.  So each
 * product below is exact (in BF16 too) unless it leaves the float range.  That
 * happens upwards only, when the encoder rounded up a value within a fifth of the
 * largest BF16: such values are read as the largest BF16, never as infinity.
 * Downwards the smallest value, 2^-135, is a subnormal float (these occur in
 * tokens whose largest magnitude is under 2^-106).
 * The exceptions: int4, where q * s is exact and the sum with the minimum rounds once, and fixed
 * scales, which are any float, so that the last product rounds once.
 *
 * Every byte decodes to something: scale bytes that stand for NaN give NaN, and
 * nb_record_check_page finds them. */
#include "num/bf16.h"
#include "num/e2m1.h"
#include "num/e4m3.h"
#include "num/int4.h"
#include "num/num_internal.h"
#include "num/record.h"
#include "num/ue8m0.h"

/* Both grids of a block; the second is that of IF4's uniform blocks. */
static const float code_value[2][16] = {
    { 0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6 },
    { 0, 1, 2, 3, 4, 5, 6, 7, -0.0f, -1, -2, -3, -4, -5, -6, -7 },
};

static void zeros(float *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = 0;
}

static void decode_bf16(const uint8_t *codes, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = nb_bf16_to_f32(nb_le16_get(codes + 2 * i));
}

static void decode_e4m3(const uint8_t *codes, size_t n, float scale, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = nb_seg_clip(nb_e4m3_value[codes[i]] * scale);
}

static void decode_int8(const uint8_t *codes, size_t n, float scale, float *out)
{
    for (size_t i = 0; i < n; i++) {
        const int q = codes[i] < 128 ? codes[i] : codes[i] - 256;
        out[i] = nb_seg_clip((float)q * scale);
    }
}

/* (code * block scale) * outer scale, in this order: the first product cannot
 * overflow, so that a zero code stays zero. */
static void decode_nv(const nb_record_seg *g, const uint8_t *codes, const uint8_t *sf,
                      uint8_t outer, float *out)
{
    const float o = nb_seg_factor(g, outer);
    if (outer == 0) {
        zeros(out, g->dim);
        return;
    }
    for (size_t i = 0; i < g->dim; i++) {
        const uint8_t b = sf[i / NB_GROUP_NV];
        const float *value = code_value[g->fmt == NB_SEG_IF4 && b & 0x80];
        out[i] = nb_seg_clip(value[nb_nibble_get(codes, i)] * nb_e4m3_value[b & 0x7f] * o);
    }
}

static void decode_mx(const nb_record_seg *g, const uint8_t *codes, const uint8_t *sf, float *out)
{
    for (size_t i = 0; i < g->dim; i++) {
        const uint8_t b = sf[i / NB_GROUP_MX];
        out[i] = b ? nb_seg_clip(code_value[0][nb_nibble_get(codes, i)] * nb_ue8m0_to_f32(b)) : 0;
    }
}

/* Scales and minima are shared by `per` neighbouring values (1: each its own). */
static void decode_int4(const uint8_t *codes, const uint8_t *scale, const uint8_t *minimum,
                        size_t per, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        const size_t k = i / per;
        out[i] = nb_int4_to_f32(nb_nibble_get(codes, i), nb_fp16_to_f32(nb_le16_get(scale + 2 * k)),
                                nb_fp16_to_f32(nb_le16_get(minimum + 2 * k)));
    }
}

static void decode_ds(const nb_record_seg *g, const uint8_t *codes, const uint8_t *scale,
                      float *out)
{
    for (size_t k = 0; k < g->n_group; k++)
        decode_e4m3(codes + k * NB_GROUP_DS, NB_GROUP_DS,
                    nb_f32_from_bits(nb_le32_get(scale + 4 * k)), out + k * NB_GROUP_DS);
}

static void decode_vec(const nb_record_seg *g, const uint8_t *page, size_t t, size_t v, float *out)
{
    const size_t d = g->dim;
    const uint8_t *codes =
        page + g->code_off + t * g->code_stride + v * nb_seg_code_bytes(g->fmt, d);
    const uint8_t *row = page + g->scale_off;
    const uint8_t *outer = page + g->outer_off + t * g->outer_stride + v;
    row += (g->fmt == NB_SEG_INT4_CH ? t / NB_GROUP_TOK : t) * g->scale_stride;
    switch (g->fmt) {
    case NB_SEG_F32:
        for (size_t i = 0; i < d; i++) out[i] = nb_f32_from_bits(nb_le32_get(codes + 4 * i));
        break;
    case NB_SEG_BF16: decode_bf16(codes, d, out); break;
    case NB_SEG_E4M3:
        if (*outer)
            decode_e4m3(codes, d, nb_seg_factor(g, *outer), out);
        else
            zeros(out, d);
        break;
    case NB_SEG_INT8:
        if (*outer)
            decode_int8(codes, d, nb_ue8m0_to_f32(*outer), out);
        else
            zeros(out, d);
        break;
    case NB_SEG_NVFP4:
    case NB_SEG_IF4: decode_nv(g, codes, row + v * g->n_group, *outer, out); break;
    case NB_SEG_MXFP4: decode_mx(g, codes, row + v * g->n_group, out); break;
    case NB_SEG_INT4_CH:
    case NB_SEG_INT4_TOK:
        row += 2 * v * g->n_group;
        decode_int4(codes, row, row + g->scale_stride / 2,
                    g->fmt == NB_SEG_INT4_CH ? 1 : NB_GROUP_MX, d, out);
        break;
    case NB_SEG_DS_MLA: decode_ds(g, codes, row, out); break;
    }
}

/* The outlier channels of a token stand beside the codes. */
static void decode_side(const nb_record_seg *g, const uint8_t *page, size_t t, float *out)
{
    const uint8_t *side = page + g->side_off + t * g->side_stride;
    for (size_t k = 0; k < g->n_outlier; k++)
        out[g->outlier[k]] = nb_bf16_to_f32(nb_le16_get(side + 2 * k));
}

void nb_record_decode(const nb_record *r, const void *page, size_t s, size_t tok0, size_t n_tok,
                      float *out, size_t out_stride)
{
    const nb_record_seg *g = &r->seg[s];
    for (size_t i = 0; i < n_tok; i++) {
        for (size_t v = 0; v < g->n_vec; v++)
            decode_vec(g, page, tok0 + i, v, out + i * out_stride + v * g->dim);
        decode_side(g, page, tok0 + i, out + i * out_stride);
    }
}
