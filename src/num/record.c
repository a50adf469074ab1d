/* record.c - the layout of KV pages, their names, and the check of foreign bytes.
 *
 * Per segment, with V = n_vec vectors per token and D = dim values per vector
 * (strides are per token, except where said):
 *
 *   format    codes           block scales                          outer scales
 *   F32       V*4D            -                                     -
 *   BF16      V*2D            -                                     -
 *   E4M3      V*D             -                                     V  UE8M0
 *   INT8      V*D             -                                     V  UE8M0
 *   NVFP4,IF4 V*ceil(D/2)     V*ceil(D/16) E4M3                     V  UE8M0
 *   MXFP4     V*ceil(D/2)     V*ceil(D/32) UE8M0                    -
 *   INT4_CH   V*ceil(D/2)     per 32 tokens: V*D FP16 scales, then  -
 *                             V*D FP16 minima
 *   INT4_TOK  V*ceil(D/2)     V*ceil(D/32) FP16 scales, then as     -
 *                             many FP16 minima
 *   DS_MLA    row of D + 4*(D/128) + 2*rope bytes: D E4M3 codes, D/128 floats,
 *             the rope key in BF16 (which is segment 1, format BF16, in that row)
 *
 * Code and block-scale planes start at multiples of 128.  Outer scales take
 * 64*V bytes per segment: they follow each other directly after the last of
 * those planes, from a multiple of 128 on, and page_bytes is rounded up to one.
 * Outlier channels follow, a plane [64][n_outlier] of BF16 values per segment that has any, each
 * from a multiple of 128 on. */
#include "num/record.h"

#include <string.h>

#include "num/bf16.h"
#include "num/e4m3.h"
#include "num/fp16.h"
#include "num/num_internal.h"
#include "num/ue8m0.h"

enum { PLANE_ALIGN = 128, MAX_DIM = 65536, MAX_VALUES = 1 << 24 };

static const char *const type_names[NB_KV_TYPE_COUNT] = {
    [NB_KV_BF16] = "bf16",
    [NB_KV_FP8] = "fp8",
    [NB_KV_NVFP4] = "nvfp4",
    [NB_KV_IF4] = "if4",
    [NB_KV_MXFP4] = "mxfp4",
    [NB_KV_INT4] = "int4",
    [NB_KV_FP8_DS_MLA] = "fp8_ds_mla",
    [NB_KV_F32] = "f32",
};
static const char *const mode_names[] = { "basic", "4over6", "search" };
static const char *const rope_names[] = {
    [NB_ROPE_FP8] = "fp8",
    [NB_ROPE_BF16] = "bf16",
    [NB_ROPE_INT8] = "int8",
};

const char *nb_kv_type_name(nb_kv_type t)
{
    return (unsigned)t < NB_KV_TYPE_COUNT ? type_names[t] : "?";
}

nb_status nb_kv_type_parse(const char *s, nb_kv_type *t)
{
    if (strcmp(s, "fp8_e4m3") == 0) s = "fp8";
    if (strcmp(s, "bfloat16") == 0) s = "bf16";
    if (strcmp(s, "float32") == 0) s = "f32";
    for (unsigned i = 0; i < NB_KV_TYPE_COUNT; i++)
        if (strcmp(s, type_names[i]) == 0) {
            *t = (nb_kv_type)i;
            return NB_OK;
        }
    return NB_ERR_ARG;
}

nb_status nb_kv_mode_parse(const char *s, nb_kv_mode *m)
{
    for (unsigned i = 0; i < NB_COUNT(mode_names); i++)
        if (strcmp(s, mode_names[i]) == 0) {
            *m = (nb_kv_mode)i;
            return NB_OK;
        }
    return NB_ERR_ARG;
}

const char *nb_rope_fmt_name(nb_rope_fmt f)
{
    return (unsigned)f < NB_COUNT(rope_names) ? rope_names[f] : "?";
}

nb_status nb_rope_fmt_parse(const char *s, nb_rope_fmt *f)
{
    for (unsigned i = 0; i < NB_COUNT(rope_names); i++)
        if (strcmp(s, rope_names[i]) == 0) {
            *f = (nb_rope_fmt)i;
            return NB_OK;
        }
    return NB_ERR_ARG;
}

static nb_seg_fmt rope_seg(const nb_record_opts *o)
{
    if (o->rope == NB_ROPE_BF16 || o->type == NB_KV_FP8_DS_MLA) return NB_SEG_BF16;
    return o->rope == NB_ROPE_INT8 ? NB_SEG_INT8 : NB_SEG_E4M3;
}

static nb_seg_fmt pick_fmt(const nb_record_opts *o, size_t s)
{
    if (s == 1 && o->is_mla && o->type != NB_KV_BF16 && o->type != NB_KV_F32) return rope_seg(o);
    switch (o->type) {
    case NB_KV_FP8: return NB_SEG_E4M3;
    case NB_KV_NVFP4: return NB_SEG_NVFP4;
    case NB_KV_IF4: return NB_SEG_IF4;
    case NB_KV_MXFP4: return NB_SEG_MXFP4;
    case NB_KV_INT4: return s == 0 ? NB_SEG_INT4_CH : NB_SEG_INT4_TOK;
    case NB_KV_FP8_DS_MLA: return NB_SEG_DS_MLA;
    case NB_KV_F32: return NB_SEG_F32;
    default: return NB_SEG_BF16;
    }
}

/* Formats that lose something, and whose pages are planes. */
static bool takes_outliers(nb_seg_fmt f)
{
    return f != NB_SEG_BF16 && f != NB_SEG_F32 && f != NB_SEG_DS_MLA;
}

static nb_status check_outliers(const nb_record_opts *o, size_t s, nb_error *err)
{
    const char *name = type_names[o->type];
    const size_t n = o->n_outlier[s], n_values = o->n_vec[s] * o->dim[s];
    if (n == 0 || !takes_outliers(pick_fmt(o, s))) return NB_OK;
    if (n > NB_MAX_OUTLIER || !o->outlier[s])
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: segment %zu has %zu outlier channels; at most %d are "
                       "supported",
                       name, s, n, NB_MAX_OUTLIER);
    for (size_t k = 0; k < n; k++) {
        const unsigned c = o->outlier[s][k];
        if (c >= n_values)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "KV cache type %s: outlier channel %u of segment %zu is out of range; "
                           "it has %zu values per token",
                           name, c, s, n_values);
        if (k > 0 && c <= o->outlier[s][k - 1])
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "KV cache type %s: outlier channels of segment %zu must ascend, but %u "
                           "follows %u",
                           name, s, c, (unsigned)o->outlier[s][k - 1]);
    }
    return NB_OK;
}

static nb_status check_fixed(const nb_record_opts *o, size_t s, nb_error *err)
{
    const nb_seg_fmt f = pick_fmt(o, s);
    const float v = o->fixed_scale[s];
    if (v == 0) return NB_OK;
    if (f != NB_SEG_E4M3 && f != NB_SEG_NVFP4)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: segment %zu cannot have a fixed scale; only fp8 and "
                       "nvfp4 can",
                       type_names[o->type], s);
    if (!(v >= 0x1p-100f && v <= 0x1p100f))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: the fixed scale %g of segment %zu is not in "
                       "2^-100..2^100",
                       type_names[o->type], (double)v, s);
    return NB_OK;
}

static nb_status check_opts(const nb_record_opts *o, nb_error *err)
{
    if ((unsigned)o->type >= NB_KV_TYPE_COUNT)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "KV cache type %d is not known", (int)o->type);
    const char *name = type_names[o->type];
    if ((unsigned)o->mode > NB_KV_SEARCH)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "KV cache type %s: encoder mode %d is not known",
                       name, (int)o->mode);
    for (size_t s = 0; s < 2; s++) {
        if (o->dim[s] < 1 || o->dim[s] > MAX_DIM || o->n_vec[s] < 1 || o->n_vec[s] > MAX_DIM)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "KV cache type %s: segment %zu has %zu vectors of %zu values per token; "
                           "both must be 1..%d",
                           name, s, o->n_vec[s], o->dim[s], MAX_DIM);
        if (o->n_vec[s] * o->dim[s] > MAX_VALUES)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "KV cache type %s: segment %zu has %zu x %zu values per token; at most "
                           "%d are supported",
                           name, s, o->n_vec[s], o->dim[s], MAX_VALUES);
        if (o->is_mla && o->n_vec[s] != 1)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "KV cache type %s: an MLA token has one latent and one rope key, not "
                           "%zu vectors",
                           name, o->n_vec[s]);
    }
    if ((unsigned)o->rope >= NB_COUNT(rope_names))
        return nb_fail(err, NB_ERR_UNSUPPORTED, "KV cache type %s: rope key format %d is not known",
                       name, (int)o->rope);
    if (o->rope != NB_ROPE_FP8 && !o->is_mla)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: a rope key in %s needs MLA; this model caches K and V",
                       name, rope_names[o->rope]);
    if (o->type == NB_KV_FP8_DS_MLA) {
        if (!o->is_mla)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "KV cache type fp8_ds_mla needs MLA; this model caches K and V");
        if (o->dim[0] % NB_GROUP_DS != 0)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "KV cache type fp8_ds_mla needs a latent that is a multiple of %d, not "
                           "%zu values",
                           NB_GROUP_DS, o->dim[0]);
    }
    for (size_t s = 0; s < 2; s++) {
        NB_TRY(check_outliers(o, s, err));
        NB_TRY(check_fixed(o, s, err));
    }
    return NB_OK;
}

static size_t round_up(size_t n)
{
    return (n + PLANE_ALIGN - 1) / PLANE_ALIGN * PLANE_ALIGN;
}

/* Sizes of a segment's planes; offsets follow. */
static void size_seg(nb_record_seg *g)
{
    const size_t d = g->dim, v = g->n_vec;
    g->code_stride = v * nb_seg_code_bytes(g->fmt, d);
    switch (g->fmt) {
    case NB_SEG_NVFP4:
    case NB_SEG_IF4:
        g->n_group = (d + NB_GROUP_NV - 1) / NB_GROUP_NV;
        g->scale_stride = v * g->n_group;
        g->outer_stride = v;
        break;
    case NB_SEG_MXFP4:
        g->n_group = (d + NB_GROUP_MX - 1) / NB_GROUP_MX;
        g->scale_stride = v * g->n_group;
        break;
    case NB_SEG_INT4_CH:
        g->n_group = d;
        g->scale_stride = v * d * 4;
        break;
    case NB_SEG_INT4_TOK:
        g->n_group = (d + NB_GROUP_MX - 1) / NB_GROUP_MX;
        g->scale_stride = v * g->n_group * 4;
        break;
    case NB_SEG_E4M3:
    case NB_SEG_INT8: g->outer_stride = v; break;
    case NB_SEG_DS_MLA: g->n_group = d / NB_GROUP_DS; break;
    case NB_SEG_F32:
    case NB_SEG_BF16: break;
    }
}

static size_t scale_rows(const nb_record_seg *g)
{
    return g->fmt == NB_SEG_INT4_CH ? NB_PAGE_TOK / NB_GROUP_TOK : NB_PAGE_TOK;
}

/* fp8_ds_mla: both segments live in one row. */
static size_t layout_rows(nb_record *r)
{
    nb_record_seg *c = &r->seg[0], *k = &r->seg[1];
    const size_t row = c->dim + 4 * c->n_group + 2 * k->dim;
    c->code_stride = c->scale_stride = k->code_stride = row;
    c->scale_off = c->dim;
    k->code_off = c->dim + 4 * c->n_group;
    return row * NB_PAGE_TOK;
}

static size_t layout_planes(nb_record *r)
{
    size_t at = 0;
    for (size_t s = 0; s < r->n_seg; s++) {
        nb_record_seg *g = &r->seg[s];
        g->code_off = at;
        at = round_up(at + g->code_stride * NB_PAGE_TOK);
        if (g->scale_stride) {
            g->scale_off = at;
            at = round_up(at + g->scale_stride * scale_rows(g));
        }
    }
    for (size_t s = 0; s < r->n_seg; s++) {
        nb_record_seg *g = &r->seg[s];
        if (g->outer_stride) {
            g->outer_off = at;
            at += g->outer_stride * NB_PAGE_TOK;
        }
    }
    for (size_t s = 0; s < r->n_seg; s++) {
        nb_record_seg *g = &r->seg[s];
        if (g->side_stride) {
            g->side_off = round_up(at);
            at = g->side_off + g->side_stride * NB_PAGE_TOK;
        }
    }
    return at;
}

static void set_seg(nb_record_seg *g, const nb_record_opts *o, size_t s)
{
    g->fmt = pick_fmt(o, s);
    g->dim = o->dim[s];
    g->n_vec = o->n_vec[s];
    g->fixed_scale = o->fixed_scale[s];
    if (o->n_outlier[s] > 0 && takes_outliers(g->fmt)) {
        g->n_outlier = o->n_outlier[s];
        g->side_stride = 2 * g->n_outlier;
        memcpy(g->outlier, o->outlier[s], g->n_outlier * sizeof *g->outlier);
    }
    size_seg(g);
}

nb_status nb_record_init(nb_record *r, const nb_record_opts *o, nb_error *err)
{
    NB_TRY(check_opts(o, err));
    memset(r, 0, sizeof *r);
    r->type = o->type;
    r->mode = o->type == NB_KV_NVFP4 || o->type == NB_KV_IF4 ? o->mode : NB_KV_BASIC;
    r->n_seg = 2;
    for (size_t s = 0; s < 2; s++) {
        set_seg(&r->seg[s], o, s);
        r->n_values += o->dim[s] * o->n_vec[s];
    }
    r->page_bytes = round_up(o->type == NB_KV_FP8_DS_MLA ? layout_rows(r) : layout_planes(r));
    return NB_OK;
}

double nb_record_bytes_per_tok(const nb_record *r)
{
    return (double)r->page_bytes / NB_PAGE_TOK;
}

/* ---- the check of a page ---- */

typedef struct checker {
    const nb_record *r;
    const uint8_t *page;
    size_t s;
    const char *unit; /* what a row of the plane in question is */
    nb_error *err;
} checker;

static nb_status bad(const checker *c, size_t row, size_t at, const char *what, unsigned value)
{
    return nb_fail(c->err, NB_ERR_FORMAT,
                   "KV page of type %s is corrupt: segment %zu, %s %zu, byte %zu: %s 0x%02x",
                   nb_kv_type_name(c->r->type), c->s, c->unit, row, at, what, value);
}

static nb_status check_bf16(const checker *c, size_t off, size_t stride, size_t n)
{
    for (size_t t = 0; t < NB_PAGE_TOK; t++) {
        const uint8_t *p = c->page + off + t * stride;
        for (size_t i = 0; i < n; i++)
            if (!nb_bf16_is_finite(nb_le16_get(p + 2 * i)))
                return bad(c, t, 2 * i, "non-finite BF16 value", nb_le16_get(p + 2 * i));
    }
    return NB_OK;
}

static nb_status check_e4m3(const checker *c, size_t off, size_t stride, size_t n)
{
    for (size_t t = 0; t < NB_PAGE_TOK; t++) {
        const uint8_t *p = c->page + off + t * stride;
        for (size_t i = 0; i < n; i++)
            if (nb_e4m3_is_nan(p[i])) return bad(c, t, i, "E4M3 NaN", p[i]);
    }
    return NB_OK;
}

static nb_status check_int8(const checker *c)
{
    const nb_record_seg *g = &c->r->seg[c->s];
    for (size_t t = 0; t < NB_PAGE_TOK; t++) {
        const uint8_t *p = c->page + g->code_off + t * g->code_stride;
        for (size_t i = 0; i < g->code_stride; i++)
            if (p[i] == 0x80) return bad(c, t, i, "INT8 code", p[i]);
    }
    return NB_OK;
}

/* Plain NVFP4 has no use for the sign of a block scale. */
static nb_status check_scale_sign(const checker *c)
{
    const nb_record_seg *g = &c->r->seg[c->s];
    for (size_t t = 0; t < NB_PAGE_TOK; t++) {
        const uint8_t *p = c->page + g->scale_off + t * g->scale_stride;
        for (size_t i = 0; i < g->scale_stride; i++)
            if (p[i] & 0x80) return bad(c, t, i, "negative block scale", p[i]);
    }
    return NB_OK;
}

static nb_status check_ue8m0(const checker *c, size_t off, size_t stride)
{
    for (size_t t = 0; t < NB_PAGE_TOK; t++) {
        const uint8_t *p = c->page + off + t * stride;
        for (size_t i = 0; i < stride; i++)
            if (p[i] != 0 && (p[i] < NB_OUTER_MIN || p[i] > NB_OUTER_MAX))
                return bad(c, t, i, "UE8M0 scale", p[i]);
    }
    return NB_OK;
}

/* With a fixed scale the outer byte says only whether the vector is zero. */
static nb_status check_marks(const checker *c)
{
    const nb_record_seg *g = &c->r->seg[c->s];
    for (size_t t = 0; t < NB_PAGE_TOK; t++) {
        const uint8_t *p = c->page + g->outer_off + t * g->outer_stride;
        for (size_t i = 0; i < g->outer_stride; i++)
            if (p[i] != 0 && p[i] != NB_UE8M0_ONE)
                return bad(c, t, i, "outer byte beside a fixed scale", p[i]);
    }
    return NB_OK;
}

static nb_status check_planes(checker *c)
{
    const nb_record_seg *g = &c->r->seg[c->s];
    c->unit = "token";
    if (g->fixed_scale != 0)
        NB_TRY(check_marks(c));
    else if (g->outer_stride)
        NB_TRY(check_ue8m0(c, g->outer_off, g->outer_stride));
    c->unit = "outliers of token";
    return check_bf16(c, g->side_off, g->side_stride, g->n_outlier);
}

static nb_status check_fp16(const checker *c)
{
    const nb_record_seg *g = &c->r->seg[c->s];
    for (size_t t = 0; t < scale_rows(g); t++) {
        const uint8_t *p = c->page + g->scale_off + t * g->scale_stride;
        for (size_t i = 0; i < g->scale_stride; i += 2) {
            const uint16_t h = nb_le16_get(p + i);
            if (!nb_fp16_is_finite(h)) return bad(c, t, i, "FP16 scale or minimum", h);
            if (i < g->scale_stride / 2 && h & 0x8000) return bad(c, t, i, "FP16 scale", h);
        }
    }
    return NB_OK;
}

static nb_status check_f32(const checker *c)
{
    const nb_record_seg *g = &c->r->seg[c->s];
    for (size_t t = 0; t < NB_PAGE_TOK; t++)
        for (size_t i = 0; i < g->code_stride; i += 4) {
            const size_t at = g->code_off + t * g->code_stride + i;
            const uint32_t u = nb_le32_get(c->page + at);
            if ((u & 0x7f800000u) == 0x7f800000u)
                return bad(c, t, g->code_off + i, "value is not finite:", u);
        }
    return NB_OK;
}

static nb_status check_ds(const checker *c)
{
    const nb_record_seg *g = &c->r->seg[c->s];
    NB_TRY(check_e4m3(c, g->code_off, g->code_stride, g->dim));
    for (size_t t = 0; t < NB_PAGE_TOK; t++) {
        const uint8_t *p = c->page + g->scale_off + t * g->scale_stride;
        for (size_t i = 0; i < g->n_group; i++) {
            const uint32_t u = nb_le32_get(p + 4 * i);
            if (u & 0x807fffffu || u < 0x00800000u || u >= 0x7f800000u)
                return bad(c, t, g->scale_off + 4 * i, "scale is not a positive power of two:", u);
        }
    }
    return NB_OK;
}

nb_status nb_record_check_page(const nb_record *r, const void *page, nb_error *err)
{
    checker c = { r, page, 0, "token", err };
    for (c.s = 0; c.s < r->n_seg; c.s++) {
        const nb_record_seg *g = &r->seg[c.s];
        c.unit = "token";
        switch (g->fmt) {
        case NB_SEG_F32: NB_TRY(check_f32(&c)); break;
        case NB_SEG_BF16:
            NB_TRY(check_bf16(&c, g->code_off, g->code_stride, g->n_vec * g->dim));
            break;
        case NB_SEG_E4M3:
            NB_TRY(check_e4m3(&c, g->code_off, g->code_stride, g->code_stride));
            break;
        case NB_SEG_INT8: NB_TRY(check_int8(&c)); break;
        case NB_SEG_NVFP4:
        case NB_SEG_IF4:
            NB_TRY(check_e4m3(&c, g->scale_off, g->scale_stride, g->scale_stride));
            if (g->fmt == NB_SEG_NVFP4) NB_TRY(check_scale_sign(&c));
            break;
        case NB_SEG_MXFP4: NB_TRY(check_ue8m0(&c, g->scale_off, g->scale_stride)); break;
        case NB_SEG_INT4_CH:
            c.unit = "group";
            NB_TRY(check_fp16(&c));
            break;
        case NB_SEG_INT4_TOK: NB_TRY(check_fp16(&c)); break;
        case NB_SEG_DS_MLA: NB_TRY(check_ds(&c)); break;
        }
        NB_TRY(check_planes(&c));
    }
    return NB_OK;
}
