/* record.c - the layout of KV pages, their names, and the check of foreign bytes: all from the traits.
 *
 * A segment of V = n_vec vectors of D = dim values has per token
 *   codes         V * ceil(D * bits / 8) bytes
 *   block scales  V * ceil(D / group) scales, then as many minima where the format has them; of a
 *                 format whose scales are shared by 32 tokens, such a row per 32 tokens
 *   outer scales  V bytes
 *
 * Code and block-scale planes start at multiples of 128.  Outer scales take
 * 64 * V bytes per segment: they follow each other directly after the last of
 * those planes, from a multiple of 128 on, and page_bytes is rounded up to one.
 * Outlier channels follow, a plane [64][n_outlier] of BF16 values per segment that has any, each
 * from a multiple of 128 on.
 *
 * A record in rows (fp8_ds_mla) has one row per token instead: codes and block scales of its
 * segments, one after the other. */
#include "num/record.h"

#include <string.h>

#include "num/e4m3.h"
#include "num/fp16.h"
#include "num/num_internal.h"

enum { PLANE_ALIGN = 128, MAX_DIM = 65536, MAX_VALUES = 1 << 24 };

#define X(NAME, trait) [NB_SEG_##NAME] = &(trait),
const nb_seg_trait *const nb_seg_traits[NB_SEG_COUNT] = { NB_SEG_FORMATS(X) };
#undef X
#define X(NAME, trait, name, also) [NB_KV_##NAME] = &(trait),
const nb_kv_trait *const nb_kv_traits[NB_KV_TYPE_COUNT] = { NB_KV_TYPES(X) };
#undef X

/* also: behind a bar, or empty. */
static const struct {
    const char *name, *also;
} kv_names[NB_KV_TYPE_COUNT] = {
#define X(NAME, trait, name, also) { name, also },
    NB_KV_TYPES(X)
#undef X
};
static const char *const mode_names[] = { "basic", "4over6", "search" };
static const char *const rope_names[] = {
    [NB_ROPE_FP8] = "fp8",
    [NB_ROPE_BF16] = "bf16",
    [NB_ROPE_INT8] = "int8",
};

const char *nb_kv_type_name(nb_kv_type t)
{
    return (unsigned)t < NB_KV_TYPE_COUNT ? kv_names[t].name : "?";
}

nb_status nb_kv_type_parse(const char *s, nb_kv_type *t)
{
    for (unsigned i = 0; i < NB_KV_TYPE_COUNT; i++) {
        const char *also = kv_names[i].also;
        if (strcmp(s, kv_names[i].name) == 0 || (*also && strcmp(s, also + 1) == 0)) {
            *t = (nb_kv_type)i;
            return NB_OK;
        }
    }
    return NB_ERR_ARG;
}

nb_kv_mode nb_kv_mode_default(nb_kv_type t)
{
    return nb_kv_traits[t]->mode;
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

static nb_seg_fmt pick_fmt(const nb_record_opts *o, size_t s)
{
    static const nb_seg_fmt rope[] = {
        [NB_ROPE_FP8] = NB_SEG_E4M3,
        [NB_ROPE_BF16] = NB_SEG_BF16,
        [NB_ROPE_INT8] = NB_SEG_INT8,
    };
    const nb_kv_trait *k = nb_kv_traits[o->type];
    if (o->seg[s].role == NB_ROLE_ROPE && !k->own_rope) return rope[o->rope];
    if (o->seg[s].role == NB_ROLE_INDEX)
        return k->fmt[NB_ROLE_LATENT] == NB_SEG_F32 ? NB_SEG_F32 : NB_SEG_E4M3;
    return k->fmt[o->seg[s].role];
}

/* Formats that lose something, and whose pages are planes. */
static bool takes_outliers(const nb_record_opts *o, size_t s)
{
    return !nb_seg_traits[pick_fmt(o, s)]->wide && !nb_kv_traits[o->type]->in_rows;
}

static nb_status check_outliers(const nb_record_opts *o, size_t s, nb_error *err)
{
    const char *name = nb_kv_type_name(o->type);
    const nb_seg_opts *g = &o->seg[s];
    const size_t n = g->n_outlier, n_values = g->n_vec * g->dim;
    if (n == 0 || !takes_outliers(o, s)) return NB_OK;
    if (n > NB_MAX_OUTLIER || !g->outlier)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: segment %zu has %zu outlier channels; at most %d are "
                       "supported",
                       name, s, n, NB_MAX_OUTLIER);
    for (size_t k = 0; k < n; k++) {
        const unsigned c = g->outlier[k];
        if (c >= n_values)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "KV cache type %s: outlier channel %u of segment %zu is out of range; "
                           "it has %zu values per token",
                           name, c, s, n_values);
        if (k > 0 && c <= g->outlier[k - 1])
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "KV cache type %s: outlier channels of segment %zu must ascend, but %u "
                           "follows %u",
                           name, s, c, (unsigned)g->outlier[k - 1]);
    }
    return NB_OK;
}

static nb_status check_fixed(const nb_record_opts *o, size_t s, nb_error *err)
{
    const float v = o->seg[s].fixed_scale;
    if (v == 0) return NB_OK;
    if (nb_seg_traits[pick_fmt(o, s)]->fixed_top == 0)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: segment %zu cannot have a fixed scale; only fp8 and "
                       "nvfp4 can",
                       nb_kv_type_name(o->type), s);
    if (!(v >= 0x1p-100f && v <= 0x1p100f))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: the fixed scale %g of segment %zu is not in "
                       "2^-100..2^100",
                       nb_kv_type_name(o->type), (double)v, s);
    return NB_OK;
}

static nb_status check_shape(const nb_record_opts *o, size_t s, nb_error *err)
{
    const char *name = nb_kv_type_name(o->type);
    const nb_kv_trait *k = nb_kv_traits[o->type];
    const nb_seg_opts *g = &o->seg[s];
    if ((unsigned)g->role >= NB_ROLE_COUNT)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: role %d of segment %zu is not known", name, (int)g->role,
                       s);
    if (g->dim < 1 || g->dim > MAX_DIM || g->n_vec < 1 || g->n_vec > MAX_DIM)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: segment %zu has %zu vectors of %zu values per token; "
                       "both must be 1..%d",
                       name, s, g->n_vec, g->dim, MAX_DIM);
    if (g->n_vec * g->dim > MAX_VALUES)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: segment %zu has %zu x %zu values per token; at most "
                       "%d are supported",
                       name, s, g->n_vec, g->dim, MAX_VALUES);
    if (g->role == NB_ROLE_INDEX && k->in_rows)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: its rows have no place for the keys of an indexer (sparse attention)",
                       name);
    if (g->role == NB_ROLE_INDEX && g->n_vec != 1)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: a token has one key of an indexer, not %zu vectors", name,
                       g->n_vec);
    if (g->role == NB_ROLE_INDEX) return NB_OK;
    const bool mla = g->role == NB_ROLE_LATENT || g->role == NB_ROLE_ROPE;
    if (mla && g->n_vec != 1)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: an MLA token has one latent and one rope key, not "
                       "%zu vectors",
                       name, g->n_vec);
    if (!mla && k->mla_only)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s needs MLA; this model caches K and V", name);
    if (g->role == NB_ROLE_LATENT && k->latent_multiple && g->dim % k->latent_multiple != 0)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s needs a latent that is a multiple of %u, not "
                       "%zu values",
                       name, k->latent_multiple, g->dim);
    return NB_OK;
}

static bool has_rope_key(const nb_record_opts *o)
{
    for (size_t s = 0; s < o->n_seg; s++)
        if (o->seg[s].role == NB_ROLE_ROPE) return true;
    return false;
}

/* Rows of a page. */
static size_t n_row_of(size_t row_tok)
{
    return row_tok ? (NB_PAGE_TOK + row_tok - 1) / row_tok : NB_PAGE_TOK;
}

/* A page of compressed attention may have fewer rows than those that share a scale. */
static nb_status check_rows(const nb_record_opts *o, nb_error *err)
{
    const size_t n_row = n_row_of(o->row_tok);
    for (size_t s = 0; s < o->n_seg; s++) {
        const unsigned group = nb_seg_traits[pick_fmt(o, s)]->group_tok;
        if (group && n_row % group)
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "KV cache type %s: %u rows share a scale, but a page of compressed attention has %zu",
                           nb_kv_type_name(o->type), group, n_row);
    }
    return NB_OK;
}

static nb_status check_opts(const nb_record_opts *o, nb_error *err)
{
    if ((unsigned)o->type >= NB_KV_TYPE_COUNT)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "KV cache type %d is not known", (int)o->type);
    const char *name = nb_kv_type_name(o->type);
    const unsigned modes = nb_kv_traits[o->type]->modes;
    if ((unsigned)o->mode > NB_KV_SEARCH || (modes && !(modes >> o->mode & 1)))
        return nb_fail(err, NB_ERR_UNSUPPORTED, "KV cache type %s: encoder mode %d is not known",
                       name, (int)o->mode);
    if (o->n_seg < 1 || o->n_seg > NB_MAX_SEG)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: a token has %zu segments; 1 to %d are supported", name,
                       o->n_seg, NB_MAX_SEG);
    if ((unsigned)o->rope >= NB_COUNT(rope_names))
        return nb_fail(err, NB_ERR_UNSUPPORTED, "KV cache type %s: rope key format %d is not known",
                       name, (int)o->rope);
    for (size_t s = 0; s < o->n_seg; s++) NB_TRY(check_shape(o, s, err));
    NB_TRY(check_rows(o, err));
    if (o->rope != NB_ROPE_FP8 && !has_rope_key(o))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "KV cache type %s: a rope key in %s needs MLA; this model caches K and V",
                       name, rope_names[o->rope]);
    for (size_t s = 0; s < o->n_seg; s++) {
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
    const nb_seg_trait *f = nb_seg_traits[g->fmt];
    g->code_stride = g->n_vec * nb_seg_code_bytes(g);
    g->outer_stride = f->outer ? g->n_vec : 0;
    if (f->scale == NB_NUM_NONE) return;
    g->n_group = (g->dim + f->group - 1) / f->group;
    g->scale_stride = g->n_vec * nb_num_bytes(f->scale, g->n_group) * (f->minimum ? 2 : 1);
}

static size_t layout_rows(nb_record *r)
{
    size_t row = 0;
    for (size_t s = 0; s < r->n_seg; s++) {
        nb_record_seg *g = &r->seg[s];
        g->code_off = row;
        row += g->code_stride;
        if (g->scale_stride) g->scale_off = row;
        row += g->scale_stride;
    }
    for (size_t s = 0; s < r->n_seg; s++) {
        nb_record_seg *g = &r->seg[s];
        g->code_stride = row;
        if (g->scale_stride) g->scale_stride = row;
    }
    return row * r->n_row;
}

static size_t layout_planes(nb_record *r)
{
    size_t at = 0;
    for (size_t s = 0; s < r->n_seg; s++) {
        nb_record_seg *g = &r->seg[s];
        g->code_off = at;
        at = round_up(at + g->code_stride * r->n_row);
        if (g->scale_stride) {
            g->scale_off = at;
            at = round_up(at + g->scale_stride * nb_seg_scale_rows(g->fmt, r->n_row));
        }
    }
    for (size_t s = 0; s < r->n_seg; s++) {
        nb_record_seg *g = &r->seg[s];
        if (g->outer_stride) {
            g->outer_off = at;
            at += g->outer_stride * r->n_row;
        }
    }
    for (size_t s = 0; s < r->n_seg; s++) {
        nb_record_seg *g = &r->seg[s];
        if (g->side_stride) {
            g->side_off = round_up(at);
            at = g->side_off + g->side_stride * r->n_row;
        }
    }
    return at;
}

static void set_seg(nb_record_seg *g, const nb_record_opts *o, size_t s)
{
    const nb_seg_opts *so = &o->seg[s];
    g->fmt = pick_fmt(o, s);
    g->role = so->role;
    g->dim = so->dim;
    g->n_vec = so->n_vec;
    g->fixed_scale = so->fixed_scale;
    if (so->n_outlier > 0 && takes_outliers(o, s)) {
        g->n_outlier = so->n_outlier;
        g->side_stride = 2 * g->n_outlier;
        memcpy(g->outlier, so->outlier, g->n_outlier * sizeof *g->outlier);
    }
    size_seg(g);
}

nb_status nb_record_init(nb_record *r, const nb_record_opts *o, nb_error *err)
{
    const bool nothing = o->n_seg == 0 && (unsigned)o->type < NB_KV_TYPE_COUNT;
    if (!nothing) NB_TRY(check_opts(o, err));
    memset(r, 0, sizeof *r);
    r->type = o->type;
    if (nothing) return NB_OK;
    r->mode = nb_kv_traits[o->type]->modes ? o->mode : NB_KV_BASIC;
    r->n_seg = o->n_seg;
    r->n_row = n_row_of(o->row_tok);
    for (size_t s = 0; s < r->n_seg; s++) {
        set_seg(&r->seg[s], o, s);
        r->seg[s].first = r->n_values;
        r->n_values += nb_seg_values(&r->seg[s]);
    }
    r->page_bytes = round_up(nb_kv_traits[o->type]->in_rows ? layout_rows(r) : layout_planes(r));
    return NB_OK;
}

void nb_record_cut(const nb_record *r, size_t n_seg, nb_record *out)
{
    *out = *r;
    out->n_seg = n_seg < r->n_seg ? n_seg : r->n_seg;
    out->n_values = 0;
    for (size_t s = 0; s < out->n_seg; s++) out->n_values += nb_seg_values(&out->seg[s]);
    for (size_t s = out->n_seg; s < NB_MAX_SEG; s++) memset(&out->seg[s], 0, sizeof out->seg[s]);
    out->page_bytes = round_up(nb_kv_traits[r->type]->in_rows ? layout_rows(out) : layout_planes(out));
}

double nb_record_bytes_per_tok(const nb_record *r)
{
    return (double)r->page_bytes / NB_PAGE_TOK;
}

/* ---- the check of a page ---- */

/* A plane of numbers: n_row rows of n numbers of type t. */
typedef struct plane {
    nb_num t;
    size_t off, stride, n, n_row;
    size_t before; /* bytes of a row in front of these numbers */
    const char *row_name;
} plane;

typedef struct checker {
    const nb_record *r;
    const uint8_t *page;
    size_t s;
    nb_error *err;
} checker;

/* Why the number at p is none that an encoder writes; NULL: it may be one. */
static const char *fault(nb_num t, const uint8_t *p, unsigned *value)
{
    *value = *p;
    switch (t) {
    case NB_NUM_F32: *value = nb_le32_get(p); break;
    case NB_NUM_BF16:
    case NB_NUM_F16: *value = nb_le16_get(p); break;
    default: break;
    }
    switch (t) {
    case NB_NUM_F32: return (*value & 0x7f800000u) == 0x7f800000u ? "value is not finite:" : NULL;
    case NB_NUM_BF16: return !nb_bf16_is_finite((uint16_t)*value) ? "non-finite BF16 value" : NULL;
    case NB_NUM_F16: return !nb_fp16_is_finite((uint16_t)*value) ? "FP16 scale or minimum" : NULL;
    case NB_NUM_E4M3: return nb_e4m3_is_nan(*p) ? "E4M3 NaN" : NULL;
    case NB_NUM_INT8: return *p == 0x80 ? "INT8 code" : NULL;
    case NB_NUM_UE8M0:
        return *p != 0 && (*p < NB_OUTER_MIN || *p > NB_OUTER_MAX) ? "UE8M0 scale" : NULL;
    default: return NULL;
    }
}

/* The same of a block scale, which has no sign. */
static const char *scale_fault(nb_num t, const uint8_t *p, unsigned *value)
{
    const char *why = fault(t, p, value);
    if (why) return why;
    switch (t) {
    case NB_NUM_F32:
        return *value & 0x807fffffu || *value < 0x00800000u
                   ? "scale is not a positive power of two:"
                   : NULL;
    case NB_NUM_F16: return *value & 0x8000 ? "FP16 scale" : NULL;
    case NB_NUM_E4M3: return *value & 0x80 ? "negative block scale" : NULL;
    default: return NULL;
    }
}

typedef const char *fault_fn(nb_num t, const uint8_t *p, unsigned *value);

static nb_status check_plane(const checker *c, const plane *p, fault_fn *fn)
{
    const size_t size = nb_num_bytes(p->t, 1);
    for (size_t t = 0; t < p->n_row; t++)
        for (size_t i = 0; i < p->n; i++) {
            unsigned value;
            const char *why = fn(p->t, c->page + p->off + t * p->stride + i * size, &value);
            if (why)
                return nb_fail(c->err, NB_ERR_FORMAT,
                               "KV page of type %s is corrupt: segment %zu, %s %zu, byte %zu: %s "
                               "0x%02x",
                               nb_kv_type_name(c->r->type), c->s, p->row_name, t,
                               p->before + i * size, why, value);
        }
    return NB_OK;
}

/* With a fixed scale the outer byte says only whether the vector is zero. */
static const char *mark_fault(nb_num t, const uint8_t *p, unsigned *value)
{
    (void)t;
    *value = *p;
    return *p != 0 && *p != NB_UE8M0_ONE ? "outer byte beside a fixed scale" : NULL;
}

static nb_status check_scales(const checker *c, const nb_record_seg *g, const nb_seg_trait *f)
{
    const bool in_rows = nb_kv_traits[c->r->type]->in_rows;
    plane p = {
        .t = f->scale,
        .off = g->scale_off,
        .stride = g->scale_stride,
        .n = g->n_vec * g->n_group,
        .n_row = nb_seg_scale_rows(g->fmt, c->r->n_row),
        .before = in_rows ? g->scale_off : 0,
        .row_name = f->group_tok ? "group" : "token",
    };
    NB_TRY(check_plane(c, &p, f->flagged ? fault : scale_fault));
    if (!f->minimum) return NB_OK;
    p.before = g->scale_stride / 2;
    p.off += p.before;
    return check_plane(c, &p, fault);
}

nb_status nb_record_check_page(const nb_record *r, const void *page, nb_error *err)
{
    checker c = { r, page, 0, err };
    for (c.s = 0; c.s < r->n_seg; c.s++) {
        const nb_record_seg *g = &r->seg[c.s];
        const nb_seg_trait *f = nb_seg_traits[g->fmt];
        const size_t n = nb_seg_values(g), n_tok = r->n_row;
        const size_t before = nb_kv_traits[r->type]->in_rows ? g->code_off : 0;
        const plane codes = { f->code, g->code_off, g->code_stride, n, n_tok, before, "token" };
        const plane outer = { NB_NUM_UE8M0, g->outer_off, g->outer_stride, g->n_vec, n_tok, 0,
                              "token" };
        const plane side = { NB_NUM_BF16, g->side_off, g->side_stride,     g->n_outlier,
                             n_tok,       0,           "outliers of token" };
        if (f->code != NB_NUM_4BIT) NB_TRY(check_plane(&c, &codes, fault)); /* all are numbers */
        if (f->scale != NB_NUM_NONE) NB_TRY(check_scales(&c, g, f));
        if (f->outer) NB_TRY(check_plane(&c, &outer, g->fixed_scale != 0 ? mark_fault : fault));
        NB_TRY(check_plane(&c, &side, fault));
    }
    return NB_OK;
}
