/* record_encode.c - filling a page: the normative encoder.
 *
 * Everything is decided in a normalised domain: a vector's values are divided by
 * a power of two (its outer scale), which moves exponents and rounds nothing.
 * Values that underflow a float there are smaller than any threshold, so it does
 * not matter what becomes of them.  Codes come from comparing |x| with products
 * of a scale (<= 4 significant bits) and a midpoint (<= 3 bits), which are exact;
 * no division takes part (but for a fixed scale, where a correctly rounded quotient takes the
 * place of the power of two).  The only rounded operations are the squares and sums
 * of the candidates' errors, taken in element order in single precision (built
 * with -ffp-contract=off: a fused multiply-add would change them). */
#include <string.h>

#include "num/bf16.h"
#include "num/e2m1.h"
#include "num/e4m3.h"
#include "num/int4.h"
#include "num/num_internal.h"
#include "num/record.h"
#include "num/ue8m0.h"

static bool all_finite(const nb_record *r, const uint16_t *const x[2], const size_t x_stride[2])
{
    unsigned bad = 0;
    for (size_t s = 0; s < r->n_seg; s++) {
        const size_t n = r->seg[s].n_vec * r->seg[s].dim;
        for (size_t t = 0; t < NB_PAGE_TOK; t++) {
            const uint16_t *row = x[s] + t * x_stride[s];
            /* The carry into bit 15 marks an exponent of all ones. */
            for (size_t i = 0; i < n; i++) bad |= (row[i] & NB_BF16_MAG) + 0x80u;
        }
    }
    return (bad & 0x8000u) == 0;
}

/* One vector of a token: its values in pieces, with zeros where the outlier channels are. */
typedef struct vec {
    const nb_record_seg *g;
    const uint16_t *x; /* [g->dim] */
    size_t place;      /* of x[0] among the token's values */
} vec;

enum { PIECE = NB_GROUP_DS }; /* the most values asked for at once */

/* Values i..i + n - 1 of the vector, n <= PIECE: themselves, or a copy in buf. */
static const uint16_t *values(const vec *v, size_t i, size_t n, uint16_t *buf)
{
    const nb_record_seg *g = v->g;
    if (g->n_outlier == 0) return v->x + i;
    memcpy(buf, v->x + i, n * sizeof *buf);
    for (size_t k = 0; k < g->n_outlier; k++) {
        const size_t at = (size_t)g->outlier[k] - (v->place + i); /* wraps when before */
        if (at < n) buf[at] = 0;
    }
    return buf;
}

/* Largest magnitude, as BF16 bits. */
static uint16_t amax_bits(const uint16_t *x, size_t n)
{
    unsigned a = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned m = x[i] & NB_BF16_MAG;
        if (m > a) a = m;
    }
    return (uint16_t)a;
}

static uint16_t vec_amax_bits(const vec *v)
{
    uint16_t buf[PIECE], a = 0;
    for (size_t i = 0; i < v->g->dim; i += PIECE) {
        const size_t n = v->g->dim - i < PIECE ? v->g->dim - i : PIECE;
        const uint16_t m = amax_bits(values(v, i, n, buf), n);
        if (m > a) a = m;
    }
    return a;
}

static float with_sign(float mag, uint16_t b)
{
    return b & 0x8000 ? -mag : mag;
}

static void encode_bf16(const uint16_t *x, size_t n, uint8_t *codes)
{
    for (size_t i = 0; i < n; i++) nb_le16_put(codes + 2 * i, x[i]);
}

/* ---- E4M3 with one outer scale ---- */

/* The outer byte of a vector with largest magnitude a > 0: the least power of two over
 * a / (t * 2^(shift - 7)), or the mark that a fixed scale holds. */
static uint8_t outer_byte(const nb_record_seg *g, uint16_t a, unsigned t, int shift)
{
    if (g->fixed_scale != 0) return NB_UE8M0_ONE;
    return nb_ue8m0_from_exp(nb_bf16_ceil_log2(a, t) - shift, NB_OUTER_MIN, NB_OUTER_MAX);
}

static void encode_e4m3(const vec *v, uint8_t *codes, uint8_t *outer)
{
    uint16_t buf[PIECE];
    const uint16_t a = vec_amax_bits(v);
    if (a == 0) return; /* the page is zero already */
    *outer = outer_byte(v->g, a, 224, 8);
    for (size_t at = 0; at < v->g->dim; at += PIECE) {
        const size_t n = v->g->dim - at < PIECE ? v->g->dim - at : PIECE;
        const uint16_t *x = values(v, at, n, buf);
        for (size_t i = 0; i < n; i++)
            codes[at + i] = nb_e4m3_from_f32(with_sign(nb_seg_mag(v->g, x[i], *outer), x[i]));
    }
}

/* ---- 8-bit integers with one outer scale ---- */

/* v in 0..127 to the nearest integer, ties to even; the difference is exact. */
static int round_even(float v)
{
    const int q = (int)v;
    const float rest = v - (float)q;
    return q + (rest > .5f || (rest == .5f && q % 2 == 1));
}

static void encode_int8(const vec *v, uint8_t *codes, uint8_t *outer)
{
    uint16_t buf[PIECE];
    const uint16_t a = vec_amax_bits(v);
    if (a == 0) return;
    *outer = outer_byte(v->g, a, 254, 6); /* 127 = 254 / 128 * 2^6 */
    for (size_t at = 0; at < v->g->dim; at += PIECE) {
        const size_t n = v->g->dim - at < PIECE ? v->g->dim - at : PIECE;
        const uint16_t *x = values(v, at, n, buf);
        for (size_t i = 0; i < n; i++) {
            const int q = round_even(nb_seg_mag(v->g, x[i], *outer));
            codes[at + i] = (uint8_t)(x[i] & 0x8000 ? -q : q);
        }
    }
}

/* ---- 4-bit codes with a scale per block ---- */

/* A grid of eight magnitudes: the steps between them and the midpoints. */
typedef struct grid {
    float step[7], bound[7];
} grid;
static const grid grid_fp = { { .5f, .5f, .5f, .5f, 1, 1, 2 },
                              { .25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f } };
static const grid grid_int = { { 1, 1, 1, 1, 1, 1, 1 },
                               { .5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f, 6.5f } };

/* One block; absent values are 0 and then add exactly nothing to an error. */
typedef struct block {
    float ax[NB_GROUP_NV]; /* |x| in the normalised domain */
    float best;            /* error of the best candidate so far; < 0: none */
    uint8_t sf;            /* its scale byte                */
} block;

/* Sum of squared errors of the nearest grid points at scale s > 0. */
static float block_error(const float *ax, const grid *g, float s)
{
    float q[NB_GROUP_NV] = { 0 }, e = 0;
    for (unsigned j = 0; j < 7; j++) {
        const float b = s * g->bound[j], step = s * g->step[j];
        if (j & 1) /* a tie goes to the even magnitude j + 1 */
            for (unsigned i = 0; i < NB_GROUP_NV; i++) q[i] += ax[i] >= b ? step : 0;
        else
            for (unsigned i = 0; i < NB_GROUP_NV; i++) q[i] += ax[i] > b ? step : 0;
    }
    for (unsigned i = 0; i < NB_GROUP_NV; i++) q[i] = (ax[i] - q[i]) * (ax[i] - q[i]);
    for (unsigned i = 0; i < NB_GROUP_NV; i++) e += q[i];
    return e;
}

/* Indices of the nearest grid points at scale s > 0. */
static void block_index(const float *ax, const grid *g, float s, uint32_t *k)
{
    for (unsigned i = 0; i < NB_GROUP_NV; i++) k[i] = 0;
    for (unsigned j = 0; j < 7; j++) {
        const float b = s * g->bound[j];
        if (j & 1)
            for (unsigned i = 0; i < NB_GROUP_NV; i++) k[i] += ax[i] >= b;
        else
            for (unsigned i = 0; i < NB_GROUP_NV; i++) k[i] += ax[i] > b;
    }
}

/* Tries scale code c (0..126): strictly less error replaces. */
static void try_scale(block *b, int c, bool is_int)
{
    float e = 0;
    if (c == 0)
        for (unsigned i = 0; i < NB_GROUP_NV; i++) e += b->ax[i] * b->ax[i];
    else
        e = block_error(b->ax, is_int ? &grid_int : &grid_fp, nb_e4m3_value[c]);
    if (b->best < 0 || e < b->best) {
        b->best = e;
        b->sf = (uint8_t)(c | (is_int ? 0x80 : 0));
    }
}

static void search_scale(block *b, int centre, const signed char *delta, size_t n, bool is_int)
{
    for (size_t i = 0; i < n; i++) {
        const int c = centre + delta[i];
        if (c >= 1 && c <= NB_E4M3_MAX) try_scale(b, c, is_int);
    }
}

/* a > 0: the block's largest magnitude in the normalised domain. */
static void choose_scale(block *b, float a, nb_kv_mode mode, bool with_int)
{
    static const signed char fp[] = { 0, -1, 1, -2, 2, -3, 3, 4, 5, 6 }, in[] = { 0, -1, 1 };
    const int c6 = nb_e4m3_quotient(a, 6);
    b->best = -1;
    b->sf = 0;
    if (mode == NB_KV_SEARCH) {
        search_scale(b, c6, fp, sizeof fp, false);
        if (with_int) search_scale(b, nb_e4m3_quotient(a, 7), in, sizeof in, true);
        return;
    }
    try_scale(b, c6, false);
    if (mode == NB_KV_4OVER6) try_scale(b, nb_e4m3_quotient(a, 4), false);
    if (with_int) try_scale(b, nb_e4m3_quotient(a, 7), true);
}

/* n <= 16 values into n nibbles; -0 is never written, nor anything at scale 0. */
static void put_codes(const uint16_t *x, const float *ax, size_t n, const grid *g, float s,
                      uint8_t *codes)
{
    uint32_t k[NB_GROUP_NV];
    if (s == 0) return;
    block_index(ax, g, s, k);
    for (size_t i = 0; i < n; i++)
        nb_nibble_or(codes, i, (uint8_t)(k[i] | (k[i] != 0 ? x[i] >> 12 & 8 : 0)));
}

static void encode_nv(const nb_record *r, const vec *v, uint8_t *codes, uint8_t *sf, uint8_t *outer)
{
    const nb_record_seg *g = v->g;
    const uint16_t a = vec_amax_bits(v);
    if (a == 0) return;
    *outer = outer_byte(g, a, 192, 10);
    for (size_t k = 0; k < g->n_group; k++) {
        uint16_t buf[NB_GROUP_NV];
        const size_t at = k * NB_GROUP_NV;
        const size_t n = g->dim - at < NB_GROUP_NV ? g->dim - at : NB_GROUP_NV;
        const uint16_t *x = values(v, at, n, buf), ga = amax_bits(x, n);
        if (ga == 0) continue;
        block b = { .best = -1 };
        for (size_t i = 0; i < n; i++) b.ax[i] = nb_seg_mag(g, x[i], *outer);
        choose_scale(&b, nb_seg_mag(g, ga, *outer), r->mode, g->fmt == NB_SEG_IF4);
        sf[k] = b.sf;
        put_codes(x, b.ax, n, b.sf & 0x80 ? &grid_int : &grid_fp, nb_e4m3_value[b.sf & 0x7f],
                  codes + at / 2);
    }
}

static void encode_mx(const vec *v, uint8_t *codes, uint8_t *sf)
{
    const nb_record_seg *g = v->g;
    for (size_t k = 0; k < g->n_group; k++) {
        uint16_t buf[NB_GROUP_MX];
        const size_t at = k * NB_GROUP_MX;
        const size_t n = g->dim - at < NB_GROUP_MX ? g->dim - at : NB_GROUP_MX;
        const uint16_t *x = values(v, at, n, buf), a = amax_bits(x, n);
        if (a == 0) continue;
        sf[k] = nb_ue8m0_from_exp(nb_bf16_ceil_log2(a, 192) - 2, NB_OUTER_MIN, NB_OUTER_MAX);
        for (size_t h = 0; h < n; h += NB_GROUP_NV) {
            float ax[NB_GROUP_NV] = { 0 };
            const size_t m = n - h < NB_GROUP_NV ? n - h : NB_GROUP_NV;
            for (size_t i = 0; i < m; i++)
                ax[i] = nb_bf16_mag_scaled(x[h + i], NB_UE8M0_ONE - sf[k]);
            put_codes(x + h, ax, m, &grid_fp, 1, codes + (at + h) / 2);
        }
    }
}

/* ---- asymmetric 4-bit integers ---- */

/* FP16 scale and minimum of n values x[0], x[step], ..., and their codes. */
static void int4_group(const uint16_t *x, size_t n, size_t step, uint8_t q[NB_GROUP_MX],
                       uint8_t *scale, uint8_t *minimum)
{
    float lo = nb_bf16_to_f32(x[0]), hi = lo;
    for (size_t i = 1; i < n; i++) {
        const float v = nb_bf16_to_f32(x[i * step]);
        if (v < lo) lo = v;
        if (v > hi) hi = v;
    }
    uint16_t m = nb_fp16_from_f32_sat(lo);
    if (m == 0x8000) m = 0; /* one zero only: -0, or what rounds to it */
    const float mf = nb_fp16_to_f32(m);
    const uint16_t s = nb_int4_scale(hi - mf);
    const float sf = nb_fp16_to_f32(s);
    nb_le16_put(scale, s);
    nb_le16_put(minimum, m);
    for (size_t i = 0; i < n; i++) q[i] = nb_int4_code(nb_bf16_to_f32(x[i * step]) - mf, sf);
}

/* Vector number v of its token. */
static void encode_int4_tok(const vec *x, size_t v, uint8_t *codes, uint8_t *row)
{
    const nb_record_seg *g = x->g;
    uint8_t q[NB_GROUP_MX];
    uint8_t *scale = row + 2 * v * g->n_group, *minimum = scale + g->scale_stride / 2;
    for (size_t k = 0; k < g->n_group; k++) {
        uint16_t buf[NB_GROUP_MX];
        const size_t at = k * NB_GROUP_MX;
        const size_t n = g->dim - at < NB_GROUP_MX ? g->dim - at : NB_GROUP_MX;
        int4_group(values(x, at, n, buf), n, 1, q, scale + 2 * k, minimum + 2 * k);
        for (size_t i = 0; i < n; i++) nb_nibble_or(codes, at + i, q[i]);
    }
}

static void encode_int4_ch(const nb_record_seg *g, uint8_t *page, const uint16_t *x, size_t stride)
{
    uint8_t q[NB_GROUP_TOK];
    const size_t n_ch = g->n_vec * g->dim, vec_bytes = nb_seg_code_bytes(g->fmt, g->dim);
    for (size_t t0 = 0; t0 < NB_PAGE_TOK; t0 += NB_GROUP_TOK) {
        uint8_t *scale = page + g->scale_off + t0 / NB_GROUP_TOK * g->scale_stride;
        size_t next = 0; /* outlier: its scale, minimum and codes stay 0 */
        for (size_t c = 0; c < n_ch; c++) {
            if (next < g->n_outlier && c == g->outlier[next]) {
                next++;
                continue;
            }
            const size_t v = c / g->dim;
            uint8_t *codes = page + g->code_off + t0 * g->code_stride + v * vec_bytes;
            int4_group(x + t0 * stride + c, NB_GROUP_TOK, stride, q, scale + 2 * c,
                       scale + 2 * (n_ch + c));
            for (size_t t = 0; t < NB_GROUP_TOK; t++)
                nb_nibble_or(codes + t * g->code_stride, c - v * g->dim, q[t]);
        }
    }
}

/* ---- the row of fp8_ds_mla ---- */

static void encode_ds(const nb_record_seg *g, const uint16_t *x, uint8_t *codes, uint8_t *scale)
{
    enum { MIN_EXP = -13 }; /* 2^-13 is the first power of two over 1e-4 */
    for (size_t k = 0; k < g->n_group; k++) {
        const uint16_t *xg = x + k * NB_GROUP_DS, a = amax_bits(xg, NB_GROUP_DS);
        int e = a == 0 ? MIN_EXP : nb_bf16_ceil_log2(a, 224) - 8;
        if (e < MIN_EXP) e = MIN_EXP;
        nb_le32_put(scale + 4 * k, nb_f32_bits(nb_f32_pow2(e)));
        for (size_t i = 0; i < NB_GROUP_DS; i++)
            codes[k * NB_GROUP_DS + i] =
                nb_e4m3_from_f32(with_sign(nb_bf16_mag_scaled(xg[i], -e), xg[i]));
    }
}

/* Vector v of token t; everything but INT4_CH is coded vector by vector. */
static void encode_vec(const nb_record *r, const nb_record_seg *g, uint8_t *page, size_t t,
                       size_t v, const uint16_t *x)
{
    const vec w = { g, x, v * g->dim };
    uint8_t *codes =
        page + g->code_off + t * g->code_stride + v * nb_seg_code_bytes(g->fmt, g->dim);
    uint8_t *row = page + g->scale_off + t * g->scale_stride;
    uint8_t *outer = page + g->outer_off + t * g->outer_stride + v;
    switch (g->fmt) {
    case NB_SEG_F32:
        for (size_t i = 0; i < g->dim; i++) nb_le32_put(codes + 4 * i, (uint32_t)x[i] << 16);
        break;
    case NB_SEG_BF16: encode_bf16(x, g->dim, codes); break;
    case NB_SEG_E4M3: encode_e4m3(&w, codes, outer); break;
    case NB_SEG_INT8: encode_int8(&w, codes, outer); break;
    case NB_SEG_NVFP4:
    case NB_SEG_IF4: encode_nv(r, &w, codes, row + v * g->n_group, outer); break;
    case NB_SEG_MXFP4: encode_mx(&w, codes, row + v * g->n_group); break;
    case NB_SEG_INT4_TOK: encode_int4_tok(&w, v, codes, row); break;
    case NB_SEG_DS_MLA: encode_ds(g, x, codes, row); break;
    case NB_SEG_INT4_CH: break;
    }
}

static void encode_side(const nb_record_seg *g, uint8_t *page, const uint16_t *x, size_t stride)
{
    for (size_t t = 0; t < NB_PAGE_TOK; t++)
        for (size_t k = 0; k < g->n_outlier; k++)
            nb_le16_put(page + g->side_off + t * g->side_stride + 2 * k,
                        x[t * stride + g->outlier[k]]);
}

uint64_t nb_record_count_saturated(const nb_record *r, const uint16_t *const x[2],
                                   const size_t x_stride[2])
{
    uint64_t n_sat = 0;
    for (size_t s = 0; s < r->n_seg; s++) {
        const nb_record_seg *g = &r->seg[s];
        if (g->fixed_scale == 0) continue;
        const float top = nb_seg_top(g->fmt);
        for (size_t t = 0; t < NB_PAGE_TOK; t++) {
            size_t next = 0;
            for (size_t i = 0; i < g->n_vec * g->dim; i++) {
                const float a = nb_bf16_to_f32(x[s][t * x_stride[s] + i] & NB_BF16_MAG);
                if (next < g->n_outlier && i == g->outlier[next])
                    next++;
                else
                    n_sat += a / g->fixed_scale > top;
            }
        }
    }
    return n_sat;
}

nb_status nb_record_encode_page(const nb_record *r, void *page, const uint16_t *const x[2],
                                const size_t x_stride[2])
{
    if (!all_finite(r, x, x_stride)) return NB_ERR_NONFINITE;
    memset(page, 0, r->page_bytes);
    for (size_t s = 0; s < r->n_seg; s++) {
        const nb_record_seg *g = &r->seg[s];
        encode_side(g, page, x[s], x_stride[s]);
        if (g->fmt == NB_SEG_INT4_CH) {
            encode_int4_ch(g, page, x[s], x_stride[s]);
            continue;
        }
        for (size_t t = 0; t < NB_PAGE_TOK; t++)
            for (size_t v = 0; v < g->n_vec; v++)
                encode_vec(r, g, page, t, v, x[s] + t * x_stride[s] + v * g->dim);
    }
    return NB_OK;
}

void nb_record_store_f32(const nb_record *r, void *page, const float *const x[2],
                         const size_t x_stride[2])
{
    memset(page, 0, r->page_bytes);
    for (size_t s = 0; s < r->n_seg; s++) {
        const nb_record_seg *g = &r->seg[s];
        for (size_t t = 0; t < NB_PAGE_TOK; t++) {
            uint8_t *codes = (uint8_t *)page + g->code_off + t * g->code_stride;
            for (size_t i = 0; i < g->n_vec * g->dim; i++)
                nb_le32_put(codes + 4 * i, nb_f32_bits(x[s][t * x_stride[s] + i]));
        }
    }
}
