/* attn_form.c - see attn_form.h. */
#include "quality/attn_form.h"

#include <math.h>
#include <stdlib.h>

#include "num/bf16.h"
#include "num/residual.h"
#include "num/traits.h"

/* ---- words and statistics ---------------------------------------------------- */

static nb_status parse_transform(nb_attn_form_opts *o, const char *s, nb_error *err)
{
    o->center = o->equalize = o->hadamard = false;
    if (strcmp(s, "none") == 0) return NB_OK;
    for (const char *p = s;; p++) {
        const size_t n = strcspn(p, "+");
        const nb_str w = { p, n };
        bool *to = nb_str_eqc(w, "center")     ? &o->center
                   : nb_str_eqc(w, "equalize") ? &o->equalize
                   : nb_str_eqc(w, "hadamard") ? &o->hadamard
                                               : NULL;
        if (!to || *to)
            return nb_fail(err, NB_ERR_ARG,
                           "transform=%s: expected none, or center, equalize and hadamard joined "
                           "by +, each once",
                           s);
        *to = true;
        p += n;
        if (!*p) return NB_OK;
    }
}

nb_status nb_attn_form_parse(nb_attn_form_opts *o, const char *type, const char *mode,
                             const char *rope, const char *transform, nb_error *err)
{
    if (!type || !*type || strcmp(type, "auto") == 0) type = "bf16";
    if (nb_kv_type_parse(type, &o->type) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "%s: unknown record", type);
    o->mode = nb_kv_mode_default(o->type);
    if (mode && *mode && nb_kv_mode_parse(mode, &o->mode) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "mode=%s: expected basic, 4over6 or search", mode);
    o->rope = nb_rope_fmt_default(true); /* of MLA layers */
    if (rope && *rope && nb_rope_fmt_parse(rope, &o->rope) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "rope=%s: expected fp8, bf16 or int8", rope);
    return transform && *transform ? parse_transform(o, transform, err) : NB_OK;
}

typedef struct channel {
    double width;
    uint16_t at;
} channel;

static int by_width(const void *a, const void *b)
{
    const channel *x = a, *y = b;
    if (x->width > y->width || x->width < y->width) return x->width > y->width ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Largest power of two that divides n. */
static size_t pow2_part(size_t n)
{
    size_t b = 1;
    while (n % (2 * b) == 0) b *= 2;
    return b;
}

static nb_status equalizer(nb_kv_calib_layer *s, int8_t *scale, uint16_t *perm, nb_arena *arena)
{
    const size_t n = s->n_values;
    channel *c = nb_arena_array(arena, n, sizeof *c);
    if (!c) return NB_ERR_NOMEM;
    double typical = 0;
    size_t n_live = 0;
    for (size_t i = 0; i < n; i++)
        if (s->sd[i] > 0) {
            typical += log2(s->sd[i]);
            n_live++;
        }
    if (n_live) typical /= (double)n_live;
    for (size_t i = 0; i < n; i++) {
        double e = s->sd[i] > 0 ? round(typical - log2(s->sd[i])) : 0;
        e = fmin(fmax(e, -NB_KV_SCALE_LOG2_MAX), NB_KV_SCALE_LOG2_MAX);
        scale[i] = (int8_t)e;
        c[i] = (channel){ ldexp(s->sd[i], scale[i]), (uint16_t)i };
    }
    qsort(c, n, sizeof *c, by_width);
    for (size_t i = 0; i < n; i++) perm[i] = c[i].at;
    return NB_OK;
}

nb_status nb_attn_stats(const nb_capture_layer *l, size_t n_tok, nb_arena *arena,
                        nb_kv_calib_layer *out, nb_error *err)
{
    const size_t n = l->n_vec[0] * l->dim[0];
    if (n_tok < 1 || n_tok > l->n_tok || n < 1 || n > UINT16_MAX)
        return nb_fail(err, NB_ERR_ARG, "statistics of %zu tokens of %zu values", n_tok, n);
    float *mean = nb_arena_array(arena, n, sizeof *mean),
          *sd = nb_arena_array(arena, n, sizeof *sd),
          *amax = nb_arena_array(arena, n, sizeof *amax);
    int8_t *scale = nb_arena_array(arena, n, 1);
    uint16_t *perm = nb_arena_array(arena, n, sizeof *perm);
    double *sum = nb_arena_array(arena, 2 * n, sizeof *sum), *sq = sum ? sum + n : NULL;
    if (!mean || !sd || !amax || !scale || !perm || !sum)
        return nb_fail(err, NB_ERR_NOMEM, "statistics: out of memory");
    *out = (nb_kv_calib_layer){ .n_values = n,
                                .mean = mean,
                                .sd = sd,
                                .amax = amax,
                                .scale_log2 = scale,
                                .perm = perm,
                                .hadamard = pow2_part(n) };
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < n; i++) {
            const float x = l->kv[t * l->n_values + i];
            sum[i] += x;
            if (fabsf(x) > amax[i]) amax[i] = fabsf(x);
        }
    for (size_t i = 0; i < n; i++) mean[i] = (float)(sum[i] / (double)n_tok);
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < n; i++) {
            const double x = (double)l->kv[t * l->n_values + i] - sum[i] / (double)n_tok;
            sq[i] += x * x;
        }
    for (size_t i = 0; i < n; i++) {
        sd[i] = (float)sqrt(sq[i] / (double)n_tok);
        if (amax[i] > out->token_amax) out->token_amax = amax[i];
    }
    return equalizer(out, scale, perm, arena) == NB_OK
               ? NB_OK
               : nb_fail(err, NB_ERR_NOMEM, "statistics: out of memory");
}

/* ---- the transform -------------------------------------------------------------- */

/* Blocks of `block` values; block a power of two. */
static void walsh(double *x, size_t n, size_t block)
{
    for (size_t b = 0; b < n; b += block)
        for (size_t half = 1; half < block; half *= 2)
            for (size_t i = 0; i < block; i += 2 * half)
                for (size_t j = b + i; j < b + i + half; j++) {
                    const double u = x[j], v = x[j + half];
                    x[j] = u + v;
                    x[j + half] = u - v;
                }
    const double scale = 1 / sqrt((double)block);
    for (size_t i = 0; i < n; i++) x[i] *= scale;
}

/* H P D^(sign) (x - mean) of segment 0 into out; tmp: [dim 0]. */
static void forth(const nb_attn_form *f, const float *x, bool key, double *tmp, float *out)
{
    const size_t n = f->l->n_vec[0] * f->l->dim[0];
    for (size_t i = 0; i < n; i++) {
        const size_t c = f->perm ? f->perm[i] : i;
        double v = x[c];
        if (key && f->mean) v -= f->mean[c];
        if (f->scale_log2) v = ldexp(v, key ? f->scale_log2[c] : -f->scale_log2[c]);
        tmp[i] = v;
    }
    if (f->hadamard > 1) walsh(tmp, n, f->hadamard);
    for (size_t i = 0; i < n; i++) out[i] = (float)tmp[i];
}

static bool has_transform(const nb_attn_form *f)
{
    return f->mean || f->scale_log2 || f->perm || f->hadamard > 1;
}

/* tmp: [dim 0] double. */
static void row_of(const nb_attn_form *f, size_t t, double *tmp, float *out)
{
    const nb_capture_layer *l = f->l;
    const float *x = l->kv + t * l->n_values;
    memcpy(out, x, l->n_values * sizeof *out);
    if (has_transform(f)) forth(f, x, true, tmp, out);
}

void nb_attn_form_query(const nb_attn_form *f, const float *q, float *out)
{
    const nb_capture_layer *l = f->l;
    memcpy(out, q, l->n_head * l->d_q * sizeof *out);
    if (!has_transform(f)) return;
    double tmp[NB_ATTN_MAX_LATENT];
    for (size_t h = 0; h < l->n_head; h++) forth(f, q + h * l->d_q, false, tmp, out + h * l->d_q);
}

void nb_attn_form_back(const nb_attn_form *f, double *u)
{
    const size_t n = f->l->dim[0];
    if (!has_transform(f)) return;
    double tmp[NB_ATTN_MAX_LATENT];
    memcpy(tmp, u, n * sizeof *tmp);
    if (f->hadamard > 1) walsh(tmp, n, f->hadamard);
    for (size_t i = 0; i < n; i++) {
        const size_t c = f->perm ? f->perm[i] : i;
        u[c] = f->scale_log2 ? ldexp(tmp[i], -f->scale_log2[c]) : tmp[i];
    }
    for (size_t i = 0; f->mean && i < n; i++) u[i] += f->mean[i];
}

/* ---- rows ------------------------------------------------------------------------ */

static void round_bf16(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = nb_bf16_to_f32(nb_bf16_from_f32(x[i]));
}

static nb_status choose(nb_attn_form *f, nb_arena *arena, nb_error *err)
{
    const nb_attn_form_opts *o = &f->o;
    const nb_kv_calib_layer *c = o->calib;
    const size_t n = f->l->n_vec[0] * f->l->dim[0];
    const bool center = o->by_calib ? c && c->use_center : o->center,
               equalize = o->by_calib ? c && c->use_equalize : o->equalize,
               hadamard = o->by_calib ? c && c->use_hadamard : o->hadamard;
    if ((center || equalize || hadamard) && !f->l->is_mla)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "%s: transforms are of latents (MLA)", o->name);
    if (!center && !equalize && !hadamard && !o->n_outlier) return NB_OK;
    if (f->l->is_mla && n > NB_ATTN_MAX_LATENT)
        return nb_fail(err, NB_ERR_LIMIT, "%s: a latent of %zu values: expected %d at most",
                       o->name, n, NB_ATTN_MAX_LATENT);
    nb_kv_calib_layer own;
    if (!c) {
        NB_TRY(nb_attn_stats(f->l, (f->l->n_tok + 1) / 2, arena, &own, err));
        c = &own;
    }
    if (c->n_values != n)
        return nb_fail(err, NB_ERR_ARG, "%s: calibration of %zu values, the layer has %zu", o->name,
                       c->n_values, n);
    if (center) f->mean = c->mean;
    if (equalize) {
        f->scale_log2 = c->scale_log2;
        f->perm = c->perm;
    }
    if (hadamard) f->hadamard = c->hadamard;
    if (o->n_outlier) {
        uint16_t *out = nb_arena_array(arena, NB_MAX_OUTLIER, sizeof *out);
        if (!out) return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", o->name);
        if (o->n_outlier > NB_MAX_OUTLIER || o->n_outlier > n || hadamard)
            return nb_fail(err, NB_ERR_ARG,
                           "%s: outliers=%zu: expected at most %d, and no hadamard", o->name,
                           o->n_outlier, NB_MAX_OUTLIER);
        nb_kv_calib_outliers(c, center, equalize, o->n_outlier, out);
        f->outlier = out;
    }
    return NB_OK;
}

static nb_status make_record(const nb_attn_form *f, nb_kv_type type, nb_record *r, nb_error *err)
{
    const nb_capture_layer *l = f->l;
    const bool plain = nb_kv_traits[type]->own_rope;
    nb_record_opts o = l->is_mla
                           ? (nb_record_opts){ NB_SEGS_MLA(l->dim[0], l->dim[1]) }
                           : (nb_record_opts){ NB_SEGS_KV(l->dim[0], l->dim[1], l->n_vec[0]) };
    o.type = type;
    o.mode = nb_kv_traits[type]->modes ? f->o.mode : NB_KV_BASIC;
    o.rope = l->is_mla && !plain ? f->o.rope : NB_ROPE_FP8;
    o.seg[0].outlier = f->outlier;
    o.seg[0].n_outlier = plain ? 0 : f->o.n_outlier;
    o.seg[1].outlier = f->o.rope_outlier;
    o.seg[1].n_outlier = l->is_mla ? f->o.n_rope_outlier : 0;
    if (nb_record_init(r, &o, err) != NB_OK)
        return nb_fail_prefix(err, NB_ERR_ARG, "%s", f->o.name);
    return NB_OK;
}

/* All whole pages through record r: pages [n_page][page_bytes] and rows. */
static nb_status through(const nb_attn_form *f, const nb_record *r, uint8_t *pages, float *rows,
                         nb_arena *arena, nb_error *err)
{
    const nb_capture_layer *l = f->l;
    const size_t n_v = l->n_values;
    float *x = nb_arena_array(arena, NB_PAGE_TOK * n_v, sizeof *x);
    uint16_t *b = nb_arena_array(arena, NB_PAGE_TOK * n_v, sizeof *b);
    double *tmp = nb_arena_array(arena, n_v, sizeof *tmp);
    if (!x || !b || !tmp) return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", f->o.name);
    for (size_t p = 0; p < f->n_page; p++) {
        for (size_t t = 0; t < NB_PAGE_TOK; t++) row_of(f, p * NB_PAGE_TOK + t, tmp, x + t * n_v);
        for (size_t i = 0; i < NB_PAGE_TOK * n_v; i++) {
            if (!isfinite(x[i]))
                return nb_fail(err, NB_ERR_NONFINITE, "%s: page %zu of layer %zu is not finite",
                               f->o.name, p, l->layer);
            b[i] = nb_bf16_from_f32(x[i]);
        }
        uint8_t *page = pages + p * r->page_bytes;
        nb_status st = NB_OK;
        if (r->type == NB_KV_F32)
            nb_record_store_f32(r, page, x, n_v);
        else
            st = nb_record_encode_page(r, page, b, n_v);
        if (st != NB_OK)
            return nb_fail(err, st, "%s: page %zu of layer %zu", f->o.name, p, l->layer);
        float *to = rows + p * NB_PAGE_TOK * n_v;
        for (size_t s = 0; s < r->n_seg; s++)
            nb_record_decode(r, page, s, 0, NB_PAGE_TOK, to + r->seg[s].first, n_v);
    }
    return NB_OK;
}

nb_status nb_attn_form_make(const nb_capture_layer *l, const nb_attn_form_opts *o, nb_arena *arena,
                            nb_attn_form *out, nb_error *err)
{
    nb_attn_form f = { .o = *o, .l = l, .n_page = l->n_tok / NB_PAGE_TOK, .n_tail = SIZE_MAX };
    if (!f.o.name) f.o.name = nb_kv_type_name(o->type);
    NB_TRY(choose(&f, arena, err));
    NB_TRY(make_record(&f, o->type, &f.record, err));
    const size_t n_row = f.n_page * NB_PAGE_TOK;
    f.pages = nb_arena_array(arena, f.n_page + 1, f.record.page_bytes);
    f.rows = nb_arena_array(arena, (n_row + 1) * l->n_values, sizeof *f.rows);
    f.tail = nb_arena_array(arena, NB_PAGE_TOK * l->n_values, sizeof *f.tail);
    f.tmp = nb_arena_array(arena, l->n_values, sizeof *f.tmp);
    if (!f.pages || !f.rows || !f.tail || !f.tmp)
        return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", f.o.name);
    NB_TRY(through(&f, &f.record, f.pages, f.rows, arena, err));
    for (size_t t = 0; t < o->n_sink && t < n_row; t++) {
        row_of(&f, t, f.tmp, f.rows + t * l->n_values);
        if (o->type != NB_KV_F32) round_bf16(f.rows + t * l->n_values, l->n_values);
    }
    f.bytes_per_tok = nb_record_bytes_per_tok(&f.record);
    f.tail_bytes = (o->type == NB_KV_F32 ? 4.0 : 2.0) * (double)l->n_values;
    *out = f;
    return NB_OK;
}

size_t nb_attn_form_tail(nb_attn_form *f, size_t pos)
{
    const nb_capture_layer *l = f->l;
    const size_t page = pos / NB_PAGE_TOK, first = page * NB_PAGE_TOK;
    for (size_t t = first; page != f->n_tail && t < first + NB_PAGE_TOK && t < l->n_tok; t++) {
        float *row = f->tail + (t - first) * l->n_values;
        row_of(f, t, f->tmp, row);
        if (f->o.type != NB_KV_F32) round_bf16(row, l->n_values);
    }
    f->n_tail = page;
    return first;
}

nb_status nb_attn_form_refined(const nb_attn_form *f, nb_attn_refine kind, nb_arena *arena,
                               float **rows, double *row_bytes, nb_error *err)
{
    const nb_capture_layer *l = f->l;
    const size_t n_v = l->n_values, n0 = l->n_vec[0] * l->dim[0], n_row = f->n_page * NB_PAGE_TOK;
    nb_record r = f->record;
    if (kind != NB_REFINE_RESIDUAL)
        NB_TRY(make_record(f, kind == NB_REFINE_FP8 ? NB_KV_FP8 : NB_KV_BF16, &r, err));
    else if (!nb_residual_possible(&r))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: no residual plane: expected an nvfp4 or if4 record", f->o.name);
    float *out = nb_arena_array(arena, (n_row + 1) * n_v, sizeof *out);
    if (!out) return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", f->o.name);
    if (kind != NB_REFINE_RESIDUAL) {
        uint8_t *pages = nb_arena_array(arena, f->n_page + 1, r.page_bytes);
        if (!pages) return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", f->o.name);
        NB_TRY(through(f, &r, pages, out, arena, err));
        *row_bytes = nb_record_bytes_per_tok(&r);
    } else {
        uint16_t *b = nb_arena_array(arena, NB_PAGE_TOK * n0, sizeof *b);
        uint8_t *plane = nb_arena_array(arena, 1, nb_residual_page_bytes(&r));
        float *x = nb_arena_array(arena, n_v, sizeof *x);
        if (!b || !plane || !x) return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", f->o.name);
        const size_t n_bytes = nb_residual_row_bytes(&r);
        memcpy(out, f->rows, n_row * n_v * sizeof *out);
        for (size_t p = 0; p < f->n_page; p++) {
            const uint8_t *page = f->pages + p * r.page_bytes;
            for (size_t t = 0; t < NB_PAGE_TOK; t++) {
                row_of(f, p * NB_PAGE_TOK + t, f->tmp, x);
                for (size_t i = 0; i < n0; i++) b[t * n0 + i] = nb_bf16_from_f32(x[i]);
            }
            nb_residual_encode(&r, page, b, n0, plane);
            for (size_t t = 0; t < NB_PAGE_TOK; t++)
                nb_residual_decode(&r, page, t, plane + t * n_bytes,
                                   out + (p * NB_PAGE_TOK + t) * n_v);
        }
        *row_bytes = (double)n_bytes;
    }
    const size_t sinks = f->o.n_sink < n_row ? f->o.n_sink : n_row;
    memcpy(out, f->rows, sinks * n_v * sizeof *out);
    *rows = out;
    return NB_OK;
}
